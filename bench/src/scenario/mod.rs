//! The workloads. Each measures the rows on the rig and returns an outcome.

pub mod c1;
pub mod c2;
pub mod c3;
pub mod c4;
mod cold;
pub mod cores;
mod cost;
pub mod engines;
pub mod g1;
pub mod g2;
pub mod hot;
mod hot_and_cold;
pub mod huc;
pub mod huc_n;
pub mod huc_protocols;
pub mod idle;
pub mod m1;
pub mod m2;
pub mod m3;
pub mod m3j;
pub mod m4;
mod mailboxes;
pub mod p1;
pub mod p2;
pub mod p3;
pub mod p4;
pub mod p5;
mod proxied;
pub mod s1;
pub mod s4;
pub mod s5;
pub mod s6;
pub mod t1;
pub mod t3;
pub mod t5;
pub mod t7;
pub mod w1;
pub mod w13;
pub mod w14;
pub mod w2;
pub mod w3;
pub mod w4;
pub mod w5;
pub mod w6;
pub mod w7;
pub mod w8;
pub mod w9;

use crate::backend::Protocol;
use crate::failure::{Context, Failure, Result};
use crate::machine::{self, Machine};
use crate::metrics::Metrics;
use crate::peer::compression::COMPRESSORS;
use crate::peer::http2::HTTP2_PEERS;
use crate::peer::mailbox::MAILBOXES;
use crate::peer::proxy::PROXIES;
use crate::peer::tls::TLS_PEERS;
use crate::peer::{PEERS, Row, Server, engines_of};
use crate::report::Outcome;
use crate::report::kept::{self, Panel};
use crate::report::spread::Spread;
use crate::rig::certificates;
use crate::rig::tree::{COLD_SETS, FAST_SETS, FileSet, MIXED_SETS, SIZE_SETS};
use crate::rig::{Disk, Rig, Setup};
use clap::ValueEnum;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use t3::Handshake;

/// The server's memory limit on a fast disk: small, so that it is full within the warm-up.
const FAST_DISK_MEMORY_MIB: u64 = 256;

/// The cold files of the workloads.
const SETS: [&[FileSet]; 5] = [&COLD_SETS, &MIXED_SETS, &FAST_SETS, &SIZE_SETS, &[]];

/// A workload by its name in `benchmarks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Hot under cold: small hot files while a hundred clients fetch cold ones.
    Huc,
    /// The same on the machine's disk, also with a quota of CPU time.
    HucN,
    /// CPU time and system calls of a request for a small hot file.
    W1,
    /// CPU time of a megabyte of a large hot file.
    W2,
    /// Cold files, each once, compared with the walker.
    W3,
    /// Cold files of 4 KB and 1 MB for a thousand connections, with one worker and with two.
    W4,
    /// Streams, by their number and the chunk size.
    W5,
    /// One large hot file and many cold ones.
    W6,
    /// Small hot files during streams that exceed the memory.
    W7,
    /// Small files with nothing in memory, some of which do not exist.
    W8,
    /// A disk that freezes.
    W9,
    /// Many clients request one cold file at the same time.
    W13,
    /// File systems of several kinds.
    W14,
    /// CPU time and throughput of cold files of five sizes on the machine's disk, with each engine and peer.
    Engines,
    /// Throughput of files in memory, each engine compared with the baseline.
    Hot,
    /// CPU time of a request for a small hot file, with two workers and with one.
    Cores,
    /// Memory of idle connections.
    Idle,
    /// CPU time and system calls of a small proxied response.
    P1,
    /// Large proxied responses.
    P2,
    /// A response through the application's socket or in a temporary file.
    P3,
    /// Many clients and few connections to backends that are killed and restarted.
    P4,
    /// Cold files with an application that opens them first.
    P5,
    /// A small hot file while text is compressed at high levels.
    C1,
    /// CPU time and size of compressed responses of an application.
    C2,
    /// Slow clients of compressed streams beside others.
    C3,
    /// Durable appends compared with fio.
    C4,
    /// A small hot file while passwords are guessed.
    G1,
    /// CPU time of a request for a small hot file with rate limits and a million clients.
    G2,
    /// Memory of idle subscribers of a mailbox.
    M1,
    /// One message to many subscribers.
    M2,
    /// Many boxes with one subscriber each.
    M3,
    /// Durable messages on the disk.
    M3j,
    /// A small hot file while messages go to many subscribers.
    M4,
    /// CPU time of requests for small hot files and of megabytes over HTTP/2.
    S1,
    /// Hot under cold over HTTP/2.
    S2,
    /// Hot under cold over HTTP/2 and TLS.
    S3,
    /// Memory of idle connections and streams of HTTP/2.
    S4,
    /// A small hot file while a client attacks over HTTP/2.
    S5,
    /// CPU time of a small proxied response over HTTP/2.
    S6,
    /// CPU time of a request for a small hot file over TLS.
    T1,
    /// CPU time of a megabyte of a hot file over TLS.
    T2,
    /// Full handshakes of TLS per CPU second.
    T3,
    /// Resumed handshakes of TLS per CPU second.
    T4,
    /// Memory of idle connections with TLS.
    T5,
    /// Hot under cold over TLS.
    T6,
    /// A small hot file over TLS while clients make handshakes with RSA.
    T7,
    /// huc and huc-n, and one picture of both.
    Picture,
    /// All of them.
    All,
}

/// The workloads, their duration and the servers.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The workload.
    #[arg(value_enum)]
    pub scenario: Scenario,
    /// Only check that it works: one pass of half a second, and fewer steps. The figures mean little.
    #[arg(long)]
    pub quick: bool,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Passes over all rows, interleaved.
    #[arg(long, default_value_t = 3)]
    pub passes: usize,
    /// Connections of w1 and w2; by default all steps of the workload.
    #[arg(long, value_delimiter = ',')]
    pub connections: Vec<usize>,
    /// Requests per second of the open loop.
    #[arg(long, default_value_t = 2000)]
    pub rate: u32,
    /// Levity's engines; `all` for every engine of the binary; empty for none.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub engines: Vec<String>,
    /// Two rows for each engine of workloads with files: in the sandbox of the unit for systemd, and without any.
    #[arg(long)]
    pub sandbox: bool,
    /// Peers; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = PEERS.map(|(name, _)| name.to_owned()))]
    pub peers: Vec<String>,
    /// Peers of the workloads with proxies; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = PROXIES.map(str::to_owned))]
    pub proxies: Vec<String>,
    /// Peers of the workloads with compression; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = COMPRESSORS.map(str::to_owned))]
    pub compressors: Vec<String>,
    /// Peers of the workloads with mailboxes; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = MAILBOXES.map(str::to_owned))]
    pub mailboxes: Vec<String>,
    /// Peers of the workloads with TLS; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = TLS_PEERS.map(str::to_owned))]
    pub tls_peers: Vec<String>,
    /// Peers of the workloads with HTTP/2; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = HTTP2_PEERS.map(str::to_owned))]
    pub http2_peers: Vec<String>,
    /// Levity's binary.
    #[arg(long, default_value = "target/dist/levity")]
    pub levity: PathBuf,
    /// The directory of the results.
    #[arg(long, default_value = "bench/results")]
    pub results: PathBuf,
    /// The file for the picture of huc and huc-n.
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// The settings of the rig.
    #[command(flatten)]
    pub setup: Setup,
}

/// The servers that a workload compares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    /// With files, each engine.
    Files,
    /// As proxies.
    Proxies,
    /// With compression.
    Compressors,
    /// With mailboxes.
    Mailboxes,
    /// With TLS.
    Tls,
    /// With HTTP/2.
    Http2,
    /// No server.
    None,
}

/// The part of [`Run`] that belongs to a result.
#[derive(Serialize)]
struct Options {
    seconds: f64,
    passes: usize,
    rate: u32,
    /// Servers that did not start, and why.
    left_out: Vec<String>,
}

impl Run {
    /// Sets up the rig, runs the workloads and writes the results.
    ///
    /// # Errors
    /// The rig cannot be set up, a server does not start, or the results cannot be written.
    pub fn execute(&self) -> Result<()> {
        let mut run = self.clone();
        if run.quick {
            (run.seconds, run.passes) = (0.5, 1);
        }
        let load_average = machine::load_average();
        let mut panels = Vec::new();
        for sets in SETS {
            run.setup.memory_mib = self.setup.memory_mib;
            if !may_be_slow(sets) {
                run.setup.disk = Disk::Native;
            }
            if sets == FAST_SETS || sets == SIZE_SETS {
                run.setup.memory_mib.get_or_insert(FAST_DISK_MEMORY_MIB);
            }
            let mut scenarios = run.scenario.each_on(sets);
            // A workload that was requested by its name reports why it cannot run.
            let skips_freezes = run.scenario == Scenario::All && run.setup.disk == Disk::Native;
            scenarios.retain(|scenario| !(skips_freezes && *scenario == Scenario::W9));
            for &spindles in run.spindles().iter().filter(|_| !scenarios.is_empty()) {
                let rig = Rig::set_up(run.setup.clone(), sets, spindles)?;
                run.on(&rig, &scenarios, load_average.clone(), &mut panels)?;
            }
        }
        self.draw(&panels)
    }

    /// The requested numbers of connections, or those of the workload.
    fn connections_or<'a>(&'a self, of_workload: &'a [usize]) -> &'a [usize] {
        if self.connections.is_empty() {
            of_workload
        } else {
            &self.connections
        }
    }

    /// The spindles of a real disk cannot be chosen.
    fn spindles(&self) -> &[u32] {
        match self.setup.disk {
            Disk::Native => &self.setup.spindles[..1],
            Disk::Delay | Disk::Seek => &self.setup.spindles,
        }
    }

    fn on(
        &self,
        rig: &Rig,
        scenarios: &[Scenario],
        load_average: String,
        panels: &mut Vec<Panel>,
    ) -> Result<()> {
        let machine = Machine::of(rig, load_average);
        eprintln!("levity-bench: {}", machine.sentence());
        for field in [
            Field::Files,
            Field::Proxies,
            Field::Compressors,
            Field::Mailboxes,
            Field::Tls,
            Field::Http2,
            Field::None,
        ] {
            let compared: Vec<Scenario> = scenarios
                .iter()
                .copied()
                .filter(|scenario| scenario.field() == field)
                .collect();
            if !compared.is_empty() {
                let (rows, left_out) = self.rows_of(field, rig)?;
                let (rows, not_started) = startable(rig, rows)?;
                let left_out = [left_out, not_started].concat();
                self.each(rig, &compared, (rows, left_out), &machine, panels)?;
            }
        }
        Ok(())
    }

    /// The servers, and what kept others from being prepared.
    fn rows_of(&self, field: Field, rig: &Rig) -> Result<(Vec<Row>, Vec<String>)> {
        let rows = match field {
            Field::Files => self.rows(rig),
            Field::Proxies => self.proxies(rig),
            Field::Compressors => self.compressors(rig),
            Field::Mailboxes => return self.mailboxes(rig),
            Field::Tls => self.tls(rig),
            Field::Http2 => self.http2(rig),
            Field::None => Ok(Vec::new()),
        };
        Ok((rows?, Vec::new()))
    }

    fn each(
        &self,
        rig: &Rig,
        scenarios: &[Scenario],
        (rows, left_out): (Vec<Row>, Vec<String>),
        machine: &Machine,
        panels: &mut Vec<Panel>,
    ) -> Result<()> {
        let options = Options {
            seconds: self.seconds,
            passes: self.passes,
            rate: self.rate,
            left_out,
        };
        for &scenario in scenarios {
            let mut outcome = self.outcome(scenario, rig, &rows, panels)?;
            name_left_out(&mut outcome.caption, &options.left_out);
            if self.quick {
                outcome
                    .caption
                    .push_str("\n\nA quick look: too short to mean much.");
            }
            if may_be_slow(scenario.sets()) {
                let variant = variant(self.setup.disk, rig.spindles);
                outcome.name.push_str(&variant);
            }
            println!("{}", outcome.markdown(machine));
            outcome.write(&self.results, machine, &to_json(&options)?)?;
        }
        Ok(())
    }

    fn outcome(
        &self,
        scenario: Scenario,
        rig: &Rig,
        rows: &[Row],
        panels: &mut Vec<Panel>,
    ) -> Result<Outcome> {
        // If a filled cache of open files makes no difference, the rows would be the same.
        let unfilled: Vec<Row> = rows
            .iter()
            .filter(|row| !row.is_filled())
            .cloned()
            .collect();
        let with_panel = |(outcome, panel)| {
            panels.push(panel);
            outcome
        };
        match scenario {
            Scenario::Huc => huc::run(rig, rows, self).map(with_panel),
            Scenario::HucN => huc_n::run(rig, &unfilled, self).map(with_panel),
            Scenario::W1 => w1::run(rig, &unfilled, self),
            Scenario::W2 => w2::run(rig, &unfilled, self),
            Scenario::W3 => w3::run(rig, rows, self),
            Scenario::W4 => w4::run(rig, &unfilled, self),
            Scenario::W5 => w5::run(rig, &unfilled, self),
            Scenario::W6 => w6::run(rig, &unfilled, self),
            Scenario::W7 => w7::run(rig, &unfilled, self),
            Scenario::W8 => w8::run(rig, &unfilled, self),
            Scenario::W9 => w9::run(rig, rows, self),
            Scenario::W13 => w13::run(rig, &unfilled, self),
            Scenario::W14 => w14::run(rig, &unfilled, self),
            Scenario::Engines => engines::run(rig, &unfilled, self),
            Scenario::Hot => hot::run(rig, &unfilled, self),
            Scenario::Cores => cores::run(rig, &unfilled, self),
            Scenario::Idle => idle::run(rig, &unfilled),
            Scenario::P1 => p1::run(rig, rows, self),
            Scenario::P2 => p2::run(rig, rows, self),
            Scenario::P3 => p3::run(rig, rows, self),
            Scenario::P4 => p4::run(rig, rows, self),
            Scenario::P5 => p5::run(rig, rows, self),
            Scenario::C1 => c1::run(rig, rows, self),
            Scenario::C2 => c2::run(rig, rows, self),
            Scenario::C3 => c3::run(rig, rows, self),
            Scenario::C4 => c4::run(rig, self),
            Scenario::G1 => g1::run(rig, rows, self),
            Scenario::G2 => g2::run(rig, &unfilled, self),
            Scenario::M1 => m1::run(rig, rows, self),
            Scenario::M2 => m2::run(rig, rows, self),
            Scenario::M3 => m3::run(rig, rows, self),
            Scenario::M3j => m3j::run(rig, rows, self),
            Scenario::M4 => m4::run(rig, rows, self),
            Scenario::S1 => s1::run(rig, rows, self),
            Scenario::S2 => huc_protocols::run(rig, rows, self, &huc_protocols::HTTP2),
            Scenario::S3 => huc_protocols::run(rig, rows, self, &huc_protocols::HTTP2_OVER_TLS),
            Scenario::S4 => s4::run(rig, rows, self),
            Scenario::S5 => s5::run(rig, rows, self),
            Scenario::S6 => s6::run(rig, rows, self),
            Scenario::T1 => t1::run(rig, rows, self, &t1::SMALL),
            Scenario::T2 => t1::run(rig, rows, self, &t1::LARGE),
            Scenario::T3 => t3::run(rig, rows, self, Handshake::Full),
            Scenario::T4 => t3::run(rig, rows, self, Handshake::Resumed),
            Scenario::T5 => t5::run(rig, rows),
            Scenario::T6 => huc_protocols::run(rig, rows, self, &huc_protocols::TLS),
            Scenario::T7 => t7::run(rig, rows, self),
            Scenario::Picture | Scenario::All => Err(Failure::new("not a single workload")),
        }
    }

    fn rows(&self, rig: &Rig) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        if self.engines.iter().any(|engine| !engine.is_empty()) {
            let binary = rig.copy_of(&self.levity)?;
            let engines = if self.engines == ["all"] {
                engines_of(&binary)?
            } else {
                self.engines.clone()
            };
            let levity = engines.iter().map(|engine| Row::levity(&binary, engine));
            rows.extend(levity.flat_map(|row| match self.sandbox {
                true => vec![row.sandboxed(), row.unconfined()],
                false => vec![row],
            }));
        }
        for peer in self.peers.iter().filter(|peer| !peer.is_empty()) {
            rows.push(Row::peer(peer)?);
        }
        if rows.is_empty() {
            Err(Failure::new("no engine and no peer to run"))
        } else {
            Ok(rows)
        }
    }

    /// Levity with the engine that it would choose, unless others are asked for: what the engine does matters to few
    /// workloads of proxies and of compression.
    fn own_choice(&self, rig: &Rig) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for engine in self.engines.iter().filter(|engine| !engine.is_empty()) {
            let engine = if engine == "all" { "auto" } else { engine };
            rows.push(Row::levity(&rig.copy_of(&self.levity)?, engine));
        }
        Ok(rows)
    }

    /// Levity and the peers that compress, without compression.
    fn compressors(&self, rig: &Rig) -> Result<Vec<Row>> {
        let mut rows = self.own_choice(rig)?;
        for name in self.compressors.iter().filter(|name| !name.is_empty()) {
            rows.push(Row::compressor(name)?);
        }
        Ok(rows)
    }

    /// Levity and the peers over TLS.
    fn tls(&self, rig: &Rig) -> Result<Vec<Row>> {
        let certificates = certificates::make(rig)?;
        let mut rows = Vec::new();
        for row in self.own_choice(rig)? {
            rows.push(row.over_tls(&certificates));
        }
        for name in self.tls_peers.iter().filter(|name| !name.is_empty()) {
            rows.push(Row::tls_peer(name)?.over_tls(&certificates));
        }
        Ok(rows)
    }

    fn http2(&self, rig: &Rig) -> Result<Vec<Row>> {
        let own = self.own_choice(rig)?;
        let mut rows: Vec<_> = own.iter().map(Row::over_http2).collect();
        for name in self.http2_peers.iter().filter(|name| !name.is_empty()) {
            rows.push(Row::http2_peer(name)?);
        }
        Ok(rows)
    }

    /// Levity and the peers with mailboxes. A peer that cannot be built is left out.
    fn mailboxes(&self, rig: &Rig) -> Result<(Vec<Row>, Vec<String>)> {
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for row in self.own_choice(rig)? {
            let subscribers = mailboxes::subscribers(mailboxes::SUBSCRIBERS_MAX);
            rows.push(row.with_mailboxes(rig, subscribers, "")?);
        }
        for name in self.mailboxes.iter().filter(|name| !name.is_empty()) {
            match Row::mailbox(name, rig) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    eprintln!("levity-bench: left out: {error}");
                    left_out.push(error.to_string());
                }
            }
        }
        Ok((rows, left_out))
    }

    /// Levity and the peers as proxies.
    fn proxies(&self, rig: &Rig) -> Result<Vec<Row>> {
        let mut rows = self.own_choice(rig)?;
        for proxy in self.proxies.iter().filter(|proxy| !proxy.is_empty()) {
            rows.push(Row::proxy(proxy)?);
        }
        let upstream = proxied::upstream(rig, Protocol::Http, 1, 1);
        Ok(rows.iter().map(|row| row.before(&upstream)).collect())
    }

    /// The picture of one run of huc and one of huc-n.
    fn draw(&self, panels: &[Panel]) -> Result<()> {
        match (&self.picture, panels) {
            (Some(path), [_, _]) => fs::write(path, kept::svg(&kept::main_rows(panels)))
                .context(|| format!("write {}", path.display())),
            _ => Ok(()),
        }
    }
}

impl Scenario {
    /// The selected workloads that read these cold files.
    fn each_on(self, sets: &[FileSet]) -> Vec<Self> {
        let all = Self::value_variants()
            .iter()
            .filter(|scenario| !matches!(scenario, Self::Picture | Self::All));
        all.copied()
            .filter(|scenario| self.includes(*scenario))
            .filter(|scenario| scenario.sets() == sets)
            .collect()
    }

    fn includes(self, scenario: Self) -> bool {
        match self {
            Self::All => true,
            Self::Picture => matches!(scenario, Self::Huc | Self::HucN),
            _ => self == scenario,
        }
    }

    fn field(self) -> Field {
        match self {
            Self::P1 | Self::P2 | Self::P3 | Self::P4 | Self::P5 => Field::Proxies,
            Self::S6 => Field::Proxies,
            Self::C1 | Self::C2 | Self::C3 | Self::G1 => Field::Compressors,
            Self::M1 | Self::M2 | Self::M3 | Self::M3j | Self::M4 => Field::Mailboxes,
            Self::T1 | Self::T2 | Self::T3 | Self::T4 | Self::T5 | Self::T6 | Self::T7 => {
                Field::Tls
            }
            Self::S3 => Field::Tls,
            Self::S1 | Self::S2 | Self::S4 | Self::S5 => Field::Http2,
            Self::C4 => Field::None,
            _ => Field::Files,
        }
    }

    fn sets(self) -> &'static [FileSet] {
        match self {
            Self::HucN => &FAST_SETS,
            Self::Engines => &SIZE_SETS,
            Self::W1 | Self::W2 | Self::Cores | Self::G1 | Self::G2 => &[],
            Self::P1 | Self::P2 | Self::P3 | Self::P4 => &[],
            Self::C1 | Self::C2 | Self::C3 | Self::C4 => &[],
            Self::M1 | Self::M2 | Self::M3 | Self::M3j | Self::M4 => &[],
            Self::S1 | Self::S4 | Self::S5 | Self::S6 => &[],
            Self::T1 | Self::T2 | Self::T3 | Self::T4 | Self::T5 | Self::T7 => &[],
            Self::W4 | Self::W5 | Self::W6 | Self::W7 | Self::W8 | Self::W13 => &MIXED_SETS,
            _ => &COLD_SETS,
        }
    }
}

/// Whether the disk of these files can be chosen. Workloads without cold files and those for a fast disk have the
/// machine's.
fn may_be_slow(sets: &[FileSet]) -> bool {
    ![&[], &FAST_SETS[..], &SIZE_SETS].contains(&sets)
}

/// The suffix of the names of results; empty for the usual disk.
fn variant(disk: Disk, spindles: u32) -> String {
    match disk {
        Disk::Delay if spindles == 2 => String::new(),
        Disk::Delay => format!("-{spindles}-spindles"),
        Disk::Seek => format!("-seek-{spindles}-spindles"),
        Disk::Native => "-native".into(),
    }
}

/// A row, and what else its measurements depend on.
struct Subject<K> {
    row: Row,
    kind: K,
}

impl<K> AsRef<Row> for Subject<K> {
    fn as_ref(&self) -> &Row {
        &self.row
    }
}

/// Starts each server once, so that a server that cannot run is known before the measurements.
fn startable<S: AsRef<Row>>(rig: &Rig, rows: Vec<S>) -> Result<(Vec<S>, Vec<String>)> {
    let (mut startable, mut left_out) = (Vec::new(), Vec::new());
    let needs_a_server = !rows.is_empty();
    for row in rows {
        match Server::start(rig, row.as_ref()) {
            Ok(_) => startable.push(row),
            Err(error) => {
                eprintln!("levity-bench: left out: {error}");
                left_out.push(error.to_string());
            }
        }
    }
    if startable.is_empty() && needs_a_server {
        Err(Failure::new("no server starts"))
    } else {
        Ok((startable, left_out))
    }
}

/// Adds the servers that did not start to the text below a table.
fn name_left_out(caption: &mut String, left_out: &[String]) {
    for server in left_out {
        caption.push_str(&format!("\n\nLeft out: {server}"));
    }
}

/// All passes of one row.
#[derive(Serialize)]
pub struct Measured<P> {
    /// The server.
    pub server: String,
    /// One entry for each pass.
    pub passes: Vec<P>,
}

/// Measures every row in every pass: A B C, then C B A. So a slow minute of the machine affects all rows, and no row
/// follows the same other row in every pass.
fn interleaved<S: AsRef<Row>, P>(
    rows: &[S],
    passes: usize,
    mut measure: impl FnMut(&S, u64) -> Result<P>,
) -> Result<Vec<Measured<P>>> {
    let mut measured: Vec<_> = rows
        .iter()
        .map(|row| Measured {
            server: row.as_ref().name.clone(),
            passes: Vec::new(),
        })
        .collect();
    for pass in 1..=passes {
        for number in order(rows.len(), pass) {
            let row = &rows[number];
            let name = &row.as_ref().name;
            eprintln!("levity-bench: pass {pass} of {passes}: {name}");
            measured[number].passes.push(measure(row, pass as u64)?);
        }
    }
    Ok(measured)
}

/// The rows of a pass in their order. Passes count from 1.
fn order(rows: usize, pass: usize) -> impl Iterator<Item = usize> {
    (0..rows).map(move |number| match pass % 2 {
        1 => number,
        _ => rows - 1 - number,
    })
}

impl<P> Measured<P> {
    /// Median and spread of one figure.
    fn spread(&self, figure: impl Fn(&P) -> f64) -> Spread {
        Spread::of(self.passes.iter().map(figure))
    }

    /// Median and spread of one figure divided by that of the other row in the same pass.
    fn spread_of_ratio(&self, to: &Self, figure: impl Fn(&P) -> f64) -> Spread {
        let pairs = self.passes.iter().zip(&to.passes);
        Spread::of(pairs.map(|(own, other)| figure(own) / figure(other)))
    }

    /// The sum of a count over all passes.
    fn total(&self, count: impl Fn(&P) -> u64) -> u64 {
        self.passes.iter().map(count).sum()
    }
}

/// The row of the baseline: Levity with the engine that blocks the event loop.
const BASELINE: &str = "levity sendfile";

fn baseline<P>(measured: &[Measured<P>]) -> Option<&Measured<P>> {
    measured.iter().find(|row| row.server == BASELINE)
}

/// The peer with the lowest median of `figure`; `None` without peers.
fn best_peer<'a, P>(
    rows: &[Row],
    measured: &'a [Measured<P>],
    figure: impl Fn(&P) -> f64,
) -> Option<&'a Measured<P>> {
    let peers = rows
        .iter()
        .zip(measured)
        .filter(|(row, _)| !row.is_levity());
    let median = |row: &Measured<P>| row.spread(&figure).median;
    peers
        .map(|(_, measured)| measured)
        .min_by(|one, other| median(one).total_cmp(&median(other)))
}

/// The lowest median of `figure` among the peers; `None` without peers.
fn lowest_of_peers<P>(
    rows: &[Row],
    measured: &[Measured<P>],
    figure: impl Fn(&P) -> f64,
) -> Option<f64> {
    let best = best_peer(rows, measured, &figure)?;
    Some(best.spread(figure).median)
}

/// The share of the compressed responses of Levity whose level is that of the configuration, and not a lower one or none
/// because of the load; NaN if there were none.
fn at_level(after: &Metrics, before: &Metrics) -> f64 {
    let grown = |label: &str| after.growth_since(before, "levity_compressions_total", label);
    grown("outcome=\"usual\"") / grown("")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn to_json(rows: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(rows).context(|| "result".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workloads_are_run_once_each() {
        let all = SETS.map(|sets| Scenario::All.each_on(sets));
        let count = all.iter().map(Vec::len).sum::<usize>();
        assert_eq!(count, Scenario::value_variants().len() - 2);
        let pictured = SETS.map(|sets| Scenario::Picture.each_on(sets));
        assert_eq!(pictured.concat(), [Scenario::Huc, Scenario::HucN]);
        assert!(all[0].contains(&Scenario::Huc) && all[1].contains(&Scenario::W5));
        assert_eq!(Scenario::W5.each_on(&MIXED_SETS), [Scenario::W5]);
        assert_eq!(Scenario::W5.each_on(&COLD_SETS), []);
    }

    #[test]
    fn results_of_other_disks_have_other_names() {
        assert_eq!(variant(Disk::Delay, 2), "");
        assert_eq!(variant(Disk::Delay, 4), "-4-spindles");
        assert_eq!(variant(Disk::Seek, 2), "-seek-2-spindles");
        assert_eq!(variant(Disk::Native, 2), "-native");
    }

    #[test]
    fn every_row_has_another_position_in_each_pass() {
        let passes = [1, 2, 3].map(|pass| order(3, pass).collect::<Vec<_>>());
        assert_eq!(passes, [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
        assert_eq!(order(0, 1).count(), 0);
    }

    #[test]
    fn ratios_are_taken_within_a_pass() {
        let row = |server: &str, passes: [f64; 3]| Measured {
            server: server.into(),
            passes: passes.to_vec(),
        };
        let rows = [
            row("levity sendfile", [1.0, 10.0, 100.0]),
            row("levity auto", [2.0, 10.0, 50.0]),
        ];
        let ratio = rows[1].spread_of_ratio(baseline(&rows).unwrap(), |figure| *figure);
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.0, 0.5, 2.0));
    }
}
