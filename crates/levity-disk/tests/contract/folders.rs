//! Folders that are made and removed.

use crate::harness::for_every_engine;

for_every_engine![
    made_and_removed,
    taken_names,
    only_empty_ones,
    not_through_links,
];

mod cases {
    use std::ffi::CString;
    use std::fs;
    use std::io;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Arc;

    use levity_disk::{Disk, Root, check_writable, op};

    use crate::harness::*;

    fn make(disk: &Disk, root: &Arc<Root>, path: &str) -> io::Result<()> {
        let make = op::MakeFolder {
            root: root.clone(),
            path: CString::new(path).unwrap(),
            mode: 0o700,
        };
        ask(disk, make)
    }

    fn remove(disk: &Disk, root: &Arc<Root>, path: &str) -> io::Result<()> {
        let remove = op::RemoveFolder {
            root: root.clone(),
            path: CString::new(path).unwrap(),
        };
        ask(disk, remove)
    }

    pub fn made_and_removed(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        make(&disk, &root, "a").unwrap();
        make(&disk, &root, "a/b").unwrap();
        let meta = fs::metadata(rig.path("a/b")).unwrap();
        assert!(meta.is_dir());
        assert_eq!(meta.permissions().mode() & 0o777, 0o700);
        check_writable(&rig.path("a/b")).unwrap();
        remove(&disk, &root, "a/b").unwrap();
        remove(&disk, &root, "a").unwrap();
        assert!(!rig.path("a").exists());
        assert_eq!(errno(remove(&disk, &root, "a")), Some(libc::ENOENT));
        let error = check_writable(&rig.path("a")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    pub fn taken_names(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        rig.write("file", 1);
        for path in ["file", "folder"] {
            let _ = fs::create_dir(rig.path("folder"));
            assert_eq!(errno(make(&disk, &root, path)), Some(libc::EEXIST));
        }
        assert_eq!(errno(make(&disk, &root, "absent/a")), Some(libc::ENOENT));
        assert_eq!(errno(make(&disk, &root, "file/a")), Some(libc::ENOTDIR));
        assert_eq!(errno(make(&disk, &root, ".")), Some(libc::EISDIR));
        let long = "a".repeat(256);
        assert_eq!(errno(make(&disk, &root, &long)), Some(libc::ENAMETOOLONG));
    }

    pub fn only_empty_ones(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        fs::create_dir(rig.path("full")).unwrap();
        rig.write("full/file", 1);
        assert_eq!(errno(remove(&disk, &root, "full")), Some(libc::ENOTEMPTY));
        let of_file = remove(&disk, &root, "full/file");
        assert_eq!(errno(of_file), Some(libc::ENOTDIR));
        assert!(rig.path("full/file").exists());
    }

    pub fn not_through_links(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("empty")).unwrap();
        fs::create_dir(rig.path("inside")).unwrap();
        symlink(outside.path(), rig.path("out")).unwrap();
        symlink("inside", rig.path("link")).unwrap();
        assert_eq!(errno(make(&disk, &root, "out/a")), Some(libc::ELOOP));
        assert_eq!(errno(make(&disk, &root, "link/a")), Some(libc::ELOOP));
        assert_eq!(errno(make(&disk, &root, "../a")), Some(libc::EXDEV));
        assert_eq!(errno(remove(&disk, &root, "out/empty")), Some(libc::ELOOP));
        assert_eq!(errno(remove(&disk, &root, "link")), Some(libc::ENOTDIR));
        assert!(outside.path().join("empty").exists());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
