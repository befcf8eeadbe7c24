//! The rig: disks, control groups, CPUs and the page cache for the servers.
//!
//! Only the rig runs as root. All of its changes are recorded in the [`journal`] and undone.

pub mod certificates;
pub mod cgroup;
pub mod confine;
pub mod device;
pub mod file_systems;
pub mod fio;
pub mod h2load;
pub mod journal;
pub mod slow_disk;
pub mod trace;
pub mod tree;

use crate::failure::{Context, Failure, Result};
use device::Device;
use journal::{Guard, Journal};
use serde::Serialize;
use slow_disk::{Calibration, Frozen, READ_AHEAD_KB, SlowDisk, Slowness};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tree::FileSet;

/// The server's memory limit unless the command line or the workload has another.
const MEMORY_MIB: u64 = 512;

/// The disk of the cold files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    /// An emulated disk with the same delay for each read.
    Delay,
    /// An emulated disk with moving heads and a queue that is served nearest first.
    Seek,
    /// The disk of the rig's directory.
    Native,
}

/// The settings of the rig.
#[derive(Clone, Debug, clap::Args)]
pub struct Setup {
    /// The rig's directory: images, document root, files of the servers. It is kept between runs.
    #[arg(long, default_value = "/var/tmp/levity-bench")]
    pub dir: PathBuf,
    /// The disk of the cold files.
    #[arg(long, value_enum, default_value_t = Disk::Delay)]
    pub disk: Disk,
    /// Milliseconds for each read of the disk with a delay.
    #[arg(long, default_value_t = 6)]
    pub read_delay_ms: u32,
    /// Concurrent reads of the emulated disk; with several numbers, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    pub spindles: Vec<u32>,
    /// The memory limit of the server including its page cache, in MiB; by default 512, or 256 for huc-n.
    #[arg(long)]
    pub memory_mib: Option<u64>,
    /// Let the scheduler place server and load; by default they are pinned to CPU 0 and CPU 1.
    #[arg(long)]
    pub unpinned: bool,
}

/// The rig. Its changes are undone when it is dropped.
pub struct Rig {
    /// Its settings.
    pub setup: Setup,
    /// The document root: `hot/` is on the native disk, `cold/` on the disk of the settings.
    pub docroot: PathBuf,
    /// The device that holds the cold files.
    pub device: Device,
    /// Concurrent reads of the emulated disk.
    pub spindles: u32,
    /// The speed of the emulated disk; empty for a real one.
    pub calibration: Vec<Calibration>,
    cold: Cold,
    journal: Rc<Journal>,
    /// Copies of programs for this run.
    copied: RefCell<Vec<PathBuf>>,
}

/// Keeps the disk of the cold files mounted.
enum Cold {
    Slow(Box<SlowDisk>),
    Native { _read_ahead: Option<Guard> },
}

impl Rig {
    /// Sets up the rig with these cold files. On the first run this fills their disk, which takes a minute.
    ///
    /// # Errors
    /// Not root, a tool is missing, or another benchmark is running.
    pub fn set_up(setup: Setup, sets: &[FileSet], spindles: u32) -> Result<Self> {
        require_root()?;
        let docroot = setup.dir.join("docroot");
        for dir in [docroot.join("cold"), setup.dir.join("lists")] {
            fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        }
        let journal = Journal::open(&setup.dir)?;
        tree::write_hot(&docroot)?;
        let load_cpu = cpus(&setup).1;
        let (cold, device) = match setup.disk {
            Disk::Delay | Disk::Seek => mount_slow(&journal, &setup, sets, spindles, &docroot)?,
            Disk::Native => fill_native(&journal, sets, &docroot)?,
        };
        let calibration = match setup.disk {
            Disk::Delay | Disk::Seek => slow_disk::calibrate(&device, load_cpu)?,
            Disk::Native => Vec::new(),
        };
        Ok(Self {
            setup,
            docroot,
            device,
            spindles,
            calibration,
            cold,
            journal,
            copied: RefCell::default(),
        })
    }

    /// The journal for further changes.
    #[must_use]
    pub fn journal(&self) -> &Rc<Journal> {
        &self.journal
    }

    /// The server's CPU; None for any.
    #[must_use]
    pub fn server_cpu(&self) -> Option<usize> {
        cpus(&self.setup).0
    }

    /// The CPU of the load and of the emulated disk; None for any.
    #[must_use]
    pub fn load_cpu(&self) -> Option<usize> {
        cpus(&self.setup).1
    }

    /// The server's memory limit in MiB, including its page cache.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.setup.memory_mib.unwrap_or(MEMORY_MIB)
    }

    /// A copy of this program, as [`Rig::copy_of`].
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn own_program(&self) -> Result<PathBuf> {
        let program = std::env::current_exe().context(|| "path of this program".into())?;
        self.copy_of(&program)
    }

    /// A copy of a program, made once. The user of the servers may have no access to the build directory, and a build
    /// during the run would replace the program.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn copy_of(&self, program: &Path) -> Result<PathBuf> {
        let dir = self.setup.dir.join("bin");
        fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        let copy = dir.join(program.file_name().unwrap_or_default());
        let mut copied = self.copied.borrow_mut();
        if !copied.contains(&copy) {
            fs::copy(program, &copy).context(|| format!("copy {}", program.display()))?;
            copied.push(copy.clone());
        }
        Ok(copy)
    }

    /// Writes a list of files for the load generator and the walker.
    ///
    /// # Errors
    /// The list cannot be written.
    pub fn list(&self, set: &FileSet, seed: u64, count: usize) -> Result<PathBuf> {
        self.list_of(&format!("{}-{seed}", set.bytes), &set.shuffled(seed, count))
    }

    /// Writes a list of these URL paths.
    ///
    /// # Errors
    /// The list cannot be written.
    pub fn list_of(&self, name: &str, paths: &[String]) -> Result<PathBuf> {
        let path = self.setup.dir.join("lists").join(name);
        fs::write(&path, paths.join("\n")).context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Whether the cold files are on an emulated disk.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self.cold, Cold::Slow(_))
    }

    /// Stops the emulated disk. Reads wait until the guard is dropped.
    ///
    /// # Errors
    /// The cold files are on a real disk, which cannot be stopped.
    pub fn freeze_disk(&self) -> Result<Frozen> {
        match &self.cold {
            Cold::Slow(disk) => disk.freeze(&self.journal),
            Cold::Native { .. } => Err(Failure::new("only an emulated disk can be frozen")),
        }
    }

    /// Empties the page cache and the caches of directory entries and inodes.
    ///
    /// # Errors
    /// Not root.
    pub fn drop_caches(&self) -> Result<()> {
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").context(|| "drop the caches".into())
    }
}

fn mount_slow(
    journal: &Rc<Journal>,
    setup: &Setup,
    sets: &[FileSet],
    spindles: u32,
    docroot: &Path,
) -> Result<(Cold, Device)> {
    let slowness = match setup.disk {
        Disk::Seek => Slowness::Seek { spindles },
        Disk::Delay | Disk::Native => Slowness::Delay {
            read_ms: setup.read_delay_ms,
            spindles,
        },
    };
    let disk = SlowDisk::mount(
        journal,
        &setup.dir,
        sets,
        &docroot.join("cold"),
        slowness,
        cpus(setup).1,
    )?;
    let device = disk.device.clone();
    Ok((Cold::Slow(Box::new(disk)), device))
}

fn fill_native(journal: &Rc<Journal>, sets: &[FileSet], docroot: &Path) -> Result<(Cold, Device)> {
    let cold = docroot.join("cold");
    sets.iter().try_for_each(|set| set.fill(&cold))?;
    let device = Device::holding(&cold)?;
    let read_ahead = (!sets.is_empty())
        .then(|| device.set_read_ahead_kb(journal, READ_AHEAD_KB))
        .transpose()?;
    Ok((
        Cold::Native {
            _read_ahead: read_ahead,
        },
        device,
    ))
}

/// The CPUs of server and load. With a single CPU nothing is pinned.
fn cpus(setup: &Setup) -> (Option<usize>, Option<usize>) {
    let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if setup.unpinned || !several {
        (None, None)
    } else {
        (Some(0), Some(1))
    }
}

fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(
        "the rig mounts disks, makes control groups and drops caches: run it as root",
    ))
}
