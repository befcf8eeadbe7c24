//! A temporary tree of files to serve.

use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Advice, CWD, Dev, FileType, Mode, fadvise, mknodat};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{content, wait_until};

/// Files are this old unless a test wants otherwise: young ones are not cached and have weak ETags.
const AGE: Duration = Duration::from_secs(3600);

/// Owned by whoever runs the tests, readable by everyone, removed at the end.
pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Self {
        Self::inside(&std::env::temp_dir())
    }

    /// A tree on the file system of `parent`.
    pub fn inside(parent: &Path) -> Self {
        // Without a leading dot, which would hide it from clients.
        let named = tempfile::Builder::new()
            .prefix("levity-")
            .tempdir_in(parent);
        let folder = named.expect("a temporary folder");
        let open_to_all = Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open_to_all).expect("chmod");
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes an old file; its folders are made.
    pub fn file(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.fresh(name, bytes);
        age(&path, AGE);
        path
    }

    /// Writes a file that was modified just now.
    pub fn fresh(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        fs::write(&path, bytes).expect("write");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        path
    }

    /// Writes an old file of `len` known bytes and gives them.
    pub fn filled(&self, name: &str, len: usize) -> Vec<u8> {
        let bytes = content(len as u64, len);
        self.file(name, &bytes);
        bytes
    }

    /// Writes an old file of `size` bytes that are zero, but for the given pieces.
    pub fn sparse(&self, name: &str, size: u64, pieces: &[(u64, &[u8])]) {
        let path = self.at(name);
        let mut file = File::create(&path).expect("create");
        file.set_len(size).expect("truncate");
        for (offset, bytes) in pieces {
            file.seek(SeekFrom::Start(*offset)).expect("seek");
            file.write_all(bytes).expect("write");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        age(&path, AGE);
    }

    pub fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).expect("mkdir");
        path
    }

    pub fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.at(name)).expect("symlink");
    }

    /// A named pipe, or with root's rights a device.
    pub fn node(&self, name: &str, kind: FileType, device: Dev) {
        let path = self.at(name);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device).expect("mknod");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("chmod");
    }

    pub fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), Permissions::from_mode(mode)).expect("chmod");
    }

    /// Drops a file's pages from the page cache. A journal that is being written holds some of them for
    /// a moment, and so does the network, so it is asked again until none is left.
    #[track_caller]
    pub fn evict(&self, name: impl AsRef<Path>) {
        let path = self.at(name);
        let file = File::open(&path).expect("open");
        wait_until("the page cache lets go of it", || {
            file.sync_all().expect("fsync");
            free_received();
            fadvise(&file, 0, None, Advice::DontNeed).expect("fadvise");
            pages_cached(&path) == 0
        });
    }
}

/// Makes each processor free the packets that were sent from there and have been received: with `sendfile` they refer to
/// pages of the file. The kernel leaves up to 32 of them to the next packet on that processor (`skb_defer_max`, Linux 6.0).
fn free_received() {
    let allowed = sched_getaffinity(None).expect("sched_getaffinity");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let own = socket.local_addr().expect("an address");
    for number in (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)) {
        let mut one = CpuSet::new();
        one.set(number);
        sched_setaffinity(None, &one).expect("a processor that this process may use");
        socket.send_to(b"packet", own).expect("send");
        socket.recv(&mut [0; 8]).expect("receive");
    }
    sched_setaffinity(None, &allowed).expect("the processors that it had");
}

/// As util-linux counts them.
#[track_caller]
fn pages_cached(path: &Path) -> u64 {
    let mut fincore = Command::new("fincore");
    fincore
        .args(["--noheadings", "--output", "PAGES"])
        .arg(path);
    let output = fincore.output().expect("fincore, of util-linux");
    let pages = String::from_utf8_lossy(&output.stdout);
    pages.trim().parse().expect("a number of pages")
}

/// Sets the time of last modification back.
pub fn age(path: &Path, age: Duration) {
    let file = File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::now() - age).expect("utimes");
    CHANGED.set(Some(Instant::now()));
}

thread_local! {
    /// When this test last made or changed a file.
    static CHANGED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Waits until the time of this test's last change is past: until then a file counts as one that may
/// change again unseen, however old it is made to look.
pub fn settle() {
    const TICKS: Duration = Duration::from_millis(30);
    super::wait_until("the change is past", || {
        CHANGED
            .get()
            .is_none_or(|changed| changed.elapsed() > TICKS)
    });
}
