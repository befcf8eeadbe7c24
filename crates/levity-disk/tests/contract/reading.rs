//! Reading: the right bytes, and as many as were asked for.

use crate::harness::for_every_engine;

for_every_engine![
    sizes,
    offsets,
    at_the_end,
    far_beyond_the_end,
    first_is_cut_at_the_end,
    first_is_all_of_a_file,
    first_is_not_all_where_memory_is_short,
    short_read,
    sparse_tail,
    ten_thousand,
    other_file_systems,
    times_are_reported,
];

mod cases {
    use std::fs::File;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use levity_disk::{Class, Completion, Disk, First, Kind, Reply, Root, Symlinks, op};

    use crate::harness::*;

    pub fn sizes(rig: &Rig) {
        let disk = rig.disk();
        let root = rig.root();
        for size in [0, 1, 4095, 4096, 4097, 100_001, 5 << 20] {
            let name = format!("of-{size}");
            rig.write(&name, size);
            let opened = try_open(&disk, &root, &name, Some((0, size.max(1)))).unwrap();
            assert_eq!(opened.file.meta().size, size as u64);
            assert!(opened.stable, "nobody writes");
            let first = bytes(&disk, opened.first.unwrap()).unwrap();
            assert!(first.len() == size && is_pattern(&first, 0), "{size}");
            let again = read(&disk, &opened.file, 0, size.max(1));
            assert!(again == first, "{size}");
        }
    }

    pub fn offsets(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 300_000);
        let file = open(&disk, &rig.root(), "file");
        for offset in [0, 1, 4095, 4096, 4097, 65_536, 123_457, 299_999] {
            for len in [1, 2, 4096, 100_001] {
                let expected = len.min(300_000 - offset as usize);
                let bytes = read(&disk, &file, offset, len);
                assert!(
                    bytes.len() == expected && is_pattern(&bytes, offset),
                    "{offset} + {len}"
                );
            }
        }
    }

    pub fn at_the_end(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 5000);
        let file = open(&disk, &rig.root(), "file");
        assert_eq!(read(&disk, &file, 4990, 100), pattern(4990, 10));
        assert_eq!(read(&disk, &file, 5000, 100), []);
        assert_eq!(read(&disk, &file, 5001, 100), []);
    }

    pub fn far_beyond_the_end(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 10);
        let file = open(&disk, &rig.root(), "file");
        assert_eq!(read(&disk, &file, 1 << 41, 4096), []);
        // Beyond any file: whether that is the end of the file or an error depends on the file system.
        if let Ok(bytes) = try_read(&disk, &file, u64::MAX - 5, 4096) {
            assert_eq!(bytes, []);
        }
        assert_eq!(read(&disk, &file, 0, 10), pattern(0, 10));
    }

    pub fn first_is_cut_at_the_end(rig: &Rig) {
        let disk = rig.disk();
        let root = rig.root();
        rig.write("file", 5000);
        for (offset, len, expected) in [(0, 1 << 20, 5000), (4000, 4096, 1000), (6000, 10, 0)] {
            let opened = try_open(&disk, &root, "file", Some((offset, len))).unwrap();
            let first = opened.first.unwrap();
            assert_eq!(first.len(), expected);
            assert!(is_pattern(&bytes(&disk, first).unwrap(), offset));
        }
        assert!(
            try_open(&disk, &root, "file", None)
                .unwrap()
                .first
                .is_none()
        );
    }

    pub fn first_is_all_of_a_file(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 300_001);
        let brought = |offset, len_max| {
            let first = First {
                offset,
                len: 4096,
                len_max,
            };
            let first = first_of(&disk, rig, first);
            assert!(is_pattern(&first, offset));
            first.len()
        };
        assert_eq!(brought(0, 300_000), 4096, "more than the most");
        assert_eq!(brought(0, 300_001), 300_001);
        assert_eq!(brought(100_001, 200_000), 200_000, "all of the rest");
        assert_eq!(brought(299_001, 0), 1000);
        assert_eq!(brought(300_001, usize::MAX), 0);
        all_memory_is_back(&disk);
    }

    pub fn first_is_not_all_where_memory_is_short(rig: &Rig) {
        let ample = 1 << 20;
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 4 * ample);
        rig.write("file", ample);
        let all = First {
            offset: 0,
            len: 4096,
            len_max: usize::MAX,
        };
        assert_eq!(first_of(&disk, rig, all).len(), ample);
        let page = disk.budget().buffer(1).unwrap();
        let start = first_of(&disk, rig, all);
        assert!(start.len() == 4096 && is_pattern(&start, 0));
        drop(page);
        all_memory_is_back(&disk);
    }

    fn first_of(disk: &Disk, rig: &Rig, first: First) -> Vec<u8> {
        let open = op::Open {
            first: Some(first),
            ..open_op(&rig.root(), "file", None)
        };
        let ready = ask(disk, open).unwrap().first;
        bytes(disk, ready.expect("bytes came along")).unwrap()
    }

    /// Half of the file is in the page cache: one read of a ring may end there.
    pub fn short_read(rig: &Rig) {
        let disk = rig.disk();
        let path = rig.write("file", 1 << 20);
        let on_disk = File::open(&path).unwrap();
        on_disk.sync_all().unwrap();
        let file = open(&disk, &rig.root(), "file");
        for _ in 0..8 {
            let all = rustix::fs::fadvise(&on_disk, 0, None, rustix::fs::Advice::DontNeed);
            all.unwrap();
            assert_eq!(read(&disk, &file, 0, 500_000).len(), 500_000);
            let bytes = read(&disk, &file, 1000, 1_000_000);
            assert!(bytes.len() == 1_000_000 && is_pattern(&bytes, 1000));
        }
    }

    pub fn sparse_tail(rig: &Rig) {
        const SIZE: u64 = 5 << 30;
        let disk = rig.disk();
        let path = rig.path("sparse");
        File::create(&path).unwrap().set_len(SIZE).unwrap();
        overwrite(&path, SIZE - 4097, &pattern(SIZE - 4097, 4097));
        let file = open(&disk, &rig.root(), "sparse");
        assert_eq!(file.meta().size, SIZE);
        let tail = read(&disk, &file, SIZE - 10_000, 20_000);
        assert_eq!(tail.len(), 10_000);
        let (hole, written) = tail.split_at(10_000 - 4097);
        assert!(hole.iter().all(|byte| *byte == 0));
        assert!(is_pattern(written, SIZE - 4097));
    }

    /// A reply that records its number.
    struct Numbered {
        number: usize,
        answers: mpsc::Sender<(usize, Completion)>,
        dropped: Arc<AtomicUsize>,
    }

    impl Reply for Numbered {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            self.answers.send((self.number, completion)).unwrap();
        }
    }

    impl Drop for Numbered {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every job is answered once, with the bytes that it asked for.
    pub fn ten_thousand(rig: &Rig) {
        const JOBS: usize = 10_000;
        let disk = rig.disk_with(|settings| settings.queue_max = JOBS);
        rig.write("file", 200_000);
        let file = open(&disk, &rig.root(), "file");
        let (answers, answered) = mpsc::channel();
        let dropped = Arc::new(AtomicUsize::new(0));
        for number in 0..JOBS {
            let reply = Box::new(Numbered {
                number,
                answers: answers.clone(),
                dropped: Arc::clone(&dropped),
            });
            let op = read_op(&file, number as u64 * 19, 1000);
            let class = if number % 2 == 0 {
                Class::Later
            } else {
                Class::First
            };
            disk.submit(job_for(op, class, reply));
        }
        drop(answers);
        let mut seen = vec![0; JOBS];
        for (number, completion) in answered {
            let (ready, _) = completion.of::<op::Read>().result.unwrap();
            let offset = number as u64 * 19;
            assert!(is_pattern(&bytes(&disk, ready).unwrap(), offset));
            seen[number] += 1;
        }
        assert!(seen.iter().all(|times| *times == 1));
        settle(&disk);
        assert_eq!(dropped.load(Ordering::Relaxed), JOBS);
        let stats = disk.stats();
        let [engine] = &stats.engines[..] else {
            panic!("more engines than one: {stats:?}");
        };
        assert_eq!(engine.reads_async + engine.reads_sync, JOBS as u64);
        assert_eq!(engine.bytes_read, JOBS as u64 * 1000);
        assert_eq!(engine.service_time.count(), JOBS as u64 + 1);
        all_memory_is_back(&disk);
    }

    /// File systems without `RWF_NOWAIT`: on a ring `O_NONBLOCK` would make reads fail with EAGAIN.
    pub fn other_file_systems(rig: &Rig) {
        let disk = rig.disk();
        let proc = Root::open(Path::new("/proc"), Symlinks::Beneath).unwrap();
        let file = open(&disk, &proc, "version");
        assert_eq!((file.meta().kind, file.meta().size), (Kind::Regular, 0));
        // A file of procfs has size 0, which `sendfile` honours.
        if !disk.blocks_on_loop() {
            assert!(read(&disk, &file, 0, 4096).starts_with(b"Linux"));
        }
        if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
            std::fs::write(memory.path().join("file"), pattern(0, 100_001)).unwrap();
            let root = Root::open(memory.path(), Symlinks::Beneath).unwrap();
            let opened = try_open(&disk, &root, "file", Some((0, 4096))).unwrap();
            assert!(is_pattern(&bytes(&disk, opened.first.unwrap()).unwrap(), 0));
            assert!(is_pattern(&read(&disk, &opened.file, 5, 100_000), 5));
        }
    }

    pub fn times_are_reported(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 10);
        let waiting = submit(&disk, open_op(&rig.root(), "file", None), Class::First);
        let completion = waiting.completion();
        let total = completion.queued + completion.service;
        assert!(completion.service.as_nanos() > 0 && total < DEADLINE);
        assert!(rig.engine.starts_with(disk.engine()));
    }
}
