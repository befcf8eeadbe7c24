//! Opening files, and the metadata of what was opened.

use crate::harness::for_every_engine;

for_every_engine![
    missing,
    directory,
    link_inside,
    link_leaving,
    path_leaving,
    named_pipe,
    unix_socket,
    device_node,
    permission_denied,
    single_file,
    write_lease,
    variants,
    variants_of_nothing,
    variants_out_of_reach,
    a_root_that_stays,
    a_root_that_changes,
];

mod cases {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use levity_disk::left_root;
    use levity_disk::{Disk, Kind, Lookup, OpenFile, Root, Symlinks, Variants, op};

    use crate::harness::*;

    fn errno(disk: &Disk, root: &Arc<Root>, path: &str) -> Option<i32> {
        let result = try_open(disk, root, path, Some((0, 100)));
        result.err().and_then(|error| error.raw_os_error())
    }

    pub fn missing(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        assert_eq!(errno(&disk, &root, "absent"), Some(libc::ENOENT));
        rig.write("file", 1);
        assert_eq!(errno(&disk, &root, "file/below"), Some(libc::ENOTDIR));
        assert_eq!(disk.stats().errors, 2);
    }

    pub fn directory(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("directory")).unwrap();
        for path in [".", "directory", "directory/"] {
            let opened = try_open(&disk, &root, path, Some((0, 100))).unwrap();
            assert_eq!(opened.file.meta().kind, Kind::Directory);
            assert!(opened.first.is_none() && opened.stable);
        }
    }

    pub fn link_inside(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("a")).unwrap();
        rig.write("file", 100);
        symlink("../file", rig.path("a/link")).unwrap();
        let opened = try_open(&disk, &root, "a/link", Some((0, 100))).unwrap();
        assert_eq!(opened.file.meta().kind, Kind::Regular);
        assert_eq!(
            bytes(&disk, opened.first.unwrap()).unwrap(),
            pattern(0, 100)
        );
    }

    pub fn link_leaving(rig: &Rig) {
        let disk = rig.disk();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), pattern(0, 50)).unwrap();
        let name = outside.path().file_name().unwrap();
        let up = Path::new("..").join(name).join("secret");
        symlink(outside.path().join("secret"), rig.path("absolute")).unwrap();
        symlink(up, rig.path("relative")).unwrap();
        symlink(outside.path(), rig.path("directory")).unwrap();
        let (beneath, follow) = (
            rig.root(),
            Root::open(rig.tree.path(), Symlinks::Follow).unwrap(),
        );
        for path in ["absolute", "relative", "directory/secret"] {
            let refused = try_open(&disk, &beneath, path, None).err().unwrap();
            assert!(left_root(&refused), "{path}: {refused}");
            let opened = try_open(&disk, &follow, path, Some((0, 50))).unwrap();
            assert_eq!(bytes(&disk, opened.first.unwrap()).unwrap(), pattern(0, 50));
        }
    }

    pub fn path_leaving(rig: &Rig) {
        let disk = rig.disk();
        for symlinks in [Symlinks::Beneath, Symlinks::Follow] {
            let root = Root::open(rig.tree.path(), symlinks).unwrap();
            for path in ["..", "../..", "/etc/passwd", "/"] {
                let refused = try_open(&disk, &root, path, None).err().unwrap();
                assert!(left_root(&refused), "{path}: {refused}");
            }
        }
    }

    fn is_other(disk: &Disk, root: &Arc<Root>, path: &str) {
        let opened = try_open(disk, root, path, Some((0, 100))).unwrap();
        assert_eq!(opened.file.meta().kind, Kind::Other);
        assert!(opened.first.is_none());
        let inode = std::fs::metadata(root.path().join(path)).unwrap().ino();
        assert_eq!(opened.file.meta().inode, inode);
        if !disk.blocks_on_loop() {
            let error = try_read(disk, &opened.file, 0, 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
    }

    pub fn named_pipe(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let mode = rustix::fs::Mode::RUSR;
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, rig.path("pipe"), pipe, mode, 0).unwrap();
        is_other(&disk, &root, "pipe");
    }

    pub fn unix_socket(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let _listener = UnixListener::bind(rig.path("socket")).unwrap();
        is_other(&disk, &root, "socket");
    }

    pub fn device_node(rig: &Rig) {
        let disk = rig.disk();
        let root = Root::open(Path::new("/dev"), Symlinks::Beneath).unwrap();
        is_other(&disk, &root, "null");
        is_other(&disk, &root, "zero");
    }

    /// A file that not even root may read.
    pub fn permission_denied(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("file", 10);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
        let path = match File::open(&path) {
            Err(_) => path,
            Ok(_) => PathBuf::from("/proc/sys/vm/compact_memory"),
        };
        let root = Root::open(path.parent().unwrap(), Symlinks::Beneath).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(errno(&disk, &root, name), Some(libc::EACCES));
    }

    pub fn single_file(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("only", 100);
        rig.write("other", 100);
        let root = Root::open(&path, Symlinks::Beneath).unwrap();
        assert_eq!(root.single(), Some(c"only"));
        for path in ["only", "."] {
            let opened = try_open(&disk, &root, path, Some((0, 100))).unwrap();
            assert_eq!(
                bytes(&disk, opened.first.unwrap()).unwrap(),
                pattern(0, 100)
            );
        }
        assert_eq!(errno(&disk, &root, "other"), Some(libc::ENOENT));
    }

    /// A write lease makes an open wait for its holder, for up to 45 s.
    pub fn write_lease(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let path = rig.write("leased", 10);
        let writer = File::options().write(true).open(&path).unwrap();
        if let Err(error) = take_lease(&writer) {
            eprintln!("no leases here: {error}");
            return;
        }
        assert_eq!(errno(&disk, &root, "leased"), Some(libc::EBUSY));
        drop(writer);
        assert_eq!(open(&disk, &root, "leased").meta().size, 10);
    }

    /// `linux/fcntl.h`
    const F_SETSIG: i32 = 10;

    fn take_lease(file: &File) -> io::Result<()> {
        // SAFETY: no memory is passed. The signal that asks for the lease back is one that is ignored
        // unless someone asks for it.
        let result = unsafe {
            libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The outcome of an open with variants: the file, the variants that exist, and the first bytes.
    struct WithVariants {
        file: Arc<OpenFile>,
        variants: Vec<Option<Arc<OpenFile>>>,
        first: Option<Vec<u8>>,
    }

    fn open_with(
        disk: &Disk,
        root: &Arc<Root>,
        paths: &[&str],
        preferred: usize,
        first: Option<(u64, usize)>,
    ) -> io::Result<WithVariants> {
        let paths = paths.iter().map(|path| CString::new(*path).unwrap());
        let open = op::Open {
            root: Arc::clone(root),
            path: CString::new("file").unwrap(),
            first: first.map(exactly),
            variants: Box::new(Variants {
                paths: paths.collect(),
                preferred,
            }),
            lookup: Lookup::Shared,
        };
        let opened = ask(disk, open)?;
        assert!(opened.stable);
        let first = opened.first.map(|ready| bytes(disk, ready).unwrap());
        Ok(WithVariants {
            file: opened.file,
            variants: opened.variants,
            first,
        })
    }

    /// A file last modified this many seconds after 2001.
    fn dated(rig: &Rig, name: &str, content: &str, seconds: u64) {
        let path = rig.path(name);
        fs::write(&path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }

    pub fn variants(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        dated(rig, "file", "itself", 100);
        dated(rig, "file.same", "as old", 100);
        dated(rig, "file.new", "newer", 101);
        dated(rig, "file.old", "older", 99);
        let names = ["file.absent", "file.old", "file.new", "file.same"];
        for (preferred, content) in [(0, "itself"), (2, "itself"), (3, "newer"), (4, "newer")] {
            let got = open_with(&disk, &root, &names, preferred, Some((0, 100))).unwrap();
            assert_eq!(
                got.first.as_deref(),
                Some(content.as_bytes()),
                "{preferred}"
            );
            assert_eq!(got.file.meta().size, "itself".len() as u64);
            let there: Vec<_> = got.variants.iter().map(Option::is_some).collect();
            assert_eq!(there, [false, false, true, true]);
            let newer = got.variants[2].as_ref().unwrap();
            assert_eq!(newer.meta().size, "newer".len() as u64);
        }
        let got = open_with(&disk, &root, &names, 4, None).unwrap();
        assert!(got.first.is_none() && got.variants[3].is_some());
        let got = open_with(&disk, &root, &names[3..], 1, Some((3, 100))).unwrap();
        assert_eq!(got.first.as_deref(), Some(&b"old"[..]));
        let opens: u64 = disk.stats().engines.iter().map(|engine| engine.opens).sum();
        assert_eq!(opens, 6, "a variant is no open of its own");
    }

    /// Variants without the file are not found, and a directory has none.
    pub fn variants_of_nothing(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        dated(rig, "file.gz", "alone", 100);
        let error = open_with(&disk, &root, &["file.gz"], 1, Some((0, 9)))
            .err()
            .unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        fs::create_dir(rig.path("file")).unwrap();
        let got = open_with(&disk, &root, &["file.gz"], 1, Some((0, 9))).unwrap();
        assert_eq!(got.file.meta().kind, Kind::Directory);
        assert!(got.first.is_none() && got.variants[0].is_none());
    }

    /// Anything but a file, a path that leaves the root, and a name that is too long are not accepted as variants.
    pub fn variants_out_of_reach(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        dated(rig, "file", "itself", 100);
        fs::create_dir(rig.path("file.directory")).unwrap();
        symlink("/etc/passwd", rig.path("file.leaving")).unwrap();
        symlink("file.loop", rig.path("file.loop")).unwrap();
        let long = "x".repeat(300);
        let names = [
            "file.directory",
            "file.leaving",
            "file.loop",
            &long,
            "file/below",
        ];
        let got = open_with(&disk, &root, &names, 5, Some((0, 100))).unwrap();
        assert!(got.variants.iter().all(Option::is_none));
        assert_eq!(got.first.as_deref(), Some(&b"itself"[..]));
    }

    fn look(disk: &Disk, root: &Arc<Root>) -> io::Result<Option<Arc<Root>>> {
        let root = Arc::clone(root);
        ask(disk, op::CheckRoot { root })
    }

    pub fn a_root_that_stays(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir(rig.path("one")).unwrap();
        symlink("one", rig.path("link")).unwrap();
        rig.write("file", 10);
        for name in ["one", "link", "file"] {
            let root = Root::open(&rig.path(name), Symlinks::Beneath).unwrap();
            assert!(look(&disk, &root).unwrap().is_none());
            rig.write("one/new", 10);
            assert!(look(&disk, &root).unwrap().is_none());
        }
    }

    pub fn a_root_that_changes(rig: &Rig) {
        let disk = rig.disk();
        for name in ["one", "two", "three"] {
            fs::create_dir(rig.path(name)).unwrap();
            rig.write(&format!("{name}/{name}"), 10);
        }
        symlink("one", rig.path("link")).unwrap();
        let one = Root::open(&rig.path("link"), Symlinks::Beneath).unwrap();
        symlink("two", rig.path("new")).unwrap();
        fs::rename(rig.path("new"), rig.path("link")).unwrap();
        let two = look(&disk, &one).unwrap().unwrap();
        assert_eq!(two.named(), rig.path("link"));
        assert_eq!(two.path().file_name().unwrap(), "two");
        assert!(try_open(&disk, &two, "two", None).is_ok());
        assert!(try_open(&disk, &one, "one", None).is_ok());

        fs::remove_dir_all(rig.path("two")).unwrap();
        let gone = look(&disk, &two).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
        fs::create_dir(rig.path("two")).unwrap();
        let again = look(&disk, &two).unwrap().unwrap();
        fs::rename(rig.path("two"), rig.path("four")).unwrap();
        fs::rename(rig.path("three"), rig.path("two")).unwrap();
        let three = look(&disk, &again).unwrap().unwrap();
        assert!(try_open(&disk, &three, "three", None).is_ok());

        fs::remove_dir_all(rig.path("two")).unwrap();
        rig.write("two", 10);
        let file = look(&disk, &three).unwrap_err();
        assert_eq!(file.raw_os_error(), Some(libc::ENOTDIR));
    }
}
