//! Syncs, and the groups that they are made in.

use crate::harness::for_every_engine;

for_every_engine![
    files_and_folders,
    one_for_all_that_wait,
    none_joins_one_that_has_started,
    files_apart,
    given_up_by_some,
    refused_by_shutdown,
    joined_up_to_the_bound,
];

mod cases {
    use std::sync::Arc;
    use std::thread;

    use levity_disk::{Class, Disk, OpenFile, is_full, op};

    use crate::harness::*;

    fn syncs(disk: &Disk) -> (u64, u64) {
        let stats = disk.stats();
        (stats.engines[0].syncs, stats.syncs_shared)
    }

    fn new_file(disk: &Disk, rig: &Rig) -> Arc<OpenFile> {
        let file = ask(disk, nameless_op(&rig.root(), ".")).unwrap();
        try_write(disk, &file, 0, 5000).unwrap();
        settle(disk);
        file
    }

    fn is_synced(waiting: &Waiting<op::Sync>) -> bool {
        waiting.result().is_ok()
    }

    pub fn files_and_folders(rig: &Rig) {
        let (disk, root) = (rig.disk(), rig.root());
        let file = new_file(&disk, rig);
        rig.write("served", 10);
        for file in [file, open(&disk, &root, "."), open(&disk, &root, "served")] {
            for class in [Class::First, Class::Later, Class::Prefetch] {
                assert!(is_synced(&submit(&disk, sync_op(&file), class)));
                settle(&disk);
            }
        }
        assert_eq!(syncs(&disk), (9, 0));
    }

    /// While one is in flight, all that arrive become one call, and all are told.
    pub fn one_for_all_that_wait(rig: &Rig) {
        let disk = rig.disk();
        let file = new_file(&disk, rig);
        let held = Held::new(&disk, sync_op(&file), Class::Later);
        let waiting: Vec<_> = (0..30)
            .map(|number| {
                let class = [Class::Later, Class::First, Class::Prefetch][number % 3];
                submit(&disk, sync_op(&file), class)
            })
            .collect();
        arrive(&disk);
        assert!(waiting.iter().all(Waiting::is_silent));
        assert_eq!(syncs(&disk), (1, 29));
        let stats = disk.stats();
        let load = stats
            .devices
            .iter()
            .find(|load| load.device == file.meta().device);
        assert_eq!(load.map(|load| (load.queued, load.in_flight)), Some((1, 1)));
        held.release();
        assert!(waiting.iter().all(is_synced));
        settle(&disk);
        assert_eq!(syncs(&disk), (2, 29));
        assert_eq!(disk.stats().coalesced, 29);
    }

    pub fn none_joins_one_that_has_started(rig: &Rig) {
        let disk = rig.disk();
        let file = new_file(&disk, rig);
        for round in 1..4 {
            let held = Held::new(&disk, sync_op(&file), Class::First);
            let late = submit(&disk, sync_op(&file), Class::First);
            arrive(&disk);
            assert!(late.is_silent());
            held.release();
            assert!(is_synced(&late));
            settle(&disk);
            assert_eq!(syncs(&disk), (2 * round, 0));
        }
        // Those that wait for a slot have not started.
        let narrow = rig.narrow_disk();
        let held = Held::new(&narrow, write_op(&file, 0, 10), Class::Later);
        let queued = [(); 5].map(|()| submit(&narrow, sync_op(&file), Class::Later));
        arrive(&narrow);
        held.release();
        assert!(queued.iter().all(is_synced));
        assert_eq!(syncs(&narrow), (1, 4));
    }

    pub fn files_apart(rig: &Rig) {
        let disk = rig.disk();
        let [one, other] = [(); 2].map(|()| new_file(&disk, rig));
        let held = Held::new(&disk, sync_op(&one), Class::Later);
        assert!(is_synced(&submit(&disk, sync_op(&other), Class::Later)));
        held.release();
        settle(&disk);
        assert_eq!(syncs(&disk), (2, 0));
    }

    pub fn given_up_by_some(rig: &Rig) {
        let disk = rig.disk();
        let file = new_file(&disk, rig);
        let held = Held::new(&disk, sync_op(&file), Class::Later);
        let waiting = [(); 3].map(|()| submit(&disk, sync_op(&file), Class::Later));
        arrive(&disk);
        waiting[0].give_up();
        waiting[2].give_up();
        held.release();
        assert!(is_synced(&waiting[1]));
        settle(&disk);
        assert_eq!(syncs(&disk), (2, 2));
        // All of them: no call, and the next one is made.
        let held = Held::new(&disk, sync_op(&file), Class::Later);
        let waiting = [(); 3].map(|()| submit(&disk, sync_op(&file), Class::Later));
        arrive(&disk);
        waiting.iter().for_each(Waiting::give_up);
        held.release();
        assert!(waiting.iter().all(|waiting| !waiting.is_answered()));
        settle(&disk);
        assert_eq!((syncs(&disk).0, disk.stats().canceled), (3, 3));
        assert!(is_synced(&submit(&disk, sync_op(&file), Class::First)));
    }

    pub fn refused_by_shutdown(rig: &Rig) {
        let disk = rig.disk();
        let file = new_file(&disk, rig);
        let held = Held::new(&disk, sync_op(&file), Class::Later);
        let waiting = [(); 3].map(|()| submit(&disk, sync_op(&file), Class::Later));
        arrive(&disk);
        let closing = Arc::clone(&disk);
        let closing = thread::spawn(move || closing.shutdown());
        for waiting in waiting {
            assert_eq!(errno(waiting.result()), Some(libc::ECANCELED));
        }
        held.release();
        closing.join().unwrap();
        assert_eq!(syncs(&disk).0, 1);
    }

    pub fn joined_up_to_the_bound(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.queue_max = 4);
        let file = new_file(&disk, rig);
        let held = Held::new(&disk, sync_op(&file), Class::Later);
        let waiting = [(); 5].map(|()| submit(&disk, sync_op(&file), Class::Later));
        arrive(&disk);
        let refused = submit(&disk, sync_op(&file), Class::Later).result();
        assert!(is_full(&refused.unwrap_err()));
        held.release();
        assert!(waiting.iter().all(is_synced));
        settle(&disk);
        assert_eq!(syncs(&disk), (2, 4));
    }
}

mod simulation {
    use std::time::Duration;

    use levity_disk::engine::simulated::thaw;
    use levity_disk::{Class, is_dead};

    use crate::harness::*;

    /// An error goes to all of a group, and to all later syncs of the file, although the disk then works.
    #[test]
    fn an_error_is_told_to_all_and_stays() {
        let rig = Rig::new("simulated:eio_syncs=1");
        let (disk, root) = (rig.narrow_disk(), rig.root());
        let [file, other] = [(); 2].map(|()| ask(&disk, nameless_op(&root, ".")).unwrap());
        settle(&disk);
        let held = Held::new(&disk, write_op(&file, 0, 10), Class::Later);
        let group = [(); 4].map(|()| submit(&disk, sync_op(&file), Class::Later));
        arrive(&disk);
        held.release();
        for waiting in group {
            assert_eq!(errno(waiting.result()), Some(libc::EIO));
        }
        try_write(&disk, &file, 0, 10).unwrap();
        for _ in 0..2 {
            let later = submit(&disk, sync_op(&file), Class::Later);
            assert_eq!(errno(later.result()), Some(libc::EIO));
        }
        let sync = submit(&disk, sync_op(&other), Class::Later);
        sync.result().unwrap();
        settle(&disk);
        let stats = disk.stats();
        assert_eq!((stats.syncs_shared, stats.engines[0].syncs), (3, 1));
    }

    /// Behind a sync that does not end, one of class `First` is given up, and the others wait.
    #[test]
    fn those_that_wait_for_a_dead_device_are_given_up() {
        let rig = Rig::new("simulated:freeze=permafrost");
        std::fs::create_dir(rig.path("permafrost")).unwrap();
        let file = {
            let disk = Rig::new("threads").disk();
            ask(&disk, nameless_op(&rig.root(), "permafrost")).unwrap()
        };
        let disk = rig.disk_with(|settings| settings.dead_after = Duration::from_millis(200));
        let frozen = submit(&disk, sync_op(&file), Class::Later);
        until("it is in flight", || {
            disk.stats().devices.iter().any(|d| d.in_flight == 1)
        });
        let later = submit(&disk, sync_op(&file), Class::Later);
        let first = submit(&disk, sync_op(&file), Class::First);
        assert!(is_dead(&first.result().unwrap_err()));
        assert!(frozen.is_silent() && later.is_silent());
        thaw("permafrost");
        for waiting in [frozen, later] {
            waiting.result().unwrap();
        }
        settle(&disk);
        assert_eq!(disk.stats().engines[0].syncs, 2);
    }
}
