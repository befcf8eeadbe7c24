//! Where the time of a request goes: log fields, `Server-Timing`, histograms, and `levity timing`.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::scripted::Scripted;
use crate::support::{Launch, Ran, Server, Tree, head, pass, per_engine, wait_until};

/// The steps that a request for a file takes, as the log and the metrics name them.
const STEPS: [&str; 6] = ["parse", "route", "resolve", "respond", "filter", "send"];

/// A server that writes JSON lines with `timing` to a file of its own.
fn logging(tree: &Tree, engine: &str, timing: &str) -> Server {
    let tables = format!(
        "[log]\naccess = \"{{own}}/log\"\nformat = \"json\"\ntiming = \"{timing}\"\n\
         [admin]\nlisten = \"unix:{{own}}/admin\"\n"
    );
    // One worker, so that lines are in the order of the requests.
    Launch::site(tree.path(), &tables, "")
        .engine(engine)
        .workers(1)
        .start()
}

/// Waits until the log has `count` lines.
#[track_caller]
fn lines(server: &Server, count: usize) -> Vec<Value> {
    let mut lines = Vec::new();
    wait_until("lines in the log", || {
        let text = std::fs::read_to_string(server.own("log")).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.len() >= count
    });
    assert_eq!(lines.len(), count, "{lines:?}");
    let parsed = lines.iter().map(|line| serde_json::from_str(line));
    parsed.map(|line| line.expect("JSON")).collect()
}

fn us(line: &Value, key: &str) -> f64 {
    let value = line["timing_us"][key].as_f64();
    value.unwrap_or_else(|| panic!("no {key}: {line}"))
}

/// What a chunk says: queued, read start, read end, write start, write end, bytes.
fn chunks(line: &Value) -> Vec<Vec<Option<u64>>> {
    let chunks = line["chunks_us"].as_array().expect("chunks");
    let of = |chunk: &Value| {
        let fields = chunk.as_array().expect("a chunk");
        assert_eq!(fields.len(), 6, "{line}");
        fields.iter().map(Value::as_u64).collect()
    };
    chunks.iter().map(of).collect()
}

per_engine! {
    fn steps_add_up(engine) {
        let tree = Tree::new();
        tree.filled("large", 3_000_000);
        let server = logging(&tree, engine, "request");
        tree.evict("large");
        let mut client = server.client();
        client.get("/large").assert_status(200);
        client.get("/none").assert_status(404);
        let lines = lines(&server, 2);
        for line in &lines {
            let steps: f64 = STEPS.iter().map(|step| line["timing_us"][step].as_f64().unwrap_or(0.0)).sum();
            let duration = line["dur"].as_f64().expect("dur") * 1e6;
            assert!((steps - duration).abs() < 2.0, "{steps} {duration}: {line}");
            assert!(line["chunks_us"].is_null(), "{line}");
        }
        let [large, none] = &lines[..] else { panic!("two lines") };
        assert!(us(large, "accept") > 0.0, "{large}");
        assert!(none["timing_us"]["accept"].is_null(), "not the first request: {none}");
        for step in STEPS {
            assert!(us(large, step) > 0.0, "{step}: {large}");
        }
        assert!(large["trips"].as_u64() > Some(0), "{large}");
        let disk = us(large, "queue") + us(large, "read");
        let waited = large["io_wait"].as_f64().expect("io_wait") * 1e6;
        assert!(disk > 0.0 && disk <= waited + 1.0, "{large}");
        assert!(us(large, "write") > 0.0 && us(large, "write") <= us(large, "send"), "{large}");
        if engine != "auto" {
            assert_eq!(large["engine"], engine);
        }
    }

    fn chunks_are_in_order(engine) {
        let tree = Tree::new();
        tree.filled("small", 5_000);
        tree.filled("large", 3_000_000);
        let server = logging(&tree, engine, "chunk");
        tree.evict("small");
        tree.evict("large");
        for path in ["/small", "/small", "/large"] {
            server.get(path).assert_status(200);
        }
        let lines = lines(&server, 3);
        for line in &lines {
            let chunks = chunks(line);
            let bytes: u64 = chunks.iter().filter(|chunk| chunk[4].is_some()).filter_map(|chunk| chunk[5]).sum();
            assert_eq!(Some(bytes), line["bytes"].as_u64(), "{line}");
            let duration = (line["dur"].as_f64().expect("dur") * 1e6).ceil() as u64;
            for chunk in &chunks {
                let moments: Vec<_> = chunk[..5].iter().flatten().copied().collect();
                assert!(moments.is_sorted() && !moments.is_empty(), "{line}");
                assert!(moments.iter().all(|moment| *moment <= duration), "{line}");
            }
            assert_eq!(line["chunks_omitted"], 0);
        }
        let of_large = chunks(&lines[2]);
        assert!(of_large.iter().any(|chunk| chunk.iter().all(Option::is_some)), "{}", lines[2]);
    }

    fn server_timing(engine) {
        let tree = Tree::new();
        tree.filled("large", 300_000);
        let route = "[[site.route]]\npath = \"/off/*\"\nstrip_prefix = \"/off\"\nserver_timing = false\n";
        let server = Launch::site(tree.path(), "", &format!("server_timing = true\n{route}"))
            .engine(engine)
            .start();
        let mut client = server.client();
        let mut names = Vec::new();
        // A loop that loses the processor in the middle of a look at the page cache finds what that has begun to read.
        wait_until("an engine has read it", || {
            tree.evict("large");
            client = server.client();
            let cold = client.get("/large");
            cold.assert_status(200);
            let metrics = metrics(cold.header("server-timing").expect("a field"));
            names = metrics.into_iter().map(|(name, _)| name).collect();
            names.len() > 6
        });
        assert_eq!(
            names,
            ["accept", "parse", "route", "resolve", "respond", "filter", "disk-queue", "disk-read"]
        );
        let again = client.get_with("/large", &[("Range", "bytes=0-9")]);
        again.assert_status(206);
        let again = again.header("server-timing").expect("a field").to_owned();
        assert!(again.starts_with("parse;dur="), "no longer the first request: {again}");
        assert!(client.get("/none").header("server-timing").is_some());
        assert!(client.get("/off/large").header("server-timing").is_none());
    }

    /// One piece is known to be the last before the header leaves, many are not.
    fn server_timing_of_filters(engine) {
        let tree = Tree::new();
        tree.file("small.txt", "some words\n".repeat(1_000));
        tree.file("large.txt", "some words\n".repeat(100_000));
        let server = Launch::site(tree.path(), "", "server_timing = true\ncompress = true\n")
            .engine(engine)
            .start();
        for path in ["/small.txt", "/large.txt"] {
            let answer = server.get_with(path, &[("Accept-Encoding", "br")]);
            assert_eq!(answer.field("content-encoding"), "br");
            let metrics = metrics(answer.field("server-timing"));
            let [.., (queue, _), (run, ms)] = &metrics[..] else { panic!("two metrics") };
            assert_eq!((&**queue, &**run), ("filter-queue", "filter-run"));
            assert!(*ms > 0.0, "{path}");
        }
    }
}

/// `name;dur=ms` separated by commas: what the field's grammar (W3C Server Timing, 3.1) has of it here.
fn metrics(field: &str) -> Vec<(String, f64)> {
    let metric = |text: &str| {
        let (name, ms) = text.split_once(";dur=").expect("a duration");
        let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        assert!(!name.is_empty() && name.bytes().all(token), "{field}");
        let ms: f64 = ms.parse().expect("a number");
        assert!(ms >= 0.0, "{field}");
        (name.to_owned(), ms)
    };
    field.split(", ").map(metric).collect()
}

#[test]
fn chunks_of_one_request_are_bounded() {
    let tree = Tree::new();
    tree.filled("large", 2_000_000);
    let tables = "[disk]\nchunk = \"4KiB\"\n[log]\naccess = \"{own}/log\"\nformat = \"json\"\ntiming = \"chunk\"\n";
    // This engine's reads are not in the page cache, as far as the probe knows.
    let server = Launch::site(tree.path(), tables, "")
        .engine("sendfile")
        .start();
    server.get("/large").assert_status(200);
    let line = &lines(&server, 1)[0];
    let noted = chunks(line).len() as u64;
    let trips = line["trips"].as_u64().expect("trips");
    assert!(noted <= 128, "{noted}");
    if trips > 128 {
        assert!(
            line["chunks_omitted"].as_u64() >= Some(trips - 128),
            "{line}"
        );
    }
}

#[test]
fn every_step_has_a_histogram() {
    let tree = Tree::new();
    tree.filled("small", 5_000);
    let server = logging(&tree, "auto", "off");
    let mut client = server.client();
    for _ in 0..3 {
        client.get("/small").assert_status(200);
    }
    let count = |step: &str| {
        let series = format!("levity_step_duration_seconds_count{{step=\"{step}\"}}");
        server.metrics(&server.own("admin")).sum(&series)
    };
    wait_until("all are counted", || count("send") == 3.0);
    // A request that comes before the loop has waited for events again has a time for the last step alone.
    for step in STEPS {
        let timed = count(step);
        assert!((1.0..=3.0).contains(&timed), "{step}: {timed}");
    }
    assert_eq!(count("accept"), 1.0, "one connection");
    let line = &lines(&server, 3)[0];
    assert!(line["timing_us"].is_null(), "{line}");
}

/// Clients that ask at once, each for a cold file of its own.
const CROWD: usize = 12;

/// A log of a crowd on a disk whose reads take some 30 ms, of which `depth` may be under way at once.
fn crowded(tree: &Tree, depth: usize, timing: &str) -> Server {
    let tables = format!(
        "[disk]\ndepth = {depth}\n[log]\naccess = \"{{own}}/log\"\nformat = \"json\"\ntiming = \"{timing}\"\n"
    );
    let server = Launch::site(tree.path(), &tables, "")
        .engine("simulated")
        .environment("LEVITY_SIMULATED", "delay_ms=60")
        .start();
    let names: Vec<_> = (0..CROWD).map(|number| format!("cold{number}")).collect();
    for name in &names {
        tree.filled(name, 100_000);
        tree.evict(name);
    }
    thread::scope(|scope| {
        for name in &names {
            let server = &server;
            scope.spawn(move || server.get(&format!("/{name}")).assert_status(200));
        }
    });
    lines(&server, CROWD);
    server
}

fn timing(arguments: &[&OsStr]) -> Ran {
    Launch::levity([OsStr::new("timing")])
        .arguments(arguments)
        .ran()
}

/// What `levity timing --json` says of a server's log.
#[track_caller]
fn told(server: &Server) -> Value {
    let ran = timing(&[server.own("log").as_os_str(), OsStr::new("--json")]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn mean_us(told: &Value, name: &str) -> f64 {
    let times = told["times"].as_array().expect("times");
    let row = times.iter().find(|row| row["name"] == name);
    let row = row.unwrap_or_else(|| panic!("no {name}: {told}"));
    row["mean_us"].as_f64().expect("a mean")
}

/// The client takes everything at once, and the application pauses within its response.
#[test]
fn waiting_for_more_of_a_response_is_no_write() {
    const PAUSE: Duration = Duration::from_millis(300);
    let app = Scripted::tcp(|conn| {
        if conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\none");
            conn.stall();
            conn.send(" two");
        }
    });
    let tables = "[log]\naccess = \"{own}/log\"\nformat = \"json\"\ntiming = \"request\"\n";
    let server = Launch::proxy(app.address(), tables).start();
    let mut client = server.client();
    client.send(head("GET", "/", &[]));
    client.read_through(b"one");
    pass(PAUSE);
    app.release();
    client.read_through(b" two");
    let line = &lines(&server, 1)[0];
    let pause = PAUSE.as_micros() as f64;
    assert!(us(line, "upstream") >= pause, "{line}");
    for key in ["send", "write"] {
        assert!(us(line, key) < pause, "{key}: {line}");
    }
    let steps = STEPS
        .iter()
        .chain(&["upstream"])
        .map(|step| line["timing_us"][step].as_f64());
    let sum: f64 = steps.flatten().sum();
    let dur = line["dur"].as_f64().expect("dur") * 1e6;
    assert!((sum - dur).abs() < 2.0, "{sum} {line}");
}

/// `levity timing` shares no code with the server: this holds the keys of the log to what it reads.
#[test]
fn every_time_in_the_log_is_read() {
    let tree = Tree::new();
    tree.filled("large", 3_000_000);
    let tables = "[log]\naccess = \"{own}/log\"\nformat = \"json\"\ntiming = \"chunk\"\n\
                  [[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\n";
    let route = "[[site.route]]\npath = \"/app\"\nproxy = \"app\"\n";
    let server = Launch::site(tree.path(), tables, route)
        .engine("threads")
        .start();
    tree.evict("large");
    let mut client = server.client();
    client.get("/large").assert_status(200);
    client.get("/app").assert_status(502);
    let lines = lines(&server, 2);
    let told = told(&server);
    assert_eq!(told["bad_lines"]["count"], 0, "{told}");
    let row = |name: &str| {
        let times = told["times"].as_array().expect("times");
        let row = times.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name}: {told}"))
    };
    let written = |key: &str| -> f64 {
        let times = lines.iter().map(|line| &line["timing_us"][key]);
        times.filter_map(Value::as_f64).sum()
    };
    for key in STEPS.iter().chain(&["accept", "queue", "read", "write"]) {
        let name = match *key {
            "queue" => "disk queue",
            "read" => "disk read",
            key => key,
        };
        let written = written(key);
        assert!(written > 0.0, "no {key}: {lines:?}");
        let read = row(name)["total_us"].as_f64().expect("a total");
        assert!((read - written).abs() < 0.01, "{key}: {read} {written}");
    }
    assert_eq!(row("upst. queue")["count"], 1);
    let trips = lines.iter().filter_map(|line| line["trips"].as_u64());
    assert_eq!(told["trips"], trips.sum::<u64>());
    let reads = lines
        .iter()
        .flat_map(chunks)
        .filter(|chunk| chunk[2].is_some());
    let levels = told["readers"].as_array().expect("levels").iter();
    let counted = levels.filter_map(|level| level["reads"].as_u64());
    assert_eq!(counted.sum::<u64>(), reads.count() as u64);
    assert!(has_engine(&told, "threads"), "{told}");
}

/// Whether some of the requests were answered by this engine.
fn has_engine(told: &Value, engine: &str) -> bool {
    let sources = told["sources"].as_array().expect("sources");
    sources.iter().any(|source| source["engine"] == engine)
}

/// The lesson of lighttpd's timing: too few readers show as queue wait, not as slow reads.
#[test]
fn too_few_readers_show_as_queue_wait() {
    for timing in ["request", "chunk"] {
        let tree = Tree::new();
        let few = told(&crowded(&tree, 1, timing));
        let enough = told(&crowded(&tree, 16, timing));
        assert_eq!(few["dominant"]["part"], "queue", "{few}");
        let sentence = few["dominant"]["sentence"].as_str().expect("a sentence");
        assert!(sentence.contains("Raise `disk.depth`"), "{sentence}");
        assert!(
            mean_us(&few, "disk queue") > 2.0 * mean_us(&few, "disk read"),
            "{few}"
        );
        assert_eq!(enough["dominant"]["part"], "read", "{enough}");
        assert!(
            mean_us(&enough, "disk queue") < mean_us(&enough, "disk read"),
            "{enough}"
        );
        let readers = |told: &Value| {
            told["readers"]
                .as_array()
                .and_then(|all| all.last().cloned())
        };
        match timing {
            "chunk" => assert_eq!(readers(&few).expect("readers")["in_flight_to"], 1, "{few}"),
            _ => assert_eq!(readers(&few), None),
        }
        assert_eq!(few["requests"], CROWD);
        // A file that could not be evicted is read from the page cache, without an engine.
        assert!(has_engine(&few, "simulated"), "{few}");
    }
}

/// The request that the disk leaves without an answer, by its own key, however short of processors the machine is.
#[test]
fn a_disk_that_does_not_answer_comes_first() {
    let tree = Tree::inside(Path::new("/dev/shm"));
    tree.filled("frozen", 200_000);
    let tables =
        "[limits]\nio_timeout = \"300ms\"\n[log]\naccess = \"{own}/log\"\nformat = \"json\"\n";
    for timing in ["", "timing = \"request\"\n"] {
        let server = Launch::site(tree.path(), &format!("{tables}{timing}"), "")
            .engine("simulated")
            .environment("LEVITY_SIMULATED", "freeze=frozen")
            .start();
        server.get("/frozen").assert_status(503);
        let line = &lines(&server, 1)[0];
        let given_up = line["io_given_up"].as_f64().expect("seconds");
        assert!(
            (0.3..=line["io_wait"].as_f64().expect("seconds")).contains(&given_up),
            "{line}"
        );
        let told = told(&server);
        assert_eq!(told["dominant"]["part"], "given_up", "{told}");
        assert!(
            (mean_us(&told, "given up") - given_up * 1e6).abs() < 1.0,
            "{told}"
        );
    }
}

/// The other half of it: too many readers only make each read slower.
#[test]
fn too_many_readers_show_as_slower_reads() {
    const FILES: usize = 4 * CROWD;
    // In memory, where only the simulated head takes time; and there every read is an engine's.
    let tree = Tree::inside(Path::new("/dev/shm"));
    let tables = "[disk]\ndepth = 16\n[log]\naccess = \"{own}/log\"\nformat = \"json\"\ntiming = \"chunk\"\n";
    let server = Launch::site(tree.path(), tables, "")
        .engine("simulated")
        .environment("LEVITY_SIMULATED", "delay_ms=0,seek_ms=8")
        .start();
    let get = |number| server.get(&format!("/file{number}")).assert_status(200);
    for number in 0..FILES {
        tree.filled(&format!("file{number}"), 100_000);
    }
    (0..FILES / 2).for_each(get);
    thread::scope(|scope| {
        for client in 0..CROWD {
            scope.spawn(move || (client * 4..client * 4 + 4).for_each(get));
        }
    });
    lines(&server, FILES + FILES / 2);
    let told = told(&server);
    assert_eq!(told["dominant"]["part"], "read", "{told}");
    let sentence = told["dominant"]["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.contains("lower `disk.depth` to"),
        "{sentence} {told}"
    );
}

#[test]
fn a_table_and_a_picture() {
    let tree = Tree::new();
    let server = crowded(&tree, 4, "chunk");
    let picture = server.own("timing.svg");
    let log = server.own("log");
    let ran = timing(&[log.as_os_str(), OsStr::new("--svg"), picture.as_os_str()]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with("12 requests in "), "{}", ran.stdout);
    for row in [
        "request",
        "resolve",
        "send",
        "disk queue",
        "disk read",
        "write",
        "in flight",
    ] {
        let is_there = ran.stdout.lines().any(|line| line.starts_with(row));
        assert!(is_there, "{row}: {}", ran.stdout);
    }
    let svg = std::fs::read_to_string(picture).expect("a picture");
    assert!(
        svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert_eq!(
        svg.matches("<path ").count(),
        3,
        "one for each of queue, read and write"
    );
}

#[test]
fn what_is_no_log_is_refused() {
    let tree = Tree::new();
    tree.filled("small", 100);
    let server = Launch::site(tree.path(), "[log]\naccess = \"{own}/log\"\n", "").start();
    server.get("/small").assert_status(200);
    let log = server.own("log");
    wait_until("a line", || {
        std::fs::metadata(&log).is_ok_and(|meta| meta.len() > 0)
    });
    let ran = timing(&[log.as_os_str()]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("combined format") && ran.stderr.contains("timing = \"chunk\""),
        "{}",
        ran.stderr
    );
    let ran = timing(&[OsStr::new("/none/at/all")]);
    assert!(
        ran.status == 1 && ran.stderr.starts_with("error: cannot read /none/at/all: "),
        "{}",
        ran.stderr
    );
    // Standard input is empty.
    let ran = timing(&[OsStr::new("-")]);
    assert!(
        ran.status == 1 && ran.stderr.contains("has no lines"),
        "{}",
        ran.stderr
    );
}
