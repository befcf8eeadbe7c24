//! Counts the system calls of a server with strace.

use super::Rig;
use super::cgroup::Group;
use crate::failure::{Context, Failure, Result};
use crate::load::Report;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// System calls of the group per request of this load, counted by strace.
///
/// # Errors
/// strace does not start or has no output, or the load fails.
pub fn calls_per_request(
    rig: &Rig,
    group: &Group,
    load: impl FnOnce() -> Result<Report>,
) -> Result<f64> {
    let summary = rig.setup.dir.join("strace.txt");
    let trace = Trace::attach(&group.threads()?, &summary)?;
    let report = load()?;
    trace.end()?;
    let text = fs::read_to_string(&summary).context(|| format!("read {}", summary.display()))?;
    Ok(total_calls(&text)? as f64 / report.requests as f64)
}

/// A running strace. Its standard error stays open until it has ended: it writes a line for each thread that it
/// detaches from, and a closed pipe would end it before its summary.
struct Trace {
    strace: Child,
    errors: BufReader<ChildStderr>,
}

impl Trace {
    /// Starts strace and waits until it has attached to all these threads.
    fn attach(threads: &[i32], summary: &Path) -> Result<Self> {
        let mut strace = Command::new("strace");
        strace
            .arg("-c")
            .arg("-o")
            .arg(summary)
            .stderr(Stdio::piped());
        strace.args(threads.iter().map(|thread| format!("--attach={thread}")));
        let mut strace = strace.spawn().context(|| "start strace".into())?;
        let errors = strace
            .stderr
            .take()
            .ok_or_else(|| Failure::new("no standard error"))?;
        let mut trace = Self {
            strace,
            errors: BufReader::new(errors),
        };
        threads.iter().try_for_each(|_| trace.expect_attached())?;
        Ok(trace)
    }

    fn expect_attached(&mut self) -> Result<()> {
        let mut line = String::new();
        self.errors
            .read_line(&mut line)
            .context(|| "read from strace".into())?;
        if line.ends_with(" attached\n") {
            Ok(())
        } else {
            Err(Failure::new(line))
        }
    }

    /// SIGINT makes strace detach and write its summary.
    fn end(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .context(|| "stop strace".into())?;
        self.errors
            .read_to_end(&mut Vec::new())
            .context(|| "read from strace".into())?;
        self.strace
            .wait()
            .context(|| "wait for strace".into())
            .map(drop)
    }
}

/// Parses the last line of `strace -c`: `100.00 0.123456 3 41000 12 total`. Without errors there is no column for
/// them.
fn total_calls(summary: &str) -> Result<u64> {
    let line = summary
        .lines()
        .find(|line| line.trim_end().ends_with(" total"));
    let calls = line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    calls.ok_or_else(|| Failure::new("strace wrote no total"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_total_of_strace() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                        60.00    0.000006           3         2         1 read\n\
                       100.00    0.000010           2      4100         1 total\n";
        assert_eq!(total_calls(summary).unwrap(), 4100);
        assert!(total_calls("").is_err());
    }
}
