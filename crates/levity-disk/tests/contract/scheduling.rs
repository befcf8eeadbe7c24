//! Queues, slots and memory.

use crate::harness::for_every_engine;

for_every_engine![
    queue_is_bounded,
    later_chunks_are_not_starved,
    memory_is_bounded,
    memory_goes_to_the_first_in_line,
    too_large_for_ever,
    room_is_reported,
];

mod cases {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use levity_disk::is_full;
    use levity_disk::{Class, Completion, Reply, Root, Symlinks};

    use crate::harness::*;

    pub fn queue_is_bounded(rig: &Rig) {
        let disk = rig.disk_with(|settings| {
            settings.depth = Some(1);
            settings.queue_max = 3;
        });
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            let all = (0..10).map(|n| read(&disk, &file, n, 10));
            assert_eq!(all.count(), 10, "nothing is queued, so nothing is full");
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 100), Class::First);
        let classes = [Class::First, Class::Later, Class::First];
        let queued = [0, 1, 2].map(|n| submit(&disk, read_op(&file, n, 50), classes[n as usize]));
        for class in [Class::First, Class::Later] {
            let full = submit(&disk, read_op(&file, 77, 5), class);
            assert!(is_full(&full.result().unwrap_err()));
        }
        let stats = disk.stats();
        assert_eq!((stats.full, stats.devices[0].queued), (2, 3));
        assert_eq!((stats.devices[0].in_flight, stats.devices[0].depth), (1, 1));
        let oldest = stats.devices[0].oldest.expect("one in flight");
        let later = disk.stats().devices[0].oldest.expect("the same one");
        assert!(later > oldest);
        held.release();
        assert!(queued.iter().all(|waiting| waiting.result().is_ok()));
        assert_eq!(read(&disk, &file, 7, 5), pattern(7, 5));
        settle(&disk);
        let device = &disk.stats().devices[0];
        assert_eq!((device.oldest, device.bytes_read), (None, 100 + 3 * 50 + 5));
        // The open was one more.
        assert_eq!(device.service_time.count(), 6);
    }

    /// A reply that records its name.
    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Reply for Named {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, _: Completion) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    pub fn later_chunks_are_not_starved(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        let order = Arc::new(Mutex::new(Vec::new()));
        let next_offset = Cell::new(0);
        let add = |name, class| {
            let reply = Box::new(Named(name, Arc::clone(&order)));
            let op = read_op(&file, next_offset.get(), 10);
            next_offset.set(next_offset.get() + 1);
            disk.submit(job_for(op, class, reply));
        };
        if disk.blocks_on_loop() {
            add("first", Class::First);
            add("next", Class::Later);
            assert_eq!(*order.lock().unwrap(), ["first", "next"]);
            return;
        }
        // The count restarts after a later chunk.
        let held = Held::new(&disk, read_op(&file, 0, 100), Class::Later);
        (0..3).for_each(|_| add("next", Class::Later));
        (0..7).for_each(|_| add("first", Class::First));
        arrive(&disk);
        held.release();
        settle(&disk);
        assert_eq!(
            *order.lock().unwrap(),
            [
                "first", "first", "first", "next", "first", "first", "first", "next", "first",
                "next"
            ]
        );
    }

    pub fn memory_is_bounded(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 1 << 20);
        rig.write("file", 100_000);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        let all = disk.budget().buffer(1 << 20).unwrap();
        let first = submit(&disk, read_op(&file, 0, 100), Class::First);
        if disk.blocks_on_loop() {
            assert!(first.result().is_ok(), "it needs none");
            return;
        }
        let refused = first.result().unwrap_err();
        assert!(is_full(&refused), "it would have to wait");
        assert_eq!(disk.stats().full, 1);
        let next = submit(&disk, read_op(&file, 0, 100), Class::Later);
        let behind = submit(&disk, read_op(&file, 50, 100), Class::First);
        arrive(&disk);
        assert!(next.is_silent() && behind.is_silent());
        drop(all);
        assert!(next.result().is_ok() && behind.result().is_ok());
        settle(&disk);
        all_memory_is_back(&disk);
    }

    /// Small reads on another device do not take the memory that a large one waits for. A job that needs no memory
    /// does not wait for it, unless it is queued behind such a job on its own device.
    pub fn memory_goes_to_the_first_in_line(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 1 << 20);
        rig.write("file", 100_000);
        let file = open(&disk, &rig.root(), "file");
        let proc = Root::open(Path::new("/proc"), Symlinks::Beneath).unwrap();
        let other = open(&disk, &proc, "version");
        settle(&disk);
        let half = disk.budget().buffer(1 << 19).unwrap();
        let rest = disk.budget().buffer(1 << 19).unwrap();
        let large = submit(&disk, read_op(&file, 0, 1 << 20), Class::Later);
        let small = submit(&disk, read_op(&other, 0, 100), Class::Later);
        if disk.blocks_on_loop() {
            assert!(large.is_answered() && small.is_answered());
            return;
        }
        open(&disk, &proc, "version");
        drop(half);
        // The scheduler looks at memory before each job: before the second of these at the latest.
        open(&disk, &proc, "version");
        open(&disk, &proc, "version");
        assert!(large.is_silent() && small.is_silent());
        let queued: usize = disk.stats().devices.iter().map(|d| d.queued).sum();
        assert_eq!(queued, 2);
        drop(rest);
        assert!(large.is_answered() && small.is_answered());
        settle(&disk);
        all_memory_is_back(&disk);
    }

    pub fn too_large_for_ever(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 1 << 20);
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        let result = try_read(&disk, &file, 0, (1 << 20) + 1);
        let kind = result.unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::InvalidInput);
    }

    pub fn room_is_reported(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 100);
        let device = rig.root().device();
        assert!(disk.has_room(device), "before the first job");
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        assert!(disk.has_room(device));
        if disk.blocks_on_loop() {
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 100), Class::First);
        assert!(!disk.has_room(device));
        held.release();
        settle(&disk);
        assert!(disk.has_room(device));
    }

    mod simulation {
        use levity_disk::engine::simulated::thaw;

        use super::*;

        /// A frozen device keeps only its own slots.
        #[test]
        fn a_frozen_device_leaves_threads_to_others() {
            let rig = Rig::new("simulated:freeze=iceberg");
            let disk = rig.disk_with(|settings| {
                settings.threads = Some(6);
                settings.stat_threads = Some(1);
                settings.depth = Some(4);
            });
            (0..10).for_each(|n| drop(rig.write(&format!("iceberg{n}"), 100)));
            let root = rig.root();
            let frozen: Vec<_> = (0..10)
                .map(|n| {
                    let op = open_op(&root, &format!("iceberg{n}"), Some((0, 100)));
                    submit(&disk, op, Class::First)
                })
                .collect();
            let proc = Root::open(Path::new("/proc"), Symlinks::Beneath).unwrap();
            for _ in 0..20 {
                let file = open(&disk, &proc, "version");
                assert!(read(&disk, &file, 0, 4096).starts_with(b"Linux"));
            }
            let devices = disk.stats().devices;
            let stuck = devices.iter().find(|d| d.device == root.device()).unwrap();
            assert_eq!((stuck.in_flight, stuck.queued), (4, 6));
            assert!(stuck.oldest.is_some());
            assert!(!disk.has_room(root.device()));
            assert!(frozen.iter().all(|waiting| waiting.is_silent()));
            thaw("iceberg");
            assert!(frozen.iter().all(|waiting| waiting.is_answered()));
        }

        #[test]
        fn shutdown_answers_frozen_jobs() {
            let rig = Rig::new("simulated:freeze=glacier");
            let disk = rig.narrow_disk();
            fs::write(rig.path("glacier"), "ice").unwrap();
            let root = rig.root();
            let jobs =
                [(); 3].map(|()| submit(&disk, open_op(&root, "glacier", None), Class::First));
            assert!(jobs.iter().all(|waiting| waiting.is_silent()));
            disk.shutdown();
            for waiting in jobs {
                let error = waiting.result().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            }
        }

        /// A started job is not interrupted: its completion goes to nobody.
        #[test]
        fn giving_up_a_read_in_progress_frees_its_memory() {
            let rig = Rig::new("simulated:freeze=floe");
            let disk = rig.disk();
            rig.write("floe", 100);
            let file = rig.root().open_cached(c"floe");
            let file = file.unwrap_or_else(|_| panic!("just written, so in memory"));
            let waiting = submit(&disk, read_op(&file, 0, 100), Class::First);
            until("the job has its slot", || {
                disk.stats().devices.iter().any(|d| d.in_flight == 1)
            });
            assert_eq!(disk.budget().in_use(), 4096);
            waiting.give_up();
            thaw("floe");
            waiting.is_answered();
            settle(&disk);
            all_memory_is_back(&disk);
        }

        #[test]
        fn an_unreadable_byte_is_an_error() {
            let rig = Rig::new("simulated:eio_at=70000");
            let disk = rig.disk();
            rig.write("file", 100_000);
            let root = rig.root();
            let opened = try_open(&disk, &root, "file", Some((0, 65_536))).unwrap();
            assert_eq!(opened.first.unwrap().len(), 65_536);
            for (offset, len) in [(0, 70_001), (70_000, 1), (65_536, 65_536)] {
                let error = try_read(&disk, &opened.file, offset, len).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
            }
            assert!(try_open(&disk, &root, "file", Some((0, 100_000))).is_err());
            assert_eq!(read(&disk, &opened.file, 0, 70_000), pattern(0, 70_000));
            assert_eq!(read(&disk, &opened.file, 70_001, 10), pattern(70_001, 10));
            settle(&disk);
            all_memory_is_back(&disk);
        }
    }
}

mod starting {
    use levity_disk::{Disk, Settings, StartError};

    fn start(set: impl FnOnce(&mut Settings)) -> Result<&'static str, StartError> {
        let mut settings = Settings::default();
        set(&mut settings);
        Disk::start(settings).map(|disk| disk.engine())
    }

    fn error(set: impl FnOnce(&mut Settings)) -> String {
        start(set).unwrap_err().to_string()
    }

    #[test]
    fn auto_says_why() {
        let disk = Disk::start(Settings::default()).unwrap();
        assert_eq!(disk.engine(), "threads");
        assert!(disk.reason().contains("io_uring"), "{disk:?}");
    }

    #[test]
    fn an_unknown_name_lists_the_names() {
        for name in ["tape", "threads:fast"] {
            let error = error(|settings| settings.engine = name.to_owned());
            assert!(error.contains(&format!("\"{name}\"")), "{error}");
            let names = "auto, threads, io_uring, linux-aio, readahead, posix-aio, sendfile";
            assert!(error.ends_with(names), "{error}");
        }
    }

    #[test]
    fn faults_that_make_no_sense_are_refused() {
        let error = error(|settings| settings.engine = "simulated:seed=x".to_owned());
        assert!(error.contains("seed must be a whole number"), "{error}");
    }

    #[test]
    fn threads_must_outnumber_one_frozen_device() {
        let error = error(|settings| {
            settings.threads = Some(8);
            settings.stat_threads = Some(2);
            settings.depth = Some(6);
        });
        assert!(error.contains("must be more than depth (6)"), "{error}");
        assert!(start(|settings| settings.threads = Some(1)).is_err());
        assert!(start(|settings| settings.threads = Some(2)).is_ok());
        assert!(start(|settings| settings.depth = Some(64)).is_ok());
        assert!(start(|settings| settings.depth = Some(0)).is_err());
        assert!(start(|settings| settings.threads = Some(5000)).is_err());
    }

    #[test]
    fn nothing_is_unbounded_and_nothing_is_zero() {
        assert!(start(|settings| settings.queue_max = 0).is_err());
        assert!(start(|settings| settings.buffer_bytes_max = 4096).is_err());
    }
}
