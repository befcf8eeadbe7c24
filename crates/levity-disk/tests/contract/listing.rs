//! Directories.

use crate::harness::for_every_engine;

for_every_engine![
    every_name_with_its_metadata,
    links_by_the_rules,
    in_pieces,
    of_long_names,
    twice_at_once,
    removed_meanwhile,
    not_one
];

mod cases {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::Arc;

    use levity_disk::{Class, DirectoryReader, EntryStat, Kind, Listing, op};

    use crate::harness::*;

    /// Name, kind and size of the entries, by name.
    fn sorted(pieces: &[Listing]) -> Vec<(&[u8], Kind, Option<u64>)> {
        let entries = pieces.iter().flat_map(Listing::entries);
        let mut listed: Vec<_> = entries
            .map(|entry| (entry.name, entry.kind, entry.stat.map(|stat| stat.size)))
            .collect();
        listed.sort_by_key(|(name, ..)| *name);
        listed
    }

    pub fn every_name_with_its_metadata(rig: &Rig) {
        let disk = rig.disk();
        for name in ["b", "B", ".hidden", "a b", "ä"] {
            rig.write(name, 10);
        }
        fs::write(rig.tree.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        fs::create_dir(rig.path("z")).unwrap();
        let pieces = list(&disk, &open(&disk, &rig.root(), ".")).unwrap();
        let folder = fs::metadata(rig.path("z")).unwrap();
        let expected: [(&[u8], Kind, Option<u64>); 7] = [
            (b".hidden", Kind::Regular, Some(10)),
            (b"B", Kind::Regular, Some(10)),
            (b"a b", Kind::Regular, Some(10)),
            (b"b", Kind::Regular, Some(10)),
            (b"z", Kind::Directory, Some(folder.size())),
            ("ä".as_bytes(), Kind::Regular, Some(10)),
            (b"\xff", Kind::Regular, Some(0)),
        ];
        assert_eq!(sorted(&pieces), expected);
        // A directory that fits into one read needs no second trip to find its end.
        assert_eq!(pieces.len(), 1);
        let found = pieces[0].entries().find(|entry| entry.name == b"z");
        let stat = EntryStat {
            size: folder.size(),
            mtime_s: folder.mtime(),
        };
        assert_eq!(found.unwrap().stat, Some(stat));
    }

    pub fn links_by_the_rules(rig: &Rig) {
        let disk = rig.disk();
        fs::create_dir_all(rig.path("a/b")).unwrap();
        rig.write("file", 77);
        symlink("../file", rig.path("a/inside")).unwrap();
        symlink("b", rig.path("a/to-directory")).unwrap();
        symlink("/etc/passwd", rig.path("a/outside")).unwrap();
        symlink("nowhere", rig.path("a/dangling")).unwrap();
        let pieces = list(&disk, &open(&disk, &rig.root(), "a")).unwrap();
        let listed: Vec<_> = sorted(&pieces)
            .into_iter()
            .map(|(name, kind, _)| (name, kind))
            .collect();
        let expected: [(&[u8], Kind); 5] = [
            (b"b", Kind::Directory),
            (b"dangling", Kind::Other),
            (b"inside", Kind::Regular),
            (b"outside", Kind::Other),
            (b"to-directory", Kind::Directory),
        ];
        assert_eq!(listed, expected);
        assert_eq!(sorted(&pieces)[2].2, Some(77));
        let links = pieces
            .iter()
            .flat_map(Listing::entries)
            .filter(|entry| entry.is_link);
        assert_eq!(links.count(), 4);
    }

    pub fn in_pieces(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..3000 {
            rig.write(&format!("file-{number:04}"), 0);
        }
        let pieces = list(&disk, &open(&disk, &rig.root(), ".")).unwrap();
        let names: Vec<_> = sorted(&pieces)
            .iter()
            .map(|(name, ..)| String::from_utf8(name.to_vec()).unwrap())
            .collect();
        let expected: Vec<_> = (0..3000)
            .map(|number| format!("file-{number:04}"))
            .collect();
        assert_eq!(names, expected);
        let (_, others) = pieces.split_last().unwrap();
        assert!(!others.is_empty());
        for piece in others {
            // 32 KiB of names of at least 24 bytes, after fewer than 512 from the reads before.
            let entries = 512..=512 + 32 * 1024 / 24;
            assert!(
                !piece.is_last && entries.contains(&piece.len()),
                "{}",
                piece.len()
            );
            // The names, and 24 bytes for each.
            assert_eq!(piece.bytes(), piece.len() * (9 + 24));
        }
    }

    /// A piece of long names has fewer: it is in memory.
    pub fn of_long_names(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..600 {
            rig.write(&format!("{}-{number}", "x".repeat(240)), 0);
        }
        let pieces = list(&disk, &open(&disk, &rig.root(), ".")).unwrap();
        assert_eq!(pieces.iter().map(Listing::len).sum::<usize>(), 600);
        for piece in pieces {
            assert!(piece.bytes() < (16 + 32) * 1024, "{}", piece.bytes());
        }
    }

    /// Each reader has a position of its own.
    pub fn twice_at_once(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..500 {
            rig.write(&format!("file-{number}"), 0);
        }
        let directory = open(&disk, &rig.root(), ".");
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let reader = DirectoryReader::new(Arc::clone(&directory));
                let into = Listing::default().into();
                submit(&disk, op::List { reader, into }, Class::First)
            })
            .collect();
        for waiting in waiting {
            let listing = waiting.result().unwrap();
            assert!(listing.is_last);
            assert_eq!(listing.len(), 500);
        }
    }

    pub fn removed_meanwhile(rig: &Rig) {
        let disk = rig.disk();
        for number in 0..3000 {
            rig.write(&format!("file-{number:04}"), 0);
        }
        let reader = DirectoryReader::new(open(&disk, &rig.root(), "."));
        let mut names = Vec::new();
        loop {
            let piece = next_piece(&disk, &reader).unwrap();
            names.extend(piece.entries().map(|entry| entry.name.to_vec()));
            if piece.is_last {
                break;
            }
            for entry in fs::read_dir(rig.tree.path()).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
        let found = names.len();
        names.sort();
        names.dedup();
        assert!(
            found == names.len() && (512..3000).contains(&found),
            "{found}"
        );
    }

    pub fn not_one(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 10);
        let error = list(&disk, &open(&disk, &rig.root(), "file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }
}
