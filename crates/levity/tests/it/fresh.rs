//! Files that change, between requests and under a transfer.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::{
    Answer, Client, Cut, Launch, Server, Tree, age, assert_same, content, per_engine, settle,
    wait_until, wait_within,
};

/// Kept in memory, and read from the file.
const SIZES: [usize; 2] = [5_000, 200_000];

/// Far more than the buffers of both sockets hold.
const LARGE: usize = 32_000_000;

/// The time to live of `levity run`, and what a busy machine may add.
const TTL_MAX: Duration = Duration::from_millis(1500);

fn write_in_place(path: &Path, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).expect("open");
    file.write_all(bytes).expect("write");
}

fn rename_over(tree: &Tree, name: &str, bytes: &[u8]) {
    let new = tree.fresh(format!("{name}.new"), bytes);
    fs::rename(new, tree.at(name)).expect("rename");
}

fn truncate(path: &Path, size: u64) {
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(size))
        .expect("truncate");
}

/// Rewrites a file by `change` while it is sent: what came by then is of the old version, and is not all.
#[track_caller]
fn changed_under_a_transfer(engine: &str, change: impl Fn(&Path)) {
    let tree = Tree::new();
    let bytes = tree.filled("large", LARGE);
    let server = Launch::serve(tree.path()).engine(engine).start();
    let mut client = reader_of_large(&server);
    change(&tree.at("large"));
    let got = client.read_to_end().body();
    assert!(got.len() < LARGE, "all of it came");
    assert_same(&got, &bytes[..got.len()]);
    server.says("cannot read /large: it was rewritten");
    server.get("/large").assert_status(200);
}

/// Runs `change` on a file that the server knows well, and expects to see it at once.
#[track_caller]
fn at_once(engine: &str, change: impl Fn(&Tree, &str, usize) -> Vec<u8>) {
    for size in SIZES {
        let tree = Tree::new();
        let old = tree.filled("file", size);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        assert_same(&client.get("/file").body, &old);
        let known = client.get("/file");
        let new = change(&tree, "file", size);
        let conditional = [("If-None-Match", known.field("etag"))];
        let answer = client.get_with("/file", &conditional);
        answer.assert_status(200);
        assert_same(&answer.body, &new);
        assert_same(&client.get("/file").body, &new);
    }
}

/// Changes the file, and gives its new content; `None` if it is gone.
type Changing = fn(&Tree, u64) -> Option<Vec<u8>>;

const CHANGES: [Changing; 5] = [
    |tree, round| {
        let new = content(round, 5_000);
        rename_over(tree, "file", &new);
        age(&tree.at("file"), Duration::from_secs(7200));
        Some(new)
    },
    |tree, round| {
        let new = content(round + 100, 5_000);
        write_in_place(&tree.at("file"), &new);
        age(&tree.at("file"), Duration::from_secs(7200));
        Some(new)
    },
    |tree, round| {
        truncate(&tree.at("file"), 2_000);
        age(&tree.at("file"), Duration::from_secs(7200));
        Some(content(round + 100, 5_000)[..2_000].to_vec())
    },
    |tree, _| {
        fs::remove_file(tree.at("file")).expect("unlink");
        None
    },
    |tree, round| {
        let new = content(round + 200, 5_000);
        tree.file("file", &new);
        Some(new)
    },
];

/// Asks for the file, four times at once, until the test is over.
fn ask_until(is_over: &AtomicBool, server: &Server) {
    let requests = "GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4);
    let mut client = server.client();
    while !is_over.load(Ordering::Relaxed) {
        client.send(&requests);
        for _ in 0..4 {
            match client.try_receive() {
                Ok(answer) => assert!(matches!(answer.status, 200 | 404), "{}", answer.status),
                // It was written to while it was sent.
                Err(_) => {
                    client = server.client();
                    break;
                }
            }
        }
    }
}

/// Ends the other clients, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader that has taken the head of a large file, and little more.
fn reader_of_large(server: &Server) -> Client {
    let mut client = Client::narrow(server.address());
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.receive_head().expect("a head");
    assert_eq!((head.status, head.length()), (200, Some(LARGE)));
    client
}

per_engine! {
    fn renamed_over(engine) {
        at_once(engine, |tree, name, size| {
            let new = content(1, size + 1);
            rename_over(tree, name, &new);
            new
        });
    }

    fn renamed_over_with_the_same_size_and_time(engine) {
        at_once(engine, |tree, name, size| {
            let new = content(1, size);
            rename_over(tree, name, &new);
            age(&tree.at(name), Duration::from_secs(7200));
            new
        });
    }

    fn rewritten_in_place(engine) {
        at_once(engine, |tree, name, size| {
            let new = content(1, size);
            write_in_place(&tree.at(name), &new);
            new
        });
    }

    fn truncated(engine) {
        at_once(engine, |tree, name, size| {
            truncate(&tree.at(name), size as u64 / 3);
            content(size as u64, size)[..size / 3].to_vec()
        });
    }

    fn grown(engine) {
        at_once(engine, |tree, name, size| {
            let mut new = content(size as u64, size);
            new.extend(content(2, 100_000));
            let mut file = File::options().append(true).open(tree.at(name)).expect("open");
            file.write_all(&new[size..]).expect("append");
            new
        });
    }

    fn removed_and_made_again(engine) {
        let tree = Tree::new();
        let old = tree.filled("file", 5_000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        assert_same(&server.get("/file").body, &old);
        fs::remove_file(tree.at("file")).expect("unlink");
        server.get("/file").assert_status(404);
        tree.file("file", "again");
        assert_eq!(server.get("/file").text(), "again");
    }

    /// While others ask for the same file all the time, so that requests share checks.
    fn among_other_requests(engine) {
        const OTHERS: usize = 6;
        const ROUNDS: u64 = 4;
        let tree = Tree::new();
        tree.filled("file", 5_000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..OTHERS {
                scope.spawn(|| ask_until(&is_over, &server));
            }
            let _over = Over(&is_over);
            let mut client = server.client();
            for round in 0..ROUNDS {
                for change in CHANGES {
                    // Only then it is kept in memory.
                    settle();
                    let new = change(&tree, round);
                    let answer = client.get("/file");
                    match new {
                        Some(new) => assert_same(&answer.body, &new),
                        None => answer.assert_status(404),
                    }
                }
            }
        });
    }

    /// Within the time to live the old version may be served, but only as it was.
    fn under_a_time_to_live(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let (old, new) = (tree.filled("file", size), content(1, size));
            let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"1s\"", "").engine(engine).start();
            let mut client = server.client();
            assert_same(&client.get("/file").body, &old);
            rename_over(&tree, "file", &new);
            wait_within(TTL_MAX, "the new version", || {
                let body = client.get("/file").body;
                assert!(body == old || body == new, "a mixture");
                body == new
            });
        }
    }

    fn in_place_under_a_time_to_live(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let (old, new) = (tree.filled("file", size), content(1, size));
            let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"1s\"", "").engine(engine).start();
            let mut client = server.client();
            assert_same(&client.get("/file").body, &old);
            write_in_place(&tree.at("file"), &new);
            wait_within(TTL_MAX, "the new version", || client.get("/file").body == new);
        }
    }

    fn absence_under_a_time_to_live(engine) {
        let tree = Tree::new();
        tree.file("file", "x");
        let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"1s\"", "").engine(engine).start();
        server.get("/file").assert_status(200);
        fs::remove_file(tree.at("file")).expect("unlink");
        wait_within(TTL_MAX, "absence", || server.get("/file").status == 404);
        tree.file("file", "again");
        wait_within(TTL_MAX, "presence", || server.get("/file").status == 200);
    }

    /// A file that shrinks while it is sent: the client is told by the end of the connection. What is missing is not
    /// made up, except that the kernel clears the end of the last page, which may wait in the send buffer.
    fn truncated_under_a_transfer(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        for left in [1_000_001, 0] {
            tree.file("large", &bytes);
            let mut client = reader_of_large(&server);
            truncate(&tree.at("large"), left);
            let got = client.read_to_end().body();
            assert!(got.len() < LARGE, "all of it came");
            let (kept, cleared) = got.split_at(got.len().min(left as usize));
            assert_same(kept, &bytes[..kept.len()]);
            let mut pairs = cleared.iter().zip(&bytes[kept.len()..]);
            assert!(pairs.all(|(&byte, old)| byte == 0 || byte == *old));
        }
        server.says("cannot read /large");
        server.get("/large").assert_status(200);
    }

    fn grown_under_a_transfer(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = reader_of_large(&server);
        let mut file = File::options().append(true).open(tree.at("large")).expect("open");
        file.write_all(&[7; 1_000_000]).expect("append");
        assert_same(&client.read_exactly(LARGE), &bytes);
        client.head("/large").assert_status(200);
    }

    /// A log that is written to all the time: each look at it finds another size and time.
    fn growing_under_a_transfer(engine) {
        const STEP: usize = 100_000;
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = reader_of_large(&server);
        let mut file = File::options().append(true).open(tree.at("large")).expect("open");
        for piece in bytes.chunks(STEP) {
            file.write_all(b"one more line\n").expect("append");
            assert_same(&client.read_exactly(piece.len()), piece);
        }
        client.head("/large").assert_status(200);
    }

    /// A write of much at once, or to a busy disk: the file has its new time some time before its new size.
    fn growing_slowly_under_a_transfer(engine) {
        const WRITE_TIME: Duration = Duration::from_millis(5);
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = reader_of_large(&server);
        let mut file = File::options().append(true).open(tree.at("large")).expect("open");
        let got = thread::scope(|scope| {
            let reader = scope.spawn(|| client.read_exactly(LARGE));
            while !reader.is_finished() {
                file.set_modified(SystemTime::now()).expect("utimes");
                thread::sleep(WRITE_TIME);
                file.write_all(b"one more line\n").expect("append");
                thread::sleep(WRITE_TIME);
            }
            reader.join().expect("all of it")
        });
        assert_same(&got, &bytes);
    }

    /// Longer than before, so that the size alone does not tell it from a log.
    fn rewritten_longer_under_a_transfer(engine) {
        changed_under_a_transfer(engine, |path| {
            fs::write(path, content(1, LARGE + 1_000_000)).expect("rewrite");
        });
    }

    fn rewritten_shorter_under_a_transfer(engine) {
        changed_under_a_transfer(engine, |path| {
            fs::write(path, content(1, LARGE - 1_000_000)).expect("rewrite");
        });
    }

    /// As `rsync --inplace --times` does it.
    fn rewritten_with_its_old_time_under_a_transfer(engine) {
        changed_under_a_transfer(engine, |path| {
            let time = fs::metadata(path).and_then(|meta| meta.modified()).expect("a time");
            fs::write(path, content(1, LARGE)).expect("rewrite");
            let file = File::options().write(true).open(path).expect("open");
            file.set_modified(time).expect("utimes");
        });
    }

    /// Only a part was asked for, and the file still has as many bytes as that part takes.
    fn shortened_behind_a_part(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = Client::narrow(server.address());
        let last = LARGE - 1_000_000;
        client.send(format!("GET /large HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-{last}\r\n\r\n"));
        client.receive_head().expect("a head").assert_status(206);
        truncate(&tree.at("large"), LARGE as u64 - 1000);
        let got = client.read_to_end().body();
        assert!(got.len() < last, "all of it came");
        assert_same(&got, &bytes[..got.len()]);
    }

    /// Another mode and another name change the time of change, and no byte.
    fn its_inode_changes_under_a_transfer(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = reader_of_large(&server);
        tree.chmod("large", 0o604);
        fs::hard_link(tree.at("large"), tree.at("other")).expect("link");
        assert_same(&client.read_exactly(LARGE), &bytes);
    }

    fn replaced_under_a_transfer(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("large", LARGE);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = reader_of_large(&server);
        rename_over(&tree, "large", &content(1, LARGE));
        assert_same(&client.read_exactly(LARGE), &bytes);
    }

    /// A kept descriptor reads the file as it is now: one ETag never names bytes of two versions.
    fn rewritten_within_the_time_to_live(engine) {
        let tree = Tree::new();
        let path = tree.file("file", vec![b'a'; 1_000_000]);
        let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"10s\"", "").engine(engine).start();
        let first = server.get_with("/file", &[("Range", "bytes=0-9")]);
        assert_same(&first.body, &[b'a'; 10]);
        std::fs::write(&path, vec![b'b'; 1_000_000]).expect("rewrite");
        let etag = first.field("etag").to_owned();
        let rest = server.get_with("/file", &[("Range", "bytes=10-19"), ("If-Range", &etag)]);
        assert_eq!((rest.status, rest.body.len()), (200, 1_000_000));
        assert!(rest.body.iter().all(|&byte| byte == b'b'));
    }

    /// The entry is trusted, but the file has shrunk: the old bytes from memory, or what there is now,
    /// an error or an end; never padding.
    fn truncated_within_the_time_to_live(engine) {
        for size in SIZES {
            let tree = Tree::new();
            let bytes = tree.filled("file", size);
            let server = Launch::site(tree.path(), "[disk]\nentry_ttl = \"10s\"", "").engine(engine).start();
            assert_same(&server.get("/file").body, &bytes);
            truncate(&tree.at("file"), 0);
            let mut client = server.client();
            client.send("GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n");
            match client.try_receive() {
                Ok(answer) if answer.status == 200 => {
                    assert!(answer.body.is_empty() || answer.body == bytes);
                }
                Ok(answer) => panic!("answered {}", answer.status),
                Err(cut) => assert_same(&[], &cut.body()),
            }
        }
    }
}

/// Only in a simulation can a disk be made to fail at a chosen byte.
fn failing_at(byte: u64) -> (Tree, Server) {
    let tree = Tree::new();
    let sizes = [5_000, 200_000, LARGE];
    for size in sizes {
        tree.filled(&size.to_string(), size);
    }
    let fault = format!("eio_at={byte}");
    let launch = Launch::serve(tree.path()).engine("simulated");
    let server = launch.environment("LEVITY_SIMULATED", &fault).start();
    // Not before: when it starts, the server reads a little to learn what the file system can do.
    for size in sizes {
        tree.evict(size.to_string());
    }
    (tree, server)
}

/// A server whose disk does not answer for the file `frozen`.
fn freezing() -> (Tree, Server) {
    let tree = Tree::new();
    tree.filled("hot", 5_000);
    tree.filled("frozen", 200_000);
    let limits = "[limits]\nio_timeout = \"300ms\"\n";
    let launch = Launch::site(tree.path(), limits, "").engine("simulated");
    let server = launch
        .environment("LEVITY_SIMULATED", "freeze=frozen")
        .start();
    (tree, server)
}

/// What a client gets who asks for that file, while another one does `meanwhile`. Read-ahead may be faster than
/// the loop, which then reads without the engine: so it asks until the engine freezes.
fn asked_for_frozen(tree: &Tree, server: &Server, meanwhile: impl Fn()) -> (Client, Answer) {
    let mut asked = None;
    wait_until("the engine is asked", || {
        tree.evict("frozen");
        let mut client = server.client();
        client.send("GET /frozen HTTP/1.1\r\nHost: localhost\r\n\r\n");
        meanwhile();
        let answer = client.receive();
        let is_frozen = answer.status != 200;
        asked = Some((client, answer));
        is_frozen
    });
    asked.expect("it was asked")
}

#[test]
fn a_failure_before_the_head_is_told_by_a_status() {
    let (_tree, server) = failing_at(100);
    let mut client = server.client();
    for path in ["/5000", "/200000", "/32000000"] {
        let answer = client.get(path);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (500, "500 Internal Server Error\n")
        );
        assert_eq!(answer.header("etag"), None);
    }
    server.says("cannot ");
    client.head("/5000").assert_status(200);
    client
        .get_with("/32000000", &[("Range", "bytes=31000000-31000009")])
        .assert_status(206);
}

#[test]
fn a_failure_after_the_head_ends_the_connection() {
    let (_tree, server) = failing_at(20_000_000);
    let mut client = server.client();
    client.send("GET /32000000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.receive_head().expect("a head").assert_status(200);
    let cut = client.read_to_end();
    // A reset would destroy what the client has not taken yet.
    assert!(matches!(cut, Cut::Closed(_)), "{cut:?}");
    let got = cut.body();
    assert!(
        (18_000_000..=20_000_000).contains(&got.len()),
        "{}",
        got.len()
    );
    assert_same(&got, &content(LARGE as u64, LARGE)[..got.len()]);
}

#[test]
fn a_frozen_file_is_given_up_and_others_are_served() {
    let (tree, server) = freezing();
    let is_served = |answer: Answer| assert_same(&answer.body, &content(5_000, 5_000));
    let (mut client, answer) = asked_for_frozen(&tree, &server, || is_served(server.get("/hot")));
    answer.assert_status(503);
    let seconds: u32 = answer.field("retry-after").parse().expect("seconds");
    assert!(seconds > 0);
    is_served(client.get("/hot"));
}

#[test]
fn a_server_with_a_frozen_disk_can_still_end() {
    let (tree, mut server) = freezing();
    let (_, answer) = asked_for_frozen(&tree, &server, || {});
    answer.assert_status(503);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_reload_closes_files_that_were_deleted() {
    let tree = Tree::new();
    tree.filled("file", 200_000);
    let server = Launch::site(tree.path(), "", "").start();
    server.get("/file").assert_status(200);
    fs::remove_file(tree.at("file")).expect("unlink");
    assert!(!server.open_files(tree.path()).is_empty(), "none is kept");
    server.signal(Signal::HUP);
    wait_until("it is closed", || server.open_files(tree.path()).is_empty());
}
