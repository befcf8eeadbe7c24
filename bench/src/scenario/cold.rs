//! Measurements of cold files: nothing cached before, the device watched meanwhile.

use crate::failure::Result;
use crate::load::Report;
use crate::rig::Rig;
use crate::rig::device::Activity;
use serde::Serialize;

/// What a reader got, and what the device did for it.
#[derive(Serialize)]
pub struct Side {
    /// Of the server's clients, or of the walker.
    pub report: Report,
    /// Of the device that holds the cold files.
    pub device: Activity,
}

impl Side {
    /// Drops the caches and lets `read` read.
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

    /// Bytes that the device read for each byte of a body.
    #[must_use]
    pub fn over_read(&self) -> f64 {
        self.device.bytes as f64 / self.report.body_bytes as f64
    }
}
