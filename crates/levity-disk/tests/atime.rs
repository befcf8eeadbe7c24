//! Files of other owners, where a read may update the access time.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Arc, mpsc};

use levity_disk::{
    Class, Completion, Disk, Job, OpenFile, Ready, Reply, Root, Settings, Symlinks, op,
};
use tempfile::TempDir;

/// The ID of `nobody` on most systems; any ID but 0 works.
const OTHER: u32 = 65_534;

/// A root with a file of this user and one of another user, both just written.
fn tree() -> (TempDir, Arc<Root>) {
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["ours", "theirs"] {
        let path = tree.path().join(name);
        fs::write(&path, [7; 100]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    chown(tree.path().join("ours"), Some(OTHER), None).unwrap();
    let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
    // The probe of the root reads a file: files written afterwards are unread. The time of a write may be that of the last
    // timer tick, and so before that of a read which came first.
    let theirs = tree.path().join("theirs");
    fs::write(&theirs, [7; 100]).unwrap();
    while is_read(&theirs) {
        fs::write(&theirs, [7; 100]).unwrap();
    }
    (tree, root)
}

/// Whether the access time is after the last change.
fn is_read(path: &Path) -> bool {
    let meta = fs::metadata(path).unwrap();
    let content = (meta.mtime(), meta.mtime_nsec());
    let inode = (meta.ctime(), meta.ctime_nsec());
    (meta.atime(), meta.atime_nsec()) > content.max(inode)
}

/// Drops the privileges of the calling thread only.
fn drop_rights() {
    // SAFETY: takes three numbers and touches no memory; past the C library, which would change all
    // threads of the process.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn read_cached(file: &OpenFile) -> io::Result<usize> {
    let inline = file.inline().expect("its file system answers");
    let read = inline.read_cached(&mut Vec::new(), 100, 0)?;
    Ok(read.0)
}

struct Answer(mpsc::Sender<Completion>);

impl Reply for Answer {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        self.0.send(completion).unwrap();
    }
}

fn read_by(disk: &Disk, file: &Arc<OpenFile>) -> Ready {
    let (to, from) = mpsc::channel();
    let op = op::Read {
        file: Arc::clone(file),
        offset: 0,
        len: 100,
    };
    disk.submit(Job::new(op, Class::First, Box::new(Answer(to))));
    let completion = from.recv().unwrap().of::<op::Read>();
    let (ready, _) = completion.result.unwrap();
    ready
}

/// Whether the test can run on this machine; prints why not.
fn can_be_shown(root: &Root) -> bool {
    let flags = rustix::fs::statvfs(root.path()).unwrap().f_flag;
    let why = if !root.file_system().nowait {
        "RWF_NOWAIT does not work here"
    } else if !flags.contains(rustix::fs::StatVfsMountFlags::RELATIME) {
        "the mount is not relatime"
    } else {
        return true;
    };
    println!("skipped: {why}");
    false
}

fn first_read_is_the_engines(engine: &str) {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can own a file and be someone else");
    }
    let (_tree, root) = tree();
    if !can_be_shown(&root) {
        return;
    }
    let settings = Settings {
        engine: engine.to_owned(),
        ..Settings::default()
    };
    let disk = match Disk::start(settings) {
        Ok(disk) => disk,
        Err(error) => return println!("skipped: {error}"),
    };
    let body = move || {
        drop_rights();
        let theirs = root.open_cached(c"theirs").unwrap();
        for _ in 0..2 {
            let error = read_cached(&theirs).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        // A refused `O_NOATIME` says nothing about the next file.
        let ours = root.open_cached(c"ours").unwrap();
        assert_eq!(read_cached(&ours).unwrap(), 100);
        // A read in the second of the last change does not count as later.
        let changed_s = theirs.meta().ctime_s;
        while now_s() <= changed_s {
            std::thread::yield_now();
        }
        assert_eq!(read_by(&disk, &theirs).len(), 100);
        assert_eq!(read_cached(&theirs).unwrap(), 100);
        // An access time that an engine has set does not concern files opened later.
        let again = root.open_cached(c"theirs").unwrap();
        assert_eq!(read_cached(&again).unwrap(), 100);
    };
    std::thread::spawn(body).join().unwrap();
}

fn now_s() -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

#[test]
fn first_read_is_the_engines_with_threads() {
    first_read_is_the_engines("threads");
}

#[test]
fn first_read_is_the_engines_with_a_ring() {
    first_read_is_the_engines("io_uring");
}
