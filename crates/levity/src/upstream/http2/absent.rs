//! What stands for HTTP/2 towards backends in a build without it. The configuration refuses upstreams of this protocol.

/// The connections to a backend.
pub mod sessions {
    use std::convert::Infallible;
    use std::io;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use levity_telemetry::stats::upstream::BackendCells;

    use super::stream::Stream;
    use crate::upstream::Upstream;
    use crate::upstream::backend::Backend;

    /// There are none.
    pub struct Sessions(Infallible);

    impl Sessions {
        /// Those to a backend, whose protocol the configuration has refused.
        pub fn new(_: Arc<BackendCells>) -> Self {
            unreachable!("the configuration refuses HTTP/2")
        }

        /// Whether another request has room.
        pub fn has_room(&self, _: usize, _: usize) -> bool {
            match self.0 {}
        }

        /// The streams that a connection is likely to have.
        pub fn streams_expected(&self) -> usize {
            match self.0 {}
        }

        /// A stream of a connection.
        ///
        /// # Errors
        /// None.
        pub async fn stream(
            self: &Rc<Self>,
            _: &Arc<Upstream>,
            _: &Arc<Backend>,
            _: usize,
        ) -> io::Result<(Stream, bool)> {
            match self.0 {}
        }

        /// Closes idle connections.
        pub fn trim(&self, _: usize) {
            match self.0 {}
        }

        /// Closes old connections.
        pub fn sweep(&self, _: Instant, _: Duration) {
            match self.0 {}
        }
    }
}

/// A stream of a connection.
pub mod stream {
    use std::convert::Infallible;
    use std::io;
    use std::task::{Context, Poll};

    use levity_wire::http1::Trailers;

    use crate::upstream::codec::{EncodeError, Event};
    use crate::upstream::failure::Failure;
    use crate::upstream::upstream_request::UpstreamRequest;

    /// There is none.
    pub struct Stream(Infallible);

    impl Stream {
        /// Begins a request.
        ///
        /// # Errors
        /// None.
        pub fn begin(&mut self, _: &UpstreamRequest<'_>) -> Result<(), EncodeError> {
            match self.0 {}
        }

        /// How many bytes of the request body are taken now.
        pub fn room(&self) -> usize {
            match self.0 {}
        }

        /// Takes a piece of the request body.
        pub fn body(&mut self, _: &[u8]) {
            match self.0 {}
        }

        /// Takes the end of the request body.
        pub fn end_of_body(&mut self, _: &Trailers) {
            match self.0 {}
        }

        /// Whether something of the request is left to send.
        pub fn has_unsent(&self) -> bool {
            match self.0 {}
        }

        /// Drops it.
        pub fn drop_unsent(&mut self) {
            match self.0 {}
        }

        /// Sends some of it.
        ///
        /// # Errors
        /// None.
        pub fn poll_send(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
            match self.0 {}
        }

        /// Passes on what has arrived.
        pub fn poll_events(
            &mut self,
            _: &mut Context<'_>,
            _: usize,
            _: &mut dyn FnMut(Event<'_>),
        ) -> Poll<(usize, Result<(), Failure>)> {
            match self.0 {}
        }

        /// Whether its connection was idle.
        pub fn was_idle(&self) -> bool {
            match self.0 {}
        }

        /// The backend was silent for too long.
        pub fn was_silent(&self) {
            match self.0 {}
        }
    }
}

/// Health checks.
pub mod probe {
    use levity_config::upstream::ResponseLimits;
    use levity_net::Transport;

    /// Waits until a backend has shown that it speaks HTTP/2.
    ///
    /// # Errors
    /// None.
    pub async fn settings(_: Transport, _: ResponseLimits) -> Result<(), String> {
        unreachable!("the configuration refuses HTTP/2")
    }

    /// The status of a response.
    ///
    /// # Errors
    /// None.
    pub async fn status(_: Transport, _: &str, _: ResponseLimits) -> Result<u16, String> {
        unreachable!("the configuration refuses HTTP/2")
    }
}
