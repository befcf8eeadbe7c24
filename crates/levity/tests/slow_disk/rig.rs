//! A slow disk, one that can be frozen or made to fail, and a mount that can be frozen.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{major, minor};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Tree, is_root};

/// What a read takes.
const READ_DELAY: &str = "5ms";

/// Reads that can be under way at once.
const READS_AT_ONCE: &str = "4";

/// Two slow disks at once would make each other slower, and a frozen one may keep the kernel waiting.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The mounted disk; undone when it is dropped, and also when the test is killed.
pub struct SlowDisk {
    script: Child,
    nbdkit: Pid,
    tree: Tree,
    _alone: MutexGuard<'static, ()>,
}

impl SlowDisk {
    /// Mounts a disk with the files that `fill` writes, none of them in memory. None without root's
    /// rights, which CI must give.
    pub fn with(fill: impl FnOnce(&Tree)) -> Option<Self> {
        let alone = alone()?;
        let (tree, content) = (Tree::new(), Tree::new());
        fill(&content);
        std::os::unix::fs::symlink(content.path(), tree.at("content")).expect("symlink");
        let mut script = start("rig.sh", &tree, &[READ_DELAY, READS_AT_ONCE]);
        Some(Self {
            nbdkit: named_process(&mut script),
            script,
            tree,
            _alone: alone,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.tree.at("disk")
    }

    /// What has been read from it since it was mounted, as the kernel counts it (block/stat.rst).
    pub fn read_bytes(&self) -> u64 {
        512 * self.figure("stat", 2)
    }

    /// The requests in which that was read.
    pub fn reads(&self) -> u64 {
        self.figure("stat", 0)
    }

    /// What the kernel reads in one request, at most.
    pub fn request_bytes_max(&self) -> u64 {
        1024 * self.figure("queue/max_sectors_kb", 0)
    }

    /// A number in a file that the kernel has about the block device.
    fn figure(&self, file: &str, index: usize) -> u64 {
        let device = std::fs::metadata(self.path()).expect("the mount").dev();
        let file = format!("/sys/dev/block/{}:{}/{file}", major(device), minor(device));
        let text = std::fs::read_to_string(file).expect("the figures of a block device");
        let field = text.split_whitespace().nth(index);
        field
            .and_then(|field| field.parse().ok())
            .expect("a number")
    }

    /// Until the value is dropped, every read of what is not in memory fails with EIO.
    pub fn fail(&self) -> Failing {
        let trigger = self.tree.at("failing");
        std::fs::write(&trigger, "").expect("the trigger");
        Failing(trigger)
    }

    /// Until the value is dropped, nothing that is not in memory is answered. Drop it before the
    /// server: a process that waits for a disk cannot be killed.
    pub fn freeze(&self) -> Frozen {
        kill_process(self.nbdkit, Signal::STOP).expect("SIGSTOP");
        Frozen(self.nbdkit)
    }
}

/// A disk that answers every read with an error.
pub struct Failing(PathBuf);

impl Drop for Failing {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("the trigger");
    }
}

/// A disk that does not answer.
pub struct Frozen(Pid);

impl Drop for Frozen {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).expect("SIGCONT");
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// A folder on the machine's own disk with the mount of a process in it.
pub struct FuseMount {
    script: Child,
    bindfs: Pid,
    tree: Tree,
    _alone: MutexGuard<'static, ()>,
}

impl FuseMount {
    /// Mounts the files that `fill` writes to the folder `content`. None without root's rights, which CI must give.
    pub fn with(fill: impl FnOnce(&Tree)) -> Option<Self> {
        let alone = alone()?;
        let tree = Tree::new();
        fill(&tree);
        let mut script = start("fuse.sh", &tree, &[]);
        Some(Self {
            bindfs: named_process(&mut script),
            script,
            tree,
            _alone: alone,
        })
    }

    /// The local folder. Beneath it are the mount at `slow`, and at `over` an overlay of it.
    pub fn root(&self) -> PathBuf {
        self.tree.at("root")
    }

    /// Shows the mount in one more place beneath the root, until the value is dropped.
    pub fn show_at(&self, name: &str) -> Shown {
        let place = self.root().join(name);
        std::fs::create_dir(&place).expect("a folder");
        let slow = self.root().join("slow");
        run(Command::new("mount").arg("--bind").args([&slow, &place]));
        Shown(place)
    }

    /// Until the value is dropped, the mount answers no call. Drop it before the server.
    pub fn freeze(&self) -> Frozen {
        kill_process(self.bindfs, Signal::STOP).expect("SIGSTOP");
        Frozen(self.bindfs)
    }
}

/// A mount in a second place.
pub struct Shown(PathBuf);

impl Drop for Shown {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("a command");
    assert!(status.success(), "{command:?}: {status}");
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Waits for the other tests of this kind. None without root's rights, which CI must give.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "mounts need root");
        println!("left out: a mount needs root");
        return None;
    }
    Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
}

/// In a process group of its own, so that Ctrl-C leaves it time to undo what it has done.
fn start(script: &str, tree: &Tree, arguments: &[&str]) -> Child {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slow_disk");
    let mut command = Command::new("sh");
    command
        .arg(format!("{folder}/{script}"))
        .arg(tree.path())
        .args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.process_group(0).spawn().expect("sh")
}

/// The process whose number the script prints when its mount is there.
fn named_process(script: &mut Child) -> Pid {
    let mut line = String::new();
    let mut said = BufReader::new(script.stdout.take().expect("stdout"));
    said.read_line(&mut line).expect("read");
    let process = line.trim().parse().ok().and_then(Pid::from_raw);
    process.unwrap_or_else(|| panic!("{}", why(script)))
}

fn why(script: &mut Child) -> String {
    drop(script.stdin.take());
    let mut text = String::new();
    let mut stderr = script.stderr.take().expect("stderr");
    let _ = stderr.read_to_string(&mut text);
    let _ = script.wait();
    format!("no mount: {text}; run `cargo xtask test`, which installs what it needs")
}
