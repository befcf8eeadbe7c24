//! Files that are removed after they were sent.

use crate::harness::for_every_engine;

for_every_engine![
    once_it_is_open,
    as_it_is_opened,
    only_the_same_file,
    not_through_links,
    not_outside_the_root,
    only_regular_files,
    only_one_of_its_names,
    a_single_file,
    opened_straight,
    opened_by_each,
    given_up,
];

mod cases {
    use std::ffi::CString;
    use std::fs;
    use std::io;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    use levity_disk::left_root;
    use levity_disk::{Class, Disk, Lookup, OpenFile, Opened, Ready, Root, Symlinks, op};

    use crate::harness::*;

    fn look_up_op(root: &Arc<Root>, path: &str, lookup: Lookup) -> op::Open {
        op::Open {
            lookup,
            ..open_op(root, path, Some((0, 1000)))
        }
    }

    fn open_no_symlinks(
        disk: &Disk,
        root: &Arc<Root>,
        path: &str,
    ) -> io::Result<(Arc<OpenFile>, Option<Ready>)> {
        let opened = ask(disk, look_up_op(root, path, Lookup::NoSymlinks))?;
        Ok((opened.file, opened.first))
    }

    fn unlink_op(root: &Arc<Root>, path: &str, file: &Arc<OpenFile>) -> op::Unlink {
        op::Unlink {
            root: Arc::clone(root),
            path: CString::new(path).unwrap(),
            file: Some(Arc::clone(file)),
        }
    }

    fn unlink(disk: &Disk, root: &Arc<Root>, path: &str, file: &Arc<OpenFile>) -> io::Result<()> {
        ask(disk, unlink_op(root, path, file))
    }

    /// The content can be read as long as the file is open.
    pub fn once_it_is_open(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir_all(rig.path("a/b")).unwrap();
        for path in ["file", "a/b/file"] {
            rig.write(path, 300_000);
            let (file, first) = open_no_symlinks(&disk, &root, path).unwrap();
            unlink(&disk, &root, path, &file).unwrap();
            assert!(!rig.path(path).exists());
            assert_eq!(stat(&disk, &file).links, 0);
            assert_eq!(bytes(&disk, first.unwrap()).unwrap(), pattern(0, 1000));
            let found = read(&disk, &file, 100_001, 300_000);
            assert!(found.len() == 199_999 && is_pattern(&found, 100_001));
            assert_eq!(errno(unlink(&disk, &root, path, &file)), Some(libc::ENOENT));
        }
        assert!(rig.path("a/b").exists());
    }

    /// One job reads the bytes and removes the name, and that does not look like another version.
    pub fn as_it_is_opened(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let take = |path| ask(&disk, look_up_op(&root, path, Lookup::Consume));
        fs::create_dir_all(rig.path("a/b")).unwrap();
        for path in ["file", "a/b/file"] {
            rig.write(path, 300_000);
            let Opened {
                file,
                first,
                stable,
                not_removed,
                ..
            } = take(path).unwrap();
            assert!(stable && not_removed.is_none(), "{not_removed:?}");
            assert!(!rig.path(path).exists());
            assert_eq!(file.meta(), stat(&disk, &file));
            assert_eq!((file.meta().links, file.meta().size), (0, 300_000));
            assert_eq!(bytes(&disk, first.unwrap()).unwrap(), pattern(0, 1000));
            assert_eq!(read(&disk, &file, 100_001, 300_000).len(), 199_999);
            assert_eq!(errno(take(path)), Some(libc::ENOENT));
        }
        rig.write("file", 100);
        symlink("file", rig.path("link")).unwrap();
        for (path, expected) in [("link", libc::ELOOP), ("a/b", libc::EISDIR)] {
            assert_eq!(errno(take(path)), Some(expected), "{path}");
            assert!(rig.path(path).exists());
        }
    }

    /// The name was given to another file.
    pub fn only_the_same_file(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        rig.write("file", 100);
        let (file, _) = open_no_symlinks(&disk, &root, "file").unwrap();
        rig.write("other", 200);
        fs::rename(rig.path("other"), rig.path("file")).unwrap();
        let refused = unlink(&disk, &root, "file", &file);
        assert_eq!(errno(refused), Some(libc::ESTALE));
        assert_eq!(fs::read(rig.path("file")).unwrap(), pattern(0, 200));
        // A new file: while the old one is open, its inode number is not reused.
        fs::remove_file(rig.path("file")).unwrap();
        rig.write("file", 300);
        let refused = unlink(&disk, &root, "file", &file);
        assert_eq!(errno(refused), Some(libc::ESTALE));
        assert_eq!(fs::read(rig.path("file")).unwrap(), pattern(0, 300));
        assert_eq!(read(&disk, &file, 0, 1000), pattern(0, 100));
    }

    /// A link is not followed, not even to the same file.
    pub fn not_through_links(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir(rig.path("folder")).unwrap();
        rig.write("folder/file", 100);
        for symlinks in [Symlinks::Beneath, Symlinks::Follow] {
            let root = Root::open(rig.tree.path(), symlinks).unwrap();
            let (file, _) = open_no_symlinks(&disk, &root, "folder/file").unwrap();
            symlink("folder/file", rig.path("to-file")).unwrap();
            symlink("folder", rig.path("to-folder")).unwrap();
            symlink(rig.path("folder"), rig.path("absolute")).unwrap();
            let refused = |path| errno(unlink(&disk, &root, path, &file));
            assert_eq!(refused("to-file"), Some(libc::ESTALE));
            assert_eq!(refused("to-folder/file"), Some(libc::ELOOP));
            assert_eq!(refused("absolute/file"), Some(libc::ELOOP));
            for link in ["to-file", "to-folder", "absolute"] {
                fs::remove_file(rig.path(link)).unwrap();
            }
            // The directory was replaced by a link after the file was opened.
            fs::rename(rig.path("folder"), rig.path("moved")).unwrap();
            symlink("moved", rig.path("folder")).unwrap();
            assert_eq!(refused("folder/file"), Some(libc::ELOOP));
            fs::remove_file(rig.path("folder")).unwrap();
            fs::rename(rig.path("moved"), rig.path("folder")).unwrap();
        }
        assert_eq!(fs::read(rig.path("folder/file")).unwrap(), pattern(0, 100));
    }

    pub fn not_outside_the_root(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir(rig.path("root")).unwrap();
        let outside = rig.write("outside", 100);
        let whole = rig.root();
        let (file, _) = open_no_symlinks(&disk, &whole, "outside").unwrap();
        for symlinks in [Symlinks::Beneath, Symlinks::Follow] {
            let root = Root::open(&rig.path("root"), symlinks).unwrap();
            let absolute = outside.to_str().unwrap();
            for path in ["../outside", "../root/../outside", absolute] {
                let refused = unlink(&disk, &root, path, &file).unwrap_err();
                assert!(left_root(&refused), "{path}: {refused}");
                let refused = open_no_symlinks(&disk, &root, path).err().unwrap();
                assert!(left_root(&refused), "{path}: {refused}");
            }
        }
        assert!(outside.exists());
    }

    pub fn only_regular_files(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("folder")).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, rig.path("pipe"), pipe, mode, 0).unwrap();
        rig.write("file", 10);
        let folder = open(&disk, &root, "folder");
        let refused = |path, file| errno(unlink(&disk, &root, path, file));
        assert_eq!(refused("folder", &folder), Some(libc::EISDIR));
        let pipe = open(&disk, &root, "pipe");
        assert_eq!(refused("pipe", &pipe), Some(libc::EINVAL));
        let file = open(&disk, &root, "file");
        for path in [".", "..", "folder/", "folder/.", "folder/.."] {
            assert_eq!(refused(path, &file), Some(libc::EISDIR), "{path}");
        }
        assert_eq!(refused("folder", &file), Some(libc::ESTALE));
        for name in ["folder", "pipe", "file"] {
            assert!(rig.path(name).exists(), "{name}");
        }
    }

    pub fn only_one_of_its_names(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        rig.write("file", 10);
        fs::hard_link(rig.path("file"), rig.path("other")).unwrap();
        let (file, _) = open_no_symlinks(&disk, &root, "file").unwrap();
        unlink(&disk, &root, "file", &file).unwrap();
        assert!(!rig.path("file").exists() && rig.path("other").exists());
    }

    pub fn a_single_file(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("only", 10);
        rig.write("other", 10);
        let root = Root::open(&path, Symlinks::Beneath).unwrap();
        let (file, _) = open_no_symlinks(&disk, &root, "only").unwrap();
        assert_eq!(
            errno(unlink(&disk, &root, "other", &file)),
            Some(libc::ENOENT)
        );
        unlink(&disk, &root, ".", &file).unwrap();
        assert!(!path.exists() && rig.path("other").exists());
    }

    pub fn opened_straight(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir(rig.path("folder")).unwrap();
        rig.write("folder/file", 100);
        symlink("folder/file", rig.path("to-file")).unwrap();
        symlink("folder", rig.path("to-folder")).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, rig.path("pipe"), pipe, mode, 0).unwrap();
        for symlinks in [Symlinks::Beneath, Symlinks::Follow] {
            let root = Root::open(rig.tree.path(), symlinks).unwrap();
            let refused = |path| errno(open_no_symlinks(&disk, &root, path));
            assert_eq!(refused("to-file"), Some(libc::ELOOP));
            assert_eq!(refused("to-folder/file"), Some(libc::ELOOP));
            assert_eq!(refused("folder"), Some(libc::EISDIR));
            assert_eq!(refused("pipe"), Some(libc::EINVAL));
            assert_eq!(refused("absent"), Some(libc::ENOENT));
            let (_, first) = open_no_symlinks(&disk, &root, "folder/file").unwrap();
            assert_eq!(bytes(&disk, first.unwrap()).unwrap(), pattern(0, 100));
            // `Fresh` prevents sharing, not links.
            let fresh = ask(&disk, look_up_op(&root, "to-folder/file", Lookup::Fresh));
            assert!(fresh.is_ok());
        }
        let null = Root::open(Path::new("/dev"), Symlinks::Beneath).unwrap();
        assert_eq!(
            errno(open_no_symlinks(&disk, &null, "null")),
            Some(libc::EINVAL)
        );
    }

    /// Two requests for one path have an open each, and neither joins an open of another kind.
    pub fn opened_by_each(rig: &Rig) {
        let disk = rig.narrow_disk();
        disk.set_open_age_max(DEADLINE);
        let root = rig.root();
        rig.write("file", 100);
        rig.write("other", 100);
        let other = open(&disk, &root, "other");
        settle(&disk);
        let held =
            (!disk.blocks_on_loop()).then(|| Held::new(&disk, read_op(&other, 0, 1), Class::First));
        let kinds = [
            Lookup::NoSymlinks,
            Lookup::NoSymlinks,
            Lookup::Fresh,
            Lookup::Fresh,
            Lookup::Shared,
        ];
        let opens = kinds.map(|lookup| {
            let op = look_up_op(&root, "file", lookup);
            submit(&disk, op, Class::First)
        });
        arrive(&disk);
        held.into_iter().for_each(Held::release);
        let files = opens.map(|waiting| waiting.result().unwrap().file);
        for (number, file) in files.iter().enumerate() {
            let mut others = files[..number].iter();
            assert!(others.all(|other| !Arc::ptr_eq(file, other)), "{number}");
        }
        assert_eq!(disk.stats().coalesced, 0);
    }

    /// A job that nobody waits for when it starts is not done, never half.
    pub fn given_up(rig: &Rig) {
        let disk = rig.disk();
        let root = rig.root();
        let mut answered = 0;
        for number in 0..100 {
            rig.write("file", 10);
            let (file, _) = open_no_symlinks(&disk, &root, "file").unwrap();
            let waiting = submit(&disk, unlink_op(&root, "file", &file), Class::Later);
            for _ in 0..number * 40 {
                std::hint::spin_loop();
            }
            waiting.give_up();
            let done = waiting.is_answered();
            assert_eq!(rig.path("file").exists(), !done);
            answered += u64::from(done);
        }
        settle(&disk);
        assert_eq!(answered + disk.stats().canceled, 100);
    }
}
