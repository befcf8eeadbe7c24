//! The `levity` binary: the command line, then the server.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use levity::cli::{self, Step, Streams};

fn main() -> ExitCode {
    let mut streams = Streams {
        out: &mut std::io::stdout(),
        err: &mut std::io::stderr(),
        colour: colour(),
    };
    match cli::step(std::env::args_os(), &mut streams) {
        Step::Serve(plan) => levity::server::run(*plan),
        Step::Exit(status) => ExitCode::from(status),
    }
}

/// Colour is for people at a terminal who have not declined it (<https://no-color.org>).
fn colour() -> bool {
    let declined = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !declined && !dumb
}
