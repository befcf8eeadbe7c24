//! Files without a name: created, written and read back.

use crate::harness::for_every_engine;

for_every_engine![
    odd_pieces,
    in_any_order,
    every_read_is_made,
    without_memory,
    shared_by_bytes,
    no_space,
    not_open_for_writing,
    given_up_at_any_moment,
    refused_by_shutdown,
    counted,
];

mod cases {
    use std::fs;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use levity_disk::{Class, Completion, Done, Op, Reply, Spool, op};

    use crate::harness::*;

    /// The descriptors of this process for files beneath `folder`.
    fn open_beneath(folder: &Path) -> Vec<PathBuf> {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let is_beneath =
            |link: &PathBuf| fs::read_link(link).is_ok_and(|path| path.starts_with(folder));
        let paths = links.map(|link| link.unwrap().path());
        paths.filter(is_beneath).collect()
    }

    fn nothing_is_left(rig: &Rig) {
        assert_eq!(fs::read_dir(rig.tree.path()).unwrap().count(), 0);
        until("everything is closed", || {
            open_beneath(rig.tree.path()).is_empty()
        });
    }

    pub fn odd_pieces(rig: &Rig) {
        const PIECES: [usize; 9] = [1, 4095, 4096, 4097, 3, 131_072, 0, 262_143, 70_001];
        let disk = rig.disk();
        let file = create(&disk, &rig.spool());
        let open = open_beneath(rig.tree.path());
        // The pool may close the folder of the spool meanwhile.
        let mut metas = open.iter().filter_map(|link| link.metadata().ok());
        let meta = metas.find(|meta| meta.is_file()).unwrap();
        assert_eq!(
            (meta.permissions().mode() & 0o777, meta.nlink()),
            (0o600, 0)
        );
        let mut end = 0;
        for len in PIECES {
            try_write(&disk, &file, end, len).unwrap();
            end += len as u64;
            assert_eq!(stat(&disk, &file).size, end);
            assert_eq!(fs::read_dir(rig.tree.path()).unwrap().count(), 0);
        }
        for (offset, len) in [
            (0, 1 << 19),
            (1, 4095),
            (4097, 70_000),
            (end - 1, 2),
            (end, 5),
        ] {
            let waiting = submit(&disk, read_op(&file, offset, len), Class::Later);
            let completion = waiting.completion();
            assert!(!completion.direct, "past the page cache");
            let (ready, _) = completion.result.unwrap();
            let found = bytes(&disk, ready).unwrap();
            assert_eq!(found.len() as u64, (end - offset).min(len as u64));
            assert!(is_pattern(&found, offset), "{offset}");
        }
        drop(file);
        settle(&disk);
        all_memory_is_back(&disk);
        nothing_is_left(rig);
    }

    /// Several files, and several pieces of each, at the same time.
    pub fn in_any_order(rig: &Rig) {
        const FILES: usize = 6;
        const PIECES: u64 = 20;
        const LEN: usize = 30_011;
        let disk = rig.disk();
        let spool = rig.spool();
        let files: Vec<_> = (0..FILES).map(|_| create(&disk, &spool)).collect();
        let mut writes = Vec::new();
        for piece in (0..PIECES).map(|piece| piece * 7 % PIECES) {
            for (number, file) in files.iter().enumerate() {
                let write = op::Write {
                    file: Arc::clone(file),
                    offset: piece * LEN as u64,
                    bytes: Arc::new(content(number, piece, LEN)),
                };
                let class = [Class::First, Class::Later][piece as usize % 2];
                writes.push(submit(&disk, write, class));
            }
        }
        for write in writes {
            assert_eq!(write.result().unwrap(), LEN);
        }
        for (number, file) in files.iter().enumerate() {
            assert_eq!(stat(&disk, file).size, PIECES * LEN as u64);
            for piece in 0..PIECES {
                let found = read(&disk, file, piece * LEN as u64, LEN);
                assert!(found == content(number, piece, LEN), "{number}: {piece}");
            }
        }
    }

    fn content(file: usize, piece: u64, len: usize) -> Vec<u8> {
        pattern((file as u64) << 32 | piece << 20, len)
    }

    /// A read that began before a write would return fewer bytes than a read after it has to.
    pub fn every_read_is_made(rig: &Rig) {
        let disk = rig.narrow_disk();
        let file = create(&disk, &rig.spool());
        try_write(&disk, &file, 0, 1000).unwrap();
        settle(&disk);
        let held = (!disk.blocks_on_loop())
            .then(|| Held::new(&disk, read_op(&file, 0, 1000), Class::Later));
        let reads = [0, 0, 10].map(|offset| {
            let len = 1000 - offset as usize;
            submit(&disk, read_op(&file, offset, len), Class::Later)
        });
        arrive(&disk);
        held.into_iter().for_each(Held::release);
        for (offset, waiting) in [0, 0, 10].into_iter().zip(reads) {
            let (ready, _) = waiting.result().unwrap();
            let found = bytes(&disk, ready).unwrap();
            assert_eq!(found, pattern(offset, 1000 - offset as usize));
        }
        assert_eq!(disk.stats().coalesced, 0);
    }

    /// A write needs no memory of the budget.
    pub fn without_memory(rig: &Rig) {
        let disk = rig.disk_with(|settings| settings.buffer_bytes_max = 1 << 20);
        let file = create(&disk, &rig.spool());
        let all = disk.budget().buffer(1 << 20).unwrap();
        for class in [Class::First, Class::Later] {
            let waiting = submit(&disk, write_op(&file, 0, 2 << 20), class);
            assert_eq!(waiting.result().unwrap(), 2 << 20);
        }
        drop(all);
        let found = read(&disk, &file, (1 << 20) + 1, 5000);
        assert!(found.len() == 5000 && is_pattern(&found, (1 << 20) + 1));
    }

    /// A reply that records the bytes of each stream.
    struct Tally(usize, usize, Arc<Mutex<Vec<(usize, usize)>>>);

    impl Reply for Tally {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            assert!(completion.result.is_ok());
            self.2.lock().unwrap().push((self.0, self.1));
        }
    }

    /// A stream that writes large pieces and one that reads small ones get the same share of the disk.
    pub fn shared_by_bytes(rig: &Rig) {
        const WRITTEN: usize = 256 << 10;
        const READ: usize = 64 << 10;
        let disk = rig.narrow_disk();
        if disk.blocks_on_loop() {
            return;
        }
        let spool = rig.spool();
        rig.write("file", 4 << 20);
        let read_from = open(&disk, &rig.root(), "file");
        let written_to = create(&disk, &spool);
        settle(&disk);
        let done = Arc::new(Mutex::new(Vec::new()));
        let add = |stream: usize, op: Op, len: usize| {
            let reply = Box::new(Tally(stream, len, Arc::clone(&done)));
            let mut job = job_for(op, Class::Later, reply);
            job.stream = stream as u64;
            disk.submit(job);
        };
        let held = Held::new(&disk, read_op(&read_from, 0, 1), Class::Later);
        for piece in 0..10 {
            let op = write_op(&written_to, piece * WRITTEN as u64, WRITTEN);
            add(0, op.into(), WRITTEN);
        }
        for piece in 0..40 {
            let op = read_op(&read_from, piece * READ as u64, READ);
            add(1, op.into(), READ);
        }
        arrive(&disk);
        held.release();
        settle(&disk);
        let done = done.lock().unwrap();
        assert_eq!(done.len(), 50);
        let mut bytes = [0; 2];
        for (stream, len) in &done[..25] {
            bytes[*stream] += len;
        }
        let apart = bytes[0].abs_diff(bytes[1]);
        assert!(apart <= 2 * WRITTEN, "{bytes:?}: {done:?}");
    }

    pub fn no_space(rig: &Rig) {
        let Some(folder) = small_file_system() else {
            eprintln!("no tmpfs here: {}", io::Error::last_os_error());
            return;
        };
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let spool = Spool::open(Path::new(&path)).unwrap();
        let disk = rig.disk();
        for _ in 0..3 {
            let file = create(&disk, &spool);
            try_write(&disk, &file, 0, 600_000).unwrap();
            let full = try_write(&disk, &file, 600_000, 600_000);
            assert_eq!(errno(full), Some(libc::ENOSPC));
            // The range of an append that failed is given back, and a smaller one fits.
            let full = try_append(&disk, &file, &pattern(600_000, 600_000));
            assert_eq!(errno(full), Some(libc::ENOSPC));
            assert_eq!(try_append(&disk, &file, &[7; 9]).unwrap(), 600_000);
            // Bytes written before are unchanged, and closing the file frees the room.
            let found = read(&disk, &file, 0, 600_000);
            assert!(found.len() == 600_000 && is_pattern(&found, 0));
            drop(file);
            until("there is room again", || {
                rustix::fs::fstatvfs(&folder).unwrap().f_bfree >= 200
            });
        }
    }

    pub fn not_open_for_writing(rig: &Rig) {
        let disk = rig.disk();
        rig.write("file", 100);
        let file = open(&disk, &rig.root(), "file");
        assert_eq!(errno(try_write(&disk, &file, 50, 100)), Some(libc::EBADF));
        let beyond = create(&disk, &rig.spool());
        let refused = try_write(&disk, &beyond, 1 << 63, 100);
        assert_eq!(errno(refused), Some(libc::EINVAL));
        assert_eq!(fs::read(rig.path("file")).unwrap(), pattern(0, 100));
    }

    /// A job is answered or counted, and its bytes, file and slot are freed.
    pub fn given_up_at_any_moment(rig: &Rig) {
        const JOBS: usize = 200;
        let disk = rig.disk();
        let spool = rig.spool();
        let file = create(&disk, &spool);
        let mut kept = Vec::new();
        let mut answered = 0;
        for number in 0..JOBS {
            let bytes = Arc::new(pattern(0, 100_000));
            kept.push(Arc::downgrade(&bytes));
            let write = op::Write {
                file: Arc::clone(&file),
                offset: 0,
                bytes,
            };
            let waiting = match number % 3 {
                0 => submit(&disk, Any(spool_op(&spool).into()), Class::First),
                _ => submit(&disk, Any(write.into()), Class::Later),
            };
            for _ in 0..number * 20 {
                std::hint::spin_loop();
            }
            waiting.give_up();
            answered += usize::from(waiting.is_answered());
        }
        settle(&disk);
        assert_eq!(answered + disk.stats().canceled as usize, JOBS);
        until("all bytes are let go", || {
            kept.iter().all(|bytes| bytes.strong_count() == 0)
        });
        drop(file);
        drop(spool);
        nothing_is_left(rig);
    }

    pub fn refused_by_shutdown(rig: &Rig) {
        let disk = rig.disk();
        let spool = rig.spool();
        let file = create(&disk, &spool);
        let mut jobs = Vec::new();
        for number in 0..100 {
            let write = write_op(&file, number * 1000, 1000);
            for op in [write.into(), spool_op(&spool).into()] {
                jobs.push(submit(&disk, Any(op), Class::Later));
            }
        }
        disk.shutdown();
        for waiting in jobs {
            match waiting.result() {
                Ok(done) => assert!(matches!(done, Done::Write(1000) | Done::Create(_))),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
            }
            assert!(!waiting.is_answered(), "a second answer");
        }
        let late = submit(&disk, write_op(&file, 0, 1), Class::First);
        assert_eq!(errno(late.result()), Some(libc::ECANCELED));
        drop(file);
        drop(spool);
        nothing_is_left(rig);
    }

    pub fn counted(rig: &Rig) {
        let disk = rig.disk();
        let file = create(&disk, &rig.spool());
        let other = create(&disk, &rig.spool());
        let before = disk.stats();
        try_write(&disk, &file, 0, 1000).unwrap();
        try_write(&disk, &other, 7, 234).unwrap();
        rig.write("file", 1);
        let root = rig.root();
        assert!(try_write(&disk, &open(&disk, &root, "file"), 0, 5).is_err());
        let stats = disk.stats();
        let (engine, engine_before) = (&stats.engines[0], &before.engines[0]);
        assert_eq!(engine.writes - engine_before.writes, 2);
        assert_eq!(engine.bytes_written - engine_before.bytes_written, 1234);
        assert_eq!(stats.errors - before.errors, 1);
    }
}

mod simulation {
    use std::path::Path;
    use std::sync::Arc;

    use levity_disk::engine::simulated::thaw;
    use levity_disk::{Class, Spool, op};

    use crate::harness::*;

    /// Neither creations nor writes on a frozen device take threads from other devices.
    #[test]
    fn a_frozen_device_leaves_threads_to_others() {
        let rig = Rig::new("simulated:freeze=avalanche");
        let disk = rig.disk_with(|settings| {
            settings.threads = Some(6);
            settings.stat_threads = Some(1);
            settings.depth = Some(4);
        });
        std::fs::create_dir(rig.path("avalanche")).unwrap();
        let frozen = Spool::open(&rig.path("avalanche")).unwrap();
        let Ok(other) = Spool::open(Path::new("/dev/shm")) else {
            return eprintln!("no second device here");
        };
        if other.device() == frozen.device() {
            return eprintln!("no second device here");
        }
        let file = create(&Rig::new("threads").disk(), &frozen);
        let stuck: Vec<_> = (0..10)
            .map(|number| match number % 2 {
                0 => submit(&disk, Any(write_op(&file, 0, 100).into()), Class::First),
                _ => submit(&disk, Any(spool_op(&frozen).into()), Class::First),
            })
            .collect();
        for _ in 0..20 {
            let file = create(&disk, &other);
            try_write(&disk, &file, 5, 5000).unwrap();
            assert_eq!(read(&disk, &file, 5, 5000), pattern(5, 5000));
        }
        let devices = disk.stats().devices;
        let load = devices.iter().find(|d| d.device == frozen.device());
        let load = load.unwrap();
        assert_eq!((load.in_flight, load.queued), (4, 6));
        assert!(stuck.iter().all(|waiting| waiting.is_silent()));
        thaw("avalanche");
        assert!(stuck.iter().all(|waiting| waiting.is_answered()));
    }

    /// The bytes of an abandoned write are kept until the disk is done with them.
    #[test]
    fn giving_up_a_write_in_progress_frees_its_memory() {
        let rig = Rig::new("simulated:freeze=serac");
        std::fs::create_dir(rig.path("serac")).unwrap();
        let spool = Spool::open(&rig.path("serac")).unwrap();
        let file = create(&Rig::new("threads").disk(), &spool);
        let disk = rig.disk();
        let bytes = Arc::new(pattern(0, 1000));
        let kept = Arc::downgrade(&bytes);
        let write = op::Write {
            file: Arc::clone(&file),
            offset: 0,
            bytes,
        };
        let waiting = submit(&disk, write, Class::Later);
        until("the job has its slot", || {
            disk.stats().devices.iter().any(|d| d.in_flight == 1)
        });
        waiting.give_up();
        let held = kept.strong_count() > 0;
        thaw("serac");
        // None if no thread had started it.
        let done = waiting.is_answered();
        assert!(held || !done);
        assert_eq!(stat(&disk, &file).size, if done { 1000 } else { 0 });
        settle(&disk);
        until("the bytes are let go", || kept.strong_count() == 0);
    }

    #[test]
    fn a_bad_byte_and_a_full_disk_are_errors() {
        let rig = Rig::new("simulated:eio_at=5000,enospc_at=10000");
        let disk = rig.disk();
        let file = create(&disk, &rig.spool());
        let errno = |offset, len| {
            let error = try_write(&disk, &file, offset, len).unwrap_err();
            error.raw_os_error()
        };
        try_write(&disk, &file, 0, 5000).unwrap();
        assert_eq!(errno(4000, 1001), Some(libc::EIO));
        try_write(&disk, &file, 5001, 4999).unwrap();
        assert_eq!(errno(5001, 5000), Some(libc::ENOSPC));
        assert_eq!(errno(20_000, 1), Some(libc::ENOSPC));
        let append = |len| {
            let error = try_append(&disk, &file, &pattern(0, len)).unwrap_err();
            error.raw_os_error()
        };
        assert_eq!(append(1), Some(libc::ENOSPC));
        assert_eq!(append(1), Some(libc::ENOSPC));
        let short = create(&disk, &rig.spool());
        let error = try_append(&disk, &short, &pattern(0, 5001)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(try_append(&disk, &short, &pattern(0, 5000)).unwrap(), 0);
        assert_eq!(read(&disk, &file, 5001, 9999), pattern(5001, 4999));
        let write = submit(&disk, write_op(&file, 0, 10), Class::First);
        assert_eq!(write.result().unwrap(), 10);
    }
}

/// Tests that affect the whole process, in a process of their own.
mod alone {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Command, Output};

    use levity_disk::engine;
    use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

    use crate::harness::*;

    /// Selects the task of the child process.
    const TASK: &str = "LEVITY_CONTRACT_TASK";

    fn in_another_process(task: &str, folder: &Path) -> Output {
        let name = "writing::alone::in_a_process_of_its_own";
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(TASK, task)
            .env("TMPDIR", folder)
            .output()
            .unwrap()
    }

    #[test]
    #[ignore = "run by the others"]
    fn in_a_process_of_its_own() {
        // `--include-ignored` runs it too.
        let Ok(task) = std::env::var(TASK) else {
            return;
        };
        match &*task {
            "limit" => for_engines(beyond_the_limit),
            "kill" => for_engines(killed),
            task => panic!("nobody knows how to {task}"),
        }
    }

    fn for_engines(case: fn(&Rig)) {
        let shown = engine::ENGINES.iter().filter(|engine| !engine.hidden);
        shown.for_each(|engine| run(engine.name, case));
    }

    /// The signal that comes with EFBIG would end the process.
    #[test]
    fn a_limit_on_sizes_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        let output = in_another_process("limit", tree.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
    }

    fn beyond_the_limit(rig: &Rig) {
        let disk = rig.disk();
        let file = create(&disk, &rig.spool());
        let limit = getrlimit(Resource::Fsize);
        let current = Some(150_000);
        setrlimit(Resource::Fsize, Rlimit { current, ..limit }).unwrap();
        try_write(&disk, &file, 0, 100_000).unwrap();
        for offset in [100_000, 150_000, 1 << 30] {
            let error = try_write(&disk, &file, offset, 100_000).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        }
        // The first half fits; the next append gets the same range.
        let error = try_append(&disk, &file, &[7; 100_000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        assert_eq!(try_append(&disk, &file, &[8; 50_000]).unwrap(), 100_000);
        assert_eq!(read(&disk, &file, 100_000, 60_000), [8; 50_000]);
        assert_eq!(read(&disk, &file, 0, 100_000), pattern(0, 100_000));
        setrlimit(Resource::Fsize, limit).unwrap();
    }

    #[test]
    fn nothing_is_left_of_a_process_that_is_killed() {
        let tree = tempfile::tempdir().unwrap();
        let output = in_another_process("kill", tree.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{stderr}");
        let beneath = fs::read_dir(tree.path()).unwrap();
        let folder = beneath.map(|entry| entry.unwrap().path()).next().unwrap();
        let left: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Kills the process while pages are not written back.
    fn killed(rig: &Rig) {
        let disk = rig.disk();
        let spool = rig.spool();
        let files = [(); 5].map(|()| create(&disk, &spool));
        for file in &files {
            try_write(&disk, file, 0, 200_000).unwrap();
        }
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}
