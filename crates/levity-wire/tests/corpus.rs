//! Replays the seeds of the fuzz targets. The first word of a seed's name is its required outcome:
//! `ok`, `more` for incomplete input, a status, the chosen coding, or the resulting client. Names
//! without such a word, as a fuzzer generates them, are only checked for their properties.

use std::fs;
use std::path::PathBuf;

use levity_wire::ajp13::Reader;
use levity_wire::cgi;
use levity_wire::coded_etag::{self, Deltas, Suffixes};
use levity_wire::condition::Verdict;
use levity_wire::digest::{self, Algorithm};
use levity_wire::encoding::{Accepted, Coding};
use levity_wire::fastcgi::ResponseDecoder;
use levity_wire::http1::{
    Chunked, Limits, Method, Reject, RequestHead, RequestInfo, ResponseHead, parse_request,
    parse_response,
};
use levity_wire::proxy_protocol;
use levity_wire::range::{self, Range};
use levity_wire::{basic_auth, content_range, htpasswd, jwt, path};

mod properties;

const OUTCOMES: &[&str] = &[
    "ok",
    "more",
    "200",
    "206",
    "304",
    "400",
    "412",
    "414",
    "416",
    "426",
    "431",
    "501",
    "502",
    "505",
    "zstd",
    "br",
    "gzip",
    "identity",
    "client",
    "hop",
    "peer",
    "sha256",
    "sha512",
    "html",
    "json",
    "plain",
    "none",
    "protocol",
    "flow",
    "closed",
    "size",
    "compression",
    "calm",
];

fn replay(target: &str, property: fn(&[u8]), outcome: fn(&[u8]) -> String) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut named = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed") {
        let file = entry.expect("a readable folder").path();
        let bytes = fs::read(&file).expect("a readable seed");
        property(&bytes);
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("an ASCII name");
        let expected = name
            .split('-')
            .next()
            .filter(|word| OUTCOMES.contains(word));
        if let Some(expected) = expected {
            assert_eq!(outcome(&bytes), expected, "{target}/{name}");
            named += 1;
        }
    }
    assert!(named >= 10, "{target} has {named} seeds with an outcome");
}

fn complete(outcome: Result<bool, Reject>) -> String {
    match outcome {
        Ok(true) => "ok".to_owned(),
        Ok(false) => "more".to_owned(),
        Err(reject) => reject.status.to_string(),
    }
}

fn accepted(is_accepted: bool) -> String {
    match is_accepted {
        true => "ok".to_owned(),
        false => "400".to_owned(),
    }
}

#[test]
fn request_head() {
    replay("request_head", properties::request_head, |bytes| {
        complete(parse_request(
            bytes,
            &mut RequestHead::default(),
            &Limits::default(),
        ))
    });
}

#[test]
fn response_head() {
    const ASKED: RequestInfo = RequestInfo {
        method: Method::Get,
        upgrade: true,
    };
    replay("response_head", properties::response_head, |bytes| {
        complete(parse_response(
            bytes,
            &mut ResponseHead::default(),
            ASKED,
            &Limits::default(),
        ))
    });
}

#[test]
fn forwarded() {
    replay("forwarded", properties::forwarded, |bytes| {
        properties::forwarded_client(bytes).to_owned()
    });
}

#[test]
fn chunked() {
    replay("chunked", properties::chunked, |bytes| {
        let decoded = Chunked::default().decode(bytes, |_| {});
        complete(decoded.map(|decoded| decoded.done))
    });
}

#[test]
fn range() {
    replay("range", properties::range, |bytes| {
        let (size, value) = properties::range_input(bytes);
        let status = match range::parse(value, size) {
            Range::Whole => 200,
            Range::Part(_) | Range::Several(_) => 206,
            Range::Unsatisfiable => 416,
        };
        status.to_string()
    });
}

#[test]
fn content_range() {
    replay("content_range", properties::content_range, |bytes| {
        accepted(content_range::parse(bytes).is_some())
    });
}

#[test]
fn want_digest() {
    replay("want_digest", properties::want_digest, |bytes| {
        let wanted = digest::wanted(bytes.split(|&byte| byte == b'\n'));
        wanted.map_or("none", Algorithm::key).replace('-', "")
    });
}

#[test]
fn tags_of_codings() {
    replay("coded_etag", properties::coded_etag, |bytes| {
        let mut value = bytes.to_vec();
        let suffixes = Suffixes {
            codings: &Coding::ALL,
            deltas: Deltas::Any,
        };
        let length = coded_etag::uncode(&mut value, suffixes, true).length;
        match value[..length] == *bytes {
            true => "identity".to_owned(),
            false => "ok".to_owned(),
        }
    });
}

#[test]
fn accept() {
    replay("accept", properties::accept, |bytes| {
        let lines = bytes.split(|&byte| byte == b'\n');
        let preferred = levity_wire::accept::preferred(lines, &properties::OFFERED_TYPES);
        let subtype = |index: usize| properties::OFFERED_TYPES[index].rsplit('/').next();
        preferred.and_then(subtype).unwrap_or("none").to_owned()
    });
}

#[test]
fn durable_streams() {
    replay("durable_streams", properties::durable_streams, |bytes| {
        properties::durable_streams_status(bytes).to_string()
    });
}

#[test]
fn encoding() {
    replay("encoding", properties::encoding, |bytes| {
        let accepted = Accepted::parse(bytes.split(|&byte| byte == b'\n'));
        let choices = accepted.choices(&Coding::ALL);
        choices
            .first()
            .map_or("identity", |coding| coding.name())
            .to_owned()
    });
}

#[test]
fn condition() {
    replay("condition", properties::condition, |bytes| {
        let status = match properties::Conditional::read(bytes).verdict() {
            Verdict::Proceed => 200,
            Verdict::NotModified => 304,
            Verdict::Failed => 412,
        };
        status.to_string()
    });
}

#[test]
fn path() {
    replay("path", properties::path, |bytes| {
        complete(path::decode(bytes, &mut Vec::new()).map(|()| true))
    });
}

#[test]
fn fastcgi() {
    replay("fastcgi", properties::fastcgi, |bytes| {
        let decoded = ResponseDecoder::new(true).decode(bytes, |_| {});
        complete(decoded.map(|decoded| decoded.done))
    });
}

#[test]
fn cgi_response() {
    replay("cgi_response", properties::cgi_response, |bytes| {
        let mut head = cgi::ResponseHead::default();
        complete(cgi::parse_response(bytes, &mut head, &Limits::default()))
    });
}

#[test]
fn ajp13() {
    replay("ajp13", properties::ajp13, |bytes| {
        complete(properties::ajp13_in_pieces(Reader::response(), [bytes]).end)
    });
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", properties::proxy_protocol, |bytes| {
        complete(proxy_protocol::parse(bytes).map(|header| header.is_some()))
    });
}

#[test]
fn sendfile_header() {
    replay("sendfile_header", properties::sendfile_header, |bytes| {
        complete(properties::sendfile_outcome(bytes))
    });
}

#[test]
fn mailbox() {
    replay("mailbox", properties::mailbox, |bytes| {
        complete(properties::mailbox_outcome(bytes))
    });
}

#[test]
fn grip() {
    replay("grip", properties::grip, |bytes| {
        complete(properties::grip_outcome(bytes))
    });
}

#[test]
fn websocket_frames() {
    replay("websocket_frames", properties::websocket_frames, |bytes| {
        properties::websocket_frames_outcome(bytes).to_owned()
    });
}

#[test]
fn websocket_handshake() {
    replay(
        "websocket_handshake",
        properties::websocket_handshake,
        |bytes| complete(properties::websocket_outcome(bytes)),
    );
}

#[test]
fn http2() {
    replay("http2", properties::http2, properties::http2_outcome);
}

#[test]
fn sse() {
    replay("sse", properties::sse, |bytes| {
        complete(properties::sse_outcome(bytes))
    });
}

#[test]
fn htpasswd() {
    replay("htpasswd", properties::htpasswd, |bytes| {
        let text = str::from_utf8(bytes).unwrap_or("\0");
        accepted(htpasswd::parse(text).is_ok())
    });
}

#[test]
fn basic_auth() {
    replay("basic_auth", properties::basic_auth, |bytes| {
        accepted(basic_auth::credentials(bytes).is_some())
    });
}

#[test]
fn jwt() {
    replay("jwt", properties::jwt, |bytes| {
        accepted(jwt::parse(bytes).is_some())
    });
}
