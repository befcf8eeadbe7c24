//! A slow disk, and one that can be frozen or made to fail.

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
        if !is_root() {
            assert!(std::env::var_os("CI").is_none(), "slow disks need root");
            println!("left out: a slow disk needs root");
            return None;
        }
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (tree, content) = (Tree::new(), Tree::new());
        fill(&content);
        std::os::unix::fs::symlink(content.path(), tree.at("content")).expect("symlink");
        let mut script = start(&tree);
        let mut line = String::new();
        let mut said = BufReader::new(script.stdout.take().expect("stdout"));
        said.read_line(&mut line).expect("read");
        let nbdkit = line.trim().parse().ok().and_then(Pid::from_raw);
        Some(Self {
            nbdkit: nbdkit.unwrap_or_else(|| panic!("{}", why(&mut script))),
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
        let device = std::fs::metadata(self.path()).expect("the mount").dev();
        let stat = format!("/sys/dev/block/{}:{}/stat", major(device), minor(device));
        let text = std::fs::read_to_string(stat).expect("the figures of a block device");
        let sectors = text
            .split_whitespace()
            .nth(2)
            .and_then(|field| field.parse::<u64>().ok());
        512 * sectors.expect("sectors read")
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

/// In a process group of its own, so that Ctrl-C leaves it time to undo what it has done.
fn start(tree: &Tree) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slow_disk/rig.sh");
    let mut command = Command::new("sh");
    command
        .arg(script)
        .arg(tree.path())
        .args([READ_DELAY, READS_AT_ONCE]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.process_group(0).spawn().expect("sh")
}

fn why(script: &mut Child) -> String {
    drop(script.stdin.take());
    let mut text = String::new();
    let mut stderr = script.stderr.take().expect("stderr");
    let _ = stderr.read_to_string(&mut text);
    let _ = script.wait();
    format!("no slow disk: {text}; run `cargo xtask test`, which installs what it needs")
}
