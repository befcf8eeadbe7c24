//! The sessions of one worker with a backend, and the requests that wait for a stream of one.

use std::cell::{Cell, RefCell};
use std::future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_telemetry::stats::upstream::BackendCells;
use tokio::sync::{Notify, oneshot};

use super::super::Upstream;
use super::super::backend::Backend;
use super::super::tls;
use super::session::{Place, Session};
use super::stream::Stream;
use super::wire::STREAMS_MAX;
use crate::loop_core;

/// The connections to a backend.
pub struct Sessions {
    cells: Arc<BackendCells>,
    /// In the order in which they were opened. Each is there as long as it takes streams, or has some.
    all: RefCell<Vec<Rc<Session>>>,
    /// Connections that are being opened.
    opening: Cell<usize>,
    /// Requests that wait for one of these.
    waiting_for_opening: Cell<usize>,
    /// The streams that a new connection is likely to have: as many as the last one.
    streams_expected: Cell<usize>,
    /// The failures to open one, and the last of them.
    failures: Cell<u64>,
    failure: RefCell<Option<io::Error>>,
    waiting: Rc<Notify>,
}

impl Sessions {
    /// No connections yet. They will count in `cells`.
    pub fn new(cells: Arc<BackendCells>) -> Self {
        Self {
            cells,
            all: RefCell::default(),
            opening: Cell::new(0),
            waiting_for_opening: Cell::new(0),
            streams_expected: Cell::new(STREAMS_MAX),
            failures: Cell::new(0),
            failure: RefCell::default(),
            waiting: Rc::default(),
        }
    }

    /// Whether there will be a stream for one more request, where `requests` have one or wait for one. There are at
    /// most `connections_max` connections; those that end do not count, nor do their streams.
    pub fn has_room(&self, requests: usize, connections_max: usize) -> bool {
        let mut streams = 0;
        for session in self.all.borrow().iter() {
            streams += match session.is_open() {
                true => session.streams_max(),
                false => session.streams(),
            };
            if requests < streams {
                return true;
            }
        }
        let connections_left = self.connections_left(connections_max);
        requests < streams + connections_left * self.streams_expected.get()
    }

    /// The connections that there may be in addition. Those that take no streams any more do not count, lest a backend
    /// that restarts gets no requests while old ones last; but there are never more than twice as many.
    fn connections_left(&self, connections_max: usize) -> usize {
        let all = self.all.borrow();
        let open = all.iter().filter(|session| session.is_open()).count();
        let used = all.iter().filter(|session| !session.is_idle());
        let leaving = used.filter(|session| !session.is_open()).count();
        let within_all = (2 * connections_max).saturating_sub(open + leaving);
        connections_max.saturating_sub(open).min(within_all)
    }

    /// The streams that a connection is likely to have.
    pub fn streams_expected(&self) -> usize {
        self.streams_expected.get()
    }

    /// A stream of a connection to `backend`, one of `upstream`, and whether the connection was there before. Opens
    /// one if none has a stream left, at most `connections_max`. Waits for one that another request opens if it is
    /// likely to have enough streams, and otherwise for a stream.
    ///
    /// # Errors
    /// As [`Session::open`], unless there is an open connection whose streams the request can wait for.
    pub async fn stream(
        self: &Rc<Self>,
        upstream: &Arc<Upstream>,
        backend: &Arc<Backend>,
        connections_max: usize,
    ) -> io::Result<(Stream, bool)> {
        let failures = self.failures.get();
        let limits = upstream.settings.limits;
        loop {
            if let Some(place) = self.reserve() {
                return Ok((Stream::new(place, limits), true));
            }
            let has_failed = self.failures.get() != failures;
            if has_failed
                && !self.has_open()
                && let Some(failure) = &*self.failure.borrow()
            {
                return Err(copy(failure));
            }
            if !has_failed && self.may_open(connections_max) {
                match self.open(upstream, backend).await {
                    Ok(place) => return Ok((Stream::new(place, limits), false)),
                    // It is noted: others may have a connection.
                    Err(_) if self.failures.get() != failures => continue,
                    Err(error) => return Err(error),
                }
            }
            let _waiting =
                (self.opening.get() > 0).then(|| Counted::new(&self.waiting_for_opening));
            self.waiting.notified().await;
        }
    }

    /// A place in the oldest connection that has one, so that the others become idle.
    fn reserve(&self) -> Option<Place> {
        let mut all = self.all.borrow_mut();
        let place = all.iter().find_map(Session::reserve);
        if place.is_none() {
            all.retain(|session| session.is_open() || !session.is_idle());
        }
        place
    }

    fn has_open(&self) -> bool {
        self.all.borrow().iter().any(|session| session.is_open())
    }

    /// Whether another connection may be opened, and is needed.
    fn may_open(&self, connections_max: usize) -> bool {
        let opening = self.opening.get();
        // One of each is for the request that opens it.
        let coming = opening * self.streams_expected.get().saturating_sub(1);
        opening < self.connections_left(connections_max) && self.waiting_for_opening.get() >= coming
    }

    /// Opens a connection, and takes its first stream. A task of its own does it: if this request is given up, others that
    /// wait for the connection get it all the same.
    async fn open(
        self: &Rc<Self>,
        upstream: &Arc<Upstream>,
        backend: &Arc<Backend>,
    ) -> io::Result<Place> {
        let opening = Opening::new(self.clone());
        let (upstream, backend) = (upstream.clone(), backend.clone());
        let (mut sender, opened) = oneshot::channel();
        loop_core::spawn(async move {
            let sessions = &opening.sessions;
            let others = || sessions.waiting_for_opening.get() > 0;
            let abandoned = async {
                sender.closed().await;
                if others() {
                    future::pending().await
                }
            };
            let opened = tokio::select! {
                opened = sessions.connect(&upstream, &backend) => opened,
                // A later request must not wait for the rest of a time-out that it has not seen begin.
                () = abandoned => return,
            };
            let is_wanted = !sender.is_closed() || others();
            let place = opened.map(|(session, place)| {
                if is_wanted {
                    sessions.all.borrow_mut().push(session);
                }
                place
            });
            drop(opening);
            // If nobody takes the place, it is free for those who wait.
            let _ = sender.send(place);
        });
        // It is without a result if the task has panicked.
        let lost = |_| Err(io::ErrorKind::ConnectionAborted.into());
        opened.await.unwrap_or_else(lost)
    }

    /// Makes a connection with a first stream. Notes a failure.
    async fn connect(
        &self,
        upstream: &Upstream,
        backend: &Backend,
    ) -> io::Result<(Rc<Session>, Place)> {
        let opened = Session::open(upstream, backend, self.cells.clone(), self.waiting.clone());
        let opened = opened.await.and_then(|session| {
            let place = session.reserve();
            let place = place.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))?;
            Ok((session, place))
        });
        let (session, place) = opened.inspect_err(|error| {
            self.failures.set(self.failures.get() + 1);
            *self.failure.borrow_mut() = Some(copy(error));
        })?;
        self.cells.made.add(1);
        self.streams_expected.set(session.streams_max());
        Ok((session, place))
    }

    /// Closes idle connections that are spent, or more than `idle_max`.
    pub fn trim(&self, idle_max: usize) {
        let mut idle_left = idle_max;
        self.all.borrow_mut().retain(|session| {
            if !session.is_idle() {
                return true;
            }
            let is_kept = idle_left > 0 && session.is_open();
            idle_left -= usize::from(is_kept);
            is_kept
        });
    }

    /// Closes those that were idle for `age_max`.
    pub fn sweep(&self, now: Instant, age_max: Duration) {
        let mut all = self.all.borrow_mut();
        all.retain(|session| !session.is_spent(now, age_max));
    }
}

/// A connection that is being opened. When this is dropped, requests that wait for it look again.
struct Opening {
    sessions: Rc<Sessions>,
}

impl Opening {
    fn new(sessions: Rc<Sessions>) -> Self {
        sessions.opening.set(sessions.opening.get() + 1);
        Self { sessions }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let opening = &self.sessions.opening;
        opening.set(opening.get() - 1);
        self.sessions.waiting.notify_waiters();
    }
}

/// One more in a count, until it is dropped.
struct Counted<'c>(&'c Cell<usize>);

impl<'c> Counted<'c> {
    fn new(count: &'c Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn copy(error: &io::Error) -> io::Error {
    if let Some(failure) = tls::copy(error) {
        return failure;
    }
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
