//! Which threads get a processor first, as the kernel tells of a running server.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Launch, Server, Tree, assert_same, per_engine, wait_until};

const DISK_NICE: i32 = 10;
const LOOP_SLICE: Duration = Duration::from_micros(100);

const LARGE: usize = 3_000_001;

struct Thread {
    name: String,
    nice: i32,
    /// None where the kernel does not tell.
    slice: Option<Duration>,
}

impl Thread {
    /// One that works for a disk. The watcher only tells loops of changes.
    fn is_of_a_disk(&self) -> bool {
        self.name.starts_with("disk") && self.name != "disk-watch"
    }
}

/// None for a thread that has ended.
fn thread(task: PathBuf) -> Option<Thread> {
    let read = |name: &str| fs::read_to_string(task.join(name)).ok();
    let stat = read("stat")?;
    // proc_pid_stat(5): the name may hold anything, and nice is the 17th field behind it.
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(Thread {
        name: read("comm")?.trim().to_owned(),
        nice: fields.split(' ').nth(16)?.parse().ok()?,
        slice: read("sched").as_deref().and_then(slice),
    })
}

fn slice(sched: &str) -> Option<Duration> {
    let line = sched.lines().find(|line| line.starts_with("se.slice"))?;
    let ns = line.rsplit(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

fn threads_of(server: &Server) -> Vec<Thread> {
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    let tasks = fs::read_dir(tasks).expect("a running process");
    tasks.filter_map(|task| thread(task.ok()?.path())).collect()
}

fn own_nice() -> i32 {
    rustix::process::getpriority_process(None).expect("getpriority")
}

/// Linux 6.12 and later: `sched_setattr` takes a slice.
fn kernel_takes_a_slice() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

per_engine! {
    /// Loops before the threads that read for them, and those as they were started.
    fn loops_come_before_disk_threads(engine) {
        let tree = Tree::new();
        let content = tree.filled("large", LARGE);
        let server = Launch::site(tree.path(), "", "").engine(engine).workers(1).start();
        tree.evict("large");
        assert_same(&server.get("/large").body, &content);
        let disk_nice = (own_nice() + DISK_NICE).min(19);
        // A thread lowers its priority itself, as soon as it runs.
        wait_until("disk threads have a lower priority", || {
            let threads = threads_of(&server);
            let mut of_disks = threads.iter().filter(|thread| thread.is_of_a_disk());
            of_disks.clone().count() > 0 && of_disks.all(|thread| thread.nice == disk_nice)
        });
        let threads = threads_of(&server);
        let mut others = threads.iter().filter(|thread| !thread.is_of_a_disk());
        assert!(others.all(|thread| thread.nice == own_nice()));
        let worker = threads.iter().find(|thread| thread.name == "worker-0").expect("a worker");
        if let (Some(slice), true) = (worker.slice, kernel_takes_a_slice()) {
            assert_eq!(slice, LOOP_SLICE);
        }
    }
}
