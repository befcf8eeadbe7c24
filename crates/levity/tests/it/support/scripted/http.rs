//! Reading requests of HTTP/1.

use super::{Conn, Request};
use crate::support::wire::lines;

impl Conn {
    /// The next request with its body, which is kept; `None` when the peer has closed before.
    #[track_caller]
    pub fn read_request(&mut self) -> Option<Request> {
        let mut request = self.read_head()?;
        self.read_body(&mut request);
        Some(self.keep(request))
    }

    /// The head of the next request, which is not kept.
    #[track_caller]
    pub fn read_head(&mut self) -> Option<Request> {
        if !self.has_more() {
            return None;
        }
        let head = self.wire.take_through(b"\r\n\r\n").expect("a head");
        let (first, fields) = lines(&head);
        let words: Vec<_> = first.split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
            panic!("not a request line: {first:?}");
        };
        Some(Request {
            method: method.to_owned(),
            target: target.to_owned(),
            head,
            fields,
            ..Request::default()
        })
    }

    /// The body that belongs to a head; one that is cut short fails the test.
    #[track_caller]
    pub fn read_body(&mut self, request: &mut Request) {
        let length = request.field("content-length").map(str::to_owned);
        match (request.field("transfer-encoding"), length) {
            (Some("chunked"), None) => {
                let trailers = self.wire.take_chunked(&mut request.body);
                request.trailers = trailers.expect("a chunked body");
            }
            (None, Some(length)) => {
                let length = length.parse().expect("a Content-Length");
                request.body = self.wire.take(length).expect("a whole body");
            }
            (None, None) => {}
            (coding, length) => panic!("framed by {coding:?} and {length:?}"),
        }
    }

    /// A sound answer.
    pub fn answer(&mut self, status: &str, body: impl AsRef<[u8]>) -> bool {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send([head.as_bytes(), body].concat())
    }
}
