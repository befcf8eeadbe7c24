//! A parser of responses that are streams of events (Server-Sent Events over HTTP/1.1). No I/O, no clock.

use crate::failure::{Context, Failure, Result};

/// The maximum number of headers.
const HEADERS_MAX: usize = 64;
/// The maximum size of a header section, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The maximum length of an event that arrives in parts, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The parser state of a connection between reads. It holds memory only while something is incomplete.
#[derive(Default)]
pub struct Stream {
    head: Vec<u8>,
    body: Option<Framing>,
    events: Events,
}

/// The framing of the body.
enum Framing {
    /// Until the connection closes.
    Plain,
    Chunked(Chunk),
}

/// The position in a chunked body (RFC 9112, section 7.1).
enum Chunk {
    /// In the line with the size, of which so much is known.
    Size(u64),
    /// In what follows the size in its line.
    Extension(u64),
    Content(u64),
    /// In the line end after the content.
    End,
}

/// The position in the events.
#[derive(Default)]
struct Events {
    /// An incomplete line.
    line: Vec<u8>,
    /// The data of the incomplete event, from earlier reads.
    data: Option<Vec<u8>>,
}

impl Stream {
    /// Whether the header section has arrived.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.body.is_some()
    }

    /// Parses the bytes of a read, and calls `event` with the data of each event that is complete.
    ///
    /// # Errors
    /// The response is not 200 with `text/event-stream`, or violates HTTP; the body has ended.
    pub fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<()> {
        if self.body.is_some() {
            return self.take_body(bytes, &mut event);
        }
        self.head.extend_from_slice(bytes);
        let Some((length, framing)) = parse_head(&self.head)? else {
            return Ok(());
        };
        let head = std::mem::take(&mut self.head);
        self.body = Some(framing);
        self.take_body(&head[length..], &mut event)
    }

    fn take_body(&mut self, mut bytes: &[u8], event: &mut impl FnMut(&[u8])) -> Result<()> {
        match &mut self.body {
            Some(Framing::Chunked(chunk)) => {
                while let Some(content) = chunk.take(&mut bytes)? {
                    self.events.feed(content, event)?;
                }
                Ok(())
            }
            _ => self.events.feed(bytes, event),
        }
    }
}

impl Chunk {
    /// Takes the next piece of content off the bytes; None when they are used up.
    fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>> {
        while let Some((&first, rest)) = bytes.split_first() {
            match *self {
                Self::Content(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let (content, rest) = bytes.split_at(length);
                    let left = left - length as u64;
                    *self = if left == 0 {
                        Self::End
                    } else {
                        Self::Content(left)
                    };
                    *bytes = rest;
                    return Ok(Some(content));
                }
                Self::End if first == b'\n' => *self = Self::Size(0),
                Self::End if first == b'\r' => {}
                Self::End => return Err(Failure::new("a chunk does not end with a line end")),
                Self::Size(size) | Self::Extension(size) if first == b'\n' => {
                    if size == 0 {
                        return Err(Failure::new("the stream has ended"));
                    }
                    *self = Self::Content(size);
                }
                Self::Size(size) if first == b';' || first == b'\r' => {
                    *self = Self::Extension(size);
                }
                Self::Size(size) => *self = Self::Size(with_digit(size, first)?),
                Self::Extension(_) => {}
            }
            *bytes = rest;
        }
        Ok(None)
    }
}

fn with_digit(size: u64, digit: u8) -> Result<u64> {
    let value = char::from(digit).to_digit(16);
    let value = value.ok_or_else(|| Failure::new("the size of a chunk is not a number"))?;
    size.checked_mul(16)
        .and_then(|size| size.checked_add(u64::from(value)))
        .ok_or_else(|| Failure::new("a chunk is too long"))
}

impl Events {
    /// Lines end with LF or CRLF: no server under test uses CR alone.
    fn feed(&mut self, mut bytes: &[u8], event: &mut impl FnMut(&[u8])) -> Result<()> {
        if !self.line.is_empty()
            && let Some(end) = memchr::memchr(b'\n', bytes)
        {
            let (first, rest) = bytes.split_at(end + 1);
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(first);
            self.take_lines(&line, event)?;
            bytes = rest;
        }
        let lines = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        self.take_lines(&bytes[..lines], event)?;
        self.line.extend_from_slice(&bytes[lines..]);
        bounded(self.line.len())
    }

    /// The usual event, with one line of data, arrives at once and is passed on without a copy.
    fn take_lines(&mut self, mut lines: &[u8], event: &mut impl FnMut(&[u8])) -> Result<()> {
        let mut whole: Option<&[u8]> = None;
        while let Some(end) = memchr::memchr(b'\n', lines) {
            match Line::of(&lines[..end]) {
                Line::Empty => {
                    let kept = self.data.take();
                    if let Some(data) = kept.as_deref().or(whole.take()) {
                        event(data);
                    }
                }
                Line::Data(data) if self.data.is_none() && whole.is_none() => whole = Some(data),
                Line::Data(data) => self.add(whole.take(), data)?,
                Line::Other => {}
            }
            lines = &lines[end + 1..];
        }
        whole.map_or(Ok(()), |data| self.add(None, data))
    }

    /// Adds a line of data, after the one that was not copied yet.
    fn add(&mut self, before: Option<&[u8]>, line: &[u8]) -> Result<()> {
        for line in before.into_iter().chain([line]) {
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(line);
                }
                None => self.data = Some(line.to_vec()),
            }
        }
        bounded(self.data.as_ref().map_or(0, Vec::len))
    }
}

fn bounded(bytes: usize) -> Result<()> {
    if bytes > EVENT_BYTES_MAX {
        return Err(Failure::new("an event is too long"));
    }
    Ok(())
}

/// A line of an event stream.
enum Line<'a> {
    /// It ends the event.
    Empty,
    Data(&'a [u8]),
    /// A comment, or another field.
    Other,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Self {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Self::Empty;
        }
        match line.strip_prefix(b"data:") {
            Some(data) => Self::Data(data.strip_prefix(b" ").unwrap_or(data)),
            None => Self::Other,
        }
    }
}

/// The length of a header section and the framing of the body; None when it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Framing)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let status = response
        .parse(bytes)
        .context(|| "header of the stream".into())?;
    let httparse::Status::Complete(length) = status else {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Failure::new("the header of the stream is too long"));
        }
        return Ok(None);
    };
    let code = response.code.unwrap_or_default();
    let value = |name: &str| {
        let mut headers = response.headers.iter();
        let header = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        header.map_or(&b""[..], |header| header.value)
    };
    if code != 200 || !value("content-type").starts_with(b"text/event-stream") {
        return Err(Failure::new(format!("no stream of events: status {code}")));
    }
    let framing = match value("transfer-encoding") {
        b"" => Framing::Plain,
        _ => Framing::Chunked(Chunk::Size(0)),
    };
    Ok(Some((length, framing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    const EVENTS: &str = ": hi\n\nretry: 3000\nid: 1-1\nevent: e\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\nid: 3\n\n: ping\n\ndata: \n\ndata: four\n\ndata: unfin";

    fn chunked(text: &str, size: usize) -> String {
        let pieces = text.as_bytes().chunks(size);
        let chunks = pieces.map(|piece| {
            let text = std::str::from_utf8(piece).unwrap();
            format!("{:x};ext=1\r\n{text}\r\n", piece.len())
        });
        CHUNKED.to_owned() + &chunks.collect::<String>()
    }

    fn events(response: &str, pieces: usize) -> Vec<String> {
        let mut stream = Stream::default();
        let mut events = Vec::new();
        for piece in response.as_bytes().chunks(pieces) {
            let take = |data: &[u8]| events.push(String::from_utf8(data.to_vec()).unwrap());
            stream.feed(piece, take).unwrap();
        }
        assert!(stream.has_begun());
        events
    }

    #[test]
    fn the_events_are_the_same_however_they_are_cut() {
        let expected = ["one", "two\nlines", "", "four"];
        for piece in 1..200 {
            assert_eq!(events(&(PLAIN.to_owned() + EVENTS), piece), expected);
            for chunk in [1, 3, 17, 1000] {
                assert_eq!(events(&chunked(EVENTS, chunk), piece), expected);
            }
        }
    }

    #[test]
    fn no_memory_is_held_between_events() {
        let mut stream = Stream::default();
        stream
            .feed(chunked("data: one\n\n", 100).as_bytes(), |_| {})
            .unwrap();
        assert_eq!(stream.head.capacity(), 0);
        assert_eq!(stream.events.line.capacity(), 0);
        assert!(stream.events.data.is_none());
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        let error = |response: &str| {
            let mut stream = Stream::default();
            let result = stream.feed(response.as_bytes(), |_| {});
            result.unwrap_err().to_string()
        };
        assert!(error("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").contains("503"));
        assert!(error("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n").contains("no stream"));
        assert!(error(&format!("{CHUNKED}0\r\n\r\n")).contains("ended"));
        assert!(error(&format!("{CHUNKED}zz\r\n")).contains("number"));
        assert!(error(&format!("{CHUNKED}1\r\naXX")).contains("line end"));
        assert!(error(&format!("{CHUNKED}fffffffffffffffff\r\n")).contains("too long"));
        assert!(
            error(&format!("{PLAIN}data: {}", "x".repeat(EVENT_BYTES_MAX + 1)))
                .contains("too long")
        );
    }
}
