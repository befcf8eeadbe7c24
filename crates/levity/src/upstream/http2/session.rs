//! A session: one connection over HTTP/2, shared by the requests of one worker.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use levity_telemetry::stall;
use levity_telemetry::stats::upstream::BackendCells;
use tokio::sync::Notify;
use tokio::time;

use super::super::Upstream;
use super::super::backend::Backend;
use super::super::connect::connect;
use super::link::{Driver, Link, LinkState};
use super::wire::{self, Connection, STREAMS_MAX};
use crate::loop_core;

/// A connection.
pub struct Session {
    requests: RefCell<SendRequest<Bytes>>,
    link: Rc<Link>,
    /// Streams in use.
    streams: Cell<usize>,
    /// The end of the last stream.
    idle_since: Cell<Instant>,
    /// It is counted as idle in `cells`.
    is_idle: Cell<bool>,
    /// The backend takes no more streams (GOAWAY), or the connection has failed.
    is_leaving: Cell<bool>,
    /// Whether it was open, and its maximum number of streams, when the backend last sent something.
    offered: Cell<(bool, usize)>,
    cells: Arc<BackendCells>,
    waiting: Rc<Notify>,
}

/// The right to one stream of a connection.
pub struct Place {
    connection: SendRequest<Bytes>,
    session: Rc<Session>,
    was_idle: bool,
}

impl Session {
    /// Connects to `backend`, one of `upstream`, and waits for its settings: only they say how many streams it takes.
    /// Requests that wait for a stream do so at `waiting`.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` after `connect_timeout`; `InvalidData` for a failed handshake of TLS; `Unsupported`
    /// for a backend that does not speak HTTP/2.
    pub async fn open(
        upstream: &Upstream,
        backend: &Backend,
        cells: Arc<BackendCells>,
        waiting: Rc<Notify>,
    ) -> io::Result<Rc<Self>> {
        let patience = upstream.settings.connect_timeout;
        let opened = time::timeout(patience, begin(upstream, backend)).await;
        let (requests, connection) =
            opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let link = Link::new(waiting.clone());
        let driver = Driver::new(connection, link.clone(), patience);
        let session = Rc::new(Self {
            requests: RefCell::new(requests),
            link,
            streams: Cell::new(0),
            idle_since: Cell::new(stall::poll_start()),
            is_idle: Cell::new(false),
            is_leaving: Cell::new(false),
            offered: Cell::default(),
            cells,
            waiting,
        });
        let driven = Rc::downgrade(&session);
        loop_core::spawn(driver.run(move || {
            driven.upgrade().inspect(|session| session.was_polled());
        }));
        Ok(session)
    }

    /// Lets requests that wait look again if the backend takes more or fewer streams than before.
    fn was_polled(&self) {
        let offered = (self.is_open(), self.streams_max());
        if self.offered.replace(offered) != offered {
            self.waiting.notify_waiters();
        }
    }

    /// The maximum number of streams.
    pub fn streams_max(&self) -> usize {
        let allowed = self.requests.borrow().current_max_send_streams();
        allowed.min(STREAMS_MAX)
    }

    /// Streams in use.
    pub fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Whether new streams may begin, apart from their number.
    pub fn is_open(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // It is pending only for a handle that has sent a request.
        let polled = self.requests.borrow_mut().poll_ready(&mut context);
        if matches!(polled, Poll::Ready(Err(_))) {
            self.is_leaving.set(true);
        }
        !self.is_leaving.get() && self.link.state() == LinkState::Open
    }

    /// Whether it has no streams.
    pub fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Whether it has to be closed: it was idle for `age_max`, or takes no more streams.
    pub fn is_spent(&self, now: Instant, age_max: Duration) -> bool {
        let is_old = || now.saturating_duration_since(self.idle_since.get()) >= age_max;
        self.is_idle() && (is_old() || !self.is_open())
    }

    /// A place for a stream, if there is one.
    pub fn reserve(self: &Rc<Self>) -> Option<Place> {
        if !self.is_open() || self.streams.get() >= self.streams_max() {
            return None;
        }
        self.streams.set(self.streams.get() + 1);
        let was_idle = self.is_idle.replace(false);
        if was_idle {
            self.cells.idle.down(1);
        }
        Some(Place {
            connection: self.requests.borrow().clone(),
            session: self.clone(),
            was_idle,
        })
    }

    fn release(&self) {
        self.streams.set(self.streams.get() - 1);
        if self.streams.get() == 0 {
            self.idle_since.set(stall::poll_start());
            self.is_idle.set(true);
            self.cells.idle.up(1);
        }
        self.waiting.notify_one();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_idle.get() {
            self.cells.idle.down(1);
        }
        self.link.close();
    }
}

impl Place {
    /// The connection, for one request.
    pub fn connection(&mut self) -> &mut SendRequest<Bytes> {
        &mut self.connection
    }

    /// Whether the connection had carried a request before, and carried no other: it may have ended meanwhile.
    pub fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Notes that the backend was silent for too long. The request alone may have been slow, so that to close the
    /// connection at once would harm others on it. New requests do not use it until the backend has answered a ping;
    /// without an answer it is closed, and so it is once it has no requests.
    pub fn was_silent(&self) {
        self.session.link.doubt();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.release();
    }
}

async fn begin(
    upstream: &Upstream,
    backend: &Backend,
) -> io::Result<(SendRequest<Bytes>, Connection)> {
    let head_bytes_max = upstream.settings.limits.head_bytes;
    wire::begin(connect(upstream, backend).await?, head_bytes_max).await
}
