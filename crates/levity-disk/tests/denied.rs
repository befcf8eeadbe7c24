//! Containers that deny system calls: each test installs such a filter on its own thread.

use std::io::ErrorKind;

use levity_disk::{
    Class, Completion, Direct, Disk, Job, Ready, Reply, Root, Settings, StartError, Symlinks, op,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Makes the call fail on this thread and those that it starts.
fn deny(call: i64, errno: i32) {
    deny_if(call, Vec::new(), errno);
}

/// As [`deny`], for calls that match a rule.
fn deny_if(call: i64, rules: Vec<SeccompRule>, errno: i32) {
    let filter = SeccompFilter::new(
        [(call, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        TargetArch::try_from(std::env::consts::ARCH).unwrap(),
    );
    let program = BpfProgram::try_from(filter.unwrap()).unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

fn start(engine: &str) -> Result<std::sync::Arc<Disk>, StartError> {
    Disk::start(Settings {
        engine: engine.to_owned(),
        ..Settings::default()
    })
}

#[test]
fn no_ring() {
    for (errno, hint) in [
        (libc::EPERM, "kernel.io_uring_disabled"),
        (libc::ENOSYS, "built without it"),
        (libc::ENOMEM, "locked memory"),
        (libc::EMFILE, "open files"),
    ] {
        std::thread::spawn(move || {
            deny(libc::SYS_io_uring_setup, errno);
            let Err(StartError::Unavailable { engine, why }) = start("io_uring") else {
                panic!("it cannot have started");
            };
            assert_eq!((engine, why.errno), ("io_uring", errno));
            assert!(why.to_string().contains(hint), "{why}");
            let disk = start("auto").unwrap();
            assert!(
                disk.reason().contains("io_uring cannot run here"),
                "{disk:?}"
            );
            assert!(disk.reason().contains(hint), "{disk:?}");
        })
        .join()
        .unwrap();
    }
}

#[test]
fn no_linux_aio() {
    for (call, errno, hint) in [
        (libc::SYS_io_setup, libc::EAGAIN, "fs.aio-max-nr"),
        (libc::SYS_io_setup, libc::ENOSYS, "CONFIG_AIO"),
        (libc::SYS_io_setup, libc::EPERM, "seccomp"),
        (libc::SYS_memfd_create, libc::EPERM, "seccomp"),
    ] {
        std::thread::spawn(move || {
            deny(call, errno);
            let Err(StartError::Unavailable { engine, why }) = start("linux-aio") else {
                panic!("it cannot have started");
            };
            assert_eq!((engine, why.errno), ("linux-aio", errno));
            assert!(why.to_string().contains(hint), "{why}");
        })
        .join()
        .unwrap();
    }
}

/// The pool makes reads that the kernel refuses, into the same memory.
#[test]
fn no_io_submit() {
    for errno in [libc::EAGAIN, libc::EOPNOTSUPP, libc::EINVAL] {
        std::thread::spawn(move || {
            if start("linux-aio").is_err() {
                return;
            }
            deny(libc::SYS_io_submit, errno);
            let disk = start("linux-aio").unwrap();
            let (ready, nowait) = read_directly(&disk);
            let bytes = ready.into_bytes(disk.budget()).unwrap();
            assert!(!nowait || bytes.memory_file().is_some());
            assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == 7));
        })
        .join()
        .unwrap();
    }
}

/// The operation that registers buffers: `IORING_REGISTER_BUFFERS`.
const REGISTER_BUFFERS: u64 = 0;

/// Without registered buffers reads are ordinary, and the disk reports that.
#[test]
fn no_registered_buffers() {
    for (errno, hint) in [(libc::ENOMEM, "locked memory"), (libc::EPERM, "seccomp")] {
        std::thread::spawn(move || {
            let Ok(disk) = start("io_uring") else {
                return;
            };
            assert!(!disk.reason().contains("no registered"), "{disk:?}");
            let number = SeccompCmpArgLen::Dword;
            let is_it =
                SeccompCondition::new(1, number, SeccompCmpOp::Eq, REGISTER_BUFFERS).unwrap();
            let rule = SeccompRule::new(vec![is_it]).unwrap();
            deny_if(libc::SYS_io_uring_register, vec![rule], errno);
            for engine in ["auto", "io_uring"] {
                let disk = start(engine).unwrap();
                let reason = disk.reason();
                assert!(reason.contains("no registered buffers") && reason.contains(hint));
            }
            let disk = start("io_uring").unwrap();
            let (ready, _) = read_directly(&disk);
            let bytes = ready.into_bytes(disk.budget()).unwrap();
            assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == 7));
        })
        .join()
        .unwrap();
    }
}

/// What a disk reads past the page cache, from within the first block to the end of a file of
/// 100 001 sevens; and whether its file system can do that without a wait.
fn read_directly(disk: &Disk) -> (Ready, bool) {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), vec![7; 100_001]).unwrap();
    let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
    let (send, received) = std::sync::mpsc::channel();
    let op = op::Read {
        file: root.open_cached(c"file").unwrap(),
        offset: 1,
        len: 200_000,
    };
    let mut job = Job::new(op, Class::Later, Box::new(Channel(send)));
    job.options.direct = Direct::Always;
    disk.submit(job);
    let completion = received.recv().unwrap().of::<op::Read>();
    let (ready, _) = completion.result.unwrap();
    (ready, root.file_system().nowait)
}

struct Channel(std::sync::mpsc::Sender<Completion>);

impl Reply for Channel {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        self.0.send(completion).unwrap();
    }
}

/// Fewer flags are tried only if the kernel does not support them.
#[test]
fn no_flags_are_known() {
    deny(libc::SYS_io_uring_setup, libc::EINVAL);
    let Err(StartError::Unavailable { why, .. }) = start("io_uring") else {
        panic!("it cannot have started");
    };
    assert_eq!(why.errno, libc::EINVAL);
}

#[test]
fn no_openat2() {
    deny(libc::SYS_openat2, libc::ENOSYS);
    let tree = tempfile::tempdir().unwrap();
    let error = Root::open(tree.path(), Symlinks::Beneath).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("Linux 5.6"), "{error}");
}

#[test]
fn no_nowait() {
    deny(libc::SYS_preadv2, libc::EOPNOTSUPP);
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), "some").unwrap();
    let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
    let file_system = root.file_system();
    assert!(!file_system.nowait && file_system.reason.contains("EOPNOTSUPP"));
    let file = root.open_cached(c"file").unwrap();
    let error = file
        .inline()
        .unwrap()
        .read_cached(&mut Vec::new(), 4, 0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
