//! The `levity` binary: runs the command line, then the server or the viewer.
#![forbid(unsafe_code)]

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use levity::cli::{self, Step, Streams};
use levity_telemetry::diagnostics;

/// The C library's allocator locks a heap when another thread frees into it. A disk thread that is preempted
/// while it holds the lock would stop an event loop; this allocator returns such memory without a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    levity_disk::use_own_name_services();
    levity_disk::on_late(report_late);
    let colour = |terminal| {
        let var = |name| std::env::var_os(name);
        cli::colour(terminal, var("NO_COLOR"), var("TERM"))
    };
    let mut streams = Streams {
        out: &mut std::io::stdout(),
        err: &mut std::io::stderr(),
        colour: colour(std::io::stderr().is_terminal()),
    };
    match cli::step(std::env::args_os(), &mut streams) {
        Step::Serve(plan, early) => levity::process::server::control::run(*plan, early),
        #[cfg(feature = "inspect")]
        Step::Top(options) => match levity_inspect::top::run(&options, colour(true)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        Step::Explain(question) => levity::process::explain::run(*question),
        Step::Exit(status) => ExitCode::from(status),
    }
}

/// Says at once what a start waits for: its notes come at its end.
fn report_late(path: &Path) {
    diagnostics::log(format_args!("{} does not respond", path.display()));
}
