//! Messages that came by GRIP. One that says the same to everybody is kept as any other; one that says something else to each
//! kind of receiver is kept as JSON, as its publisher sent it.

use std::borrow::Cow;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_mailbox::{Entry, Message};
use levity_wire::grip::{Item, Response, Stream, WebSocketMessage, items};
use serde_json::{Map, Value, json};

/// The media type of a message with a content for each kind of receiver.
const MEDIA_TYPE: &str = "application/grip-item+json";

/// The code of a WebSocket that is closed without one.
const CLOSE_CODE: u16 = 1000;

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// The media type and the content under which an item is kept.
pub fn kept(item: Item) -> (String, Vec<u8>) {
    let of_bytes = |bytes: Vec<u8>| {
        let media_type = if str::from_utf8(&bytes).is_ok() {
            TEXT
        } else {
            BYTES
        };
        (media_type.to_owned(), bytes)
    };
    match item {
        Item {
            stream: Some(Stream::Content(bytes)),
            response: None,
            web_socket: None,
            ..
        } => of_bytes(bytes),
        Item {
            stream: None,
            response: None,
            web_socket: Some(WebSocketMessage::Text(text)),
            ..
        } => (TEXT.to_owned(), text.into_bytes()),
        Item {
            stream: None,
            response: None,
            web_socket: Some(WebSocketMessage::Binary(bytes)),
            ..
        } => (BYTES.to_owned(), bytes),
        item => (MEDIA_TYPE.to_owned(), encoded(&item)),
    }
}

fn encoded(item: &Item) -> Vec<u8> {
    let mut formats = Map::new();
    let response = item.response.as_ref().map(|response| {
        let headers: Vec<_> = response.headers.iter().map(|pair| json!(pair)).collect();
        let body = BASE64_STANDARD.encode(&response.body);
        json!({"code": response.status, "headers": headers, "body-bin": body})
    });
    let stream = item.stream.as_ref().map(|stream| match stream {
        Stream::Content(bytes) => json!({"content-bin": BASE64_STANDARD.encode(bytes)}),
        Stream::Close => json!({"action": "close"}),
    });
    let web_socket = item.web_socket.as_ref().map(|message| match message {
        WebSocketMessage::Text(text) => json!({"content": text}),
        WebSocketMessage::Binary(bytes) => json!({"content-bin": BASE64_STANDARD.encode(bytes)}),
        WebSocketMessage::Close { code: None, .. } => json!({"action": "close"}),
        WebSocketMessage::Close { code, reason } => {
            json!({"action": "close", "code": code, "reason": reason})
        }
    });
    let all = [
        ("http-response", response),
        ("http-stream", stream),
        ("ws-message", web_socket),
    ];
    for (name, format) in all {
        formats.extend(format.map(|format| (name.to_owned(), format)));
    }
    let item = json!({"channel": "-", "formats": Value::Object(formats)});
    json!({ "items": [item] }).to_string().into_bytes()
}

/// The item, if the message says something else to each kind of receiver.
fn item_of(message: &Message) -> Option<Item> {
    let draft = &message.draft;
    let is_item = *draft.media_type == *MEDIA_TYPE;
    is_item.then(|| items(&draft.content).ok()?.pop()).flatten()
}

/// The same, read once for all receivers of the event loop.
fn item_of_entry(entry: &Rc<Entry>) -> Option<Rc<Option<Item>>> {
    let is_item = *entry.message.draft.media_type == *MEDIA_TYPE;
    is_item.then(|| entry.parsed(item_of))
}

/// Whether `media_type` is that of items. They decide about the responses of clients, so only the control endpoint may
/// publish them.
pub fn is_media_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Whether streams end with this message.
pub fn ends_streams(entry: &Rc<Entry>) -> bool {
    let item = item_of_entry(entry);
    let stream = item.as_ref().and_then(|item| item.as_ref().as_ref());
    stream.is_some_and(|item| item.stream == Some(Stream::Close))
}

/// The code and the reason with which this message closes WebSockets, if it does.
pub fn close_of_sockets(entry: &Rc<Entry>) -> Option<(u16, String)> {
    match &item_of_entry(entry)?.as_ref().as_ref()?.web_socket {
        Some(WebSocketMessage::Close { code, reason }) => {
            Some((code.unwrap_or(CLOSE_CODE), reason.clone()))
        }
        _ => None,
    }
}

/// The content for receivers, and its media type. Raw streams get what is for streams; all others get messages.
pub fn content(message: &Message, is_raw: bool) -> (Cow<'_, str>, Cow<'_, [u8]>) {
    let Some(item) = item_of(message) else {
        return (
            Cow::Borrowed(&message.draft.media_type),
            Cow::Borrowed(&message.draft.content),
        );
    };
    let of_stream = item.stream.and_then(|stream| match stream {
        Stream::Content(bytes) => Some((BYTES.into(), bytes)),
        Stream::Close => None,
    });
    let of_web_socket = item.web_socket.and_then(|message| match message {
        WebSocketMessage::Text(text) => Some((TEXT.into(), text.into_bytes())),
        WebSocketMessage::Binary(bytes) => Some((BYTES.into(), bytes)),
        WebSocketMessage::Close { .. } => None,
    });
    let of_response = item.response.map(|mut response| {
        let is_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
        let at = response.headers.iter().position(is_type);
        let media_type = at.map_or(BYTES.into(), |at| response.headers.swap_remove(at).1);
        (media_type, response.body)
    });
    let chosen: Option<(String, Vec<u8>)> = match is_raw {
        true => of_stream,
        false => of_web_socket.or(of_response).or(of_stream),
    };
    let (media_type, bytes) = chosen.unwrap_or_default();
    (Cow::Owned(media_type), Cow::Owned(bytes))
}

/// The response that the message is for those who wait for one; `None` if it is only for others.
pub fn response(entry: &Rc<Entry>) -> Option<Response> {
    if let Some(item) = item_of_entry(entry)
        && let Some(item) = &*item
    {
        return item.response.clone();
    }
    let (media_type, content) = content(&entry.message, true);
    Some(Response {
        headers: vec![("Content-Type".to_owned(), media_type.into_owned())],
        body: content.into_owned(),
        ..Response::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levity_mailbox::{Draft, MessageId};

    use super::*;

    fn message(item: Item) -> Message {
        let (media_type, content) = kept(item);
        Message {
            id: MessageId {
                epoch: 1,
                sequence: 1,
            },
            draft: Arc::new(Draft {
                key: None,
                event: "".into(),
                media_type: media_type.into(),
                content: content.into(),
                deadline: None,
                reservation: None,
                is_damaged: false,
            }),
        }
    }

    fn item(formats: &str) -> Item {
        let content = format!(r#"{{"items":[{{"channel":"a","formats":{formats}}}]}}"#);
        items(content.as_bytes()).expect("items").remove(0)
    }

    #[test]
    fn what_says_the_same_to_all_is_kept_as_it_is() {
        let stream = message(item(r#"{"http-stream":{"content":"data: a\n\n"}}"#));
        assert_eq!(*stream.draft.media_type, *TEXT);
        assert_eq!(*content(&stream, true).1, *b"data: a\n\n");
        let binary = message(item(r#"{"ws-message":{"content-bin":"/w=="}}"#));
        assert_eq!(*binary.draft.media_type, *BYTES);
        assert_eq!(*content(&binary, true).1, *b"\xff");
    }

    #[test]
    fn each_kind_gets_its_own() {
        let all = message(item(
            r#"{"http-stream":{"content":"s"},"http-response":{"code":201,"headers":{"A":"b"},"body":"r"},
            "ws-message":{"content":"w"}}"#,
        ));
        assert_eq!(*content(&all, true).1, *b"s");
        assert_eq!(*content(&all, false).1, *b"w");
        let kept = item_of(&all).expect("an item");
        let answer = kept.response.expect("a response");
        assert_eq!((answer.status, &answer.body[..]), (201, &b"r"[..]));
        assert_eq!(answer.headers, [("A".to_owned(), "b".to_owned())]);
        assert_ne!(kept.stream, Some(Stream::Close));
        let end = message(item(r#"{"http-stream":{"action":"close"}}"#));
        let kept = item_of(&end).expect("an item");
        assert_eq!((kept.stream, kept.response), (Some(Stream::Close), None));
        assert_eq!(*content(&end, true).1, *b"");
        for close in [
            r#"{"action":"close"}"#,
            r#"{"action":"close","code":4000,"reason":"x"}"#,
        ] {
            let with = |close| item(&format!(r#"{{"ws-message":{close}}}"#));
            let kept = item_of(&message(with(close))).expect("an item");
            assert_eq!(kept.web_socket, with(close).web_socket);
        }
    }
}
