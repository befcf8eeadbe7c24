//! Messages in a response that ends: a page of JSON, which is made while it is sent.

use levity_mailbox::{Limit, Message, MessageId, Name};
use serde_json::{Value, json};

use super::forms::{OBJECT_END, begin_object, begin_value, parts, push_json};
use super::grip_item::content;
use crate::http::response::{Body, Response, StreamError};
use crate::mailboxes::set::ReceiverSlot;
use crate::respond::generated::{Gathered, Generated, Output};

/// The maximum of a body that is made before it is sent.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// The maximum of content that is encoded at once. A multiple of three, so that pieces of Base64 can be joined.
const PART_BYTES: usize = 3 * 1024;

/// Messages of a box.
pub struct Page {
    messages: Vec<Message>,
    bytes: usize,
    /// Messages before them are gone.
    pub is_gap: bool,
}

impl Page {
    /// What a page has room for: a page that is not full takes a message of any size.
    pub const LIMIT: Limit = Limit {
        messages: 1000,
        bytes: 256 * 1024,
    };

    /// Whether there may be more messages than these, which were read with [`LIMIT`](Self::LIMIT).
    pub fn is_limited(read: &[Message]) -> bool {
        let bytes: usize = read.iter().map(|message| message.draft.bytes()).sum();
        read.len() >= Self::LIMIT.messages || bytes >= Self::LIMIT.bytes
    }

    /// A page without messages. `is_gap` if messages before it are gone.
    pub fn new(is_gap: bool) -> Self {
        Self {
            messages: Vec::new(),
            bytes: 0,
            is_gap,
        }
    }

    /// Whether further messages belong to the next page.
    pub fn is_full(&self) -> bool {
        self.messages.len() >= Self::LIMIT.messages || self.bytes >= Self::LIMIT.bytes
    }

    /// Takes a message, unless it is full.
    pub fn push(&mut self, message: Message) {
        if self.is_full() {
            return;
        }
        self.bytes += message.draft.bytes();
        self.messages.push(message);
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && !self.is_gap
    }

    /// The id of the last message.
    pub fn last(&self) -> Option<MessageId> {
        self.messages.last().map(|message| message.id)
    }

    /// The response, which continues after `last` if there is no message. The client counts as a receiver until it has it.
    pub async fn into_response(self, name: &Name, last: MessageId, slot: ReceiverSlot) -> Response {
        let last = self.last().unwrap_or(last);
        let outline = self.outline(name, last);
        let written = Generated::new(move |output| self.write(output, outline, slot));
        let mut response = Response::new(200);
        response.body = match written.gather(WHOLE_BYTES_MAX).await {
            Ok(Gathered::Whole(text)) => Body::Text(text),
            Ok(Gathered::Start(rest)) => Body::Stream {
                stream: Box::new(rest),
                length: None,
            },
            Err(failure) => return failure.response(),
        };
        let fields = &mut response.fields;
        fields.add("Content-Type", b"application/json");
        fields.add("Cache-Control", b"no-store");
        fields.add("Vary", b"Accept, Prefer");
        add_next(&mut response, last);
        response
    }

    fn outline(&self, name: &Name, last: MessageId) -> Value {
        let mut outline = json!({"mailbox": name.in_set(), "last": last.to_string()});
        if self.is_gap {
            outline["gap"] = true.into();
        }
        outline
    }

    async fn write(
        self,
        mut output: Output,
        outline: Value,
        _slot: ReceiverSlot,
    ) -> Result<Output, StreamError> {
        begin_value(&mut output.bytes, &outline, "messages");
        output.bytes.push(b'[');
        for (index, message) in self.messages.iter().enumerate() {
            if index > 0 {
                output.bytes.push(b',');
            }
            add_message(&mut output, message).await;
        }
        output.bytes.extend_from_slice(b"]}\n");
        Ok(output)
    }
}

/// Says where the next request continues (RFC 8288).
pub fn add_next(response: &mut Response, last: MessageId) {
    let link = format!("<?last_event_id={last}>; rel=\"next\"");
    response.fields.add("Link", link.as_bytes());
}

async fn add_message(output: &mut Output, message: &Message) {
    let (_, content) = content(message, false);
    let is_text = str::from_utf8(content).is_ok();
    begin_object(&mut output.bytes, message, is_text);
    for part in parts(content, PART_BYTES, is_text) {
        push_json(&mut output.bytes, part, is_text);
        output.flush_if_full().await;
    }
    output.bytes.extend_from_slice(OBJECT_END);
    output.flush_if_full().await;
}
