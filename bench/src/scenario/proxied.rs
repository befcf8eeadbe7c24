//! Common parts of the workloads with proxies: the applications, and the costs of a response.

use crate::backend::Protocol;
use crate::backend::command::{Backend, RunningBackend};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::proxy::{Handover, Upstream};
use crate::peer::{Row, Server};
use crate::rig::Rig;
use crate::rig::slow_disk::create_dir_for_nobody;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Clients, each with one connection that is kept.
pub(super) const CLIENTS: usize = 64;
/// A usual response of an application, in bytes.
pub(super) const JSON_BYTES: usize = 37_000;
pub(super) const WARM_UP_SECONDS: f64 = 0.3;

/// The placement of the processes, for the captions.
pub(super) const PLACES: &str =
    "The proxy has one worker on a CPU of its own; application and load share the other one.";

/// Applications at the sockets of this rig, with this many connections to each.
pub(super) fn upstream(
    rig: &Rig,
    protocol: Protocol,
    backends: usize,
    connections: usize,
) -> Upstream {
    let sockets = (0..backends).map(|number| dir(rig).join(format!("app-{number}.sock")));
    Upstream {
        protocol,
        sockets: sockets.collect(),
        connections,
        handover: Handover::Nothing,
    }
}

/// The path of the JSON.
pub(super) fn json_path() -> String {
    format!("/?bytes={JSON_BYTES}&json")
}

/// The folder for sockets and logs of applications.
pub(super) fn dir(rig: &Rig) -> PathBuf {
    rig.setup.dir.join("backend")
}

/// A proxy with its applications.
pub(super) struct Pair {
    pub(super) proxy: Server,
    pub(super) backends: Vec<RunningBackend>,
}

/// The costs of a load.
#[derive(Serialize)]
pub(super) struct Cost {
    pub(super) report: Report,
    /// CPU seconds of the proxy's control group; None without a proxy.
    pub(super) proxy_cpu: Option<f64>,
    /// CPU seconds of the application.
    pub(super) backend_cpu: f64,
}

impl Cost {
    /// CPU time of the proxy per request, in microseconds; NaN without a proxy.
    pub(super) fn proxy_us_per_request(&self) -> f64 {
        self.per_request(self.proxy_cpu.unwrap_or(f64::NAN))
    }

    /// The same of the application.
    pub(super) fn backend_us_per_request(&self) -> f64 {
        self.per_request(self.backend_cpu)
    }

    /// The same of both.
    pub(super) fn us_per_request(&self) -> f64 {
        self.proxy_us_per_request() + self.backend_us_per_request()
    }

    /// CPU time of the proxy per megabyte of bodies, in milliseconds.
    pub(super) fn proxy_ms_per_megabyte(&self) -> f64 {
        self.proxy_cpu.unwrap_or(f64::NAN) * 1e9 / self.report.body_bytes as f64
    }

    /// The same of the application.
    pub(super) fn backend_ms_per_megabyte(&self) -> f64 {
        self.backend_cpu * 1e9 / self.report.body_bytes as f64
    }

    fn per_request(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.report.requests as f64
    }
}

impl Pair {
    /// Starts the applications, then the proxy in front of them.
    ///
    /// # Errors
    /// One of them does not start.
    pub(super) fn start(
        rig: &Rig,
        row: &Row,
        upstream: &Upstream,
        backends: &[Backend],
    ) -> Result<Self> {
        create_dir_for_nobody(&dir(rig))?;
        let backends = backends.iter().map(|backend| backend.start(rig));
        let backends = backends.collect::<Result<_>>()?;
        Ok(Self {
            proxy: Server::start(rig, &row.before(upstream))?,
            backends,
        })
    }

    /// An application that responds at once behind a proxy with as many connections to it as clients.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub(super) fn simple(rig: &Rig, row: &Row) -> Result<Self> {
        let upstream = upstream(rig, Protocol::Http, 1, CLIENTS);
        let backend = Backend::new(&upstream.sockets[0], upstream.protocol);
        Self::start(rig, row, &upstream, &[backend])
    }

    /// GET of this path in a closed loop.
    pub(super) fn load(&self, path: &str, connections: usize, seconds: f64) -> Load {
        Load::new(self.proxy.address, path, connections, seconds)
    }

    /// Runs the load and measures CPU times.
    ///
    /// # Errors
    /// The load fails.
    pub(super) fn measure(&self, rig: &Rig, load: &Load) -> Result<Cost> {
        let before = (self.proxy.group.cpu_time()?, cpu_seconds(&self.backends)?);
        let report = load.measure(rig.load_cpu())?;
        let proxy_cpu = self.proxy.group.cpu_time()? - before.0;
        Ok(Cost {
            report,
            proxy_cpu: Some(proxy_cpu.as_secs_f64()),
            backend_cpu: cpu_seconds(&self.backends)? - before.1,
        })
    }
}

fn cpu_seconds(backends: &[RunningBackend]) -> Result<f64> {
    let times = backends
        .iter()
        .map(|backend| Ok(backend.group.cpu_time()?.as_secs_f64()));
    times.sum()
}

/// The application without a proxy: the upper bound for a proxy without costs.
///
/// # Errors
/// The application or the load fails.
pub(super) fn measure_directly(rig: &Rig, path: &str, bytes: usize, seconds: f64) -> Result<Cost> {
    create_dir_for_nobody(&dir(rig))?;
    let socket = upstream(rig, Protocol::Http, 1, 1).sockets.remove(0);
    let backends = [Backend::new(&socket, Protocol::Http).start(rig)?];
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut load = Load::new(nowhere, path, CLIENTS, WARM_UP_SECONDS);
    load.socket = Some(socket);
    load.body_bytes = Some(bytes as u64);
    load.measure(rig.load_cpu())?;
    load.seconds = seconds;
    let before = cpu_seconds(&backends)?;
    let report = load.measure(rig.load_cpu())?;
    Ok(Cost {
        report,
        proxy_cpu: None,
        backend_cpu: cpu_seconds(&backends)? - before,
    })
}

/// Levity's figure must not be above the best peer's.
pub(super) fn verdict(is_levity: bool, ratio: Option<f64>, errors: u64) -> String {
    match ratio {
        _ if errors > 0 => format!("{errors} errors"),
        Some(ratio) if is_levity && ratio <= 1.0 => "pass".into(),
        Some(_) if is_levity => "missed".into(),
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levity_may_cost_as_much_as_the_best_peer() {
        assert_eq!(verdict(true, Some(1.0), 0), "pass");
        assert_eq!(verdict(true, Some(1.01), 0), "missed");
        assert_eq!(verdict(false, Some(1.0), 0), "-");
        assert_eq!(verdict(false, Some(1.0), 2), "2 errors");
    }

    #[test]
    fn costs_are_per_completed_request() {
        let cost = Cost {
            report: Report {
                requests: 1000,
                body_bytes: 2_000_000,
                ..Report::default()
            },
            proxy_cpu: Some(0.01),
            backend_cpu: 0.002,
        };
        assert!((cost.us_per_request() - 12.0).abs() < 1e-9);
        assert!((cost.proxy_ms_per_megabyte() - 5.0).abs() < 1e-9);
        assert!((cost.backend_ms_per_megabyte() - 1.0).abs() < 1e-9);
    }
}
