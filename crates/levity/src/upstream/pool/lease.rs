//! The right to a connection of a pool, from its slot to its return.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use levity_telemetry::stall;
use tokio::time;

use super::{Member, Pool};
use crate::upstream::Upstream;
use crate::upstream::backend::{Backend, Begun};
use crate::upstream::connection::Connection;
use crate::upstream::failure::{Failure, NoSlot};
use crate::upstream::own_connection::OwnConnection;

/// The right to one connection to a backend, or over HTTP/2 to one stream, and the connection once it is open.
/// Dropping the lease returns the slot and closes the connection, unless it was [kept](Lease::keep).
pub struct Lease {
    pub(super) pool: Rc<Pool>,
    pub(super) member: Rc<Member>,
    pub(super) connection: Option<Connection>,
    /// The connection has carried a request before.
    pub is_reused: bool,
    pub(super) begun: Begun,
}

impl Lease {
    /// The backend.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.member.backend
    }

    /// The worker's view of the backend.
    pub fn member(&self) -> &Rc<Member> {
        &self.member
    }

    /// A handle to the backend for the duration of its response.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            pool: self.pool.clone(),
            member: self.member.clone(),
        }
    }

    /// The connection.
    ///
    /// # Panics
    /// If the lease was not [opened](Lease::open).
    pub fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it was opened")
    }

    /// See [`Connection::is_shared`].
    pub fn is_shared(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_shared)
    }

    /// Whether the backend accepts more of the request body now.
    pub fn has_room(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.room() > 0)
    }

    /// Whether something of the request is left to send.
    pub fn has_unsent(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(Connection::has_unsent)
    }

    /// Whether the connection was idle before, so that it is normal if it ends now.
    pub fn may_be_stale(&self) -> bool {
        match &self.connection {
            Some(Connection::Own(_)) => self.is_reused,
            Some(Connection::Stream(stream)) => stream.was_idle(),
            None => false,
        }
    }

    /// Notes that the backend was silent for too long.
    pub fn was_silent(&self) {
        self.connection
            .as_ref()
            .inspect(|connection| connection.was_silent());
    }

    /// Closes the idle connection, if the lease has one, and over HTTP/2 all idle ones. [`Lease::open`] then makes a
    /// new one, or takes a stream of one that is in use.
    pub fn close_idle(&mut self) {
        self.connection = None;
        self.is_reused = false;
        if let Some(sessions) = &self.member.sessions {
            sessions.trim(0);
        }
    }

    /// Connects to the backend, unless the lease has a connection that is alive.
    ///
    /// # Errors
    /// When that fails.
    pub async fn open(&mut self) -> Result<(), Failure> {
        let settings = &self.pool.upstream.settings;
        if self.member.sessions.is_some() {
            return Box::pin(self.open_stream()).await;
        }
        if let Some(Connection::Own(idle)) = &mut self.connection
            && !idle.is_alive(settings.connect_timeout).await
        {
            self.connection = None;
            self.is_reused = false;
        }
        if self.connection.is_some() {
            self.member.cells.reused.add(1);
            return Ok(());
        }
        let backend = &self.member.backend;
        let opened = OwnConnection::open(&self.pool.upstream, backend);
        // Boxed because a kept connection is the common case: see `gateway`.
        let opened = Box::pin(opened).await;
        let opened = opened.map_err(|error| Failure::of_connect(&error))?;
        self.connection = Some(Connection::Own(opened));
        self.member.cells.made.add(1);
        Ok(())
    }

    /// Takes a stream of a connection over HTTP/2. It may turn out that the backend takes fewer than were expected.
    /// Then the request waits once more, at most `queue_timeout`.
    async fn open_stream(&mut self) -> Result<(), Failure> {
        let Some(sessions) = &self.member.sessions else {
            return Ok(());
        };
        let upstream = &self.pool.upstream;
        let connections_max = self.pool.bounds.connections;
        let opening = sessions.stream(upstream, &self.member.backend, connections_max);
        let patience = upstream.settings.connect_timeout + upstream.settings.queue_timeout;
        let opened = time::timeout(patience, opening).await;
        let opened = opened.map_err(|_| Failure::of_slot(NoSlot::QueueTimeout))?;
        let (stream, is_reused) = opened.map_err(|error| Failure::of_connect(&error))?;
        self.connection = Some(Connection::Stream(Box::new(stream)));
        self.is_reused = is_reused;
        if is_reused {
            self.member.cells.reused.add(1);
        }
        Ok(())
    }

    /// Keeps the connection for another request if there is room for an idle one. Idle connections and those
    /// in use never exceed the limit together.
    pub fn keep(mut self) {
        if let Some(Connection::Own(connection)) = &mut self.connection {
            connection.ended(stall::poll_start());
        }
        self.put_back();
    }

    /// As [`Lease::keep`] for a connection that was not used: its idle time continues.
    pub fn put_back(mut self) {
        let mut idle = self.member.idle.borrow_mut();
        if idle.len() < self.pool.bounds.idle
            && let Some(Connection::Own(mut connection)) = self.connection.take()
        {
            connection.rest();
            idle.push_back(connection);
            self.member.cells.idle.up(1);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let busy = &self.member.busy;
        busy.set(busy.get() - 1);
        self.member.cells.in_use.down(1);
        if let Some(sessions) = &self.member.sessions {
            self.connection = None;
            sessions.trim(self.pool.bounds.idle);
        }
        if self.begun == Begun::Trial {
            self.member.backend.end_trial(stall::poll_start());
        }
        self.pool.serve_queue();
    }
}

/// The backend that sends a response; it outlives the lease.
#[derive(Clone)]
pub struct Endpoint {
    pool: Rc<Pool>,
    member: Rc<Member>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The upstream.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.pool.upstream
    }

    /// Reports that a response failed: before any of it was sent if `is_uncommitted`, otherwise after its
    /// header.
    pub fn report(&self, failure: &Failure, is_uncommitted: bool) {
        match is_uncommitted {
            true => self.pool.report(failure, None),
            false => self.pool.report_truncated(failure, &self.member.backend),
        }
    }
}
