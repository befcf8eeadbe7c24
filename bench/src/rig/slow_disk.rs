//! A slow disk in user space: `nbdkit` serves an image file, `nbdfuse` presents it as a file, a loop device with
//! direct I/O as a block device, and ext4 as a directory.
//!
//! There are two kinds. One delays each read and has as many threads as the disk has spindles. It models access times and
//! parallelism, but not the benefit of ordered reads, so no server gains from that. The other, `seek_disk.c`, has moving
//! heads and a queue that is served nearest first.

use super::confine::{NOBODY, tool};
use super::device::Device;
use super::fio;
use super::journal::{Guard, Journal, Step, run_quietly};
use super::tree::FileSet;
use crate::failure::{Context, Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The default read-ahead window of Linux; that of a loop device differs.
pub const READ_AHEAD_KB: u32 = 128;
/// The time-out of the start of a tool.
const START_MAX: Duration = Duration::from_secs(10);

/// The plugin with moving heads, which nbdkit compiles at its start.
const SEEK_DISK: &str = include_str!("seek_disk.c");
/// The library must be named before the source that needs it.
const SEEK_DISK_FLAGS: &str = "CFLAGS=-fPIC -shared -O2 -Wl,--no-as-needed -lm";
/// The queue length of the disk with heads.
const SEEK_QUEUE: u32 = 64;

/// The kind of the disk and its speed.
#[derive(Clone, Copy, Debug)]
pub enum Slowness {
    /// The same time for each read.
    Delay {
        /// Milliseconds that each read takes.
        read_ms: u32,
        /// Concurrent reads.
        spindles: u32,
    },
    /// A time that depends on the distance of the head.
    Seek {
        /// The number of heads.
        spindles: u32,
    },
}

/// Random reads per second of the device at one queue depth, measured by fio.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Calibration {
    /// Requests in flight.
    pub depth: u32,
    /// Reads of 4 KiB per second.
    pub reads_per_second: f64,
}

/// The mounted slow disk. Fields are dropped in the order in which they must be undone.
pub struct SlowDisk {
    /// The loop device.
    pub device: Device,
    _mount: Guard,
    _read_ahead: Guard,
    _loop: Guard,
    _fuse: Guard,
    _nbdfuse: Daemon,
    nbdkit: Daemon,
}

/// A tool that runs until its guard is dropped.
struct Daemon {
    guard: Option<Guard>,
    child: Child,
}

/// The disk is stopped; it continues when this is dropped.
#[must_use]
pub struct Frozen {
    _resume: Guard,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.guard.take());
        let _ = self.child.wait();
    }
}

impl SlowDisk {
    /// Mounts the cold files at `mount_point`, filling the image first if there is none yet.
    ///
    /// # Errors
    /// Not root, or one of the tools is missing.
    pub fn mount(
        journal: &Rc<Journal>,
        dir: &Path,
        sets: &[FileSet],
        mount_point: &Path,
        slowness: Slowness,
        cpu: Option<usize>,
    ) -> Result<Self> {
        let image = image(journal, dir, sets)?;
        let socket = dir.join("nbdkit.sock");
        let nbdkit = start_nbdkit(journal, dir, &image, &socket, slowness, cpu)?;
        let fuse_point = dir.join("nbd");
        create_dir(&fuse_point)?;
        let fuse = journal.note(Step::Unmount(fuse_point.clone()))?;
        let file = fuse_point.join("disk");
        let nbdfuse = start_nbdfuse(journal, dir, &socket, &file, cpu)?;
        let (loop_guard, device) = attach_loop(journal, &file, &["--read-only", "--direct-io=on"])?;
        let read_ahead = device.set_read_ahead_kb(journal, READ_AHEAD_KB)?;
        let mount = mount(journal, &device, mount_point, "ro")?;
        Ok(Self {
            device,
            _mount: mount,
            _read_ahead: read_ahead,
            _loop: loop_guard,
            _fuse: fuse,
            _nbdfuse: nbdfuse,
            nbdkit,
        })
    }

    /// Stops the process of the disk.
    ///
    /// # Errors
    /// It has ended.
    pub fn freeze(&self, journal: &Rc<Journal>) -> Result<Frozen> {
        let nbdkit = &self.nbdkit.child;
        let resume = journal.note(Step::resume(nbdkit)?)?;
        kill_process(Pid::from_child(nbdkit), Signal::STOP).context(|| "stop the disk".into())?;
        Ok(Frozen { _resume: resume })
    }
}

/// Measures the device with fio at depth 1, 4 and 16, for one second each.
///
/// # Errors
/// fio is missing or fails.
pub fn calibrate(device: &Device, cpu: Option<usize>) -> Result<Vec<Calibration>> {
    [1, 4, 16]
        .into_iter()
        .map(|depth| calibrate_at(device, depth, cpu))
        .collect()
}

fn calibrate_at(device: &Device, depth: u32, cpu: Option<usize>) -> Result<Calibration> {
    Ok(Calibration {
        depth,
        reads_per_second: fio::random_reads(&device.node(), depth, cpu)?,
    })
}

/// The file system image with all cold files, made on the first run and kept.
fn image(journal: &Rc<Journal>, dir: &Path, sets: &[FileSet]) -> Result<PathBuf> {
    let names: Vec<_> = sets
        .iter()
        .map(|set| format!("{}x{}", set.files, set.bytes))
        .collect();
    let complete = dir.join(format!("cold-{}.img", names.join("-")));
    if complete.exists() {
        return Ok(complete);
    }
    let partial = dir.join("cold.img.partial");
    make_image(journal, dir, sets, &partial)?;
    fs::rename(&partial, &complete).context(|| format!("rename {}", partial.display()))?;
    Ok(complete)
}

/// Fills the image before it is slow, at the speed of the disk below it.
fn make_image(journal: &Rc<Journal>, dir: &Path, sets: &[FileSet], image: &Path) -> Result<()> {
    eprintln!("levity-bench: filling the image of the slow disk (once)");
    let file = File::create(image).context(|| format!("create {}", image.display()))?;
    file.set_len(image_bytes(sets))
        .context(|| format!("size {}", image.display()))?;
    run_quietly(
        Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0"])
            .arg(image),
    )?;
    let (_loop_guard, device) = attach_loop(journal, image, &[])?;
    let mount_point = dir.join("fill");
    create_dir(&mount_point)?;
    let _mount = mount(journal, &device, &mount_point, "rw")?;
    sets.iter().try_for_each(|set| set.fill(&mount_point))
}

/// The files, rounded up to blocks, and a quarter more for the file system.
fn image_bytes(sets: &[FileSet]) -> u64 {
    let set_bytes = |set: &FileSet| (set.bytes as u64).next_multiple_of(4096) * set.files as u64;
    sets.iter().map(set_bytes).sum::<u64>() / 4 * 5
}

fn start_nbdkit(
    journal: &Rc<Journal>,
    dir: &Path,
    image: &Path,
    socket: &Path,
    slowness: Slowness,
    cpu: Option<usize>,
) -> Result<Daemon> {
    // Its socket is there before it accepts connections; this file is not.
    let ready = dir.join("nbdkit.pid");
    // Those of an interrupted run would be mistaken for new ones.
    for file in [socket, &ready] {
        let _ = fs::remove_file(file);
    }
    let mut nbdkit = tool(cpu, "nbdkit");
    nbdkit
        .args(["--foreground", "--readonly", "--unix"])
        .arg(socket)
        .arg("--pidfile")
        .arg(&ready);
    match slowness {
        Slowness::Delay { read_ms, spindles } => {
            nbdkit.arg("--filter=delay");
            nbdkit.arg(format!("--threads={spindles}")).arg("file");
            // Otherwise the image would be in the page cache twice, and reads from there would be too fast.
            nbdkit.arg(image).arg("cache=none");
            nbdkit.arg(format!("delay-read={read_ms}ms"));
        }
        Slowness::Seek { spindles } => {
            let source = dir.join("seek_disk.c");
            fs::write(&source, SEEK_DISK).context(|| format!("write {}", source.display()))?;
            nbdkit.arg(format!("--threads={SEEK_QUEUE}")).arg("cc");
            nbdkit.arg(source).arg(SEEK_DISK_FLAGS);
            nbdkit.arg(format!("image={}", image.display()));
            nbdkit.arg(format!("heads={spindles}"));
        }
    }
    Daemon::start(journal, nbdkit, &dir.join("nbdkit.log"), || {
        fs::metadata(&ready).is_ok_and(|file| file.len() > 0)
    })
}

fn start_nbdfuse(
    journal: &Rc<Journal>,
    dir: &Path,
    socket: &Path,
    file: &Path,
    cpu: Option<usize>,
) -> Result<Daemon> {
    let mut nbdfuse = tool(cpu, "nbdfuse");
    nbdfuse
        .args(["--readonly", "--connections", "1"])
        .arg(file)
        .arg("--unix")
        .arg(socket);
    Daemon::start(journal, nbdfuse, &dir.join("nbdfuse.log"), || {
        fs::metadata(file).is_ok_and(|file| file.len() > 0)
    })
}

impl Daemon {
    /// In a process group of its own: Ctrl-C must not end the disk of a mounted file system.
    fn start(
        journal: &Rc<Journal>,
        mut command: Command,
        log: &Path,
        ready: impl Fn() -> bool,
    ) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log_file = File::create(log).context(|| format!("create {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .process_group(0);
        let child = command.spawn().context(|| format!("start {name}"))?;
        let guard = Some(journal.note(Step::kill(&child)?)?);
        let mut daemon = Self { guard, child };
        wait_until_ready(&mut daemon.child, log, ready)?;
        Ok(daemon)
    }
}

fn wait_until_ready(child: &mut Child, log: &Path, ready: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + START_MAX;
    while !ready() {
        let ended = child
            .try_wait()
            .context(|| "wait for a tool".into())?
            .is_some();
        if ended || Instant::now() > end {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(Failure::new(format!(
                "the slow disk does not start: {}",
                said.trim_end()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(super) fn attach_loop(
    journal: &Rc<Journal>,
    file: &Path,
    options: &[&str],
) -> Result<(Guard, Device)> {
    let guard = journal.note(Step::DetachLoops(file.into()))?;
    let node = run_quietly(
        Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(file),
    )?;
    Ok((
        guard,
        Device::named(node.trim_end().trim_start_matches("/dev/")),
    ))
}

fn mount(
    journal: &Rc<Journal>,
    device: &Device,
    mount_point: &Path,
    options: &str,
) -> Result<Guard> {
    mount_as(journal, "ext4", &device.node(), mount_point, options)
}

/// Mounts a source of any kind.
pub(super) fn mount_as(
    journal: &Rc<Journal>,
    kind: &str,
    source: &Path,
    mount_point: &Path,
    options: &str,
) -> Result<Guard> {
    let guard = journal.note(Step::Unmount(mount_point.into()))?;
    run_quietly(
        Command::new("mount")
            .args(["-t", kind, "-o", options])
            .arg(source)
            .arg(mount_point),
    )?;
    Ok(guard)
}

pub(super) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).context(|| format!("create {}", path.display()))
}

/// Gives a directory to the user that servers run as.
///
/// # Errors
/// Not root.
pub fn create_dir_for_nobody(path: &Path) -> Result<()> {
    create_dir(path)?;
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY))
        .context(|| format!("chown {}", path.display()))
}
