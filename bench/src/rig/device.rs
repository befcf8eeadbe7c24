//! The settings and statistics of a block device, from `/sys`.

use super::journal::{Guard, Journal, Step};
use crate::failure::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// A whole block device.
#[derive(Clone, Debug)]
pub struct Device {
    /// The name in `/dev`, for example `loop0`.
    pub name: String,
    sys: PathBuf,
}

/// The activity of a device between two snapshots.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Activity {
    /// The share of the time, 0 to 1, with at least one request in flight.
    pub utilisation: f64,
    /// Requests completed per second.
    pub reads_per_second: f64,
    /// Bytes read.
    pub bytes: u64,
}

/// A snapshot of the counters.
pub struct Sample {
    at: Instant,
    reads: u64,
    sectors: u64,
    busy_ms: u64,
}

impl Device {
    /// The device with this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            sys: Path::new("/sys/block").join(name),
        }
    }

    /// The device that holds this file or directory.
    ///
    /// # Errors
    /// The file system is not on a block device (tmpfs, overlayfs).
    pub fn holding(path: &Path) -> Result<Self> {
        let dev = fs::metadata(path)
            .context(|| format!("stat {}", path.display()))?
            .dev();
        let link = format!(
            "/sys/dev/block/{}:{}",
            rustix::fs::major(dev),
            rustix::fs::minor(dev)
        );
        let sys = fs::canonicalize(&link)
            .context(|| format!("{} is not on a block device", path.display()))?;
        let whole = if sys.join("partition").exists() {
            sys.parent().unwrap_or(&sys)
        } else {
            &sys
        };
        let name = whole
            .file_name()
            .ok_or_else(|| Failure::new("block device without a name"))?;
        Ok(Self::named(&name.to_string_lossy()))
    }

    /// Its node below `/dev`.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Sets the kernel's read-ahead window until the guard is dropped.
    ///
    /// # Errors
    /// Not root.
    pub fn set_read_ahead_kb(&self, journal: &Rc<Journal>, kilobytes: u32) -> Result<Guard> {
        let path = self.sys.join("queue/read_ahead_kb");
        let old = read(&path)?;
        let guard = journal.note(Step::Restore(path.clone(), old))?;
        fs::write(&path, kilobytes.to_string()).context(|| format!("write {}", path.display()))?;
        Ok(guard)
    }

    /// A setting of the request queue, for the results; empty if there is none.
    #[must_use]
    pub fn queue_setting(&self, name: &str) -> String {
        read(&self.sys.join("queue").join(name)).unwrap_or_default()
    }

    /// Reads the counters (`Documentation/block/stat.rst`).
    ///
    /// # Errors
    /// The device has been removed.
    pub fn sample(&self) -> Result<Sample> {
        let stat = read(&self.sys.join("stat"))?;
        let fields: Vec<u64> = stat
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Ok(Sample {
            at: Instant::now(),
            reads: field(0),
            sectors: field(2),
            busy_ms: field(9),
        })
    }

    /// The activity since `before`.
    ///
    /// # Errors
    /// The device has been removed.
    pub fn activity_since(&self, before: &Sample) -> Result<Activity> {
        let now = self.sample()?;
        let seconds = (now.at - before.at).as_secs_f64();
        Ok(Activity {
            utilisation: (now.busy_ms - before.busy_ms) as f64 / 1000.0 / seconds,
            reads_per_second: (now.reads - before.reads) as f64 / seconds,
            bytes: (now.sectors - before.sectors) * 512,
        })
    }
}

fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}
