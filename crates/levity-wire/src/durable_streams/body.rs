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

/// Appends the event `data` with `pieces` of a stream, which have content.
pub fn push_data<'a>(out: &mut Vec<u8>, form: Form, pieces: impl IntoIterator<Item = &'a [u8]>) {
    let mut content = Vec::new();
    push_body(&mut content, form, pieces);
    out.extend_from_slice(b"event: data\n");
    match form {
        Form::Bytes => {
            out.extend_from_slice(b"data:");
            out.extend_from_slice(STANDARD.encode(content).as_bytes());
            out.push(b'\n');
        }
        Form::Json | Form::Text => push_lines(out, &content),
    }
    out.push(b'\n');
}

/// Appends a line `data:` for each line of `content`. Unlike [`sse::encode`](crate::sse::encode) without a space before the
/// content: not all clients drop it.
fn push_lines(out: &mut Vec<u8>, content: &[u8]) {
    for line in Lines(Some(content)) {
        out.extend_from_slice(b"data:");
        // Those that do would drop this one.
        if line.starts_with(b" ") {
            out.push(b' ');
        }
        push_text(out, line);
        out.push(b'\n');
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
        push_data(&mut out, form, pieces.iter().map(|piece| piece.as_bytes()));
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
