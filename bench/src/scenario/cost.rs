//! The CPU time of a server per request and per megabyte, in the steady state of a load.

use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::Server;
use crate::rig::Rig;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Longer than it takes to connect all clients and to fill the buffers of their sockets.
pub const WARM_UP: Duration = Duration::from_millis(300);

/// A load, and the CPU time that the server's control group used for it, helper threads included.
#[derive(Serialize)]
pub struct Cost {
    /// The report of the clients.
    pub report: Report,
    /// CPU seconds per second.
    pub processors: f64,
    /// The part of it in user space.
    pub user: f64,
}

impl Cost {
    /// Runs `load` behind a warm-up. Responses that are pending at the end are given up.
    ///
    /// CPU time and requests are compared as rates, because the two measurements do not begin at the same instant.
    ///
    /// # Errors
    /// The load or the server fails.
    pub fn measure(rig: &Rig, server: &Server, mut load: Load) -> Result<Self> {
        load.warm_up = WARM_UP.as_secs_f64();
        load.abandon = true;
        let mut load = load.start(rig.load_cpu())?;
        std::thread::sleep(WARM_UP);
        let (started, before) = (Instant::now(), server.group.cpu_usage()?);
        let report = load.report()?;
        let seconds = started.elapsed().as_secs_f64();
        let used = server.group.cpu_usage()?.since(&before);
        Ok(Self {
            report,
            processors: used.total.as_secs_f64() / seconds,
            user: used.user.as_secs_f64() / seconds,
        })
    }

    /// CPU time per request, in microseconds.
    #[must_use]
    pub fn us_per_request(&self) -> f64 {
        self.processors * 1e6 / self.report.requests_per_second()
    }

    /// The part of it in user space.
    #[must_use]
    pub fn user_us_per_request(&self) -> f64 {
        self.user * 1e6 / self.report.requests_per_second()
    }

    /// CPU time per megabyte that arrived, in microseconds.
    #[must_use]
    pub fn us_per_megabyte(&self) -> f64 {
        self.processors * 1e12 / self.report.wire_bytes_per_second()
    }

    /// The part of it in user space.
    #[must_use]
    pub fn user_us_per_megabyte(&self) -> f64 {
        self.user * 1e12 / self.report.wire_bytes_per_second()
    }

    /// CPU time of the load generator per megabyte, in microseconds.
    #[must_use]
    pub fn load_us_per_megabyte(&self) -> f64 {
        self.report.processors() * 1e12 / self.report.wire_bytes_per_second()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_cpu_time_over_work() {
        let cost = Cost {
            report: Report {
                requests: 50_000,
                seconds: 0.5,
                wire_bytes: 1_000_000_000,
                ..Report::default()
            },
            processors: 0.8,
            user: 0.2,
        };
        assert_eq!(
            [cost.us_per_request(), cost.user_us_per_request()],
            [8.0, 2.0]
        );
        assert_eq!(
            [cost.us_per_megabyte(), cost.user_us_per_megabyte()],
            [400.0, 100.0]
        );
    }
}
