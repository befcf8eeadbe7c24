//! Canceled jobs.

use crate::harness::for_every_engine;

for_every_engine![
    queued,
    wanted_again_too_late,
    at_any_moment,
    completed,
    refused_by_shutdown
];

mod cases {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{self, RecvTimeoutError, Sender};

    use levity_disk::{Class, Completion, Reply};

    use crate::harness::*;

    /// A job that nobody waits for when its turn comes is dropped.
    pub fn queued(rig: &Rig) {
        let disk = rig.narrow_disk();
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        if disk.blocks_on_loop() {
            let (job, given_up) = job(read_op(&file, 0, 100), Class::First);
            given_up.give_up();
            disk.submit(job);
            assert!(!given_up.is_answered());
            assert_eq!(disk.stats().canceled, 1);
            return;
        }
        let held = Held::new(&disk, read_op(&file, 0, 100), Class::First);
        let given_up = submit(&disk, read_op(&file, 0, 100), Class::First);
        let other = submit(&disk, read_op(&file, 1, 100), Class::First);
        given_up.give_up();
        assert!(given_up.is_silent() && other.is_silent());
        held.release();
        assert!(other.is_answered());
        assert!(!given_up.is_answered());
        settle(&disk);
        assert_eq!(disk.stats().canceled, 1);
        assert_eq!(disk.stats().engines[0].reads_async, 2);
    }

    /// Not awaited when its turn comes and awaited afterwards, as if a job joined at that moment.
    struct Wavering {
        asked: AtomicBool,
        to: Sender<Completion>,
    }

    impl Reply for Wavering {
        fn is_awaited(&self) -> bool {
            self.asked.swap(true, Ordering::Relaxed)
        }

        fn send(self: Box<Self>, completion: Completion) {
            self.to.send(completion).unwrap();
        }
    }

    /// An abandoned job is dropped and not answered ECANCELED, which would also go to jobs that have joined in
    /// the meantime.
    pub fn wanted_again_too_late(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        settle(&disk);
        let (to, from) = mpsc::channel();
        let asked = AtomicBool::new(false);
        let reply = Box::new(Wavering { asked, to });
        disk.submit(job_for(read_op(&file, 0, 100), Class::First, reply));
        let outcome = from.recv_timeout(DEADLINE);
        assert!(
            matches!(outcome, Err(RecvTimeoutError::Disconnected)),
            "{outcome:?}"
        );
        assert_eq!(disk.stats().canceled, 1);
    }

    /// A job abandoned before it starts, in progress, or when it is done: it is answered or counted, and its memory
    /// is freed.
    pub fn at_any_moment(rig: &Rig) {
        const JOBS: usize = 300;
        let disk = rig.disk();
        rig.write("file", 1 << 20);
        let file = open(&disk, &rig.root(), "file");
        let mut answered = 0;
        for offset in 0..JOBS {
            let op = read_op(&file, offset as u64, 200_000);
            let waiting = submit(&disk, op, Class::Later);
            for _ in 0..offset * 20 {
                std::hint::spin_loop();
            }
            waiting.give_up();
            answered += usize::from(waiting.is_answered());
        }
        settle(&disk);
        let canceled = disk.stats().canceled as usize;
        assert_eq!(answered + canceled, JOBS);
        all_memory_is_back(&disk);
    }

    pub fn completed(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 100_000);
        let file = open(&disk, &rig.root(), "file");
        let waiting = submit(&disk, read_op(&file, 0, 100_000), Class::First);
        let completion = waiting.completion();
        waiting.give_up();
        assert!(completion.result.is_ok());
        drop(completion);
        settle(&disk);
        assert_eq!(disk.stats().canceled, 0);
        all_memory_is_back(&disk);
    }

    /// Every job is answered once, with its bytes or ECANCELED; none after shutdown has returned.
    pub fn refused_by_shutdown(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 1 << 20);
        let file = open(&disk, &rig.root(), "file");
        let jobs: Vec<_> = (0..200)
            .map(|n| submit(&disk, read_op(&file, n, 100_000), Class::Later))
            .collect();
        disk.shutdown();
        for waiting in jobs {
            match waiting.result() {
                Ok(_) => {}
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
            }
            assert!(!waiting.is_answered(), "a second answer");
        }
        let late = submit(&disk, read_op(&file, 0, 10), Class::First);
        let error = late.result().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        all_memory_is_back(&disk);
        disk.shutdown();
    }
}
