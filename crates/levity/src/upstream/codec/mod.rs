//! What the gateway needs of a protocol: a request in, bytes out; bytes in, events out. No I/O.

mod ajp13;
pub mod cgi;
mod fastcgi;
pub mod head;
mod http;
mod length_check;
mod scgi;
#[cfg(test)]
mod transcript;

use std::time::Duration;

use levity_wire::Reject;
use levity_wire::http1::Trailers;

use self::ajp13::{Ajp13, QUIET_MAX};
use self::fastcgi::Fastcgi;
use self::head::Head;
use self::http::Http;
use self::scgi::Scgi;
use crate::upstream::upstream_request::UpstreamRequest;
use levity_config::upstream::Protocol;

/// What a backend's bytes turn out to be.
#[derive(Debug)]
pub enum Event<'a> {
    /// A response head before the one that answers (1xx).
    Interim(Head),
    /// The head of the answer.
    Head(Head),
    /// A piece of the body.
    Data(&'a [u8]),
    /// What the application has to say to its operator.
    Stderr(&'a [u8]),
    /// The backend has not taken the request, for this reason: another may. Nothing follows.
    Declined(&'static str),
    /// The answer is complete; what came behind its body.
    End(Trailers),
}

/// Why a request cannot be put into a protocol's words: the client's fault, or the operator's.
pub type EncodeError = Reject;

/// One protocol on one connection. Keeps its allocations from request to request.
#[derive(Debug)]
pub enum Codec {
    /// HTTP/1.1
    Http(Box<Http>),
    /// FastCGI
    Fastcgi(Box<Fastcgi>),
    /// SCGI
    Scgi(Box<Scgi>),
    /// AJP13
    Ajp13(Box<Ajp13>),
}

impl Codec {
    /// For a new connection.
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http(Box::default()),
            Protocol::Fastcgi => Self::Fastcgi(Box::default()),
            Protocol::Scgi => Self::Scgi(Box::default()),
            Protocol::Ajp13 => Self::Ajp13(Box::default()),
        }
    }

    /// Begins a request: writes all that comes before its body to `out`.
    ///
    /// # Errors
    /// When the protocol has no way to say it. Nothing has begun then, whatever is in `out`.
    pub fn begin(
        &mut self,
        ask: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self {
            Self::Http(http) => http.begin(ask, out),
            Self::Fastcgi(fastcgi) => fastcgi.begin(ask, out),
            Self::Scgi(scgi) => scgi.begin(ask, out),
            Self::Ajp13(ajp13) => ajp13.begin(ask, out),
        }
    }

    /// Bytes of the request's body that may be given to [`Codec::body`] now.
    pub fn room(&self) -> usize {
        match self {
            Self::Http(_) | Self::Fastcgi(_) | Self::Scgi(_) => usize::MAX,
            Self::Ajp13(ajp13) => ajp13.room(),
        }
    }

    /// Writes a piece of the request's body to `out`; no more than there is [room](Codec::room) for.
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.body(data, out),
            Self::Fastcgi(fastcgi) => fastcgi.body(data, out),
            Self::Scgi(scgi) => scgi.body(data, out),
            Self::Ajp13(ajp13) => ajp13.body(data, out),
        }
    }

    /// Writes the end of the request's body to `out`.
    pub fn end_of_body(&mut self, trailers: &Trailers, out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.end_of_body(trailers, out),
            Self::Fastcgi(fastcgi) => fastcgi.end_of_body(out),
            Self::Scgi(_) => {}
            Self::Ajp13(ajp13) => ajp13.settle(out),
        }
    }

    /// Writes to `out` what a backend waits for although no more of the request's body will come: an AJP13
    /// container may ask for more, and is told that there is none.
    pub fn settle(&mut self, out: &mut Vec<u8>) {
        if let Self::Ajp13(ajp13) = self {
            ajp13.settle(out);
        }
    }

    /// Reads what has arrived; all of it is consumed. Input may be cut anywhere.
    ///
    /// # Errors
    /// 502 for what can be no answer. Nothing can be read after that.
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match self {
            Self::Http(http) => http.decode(input, event),
            Self::Fastcgi(fastcgi) => fastcgi.decode(input, event),
            Self::Scgi(scgi) => scgi.decode(input, event),
            Self::Ajp13(ajp13) => ajp13.decode(input, event),
        }
    }

    /// The backend has closed the connection: an answer may end so.
    ///
    /// # Errors
    /// 502 when it is cut short.
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match self {
            Self::Http(http) => http.closed(event),
            Self::Fastcgi(fastcgi) => fastcgi.closed(event),
            Self::Scgi(scgi) => scgi.closed(event),
            Self::Ajp13(ajp13) => ajp13.closed(),
        }
    }

    /// What asks whether the backend still listens, on a connection that has been idle for `quiet`; the
    /// answer is for [`Codec::pong`]. None where the protocol has nothing to ask by, or no reason.
    pub fn ping(&mut self, quiet: Duration) -> Option<&'static [u8]> {
        match self {
            Self::Ajp13(ajp13) if quiet >= QUIET_MAX => Some(ajp13.ping()),
            _ => None,
        }
    }

    /// Reads what has arrived after a ping; whether that is all of the answer.
    ///
    /// # Errors
    /// 502 for what is none.
    pub fn pong(&mut self, input: &[u8]) -> Result<bool, Reject> {
        match self {
            Self::Ajp13(ajp13) => ajp13.pong(input),
            _ => Ok(true),
        }
    }

    /// Whether the connection can carry another request, now that the answer has ended and the request
    /// has been sent in full.
    pub fn is_reusable(&self) -> bool {
        match self {
            Self::Http(http) => http.is_reusable(),
            Self::Fastcgi(fastcgi) => fastcgi.is_reusable(),
            Self::Scgi(_) => false,
            Self::Ajp13(ajp13) => ajp13.is_reusable(),
        }
    }
}
