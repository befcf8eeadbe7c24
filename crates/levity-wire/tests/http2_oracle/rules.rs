//! Differences that RFC 9113 allows.

use std::fmt;

use levity_wire::http2::ErrorCode;

use crate::support::{
    CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PADDED, PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE,
    RST_STREAM, SETTINGS, Sent, sent,
};
use crate::verdict::{Request, Verdict};

/// What the two servers have made of the same frames.
pub struct Difference<'d> {
    /// The frames so far, the last of which makes the difference.
    pub frames: &'d [Vec<u8>],
    /// Both before it.
    pub before: &'d Verdict,
    pub ours: &'d Verdict,
    pub theirs: &'d Verdict,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for frame in self.frames {
            let frame = &sent(frame)[0];
            let payload = &frame.payload[..frame.payload.len().min(200)];
            writeln!(
                out,
                "type {} flags {:#x} stream {} bytes {}: {}",
                frame.kind,
                frame.flags,
                frame.stream,
                frame.payload.len(),
                payload.escape_ascii()
            )?;
        }
        let Self {
            before,
            ours,
            theirs,
            ..
        } = self;
        writeln!(
            out,
            "before: {before:?}\nours: {ours:?}\ntheirs: {theirs:?}"
        )
    }
}

impl Difference<'_> {
    /// The last frame.
    fn last(&self) -> Sent {
        sent(self.frames.last().expect("a frame")).remove(0)
    }

    /// The code with which a stream has just ended at `after`.
    fn reset(&self, after: &Verdict) -> Option<u32> {
        let is_new = |(stream, _): &(&u32, &u32)| !self.before.resets.contains_key(*stream);
        after.resets.iter().find(is_new).map(|(_, code)| *code)
    }

    /// The requests that only theirs has, or of which only theirs has all.
    fn theirs_alone(&self) -> impl Iterator<Item = &Request> {
        let requests = self.theirs.requests.iter();
        let others =
            requests.filter(|(stream, request)| self.ours.requests.get(stream) != Some(request));
        others.map(|(_, request)| request)
    }

    /// Whether a header section had these bytes, to which later ones may refer.
    fn has_sent(&self, bytes: &[u8]) -> bool {
        let mut sections = Vec::new();
        for frame in self.frames.iter().map(|frame| sent(frame).remove(0)) {
            match frame.kind {
                HEADERS if frame.flags & PADDED != 0 => {
                    let padding = usize::from(frame.payload[0]);
                    let end = frame.payload.len().saturating_sub(padding).max(1);
                    sections.extend_from_slice(&frame.payload[1..end]);
                }
                HEADERS | CONTINUATION => sections.extend(frame.payload),
                _ => {}
            }
        }
        sections.windows(bytes.len()).any(|part| part == bytes)
    }

    /// Whether a header section was not whole before the last frame.
    fn is_section_open(&self) -> bool {
        let before = self.frames.iter().rev().nth(1);
        before.is_some_and(|frame| {
            matches!(frame[3], HEADERS | CONTINUATION) && frame[4] & END_HEADERS == 0
        })
    }

    /// Whether the last frame is about a stream that has ended.
    fn is_late(&self) -> bool {
        let stream = self.last().stream;
        let is_reset = |frame: &Vec<u8>| {
            let frame = sent(frame).remove(0);
            frame.kind == RST_STREAM && frame.stream == stream
        };
        self.before.resets.contains_key(&stream) || self.frames.iter().any(is_reset)
    }
}

const PROTOCOL: u32 = ErrorCode::Protocol as u32;
const COMPRESSION: u32 = ErrorCode::Compression as u32;
const STREAM_CLOSED: u32 = ErrorCode::StreamClosed as u32;

type Allows = fn(&Difference<'_>) -> bool;

/// Rules of RFC 9113, if no other is named. "Not checked by theirs" says that it is ours that does as the RFC demands.
const RULES: &[(&str, Allows)] = &[
    (
        "5.4.1: the error of a stream may end the connection",
        |difference| {
            let (ours, theirs) = (difference.ours, difference.theirs);
            let reset = difference.reset(ours);
            ours.ended.is_none()
                && reset.is_some()
                && (theirs.ended == Some(PROTOCOL) || theirs.ended == reset)
        },
    ),
    (
        "5.4.1, of ours: a header section on a stream that the client has ended",
        |difference| {
            let (ours, theirs) = (difference.ours, difference.theirs);
            ours.ended == Some(STREAM_CLOSED) && difference.reset(theirs).is_some()
        },
    ),
    (
        "7: the general code in place of the one that fits best",
        |difference| {
            let (ours, theirs) = (difference.ours.ended, difference.theirs.ended);
            ours.is_some() && theirs == Some(PROTOCOL)
        },
    ),
    (
        "6.8: after its GOAWAY, a client without streams need not be kept",
        |difference| {
            let leaves = difference.frames.iter().any(|frame| frame[3] == GOAWAY);
            leaves && difference.theirs.ended == Some(0) && difference.ours.ended.is_none()
        },
    ),
    (
        "8.2.1, not checked by theirs: white space around a value",
        |difference| {
            let mut requests = difference.theirs_alone();
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            is_refused
                && requests.any(|request| request.head.iter().any(|line| line.contains(":  ")))
        },
    ),
    (
        "8.1, not checked by theirs: a pseudo-header in trailers",
        |difference| {
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            let mut requests = difference.theirs_alone();
            is_refused && requests.any(|request| request.body.is_some())
        },
    ),
    ("8.2, not checked by theirs: an empty name", |difference| {
        let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
        is_refused && difference.has_sent(b"\0\x01a")
    }),
    (
        "8.3.1, not checked by theirs: a Host that differs from :authority",
        |difference| {
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            let has_two = |request: &Request| {
                let hosts = request.head.iter();
                hosts.filter(|line| line.starts_with("host: ")).count() > 1
            };
            is_refused && difference.theirs_alone().any(has_two)
        },
    ),
    (
        "8.4, not checked by theirs on a stream in error: a promise",
        |difference| {
            difference.last().kind == PUSH_PROMISE && difference.ours.ended == Some(PROTOCOL)
        },
    ),
    (
        "RFC 9110, 8.6: a repeated Content-Length may be refused",
        |difference| {
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            let is_repeated = |request: &Request| {
                let lengths = request.head.iter();
                lengths
                    .filter(|line| line.starts_with("content-length: "))
                    .count()
                    > 1
            };
            is_refused && difference.theirs_alone().any(is_repeated)
        },
    ),
    (
        "8.3.1 and RFC 9110, 7.2: a request that names no host may be refused",
        |difference| {
            let names =
                |request: &Request| request.head.iter().any(|line| line.starts_with("host: "));
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            is_refused && difference.theirs_alone().any(|request| !names(request))
        },
    ),
    (
        "6.10, not checked by theirs on a stream in error: another frame within a header section",
        |difference| {
            let is_of_section = difference.last().kind == CONTINUATION;
            let is_in_error = !difference.theirs.resets.is_empty();
            difference.ours.ended == Some(PROTOCOL)
                && !is_of_section
                && is_in_error
                && difference.is_section_open()
        },
    ),
    (
        "4.3, not checked by theirs on a stream in error: a section that cannot be decoded",
        |difference| {
            let code = difference.ours.ended;
            code == Some(COMPRESSION) && difference.reset(difference.theirs).is_some()
        },
    ),
    (
        "5.1.1, not checked by theirs of a malformed request: a stream of the server",
        |difference| {
            let last = difference.last();
            let is_of_server = last.stream > 0 && last.stream.is_multiple_of(2);
            difference.ours.ended == Some(PROTOCOL) && is_of_server
        },
    ),
    (
        "6.4, not observed by theirs: no end of a stream that has not begun",
        |difference| {
            let last = difference.last();
            let is_told = difference.theirs.resets.contains_key(&last.stream);
            last.kind == PRIORITY && difference.ours.ended.is_some() && is_told
        },
    ),
    (
        "5.1: what comes for a stream that has ended may be ignored",
        |difference| {
            difference.is_late()
                && difference.ours == difference.before
                && difference.theirs.ended == Some(PROTOCOL)
        },
    ),
    (
        "8.3, not checked by theirs over more than one frame: the order of pseudo-headers",
        |difference| {
            let is_refused = difference.reset(difference.ours) == Some(PROTOCOL);
            is_refused && difference.last().kind == CONTINUATION
        },
    ),
    (
        "RFC 8441, 3: the setting of a client has no meaning",
        |difference| {
            difference.last().kind == SETTINGS
                && difference.theirs.ended == Some(PROTOCOL)
                && difference.ours.ended.is_none()
        },
    ),
    (
        "RFC 9218, 7.1, which theirs does not know: a priority of no request",
        |difference| {
            difference.last().kind == PRIORITY_UPDATE && difference.ours.ended == Some(PROTOCOL)
        },
    ),
];

/// The rule that allows `difference`.
pub fn rule(difference: &Difference<'_>) -> Option<&'static str> {
    let mut rules = RULES.iter();
    let found = rules.find(|(_, allows)| allows(difference));
    found.map(|(rule, _)| *rule)
}
