//! Load over HTTP/2, by h2load.

use super::confine::tool;
use crate::failure::{Context, Failure, Result};
use serde::Serialize;
use std::process::{Child, Stdio};

/// A running load.
pub struct H2load(Child);

/// What it says at the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct H2Report {
    /// Requests per second, without those of the warm-up.
    pub requests_per_second: f64,
    /// Requests without a response of 2xx.
    pub errors: u64,
}

impl H2load {
    /// Requests `url` in a closed loop for the seconds of a warm-up and of a measurement, with so many `streams` at a time on each
    /// connection.
    ///
    /// # Errors
    /// h2load is missing.
    pub fn start(
        cpu: Option<usize>,
        url: &str,
        (connections, streams): (usize, usize),
        (warm_up, seconds): (u64, u64),
    ) -> Result<Self> {
        let mut command = tool(cpu, "h2load");
        let arguments = [
            format!("--clients={connections}"),
            format!("--max-concurrent-streams={streams}"),
            format!("--warm-up-time={warm_up}"),
            format!("--duration={seconds}"),
            url.to_owned(),
        ];
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self(child.context(|| "start h2load".into())?))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It fails, or says nothing.
    pub fn report(self) -> Result<H2Report> {
        let output = self.0.wait_with_output();
        let output = output.context(|| "wait for h2load".into())?;
        let said = String::from_utf8_lossy(&output.stdout);
        read(&said).ok_or_else(|| Failure::new(format!("h2load reports nothing: {said}")))
    }
}

fn read(said: &str) -> Option<H2Report> {
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start));
    let rate = line("finished in ")?.split(", ").nth(1)?;
    let counts = line("requests: ")?;
    let count = |word: &str| {
        let part = counts.split(", ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse::<u64>().ok()
    };
    let statuses = line("status codes: ")?;
    let bad = statuses.split(", ").filter(|part| !part.ends_with("2xx"));
    let bad = bad.filter_map(|part| part.split(' ').next()?.parse::<u64>().ok());
    Some(H2Report {
        requests_per_second: rate.strip_suffix(" req/s")?.parse().ok()?,
        errors: count("failed")? + count("errored")? + bad.sum::<u64>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let said = "finished in 5.00s, 93280.40 req/s, 370.10MB/s\n\
                    requests: 466402 total, 466402 started, 466402 done, 466400 succeeded, 2 failed, 1 errored, 0 timeout\n\
                    status codes: 466400 2xx, 0 3xx, 3 4xx, 0 5xx\n";
        let expected = H2Report {
            requests_per_second: 93280.4,
            errors: 6,
        };
        assert_eq!(read(said), Some(expected));
        assert_eq!(read("starting benchmark...\n"), None);
    }
}
