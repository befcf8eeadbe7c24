//! How often the server allocates for a request that it answers from memory. A binary of its own: it
//! replaces the allocator, and runs the server in its own process.

use std::alloc::System;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use levity::cli::{self, Step, Streams};
use rustix::process::{Signal, getpid, kill_process};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PLAIN: &[u8] = b"GET /hot HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n";
const LIMITED: &[u8] = b"GET /limited/hot HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n";
const REQUESTS: usize = 2000;

/// Per request, with the access log on. The number may only fall.
const ALLOCATIONS_MAX: usize = 1;

const START_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn a_request_from_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("root")).expect("a root");
    fs::write(path("root/hot"), [b'x'; 4096]).expect("a file");
    // What was written a moment ago may change without another time, and is not kept in memory.
    let file = fs::File::options().write(true).open(path("root/hot"));
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.and_then(|file| file.set_modified(past))
        .expect("a time");
    let config = format!(
        "[server]\nworkers = 1\n[log]\naccess = \"{0}/log\"\n[[listen]]\naddress = \"unix:{0}/socket\"\n\
         [[site]]\nroot = \"{0}/root\"\n[[site.route]]\npath = \"/limited/*\"\nstrip_prefix = \"/limited\"\n\
         limit = [{{ requests = \"1000000/s\" }}, {{ connections = 9 }}, {{ bytes = \"1TiB/s\" }}]\n",
        folder.path().display()
    );
    fs::write(path("levity.toml"), config).expect("a configuration");
    let (plan, early) = plan(&path("levity.toml"));
    let server = thread::spawn(|| levity::process::server::control::run(*plan, early));

    let mut client = connect(&path("socket"));
    let mut response = vec![0; 8192];
    let mut exchanges = |request: &[u8]| {
        for _ in 0..REQUESTS {
            exchange(&mut client, request, &mut response);
        }
    };
    let mut measured = |request| {
        exchanges(request);
        let region = Region::new(ALLOCATOR);
        exchanges(request);
        region.change()
    };
    let all = [PLAIN, LIMITED].map(&mut measured);
    kill_process(getpid(), Signal::TERM).expect("a signal to ourselves");
    server.join().expect("the server does not panic");
    for (stats, what) in all.iter().zip(["plain", "limited"]) {
        let allocations = (stats.allocations + stats.reallocations) / REQUESTS;
        assert!(
            allocations <= ALLOCATIONS_MAX,
            "{what}: {allocations} per request: {stats:?}"
        );
    }
}

fn plan(
    config: &Path,
) -> (
    Box<levity::process::plan::Plan>,
    levity::process::signals::EarlySignals,
) {
    let mut streams = Streams {
        out: &mut io::sink(),
        err: &mut io::stderr(),
        colour: false,
    };
    let args = ["levity", "run", "-c", config.to_str().expect("UTF-8")];
    match cli::step(args.map(Into::into), &mut streams) {
        Step::Serve(plan, early) => (plan, early),
        _ => panic!("the configuration is refused"),
    }
}

fn connect(socket: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < START_TIMEOUT, "{error}"),
        }
        thread::yield_now();
    }
}

/// Sends a request, and reads its response up to the end of the content. The length of the header may change: soon
/// after a change of the file its ETag is weak.
fn exchange(client: &mut UnixStream, request: &[u8], response: &mut [u8]) {
    client.write_all(request).expect("sent");
    let mut read = 0;
    while !response[..read].ends_with(&[b'x'; 4096]) {
        let count = client.read(&mut response[read..]).expect("received");
        assert_ne!(count, 0, "the server has closed the connection");
        read += count;
    }
    assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
}
