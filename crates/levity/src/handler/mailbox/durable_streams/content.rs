//! Content of streams in requests and responses.

use levity_mailbox::Message;
use levity_mailbox::stream::Messages;
use levity_wire::durable_streams::{Form, NotJson, messages, push_body};

use super::super::super::Handling;
use crate::http::response::Body;
use crate::respond::generated::{Generated, PIECE_BYTES};

/// The maximum of a body that is made at once.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

impl Handling<'_> {
    /// A body as a stream of the media type `essence` keeps it.
    pub(super) async fn kept(&self, essence: &str, body: Vec<u8>) -> Messages {
        if Form::of(essence) != Form::Json {
            return Ok(body);
        }
        let unread = |_| Err(NotJson("the body cannot be read".to_owned()));
        self.parsed(body, messages).await.unwrap_or_else(unread)
    }
}

/// The body of a response with `pieces` of a stream.
pub fn body(form: Form, pieces: Vec<Message>) -> Body {
    let contents = pieces.iter().map(|piece| &*piece.draft.content);
    let bytes: usize = contents.clone().map(<[u8]>::len).sum();
    if bytes <= WHOLE_BYTES_MAX {
        let mut text = Vec::with_capacity(bytes + 2);
        push_body(&mut text, form, contents);
        return Body::Text(text);
    }
    // An array has brackets, and no comma after its last element.
    let (content_bytes, length) = match form {
        Form::Json => (bytes - 1, bytes + 1),
        Form::Text | Form::Bytes => (bytes, bytes),
    };
    let stream = Generated::new(move |mut output| async move {
        if form == Form::Json {
            output.bytes.push(b'[');
        }
        let mut rest = content_bytes;
        for piece in &pieces {
            let content = &piece.draft.content;
            let piece = &content[..content.len().min(rest)];
            rest -= piece.len();
            for part in piece.chunks(PIECE_BYTES) {
                output.bytes.extend_from_slice(part);
                output.flush_if_full().await;
            }
        }
        if form == Form::Json {
            output.bytes.push(b']');
        }
        Ok(output)
    });
    Body::Stream {
        stream: Box::new(stream),
        length: Some(length as u64),
    }
}
