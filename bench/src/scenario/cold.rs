//! Measurements of cold files: with empty caches, and with statistics of the device.

use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::Server;
use crate::rig::Rig;
use crate::rig::device::Activity;
use crate::walk::Walk;
use serde::Serialize;
use std::path::PathBuf;

/// Longer than any pass.
const SECONDS_MAX: f64 = 600.0;

/// The report of a reader, and the activity of the device.
#[derive(Serialize)]
pub struct Side {
    /// The report of the server's clients or of the walker.
    pub report: Report,
    /// The activity of the device with the cold files.
    pub device: Activity,
}

impl Side {
    /// Drops the caches and runs `read`.
    ///
    /// # Errors
    /// Not root; `read` fails.
    pub fn measure(rig: &Rig, read: impl FnOnce() -> Result<Report>) -> Result<Self> {
        rig.drop_caches()?;
        let before = rig.device.sample()?;
        let report = read()?;
        Ok(Self {
            report,
            device: rig.device.activity_since(&before)?,
        })
    }

    /// Bytes read from the device per byte of a body.
    #[must_use]
    pub fn over_read(&self) -> f64 {
        self.device.bytes as f64 / self.report.body_bytes as f64
    }
}

/// A server and the walker, on the same files.
#[derive(Serialize)]
pub struct Sides {
    /// The measurement of the server.
    pub server: Side,
    /// The measurement of the walker right before.
    pub walker: Side,
}

impl Sides {
    /// The walker first, then `connections` clients of what `start` starts: each file of `list` once, all of
    /// `bytes` bytes.
    ///
    /// # Errors
    /// Not root; the walker, the server or its load fails.
    pub fn measure(
        rig: &Rig,
        list: PathBuf,
        bytes: usize,
        connections: usize,
        start: impl FnOnce() -> Result<Server>,
    ) -> Result<Self> {
        let walk = Walk::new(&rig.docroot, &list);
        let walker = Side::measure(rig, || walk.start(rig.server_cpu())?.report())?;
        let server = start()?;
        let mut load = Load::new(server.address, "", connections, SECONDS_MAX);
        load.list = Some(list);
        load.body_bytes = Some(bytes as u64);
        let server = Side::measure(rig, || load.measure(rig.load_cpu()))?;
        Ok(Self { server, walker })
    }

    /// The server's body bytes per second divided by the walker's.
    #[must_use]
    pub fn e(&self) -> f64 {
        self.server.report.bytes_per_second() / self.walker.report.bytes_per_second()
    }
}
