//! Backends that restart under load.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Answer, Cut, Launch, Server, head, pass, wait_until};

const LIFE: Duration = Duration::from_millis(200);
/// The time without a listener between two runs of a backend.
const DEATH: Duration = Duration::from_millis(30);
const TIME: Duration = Duration::from_secs(4);

/// The maximum number of attempts at a request: the first one and `retries`.
const ATTEMPTS_MAX: usize = 3;

/// The number of arrivals of each request, by method and ID.
type Arrived = Arc<Mutex<HashMap<(String, String), usize>>>;

/// Responds with the target of the request and a body of some length.
fn echo(conn: &mut Conn, arrived: &Arrived) {
    while let Some(request) = conn.read_request() {
        let id = (request.method.clone(), request.target.clone());
        *arrived.lock().expect("a lock").entry(id).or_default() += 1;
        let more = "x".repeat(request.target.len() * 50);
        conn.answer("200 OK", format!("{} {more}", request.target));
    }
}

/// Restarts repeatedly at the same address; each time connections are reset.
fn restart(listener: TcpListener, arrived: &Arrived, ends: &AtomicBool) {
    let mut listener = Some(listener);
    let address = listener
        .as_ref()
        .and_then(|one| one.local_addr().ok())
        .expect("an address");
    while !ends.load(Ordering::Relaxed) {
        let listener = listener.take().unwrap_or_else(|| bind_again(address));
        let arrived = arrived.clone();
        let backend = Scripted::on(listener, move |conn| {
            conn.reset();
            echo(conn, &arrived);
        });
        pass(LIFE);
        drop(backend);
        pass(DEATH);
    }
}

/// Retries: an outgoing connection may have got the port meanwhile.
fn bind_again(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    wait_until("the address is free", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.expect("it was bound")
}

/// The numbers of responses.
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

    /// Asserts that most requests succeeded, no POST arrived twice, and no request more often than the maximum number
    /// of attempts.
    #[track_caller]
    fn are_sound(&self, clients: usize, arrived: &Arrived) {
        eprintln!("right, errors, errors of GET, cut: {:?}", self.count());
        assert!(self.count().0 > clients, "{:?}", self.count());
        let arrived = arrived.lock().expect("a lock");
        let posts = arrived.keys().filter(|(method, _)| method == "POST");
        assert!(posts.count() > 0);
        let bound = |method: &str| match method {
            "POST" => 1,
            _ => ATTEMPTS_MAX,
        };
        let doubled: Vec<_> = arrived
            .iter()
            .filter(|((method, _), times)| **times > bound(method))
            .collect();
        assert!(doubled.is_empty(), "{doubled:?}");
    }
}

/// Sends requests until the time is up. Each has an ID of its own.
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
            // A truncated body never looks complete.
            Err(Cut::Closed(Some(_))) => {
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
            // After an immediate refusal, do not retry in a busy loop.
            pass(Duration::from_millis(5));
        }
        _ => panic!("{id}: {answer:?}"),
    }
}

/// Runs clients against a backend that restarts all the time and, if given, a `steady` one. Returns the responses and
/// the arrivals.
fn under_load(clients: usize, steady: bool) -> (Seen, Arrived) {
    let (arrived, seen, ends) = (Arrived::default(), Seen::default(), AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut to = listener.local_addr().expect("an address").to_string();
    let steady = steady.then(|| {
        let arrived = arrived.clone();
        Scripted::tcp(move |conn| echo(conn, &arrived))
    });
    if let Some(steady) = &steady {
        to = format!("{to},{}", steady.address());
    }
    let more = format!(
        "connections = 5\nfail_for = \"50ms\"\nretry.times = {}\nqueue = {}",
        ATTEMPTS_MAX - 1,
        2 * clients
    );
    let server = Launch::proxy(&to, &more).workers(2).start();
    thread::scope(|scope| {
        scope.spawn(|| restart(listener, &arrived, &ends));
        for number in 0..clients {
            let (server, seen, ends) = (&server, &seen, &ends);
            scope.spawn(move || client(server, number, seen, ends));
        }
        pass(TIME);
        ends.store(true, Ordering::Relaxed);
    });
    (seen, arrived)
}

#[test]
fn every_client_gets_its_own_response_or_an_error() {
    const CLIENTS: usize = 200;
    let (seen, arrived) = under_load(CLIENTS, false);
    seen.are_sound(CLIENTS, &arrived);
    assert!(seen.count().1 > 0, "nothing went wrong: {:?}", seen.count());
}

#[test]
fn no_request_fails_that_another_backend_can_serve() {
    const CLIENTS: usize = 1000;
    let (seen, arrived) = under_load(CLIENTS, true);
    seen.are_sound(CLIENTS, &arrived);
    let (_, errors, of_get, cut) = seen.count();
    assert_eq!((of_get, cut), (0, 0), "{:?}", seen.count());
    let arrived = arrived.lock().expect("a lock");
    let again = arrived.values().filter(|times| **times > 1).count();
    assert!(
        again + errors > 0,
        "nothing was in hand when a backend ended"
    );
}
