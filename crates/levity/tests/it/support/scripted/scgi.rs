//! Reading requests of SCGI.

use super::{Conn, Request};
use crate::support::wire::Fields;

impl Conn {
    /// The request with its body, which is kept; `None` when the peer has closed before.
    #[track_caller]
    pub fn read_scgi(&mut self) -> Option<Request> {
        if !self.has_more() {
            return None;
        }
        let mut head = self.wire.take_through(b":").expect("a netstring");
        let digits = String::from_utf8_lossy(&head[..head.len() - 1]).into_owned();
        let len: usize = digits.parse().expect("the length of a netstring");
        let variables = self.wire.take(len + 1).expect("a whole netstring");
        head.extend_from_slice(&variables);
        let variables = variables
            .strip_suffix(b",")
            .expect("the end of a netstring");
        let mut request = Request::of_cgi(pairs(variables), head);
        assert_eq!(request.fields[0].0, "CONTENT_LENGTH", "comes first");
        let length = request.field("CONTENT_LENGTH").expect("a length");
        let length = length.parse().expect("a length");
        request.body = self.wire.take(length).expect("a whole body");
        Some(self.keep(request))
    }
}

#[track_caller]
fn pairs(variables: &[u8]) -> Fields {
    let variables = variables.strip_suffix(b"\0").expect("a NUL at the end");
    let texts: Vec<_> = variables.split(|&byte| byte == 0).collect();
    assert!(texts.len().is_multiple_of(2), "a name without a value");
    let pair = |pair: &[&[u8]]| {
        let name = String::from_utf8(pair[0].to_vec()).expect("a name in UTF-8");
        (name, pair[1].to_vec())
    };
    texts.chunks(2).map(pair).collect()
}

impl Request {
    /// A request whose variables are those of CGI.
    pub(super) fn of_cgi(fields: Fields, head: Vec<u8>) -> Self {
        let mut request = Self {
            head,
            fields,
            ..Self::default()
        };
        let text = |name| request.field(name).unwrap_or_default().to_owned();
        (request.method, request.target) = (text("REQUEST_METHOD"), text("REQUEST_URI"));
        request
    }
}
