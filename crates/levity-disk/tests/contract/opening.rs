//! What may be opened, and what is told about it.

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
];

mod cases {
    use std::fs::{self, File};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use levity_disk::open::left_root;
    use levity_disk::{Disk, Kind, Root, Symlinks};

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
        assert_eq!(
            opened.file.refresh().unwrap().inode,
            opened.file.meta().inode
        );
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

    /// A file that may not be read, for root neither.
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

    /// A writer that must be asked to give way would make even an open wait, for up to 45 s.
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
}
