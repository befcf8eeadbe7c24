//! The promise itself, on a disk that is slow, on one that does not answer and on one that fails: what is in
//! memory is served as if there were no disk. A suite of its own, because its tests run one at a time.

#[path = "../../../levity-mailbox/tests/servers/mod.rs"]
#[allow(dead_code, reason = "the suites of stores use more of it")]
mod servers;
#[path = "../it/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the other suite needs the rest"
)]
mod support;

mod applications;
mod failing;
mod mounts;
mod rig;
#[cfg(feature = "tls")]
mod starts;
mod uploads;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig::SlowDisk;
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use support::{
    Client, Launch, Metrics, Server, Tree, assert_same, content, pass,
    per_engine_that_waits_elsewhere, wait_until,
};

const COLD_FILES: usize = 300;
const COLD_BYTES: usize = 100_001;
const COLD_CLIENTS: usize = 50;

/// Read in many chunks.
const STREAM_BYTES: usize = 8_000_000;

/// A hot request may have to wait for the processor, which the tests of a busy machine share; what it
/// must not wait for is the disk.
const HOT_MAX: Duration = Duration::from_millis(250);
const HOT_P99_MAX: Duration = Duration::from_millis(50);
/// A server that waits for the disk lets a hot request wait for several reads, of 5 ms each.
const BASELINE_MIN: Duration = Duration::from_millis(20);

/// Waits of `readahead` while 32 MB are sent. Of 190 runs, three had one or two.
const LEAKS_MAX: f64 = 4.0;

/// A loop that sleeps longer than this slept where it should not.
const STALL_MAX_SECONDS: f64 = 0.005;

/// In bytes: more than the first chunk of a file, and less than a mebibyte.
const SMALL_BYTES: usize = 900_000;

/// To find a file on the disk: its folder, and what the file system knows of it.
const METADATA_READS_MAX: u64 = 4;

fn fill(tree: &Tree) {
    for number in 1..=3 {
        tree.file(format!("small/{number}"), content(number, SMALL_BYTES));
    }
    tree.filled("hot", 4096);
    tree.file("stream", content(0, STREAM_BYTES));
    for number in 1..=COLD_FILES {
        tree.file(format!("cold/{number}"), content(number as u64, COLD_BYTES));
    }
}

/// A server with one loop on a disk of which nothing but the file `hot` is in memory.
fn server(disk: &SlowDisk, engine: &str) -> Server {
    server_with(disk, engine, "")
}

/// The same, where the disk will be frozen: who waits for it is told so soon. Not for tests of a disk that is only slow:
/// on a busy machine its threads may wait for a processor for longer than this.
fn server_that_gives_up(disk: &SlowDisk, engine: &str) -> Server {
    server_with(disk, engine, "[limits]\nio_timeout = \"1s\"\n")
}

/// The same, with these tables in its configuration.
fn server_with(disk: &SlowDisk, engine: &str, tables: &str) -> Server {
    server_of(&disk.path(), engine, tables, "")
}

/// A server with one loop that has the file `hot` of `root` in memory.
fn server_of(root: &Path, engine: &str, tables: &str, keys: &str) -> Server {
    let own = "[log]\naccess = \"off\"\n[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(root, &format!("{tables}{own}"), keys)
        .engine(engine)
        .workers(1)
        .start();
    wait_until("the hot file is in memory", || {
        server.get("/hot").assert_status(200);
        metrics(&server).sum("levity_responses_by_source_total{source=\"memory\"}") > 0.0
    });
    server
}

fn metrics(server: &Server) -> Metrics {
    server.metrics(&server.own("admin"))
}

/// Requests for the hot file, one after the other, until told to stop; how long each took.
fn hot_requests(server: &Server, over: &AtomicBool) -> Vec<Duration> {
    let expected = content(4096, 4096);
    let mut client = server.client();
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let start = Instant::now();
        let answer = client.get("/hot");
        times.push(start.elapsed());
        answer.assert_status(200);
        assert_same(&answer.body, &expected);
    }
    times.sort();
    times
}

/// Every cold file once, by many clients at a time, each byte compared.
fn cold_requests(server: &Server) {
    let next = AtomicUsize::new(1);
    thread::scope(|scope| {
        for _ in 0..COLD_CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > COLD_FILES {
                        break;
                    }
                    let answer = client.get(&format!("/cold/{number}"));
                    answer.assert_status(200);
                    assert_same(&answer.body, &content(number as u64, COLD_BYTES));
                }
            });
        }
    });
}

/// The times of hot requests while all the cold ones are under way.
fn hot_under_cold(server: &Server) -> Vec<Duration> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let hot = scope.spawn(|| hot_requests(server, &over));
        let cold = scope.spawn(|| cold_requests(server)).join();
        over.store(true, Ordering::Relaxed);
        cold.expect("cold requests");
        hot.join().expect("hot requests")
    })
}

fn stalls(server: &Server) -> f64 {
    metrics(server).above("levity_loop_stall_seconds", STALL_MAX_SECONDS)
}

per_engine_that_waits_elsewhere! {
    fn hot_under_cold(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let times = super::hot_under_cold(&server);
        let (p99, max) = (times[times.len() * 99 / 100], times[times.len() - 1]);
        println!("{engine}: {} hot requests, p99 {p99:?}, at most {max:?}", times.len());
        let metrics = metrics(&server);
        let cold = metrics.sum("levity_responses_by_source_total{source=\"disk\"}");
        assert!(cold >= COLD_FILES as f64, "only {cold} answers came from the disk");
        assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
        assert!(p99 < HOT_P99_MAX && max < HOT_MAX, "p99 {p99:?}, at most {max:?}");
    }

    fn a_cold_stream(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let got = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let body = server.get("/stream").body;
                    got.lock().expect("bodies").push(body);
                });
            }
        });
        let expected = content(0, STREAM_BYTES);
        for body in got.into_inner().expect("bodies") {
            assert_same(&body, &expected);
        }
        // Of pages that are in memory before they are sent, the kernel may still make one wait.
        let leaks = metrics(&server).sum("levity_sendfile_waits_total");
        let leaks_max = if engine == "readahead" { LEAKS_MAX } else { 0.0 };
        let stalls = stalls(&server);
        let is_right = stalls <= leaks.min(leaks_max);
        assert!(is_right, "{stalls} stalls, {leaks} waits: {}", server.stderr());
    }

    /// A file of less than a mebibyte is one trip, and the disk is asked for all of it at once; of one that is not wanted
    /// whole less is read.
    fn all_of_a_small_file_comes_with_its_open(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        // A check of the root would be a trip, too.
        let server = server_with(&disk, engine, "[disk]\nentry_ttl = \"1h\"\n");
        let trips = || metrics(&server).sum("levity_disk_service_seconds_count");
        let (before, reads) = (trips(), disk.reads());
        assert_same(&server.get("/small/1").body, &content(1, SMALL_BYTES));
        assert_eq!(trips() - before, 1.0);
        let (reads, max) = (disk.reads() - reads, disk.request_bytes_max());
        let reads_max = (SMALL_BYTES as u64).div_ceil(max) + METADATA_READS_MAX;
        assert!(reads <= reads_max, "{reads} reads, of up to {max} bytes each");
        for (number, field) in [(2, ("Range", "bytes=0-9")), (3, ("If-None-Match", "*"))] {
            let before = disk.read_bytes();
            let answer = server.get_with(&format!("/small/{number}"), &[field]);
            assert!(matches!(answer.status, 206 | 304), "{}", answer.status);
            let read = disk.read_bytes() - before;
            assert!(read < SMALL_BYTES as u64 / 2, "{read} bytes for {field:?}");
        }
    }

    /// However many ask for a file that is not in memory, the disk reads it about once.
    fn many_clients_of_one_cold_file(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server(&disk, engine);
        let before = disk.read_bytes();
        thread::scope(|scope| {
            for _ in 0..COLD_CLIENTS {
                scope.spawn(|| assert_same(&server.get("/stream").body, &content(0, STREAM_BYTES)));
            }
        });
        let read = disk.read_bytes() - before;
        println!("{engine}: {read} bytes read of a file of {STREAM_BYTES}");
        assert!(read < 2 * STREAM_BYTES as u64, "{read} bytes of a file of {STREAM_BYTES}");
    }

    /// A disk that does not answer at all: what needs it is given up in time, the rest goes on, and
    /// when it answers again so does the server.
    fn a_frozen_disk(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server_that_gives_up(&disk, engine);
        let frozen = disk.freeze();
        let mut waiting: Vec<_> = (1..=20).map(|number| ask_cold(&server, number)).collect();
        let over = AtomicBool::new(false);
        let times = thread::scope(|scope| {
            let hot = scope.spawn(|| hot_requests(&server, &over));
            for client in &mut waiting {
                let answer = client.receive();
                answer.assert_status(503);
                let seconds: u32 = answer.field("retry-after").parse().expect("seconds");
                assert!(seconds > 0);
            }
            over.store(true, Ordering::Relaxed);
            hot.join().expect("hot requests")
        });
        let max = times[times.len() - 1];
        assert!(max < HOT_MAX, "a hot request took {max:?}");
        assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
        drop(frozen);
        wait_until("it answers again", || server.get("/cold/21").status == 200);
        cold_requests(&server);
    }

    /// Long before a read is given up, a disk that answers nothing is known to be dead: who waits for it
    /// is told so, and who comes later does not wait.
    fn a_dead_disk(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server_with(&disk, engine, "[disk]\ndead_after = \"500ms\"\n");
        let frozen = disk.freeze();
        let mut waiting: Vec<_> = (1..=80).map(|number| ask_cold(&server, number)).collect();
        let over = AtomicBool::new(false);
        let times = thread::scope(|scope| {
            let hot = scope.spawn(|| hot_requests(&server, &over));
            for client in &mut waiting {
                let answer = client.receive();
                answer.assert_status(503);
                assert!(answer.field("retry-after").parse::<u32>().is_ok());
            }
            let start = Instant::now();
            for number in 81..=90 {
                server.get(&format!("/cold/{number}")).assert_status(503);
            }
            over.store(true, Ordering::Relaxed);
            let took = start.elapsed();
            assert!(took < 10 * HOT_MAX, "ten refusals took {took:?}");
            hot.join().expect("hot requests")
        });
        let max = times[times.len() - 1];
        assert!(max < HOT_MAX, "a hot request took {max:?}");
        assert_eq!(metrics(&server).sum("levity_disk_dead"), 1.0);
        assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
        drop(frozen);
        wait_until("it answers again", || server.get("/cold/91").status == 200);
        cold_requests(&server);
        assert_eq!(metrics(&server).sum("levity_disk_dead"), 0.0);
    }

    fn an_application_is_free_before_the_disk_is_asked(engine) {
        applications::are_free_before_the_disk_is_asked(engine);
    }

    fn uploads_to_a_frozen_mount(engine) {
        uploads::to_a_frozen_mount(engine);
    }

    fn changes_of_names_on_a_frozen_mount(engine) {
        uploads::changes_of_names_on_a_frozen_mount(engine);
    }

    /// A transfer that the disk holds up in the middle is not completed by other means.
    fn frozen_under_a_transfer(engine) {
        let Some(disk) = SlowDisk::with(fill) else { return };
        let server = server_that_gives_up(&disk, engine);
        let mut client = Client::narrow(server.address());
        client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.receive_head().expect("a head").assert_status(200);
        let frozen = disk.freeze();
        let got = client.read_to_end().body();
        drop(frozen);
        assert!(got.len() < STREAM_BYTES, "all of it came from a frozen disk");
        assert_same(&got, &content(0, STREAM_BYTES)[..got.len()]);
        assert_same(&server.get("/stream").body, &content(0, STREAM_BYTES));
    }
}

/// Pages that the kernel lets go of after a thread has brought them in, and before they are sent, make
/// the loop wait: that is what `readahead` leaks, and it is counted.
#[test]
fn what_readahead_leaks_is_counted() {
    const STEP: usize = 64 * 1024;
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    let server = server_with(
        &disk,
        "readahead",
        "[limits]\nio_timeout = \"1s\"\n[disk]\nchunk = \"4MiB\"\ndirect = \"never\"\n",
    );
    let stream = fs::File::open(disk.path().join("stream")).expect("stream");
    let waits = || metrics(&server).sum("levity_sendfile_waits_total");
    assert_eq!(waits(), 0.0);
    let mut client = Client::narrow(server.address());
    client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.receive_head().expect("a head").assert_status(200);
    let mut got = Vec::new();
    while got.len() + STEP < STREAM_BYTES {
        fadvise(&stream, 0, None, Advice::DontNeed).expect("fadvise");
        got.extend(client.read_exactly(STEP));
    }
    got.extend(client.read_exactly(STREAM_BYTES - got.len()));
    assert_same(&got, &content(0, STREAM_BYTES));
    assert!(waits() > 0.0, "no wait was counted");
}

fn ask_cold(server: &Server, number: usize) -> Client {
    let mut client = server.client();
    client.send(format!(
        "GET /cold/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    client
}

#[test]
fn a_frozen_disk_does_not_keep_it_from_ending() {
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    let mut server = server_that_gives_up(&disk, "auto");
    server.client().head("/cold/7").assert_status(200);
    let frozen = disk.freeze();
    server.get("/cold/7").assert_status(503);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    drop(frozen);
}

/// A reload looks at the disk, and that may take for ever; the server must still hear what it is told.
#[test]
fn a_reload_on_a_frozen_disk_does_not_deafen_it() {
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    let mut server = server_that_gives_up(&disk, "auto");
    drop_caches();
    let frozen = disk.freeze();
    server.signal(Signal::HUP);
    assert_eq!(server.get("/hot").status, 200);
    server.signal(Signal::TERM);
    wait_until("it no longer listens", || {
        std::net::TcpStream::connect(server.address()).is_err()
    });
    // The kernel ends no process while a thread of it waits for a block of a directory.
    drop(frozen);
    assert_eq!(server.wait().code(), Some(0));
}

fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("root's rights");
}

/// Memory is short: the kernel forgets whatever it may. What is served all the time must not be among
/// that, or a disk that freezes takes it down as soon as it is looked up again.
#[test]
fn what_is_hot_is_not_forgotten() {
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    let server = server_that_gives_up(&disk, "auto");
    drop_caches();
    let frozen = disk.freeze();
    let over = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let hot = scope.spawn(|| hot_requests(&server, &over));
        // Longer than an entry is trusted.
        pass(Duration::from_millis(2500));
        over.store(true, Ordering::Relaxed);
        hot.join().expect("hot requests")
    });
    drop(frozen);
    assert!(
        times[times.len() - 1] < HOT_MAX,
        "{:?}",
        times[times.len() - 1]
    );
    assert_eq!(stalls(&server), 0.0, "the loop slept: {}", server.stderr());
}

/// The test of the tests: an engine that waits on the loop must be seen to.
#[test]
fn the_baseline_stalls() {
    let Some(disk) = SlowDisk::with(fill) else {
        return;
    };
    let server = server(&disk, "sendfile");
    let times = hot_under_cold(&server);
    let max = times[times.len() - 1];
    println!("sendfile: {} hot requests, at most {max:?}", times.len());
    assert!(
        stalls(&server) > 0.0,
        "the stalls were not recorded; a hot request took {max:?}"
    );
    assert!(
        max > BASELINE_MIN,
        "the disk is not slow: a hot request took at most {max:?}"
    );
}
