//! Files that are created, appended to, named and renamed.

use crate::harness::for_every_engine;

for_every_engine![
    nameless_then_linked,
    dropped_without_a_name,
    with_a_name,
    opened_to_append,
    appends_adjoin,
    renamed,
    not_through_links,
    not_outside_the_root,
    removed_whatever_file_it_is,
    free_space,
    given_up,
    only_in_threads,
];

mod cases {
    use std::ffi::CString;
    use std::fs;
    use std::io;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::thread::{self, ThreadId};

    use levity_disk::{
        Class, Completion, Disk, Op, OpenFile, Reply, Root, Symlinks, left_root, op,
    };

    use crate::harness::*;

    fn names(rig: &Rig) -> usize {
        fs::read_dir(rig.tree.path()).unwrap().count()
    }

    fn mode(rig: &Rig, name: &str) -> u32 {
        rig.path(name).metadata().unwrap().permissions().mode() & 0o7777
    }

    fn append_op(root: &Arc<Root>, path: &str) -> op::Create {
        op::Create::Appended {
            root: Arc::clone(root),
            path: CString::new(path).unwrap(),
            mode: 0o600,
        }
    }

    fn remove_op(root: &Arc<Root>, path: &str) -> op::Unlink {
        op::Unlink {
            root: Arc::clone(root),
            path: CString::new(path).unwrap(),
            file: None,
        }
    }

    fn link(disk: &Disk, file: &Arc<OpenFile>, root: &Arc<Root>, path: &str) -> io::Result<()> {
        ask(disk, link_op(file, root, path))
    }

    pub fn nameless_then_linked(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir_all(rig.path("a/b")).unwrap();
        rig.write("taken", 10);
        symlink("nowhere", rig.path("dangling")).unwrap();
        let before = names(rig);
        for folder in [".", "a/b"] {
            let file = ask(&disk, nameless_op(&root, folder)).unwrap();
            assert_eq!((file.meta().links, file.meta().size), (0, 0));
            try_write(&disk, &file, 0, 100_000).unwrap();
            assert_eq!(names(rig), before);
            assert_eq!(fs::read_dir(rig.path("a/b")).unwrap().count(), 0);
            for taken in ["taken", "dangling", "a"] {
                let refused = link(&disk, &file, &root, taken);
                assert_eq!(errno(refused), Some(libc::EEXIST), "{taken}");
            }
            assert_eq!(
                errno(link(&disk, &file, &root, "a/x/y")),
                Some(libc::ENOENT)
            );
            link(&disk, &file, &root, "a/b/final").unwrap();
            assert!(is_pattern(&fs::read(rig.path("a/b/final")).unwrap(), 0));
            assert_eq!(mode(rig, "a/b/final"), 0o640);
            link(&disk, &file, &root, "second").unwrap();
            // It is the same file, and can still be written to.
            try_write(&disk, &file, 100_000, 5).unwrap();
            assert_eq!(stat(&disk, &file).links, 2);
            assert_eq!(rig.path("second").metadata().unwrap().size(), 100_005);
            fs::remove_file(rig.path("second")).unwrap();
            fs::remove_file(rig.path("a/b/final")).unwrap();
            assert_eq!(
                errno(link(&disk, &file, &root, "again")),
                Some(libc::ENOENT)
            );
        }
        assert_eq!(fs::read(rig.path("taken")).unwrap(), pattern(0, 10));
        assert!(!rig.path("nowhere").exists());
        let spooled = create(&disk, &rig.spool());
        assert_eq!(
            errno(link(&disk, &spooled, &root, "spooled")),
            Some(libc::ENOENT)
        );
        let directory = open(&disk, &root, "a");
        assert_eq!(
            errno(link(&disk, &directory, &root, "b")),
            Some(libc::EISDIR)
        );
        let missing = ask(&disk, nameless_op(&root, "x"));
        assert_eq!(errno(missing), Some(libc::ENOENT));
        let no_folder = ask(&disk, nameless_op(&root, "taken"));
        assert_eq!(errno(no_folder), Some(libc::ENOTDIR));
    }

    pub fn dropped_without_a_name(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let file = ask(&disk, nameless_op(&root, ".")).unwrap();
        try_write(&disk, &file, 0, 1000).unwrap();
        drop(file);
        drop(disk);
        assert_eq!(names(rig), 0);
    }

    pub fn with_a_name(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("folder")).unwrap();
        symlink("nowhere", rig.path("dangling")).unwrap();
        let file = ask(&disk, named_op(&root, "folder/file")).unwrap();
        try_write(&disk, &file, 3, 1000).unwrap();
        assert_eq!(mode(rig, "folder/file"), 0o640);
        for taken in ["folder/file", "dangling"] {
            let refused = ask(&disk, named_op(&root, taken));
            assert_eq!(errno(refused), Some(libc::EEXIST), "{taken}");
        }
        for folder in ["folder/", ".", "folder/.."] {
            let refused = ask(&disk, named_op(&root, folder));
            assert_eq!(errno(refused), Some(libc::EISDIR), "{folder}");
        }
        assert_eq!(
            fs::read(rig.path("folder/file")).unwrap()[3..],
            pattern(3, 1000)
        );
        assert!(!rig.path("nowhere").exists());
        let missing = ask(&disk, named_op(&root, "x/file"));
        assert_eq!(errno(missing), Some(libc::ENOENT));
    }

    pub fn opened_to_append(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let first = ask(&disk, append_op(&root, "log")).unwrap();
        assert_eq!(try_append(&disk, &first, b"one ").unwrap(), 0);
        assert_eq!(try_append(&disk, &first, b"").unwrap(), 4);
        drop(first);
        let second = ask(&disk, append_op(&root, "log")).unwrap();
        assert_eq!(second.meta().size, 4);
        assert_eq!(try_append(&disk, &second, b"two ").unwrap(), 4);
        // A write beyond the end moves the end.
        let write = op::Write {
            file: Arc::clone(&second),
            offset: 9,
            bytes: Arc::new(b"far".to_vec()),
        };
        assert_eq!(ask(&disk, write).unwrap(), 3);
        assert_eq!(try_append(&disk, &second, b"!").unwrap(), 12);
        assert_eq!(fs::read(rig.path("log")).unwrap(), b"one two \0far!");
        assert_eq!(mode(rig, "log"), 0o600);
        symlink("log", rig.path("link")).unwrap();
        fs::create_dir(rig.path("folder")).unwrap();
        let _socket = UnixListener::bind(rig.path("socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            rig.path("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        for (path, expected) in [
            ("link", libc::ELOOP),
            ("folder", libc::EISDIR),
            ("socket", libc::ENXIO),
            ("pipe", libc::EINVAL),
        ] {
            let refused = ask(&disk, append_op(&root, path));
            assert_eq!(errno(refused), Some(expected), "{path}");
        }
        rig.write("served", 10);
        let served = open(&disk, &root, "served");
        assert_eq!(errno(try_append(&disk, &served, b"x")), Some(libc::EBADF));
    }

    /// Appends at the same time get ranges without gaps, and each has its own bytes.
    pub fn appends_adjoin(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let file = ask(&disk, append_op(&root, "log")).unwrap();
        let record = |number: usize| vec![number as u8; 1 + number * 997];
        let waiting: Vec<_> = (0..60)
            .map(|number| {
                let append = op::Append {
                    file: Arc::clone(&file),
                    bytes: Arc::new(record(number)),
                };
                submit(&disk, append, Class::Later)
            })
            .collect();
        let content = |offset: u64, len: usize| {
            let all = fs::read(rig.path("log")).unwrap();
            all[offset as usize..][..len].to_vec()
        };
        let mut ranges = Vec::new();
        for (number, waiting) in waiting.iter().enumerate() {
            let op::Appended { offset, len } = waiting.result().unwrap();
            assert_eq!(content(offset, len), record(number));
            ranges.push((offset, len));
        }
        ranges.sort_unstable();
        let end = ranges.iter().fold(0, |end, (offset, len)| {
            assert_eq!(*offset, end);
            end + *len as u64
        });
        assert_eq!(stat(&disk, &file).size, end);
    }

    pub fn renamed(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let rename = |from, to, replace| ask(&disk, rename_op(&root, from, to, replace));
        fs::create_dir_all(rig.path("folder/full")).unwrap();
        for (name, len) in [("old", 10), ("new", 20), ("folder/full/file", 30)] {
            rig.write(name, len);
        }
        assert_eq!(errno(rename("new", "old", false)), Some(libc::EEXIST));
        let len = |name| fs::read(rig.path(name)).unwrap().len();
        assert_eq!((len("old"), len("new")), (10, 20));
        rename("new", "old", true).unwrap();
        assert_eq!((len("old"), names(rig)), (20, 2));

        rename("old", "folder/file", false).unwrap();
        assert_eq!(len("folder/file"), 20);
        for (from, to, expected) in [
            ("absent", "name", libc::ENOENT),
            ("folder/file", "absent/name", libc::ENOENT),
            ("folder/file", "folder/full", libc::EISDIR),
            ("folder/full", "folder/file", libc::ENOTDIR),
            ("folder/", "other", libc::EISDIR),
        ] {
            assert_eq!(errno(rename(from, to, true)), Some(expected), "{from} {to}");
        }
        symlink("nowhere", rig.path("link")).unwrap();
        rename("link", "moved", false).unwrap();
        assert!(rig.path("moved").is_symlink());
        rename("folder/file", "moved", true).unwrap();
        assert!(!rig.path("moved").is_symlink() && len("moved") == 20);
    }

    /// Every change that takes a path, for a folder and a name in it.
    fn all_changes(root: &Arc<Root>, file: &Arc<OpenFile>, folder: &str) -> [Op; 7] {
        let inside = &format!("{folder}/inside");
        [
            nameless_op(root, folder).into(),
            named_op(root, &format!("{folder}/new")).into(),
            append_op(root, inside).into(),
            link_op(file, root, &format!("{folder}/new")).into(),
            rename_op(root, inside, "mine", true).into(),
            rename_op(root, "own", inside, true).into(),
            remove_op(root, inside).into(),
        ]
    }

    pub fn not_through_links(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir_all(rig.path("folder/beneath")).unwrap();
        rig.write("folder/inside", 10);
        rig.write("own", 10);
        symlink("folder", rig.path("link")).unwrap();
        symlink("../link", rig.path("folder/back")).unwrap();
        for symlinks in [Symlinks::Beneath, Symlinks::Follow] {
            let root = Root::open(rig.tree.path(), symlinks).unwrap();
            let file = ask(&disk, nameless_op(&root, "folder/beneath")).unwrap();
            for folder in ["link", "folder/back"] {
                for op in all_changes(&root, &file, folder) {
                    let shown = format!("{op:?}");
                    // As the last name of a folder, a link is one that leads to no folder.
                    assert_eq!(errno(ask(&disk, Any(op))), Some(libc::ELOOP), "{shown}");
                }
            }
        }
        assert_eq!(fs::read(rig.path("folder/inside")).unwrap().len(), 10);
        assert_eq!(fs::read_dir(rig.path("folder")).unwrap().count(), 3);
    }

    pub fn not_outside_the_root(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir_all(rig.path("root/folder")).unwrap();
        rig.write("inside", 10);
        rig.write("root/own", 10);
        let root = Root::open(&rig.path("root"), Symlinks::Follow).unwrap();
        let file = ask(&disk, nameless_op(&root, ".")).unwrap();
        let above = rig.tree.path().to_str().unwrap();
        for folder in ["..", "folder/../..", above] {
            for op in all_changes(&root, &file, folder) {
                let shown = format!("{op:?}");
                let error = ask(&disk, Any(op)).unwrap_err();
                assert!(left_root(&error), "{shown}: {error}");
            }
        }
        assert_eq!(names(rig), 2);
        assert_eq!(fs::read(rig.path("inside")).unwrap(), pattern(0, 10));
        assert_eq!(fs::read(rig.path("root/own")).unwrap(), pattern(0, 10));
    }

    pub fn removed_whatever_file_it_is(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir_all(rig.path("folder/empty")).unwrap();
        rig.write("folder/file", 10);
        symlink("folder/file", rig.path("link")).unwrap();
        let remove = |path| ask(&disk, remove_op(&root, path));
        for (path, expected) in [
            ("folder/empty", libc::EISDIR),
            ("link", libc::EINVAL),
            ("absent", libc::ENOENT),
        ] {
            assert_eq!(errno(remove(path)), Some(expected), "{path}");
        }
        remove("folder/file").unwrap();
        assert!(!rig.path("folder/file").exists() && rig.path("folder/empty").exists());
        assert_eq!(errno(remove("folder/file")), Some(libc::ENOENT));
    }

    pub fn free_space(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let free = ask(&disk, op::FreeSpace { root }).unwrap();
        // Others write to the file system too.
        let now = rustix::fs::statvfs(rig.tree.path()).unwrap();
        let (expected, all) = (now.f_bavail * now.f_frsize, now.f_blocks * now.f_frsize);
        assert!(
            free > 0 && free.abs_diff(expected) < all / 10,
            "{free} {expected}"
        );
    }

    /// A change that nobody waits for when its turn comes is not made.
    pub fn given_up(rig: &Rig) {
        let (disk, root) = (rig.narrow_disk(), rig.root());
        let file = ask(&disk, named_op(&root, "file")).unwrap();
        settle(&disk);
        let held = Held::new(&disk, write_op(&file, 0, 10), Class::Later);
        let append = op::Append {
            file: Arc::clone(&file),
            bytes: Arc::new(vec![7; 100]),
        };
        let changes: [Op; 6] = [
            rename_op(&root, "file", "other", true).into(),
            remove_op(&root, "file").into(),
            link_op(&file, &root, "second").into(),
            named_op(&root, "third").into(),
            append.into(),
            sync_op(&file).into(),
        ];
        let count = changes.len() as u64;
        let waiting = changes.map(|change| submit(&disk, Any(change), Class::Later));
        arrive(&disk);
        waiting.iter().for_each(Waiting::give_up);
        held.release();
        assert!(waiting.iter().all(|waiting| !waiting.is_answered()));
        settle(&disk);
        assert_eq!(disk.stats().canceled, count);
        assert_eq!(fs::read(rig.path("file")).unwrap(), pattern(0, 10));
        assert_eq!((names(rig), disk.stats().engines[0].syncs), (1, 0));
        assert_eq!(try_append(&disk, &file, b"x").unwrap(), 10);
    }

    /// A reply that says which thread has called it.
    struct Thread(mpsc::Sender<ThreadId>);

    impl Reply for Thread {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            assert!(completion.result.is_ok(), "{completion:?}");
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// No change is made on the thread that submits it, under no engine.
    pub fn only_in_threads(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("folder")).unwrap();
        let file = ask(&disk, nameless_op(&root, ".")).unwrap();
        let directory = open(&disk, &root, "folder");
        let ask_for_space = op::FreeSpace {
            root: Root::open(Path::new("/"), Symlinks::Beneath).unwrap(),
        };
        let changes: [Op; 11] = [
            spool_op(&rig.spool()).into(),
            nameless_op(&root, ".").into(),
            named_op(&root, "named").into(),
            append_op(&root, "named").into(),
            link_op(&file, &root, "linked").into(),
            rename_op(&root, "linked", "renamed", true).into(),
            remove_op(&root, "renamed").into(),
            write_op(&file, 0, 10).into(),
            sync_op(&file).into(),
            sync_op(&directory).into(),
            ask_for_space.into(),
        ];
        for op in changes {
            let (to, from) = mpsc::channel();
            let shown = format!("{op:?}");
            disk.submit(job_for(op, Class::First, Box::new(Thread(to))));
            let by = from.recv_timeout(DEADLINE).unwrap();
            assert_ne!(by, thread::current().id(), "{shown}");
        }
    }
}
