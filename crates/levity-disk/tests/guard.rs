//! The guard, in child processes, because tripping it ends the process.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::{Arc, mpsc};

use levity_disk::{
    Class, Completion, Disk, First, Job, Lookup, Opened, Operation, Ready, Reply, Root, Settings,
    Spool, Symlinks, guard, op, transmit,
};
use rustix::fs::{Advice, AtFlags};
use rustix::io::ReadWriteFlags;
use tempfile::TempDir;

/// Selects the task of the child process.
const CALL: &str = "LEVITY_GUARDED_CALL";

fn guarded(call: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "in_a_process_of_its_own",
            "--ignored",
            "--nocapture",
        ])
        .env(CALL, call)
        .output()
        .unwrap()
}

#[test]
fn a_call_that_may_wait_ends_the_process_and_is_named() {
    for call in [
        "openat",
        "statx",
        "unlink",
        "unlinkat",
        "getdents64",
        "pread64",
        "preadv2",
        "pwrite64",
        "sendfile",
        "fsync",
        "ftruncate",
        "fadvise64",
        "renameat2",
    ] {
        let output = guarded(call);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGABRT),
            "{call}: {stderr}"
        );
        let message = format!("on a thread that must not: {call}");
        assert!(stderr.contains(&message), "{call}: {stderr}");
    }
}

#[test]
fn calls_allowed_on_a_loop_pass() {
    for call in ["allowed", "allowed with sendfile"] {
        let output = guarded(call);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{call}: {stderr}");
    }
}

#[test]
#[ignore = "run by the others"]
fn in_a_process_of_its_own() {
    // `--include-ignored` runs it too.
    let Ok(call) = std::env::var(CALL) else {
        return;
    };
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let on_loop = scope.spawn(|| {
            guard::install(call == "allowed with sendfile").unwrap();
            match &*call {
                "allowed" => stage.allowed(),
                "allowed with sendfile" => stage.send_from_file(),
                call => stage.stopped(call),
            }
        });
        on_loop.join().unwrap();
    });
    // Threads without a guard are not affected.
    assert_eq!(
        fs::read(stage.tree.path().join("file")).unwrap().len(),
        100_000
    );
}

/// The objects that an event loop uses.
struct Stage {
    tree: TempDir,
    file: File,
    directory: File,
    root: Arc<Root>,
    spool: Arc<Spool>,
    disk: Arc<Disk>,
}

impl Stage {
    fn new() -> Stage {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("file");
        fs::write(&path, [7; 100_000]).unwrap();
        fs::write(tree.path().join("sent"), "").unwrap();
        let settings = Settings {
            engine: "simulated".to_owned(),
            ..Settings::default()
        };
        Stage {
            file: File::options().read(true).write(true).open(&path).unwrap(),
            directory: File::open(tree.path()).unwrap(),
            root: Root::open(tree.path(), Symlinks::Beneath).unwrap(),
            spool: Spool::open(tree.path()).unwrap(),
            disk: Disk::start(settings).unwrap(),
            tree,
        }
    }

    fn stopped(&self, call: &str) {
        let path = self.tree.path().join("file");
        let mut byte = [0];
        let result = match call {
            "openat" => File::open(path).map(drop),
            "statx" => fs::metadata(path).map(drop),
            "unlink" => fs::remove_file(path),
            "unlinkat" => {
                rustix::fs::unlinkat(&self.directory, "file", AtFlags::empty()).map_err(Into::into)
            }
            "getdents64" => {
                let mut memory = [MaybeUninit::uninit(); 4096];
                let mut names = rustix::fs::RawDir::new(&self.directory, &mut memory);
                names.next().transpose().map(|_| ()).map_err(Into::into)
            }
            "pread64" => self.file.read_at(&mut byte, 0).map(drop),
            "preadv2" => {
                let mut vector = [IoSliceMut::new(&mut byte)];
                let flags = ReadWriteFlags::empty();
                rustix::io::preadv2(&self.file, &mut vector, 0, flags)
                    .map(drop)
                    .map_err(Into::into)
            }
            "pwrite64" => self.file.write_at(&byte, 0).map(drop),
            "sendfile" => {
                let (ours, _theirs) = UnixStream::pair().unwrap();
                rustix::fs::sendfile(&ours, &self.file, None, 1)
                    .map(drop)
                    .map_err(Into::into)
            }
            "fsync" => self.file.sync_all(),
            "ftruncate" => self.file.set_len(1),
            "fadvise64" => {
                rustix::fs::fadvise(&self.file, 0, None, Advice::WillNeed).map_err(Into::into)
            }
            "renameat2" => {
                let flags = rustix::fs::RenameFlags::NOREPLACE;
                let there = &self.directory;
                rustix::fs::renameat_with(there, "file", there, "other", flags).map_err(Into::into)
            }
            other => panic!("nobody knows how to call {other}"),
        };
        panic!("{call} came through: {result:?}");
    }

    /// Everything that a request does: open, check, probe, submit, convert, send, close; spool a body, and remove
    /// a file that was sent.
    fn allowed(&self) {
        let file = self.root.open_cached(c"file").unwrap();
        let inline = file.inline().expect("it was opened without waiting");
        assert_eq!(inline.refresh().unwrap().size, 100_000);
        let mut bytes = Vec::new();
        match inline.read_cached(&mut bytes, 100, 0) {
            Ok((count, _)) => assert_eq!(count, 100),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        // One payload of each form.
        for _ in 0..3 {
            self.send(self.open().first.expect("bytes"));
        }
        self.put_aside();
        self.remove();
        drop(file);
        // The first release of memory makes glibc open a file.
        let blocks: Vec<_> = (0..500).map(|_| vec![1_u8; 60_000]).collect();
        drop(std::hint::black_box(blocks));
    }

    fn put_aside(&self) {
        let spool = Arc::clone(&self.spool);
        let file = self.ask(op::Create::Spooled { spool });
        let write = op::Write {
            file: Arc::clone(&file),
            offset: 0,
            bytes: Arc::new(vec![7; 65_536]),
        };
        assert_eq!(self.ask(write), 65_536);
        let read = op::Read {
            file,
            offset: 0,
            len: 65_536,
        };
        let (ready, _) = self.ask(read);
        self.send(ready);
    }

    fn remove(&self) {
        self.ask(op::Unlink {
            root: Arc::clone(&self.root),
            path: CString::new("sent").unwrap(),
            file: Some(self.root.open_cached(c"sent").unwrap()),
        });
    }

    fn ask<O: Operation>(&self, op: O) -> O::Output {
        struct Answer(mpsc::Sender<Completion>);
        impl Reply for Answer {
            fn is_awaited(&self) -> bool {
                true
            }
            fn send(self: Box<Self>, completion: Completion) {
                self.0.send(completion).unwrap();
            }
        }
        let (to, from) = mpsc::channel();
        let reply = Box::new(Answer(to));
        self.disk.submit(Job::new(op, Class::First, reply));
        from.recv().unwrap().of::<O>().result.unwrap()
    }

    fn open(&self) -> Opened {
        self.ask(op::Open {
            root: Arc::clone(&self.root),
            path: CString::new("file").unwrap(),
            first: Some(First {
                offset: 0,
                len: 65_536,
                len_max: 0,
            }),
            variants: Box::default(),
            lookup: Lookup::Shared,
        })
    }

    fn send(&self, ready: Ready) {
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let bytes = ready.into_bytes(self.disk.budget()).unwrap();
        assert_eq!(*bytes, [7; 65_536]);
        ours.write_all(&bytes[..1]).unwrap();
        assert!(ours.write_vectored(&[IoSlice::new(&bytes[1..])]).unwrap() > 0);
    }

    fn send_from_file(&self) {
        let file = self.root.open_cached(c"file").unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert!(transmit::sendfile(ours.as_fd(), &file, 0, 100_000).unwrap() > 0);
    }
}
