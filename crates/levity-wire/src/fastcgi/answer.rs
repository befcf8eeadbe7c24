//! What an application sends back.

use super::{Decoded, HEADER_BYTES, REQUEST_ID, VERSION, kind};
use crate::Reject;

/// A piece of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Bytes of the answer, head and body, never none.
    Stdout(&'a [u8]),
    /// Bytes for the log, cut anywhere, never none. They may come at any place between those of the
    /// answer, and are whatever the application's programmers wrote.
    Stderr(&'a [u8]),
    /// The answer is complete, and this is the last event.
    End {
        /// What a CGI program would have returned to the system; 0 by custom when all went well.
        app_status: u32,
        /// Whether the application took the request at all.
        protocol_status: ProtocolStatus,
    },
}

/// Whether an application took a request (section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request came to its end.
    Complete,
    /// Refused: one request at a time. Not our mistake, since we send no second one.
    CannotMultiplex,
    /// Refused: no resources at this moment. Another application may take the request.
    Overloaded,
    /// Refused: this application is no responder.
    UnknownRole,
}

/// Decoder of the answer to one request. Start a new one for the next; do not use it again after an
/// error.
///
/// The answer ends with its END_REQUEST record. Whether a record without content has ended the
/// stream of the answer before that is of no account; a connection that closes without END_REQUEST
/// has cut the answer short.
#[derive(Debug, Clone)]
pub struct Answer {
    keep_conn: bool,
    part: Part,
    kind: Kind,
    /// Bytes of the header so far, then those of END_REQUEST.
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

impl Answer {
    /// The answer to a request that was sent with this `keep_conn`.
    pub fn new(keep_conn: bool) -> Self {
        Self {
            keep_conn,
            part: Part::Header,
            kind: Kind::Stdout,
            held: [0; HEADER_BYTES],
            held_len: 0,
            content_left: 0,
            padding_left: 0,
            surplus: false,
        }
    }

    /// Decodes what has arrived and hands each piece over without copying it. Input may be cut
    /// anywhere. After [`Event::End`] the answer is done and nothing more is consumed.
    ///
    /// # Errors
    /// 502 for anything that cannot be an answer to our request: another version, another request's
    /// id, an END_REQUEST of another length than its 8 bytes or with an unknown status, and a type
    /// that is neither STDOUT, STDERR nor END_REQUEST. Types of management records may be added
    /// (section 4.2), but such a record only answers one of the server's, and we send none. What was
    /// handed over before the error is part of an answer that never became complete.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut event: impl FnMut(Event<'_>),
    ) -> Result<Decoded, Reject> {
        let mut at = 0;
        while at < input.len() && self.part != Part::Done {
            at += self.step(&input[at..], &mut event)?;
            if self.part == Part::Done {
                event(self.end()?);
            }
        }
        self.surplus |= at < input.len();
        Ok(Decoded {
            consumed: at,
            done: self.part == Part::Done,
        })
    }

    /// Whether the connection may carry another request: it was asked for, the answer is complete,
    /// the application did not refuse the request, and nothing that was given to
    /// [`decode`](Answer::decode) came after the answer, for that would be read as part of the next.
    ///
    /// It is for the caller to know whether the request was sent in full: an application may answer
    /// before it has read the body.
    pub fn is_reusable(&self) -> bool {
        let complete = matches!(
            self.end(),
            Ok(Event::End {
                protocol_status: ProtocolStatus::Complete,
                ..
            })
        );
        self.keep_conn && self.part == Part::Done && complete && !self.surplus
    }

    /// Reads within one part of one record, and says how many bytes.
    fn step(&mut self, rest: &[u8], event: &mut impl FnMut(Event<'_>)) -> Result<usize, Reject> {
        let len = match self.part {
            Part::Header => return self.header(rest),
            Part::Content => self.content(rest, event),
            Part::Padding => {
                let len = rest.len().min(usize::from(self.padding_left));
                self.padding_left -= len as u8;
                len
            }
            Part::Done => 0,
        };
        self.next_part();
        Ok(len)
    }

    fn header(&mut self, rest: &[u8]) -> Result<usize, Reject> {
        let len = self.hold(rest);
        if self.held_len == HEADER_BYTES {
            self.held_len = 0;
            self.record()?;
            self.next_part();
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
        self.kind = match kind {
            kind::STDOUT => Kind::Stdout,
            kind::STDERR => Kind::Stderr,
            kind::END_REQUEST => Kind::End,
            _ => return Err(Reject::bad_gateway("FastCGI record of an unexpected type")),
        };
        self.content_left = u16::from_be_bytes([len1, len0]);
        self.padding_left = padding;
        if self.kind == Kind::End && usize::from(self.content_left) != HEADER_BYTES {
            return Err(Reject::bad_gateway("FastCGI end of a wrong length"));
        }
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

    /// Keeps as many bytes as belong together, and says how many.
    fn hold(&mut self, rest: &[u8]) -> usize {
        let len = rest.len().min(HEADER_BYTES - self.held_len);
        self.held[self.held_len..self.held_len + len].copy_from_slice(&rest[..len]);
        self.held_len += len;
        len
    }

    fn next_part(&mut self) {
        self.part = match self.kind {
            _ if self.content_left > 0 => Part::Content,
            _ if self.padding_left > 0 => Part::Padding,
            Kind::End => Part::Done,
            Kind::Stdout | Kind::Stderr => Part::Header,
        };
    }

    /// What END_REQUEST says (section 5.5).
    fn end(&self) -> Result<Event<'static>, Reject> {
        let [app3, app2, app1, app0, protocol, ..] = self.held;
        let protocol_status = match protocol {
            0 => ProtocolStatus::Complete,
            1 => ProtocolStatus::CannotMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => return Err(Reject::bad_gateway("FastCGI end with an unknown status")),
        };
        Ok(Event::End {
            app_status: u32::from_be_bytes([app3, app2, app1, app0]),
            protocol_status,
        })
    }
}
