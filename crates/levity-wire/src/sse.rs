//! Server-sent events: writes a stream of them, and splits one that an application sends into its blocks (WHATWG HTML,
//! 9.2).

use std::fmt::Display;
use std::io::Write as _;
use std::mem;
use std::time::Duration;

use memchr::{memchr, memchr2};

use crate::{Reject, decimal};

/// The media type of a stream of events.
pub const MEDIA_TYPE: &str = "text/event-stream";

/// A comment without text, which shows the receiver and all proxies that the connection is alive.
pub const HEARTBEAT: &[u8] = b":\n\n";

const TOO_LONG: Reject = Reject::bad_gateway("event of the stream too long");

/// What a stream may begin with, and is no part of its first line.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Appends an event. The receiver gets `data` with each CR, LF and CRLF as one LF, because a line of the stream cannot
/// contain them, and with U+FFFD for each sequence of bytes that is not UTF-8: a receiver that decodes strictly would fail
/// for the whole stream. See [`is_text`].
///
/// An empty `event` is omitted; the receiver then takes the event for a `message`. An `id` or `event` that contains a line
/// end or a NUL is omitted too: a line end would begin another field, and receivers ignore an id with a NUL.
///
/// The output has up to seven bytes for each byte of `data`, if that consists of line ends, and is hardly longer than
/// `data` otherwise.
pub fn encode(out: &mut Vec<u8>, id: Option<&dyn Display>, event: &str, data: &[u8]) {
    begin(out, id, event);
    push_data(out, None, data);
    out.extend_from_slice(END);
}

/// Appends the beginning of an event, as [`encode`]. [Parts of its data](push_data) and its [`END`] follow.
pub fn begin(out: &mut Vec<u8>, id: Option<&dyn Display>, event: &str) {
    if let Some(id) = id {
        push_id(out, id);
    }
    if !event.is_empty() && is_one_line(event.as_bytes()) {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
}

/// The end of an event, behind its data.
pub const END: &[u8] = b"\n\n";

/// Appends a part of the data of an event, as [`encode`] does with all of it. The part begins and ends with whole characters;
/// `before` is the byte before it, if it is not the first part.
pub fn push_data(out: &mut Vec<u8>, before: Option<u8>, part: &[u8]) {
    let part = match (before, part) {
        // The CR has ended the line.
        (Some(b'\r'), [b'\n', rest @ ..]) => rest,
        _ => part,
    };
    for (index, line) in Lines(Some(part)).enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\ndata: ");
        }
        push_text(out, line);
    }
}

/// Appends `line` with U+FFFD for each sequence of bytes that is not UTF-8.
pub(crate) fn push_text(out: &mut Vec<u8>, line: &[u8]) {
    for chunk in line.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// Whether a receiver of events gets `data` as it is: UTF-8 without CR.
#[must_use]
pub fn is_text(data: &[u8]) -> bool {
    memchr(b'\r', data).is_none() && str::from_utf8(data).is_ok()
}

/// Appends the time after which a receiver connects again when the stream has ended, in whole milliseconds.
pub fn retry(out: &mut Vec<u8>, time: Duration) {
    out.extend_from_slice(b"retry: ");
    decimal::push(out, u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    out.extend_from_slice(b"\n\n");
}

/// Appends an id with which a receiver comes back that has got no event yet. It is not an event.
pub fn position(out: &mut Vec<u8>, id: &dyn Display) {
    push_id(out, id);
    out.push(b'\n');
}

fn push_id(out: &mut Vec<u8>, id: &dyn Display) {
    let start = out.len();
    out.extend_from_slice(b"id: ");
    let value = out.len();
    let written = write!(out, "{id}");
    if written.is_err() || !is_one_line(&out[value..]) {
        out.truncate(start);
        return;
    }
    out.push(b'\n');
}

fn is_one_line(value: &[u8]) -> bool {
    memchr2(b'\r', b'\n', value).is_none() && memchr(0, value).is_none()
}

/// The lines of a text, without their ends: one more than it has line ends.
pub(crate) struct Lines<'d>(pub(crate) Option<&'d [u8]>);

impl<'d> Iterator for Lines<'d> {
    type Item = &'d [u8];

    fn next(&mut self) -> Option<&'d [u8]> {
        let rest = self.0?;
        let Some(end) = memchr2(b'\r', b'\n', rest) else {
            self.0 = None;
            return Some(rest);
        };
        let end_bytes = match &rest[end..] {
            [b'\r', b'\n', ..] => 2,
            _ => 1,
        };
        self.0 = Some(&rest[end + end_bytes..]);
        Some(&rest[..end])
    }
}

/// Splits a stream of events, which may arrive in pieces cut anywhere, into blocks.
///
/// It holds at most one block, and no memory while none is incomplete. A block that is incomplete at the end of the stream
/// is void (WHATWG HTML, 9.2.6), unless [`end`](Self::end) completes it.
#[derive(Debug)]
pub struct Scanner {
    /// The block so far, each line with an LF; with its end if it is complete.
    block: Vec<u8>,
    block_bytes_max: usize,
    /// Where the incomplete line begins in `block`.
    line_start: usize,
    is_complete: bool,
    /// The first line of the stream may begin with a byte order mark.
    is_first_line: bool,
    /// The last byte was a CR, which ended a line at once: a receiver should not wait for an LF that may not come.
    after_cr: bool,
}

impl Scanner {
    /// A scanner for a new stream. A block of more than `block_bytes_max` bytes is an error, counted with one byte for each
    /// line end and with that of the blank line at its end.
    #[must_use]
    pub const fn new(block_bytes_max: usize) -> Self {
        Self {
            block: Vec::new(),
            block_bytes_max,
            line_start: 0,
            is_complete: false,
            is_first_line: true,
            after_cr: false,
        }
    }

    /// The next block that `input` completes. `input` loses the bytes that have been read: `None` when it is empty and no
    /// block is complete.
    ///
    /// # Errors
    /// 502 for a block that is too long. The rest of the stream cannot be read then.
    pub fn next_block(&mut self, input: &mut &[u8]) -> Result<Option<Block<'_>>, Reject> {
        if mem::take(&mut self.is_complete) {
            self.block = Vec::new();
            self.line_start = 0;
        }
        while let [first, after_first @ ..] = *input {
            if mem::take(&mut self.after_cr) && *first == b'\n' {
                *input = after_first;
                continue;
            }
            let end = memchr2(b'\r', b'\n', input);
            let piece = &input[..end.unwrap_or(input.len())];
            // One more for the LF at its end.
            if self.block.len() + piece.len() >= self.block_bytes_max {
                return Err(TOO_LONG);
            }
            self.block.extend_from_slice(piece);
            let Some(end) = end else {
                *input = &[];
                break;
            };
            self.after_cr = input[end] == b'\r';
            *input = &input[end + 1..];
            self.is_complete = self.end_line();
            if self.is_complete {
                let bytes = &self.block[..];
                return Ok(Some(Block { bytes }));
            }
        }
        Ok(None)
    }

    /// The block that has begun, at the end of the stream, with the line ends that it lacks: a receiver would drop it without.
    pub fn end(&mut self) -> Option<Block<'_>> {
        if !self.is_in_block() {
            return None;
        }
        let has_begun_line = self.block.len() > self.line_start;
        self.is_complete = (has_begun_line && self.end_line()) || self.end_line();
        let bytes = &self.block[..];
        self.is_complete.then_some(Block { bytes })
    }

    /// Whether a block has begun that is not complete.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        !self.is_complete && !self.block.is_empty()
    }

    /// Ends the line. Returns whether that ends a block: a blank line after others, or a comment before all fields. Such a
    /// comment is a heartbeat, which is not always followed by a blank line.
    fn end_line(&mut self) -> bool {
        if mem::take(&mut self.is_first_line) && self.block.starts_with(BYTE_ORDER_MARK) {
            self.block.drain(..BYTE_ORDER_MARK.len());
        }
        let is_in_block = self.line_start > 0;
        let ends_block = match self.block.get(self.line_start) {
            None if is_in_block => true,
            None => return false,
            Some(first) => *first == b':' && !is_in_block,
        };
        self.block.push(b'\n');
        self.line_start = self.block.len();
        ends_block
    }
}

/// A complete part of a stream: an event, or a comment, or other lines up to a blank one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'b> {
    bytes: &'b [u8],
}

impl<'b> Block<'b> {
    /// The bytes as received, but for the line ends, each of which is an LF. They can be passed on to a receiver.
    #[must_use]
    pub fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The id that a receiver remembers from here on: the value of the last `id` without a NUL. It may be empty, which
    /// makes the receiver forget the earlier one.
    #[must_use]
    pub fn id(self) -> Option<&'b [u8]> {
        let mut fields = self.bytes.split(|&byte| byte == b'\n').rev().map(field);
        let id = fields.find(|(name, value)| *name == b"id" && memchr(0, value).is_none());
        id.map(|(_, value)| value)
    }

    /// Appends the block with this id in place of its own, or without any.
    pub fn write(self, out: &mut Vec<u8>, id: Option<&dyn Display>) {
        if let Some(id) = id {
            push_id(out, id);
        }
        let lines = self.bytes.split_inclusive(|&byte| byte == b'\n');
        for line in lines {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            if field(text).0 != b"id" {
                out.extend_from_slice(line);
            }
        }
    }
}

/// Name and value of a line. The name of a comment is empty.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr(b':', line) else {
        return (line, b"");
    };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(id: Option<&dyn Display>, event: &str, data: &[u8]) -> String {
        let mut out = Vec::new();
        encode(&mut out, id, event, data);
        String::from_utf8(out).expect("only UTF-8 is written")
    }

    fn blocks(pieces: &[&[u8]], bytes_max: usize) -> Result<Vec<String>, Reject> {
        let mut scanner = Scanner::new(bytes_max);
        let mut found = Vec::new();
        for mut piece in pieces.iter().copied() {
            while let Some(block) = scanner.next_block(&mut piece)? {
                found.push(String::from_utf8_lossy(block.bytes()).into_owned());
            }
        }
        Ok(found)
    }

    #[test]
    fn the_last_block_is_completed() {
        for (input, block) in [
            ("data: a\n\ndata: b\n", Some("data: b\n\n")),
            ("id: 1\ndata: b", Some("id: 1\ndata: b\n\n")),
            ("data: b\r", Some("data: b\n\n")),
            (": b", Some(": b\n")),
            ("\u{feff}data: b", Some("data: b\n\n")),
            ("\u{feff}", None),
            ("data: a\n\n", None),
            ("", None),
        ] {
            let mut scanner = Scanner::new(100);
            let mut rest = input.as_bytes();
            while scanner.next_block(&mut rest).expect("short").is_some() {}
            let end = scanner.end().map(Block::bytes);
            assert_eq!(end, block.map(str::as_bytes), "{input:?}");
            assert_eq!(scanner.end(), None);
        }
    }

    #[test]
    fn events_are_written() {
        assert_eq!(encoded(None, "", b"hi"), "data: hi\n\n");
        assert_eq!(
            encoded(Some(&"1-2"), "news", b"a\nb\r\nc\rd"),
            "id: 1-2\nevent: news\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
        );
        assert_eq!(encoded(None, "", b""), "data: \n\n");
        assert_eq!(encoded(None, "", b"\n\r"), "data: \ndata: \ndata: \n\n");
        assert_eq!(encoded(None, "", b" a"), "data:  a\n\n");
        assert_eq!(
            encoded(None, "", b"a\xff\xe2\x82b"),
            "data: a\u{fffd}\u{fffd}b\n\n"
        );
    }

    #[test]
    fn data_may_be_cut_between_any_characters() {
        let data = "a\r\n\r\r\n\n\u{20ac}\nb\r";
        for (at, _) in data.char_indices() {
            for (end, _) in data[at..].char_indices() {
                let mut out = Vec::new();
                begin(&mut out, Some(&"1-2"), "news");
                let mut before = None;
                let (first, rest) = data.split_at(at);
                let (second, third) = rest.split_at(end);
                for part in [first, second, third] {
                    push_data(&mut out, before, part.as_bytes());
                    before = part.bytes().last().or(before);
                }
                out.extend_from_slice(END);
                let whole = encoded(Some(&"1-2"), "news", data.as_bytes());
                assert_eq!(String::from_utf8_lossy(&out), whole, "{at} {end}");
            }
        }
    }

    #[test]
    fn no_field_can_be_smuggled_in() {
        for bad in ["a\nb", "a\r", "\0"] {
            assert_eq!(encoded(Some(&bad), bad, b"x"), "data: x\n\n");
        }
    }

    #[test]
    fn text_arrives_as_it_is() {
        assert!(is_text("a\nü".as_bytes()) && is_text(b""));
        assert!(!is_text(b"a\r\nb") && !is_text(b"\xff"));
    }

    #[test]
    fn a_time_to_reconnect() {
        let mut out = Vec::new();
        retry(&mut out, Duration::from_millis(3000));
        position(&mut out, &"7-0");
        assert_eq!(out, b"retry: 3000\n\nid: 7-0\n\n");
    }

    #[test]
    fn a_stream_is_split_at_blank_lines() {
        let stream =
            b"\xef\xbb\xbfdata: a\r\n\r\n\r\n:\n\n: b\nid\ndata\r\rretry: 5\n:c\n\ndata: cut";
        let expected = [
            "data: a\n\n",
            ":\n",
            ": b\n",
            "id\ndata\n\n",
            "retry: 5\n:c\n\n",
        ];
        for cut in 0..=stream.len() {
            let (start, rest) = stream.split_at(cut);
            assert_eq!(
                blocks(&[start, rest], 100).expect("short"),
                expected,
                "{cut}"
            );
        }
        let bytes: Vec<_> = stream.chunks(1).collect();
        assert_eq!(blocks(&bytes, 100).expect("short"), expected);
    }

    #[test]
    fn a_cr_ends_an_event_at_once() {
        let mut scanner = Scanner::new(100);
        let mut input = &b"data: a\r\n\r"[..];
        assert!(scanner.next_block(&mut input).expect("short").is_some());
        assert!(!scanner.is_in_block());
        let mut input = &b"\ndata: b"[..];
        assert_eq!(scanner.next_block(&mut input), Ok(None));
        assert!(scanner.is_in_block() && input.is_empty());
    }

    #[test]
    fn a_block_is_bounded() {
        let block = b"data: a\nid: 1\n\n";
        assert_eq!(
            blocks(&[block, block], block.len()).map(|found| found.len()),
            Ok(2)
        );
        assert_eq!(blocks(&[block], block.len() - 1), Err(TOO_LONG));
        let without_end = [&b":"[..]; 8];
        assert_eq!(blocks(&without_end, 9), Ok(Vec::new()));
        assert_eq!(blocks(&without_end, 8), Err(TOO_LONG));
        // Blank lines and heartbeats do not add up.
        assert_eq!(blocks(&[&b"\r\n"[..]; 9], 2), Ok(Vec::new()));
        assert_eq!(
            blocks(&[&b":\r\n"[..]; 9], 2).map(|found| found.len()),
            Ok(9)
        );
    }

    #[test]
    fn an_idle_scanner_holds_no_memory() {
        let mut scanner = Scanner::new(100);
        let mut input = &b"data: a\n\n"[..];
        while scanner.next_block(&mut input).expect("short").is_some() {}
        assert_eq!(scanner.block.capacity(), 0);
    }

    #[test]
    fn ids_of_a_block() {
        for (bytes, id) in [
            (
                &b"id: 1\nid\0: 3\nid: 2\0\nids: x\nID: y\n\n"[..],
                Some(&b"1"[..]),
            ),
            (b"id:  1\nid\n:id: x\n\n", Some(b"")),
            (b"data: id\n\n", None),
        ] {
            assert_eq!(Block { bytes }.id(), id);
        }
    }

    #[test]
    fn an_id_is_replaced() {
        let block = Block {
            bytes: b"id: 1\ndata: a\nid\nids: x\n:id\n\n",
        };
        let written = |id| {
            let mut out = Vec::new();
            block.write(&mut out, id);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written(Some(&"3-4")), "id: 3-4\ndata: a\nids: x\n:id\n\n");
        assert_eq!(written(None), "data: a\nids: x\n:id\n\n");
    }
}
