//! The walker: threads that open, stat, read and close each file of a list once, and do nothing else.
//!
//! It is the upper bound that a cold workload is compared with. At a fixed rate it is background load on the disk.

use crate::failure::{Context, Failure, Result};
use crate::load::Report;
use crate::rig::confine::pinned;
use levity_inspect::histogram::Histogram;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The files to read, and the speed.
#[derive(Clone, Debug, clap::Args)]
pub struct Walk {
    /// The directory that the paths of the list are relative to.
    #[arg(long)]
    pub root: PathBuf,
    /// A file of paths, one per line.
    #[arg(long)]
    pub list: PathBuf,
    /// Concurrent readers.
    #[arg(long, default_value_t = 64)]
    pub threads: usize,
    /// The time limit in seconds.
    #[arg(long, default_value_t = 600.0)]
    pub seconds: f64,
    /// The maximum number of files per second, evenly spaced.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Count a missing file as an empty one.
    #[arg(long)]
    pub missing_ok: bool,
}

#[derive(Default)]
struct Tally {
    report: Report,
    latency: Histogram,
}

impl Walk {
    /// A walker with enough threads to keep a disk busy. It reads each file once.
    #[must_use]
    pub fn new(root: &Path, list: &Path) -> Self {
        Self {
            root: root.into(),
            list: list.into(),
            threads: 64,
            seconds: 600.0,
            rate: None,
            missing_ok: false,
        }
    }

    /// Walks, and prints the report as JSON on standard output. Blocks on the disk.
    ///
    /// # Errors
    /// The list cannot be read. Files that cannot be read are counted instead.
    pub fn run(&self) -> Result<()> {
        let report = self.walk()?;
        println!(
            "{}",
            serde_json::to_string(&report).context(|| "report".into())?
        );
        Ok(())
    }

    fn walk(&self) -> Result<Report> {
        let list = std::fs::read_to_string(&self.list)
            .context(|| format!("read {}", self.list.display()))?;
        let paths: Vec<&str> = list.lines().collect();
        let next = AtomicUsize::new(0);
        let tally = Mutex::new(Tally::default());
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| self.read_files(&paths, &next, &tally, started));
            }
        });
        let tally = tally
            .into_inner()
            .map_err(|_| Failure::new("a reader panicked"))?;
        Ok(Report {
            seconds: started.elapsed().as_secs_f64(),
            latency: (&tally.latency).into(),
            ..tally.report
        })
    }

    fn read_files(
        &self,
        paths: &[&str],
        next: &AtomicUsize,
        tally: &Mutex<Tally>,
        started: Instant,
    ) {
        let end = started + Duration::from_secs_f64(self.seconds);
        let mut buffer = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let due = self.rate.map_or(started, |rate| {
                started + Duration::from_secs_f64(index as f64 / rate)
            });
            if index >= paths.len() || due.max(Instant::now()) >= end {
                return;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let opened = Instant::now();
            let path = self.root.join(paths[index].trim_start_matches('/'));
            let read = match read_file(&path, &mut buffer) {
                Err(error) if self.missing_ok && error.kind() == ErrorKind::NotFound => Ok(0),
                read => read,
            };
            if let Ok(mut tally) = tally.lock() {
                tally.count(&read, opened.elapsed());
            }
        }
    }

    /// Starts the walker as a process, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The process cannot be started or fails.
    pub fn start(&self, cpu: Option<usize>) -> Result<RunningWalk> {
        let mut arguments = vec![
            "walk".to_owned(),
            format!("--root={}", self.root.display()),
            format!("--list={}", self.list.display()),
            format!("--threads={}", self.threads),
            format!("--seconds={}", self.seconds),
        ];
        arguments.extend(self.rate.map(|rate| format!("--rate={rate}")));
        arguments.extend(self.missing_ok.then(|| "--missing-ok".to_owned()));
        let child = pinned(cpu, &arguments)?
            .stdout(Stdio::piped())
            .spawn()
            .context(|| "start the walker".into())?;
        Ok(RunningWalk(child))
    }
}

/// A running walker. It ends by itself.
pub struct RunningWalk(std::process::Child);

impl RunningWalk {
    /// Waits for its end and returns its report.
    ///
    /// # Errors
    /// The walker failed: its message is on standard error.
    pub fn report(self) -> Result<Report> {
        let output = self
            .0
            .wait_with_output()
            .context(|| "wait for the walker".into())?;
        serde_json::from_slice(&output.stdout).context(|| "the walker failed".into())
    }
}

impl Tally {
    fn count(&mut self, read: &std::io::Result<u64>, took: Duration) {
        match read {
            Ok(bytes) => {
                self.report.requests += 1;
                self.report.body_bytes += bytes;
                self.latency.record(took.as_secs_f64() * 1e6);
            }
            Err(error) => {
                self.report.errors += 1;
                self.report
                    .first_error
                    .get_or_insert_with(|| error.to_string());
            }
        }
    }
}

fn read_file(path: &Path, buffer: &mut Vec<u8>) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
    file.read_exact(buffer)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk_of(names: &str, rate: Option<f64>, missing_ok: bool) -> Report {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [1; 10]).unwrap();
        std::fs::write(dir.path().join("b"), [1; 20]).unwrap();
        let list = dir.path().join("list");
        std::fs::write(&list, names).unwrap();
        Walk {
            root: dir.path().into(),
            list,
            threads: 2,
            seconds: 60.0,
            rate,
            missing_ok,
        }
        .walk()
        .unwrap()
    }

    #[test]
    fn reads_each_file_once_and_counts_failures() {
        let report = walk_of("/a\n/b\n/missing\n", None, false);
        assert_eq!(
            (report.requests, report.body_bytes, report.errors),
            (2, 30, 1)
        );
        let report = walk_of("/a\n/b\n/missing\n", None, true);
        assert_eq!(
            (report.requests, report.body_bytes, report.errors),
            (3, 30, 0)
        );
    }

    #[test]
    fn a_rate_spaces_the_files() {
        assert!(walk_of("/a\n/b\n/a\n", Some(100.0), false).seconds >= 0.02);
    }
}
