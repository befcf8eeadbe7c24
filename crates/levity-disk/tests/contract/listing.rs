//! Directories.

use crate::harness::for_every_engine;

for_every_engine![
    sorted_by_kind_and_name,
    links_by_the_rules,
    bounded,
    twice_at_once,
    not_one
];

mod cases {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use levity_disk::{Class, Done, Kind, Listing, Meta, Op};

    use crate::harness::*;

    fn names(listing: &Listing) -> Vec<&[u8]> {
        listing.entries().map(|entry| entry.name).collect()
    }

    fn meta(listing: &Listing, number: usize) -> Meta {
        listing.entries().nth(number).unwrap().meta.unwrap()
    }

    pub fn sorted_by_kind_and_name(rig: &Rig) {
        let disk = rig.disk();
        for name in ["b", "B", ".hidden", "a b", "ä"] {
            rig.write(name, 10);
        }
        fs::write(rig.tree.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        fs::create_dir(rig.path("z")).unwrap();
        fs::create_dir(rig.path("c")).unwrap();
        let listing = list(&disk, &open(&disk, &rig.root(), "."), 100).unwrap();
        let expected: [&[u8]; 8] = [
            b"c",
            b"z",
            b".hidden",
            b"B",
            b"a b",
            b"b",
            "ä".as_bytes(),
            b"\xff",
        ];
        assert_eq!(names(&listing), expected);
        assert!(!listing.truncated);
        assert_eq!(meta(&listing, 0).kind, Kind::Directory);
        assert_eq!(meta(&listing, 5).size, 10);
    }

    pub fn links_by_the_rules(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir_all(rig.path("a/b")).unwrap();
        rig.write("file", 77);
        symlink("../file", rig.path("a/inside")).unwrap();
        symlink("b", rig.path("a/to-directory")).unwrap();
        symlink("/etc/passwd", rig.path("a/outside")).unwrap();
        symlink("nowhere", rig.path("a/dangling")).unwrap();
        let listing = list(&disk, &open(&disk, &rig.root(), "a"), 100).unwrap();
        let listed: Vec<_> = listing
            .entries()
            .map(|entry| (entry.name, entry.kind))
            .collect();
        let expected: [(&[u8], Kind); 5] = [
            (b"b", Kind::Directory),
            (b"to-directory", Kind::Directory),
            (b"dangling", Kind::Other),
            (b"inside", Kind::Regular),
            (b"outside", Kind::Other),
        ];
        assert_eq!(listed, expected);
        assert_eq!(meta(&listing, 3).size, 77);
    }

    pub fn bounded(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..50 {
            rig.write(&format!("file-{number}"), 0);
        }
        let directory = open(&disk, &rig.root(), ".");
        for (entries_max, truncated) in [(0, true), (49, true), (50, false), (51, false)] {
            let listing = list(&disk, &directory, entries_max).unwrap();
            assert_eq!(listing.entries().len(), entries_max.min(50));
            assert_eq!(listing.truncated, truncated, "{entries_max}");
        }
    }

    /// The read position belongs to the open file description, which both share.
    pub fn twice_at_once(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..1000 {
            rig.write(&format!("file-{number}"), 0);
        }
        let directory = open(&disk, &rig.root(), ".");
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let op = Op::List {
                    directory: Arc::clone(&directory),
                    entries_max: 2000,
                };
                submit(&disk, op, Class::First)
            })
            .collect();
        for waiting in waiting {
            let Done::Listed(listing) = waiting.result().unwrap() else {
                panic!("not a listing");
            };
            assert_eq!(listing.entries().len(), 1000);
        }
    }

    pub fn not_one(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 10);
        let error = list(&disk, &open(&disk, &rig.root(), "file"), 10).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }
}
