//! `levity-bench`: runs a workload, or one of its parts as a process of its own.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use levity_bench::Result;
use levity_bench::backend::command::Backend;
use levity_bench::bare_files::BareFiles;
use levity_bench::bare_http2::BareHttp2;
use levity_bench::bare_tls::BareTls;
use levity_bench::load::attack::Attacker;
use levity_bench::load::command::Load;
use levity_bench::load::sip::Sip;
use levity_bench::mailbox::command::Subscribe;
use levity_bench::mailbox::writer::Writer;
use levity_bench::rig::journal;
use levity_bench::scenario::Run;
use levity_bench::walk::Walk;
use std::path::PathBuf;

/// Benchmarks of Levity.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up the rig, run workloads against all servers and write the results.
    Run(Box<Run>),
    /// Generate load and print a JSON report.
    Load(Load),
    /// Abuse HTTP/2 and print a JSON report.
    Attack(Attacker),
    /// Read responses slowly on many connections until standard input ends.
    Sip(Sip),
    /// Listen to mailboxes and publish as orders on standard input say, until it ends.
    Subscribe(Subscribe),
    /// Write each message to every subscriber, until it is killed.
    Writer(Writer),
    /// Run the application behind a proxy until it is killed.
    Backend(Backend),
    /// Run the least server of files until it is killed.
    BareFiles(BareFiles),
    /// Run the least server of HTTP/2 until it is killed.
    BareHttp2(BareHttp2),
    /// Run the least server of TLS until it is killed.
    BareTls(BareTls),
    /// Read files and print a JSON report.
    Walk(Walk),
    /// At the end of standard input, undo the changes of an interrupted run.
    Reap {
        /// The rig's directory.
        dir: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run(run) => run.execute(),
        Command::Load(load) => load.run(),
        Command::Attack(attacker) => attacker.run(),
        Command::Sip(sip) => sip.run(),
        Command::Subscribe(subscribe) => subscribe.run(),
        Command::Writer(writer) => writer.run(),
        Command::Backend(backend) => backend.run(),
        Command::BareFiles(server) => server.run(),
        Command::BareHttp2(server) => server.run(),
        Command::BareTls(server) => server.run(),
        Command::Walk(walk) => walk.run(),
        Command::Reap { dir } => journal::reap(&dir),
    }
}
