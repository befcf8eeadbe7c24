//! Jobs that share an operation, and fairness between those that do not.

use crate::harness::for_every_engine;

for_every_engine![
    one_read_answers_all_that_it_covers,
    one_open_answers_all,
    an_error_is_shared,
    who_goes_away_leaves_it_to_the_others,
    nobody_is_left,
    other_versions_are_read_themselves,
    bytes_are_shared_between_streams,
    first_chunks_keep_half_of_the_slots,
    a_prefetch_gives_way,
    a_prefetch_leaves_memory_to_others,
    a_mount_beneath_a_root_is_a_device_of_its_own,
];

mod cases {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use levity_disk::is_full;
    use levity_disk::{Class, Completion, Disk, Reply, Root, Symlinks, op};

    use crate::harness::*;

    pub fn one_read_answers_all_that_it_covers(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 100_000);
        let root = rig.root();
        // Opened twice, as by two workers.
        let files = [open(&disk, &root, "file"), open(&disk, &root, "file")];
        settle(&disk);
        let before = disk.stats().engines[0].reads_async;
        let held = (!disk.blocks_on_loop())
            .then(|| Held::new(&disk, read_op(&files[0], 0, 1), Class::First));
        let ranges = [
            (10, 99_000),
            (10, 99_000),
            (10, 1),
            (5000, 90_000),
            (99_009, 1),
        ];
        let readers = ranges.map(|(offset, len)| {
            let file = &files[offset as usize % 2];
            submit(&disk, read_op(file, offset, len), Class::Later)
        });
        let beyond = submit(&disk, read_op(&files[0], 98_000, 5000), Class::Later);
        arrive(&disk);
        held.into_iter().for_each(Held::release);
        for ((offset, len), reader) in ranges.into_iter().zip(readers) {
            let (ready, _) = reader.result().unwrap();
            assert_eq!(bytes(&disk, ready).unwrap(), pattern(offset, len));
        }
        let (ready, _) = beyond.result().unwrap();
        assert_eq!(bytes(&disk, ready).unwrap(), pattern(98_000, 2000));
        settle(&disk);
        let stats = disk.stats();
        if !disk.blocks_on_loop() && local(&files[0], &root) {
            assert_eq!(stats.coalesced, 4);
            assert_eq!(stats.engines[0].reads_async - before, 3);
        }
        all_memory_is_back(&disk);
    }

    /// Inode numbers are trusted on file systems that passed the probe.
    fn local(file: &levity_disk::OpenFile, root: &Root) -> bool {
        file.meta().device == root.device() && root.file_system().nowait
    }

    pub fn one_open_answers_all(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 5000);
        rig.write("other", 10);
        let root = rig.root();
        let other = open(&disk, &root, "other");
        settle(&disk);
        let held =
            (!disk.blocks_on_loop()).then(|| Held::new(&disk, read_op(&other, 0, 1), Class::First));
        let ask = |first| submit(&disk, open_op(&root, "file", first), Class::First);
        let asking = [(); 5].map(|()| ask(Some((0, 4096))));
        let without = ask(None);
        arrive(&disk);
        held.into_iter().for_each(Held::release);
        let mut files = Vec::new();
        for asking in asking {
            let opened = asking.result().unwrap();
            let first = opened.first.unwrap();
            assert_eq!(bytes(&disk, first).unwrap(), pattern(0, 4096));
            files.push(opened.file);
        }
        assert!(without.result().unwrap().first.is_none());
        if !disk.blocks_on_loop() {
            assert_eq!(disk.stats().coalesced, 4);
            assert!(files.iter().all(|file| Arc::ptr_eq(file, &files[0])));
        }
    }

    pub fn an_error_is_shared(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 10);
        let root = rig.root();
        let file = open(&disk, &root, "file");
        settle(&disk);
        let held =
            (!disk.blocks_on_loop()).then(|| Held::new(&disk, read_op(&file, 0, 1), Class::First));
        let asking = [(); 3].map(|()| submit(&disk, open_op(&root, "nowhere", None), Class::First));
        arrive(&disk);
        held.into_iter().for_each(Held::release);
        for asking in asking {
            let error = asking.result().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        }
        let coalesced = disk.stats().coalesced;
        assert_eq!(coalesced, if disk.blocks_on_loop() { 0 } else { 2 });
    }

    pub fn who_goes_away_leaves_it_to_the_others(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 1000);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 1), Class::First);
        let all = [(); 3].map(|()| submit(&disk, read_op(&file, 10, 100), Class::First));
        arrive(&disk);
        assert_eq!(disk.stats().coalesced, 2);
        assert_eq!(disk.stats().devices[0].queued, 1);
        all[0].give_up();
        all[1].give_up();
        held.release();
        let (ready, _) = all[2].result().unwrap();
        assert_eq!(bytes(&disk, ready).unwrap(), pattern(10, 100));
        settle(&disk);
        drop(all);
        all_memory_is_back(&disk);
    }

    pub fn nobody_is_left(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 1000);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 1), Class::First);
        let all = [(); 3].map(|()| submit(&disk, read_op(&file, 10, 100), Class::First));
        arrive(&disk);
        all.iter().for_each(|reader| reader.give_up());
        held.release();
        assert!(!all.iter().any(|reader| reader.is_answered()));
        settle(&disk);
        assert_eq!(disk.stats().canceled, 3);
        assert_eq!(read(&disk, &file, 10, 100), pattern(10, 100));
    }

    /// A read of an old version is not shared with a job that has seen the new one.
    pub fn other_versions_are_read_themselves(rig: &Rig) {
        let disk = rig.narrow_disk();
        let path = rig.write("file", 1000);
        let root = rig.root();
        let old = open(&disk, &root, "file");
        fs::write(&path, pattern(7, 999)).unwrap();
        let new = open(&disk, &root, "file");
        settle(&disk);
        let held =
            (!disk.blocks_on_loop()).then(|| Held::new(&disk, read_op(&old, 0, 1), Class::First));
        let both = [&old, &new].map(|file| submit(&disk, read_op(file, 0, 100), Class::First));
        arrive(&disk);
        assert_eq!(disk.stats().coalesced, 0);
        held.into_iter().for_each(Held::release);
        assert!(both.iter().all(|reader| reader.is_answered()));
    }

    /// A reply that adds up the bytes of one stream, and stops all streams when enough have been read.
    struct Adding {
        stream: usize,
        bytes: Arc<Mutex<[usize; 2]>>,
    }

    const ENOUGH: usize = 4 << 20;

    impl Reply for Adding {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            let mut bytes = self.bytes.lock().unwrap();
            if bytes.iter().sum::<usize>() < ENOUGH
                && let Some(ready) = completion.ready()
            {
                bytes[self.stream] += ready.len();
            }
        }
    }

    pub fn bytes_are_shared_between_streams(rig: &Rig) {
        const LARGE: usize = 512 << 10;
        const SMALL: usize = 64 << 10;
        let disk = rig.narrow_disk();
        rig.write("file", 9 << 20);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 1), Class::First);
        let bytes = Arc::new(Mutex::new([0; 2]));
        let add = |stream: usize, offset: usize, len| {
            let bytes = Arc::clone(&bytes);
            let op = read_op(&file, offset as u64, len);
            let mut job = job_for(op, Class::Later, Box::new(Adding { stream, bytes }));
            job.stream = stream as u64 + 1;
            disk.submit(job);
        };
        (0..8).for_each(|n| add(0, n * LARGE, LARGE));
        (0..64).for_each(|n| add(1, (4 << 20) + n * SMALL, SMALL));
        arrive(&disk);
        held.release();
        settle(&disk);
        let [large, small] = *bytes.lock().unwrap();
        assert!(large.abs_diff(small) <= 2 * LARGE, "{large} and {small}");
    }

    pub fn first_chunks_keep_half_of_the_slots(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.depth = Some(4));
        rig.write("file", 1000);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        // Several slots are held at once.
        if disk.blocks_on_loop() || answers_from_one_thread(&disk) {
            return;
        }
        let mut offset = 0;
        let mut hold = |class| {
            offset += 10;
            Held::new(&disk, read_op(&file, offset, 10), class)
        };
        // Without other jobs, later chunks get all slots.
        let mut all: Vec<_> = (0..4).map(|_| hold(Class::Later)).collect();
        let order = Arc::new(Mutex::new(Vec::new()));
        for n in 0..6 {
            for (name, class) in [("next", Class::Later), ("first", Class::First)] {
                let reply = Box::new(Named(name, Arc::clone(&order)));
                disk.submit(job_for(
                    read_op(&file, 500 + n, 10 + n as usize),
                    class,
                    reply,
                ));
            }
        }
        arrive(&disk);
        // While the other three are held, each free slot goes to a first chunk.
        all.pop().unwrap().release();
        until("first chunks are done", || order.lock().unwrap().len() >= 6);
        assert_eq!(order.lock().unwrap()[..6], ["first"; 6]);
        all.into_iter().for_each(Held::release);
        settle(&disk);
    }

    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Reply for Named {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, _: Completion) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    pub fn a_prefetch_gives_way(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.depth = Some(2));
        rig.write("file", 1000);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            let ahead = submit(&disk, read_op(&file, 0, 10), Class::Prefetch);
            assert!(ahead.result().is_ok());
            return;
        }
        let ahead = Held::new(&disk, read_op(&file, 0, 10), Class::Prefetch);
        let ask = |offset, class| submit(&disk, read_op(&file, offset, 10), class);
        let too_many = ask(20, Class::Prefetch);
        assert!(is_full(&too_many.result().unwrap_err()));
        let others = [ask(30, Class::First), ask(40, Class::Later)];
        arrive(&disk);
        ahead.release();
        assert!(others.iter().all(|other| other.is_answered()));
        settle(&disk);
        assert!(ask(50, Class::Prefetch).result().is_ok());
    }

    pub fn a_prefetch_leaves_memory_to_others(rig: &Rig) {
        const HALF: usize = 512 << 10;
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 2 * HALF);
        rig.write("file", HALF);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            return;
        }
        let ask = |len, class| submit(&disk, read_op(&file, 0, len), class);
        assert!(ask(HALF, Class::Prefetch).result().is_ok());
        settle(&disk);
        all_memory_is_back(&disk);
        let held = disk.budget().buffer(4096);
        let ahead = ask(HALF, Class::Prefetch);
        assert!(is_full(&ahead.result().unwrap_err()));
        assert!(ask(HALF, Class::First).result().is_ok());
        drop(held);
    }

    pub fn a_mount_beneath_a_root_is_a_device_of_its_own(rig: &Rig) {
        let disk = rig.disk();
        let root = Root::open(Path::new("/"), Symlinks::Beneath).unwrap();
        let proc = fs::metadata("/proc").unwrap().dev();
        assert_ne!(root.device(), proc);
        open(&disk, &root, "proc/version");
        settle(&disk);
        let devices: Vec<_> = disk.stats().devices.iter().map(|d| d.device).collect();
        assert_eq!(devices, [proc]);
    }

    mod simulation {
        use std::time::Duration;

        use levity_disk::{engine::simulated::thaw, is_dead};

        use super::*;

        fn in_flight(disk: &Disk) -> usize {
            disk.stats().devices.iter().map(|d| d.in_flight).sum()
        }

        /// An outcome is never older than the job allows.
        #[test]
        fn an_open_under_way_is_joined_if_it_is_young_enough() {
            let rig = Rig::new("simulated:freeze=pack");
            let disk = rig.disk();
            rig.write("pack", 100);
            let root = rig.root();
            let ask = || submit(&disk, open_op(&root, "pack", None), Class::First);
            let one = ask();
            until("it is under way", || in_flight(&disk) == 1);
            let two = ask();
            until("it is under way too", || in_flight(&disk) == 2);
            disk.set_open_age_max(DEADLINE);
            let three = ask();
            arrive(&disk);
            assert_eq!((in_flight(&disk), disk.stats().coalesced), (2, 1));
            thaw("pack");
            assert!([one, two, three].iter().all(|asking| asking.is_answered()));
        }

        /// A job joins a prefetch of the same bytes.
        #[test]
        fn a_prefetch_under_way_is_joined() {
            let rig = Rig::new("simulated:freeze=drift");
            let disk = rig.disk();
            rig.write("drift", 1000);
            let file = rig.root().open_cached(c"drift");
            let file = file.unwrap_or_else(|_| panic!("just written, so in memory"));
            let ahead = submit(&disk, read_op(&file, 0, 1000), Class::Prefetch);
            until("it is under way", || in_flight(&disk) == 1);
            let wanted = submit(&disk, read_op(&file, 100, 900), Class::Later);
            arrive(&disk);
            assert_eq!((in_flight(&disk), disk.stats().coalesced), (1, 1));
            ahead.give_up();
            thaw("drift");
            let (ready, _) = wanted.result().unwrap();
            assert_eq!(bytes(&disk, ready).unwrap(), pattern(100, 900));
        }

        /// A root that does not answer is checked once, however many jobs ask.
        #[test]
        fn a_look_under_way_is_joined() {
            let rig = Rig::new("simulated:freeze=pancake");
            let disk = rig.disk();
            fs::create_dir(rig.path("pancake")).unwrap();
            let root = Root::open(&rig.path("pancake"), Symlinks::Beneath).unwrap();
            let look = || {
                let root = Arc::clone(&root);
                submit(&disk, op::CheckRoot { root }, Class::First)
            };
            let one = look();
            until("it is under way", || in_flight(&disk) == 1);
            let more = [look(), look()];
            arrive(&disk);
            assert_eq!((in_flight(&disk), disk.stats().coalesced), (1, 2));
            thaw("pancake");
            for looking in [one].into_iter().chain(more) {
                assert!(looking.result().unwrap().is_none());
            }
        }

        fn dead_soon(rig: &Rig) -> Arc<Disk> {
            rig.disk_with(|settings| {
                settings.depth = Some(4);
                settings.dead_after = Duration::from_millis(50);
            })
        }

        #[test]
        fn a_dead_device_turns_new_jobs_away() {
            let rig = Rig::new("simulated:freeze=shelf");
            let disk = dead_soon(&rig);
            (0..12).for_each(|n| drop(rig.write(&format!("shelf{n}"), 100)));
            let root = rig.root();
            let file = root.open_cached(c"shelf11");
            let file = file.unwrap_or_else(|_| panic!("just written, so in memory"));
            let ask = |n| {
                submit(
                    &disk,
                    open_op(&root, &format!("shelf{n}"), None),
                    Class::First,
                )
            };
            let asking: Vec<_> = (0..10).map(ask).collect();
            let later = submit(&disk, read_op(&file, 0, 100), Class::Later);
            for asking in asking {
                assert!(
                    is_dead(&asking.result().unwrap_err()),
                    "waiting or under way"
                );
            }
            let device = |disk: &Disk| {
                let devices = disk.stats().devices;
                devices
                    .iter()
                    .find(|d| d.device == root.device())
                    .unwrap()
                    .clone()
            };
            assert!(device(&disk).dead && !disk.has_room(root.device()));
            assert_eq!(device(&disk).in_flight, 4);
            assert!(is_dead(&ask(10).result().unwrap_err()), "at once");
            assert_eq!(disk.stats().dead, 11);
            let proc = Root::open(Path::new("/proc"), Symlinks::Beneath).unwrap();
            let version = open(&disk, &proc, "version");
            assert!(read(&disk, &version, 0, 4096).starts_with(b"Linux"));
            assert!(later.is_silent(), "its client is receiving already");
            thaw("shelf");
            assert!(later.result().is_ok());
            until("it lives", || !device(&disk).dead);
            assert!(ask(0).result().is_ok());
        }

        /// Jobs that joined a refused job are refused too.
        #[test]
        fn who_goes_along_is_turned_away_by_its_own_class() {
            let rig = Rig::new("simulated:freeze=attic");
            let disk = dead_soon(&rig);
            (0..5).for_each(|n| drop(rig.write(&format!("attic{n}"), 100)));
            let root = rig.root();
            let ask = |n| open_op(&root, &format!("attic{n}"), None);
            let stuck = [0, 1, 2, 3].map(|n| submit(&disk, ask(n), Class::First));
            until("all slots are taken", || in_flight(&disk) == 4);
            let file = root.open_cached(c"attic4");
            let file = file.unwrap_or_else(|_| panic!("just written, so in memory"));
            let [first, urgent, later] = [Class::First, Class::First, Class::Later]
                .map(|class| submit(&disk, read_op(&file, 0, 100), class));
            arrive(&disk);
            assert_eq!(disk.stats().coalesced, 2);
            for turned_away in &stuck {
                assert!(is_dead(&turned_away.result().unwrap_err()));
            }
            for turned_away in [&first, &urgent] {
                assert!(is_dead(&turned_away.result().unwrap_err()));
            }
            until("it waits for itself", || {
                disk.stats().devices[0].queued == 1
            });
            assert!(later.is_silent());
            thaw("attic");
            assert!(later.result().is_ok());
        }

        /// A single job that hangs does not affect others.
        #[test]
        fn one_job_at_a_time_tries_a_dead_device() {
            let rig = Rig::new("simulated:freeze=growler");
            let disk = dead_soon(&rig);
            rig.write("growler", 100);
            rig.write("fine", 100);
            let root = rig.root();
            let stuck = submit(&disk, open_op(&root, "growler", None), Class::First);
            assert!(is_dead(&stuck.result().unwrap_err()));
            assert!(disk.stats().devices[0].dead);
            let asking: Vec<_> = (0..20)
                .map(|n| {
                    let op = open_op(&root, "fine", Some((n, 10)));
                    submit(&disk, op, Class::First)
                })
                .collect();
            assert!(asking.iter().all(|asking| asking.result().is_ok()));
            assert!(!disk.stats().devices[0].dead);
            thaw("growler");
        }
    }
}
