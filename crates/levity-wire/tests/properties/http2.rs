//! Frames of a client of HTTP/2.

use levity_wire::http1::{Limits, RequestHead, parse_request};
use levity_wire::http2::{Connection, ErrorCode, Event, Failure, PREFACE, StreamId};

use super::cuts;

const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The most that is written for a byte of the client: a frame of nine bytes is answered with one or two.
const OUT_BYTES_PER_BYTE_MAX: usize = 8;

/// An empty frame of settings.
static SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// What becomes of frames that follow the preface.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// The header section, the body and the end of each request.
    requests: Vec<(StreamId, Vec<u8>, Vec<u8>, &'static str)>,
    out: Vec<u8>,
    failure: Option<Failure>,
}

/// The same becomes of frames however they arrive, what is answered is bounded, and every header section is whole or too long.
///
/// # Panics
/// If that is not so.
pub fn http2(bytes: &[u8]) {
    let whole = outcome([bytes]);
    assert!(whole.out.len() <= 200 + OUT_BYTES_PER_BYTE_MAX * bytes.len());
    for (_, head, ..) in &whole.requests {
        let parsed = parse_request(head, &mut RequestHead::default(), &Limits::default());
        assert!(!matches!(parsed, Ok(false)), "{}", head.escape_ascii());
    }
    assert_eq!(outcome(bytes.chunks(1)), whole);
    for cut in cuts(bytes.len()) {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(outcome([start, rest]), whole, "cut at {cut}");
    }
}

/// The code of the failure, or whether there was a request.
pub fn http2_outcome(bytes: &[u8]) -> String {
    let outcome = outcome([bytes]);
    let word = match outcome.failure.map(|failure| failure.code) {
        None if outcome.requests.is_empty() => "none",
        None => "ok",
        Some(ErrorCode::Protocol) => "protocol",
        Some(ErrorCode::FlowControl) => "flow",
        Some(ErrorCode::StreamClosed) => "closed",
        Some(ErrorCode::FrameSize) => "size",
        Some(ErrorCode::Compression) => "compression",
        Some(_) => "calm",
    };
    word.to_owned()
}

fn outcome<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Outcome {
    let mut connection = Connection::new(HEAD_BYTES_MAX, 0);
    let mut outcome = Outcome::default();
    let start: [&[u8]; 2] = [PREFACE, &SETTINGS];
    let pieces = start.into_iter().chain(pieces);
    for mut piece in pieces {
        loop {
            match connection.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(event)) => take(&mut outcome, &mut connection, &event),
                Err(failure) => {
                    outcome.failure = Some(failure);
                    outcome.out = connection.out().clone();
                    return outcome;
                }
            }
        }
        assert!(piece.is_empty());
    }
    outcome.out = connection.out().clone();
    outcome
}

fn take(outcome: &mut Outcome, connection: &mut Connection, event: &Event<'_>) {
    let request = |outcome: &mut Outcome, id: StreamId, change: &dyn Fn(&mut Vec<u8>), end| {
        let mut requests = outcome.requests.iter_mut().rev();
        let request = requests.find(|request| request.0 == id);
        let (_, _, body, last) = request.expect("a request comes first");
        assert_eq!(*last, "", "it has ended");
        change(body);
        *last = end;
    };
    match *event {
        Event::Request { stream, ends, .. } => {
            let head = connection.head().to_vec();
            let end = if ends { "whole" } else { "" };
            outcome.requests.push((stream, head, Vec::new(), end));
        }
        Event::Data {
            stream,
            bytes,
            ends,
        } => {
            let end = if ends { "whole" } else { "" };
            request(outcome, stream, &|body| body.extend_from_slice(bytes), end);
        }
        Event::Trailers { stream } => {
            let _ = connection.take_trailers();
            request(outcome, stream, &|_| {}, "trailers");
        }
        Event::Reset { stream } => {
            let mut requests = outcome.requests.iter_mut().rev();
            let request = requests.find(|request| request.0 == stream);
            // What of a frame that is too long was seen before depends on how it arrived.
            if let Some((_, _, body, last)) = request {
                *body = Vec::new();
                *last = "reset";
            }
        }
        Event::Malformed { .. } | Event::Window { .. } | Event::Priority { .. } => {}
    }
}
