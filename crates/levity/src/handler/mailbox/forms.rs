//! The forms in which receivers get messages.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_mailbox::{Draft, Message, MessageId};
use levity_wire::sse;
use levity_wire::websocket::{FrameHeader, Opcode};
use serde_json::{Value, json};

use super::grip_item::content;
use super::stay::Ending;

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

    /// A message in this form.
    pub fn encode(self, message: &Message) -> Vec<u8> {
        let draft = &message.draft;
        let (_, bytes) = content(message, self == Self::Content);
        let bytes = &*bytes;
        let mut out = Vec::with_capacity(bytes.len() + FIELDS_BYTES);
        match self {
            Self::Events => {
                let text = str::from_utf8(bytes);
                let encoded = text.is_err().then(|| BASE64_STANDARD.encode(bytes));
                let data = encoded.as_deref().map_or(bytes, str::as_bytes);
                sse::encode(&mut out, Some(&message.id), &draft.event, data);
            }
            Self::Lines => {
                out.extend_from_slice(described(message).to_string().as_bytes());
                out.push(b'\n');
            }
            Self::Content => out.extend_from_slice(bytes),
            // The first message: a client that loses its connection before the first event has an id to come back with.
            Self::Resumed if is_headers(message) => {
                if message.id.sequence == 1 {
                    let (token, id) = (&draft.event, message.id);
                    let of_application = &draft.media_type[HEADERS.len()..];
                    let line = format!("id: lv.{token}.{id}.{of_application}\n\n");
                    out.extend_from_slice(line.as_bytes());
                }
            }
            Self::Resumed => {
                let (token, id, of_application) = (&draft.event, message.id, &draft.media_type);
                out.extend_from_slice(format!("id: lv.{token}.{id}.{of_application}\n").as_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Frames | Self::Objects => {
                let (opcode, data) = self.data(message);
                add_frame(&mut out, opcode, &data);
            }
        }
        out
    }

    /// What a frame of a WebSocket has of a message.
    pub fn data(self, message: &Message) -> (Opcode, Cow<'_, [u8]>) {
        if self == Self::Objects {
            let object = described(message).to_string();
            return (Opcode::Text, object.into_bytes().into());
        }
        let (media_type, bytes) = content(message, false);
        let is_text = is_text(&media_type) && str::from_utf8(&bytes).is_ok();
        let opcode = match is_text {
            true => Opcode::Text,
            false => Opcode::Binary,
        };
        (opcode, bytes)
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
            Self::Objects => add_frame(&mut out, Opcode::Text, object().as_bytes()),
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

/// A message as JSON without its content, and the content.
pub fn outlined(message: &Message) -> (Value, Cow<'_, [u8]>) {
    let draft = &message.draft;
    let (media_type, bytes) = content(message, false);
    let mut value = json!({"id": message.id.to_string(), "type": media_type});
    if !draft.event.is_empty() {
        value["event"] = Value::from(&*draft.event);
    }
    (value, bytes)
}

/// A message as JSON. Content that is no UTF-8 is Base64.
fn described(message: &Message) -> Value {
    let (mut value, bytes) = outlined(message);
    match str::from_utf8(&bytes) {
        Ok(text) => value["data"] = Value::from(text),
        Err(_) => value["base64"] = Value::from(BASE64_STANDARD.encode(bytes)),
    }
    value
}

fn add_frame(out: &mut Vec<u8>, opcode: Opcode, data: &[u8]) {
    let header = FrameHeader::message(opcode, false, data.len() as u64);
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data);
}

fn is_text(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence.starts_with("text/") || TEXT_TYPES.iter().any(|end| essence.ends_with(end))
}
