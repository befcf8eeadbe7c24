//! The writers of the access logs, one for each file. They belong to the control thread.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use levity_config::in_unit::remedy_for_file;
use levity_telemetry::access_log::{self, Format, Log, Target, Writer};

/// The writers that the present configuration uses.
#[derive(Default)]
pub struct LogWriters {
    writers: Vec<(Target, Writer)>,
    /// Log lines lost by these writers and earlier ones.
    unwritten: Arc<AtomicU64>,
}

/// Opens files that have no writer.
pub struct LogOpener {
    /// Those that have one.
    open: Vec<Target>,
    unwritten: Arc<AtomicU64>,
}

impl LogOpener {
    /// Opens the files of `logs` that have no writer. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When one of them cannot be opened; the error names it.
    pub fn open(&self, logs: &[levity_config::Log]) -> io::Result<Vec<(Target, Writer)>> {
        let mut opened: Vec<(Target, Writer)> = Vec::new();
        for target in logs.iter().filter_map(|log| Target::of(&log.access)) {
            let mut known = self.open.iter().chain(opened.iter().map(|(of, _)| of));
            if known.any(|known| *known == target) {
                continue;
            }
            let writer = Writer::start(target.clone(), self.unwritten.clone());
            let writer = writer.map_err(|error| {
                let remedy = match &target {
                    Target::File(path) => remedy_for_file(path, &error),
                    Target::Stdout => String::new(),
                };
                let message = format!("cannot open the access log {target}: {error}{remedy}");
                io::Error::new(error.kind(), message)
            })?;
            opened.push((target, writer));
        }
        Ok(opened)
    }
}

impl LogWriters {
    /// Where lines count that writers lose.
    pub fn unwritten(&self) -> &Arc<AtomicU64> {
        &self.unwritten
    }

    /// What opens further files, also on another thread.
    pub fn opener(&self) -> LogOpener {
        LogOpener {
            open: self.writers.iter().map(|(of, _)| of.clone()).collect(),
            unwritten: self.unwritten.clone(),
        }
    }

    /// Adds what [`LogOpener::open`] has opened for `logs`, and drops the writers of all other files. Each ends by itself
    /// once no worker uses it.
    pub fn replace(&mut self, logs: &[levity_config::Log], opened: Vec<(Target, Writer)>) {
        self.writers.extend(opened);
        let is_used = |target: &Target| {
            let mut targets = logs.iter().filter_map(|log| Target::of(&log.access));
            targets.any(|used| used == *target)
        };
        self.writers.retain(|(target, _)| is_used(target));
    }

    /// The ends of these logs for one worker, in their order. Each has its writer.
    pub fn logs(&self, logs: &[levity_config::Log]) -> Vec<Log> {
        let log = |log: &levity_config::Log| {
            let target = Target::of(&log.access)?;
            let mut writers = self.writers.iter();
            let (_, writer) = writers.find(|(known, _)| *known == target)?;
            Some(writer.log(Format::from(log)))
        };
        let ends: Vec<_> = logs.iter().filter_map(log).collect();
        assert_eq!(ends.len(), logs.len(), "a log has no writer");
        ends
    }

    /// Reopens all files. Does not wait.
    pub fn reopen(&self) {
        self.writers.iter().for_each(|(_, writer)| writer.reopen());
    }

    /// Writes what was handed over, for `wait_max` at most. Blocks.
    pub fn shutdown(&mut self, wait_max: Duration) {
        let writers = mem::take(&mut self.writers);
        access_log::shutdown(writers.into_iter().map(|(_, writer)| writer), wait_max);
    }
}
