//! Bodies of answers, from bytes as a stream keeps them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::offset::Offset;
use crate::decimal;
use crate::sse::{Lines, push_text};

/// The form of what a stream keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Messages of JSON, as [`messages`](super::messages) writes them.
    Json,
    /// Text, which events carry as it is.
    Text,
    /// Bytes, which events carry in base64.
    Bytes,
}

impl Form {
    /// The form of a stream of this media type, as [`essence`](super::essence) returns it.
    #[must_use]
    pub fn of(media_type: &str) -> Self {
        match media_type {
            "application/json" => Self::Json,
            media_type if media_type.starts_with("text/") => Self::Text,
            _ => Self::Bytes,
        }
    }
}

/// Appends the body of an answer with `pieces` of a stream: an array of messages, or bytes.
pub fn push_body<'a>(out: &mut Vec<u8>, form: Form, pieces: impl IntoIterator<Item = &'a [u8]>) {
    let start = out.len();
    if form == Form::Json {
        out.push(b'[');
    }
    pieces
        .into_iter()
        .for_each(|piece| out.extend_from_slice(piece));
    if form == Form::Json {
        // The comma after the last message.
        if out.len() > start + 1 {
            out.pop();
        }
        out.push(b']');
    }
}

/// Writes an event `data` piece by piece: a large one is neither in memory as a whole nor written in one go.
#[derive(Debug)]
pub struct DataEvent {
    form: Form,
    /// What cannot be written before more is known: the start of a character, a comma, or less than three bytes for base64.
    rest: Vec<u8>,
    /// The line has no content yet.
    is_at_start: bool,
    /// The last byte was a CR.
    is_after_cr: bool,
}

impl DataEvent {
    /// Appends the start of an event.
    pub fn begin(out: &mut Vec<u8>, form: Form) -> Self {
        out.extend_from_slice(b"event: data\ndata:");
        if form == Form::Json {
            out.push(b'[');
        }
        Self {
            form,
            rest: Vec::new(),
            is_at_start: form != Form::Json,
            is_after_cr: false,
        }
    }

    /// Appends content of a stream, which may be cut anywhere.
    pub fn push(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        let joined;
        let mut piece = piece;
        if !self.rest.is_empty() {
            joined = [&std::mem::take(&mut self.rest)[..], piece].concat();
            piece = &joined;
        }
        let ready = piece.len() - self.unready(piece);
        self.rest.extend_from_slice(&piece[ready..]);
        match self.form {
            Form::Bytes => out.extend_from_slice(STANDARD.encode(&piece[..ready]).as_bytes()),
            Form::Json | Form::Text => self.push_lines(out, &piece[..ready]),
        }
    }

    /// The number of bytes at the end that cannot be written yet.
    fn unready(&self, piece: &[u8]) -> usize {
        match self.form {
            Form::Bytes => piece.len() % 3,
            // There may be no message after it.
            Form::Json => usize::from(piece.ends_with(b",")),
            Form::Text => {
                let last = piece.len().saturating_sub(3);
                let mut ends = (last..piece.len()).map(|start| &piece[start..]);
                let is_cut = |end: &&[u8]| {
                    let error = str::from_utf8(end).err();
                    error.is_some_and(|error| {
                        error.valid_up_to() == 0 && error.error_len().is_none()
                    })
                };
                ends.find(is_cut).map_or(0, <[u8]>::len)
            }
        }
    }

    /// Appends lines. Unlike [`sse::encode`](crate::sse::encode) without a space before the content: not all clients drop it.
    fn push_lines(&mut self, out: &mut Vec<u8>, mut content: &[u8]) {
        if self.is_after_cr && content.starts_with(b"\n") {
            content = &content[1..];
        }
        if !content.is_empty() {
            self.is_after_cr = content.ends_with(b"\r");
        }
        for (index, line) in Lines(Some(content)).enumerate() {
            if index > 0 {
                out.extend_from_slice(b"\ndata:");
                self.is_at_start = true;
            }
            // Those that do would drop this one.
            if self.is_at_start && line.starts_with(b" ") {
                out.push(b' ');
            }
            push_text(out, line);
            self.is_at_start &= line.is_empty();
        }
    }

    /// Appends the end of the event.
    pub fn end(mut self, out: &mut Vec<u8>) {
        match self.form {
            Form::Bytes => out.extend_from_slice(STANDARD.encode(&self.rest).as_bytes()),
            Form::Json => out.push(b']'),
            Form::Text => {
                let rest = std::mem::take(&mut self.rest);
                self.push_lines(out, &rest);
            }
        }
        out.extend_from_slice(b"\n\n");
    }
}

/// What the event `control` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The next offset to read from.
    pub next: Offset,
    /// The cursor for the next read.
    pub cursor: u64,
    /// There is no more at present.
    pub is_up_to_date: bool,
    /// There will never be more.
    pub is_closed: bool,
}

/// Appends the event `control`.
pub fn push_control(out: &mut Vec<u8>, control: Control) {
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(control.next.to_string().as_bytes());
    out.push(b'"');
    if !control.is_closed {
        // A reader of a closed stream does not come again.
        out.extend_from_slice(b",\"streamCursor\":\"");
        decimal::push(out, control.cursor);
        out.push(b'"');
    }
    if control.is_up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.is_closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(form: Form, pieces: &[&str]) -> String {
        let mut out = b"before ".to_vec();
        push_body(&mut out, form, pieces.iter().map(|piece| piece.as_bytes()));
        String::from_utf8(out).expect("text").split_off(7)
    }

    fn data(form: Form, pieces: &[&str]) -> String {
        let mut out = Vec::new();
        let mut event = DataEvent::begin(&mut out, form);
        for piece in pieces {
            event.push(&mut out, piece.as_bytes());
        }
        event.end(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn forms() {
        assert_eq!(Form::of("application/json"), Form::Json);
        assert_eq!(Form::of("text/event-stream"), Form::Text);
        assert_eq!(Form::of("application/ndjson"), Form::Bytes);
    }

    #[test]
    fn bodies() {
        assert_eq!(body(Form::Json, &[]), "[]");
        assert_eq!(body(Form::Json, &["1,", "[2],3,"]), "[1,[2],3]");
        assert_eq!(body(Form::Text, &["a,", "b,"]), "a,b,");
        assert_eq!(body(Form::Bytes, &[]), "");
    }

    #[test]
    fn data_cannot_end_its_event() {
        assert_eq!(data(Form::Text, &["a", "b"]), "event: data\ndata:ab\n\n");
        assert_eq!(
            data(Form::Text, &["1\n2\r\n3\r4\n\n5"]),
            "event: data\ndata:1\ndata:2\ndata:3\ndata:4\ndata:\ndata:5\n\n"
        );
        assert_eq!(
            data(Form::Text, &[" x\n"]),
            "event: data\ndata:  x\ndata:\n\n"
        );
        assert_eq!(
            data(Form::Json, &["{\n\"a\":1},", "2,"]),
            "event: data\ndata:[{\ndata:\"a\":1},2]\n\n"
        );
        assert_eq!(
            data(Form::Bytes, &["Hel", "lo"]),
            "event: data\ndata:SGVsbG8=\n\n"
        );
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        let contents = [
            (
                Form::Text,
                &b"a\r\n\r b\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xff\xe2\x82x\n\n \r\n\xf0\x9f"[..],
            ),
            (Form::Json, b"{\"a\":\n1},[2,\r\n3],\",\","),
            (Form::Bytes, b"Hello,\n\xff\x00 world"),
        ];
        for (form, content) in contents {
            let write = |pieces: &[&[u8]]| {
                let mut out = Vec::new();
                let mut event = DataEvent::begin(&mut out, form);
                pieces.iter().for_each(|piece| event.push(&mut out, piece));
                event.end(&mut out);
                String::from_utf8(out).expect("text")
            };
            let whole = write(&[content]);
            for first in 0..=content.len() {
                for second in first..=content.len() {
                    let pieces = [
                        &content[..first],
                        &content[first..second],
                        &content[second..],
                    ];
                    assert_eq!(write(&pieces), whole, "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn controls() {
        let control = |is_up_to_date, is_closed| {
            let mut out = Vec::new();
            let control = Control {
                next: Offset::ZERO,
                cursor: 1000,
                is_up_to_date,
                is_closed,
            };
            push_control(&mut out, control);
            String::from_utf8(out).expect("text")
        };
        let expected = |rest: &str| {
            format!(
                "event: control\ndata:{{\"streamNextOffset\":\"{}\"{rest}}}\n\n",
                Offset::ZERO
            )
        };
        let cursor = ",\"streamCursor\":\"1000\"";
        assert_eq!(control(false, false), expected(cursor));
        assert_eq!(
            control(true, false),
            expected(&format!("{cursor},\"upToDate\":true"))
        );
        assert_eq!(
            control(true, true),
            expected(",\"upToDate\":true,\"streamClosed\":true")
        );
    }
}
