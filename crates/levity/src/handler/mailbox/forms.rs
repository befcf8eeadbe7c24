//! The forms in which receivers get messages.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_mailbox::{Message, MessageId};
use levity_wire::sse;
use serde_json::{Value, json};

use super::grip_item::content;

/// A form in which messages are sent one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// A JSON object per line.
    Lines,
    /// The content alone.
    Content,
}

impl Form {
    /// Its number at [`Entry::form`](levity_mailbox::Entry::form).
    pub fn number(self) -> usize {
        self as usize
    }

    /// The media type of the response.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Events => sse::MEDIA_TYPE,
            Self::Lines => "application/x-ndjson",
            Self::Content => "application/octet-stream",
        }
    }

    /// A message in this form.
    pub fn encode(self, message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        let draft = &message.draft;
        let (_, bytes) = content(message, self == Self::Content);
        let bytes = &*bytes;
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
        }
        out
    }

    /// What tells a receiver that messages before `next` are gone. The form of contents alone has nothing for it.
    pub fn gap(self, next: MessageId) -> Vec<u8> {
        let mut out = Vec::new();
        let before = MessageId {
            sequence: next.sequence.saturating_sub(1),
            ..next
        };
        match self {
            Self::Events => {
                let id = before.to_string();
                sse::encode(&mut out, Some(&before), "gap", id.as_bytes());
            }
            Self::Lines => {
                let line = json!({"gap": true, "id": before.to_string()});
                out.extend_from_slice(line.to_string().as_bytes());
                out.push(b'\n');
            }
            Self::Content => {}
        }
        out
    }

    /// What keeps a silent connection alive.
    pub fn heartbeat(self) -> &'static [u8] {
        match self {
            Self::Events => sse::HEARTBEAT,
            Self::Lines => b"\n",
            Self::Content => b"",
        }
    }
}

/// A message as JSON. Content that is no UTF-8 is Base64.
pub fn described(message: &Message) -> Value {
    let draft = &message.draft;
    let (media_type, bytes) = content(message, false);
    let mut value = json!({"id": message.id.to_string(), "type": media_type});
    if !draft.event.is_empty() {
        value["event"] = Value::from(&*draft.event);
    }
    match str::from_utf8(&bytes) {
        Ok(text) => value["data"] = Value::from(text),
        Err(_) => value["base64"] = Value::from(BASE64_STANDARD.encode(bytes)),
    }
    value
}
