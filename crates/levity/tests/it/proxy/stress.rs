//! Backends that come and go under load.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Answer, Cut, Launch, Server, head, pass, wait_until};

const CLIENTS: usize = 200;
const LIFE: Duration = Duration::from_millis(200);
const TIME: Duration = Duration::from_secs(4);

/// How often each POST arrived.
type Posts = Arc<Mutex<HashMap<String, usize>>>;

/// Sends back what it was asked for, with a body of some length.
fn echo(conn: &mut Conn, posts: &Posts) {
    while let Some(request) = conn.read_request() {
        if request.method == "POST" {
            let mut posts = posts.lock().expect("a lock");
            *posts.entry(request.target.clone()).or_default() += 1;
        }
        let more = "x".repeat(request.target.len() * 50);
        conn.answer("200 OK", format!("{} {more}", request.target));
    }
}

/// Begins again and again at the same address; connections are reset each time.
fn restart(listener: TcpListener, posts: &Posts, ends: &AtomicBool) {
    let mut listener = Some(listener);
    let address = listener
        .as_ref()
        .and_then(|one| one.local_addr().ok())
        .expect("an address");
    while !ends.load(Ordering::Relaxed) {
        let listener = listener.take().unwrap_or_else(|| bind_again(address));
        let posts = posts.clone();
        let backend = Scripted::on(listener, move |conn| {
            conn.reset();
            echo(conn, &posts);
        });
        pass(LIFE);
        drop(backend);
    }
}

/// Somebody's connection may have been given the port meanwhile.
fn bind_again(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    wait_until("the address is free", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.expect("it was bound")
}

/// What the answers were.
#[derive(Default)]
struct Seen {
    right: AtomicUsize,
    errors: AtomicUsize,
    /// Of those, answers to GET.
    get_errors: AtomicUsize,
    cut: AtomicUsize,
}

impl Seen {
    fn count(&self) -> (usize, usize, usize, usize) {
        let count = |one: &AtomicUsize| one.load(Ordering::Relaxed);
        let (errors, of_get) = (count(&self.errors), count(&self.get_errors));
        (count(&self.right), errors, of_get, count(&self.cut))
    }

    /// Most clients got answers, and nobody's POST arrived twice.
    #[track_caller]
    fn are_sound(&self, posts: &Posts) {
        eprintln!("right, errors, errors of GET, cut: {:?}", self.count());
        assert!(self.count().0 > CLIENTS, "{:?}", self.count());
        let posts = posts.lock().expect("a lock");
        let twice: Vec<_> = posts.iter().filter(|(_, times)| **times > 1).collect();
        assert!(!posts.is_empty() && twice.is_empty(), "{twice:?}");
    }
}

/// Asks until the time is up; every request has an id of its own.
fn client(server: &Server, number: usize, seen: &Seen, ends: &AtomicBool) {
    let mut client = server.client();
    for count in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let method = if number.is_multiple_of(4) {
            "POST"
        } else {
            "GET"
        };
        let id = format!("/{number}/{count}");
        client.send(head(method, &id, &[]));
        match client.try_receive() {
            Ok(answer) => {
                check(&answer, method, &id, seen);
                if answer.closes() {
                    client = server.client();
                }
            }
            // A body that is cut is never taken for a whole one.
            Err(Cut::Reset(Some(_))) => {
                seen.cut.fetch_add(1, Ordering::Relaxed);
                client = server.client();
            }
            Err(cut) => panic!("{method} {id}: {cut:?}"),
        }
    }
}

#[track_caller]
fn check(answer: &Answer, method: &str, id: &str, seen: &Seen) {
    match answer.status {
        200 => {
            assert_eq!(answer.text().split(' ').next(), Some(id));
            seen.right.fetch_add(1, Ordering::Relaxed);
        }
        502..=504 => {
            assert!(answer.header("proxy-status").is_some(), "{answer:?}");
            seen.errors.fetch_add(1, Ordering::Relaxed);
            let of_get = usize::from(method == "GET");
            seen.get_errors.fetch_add(of_get, Ordering::Relaxed);
            // Who is refused at once need not ask again at once.
            pass(Duration::from_millis(5));
        }
        _ => panic!("{id}: {answer:?}"),
    }
}

/// What [`CLIENTS`] get of backends that restart one after the other, and what POSTs arrived.
fn under_load(backends: usize) -> (Seen, Posts) {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("bind");
    let listeners: Vec<_> = (0..backends).map(listen).collect();
    let address = |one: &TcpListener| one.local_addr().expect("an address").to_string();
    let to: Vec<_> = listeners.iter().map(address).collect();
    let more = "connections = 4\nfail_for = \"50ms\"";
    let server = Launch::proxy(&to.join(","), more).start();
    let (posts, seen, ends) = (Posts::default(), Seen::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for listener in listeners {
            scope.spawn(|| restart(listener, &posts, &ends));
            pass(LIFE / backends as u32);
        }
        for number in 0..CLIENTS {
            let (server, seen, ends) = (&server, &seen, &ends);
            scope.spawn(move || client(server, number, seen, ends));
        }
        pass(TIME);
        ends.store(true, Ordering::Relaxed);
    });
    (seen, posts)
}

#[test]
fn everybody_gets_an_own_and_honest_answer() {
    let (seen, posts) = under_load(1);
    seen.are_sound(&posts);
    assert!(seen.count().1 > 0, "nothing went wrong: {:?}", seen.count());
}

#[test]
fn another_backend_answers_in_place_of_one_that_restarts() {
    let (seen, posts) = under_load(2);
    seen.are_sound(&posts);
    // Few are so unlucky as to meet both, which do not restart at quite the same pace.
    let (right, _, gets, _) = seen.count();
    assert!(gets * 200 < right, "{:?}", seen.count());
}
