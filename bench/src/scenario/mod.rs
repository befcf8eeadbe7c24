//! The workloads: each takes the rig and the rows, and gives an outcome.

pub mod huc;
pub mod idle;
pub mod w1;
pub mod w3;

use crate::failure::{Context, Failure, Result};
use crate::machine::{self, Machine};
use crate::peer::{PEERS, Row, Server};
use crate::report::Outcome;
use crate::rig::{Rig, Setup};
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// A workload by its name in `benchmarks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Hot under cold: small hot files while a hundred clients fetch cold ones.
    Huc,
    /// CPU time and system calls of a request for a small hot file.
    W1,
    /// Cold files, each once, against the walker.
    W3,
    /// Memory of idle connections.
    Idle,
    /// All of them.
    All,
}

/// What is run, how often and how long.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The workload.
    #[arg(value_enum)]
    pub scenario: Scenario,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Passes over all rows, interleaved.
    #[arg(long, default_value_t = 3)]
    pub passes: usize,
    /// Requests per second of the open loop.
    #[arg(long, default_value_t = 2000)]
    pub rate: u32,
    /// Levity's engines; empty for none.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "auto,threads,io_uring,sendfile"
    )]
    pub engines: Vec<String>,
    /// Peers; empty for none.
    #[arg(long, value_delimiter = ',', default_values_t = PEERS.map(|(name, _)| name.to_owned()))]
    pub peers: Vec<String>,
    /// Levity's binary.
    #[arg(long, default_value = "target/release/levity")]
    pub levity: PathBuf,
    /// Where the results are written.
    #[arg(long, default_value = "bench/results")]
    pub results: PathBuf,
    /// Where a copy of the picture of HUC is written.
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// How the rig is set up.
    #[command(flatten)]
    pub setup: Setup,
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
    /// Sets up the rig, runs the workload and writes the results.
    ///
    /// # Errors
    /// The rig cannot be set up, a server does not start, or the results cannot be written.
    pub fn execute(&self) -> Result<()> {
        let load_average = machine::load_average();
        let rig = Rig::set_up(self.setup.clone())?;
        let machine = Machine::of(&rig, load_average);
        eprintln!("levity-bench: {}", machine.sentence());
        let (rows, left_out) = startable(&rig, self.rows()?)?;
        let options = Options {
            seconds: self.seconds,
            passes: self.passes,
            rate: self.rate,
            left_out,
        };
        for scenario in self.scenario.each() {
            let mut outcome = self.outcome(scenario, &rig, &rows)?;
            for server in &options.left_out {
                outcome.caption.push_str(&format!("\n\nLeft out: {server}"));
            }
            println!("{}", outcome.markdown(&machine));
            outcome.write(&self.results, &machine, &to_json(&options)?)?;
            self.copy_picture(&outcome)?;
        }
        Ok(())
    }

    fn outcome(&self, scenario: Scenario, rig: &Rig, rows: &[Row]) -> Result<Outcome> {
        // Without cold files a filled cache is the same row twice.
        let unfilled: Vec<Row> = rows
            .iter()
            .filter(|row| !row.is_filled())
            .cloned()
            .collect();
        match scenario {
            Scenario::Huc => huc::run(rig, rows, self),
            Scenario::W1 => w1::run(rig, &unfilled, self),
            Scenario::W3 => w3::run(rig, rows, self),
            Scenario::Idle => idle::run(rig, &unfilled),
            Scenario::All => Err(Failure::new("not a single workload")),
        }
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let engines: Vec<&String> = self
            .engines
            .iter()
            .filter(|engine| !engine.is_empty())
            .collect();
        let mut rows = Vec::new();
        if !engines.is_empty() {
            let binary = self.copy_levity()?;
            rows.extend(
                engines
                    .into_iter()
                    .map(|engine| Row::levity(&binary, engine)),
            );
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

    /// The rig's own copy: the build directory may be closed to the user that servers run as, and
    /// a build during the run would change what is measured.
    fn copy_levity(&self) -> Result<PathBuf> {
        let dir = self.setup.dir.join("bin");
        fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        let copy = dir.join("levity");
        fs::copy(&self.levity, &copy).context(|| format!("copy {}", self.levity.display()))?;
        Ok(copy)
    }

    fn copy_picture(&self, outcome: &Outcome) -> Result<()> {
        let (Some(path), Some(svg)) = (&self.picture, &outcome.picture) else {
            return Ok(());
        };
        fs::write(path, svg).context(|| format!("write {}", path.display()))
    }
}

impl Scenario {
    fn each(self) -> Vec<Self> {
        if self == Self::All {
            vec![Self::Huc, Self::W1, Self::W3, Self::Idle]
        } else {
            vec![self]
        }
    }
}

/// Starts each server once, so that one which cannot run here is known before an hour is spent.
fn startable(rig: &Rig, rows: Vec<Row>) -> Result<(Vec<Row>, Vec<String>)> {
    let (mut startable, mut left_out) = (Vec::new(), Vec::new());
    for row in rows {
        match Server::start(rig, &row) {
            Ok(_) => startable.push(row),
            Err(error) => {
                eprintln!("levity-bench: left out: {error}");
                left_out.push(error.to_string());
            }
        }
    }
    if startable.is_empty() {
        Err(Failure::new("no server starts"))
    } else {
        Ok((startable, left_out))
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

/// Measures every row in every pass: A B C, then A B C again, so that a slow minute of the machine
/// hits all rows and not one.
fn interleaved<P>(
    rows: &[Row],
    passes: usize,
    mut measure: impl FnMut(&Row, u64) -> Result<P>,
) -> Result<Vec<Measured<P>>> {
    let mut measured: Vec<_> = rows
        .iter()
        .map(|row| Measured {
            server: row.name.clone(),
            passes: Vec::new(),
        })
        .collect();
    for pass in 1..=passes {
        for (row, measured) in rows.iter().zip(&mut measured) {
            eprintln!("levity-bench: pass {pass} of {passes}: {}", row.name);
            measured.passes.push(measure(row, pass as u64)?);
        }
    }
    Ok(measured)
}

impl<P> Measured<P> {
    /// Median and spread of one figure.
    fn spread(&self, figure: impl Fn(&P) -> f64) -> crate::report::spread::Spread {
        crate::report::spread::Spread::of(self.passes.iter().map(figure))
    }
}

fn to_json(rows: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(rows).context(|| "result".into())
}
