//! Protocols of backends: a request in, bytes out; bytes in, events out. No I/O.

#[cfg_attr(not(feature = "ajp"), path = "absent_ajp13.rs")]
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

/// An event that is decoded from a backend's bytes.
#[derive(Debug)]
pub enum Event<'a> {
    /// An interim response (1xx).
    Interim(Head),
    /// The header of the final response.
    Head(Head),
    /// A piece of the body.
    Data(&'a [u8]),
    /// Standard error of the application.
    Stderr(&'a [u8]),
    /// The backend has refused the request, for this reason; another may accept it. No event follows.
    Declined(&'static str),
    /// The response is complete; with its trailers.
    End(Trailers),
}

/// Why a request cannot be encoded: a fault of the client or of the configuration.
pub type EncodeError = Reject;

/// The protocol state of one connection. Keeps its allocations from request to request.
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
    /// The state of a new connection. Panics for HTTP/2, whose connections have another.
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http(Box::default()),
            Protocol::H2 => unreachable!("its requests are streams"),
            Protocol::Fastcgi => Self::Fastcgi(Box::default()),
            Protocol::Scgi => Self::Scgi(Box::default()),
            Protocol::Ajp13 => Self::Ajp13(Box::default()),
        }
    }

    /// Begins a request: writes all that precedes its body to `out`.
    ///
    /// # Errors
    /// When the protocol cannot express the request. No request has begun then, and the content of `out` is
    /// unspecified.
    pub fn begin(
        &mut self,
        outgoing: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self {
            Self::Http(http) => http.begin(outgoing, out),
            Self::Fastcgi(fastcgi) => fastcgi.begin(outgoing, out),
            Self::Scgi(scgi) => scgi.begin(outgoing, out),
            Self::Ajp13(ajp13) => ajp13.begin(outgoing, out),
        }
    }

    /// How many bytes of the request body [`Codec::body`] accepts now.
    pub fn room(&self) -> usize {
        match self {
            Self::Http(_) | Self::Fastcgi(_) | Self::Scgi(_) => usize::MAX,
            Self::Ajp13(ajp13) => ajp13.room(),
        }
    }

    /// Writes a piece of the request body to `out`. The piece must not exceed [`Codec::room`].
    pub fn body(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.body(data, out),
            Self::Fastcgi(fastcgi) => fastcgi.body(data, out),
            Self::Scgi(scgi) => scgi.body(data, out),
            Self::Ajp13(ajp13) => ajp13.body(data, out),
        }
    }

    /// Writes the end of the request body to `out`.
    pub fn end_of_body(&mut self, trailers: &Trailers, out: &mut Vec<u8>) {
        match self {
            Self::Http(http) => http.end_of_body(trailers, out),
            Self::Fastcgi(fastcgi) => fastcgi.end_of_body(out),
            Self::Scgi(_) => {}
            Self::Ajp13(ajp13) => ajp13.settle(out),
        }
    }

    /// Writes to `out` what a backend waits for after the end of the request body: an AJP13 container may request
    /// more, and gets an empty packet.
    pub fn settle(&mut self, out: &mut Vec<u8>) {
        if let Self::Ajp13(ajp13) = self {
            ajp13.settle(out);
        }
    }

    /// Decodes a piece of input, which may be cut anywhere. All of it is consumed.
    ///
    /// # Errors
    /// 502 for a malformed response. The connection cannot be used after that.
    pub fn decode(&mut self, input: &[u8], event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match self {
            Self::Http(http) => http.decode(input, event),
            Self::Fastcgi(fastcgi) => fastcgi.decode(input, event),
            Self::Scgi(scgi) => scgi.decode(input, event),
            Self::Ajp13(ajp13) => ajp13.decode(input, event),
        }
    }

    /// How many of the next bytes [`Codec::decode`] passes on as one piece of the body, as they are. Zero where it
    /// takes the body out of frames.
    pub fn plain_bytes(&self) -> u64 {
        match self {
            Self::Http(http) => http.plain_bytes(),
            Self::Fastcgi(_) | Self::Scgi(_) | Self::Ajp13(_) => 0,
        }
    }

    /// Counts some of the [plain bytes](Codec::plain_bytes), which the caller has taken from the connection unread. The
    /// only event is the end of the response.
    pub fn skip(&mut self, bytes: u64, event: &mut dyn FnMut(Event<'_>)) {
        if let Self::Http(http) = self {
            http.skip(bytes, event);
        }
    }

    /// Handles the end of the connection, which may be the end of the response.
    ///
    /// # Errors
    /// 502 when the response is truncated.
    pub fn closed(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match self {
            Self::Http(http) => http.closed(event),
            Self::Fastcgi(fastcgi) => fastcgi.closed(event),
            Self::Scgi(scgi) => scgi.closed(event),
            Self::Ajp13(ajp13) => ajp13.closed(),
        }
    }

    /// How long the backend lets the connection be idle after the last response, less a margin; `None` if it has not
    /// said so.
    pub fn idle_max(&self) -> Option<Duration> {
        match self {
            Self::Http(http) => http.idle_max(),
            Self::Fastcgi(_) | Self::Scgi(_) | Self::Ajp13(_) => None,
        }
    }

    /// The request that checks whether the backend still responds, on a connection that has been idle for
    /// `quiet`; [`Codec::pong`] reads the response. `None` where the protocol has no ping, or the connection
    /// needs none.
    pub fn ping(&mut self, quiet: Duration) -> Option<&'static [u8]> {
        match self {
            Self::Ajp13(ajp13) if quiet >= QUIET_MAX => Some(ajp13.ping()),
            _ => None,
        }
    }

    /// Reads a piece of the response to a ping; true when it is complete.
    ///
    /// # Errors
    /// 502 for any other response.
    pub fn pong(&mut self, input: &[u8]) -> Result<bool, Reject> {
        match self {
            Self::Ajp13(ajp13) => ajp13.pong(input),
            _ => Ok(true),
        }
    }

    /// Whether the connection can carry another request, after the response has ended and the request has
    /// been sent in full.
    pub fn is_reusable(&self) -> bool {
        match self {
            Self::Http(http) => http.is_reusable(),
            Self::Fastcgi(fastcgi) => fastcgi.is_reusable(),
            Self::Scgi(_) => false,
            Self::Ajp13(ajp13) => ajp13.is_reusable(),
        }
    }
}
