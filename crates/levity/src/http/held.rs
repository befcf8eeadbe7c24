//! Bodies that outlive their exchange. A receiver may wait for hours: request, trace and the future of the exchange are
//! dropped when it begins to wait, and the connection polls what is left.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use levity_net::Timer;
use levity_telemetry::access_log::End;

use super::request_body::ClientStream;

/// The body of a response after its header has been sent and its exchange has ended.
pub trait Held {
    /// Sends what has arrived. Ready when the response has ended, or has to: then the connection closes. Adds the bytes of
    /// the body that were sent to `sent`.
    fn poll(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        sent: &mut u64,
    ) -> Poll<End>;
}

impl fmt::Debug for dyn Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Held")
    }
}

/// The client's end of a held response, in any version of HTTP.
pub trait HeldClient {
    /// The deadline of the present wait.
    fn timer(&self) -> &Timer;

    /// Sends bytes of the body in the framing of the version; `sent` of them have been sent, and more are when this returns.
    /// Ready when all have been sent.
    ///
    /// # Errors
    /// When the client has disconnected.
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>>;

    /// The same after an upgrade: sends bytes as they are.
    ///
    /// # Errors
    /// When the client has disconnected.
    fn poll_send_upgraded(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>>;

    /// Ends the body. The client knows then that it is complete.
    ///
    /// # Errors
    /// When the client has disconnected.
    fn poll_end(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether the client has left. One that has shut down its sending side counts as gone. Registers the task to be woken
    /// when that may have changed.
    fn is_gone(&self, context: &mut Context<'_>) -> bool;

    /// Makes the end of the connection a reset.
    fn reset(&self);

    /// The client's end as a tunnel has it, for responses that change the protocol.
    fn stream(&self) -> &dyn ClientStream;
}
