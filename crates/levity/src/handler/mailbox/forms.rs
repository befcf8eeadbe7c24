//! The forms in which receivers get messages.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_mailbox::{Draft, Message, MessageId};
use levity_wire::websocket::{Opcode, frame, push_header};
use levity_wire::{mime, sse};
use serde_json::{Value, json};

use super::grip_item::content;
use crate::handler::mailbox::receiver_clock::{Ending, TURN_BYTES_MAX};

/// A form in which messages are sent one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// A JSON object per line.
    Lines,
    /// The content alone.
    Content,
    /// The content as a message of a WebSocket.
    Frames,
    /// The object of a line as a message of a WebSocket.
    Objects,
    /// An event of an application, with an id by which it is [resumed](super::super::resume).
    Resumed,
}

/// The media types of messages of a stream which is resumed that are no events. No application's id has a space.
const COMPLETE: &str = "the end";
const TRUNCATED: &str = "cut short";
/// Followed by the id of the application.
const HEADERS: &str = "the headers ";

/// The size of a part of a long message in bytes, about. A receiver whose client takes nothing makes the part again when it does.
/// Others have their turn after each; the parts of Base64 can be joined.
pub const PART_BYTES: usize = TURN_BYTES_MAX.next_multiple_of(3);

/// What most forms have beside the content, in bytes.
const FIELDS_BYTES: usize = 80;

/// The heartbeat of a WebSocket: a Ping without content.
const PING: &[u8] = &[0x89, 0];

/// The ends of media types whose content is text, beside `text/*`.
const TEXT_TYPES: [&str; 3] = ["json", "xml", "javascript"];

impl Form {
    /// Its number at [`Entry::form`](levity_mailbox::Entry::form).
    pub fn number(self) -> usize {
        match self {
            // Boxes of streams that are resumed are read in no other form.
            Self::Resumed => 0,
            other => other as usize,
        }
    }

    /// The media type of the response; a WebSocket has none.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Events | Self::Resumed => sse::MEDIA_TYPE,
            Self::Lines => "application/x-ndjson",
            Self::Content => "application/octet-stream",
            Self::Frames | Self::Objects => "",
        }
    }

    /// Whether the content is sent as text. To be asked once for a message, since it looks at all of the content.
    pub fn is_text(self, message: &Message) -> bool {
        let (media_type, content) = content(message, self == Self::Content);
        match self {
            // They send bytes as they are.
            Self::Content | Self::Resumed => false,
            Self::Frames => is_text(&media_type) && str::from_utf8(content).is_ok(),
            Self::Events | Self::Lines | Self::Objects => str::from_utf8(content).is_ok(),
        }
    }

    /// The number of parts in which a message is sent.
    pub fn parts(self, message: &Message) -> usize {
        if message.draft.content.len() <= PART_BYTES {
            return 1;
        }
        let (_, content) = content(message, self == Self::Content);
        content.len().div_ceil(PART_BYTES).max(1)
    }

    /// The part of a message of that number in this form; [`is_text`](Self::is_text) says in which. The same part has always the
    /// same bytes.
    pub fn encode(self, message: &Message, number: usize, is_text: bool) -> Vec<u8> {
        let part = Part::new(self, message, number, is_text);
        let draft = &message.draft;
        let mut out = Vec::with_capacity(part.bytes.len() + FIELDS_BYTES);
        match self {
            Self::Events => {
                if part.is_first {
                    sse::begin(&mut out, Some(&message.id), &draft.event);
                }
                match is_text {
                    true => sse::push_data(&mut out, part.before, part.bytes),
                    false => push_base64(&mut out, part.bytes),
                }
                if part.is_last {
                    out.extend_from_slice(sse::END);
                }
            }
            Self::Lines => {
                part.add_object(&mut out, message);
                if part.is_last {
                    out.push(b'\n');
                }
            }
            Self::Content => out.extend_from_slice(part.bytes),
            // The first message: a client that loses its connection before the first event has an id to come back with.
            Self::Resumed if is_headers(message) => {
                if part.is_first && message.id.sequence == 1 {
                    let (token, id) = (&draft.event, message.id);
                    let of_application = &draft.media_type[HEADERS.len()..];
                    let line = format!("id: lv.{token}.{id}.{of_application}\n\n");
                    out.extend_from_slice(line.as_bytes());
                }
            }
            Self::Resumed => {
                if part.is_first {
                    let (token, id, of) = (&draft.event, message.id, &draft.media_type);
                    out.extend_from_slice(format!("id: lv.{token}.{id}.{of}\n").as_bytes());
                }
                out.extend_from_slice(part.bytes);
            }
            Self::Frames => {
                if part.is_first {
                    push_header(&mut out, self.opcode(is_text), false, true, part.total);
                }
                out.extend_from_slice(part.bytes);
            }
            Self::Objects => {
                // How long the object is, only its end would tell.
                let object = part.object(message);
                let opcode = match part.is_first {
                    true => Opcode::Text,
                    false => Opcode::Continuation,
                };
                push_header(&mut out, opcode, false, part.is_last, object.len() as u64);
                out.extend_from_slice(&object);
            }
        }
        out
    }

    /// What the frames of a WebSocket have of that part.
    pub fn data(self, message: &Message, number: usize, is_text: bool) -> Cow<'_, [u8]> {
        let part = Part::new(self, message, number, is_text);
        match self {
            Self::Objects => part.object(message).into(),
            _ => part.bytes.into(),
        }
    }

    /// The kind of message of a WebSocket.
    pub fn opcode(self, is_text: bool) -> Opcode {
        match is_text || self == Self::Objects {
            true => Opcode::Text,
            false => Opcode::Binary,
        }
    }

    /// What tells a receiver that messages up to `last` are gone. The forms of contents alone have nothing for it.
    pub fn gap(self, last: MessageId) -> Vec<u8> {
        let mut out = Vec::new();
        let object = || json!({"gap": true, "id": last.to_string()}).to_string();
        match self {
            Self::Events => {
                let id = last.to_string();
                sse::encode(&mut out, Some(&last), "gap", id.as_bytes());
            }
            // The next event has the id to go on from.
            Self::Resumed => sse::encode(&mut out, None, "gap", b"lost"),
            Self::Lines => {
                out.extend_from_slice(object().as_bytes());
                out.push(b'\n');
            }
            Self::Objects => out = frame(self.opcode(true), false, object().as_bytes()),
            Self::Content | Self::Frames => {}
        }
        out
    }

    /// Makes `draft` the end of a stream that is resumed.
    pub fn mark_end(draft: &mut Draft, is_complete: bool) {
        let media_type = if is_complete { COMPLETE } else { TRUNCATED };
        draft.media_type = media_type.into();
    }

    /// Makes `draft` the headers of a stream that is resumed, whose client has the id `of_application` so far.
    pub fn mark_headers(draft: &mut Draft, of_application: &str) {
        draft.media_type = format!("{HEADERS}{of_application}").into();
    }

    /// How a stream that is resumed ends with `message`, if it does.
    pub fn end(self, message: &Message) -> Option<Ending> {
        match (self, &*message.draft.media_type) {
            (Self::Resumed, COMPLETE) => Some(Ending::Finished),
            (Self::Resumed, TRUNCATED) => Some(Ending::Truncated),
            _ => None,
        }
    }

    /// What keeps a silent connection alive.
    pub fn heartbeat(self) -> &'static [u8] {
        match self {
            Self::Events | Self::Resumed => sse::HEARTBEAT,
            Self::Lines => b"\n",
            Self::Content => b"",
            Self::Frames | Self::Objects => PING,
        }
    }
}

/// Whether the message has the headers of a stream that is resumed.
pub fn is_headers(message: &Message) -> bool {
    message.draft.media_type.starts_with(HEADERS)
}

/// A part of the content of a message.
struct Part<'m> {
    bytes: &'m [u8],
    /// The byte before it.
    before: Option<u8>,
    /// The size of all of the content.
    total: u64,
    is_first: bool,
    is_last: bool,
    is_text: bool,
}

impl<'m> Part<'m> {
    fn new(form: Form, message: &'m Message, number: usize, is_text: bool) -> Self {
        let (_, content) = content(message, form == Form::Content);
        let start = part_start(content, number, PART_BYTES, is_text);
        let end = part_start(content, number + 1, PART_BYTES, is_text);
        Self {
            bytes: &content[start..end],
            before: start.checked_sub(1).map(|before| content[before]),
            total: content.len() as u64,
            is_first: number == 0,
            is_last: end == content.len(),
            is_text,
        }
    }

    /// Adds its part of the message as JSON.
    fn object(&self, message: &Message) -> Vec<u8> {
        let mut object = Vec::with_capacity(self.bytes.len() + FIELDS_BYTES);
        self.add_object(&mut object, message);
        object
    }

    fn add_object(&self, out: &mut Vec<u8>, message: &Message) {
        if self.is_first {
            begin_object(out, message, self.is_text);
        }
        push_json(out, self.bytes, self.is_text);
        if self.is_last {
            out.extend_from_slice(OBJECT_END);
        }
    }
}

/// Where the part of that number begins, if each has about `bytes` bytes. No character is cut, if it is text.
fn part_start(content: &[u8], number: usize, bytes: usize, is_text: bool) -> usize {
    let mut start = number.saturating_mul(bytes).min(content.len());
    let is_inside = |start: usize| content.get(start).is_some_and(|byte| byte & 0xc0 == 0x80);
    while is_text && is_inside(start) {
        start -= 1;
    }
    start
}

/// The content in parts of about `bytes` bytes, a multiple of three.
pub fn parts(content: &[u8], bytes: usize, is_text: bool) -> impl Iterator<Item = &[u8]> {
    let start = move |number| part_start(content, number, bytes, is_text);
    (0..content.len().div_ceil(bytes)).map(move |number| &content[start(number)..start(number + 1)])
}

/// Adds the beginning of a message as JSON: [its content](push_json) and [`OBJECT_END`] follow.
pub fn begin_object(out: &mut Vec<u8>, message: &Message, is_text: bool) {
    let draft = &message.draft;
    let (media_type, _) = content(message, false);
    let mut outline = json!({"id": message.id.to_string(), "type": media_type});
    if !draft.event.is_empty() {
        outline["event"] = Value::from(&*draft.event);
    }
    begin_value(out, &outline, if is_text { "data" } else { "base64" });
    out.push(b'"');
}

/// Adds the object `outline` without its end, and in it the name of one more value.
pub fn begin_value(out: &mut Vec<u8>, outline: &Value, name: &str) {
    let object = outline.to_string();
    let open = object.strip_suffix('}').unwrap_or(&object);
    out.extend_from_slice(format!("{open},\"{name}\":").as_bytes());
}

/// The end of a message as JSON.
pub const OBJECT_END: &[u8] = b"\"}";

/// Adds a part of the content of a message as JSON: text, or Base64.
pub fn push_json(out: &mut Vec<u8>, part: &[u8], is_text: bool) {
    if !is_text {
        return push_base64(out, part);
    }
    let start = out.len();
    serde_json::to_writer(&mut *out, &String::from_utf8_lossy(part)).expect("memory takes all");
    // Without the quotes.
    out.remove(start);
    out.pop();
}

fn push_base64(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(BASE64_STANDARD.encode(part).as_bytes());
}

fn is_text(media_type: &str) -> bool {
    let essence = mime::essence(media_type.as_bytes()).to_ascii_lowercase();
    let mut ends = TEXT_TYPES.iter().map(|end| end.as_bytes());
    essence.starts_with(b"text/") || ends.any(|end| essence.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levity_mailbox::MessageId;

    use super::*;

    fn message(content: &[u8]) -> Message {
        Message {
            id: MessageId {
                epoch: 3,
                sequence: 4,
            },
            draft: Arc::new(Draft {
                event: "e".into(),
                media_type: "text/plain".into(),
                content: content.into(),
                ..Draft::default()
            }),
        }
    }

    /// What a receiver gets, in how many parts.
    fn sent(form: Form, content: &[u8]) -> (Vec<u8>, usize) {
        let message = message(content);
        let is_text = form.is_text(&message);
        let parts = form.parts(&message);
        let parts: Vec<_> = (0..parts)
            .map(|number| form.encode(&message, number, is_text))
            .collect();
        (parts.concat(), parts.len())
    }

    /// Contents around the size of a part, with what must not be cut at its end.
    fn contents() -> Vec<Vec<u8>> {
        let with = |length: usize, text: &str| {
            let mut content = vec![b'x'; length];
            content.extend_from_slice(text.as_bytes());
            content
        };
        let mut all = vec![Vec::new(), b"a".to_vec(), vec![0xff; 2 * PART_BYTES + 1]];
        for less in 0..5 {
            all.push(with(PART_BYTES - less, ""));
            all.push(with(PART_BYTES - less, "\u{20ac}\u{10348}\"y\n"));
            all.push(with(PART_BYTES - less, "\r\n\r\r\n"));
            all.push([vec![0xff; PART_BYTES - less], vec![0x80; 5]].concat());
        }
        all
    }

    #[test]
    fn parts_of_events_make_an_event() {
        for content in contents() {
            let data = match str::from_utf8(&content) {
                Ok(_) => content.clone(),
                Err(_) => BASE64_STANDARD.encode(&content).into_bytes(),
            };
            let mut whole = Vec::new();
            sse::encode(&mut whole, Some(&"3-4"), "e", &data);
            let (bytes, parts) = sent(Form::Events, &content);
            assert!(bytes == whole, "{} bytes", content.len());
            assert_eq!(parts, content.len().div_ceil(PART_BYTES).max(1));
        }
    }

    fn content_of(object: &[u8]) -> Vec<u8> {
        let object: Value = serde_json::from_slice(object).expect("JSON");
        assert_eq!(
            (&object["id"], &object["event"]),
            (&"3-4".into(), &"e".into())
        );
        let decoded = object["base64"]
            .as_str()
            .map(|text| BASE64_STANDARD.decode(text));
        let text = object["data"].as_str().map(|text| text.as_bytes().to_vec());
        text.unwrap_or_else(|| decoded.expect("data").expect("Base64"))
    }

    #[test]
    fn parts_of_objects_make_an_object() {
        for content in contents() {
            assert!(content_of(&sent(Form::Lines, &content).0) == content);
            let message = message(&content);
            let mut object = Vec::new();
            let is_text = Form::Objects.is_text(&message);
            for number in 0..Form::Objects.parts(&message) {
                object.extend_from_slice(&Form::Objects.data(&message, number, is_text));
            }
            assert!(content_of(&object) == content);
        }
    }

    /// The first bytes and the data of frames.
    fn frames(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut firsts, mut data) = (Vec::new(), Vec::new());
        while let [first, short, rest @ ..] = bytes {
            let more = match short {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            let (long, rest) = rest.split_at(more);
            let long = long
                .iter()
                .fold(0, |long, &byte| long << 8 | usize::from(byte));
            let length = if more == 0 { usize::from(*short) } else { long };
            firsts.push(*first);
            data.extend_from_slice(&rest[..length]);
            bytes = &rest[length..];
        }
        (firsts, data)
    }

    #[test]
    fn parts_of_messages_make_a_message() {
        for content in contents() {
            let is_text = str::from_utf8(&content).is_ok();
            let (bytes, parts) = sent(Form::Frames, &content);
            let first = if is_text { 0x81 } else { 0x82 };
            assert!(frames(&bytes) == (vec![first], content.clone()));
            let (firsts, object) = frames(&sent(Form::Objects, &content).0);
            assert!(content_of(&object) == content);
            assert_eq!((firsts.len(), firsts[0] & 0x0f), (parts, 1));
            let ends = firsts.iter().map(|first| first >> 7 == 1);
            assert!(ends.eq((1..=parts).map(|number| number == parts)));
            assert!(firsts[1..].iter().all(|first| first & 0x0f == 0));
            let raw = [Form::Content, Form::Resumed].map(|form| sent(form, &content).0);
            assert!(raw[0] == content && raw[1].ends_with(&content));
        }
    }
}
