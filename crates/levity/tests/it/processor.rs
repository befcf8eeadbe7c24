//! Processors: which threads get one first, as the kernel tells of a running server, and loops that wait for one.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::support::{
    Client, Launch, Server, Tree, WAIT_MAX, assert_same, head, per_engine, wait_until,
};

const DISK_NICE: i32 = 12;
const LOOP_SLICE: Duration = Duration::from_micros(100);

const LARGE: usize = 3_000_001;

struct Thread {
    id: rustix::process::Pid,
    name: String,
    nice: i32,
    /// None where the kernel does not tell.
    slice: Option<Duration>,
}

impl Thread {
    /// One that works for a disk, or computes. The watcher only tells loops of changes.
    fn is_behind_loops(&self) -> bool {
        let works = |kind| self.name.starts_with(kind) && self.name != "disk-watch";
        works("disk") || works("compute")
    }
}

/// None for a thread that has ended.
fn thread(task: PathBuf) -> Option<Thread> {
    let read = |name: &str| fs::read_to_string(task.join(name)).ok();
    let stat = read("stat")?;
    // proc_pid_stat(5): the name may hold anything, and nice is the 17th field behind it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let id = task.file_name()?.to_str()?.parse().ok()?;
    Some(Thread {
        id: rustix::process::Pid::from_raw(id)?,
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

/// The first loop. A thread gets its name after it was started, perhaps later than the server says that it serves.
fn worker_of(server: &Server) -> Thread {
    let mut worker = None;
    wait_until("a loop runs", || {
        let mut threads = threads_of(server).into_iter();
        worker = threads.find(|thread| thread.name == "worker-0");
        worker.is_some()
    });
    worker.expect("it was found")
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
            let mut behind = threads.iter().filter(|thread| thread.is_behind_loops());
            behind.clone().count() > 0 && behind.all(|thread| thread.nice == disk_nice)
        });
        let threads = threads_of(&server);
        let mut others = threads.iter().filter(|thread| !thread.is_behind_loops());
        assert!(others.all(|thread| thread.nice == own_nice()));
        if let (Some(slice), true) = (worker_of(&server).slice, kernel_takes_a_slice()) {
            assert_eq!(slice, LOOP_SLICE);
        }
    }
}

/// Ends the threads that watch it, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Occupies one processor until `stop` is set, for as long as a test may wait at most.
fn occupy(processor: CpuSet, stop: &AtomicBool) {
    let began = Instant::now();
    sched_setaffinity(None, &processor).expect("a processor that this process may use");
    while !stop.load(Ordering::Relaxed) && began.elapsed() < WAIT_MAX {
        std::hint::spin_loop();
    }
}

/// Keeps a loop busy until `stop` is set. The requests are long, so that the log is not.
fn request(mut client: Client, stop: &AtomicBool) {
    const BATCH: usize = 20;
    let filler = "x".repeat(100);
    let headers: Vec<_> = (0..60).map(|_| ("X-Filler", filler.as_str())).collect();
    let batch = head("GET", "/small", &headers).repeat(BATCH);
    while !stop.load(Ordering::Relaxed) {
        client.send(&batch);
        (0..BATCH).for_each(|_| client.receive().assert_status(200));
    }
}

fn status(server: &Server) -> Value {
    let answer = Client::unix(&server.own("admin")).get("/status.json");
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Three threads spin on the processor that the only loop may use.
#[cfg(feature = "inspect")]
#[test]
fn a_loop_that_waits_for_a_processor_is_reported() {
    let tree = Tree::new();
    tree.file("small", "x");
    let tables = "[log]\naccess = \"{own}/log\"\nformat = \"json\"\ntiming = \"request\"\n\
                  [admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), tables, "").workers(1).start();
    let allowed = sched_getaffinity(None).expect("sched_getaffinity");
    let last = (0..CpuSet::MAX_CPU).rfind(|number| allowed.is_set(*number));
    let mut processor = CpuSet::new();
    processor.set(last.expect("a processor"));
    sched_setaffinity(Some(worker_of(&server).id), &processor).expect("sched_setaffinity");

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        (0..3).for_each(|_| drop(scope.spawn(|| occupy(processor, &stop))));
        for client in [server.client(), server.client()] {
            scope.spawn(|| request(client, &stop));
        }
        wait_until("the loop waits for a processor", || {
            let worker = &status(&server)["workers"][0];
            worker["run_queue_wait_percent"].as_u64() >= Some(10)
        });
        let address = format!("unix:{}", server.own("admin").display());
        let frame = Launch::levity(["top", "--once", &address]).ran().stdout;
        let mut rows = frame.lines().skip_while(|line| !line.contains("cpu wait"));
        let row = rows.nth(1).unwrap_or_else(|| panic!("{frame}"));
        assert!(row.ends_with(" %"), "{frame}");
        // Lines from before the loop had to wait are few.
        let log = server.own("log").display().to_string();
        wait_until("the log says so", || {
            let told = Launch::levity(["timing", "--json", &log]).ran().stdout;
            let told: Value = serde_json::from_str(&told).expect("JSON");
            let sentence = told["dominant"]["sentence"].as_str().expect("a sentence");
            sentence.contains("the event loops waited for a processor")
        });
    });
}
