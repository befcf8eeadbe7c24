//! Reads past the page cache, and reads that fill it.

use crate::harness::for_every_engine;

for_every_engine![
    first_touch_leaves_nothing,
    second_touch_stays,
    never_means_never,
    small_files_stay,
    refused_by_the_file_system,
    after_eviction,
    an_open_passes_with_its_own_descriptor,
    late_readers_keep_their_bytes,
    bytes_outlive_the_disk,
];

mod cases {
    use std::collections::VecDeque;
    use std::fs::File;
    use std::sync::Arc;

    use levity_disk::{Budget, Class, Direct, Disk, OpenFile, Ready};

    use crate::harness::*;

    const LARGE: usize = 3 << 20;
    const CHUNK: usize = 256 << 10;

    /// Reads a file as the chunks of one response. Returns whether any read was direct.
    fn stream(disk: &Disk, file: &Arc<OpenFile>, stream: u64, direct: Direct) -> bool {
        let mut any = false;
        for offset in (0..file.meta().size).step_by(CHUNK) {
            let class = if offset == 0 {
                Class::First
            } else {
                Class::Later
            };
            let (mut job, waiting) = job(read_op(file, offset, CHUNK), class);
            job.stream = stream;
            job.options.direct = direct;
            disk.submit(job);
            let completion = waiting.completion();
            any |= completion.direct;
            let (ready, _) = completion.result.unwrap();
            assert!(is_pattern(&bytes(disk, ready).unwrap(), offset), "{offset}");
        }
        any
    }

    /// A file that is not in the page cache, unless that cannot be checked without blocking.
    fn cold(rig: &Rig, disk: &Disk, len: usize) -> Option<Arc<OpenFile>> {
        rig.write("large", len);
        rig.evict("large");
        let file = open(disk, &rig.root(), "large");
        let local = rig.root().file_system().nowait;
        (local && engine_reads(disk)).then_some(file)
    }

    /// Under `sendfile` the kernel reads when the file is sent.
    fn engine_reads(disk: &Disk) -> bool {
        disk.engine() != "sendfile"
    }

    fn is_cached(rig: &Rig, offset: usize) -> bool {
        let file = File::open(rig.path("large")).unwrap();
        cached_pages(&file)[offset / page_size()]
    }

    pub fn first_touch_leaves_nothing(rig: &Rig) {
        let disk = rig.disk();
        let Some(file) = cold(rig, &disk, LARGE) else {
            return;
        };
        assert!(stream(&disk, &file, 1, Direct::Auto));
        assert!(is_cached(rig, 0), "a first chunk is for everyone");
        assert!(!is_cached(rig, LARGE / 2));
    }

    pub fn second_touch_stays(rig: &Rig) {
        let disk = rig.disk();
        let Some(file) = cold(rig, &disk, LARGE) else {
            return;
        };
        assert!(stream(&disk, &file, 1, Direct::Auto));
        assert!(!stream(&disk, &file, 2, Direct::Auto));
        assert!(is_cached(rig, LARGE / 2) && is_cached(rig, LARGE - 1));
    }

    pub fn never_means_never(rig: &Rig) {
        let disk = rig.disk();
        let Some(file) = cold(rig, &disk, LARGE) else {
            return;
        };
        assert!(!stream(&disk, &file, 1, Direct::Never));
        assert!(is_cached(rig, LARGE / 2));
    }

    pub fn small_files_stay(rig: &Rig) {
        let disk = rig.disk();
        let Some(file) = cold(rig, &disk, (1 << 20) - 1) else {
            return;
        };
        assert!(!stream(&disk, &file, 1, Direct::Auto));
        assert!(is_cached(rig, 900_000));
    }

    /// procfs does not support `O_DIRECT`: its files are read through the page cache.
    pub fn refused_by_the_file_system(rig: &Rig) {
        let disk = rig.disk();
        let root = levity_disk::Root::open("/proc".as_ref(), levity_disk::Symlinks::Beneath);
        let file = open(&disk, &root.unwrap(), "version");
        let (mut job, waiting) = job(read_op(&file, 0, 4096), Class::Later);
        job.options.direct = Direct::Always;
        disk.submit(job);
        let completion = waiting.completion();
        assert!(!completion.direct);
        if engine_reads(&disk) {
            let (ready, _) = completion.result.unwrap();
            assert!(bytes(&disk, ready).unwrap().starts_with(b"Linux version"));
        }
    }

    /// A file that was evicted is read again through the page cache: it was accessed twice.
    pub fn after_eviction(rig: &Rig) {
        let disk = rig.disk();
        let Some(file) = cold(rig, &disk, LARGE) else {
            return;
        };
        stream(&disk, &file, 1, Direct::Auto);
        stream(&disk, &file, 2, Direct::Auto);
        rig.evict("large");
        assert!(!is_cached(rig, LARGE / 2));
        assert!(!stream(&disk, &file, 3, Direct::Auto));
        assert!(is_cached(rig, LARGE / 2));
    }

    /// The descriptor of the file reads past the page cache for the read of its open, and through it afterwards.
    pub fn an_open_passes_with_its_own_descriptor(rig: &Rig) {
        // The first page of some file is in memory since the root was opened.
        const LATER: usize = 12_300;
        let disk = rig.disk();
        // Also where the range begins and ends within a block.
        for (len, range) in [
            (70_001, (0, 70_001)),
            (20_000, (0, 20_000)),
            (70_001, (5, 60_000)),
        ] {
            if cold(rig, &disk, len).is_none() {
                return;
            }
            let op = open_op(&rig.root(), "large", Some(range));
            let (mut open, waiting) = job(op, Class::First);
            open.options.direct = Direct::Always;
            disk.submit(open);
            let completion = waiting.completion();
            if !completion.direct {
                return;
            }
            let opened = completion.result.unwrap();
            let found = bytes(&disk, opened.first.unwrap()).unwrap();
            assert!(found.len() == range.1 && is_pattern(&found, range.0));
            assert!(!is_cached(rig, LATER), "{len} {range:?}");
            let (mut read, waiting) = job(read_op(&opened.file, LATER as u64, 1000), Class::Later);
            read.options.direct = Direct::Never;
            disk.submit(read);
            let (ready, _) = waiting.result().unwrap();
            assert!(is_pattern(&bytes(&disk, ready).unwrap(), LATER as u64));
            assert!(is_cached(rig, LATER));
        }
    }

    fn read_past(disk: &Disk, file: &Arc<OpenFile>, offset: u64, len: usize) -> Ready {
        let (mut job, waiting) = job(read_op(file, offset, len), Class::Later);
        job.options.direct = Direct::Always;
        disk.submit(job);
        let (ready, _) = waiting.result().unwrap();
        ready
    }

    /// Memory is reused while other buffers are held, more than any engine keeps in reserve.
    pub fn late_readers_keep_their_bytes(rig: &Rig) {
        const LATE: usize = 12;
        let disk = rig.disk();
        rig.write("large", LARGE);
        let file = open(&disk, &rig.root(), "large");
        let mut late = VecDeque::new();
        let check = |(offset, len, ready): (u64, usize, Ready)| {
            let found = bytes(&disk, ready).unwrap();
            assert!(found.len() == len && is_pattern(&found, offset), "{offset}");
        };
        for round in 0..150 {
            let (offset, len) = (
                round * 10_007,
                [CHUNK, 70_001, 2 * CHUNK][round as usize % 3],
            );
            late.push_back((offset, len, read_past(&disk, &file, offset, len)));
            if late.len() > LATE {
                // Neither the first nor the last: memory is not freed in order.
                let place = round as usize * 5 % LATE;
                check(late.remove(place).unwrap());
            }
        }
        late.into_iter().for_each(check);
        all_memory_is_back(&disk);
    }

    /// Bytes can be sent after the engine has ended.
    pub fn bytes_outlive_the_disk(rig: &Rig) {
        let disk = rig.disk();
        rig.write("large", LARGE);
        let file = open(&disk, &rig.root(), "large");
        let read = |number: u64| read_past(&disk, &file, number * 100_003, CHUNK);
        let held: Vec<_> = (0..12).map(read).collect();
        disk.shutdown();
        drop(disk);
        let budget = Budget::new(1 << 20);
        for (number, ready) in (0..).zip(held) {
            let found = bytes_within(&budget, ready).unwrap();
            assert!(found.len() == CHUNK && is_pattern(&found, number * 100_003));
        }
    }
}
