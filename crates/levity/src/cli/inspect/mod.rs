//! The commands of `levity-inspect`, which asks running servers and reads their logs.

mod mailbox;
mod top;

use std::path::PathBuf;

use clap::Subcommand;
use levity_inspect::timing;

use super::{EXIT_FAILURE, Environment, Step, Streams, admin_places};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Send to mailboxes of a running server, print what they get, or list them
    Mailbox {
        #[command(subcommand)]
        action: mailbox::Action,
    },
    /// Show the figures of a running server every second; q or Ctrl-C quits
    Top(top::Options),
    /// Analyse a JSON access log: where the time of requests was spent
    Timing {
        /// The log; - is standard input. `format = "json"` and `timing = "chunk"` under [log] write it
        #[arg(value_name = "LOG")]
        log: PathBuf,
        /// Write a picture of every wait, read and write over time
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The step after `command`; an exit status when a file that it needs cannot be used.
pub(super) fn step(command: Command, streams: &mut Streams<'_>) -> Result<Step, u8> {
    match command {
        Command::Mailbox { action } => Ok(Step::Exit(mailbox::run(action, streams))),
        Command::Top(options) => top::top(options, streams),
        Command::Timing { log, svg, json } => {
            let options = timing::Options { log, svg, json };
            Ok(Step::Exit(analyse(&options, streams)))
        }
    }
}

/// Analyses a log; the exit status says whether that was possible.
fn analyse(options: &timing::Options, streams: &mut Streams<'_>) -> u8 {
    match timing::run(options, streams.out, streams.err) {
        Ok(()) => 0,
        Err(message) => {
            streams.err(&format!("error: {message}\n"));
            EXIT_FAILURE
        }
    }
}
