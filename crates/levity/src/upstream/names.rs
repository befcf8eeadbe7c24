//! Host names of backends: resolved at the start, and then repeatedly in a thread.
//!
//! `getaddrinfo` may block for any time, so neither an event loop nor another upstream waits for it. Each
//! upstream with names has a thread of its own, which ends when the upstream is dropped; nothing joins it.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::backend::Backend;
use levity_config::address::Address;
use levity_config::upstream::{self, At};
use levity_telemetry::diagnostics;

/// The maximum number of addresses per name; more are ignored.
pub const ADDRESSES_MAX: usize = 256;

/// The interval between attempts to resolve a name without addresses. It doubles with each attempt, up to
/// `resolve_interval`.
const RETRY: Duration = Duration::from_secs(1);

/// The least time between two attempts that someone [asks](Keeper::ask) for.
const ASKED_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The resolved backends of an upstream, replaced by its thread.
#[derive(Debug)]
pub struct Found {
    /// One per address.
    pub backends: ArcSwap<Vec<Arc<Backend>>>,
    /// Entries whose names have no address.
    pub unresolved: ArcSwap<Vec<Unresolved>>,
}

/// A backend without an address, because its name has not been resolved so far.
#[derive(Debug, Clone)]
pub struct Unresolved {
    /// Its settings in the configuration.
    pub settings: upstream::Backend,
    /// Its name and port as configured.
    pub name: String,
    /// The error of the resolver.
    pub reason: String,
}

/// Resolves a host, at this port. May block.
pub type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The resolver of the system. Blocks.
///
/// # Errors
/// When the name does not exist or the resolver fails.
pub fn system(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The entries of an upstream with their resolver.
pub struct Names {
    upstream: String,
    entries: Vec<Entry>,
    lookup: Arc<Lookup>,
}

/// One entry of `to`.
struct Entry {
    settings: upstream::Backend,
    /// Sorted, so that round-robin DNS does not change the order of backends.
    addresses: Vec<Address>,
    /// The error of the last attempt, as it was logged.
    trouble: Option<String>,
}

impl Names {
    /// Resolves every name of `settings` and logs failures. A name that cannot be resolved keeps its
    /// addresses among those `known`, if any. Blocks.
    pub fn look_up(
        settings: &levity_config::Upstream,
        known: &[Arc<Backend>],
        lookup: Arc<Lookup>,
    ) -> Self {
        let entry = |settings: &upstream::Backend| Entry {
            settings: settings.clone(),
            addresses: settings.at.address().map_or_else(
                || {
                    let same = known.iter().filter(|one| one.at == settings.at);
                    same.map(|one| one.address.clone()).collect()
                },
                |address| vec![address],
            ),
            trouble: None,
        };
        let mut names = Self {
            upstream: settings.name.clone(),
            entries: settings.to.iter().map(entry).collect(),
            lookup,
        };
        for entry in &mut names.entries {
            entry.refresh(&names.upstream, &names.lookup, |_moved| {});
        }
        names
    }

    /// Resolves every name again and logs what has changed; the same failure is logged once. A name that
    /// cannot be resolved keeps its addresses. True when addresses have changed. Blocks.
    fn refresh(&mut self) -> bool {
        let mut changed = false;
        for entry in &mut self.entries {
            entry.refresh(&self.upstream, &self.lookup, |moved| {
                log(&self.upstream, moved);
                changed = true;
            });
        }
        changed
    }

    /// Whether a name has no addresses.
    fn lacks_addresses(&self) -> bool {
        self.entries.iter().any(|entry| entry.addresses.is_empty())
    }

    /// The backends in the order of the configuration, one per address even if several names resolve to it.
    /// Backends that are `known` are kept with their health; others count as returned at `now`, for slow
    /// start.
    pub fn backends(&self, known: &[Arc<Backend>], now: Option<Instant>) -> Vec<Arc<Backend>> {
        let mut seen = HashSet::new();
        let make = |(address, settings): (&Address, &upstream::Backend)| {
            let new = Backend::new(address.clone(), settings);
            match known.iter().find(|known| known.id == new.id) {
                Some(known) if known.is_set_like(&new) => known.clone(),
                Some(known) => Arc::new(new.with_health_of(known)),
                None => {
                    now.into_iter().for_each(|now| new.mark_return(now));
                    Arc::new(new)
                }
            }
        };
        let entries = self.entries.iter();
        let addresses = entries.flat_map(|entry| {
            let addresses = entry.addresses.iter();
            addresses.map(|address| (address, &entry.settings))
        });
        addresses
            .map(make)
            .filter(|backend| seen.insert(backend.id))
            .collect()
    }

    /// Entries without an address, in the order of the configuration.
    pub fn unresolved(&self) -> Vec<Unresolved> {
        let unresolved = |entry: &Entry| match &entry.settings.at {
            At::Name(host, port) if entry.addresses.is_empty() => Some(Unresolved {
                settings: entry.settings.clone(),
                name: format!("{host}:{port}"),
                reason: entry.trouble.clone().unwrap_or_default(),
            }),
            _ => None,
        };
        self.entries.iter().filter_map(unresolved).collect()
    }

    fn has_names(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| matches!(entry.settings.at, At::Name(..)))
    }

    /// Keeps `found` up to date in a thread that ends when the [`Keeper`] is dropped. `None` when there are
    /// no names.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn keep(self, interval: Duration, found: Arc<Found>) -> io::Result<Option<Keeper>> {
        if !self.has_names() {
            return Ok(None);
        }
        let signals = Arc::<Signals>::default();
        let of_thread = signals.clone();
        let running = thread::Builder::new()
            .name("names".into())
            .spawn(move || self.run(interval, &found, &of_thread))?;
        Ok(Some(Keeper {
            signals,
            thread: running.thread().clone(),
        }))
    }

    fn run(mut self, interval: Duration, found: &Found, signals: &Signals) {
        let mut retry = RETRY;
        loop {
            let mut pause = interval;
            if self.lacks_addresses() {
                pause = retry.min(interval);
                retry = retry.saturating_mul(2);
            }
            if !signals.wait(pause) {
                return;
            }
            if self.refresh() {
                let new = self.backends(&found.backends.load(), Some(Instant::now()));
                found.backends.store(Arc::new(new));
            }
            found.unresolved.store(Arc::new(self.unresolved()));
        }
    }
}

impl Entry {
    /// Resolves the name, if the entry has one, and logs a changed result. Calls `moved` with a message when
    /// the addresses have changed.
    fn refresh(&mut self, upstream: &str, lookup: &Arc<Lookup>, moved: impl FnOnce(&str)) {
        let At::Name(host, port) = &self.settings.at else {
            return;
        };
        match addresses(lookup, host, *port) {
            Ok(new) => {
                if self.trouble.take().is_some() {
                    log(upstream, &format!("{host} resolves again"));
                }
                if new != self.addresses {
                    let list: Vec<_> = new.iter().map(Address::to_string).collect();
                    self.addresses = new;
                    moved(&format!("{host} now resolves to {}", list.join(", ")));
                }
            }
            Err(error) => {
                let trouble = Some(error.to_string());
                if self.trouble != trouble {
                    let outcome = match self.addresses.is_empty() {
                        true => "it gets no requests until it does",
                        false => "its last addresses stay in use",
                    };
                    log(upstream, &format!("{error}; {outcome}"));
                    self.trouble = trouble;
                }
            }
        }
    }
}

fn log(upstream: &str, message: &str) {
    diagnostics::log(format_args!("upstream {upstream}: {message}"));
}

/// The thread that resolves names. Dropping this ends the thread, and does not wait for it.
pub struct Keeper {
    signals: Arc<Signals>,
    thread: Thread,
}

impl Keeper {
    /// Asks for the names to be resolved now, or `ASKED_INTERVAL_MIN` after the last time. Takes no lock and does not wait.
    pub fn ask(&self) {
        if !self.signals.is_asked.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.signals.has_ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// What the thread is told.
#[derive(Debug, Default)]
struct Signals {
    is_asked: AtomicBool,
    has_ended: AtomicBool,
}

impl Signals {
    /// Waits for `pause`, or for [`ASKED_INTERVAL_MIN`] once someone has asked. False at the end.
    fn wait(&self, pause: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if self.has_ended.load(Ordering::Acquire) {
                return false;
            }
            let pause = match self.is_asked.load(Ordering::Acquire) {
                true => pause.min(ASKED_INTERVAL_MIN),
                false => pause,
            };
            let left = pause.saturating_sub(begun.elapsed());
            if left.is_zero() {
                // Whoever asks from now on may have failed at an address that is about to be found.
                self.is_asked.store(false, Ordering::Release);
                return true;
            }
            thread::park_timeout(left);
        }
    }
}

/// Sorted, without duplicates, and at most [`ADDRESSES_MAX`]. Never empty.
fn addresses(lookup: &Arc<Lookup>, host: &str, port: u16) -> io::Result<Vec<Address>> {
    let named = |error: io::Error| {
        let text = format!("{host} does not resolve: {error}");
        io::Error::new(error.kind(), text)
    };
    let mut found = lookup(host, port).map_err(named)?;
    found.sort_unstable();
    found.dedup();
    found.truncate(ADDRESSES_MAX);
    if found.is_empty() {
        let none = io::Error::new(io::ErrorKind::NotFound, "no addresses");
        return Err(named(none));
    }
    Ok(found.into_iter().map(Address::Tcp).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{self, RecvTimeoutError};

    use super::*;
    use crate::upstream::Upstream;
    use crate::upstream::tests::settings;

    const WAIT_MAX: Duration = Duration::from_secs(20);
    const TURN: Duration = Duration::from_millis(1);

    /// A name server with programmable responses that can also report queries.
    #[derive(Clone)]
    struct Server {
        result: Arc<Mutex<io::Result<Vec<SocketAddr>>>>,
        queried: mpsc::SyncSender<()>,
    }

    impl Server {
        fn new(result: &[&str]) -> (Self, mpsc::Receiver<()>) {
            let (queried, queries) = mpsc::sync_channel(0);
            let server = Self {
                result: Arc::new(Mutex::new(Ok(Vec::new()))),
                queried,
            };
            server.set(result);
            (server, queries)
        }

        fn set(&self, result: &[&str]) {
            let parsed = result.iter().map(|text| text.parse().expect("address"));
            *self.result.lock().expect("lock") = Ok(parsed.collect());
        }

        fn fail(&self, text: &'static str) {
            *self.result.lock().expect("lock") = Err(io::Error::other(text));
        }

        fn result(&self) -> io::Result<Vec<SocketAddr>> {
            match &*self.result.lock().expect("lock") {
                Ok(addresses) => Ok(addresses.clone()),
                Err(error) => Err(io::Error::other(error.to_string())),
            }
        }

        fn lookup(&self) -> Arc<Lookup> {
            let server = self.clone();
            Arc::new(move |_, _| server.result())
        }

        /// Blocks at each query until the test receives it.
        fn lookup_in_step(&self) -> Arc<Lookup> {
            let server = self.clone();
            Arc::new(move |_, _| {
                // An error means that the test has ended.
                let _ = server.queried.send(());
                server.result()
            })
        }
    }

    fn names(to: &[&str], server: &Server) -> Names {
        Names::look_up(&settings(to), &[], server.lookup())
    }

    fn texts(backends: &[Arc<Backend>]) -> Vec<&str> {
        backends.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn each_address_is_a_backend_in_order_and_once() {
        let (server, _) = Server::new(&["10.0.0.3:80", "10.0.0.1:80", "10.0.0.3:80", "[::1]:80"]);
        let names = names(
            &["10.0.0.9:1", "app.test:80", "10.0.0.1:80", "also.test:80"],
            &server,
        );
        let backends = names.backends(&[], None);
        let expected = ["10.0.0.9:1", "10.0.0.1:80", "10.0.0.3:80", "[::1]:80"];
        assert_eq!(texts(&backends), expected);
    }

    #[test]
    fn known_addresses_keep_their_health_and_new_ones_start_slowly() {
        let (server, _) = Server::new(&["10.0.0.1:80", "10.0.0.2:80"]);
        let mut names = names(&["10.0.0.9:1", "app.test:80"], &server);
        let before = names.backends(&[], None);
        server.set(&["10.0.0.3:80", "10.0.0.2:80"]);
        assert!(names.refresh());
        let now = Instant::now();
        let after = names.backends(&before, Some(now));
        assert_eq!(texts(&after), ["10.0.0.9:1", "10.0.0.2:80", "10.0.0.3:80"]);
        assert!(Arc::ptr_eq(&before[0], &after[0]));
        assert!(Arc::ptr_eq(&before[2], &after[1]));
        assert_eq!(after[1].share(now, WAIT_MAX), 256);
        assert_eq!(after[2].share(now, WAIT_MAX), 1);
    }

    #[test]
    fn the_order_of_addresses_is_irrelevant() {
        let (server, _) = Server::new(&["10.0.0.1:80", "10.0.0.2:80"]);
        let mut names = names(&["app.test:80"], &server);
        server.set(&["10.0.0.2:80", "10.0.0.1:80"]);
        assert!(!names.refresh());
    }

    #[test]
    fn failures_and_empty_results_keep_the_addresses() {
        let (server, _) = Server::new(&["10.0.0.1:80"]);
        let mut names = names(&["app.test:80"], &server);
        let before = names.backends(&[], None);
        server.fail("no route to the name server");
        assert!(!names.refresh());
        let text = "app.test does not resolve: no route to the name server";
        assert_eq!(names.entries[0].trouble.as_deref(), Some(text));
        server.set(&[]);
        assert!(!names.refresh());
        let text = "app.test does not resolve: no addresses";
        assert_eq!(names.entries[0].trouble.as_deref(), Some(text));
        assert_eq!(texts(&names.backends(&before, None)), ["10.0.0.1:80"]);
        server.set(&["10.0.0.1:80"]);
        assert!(!names.refresh());
        assert_eq!(names.entries[0].trouble, None);
    }

    #[test]
    fn a_name_has_no_backend_until_it_resolves() {
        let (server, _) = Server::new(&[]);
        server.fail("no route to the name server");
        let mut names = names(&["app.test:80", "10.0.0.9:1"], &server);
        let text = "app.test does not resolve: no route to the name server";
        assert_eq!(names.entries[0].trouble.as_deref(), Some(text));
        let before = names.backends(&[], None);
        assert_eq!(texts(&before), ["10.0.0.9:1"]);
        assert!(names.lacks_addresses() && !names.refresh());
        server.set(&["10.0.0.1:80"]);
        assert!(names.refresh() && !names.lacks_addresses());
        let after = names.backends(&before, None);
        assert_eq!(texts(&after), ["10.0.0.1:80", "10.0.0.9:1"]);
    }

    #[test]
    fn a_reload_keeps_the_addresses_of_a_name_that_no_longer_resolves() {
        let (server, _) = Server::new(&["10.0.0.1:80", "10.0.0.2:80"]);
        let known = names(&["app.test:80"], &server).backends(&[], None);
        server.fail("no route to the name server");
        let to = ["app.test:80 weight=2", "app.test:81", "also.test:80"];
        let names = Names::look_up(&settings(&to), &known, server.lookup());
        let backends = names.backends(&known, None);
        assert_eq!(texts(&backends), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert_eq!(backends[0].weight, 2);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (server, _) = Server::new(&[]);
        let all = (0..2 * ADDRESSES_MAX as u16).map(|port| ([10, 0, 0, 1], port).into());
        *server.result.lock().expect("lock") = Ok(all.collect());
        let backends = names(&["app.test:80"], &server).backends(&[], None);
        assert_eq!(backends.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_thread_resolves_names_until_the_upstream_is_dropped() {
        let (server, queries) = Server::new(&["10.0.0.1:80"]);
        let settings = levity_config::Upstream {
            resolve_interval: TURN,
            ..settings(&["app.test:80"])
        };
        let lookup = server.lookup_in_step();
        let upstream = thread::scope(|scope| {
            let made = scope.spawn(|| Upstream::with_lookup(settings, &[], lookup));
            queries.recv_timeout(WAIT_MAX).expect("a query");
            made.join().expect("join").expect("upstream")
        });
        assert_eq!(texts(&upstream.backends()), ["10.0.0.1:80"]);
        server.set(&["10.0.0.2:80"]);
        // A query arrives only after the result of the previous one is stored.
        for _ in 0..2 {
            queries.recv_timeout(WAIT_MAX).expect("another query");
        }
        assert_eq!(texts(&upstream.backends()), ["10.0.0.2:80"]);
        drop(upstream);
        drop(server);
        // The thread had the last resolver: when the thread ends, the channel closes.
        let ended = |_: &()| queries.recv_timeout(WAIT_MAX);
        let last = std::iter::repeat(())
            .map(|()| ended(&()))
            .find_map(Result::err);
        assert_eq!(last, Some(RecvTimeoutError::Disconnected));
    }

    /// An upstream after its first query. Its `resolve_interval` is longer than a test may take.
    fn made_in_step(server: &Server, queries: &mpsc::Receiver<()>) -> Upstream {
        let lookup = server.lookup_in_step();
        thread::scope(|scope| {
            let settings = settings(&["app.test:80"]);
            let made = scope.spawn(|| Upstream::with_lookup(settings, &[], lookup));
            queries.recv_timeout(WAIT_MAX).expect("a query");
            made.join().expect("join").expect("upstream")
        })
    }

    #[test]
    fn a_name_without_addresses_is_resolved_more_often() {
        let (server, queries) = Server::new(&[]);
        let upstream = made_in_step(&server, &queries);
        assert!(upstream.settings.resolve_interval > WAIT_MAX && upstream.backends().is_empty());
        let unresolved = upstream.unresolved();
        assert_eq!(unresolved[0].name, "app.test:80");
        assert!(unresolved[0].reason.contains("no addresses"));
        server.set(&["10.0.0.1:80"]);
        queries.recv_timeout(WAIT_MAX).expect("another query");
        let start = Instant::now();
        while upstream.backends().is_empty() {
            assert!(start.elapsed() < WAIT_MAX);
            thread::sleep(TURN);
        }
        assert_eq!(texts(&upstream.backends()), ["10.0.0.1:80"]);
        while !upstream.unresolved().is_empty() {
            assert!(start.elapsed() < WAIT_MAX);
            thread::sleep(TURN);
        }
    }

    #[test]
    fn names_are_resolved_again_when_someone_asks() {
        let (server, queries) = Server::new(&["10.0.0.1:80"]);
        let upstream = made_in_step(&server, &queries);
        let made = Instant::now();
        server.set(&["10.0.0.2:80"]);
        upstream.resolve_again();
        queries.recv_timeout(WAIT_MAX).expect("another query");
        assert!(made.elapsed() >= ASKED_INTERVAL_MIN / 2);
        while texts(&upstream.backends()) != ["10.0.0.2:80"] {
            assert!(made.elapsed() < WAIT_MAX);
            thread::sleep(TURN);
        }
    }

    #[test]
    fn the_system_knows_localhost() {
        let found = system("localhost", 80).expect("localhost");
        assert!(
            found
                .iter()
                .all(|one| one.ip().is_loopback() && one.port() == 80)
        );
        assert!(!found.is_empty());
    }
}
