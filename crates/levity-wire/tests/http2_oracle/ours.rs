//! The codec of this crate.

use std::collections::BTreeMap;
use std::mem;

use levity_wire::http1::{Limits, RequestHead, parse_request};
use levity_wire::http2::{CONNECTION_WINDOW_BYTES, Connection, ErrorCode, Event};

use crate::support::{HEAD_BYTES_MAX, sent};
use crate::verdict::{Request, Verdict, comparable};

/// A connection. What has arrived of bodies is never used, so that windows do not grow.
pub struct Ours {
    connection: Connection,
    /// Bodies that have not ended.
    bodies: BTreeMap<u32, Vec<u8>>,
    pub verdict: Verdict,
}

impl Ours {
    pub fn new() -> Self {
        let mut connection = Connection::new(HEAD_BYTES_MAX, 0);
        connection.set_receive_window(CONNECTION_WINDOW_BYTES);
        Self {
            connection,
            bodies: BTreeMap::new(),
            verdict: Verdict::default(),
        }
    }

    /// Takes bytes of the client.
    pub fn receive(&mut self, mut bytes: &[u8]) {
        while let Ok(Some(event)) = self.connection.next(&mut bytes) {
            self.take(&event);
        }
        let out = mem::take(self.connection.out());
        self.verdict.take(&sent(&out));
    }

    fn take(&mut self, event: &Event<'_>) {
        match *event {
            Event::Request { stream, ends, .. } => {
                let (bytes, mut head) = (self.connection.head(), RequestHead::default());
                if !matches!(
                    parse_request(bytes, &mut head, &Limits::default()),
                    Ok(true)
                ) {
                    // The server answers 400 before the end of the stream, as RFC 9113, 8.1.1 allows.
                    let code = ErrorCode::Protocol;
                    return self.connection.send_reset(stream, code);
                }
                let request = Request {
                    head: comparable_head(&head, bytes),
                    ..Request::default()
                };
                self.verdict.requests.insert(stream, request);
                self.bodies.insert(stream, Vec::new());
                if ends {
                    self.end(stream, Vec::new());
                }
            }
            Event::Data {
                stream,
                bytes,
                ends,
            } => {
                let body = self.bodies.get_mut(&stream).expect("a request");
                body.extend_from_slice(bytes);
                if ends {
                    self.end(stream, Vec::new());
                }
            }
            Event::Trailers { stream } => {
                let trailers = self.connection.take_trailers();
                let name = |name| str::from_utf8(name).expect("a token");
                let fields = trailers.fields();
                let fields = fields.map(|(of, value)| (name(of), value));
                self.end(stream, comparable(fields));
            }
            Event::Malformed { .. }
            | Event::Reset { .. }
            | Event::Window { .. }
            | Event::Priority { .. } => {}
        }
    }

    fn end(&mut self, stream: u32, trailers: Vec<String>) {
        let request = self.verdict.requests.get_mut(&stream).expect("a request");
        request.body = self.bodies.remove(&stream);
        request.trailers = trailers;
    }
}

/// The header section of HTTP/1 as it is compared.
fn comparable_head(head: &RequestHead, bytes: &[u8]) -> Vec<String> {
    let names: Vec<_> = head
        .headers
        .iter()
        .map(|header| String::from_utf8_lossy(header.name.of(bytes)))
        .collect();
    let values = head.headers.iter().map(|header| header.value.of(bytes));
    let fields = names.iter().map(|name| &**name).zip(values);
    let line = [head.method_span.of(bytes), head.target_span.of(bytes)];
    let line = line.map(|part| String::from_utf8_lossy(part).into_owned());
    [line.to_vec(), comparable(fields)].concat()
}
