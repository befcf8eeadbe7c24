//! Files that change while they are read.

use crate::harness::for_every_engine;

for_every_engine![
    truncated_between_reads,
    truncated_during_reads,
    truncated_during_opens,
    grown,
    renamed_over,
    rewritten_in_place,
    first_is_unstable_while_written,
    deleted,
];

mod cases {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use levity_disk::{Disk, Ready};

    use crate::harness::*;

    pub fn truncated_between_reads(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("file", 1 << 20);
        let file = open(&disk, &rig.root(), "file");
        assert_eq!(read(&disk, &file, 0, 65_536).len(), 65_536);
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_len(100_000).unwrap();
        assert_eq!(read(&disk, &file, 99_990, 65_536), pattern(99_990, 10));
        assert_eq!(read(&disk, &file, 500_000, 65_536), []);
        assert_eq!(stat(&disk, &file).size, 100_000);
        assert!(!stat(&disk, &file).same_version(&file.meta()));
    }

    /// At any moment a read returns content of the file, possibly less of it, and never the zeroes that the kernel
    /// puts in place of bytes that are cut off.
    pub fn truncated_during_reads(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        for _ in 0..4 {
            let path = without_zeroes(rig);
            let file = open(&disk, &root, "file");
            while_truncated(&path, || match try_read(&disk, &file, 0, FULL) {
                Ok(bytes) => assert!(!bytes.contains(&0)),
                // Handed over as a range of the file, which may have shrunk.
                Err(error) => assert!(is_shorter_by_now(&disk, &error)),
            });
        }
    }

    pub fn truncated_during_opens(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        for _ in 0..4 {
            let path = without_zeroes(rig);
            while_truncated(&path, || {
                let opened = try_open(&disk, &root, "file", Some((0, FULL))).unwrap();
                match bytes(&disk, opened.first.unwrap()) {
                    Ok(bytes) => assert!(!bytes.contains(&0)),
                    Err(error) => assert!(is_shorter_by_now(&disk, &error)),
                }
            });
        }
    }

    const FULL: usize = 256 * 1024;

    fn without_zeroes(rig: &Rig) -> PathBuf {
        let path = rig.path("file");
        fs::write(&path, vec![1; FULL]).unwrap();
        path
    }

    /// Calls `read` repeatedly while the file is truncated, never at the end of a page: the kernel then clears the
    /// rest of the page.
    fn while_truncated(path: &Path, mut read: impl FnMut()) {
        let writer = File::options().write(true).open(path).unwrap();
        std::thread::scope(|scope| {
            let truncating = scope.spawn(move || {
                for size in (1..FULL as u64).rev().step_by(61) {
                    writer.set_len(size).unwrap();
                }
            });
            while !truncating.is_finished() {
                read();
            }
        });
    }

    fn is_shorter_by_now(disk: &Disk, error: &std::io::Error) -> bool {
        hands_over_files(disk) && error.kind() == std::io::ErrorKind::UnexpectedEof
    }

    pub fn grown(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("file", 1000);
        let file = open(&disk, &rig.root(), "file");
        overwrite(&path, 1000, &pattern(1000, 5000));
        assert_eq!(read(&disk, &file, 0, 10_000), pattern(0, 6000));
        assert_eq!(file.meta().size, 1000);
    }

    pub fn renamed_over(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        rig.write("file", 5000);
        let old = open(&disk, &root, "file");
        fs::write(rig.path("new"), [7; 5000]).unwrap();
        fs::rename(rig.path("new"), rig.path("file")).unwrap();
        let new = open(&disk, &root, "file");
        assert_eq!(read(&disk, &old, 0, 5000), pattern(0, 5000));
        assert_eq!(read(&disk, &new, 0, 5000), [7; 5000]);
        assert!(!old.meta().same_version(&new.meta()));
        assert_eq!(stat(&disk, &old).links, 0);
    }

    pub fn rewritten_in_place(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let path = rig.write("file", 5000);
        let file = open(&disk, &root, "file");
        assert_eq!(read(&disk, &file, 0, 5000), pattern(0, 5000));
        // The clock of a file system may have ticks of 10 ms.
        until("the time of change differs", || {
            overwrite(&path, 0, &[9; 5000]);
            !stat(&disk, &file).same_version(&file.meta())
        });
        assert_eq!(read(&disk, &file, 0, 5000), [9; 5000]);
    }

    /// Some read of a growing file detects the change.
    pub fn first_is_unstable_while_written(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let path = rig.write("file", 4 << 20);
        let quiet = try_open(&disk, &root, "file", Some((0, 4 << 20))).unwrap();
        assert!(quiet.stable);
        if matches!(quiet.first, Some(Ready::PageCache { .. })) {
            assert!(hands_over_files(&disk));
            return;
        }
        drop(quiet);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = File::options().append(true).open(&path).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    writer.write_all(b"more").unwrap();
                }
            });
            let deadline = Instant::now() + DEADLINE;
            let mut seen = false;
            while !seen && Instant::now() < deadline {
                let opened = try_open(&disk, &root, "file", Some((0, 4 << 20))).unwrap();
                seen = !opened.stable;
            }
            stop.store(true, Ordering::Relaxed);
            assert!(seen);
        });
    }

    pub fn deleted(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("file", 50_000);
        let file = open(&disk, &rig.root(), "file");
        fs::remove_file(path).unwrap();
        assert_eq!(read(&disk, &file, 0, 50_000), pattern(0, 50_000));
    }
}
