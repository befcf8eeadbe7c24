//! Records from an application.

use super::{Decoded, HEADER_BYTES, REQUEST_ID, VERSION, kind};
use crate::Reject;

/// A piece of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Bytes of the response, headers and body, at least one.
    Stdout(&'a [u8]),
    /// Bytes for the log, split anywhere, at least one. They may be interleaved with the response
    /// anywhere, and have arbitrary content.
    Stderr(&'a [u8]),
    /// The response is complete. This is the last event.
    End {
        /// The exit status of a CGI program; by convention 0 on success.
        app_status: u32,
        /// Whether the application accepted the request at all.
        protocol_status: ProtocolStatus,
    },
}

/// Whether an application accepted a request (section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request was processed.
    Complete,
    /// Rejected: one request at a time. It cannot be our mistake, since we send no second one.
    CannotMultiplex,
    /// Rejected: no resources at present. Another application may accept the request.
    Overloaded,
    /// Rejected: this application is no responder.
    UnknownRole,
}

/// Decoder of the response to one request. Create a new one for the next; do not use it after an
/// error.
///
/// The response ends with its END_REQUEST record. An empty record that ends its stream before that
/// is ignored. A response is truncated if the connection closes without END_REQUEST.
#[derive(Debug, Clone)]
pub struct ResponseDecoder {
    keep_conn: bool,
    /// The type of the current record, or of the last one.
    kind: Kind,
    /// Bytes of the header so far, then of END_REQUEST.
    held: [u8; HEADER_BYTES],
    held_len: usize,
    content_left: u16,
    padding_left: u8,
    surplus: bool,
}

/// The part of a record that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Content,
    Padding,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stdout,
    Stderr,
    End,
}

impl ResponseDecoder {
    /// The response to a request that was sent with this `keep_conn`.
    pub fn new(keep_conn: bool) -> Self {
        Self {
            keep_conn,
            kind: Kind::Stdout,
            held: [0; HEADER_BYTES],
            held_len: 0,
            content_left: 0,
            padding_left: 0,
            surplus: false,
        }
    }

    /// Decodes the input, which may be split anywhere, and passes each piece to `event` without
    /// copying it. After [`Event::End`] the response is complete and nothing more is consumed.
    ///
    /// # Errors
    /// 502 for anything that cannot be a response to our request: another version, another
    /// request's id, an END_REQUEST whose length is not 8 bytes or with an unknown status, and a
    /// type that is neither STDOUT, STDERR nor END_REQUEST. Future types of management records are
    /// allowed (section 4.2), but such a record only responds to one of the server, and we send
    /// none. Data passed on before the error belongs to an incomplete response.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut event: impl FnMut(Event<'_>),
    ) -> Result<Decoded, Reject> {
        let mut at = 0;
        while at < input.len() && self.part() != Part::Done {
            at += self.step(&input[at..], &mut event)?;
            if self.part() == Part::Done {
                event(self.end()?);
            }
        }
        self.surplus |= at < input.len();
        Ok(Decoded {
            consumed: at,
            done: self.part() == Part::Done,
        })
    }

    /// Whether the connection may carry another request: `keep_conn` was set, the response is
    /// complete, the application accepted the request, and no input of [`decode`](ResponseDecoder::decode)
    /// followed the response, since it would be parsed as part of the next.
    ///
    /// The caller must also check that the request was sent in full: an application may respond
    /// before it has read the body.
    pub fn is_reusable(&self) -> bool {
        let complete = matches!(
            self.end(),
            Ok(Event::End {
                protocol_status: ProtocolStatus::Complete,
                ..
            })
        );
        self.keep_conn && self.part() == Part::Done && complete && !self.surplus
    }

    /// Decodes within one part of one record, and returns the number of bytes.
    fn step(&mut self, rest: &[u8], event: &mut impl FnMut(Event<'_>)) -> Result<usize, Reject> {
        match self.part() {
            Part::Header => self.header(rest),
            Part::Content => Ok(self.content(rest, event)),
            Part::Padding => {
                let len = rest.len().min(usize::from(self.padding_left));
                self.padding_left -= len as u8;
                Ok(len)
            }
            Part::Done => Ok(0),
        }
    }

    fn header(&mut self, rest: &[u8]) -> Result<usize, Reject> {
        let len = self.hold(rest);
        if self.held_len == HEADER_BYTES {
            self.held_len = 0;
            self.record()?;
        }
        Ok(len)
    }

    /// The record whose header is complete (section 3.3).
    fn record(&mut self) -> Result<(), Reject> {
        let [version, kind, id1, id0, len1, len0, padding, _] = self.held;
        if version != VERSION {
            return Err(Reject::bad_gateway("not FastCGI version 1"));
        }
        if u16::from_be_bytes([id1, id0]) != REQUEST_ID {
            return Err(Reject::bad_gateway("FastCGI record of another request"));
        }
        let kind = match kind {
            kind::STDOUT => Kind::Stdout,
            kind::STDERR => Kind::Stderr,
            kind::END_REQUEST => Kind::End,
            _ => return Err(Reject::bad_gateway("FastCGI record of an unexpected type")),
        };
        let content_bytes = u16::from_be_bytes([len1, len0]);
        if kind == Kind::End && usize::from(content_bytes) != HEADER_BYTES {
            return Err(Reject::bad_gateway("FastCGI END_REQUEST of a wrong length"));
        }
        (self.kind, self.content_left, self.padding_left) = (kind, content_bytes, padding);
        Ok(())
    }

    fn content(&mut self, rest: &[u8], event: &mut impl FnMut(Event<'_>)) -> usize {
        let len = rest.len().min(usize::from(self.content_left));
        match self.kind {
            Kind::Stdout => event(Event::Stdout(&rest[..len])),
            Kind::Stderr => event(Event::Stderr(&rest[..len])),
            Kind::End => {
                self.hold(&rest[..len]);
            }
        }
        self.content_left -= len as u16;
        len
    }

    /// Buffers the bytes of one unit, and returns their number.
    fn hold(&mut self, rest: &[u8]) -> usize {
        let len = rest.len().min(HEADER_BYTES - self.held_len);
        self.held[self.held_len..self.held_len + len].copy_from_slice(&rest[..len]);
        self.held_len += len;
        len
    }

    fn part(&self) -> Part {
        match self.kind {
            _ if self.content_left > 0 => Part::Content,
            _ if self.padding_left > 0 => Part::Padding,
            Kind::End => Part::Done,
            Kind::Stdout | Kind::Stderr => Part::Header,
        }
    }

    /// The content of END_REQUEST (section 5.5).
    fn end(&self) -> Result<Event<'static>, Reject> {
        let [app3, app2, app1, app0, protocol, ..] = self.held;
        let protocol_status = match protocol {
            0 => ProtocolStatus::Complete,
            1 => ProtocolStatus::CannotMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => {
                return Err(Reject::bad_gateway(
                    "FastCGI END_REQUEST with an unknown status",
                ));
            }
        };
        Ok(Event::End {
            app_status: u32::from_be_bytes([app3, app2, app1, app0]),
            protocol_status,
        })
    }
}
