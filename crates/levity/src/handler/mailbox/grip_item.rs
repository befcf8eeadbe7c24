//! Messages that came by GRIP. One that says the same to everybody is kept as any other; one that says something else to each
//! kind of receiver is kept with all of it.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use levity_mailbox::{Entry, Message};
use levity_wire::grip::{Channel, Filters, Item, Meta, Stream, WebSocketMessage};
use serde_json::{Map, Value, json};

/// The media type of a message with a content for each kind of receiver.
const MEDIA_TYPE: &str = "application/grip-item";

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
        item if item.meta != Meta::default() => (MEDIA_TYPE.to_owned(), encoded(&item)),
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

/// A line of JSON that says what belongs to whom, and behind it the contents as they are: those who read them need no memory of
/// their own.
fn encoded(item: &Item) -> Vec<u8> {
    let mut outline = Map::new();
    let mut contents = Vec::new();
    let mut add = |bytes: &[u8]| {
        contents.extend_from_slice(bytes);
        bytes.len()
    };
    if item.meta != Meta::default() {
        let Meta {
            sender,
            skip_users,
            require_sub,
        } = &item.meta;
        outline.insert("meta".to_owned(), json!([sender, skip_users, require_sub]));
    }
    if let Some(stream) = &item.stream {
        let stream = match stream {
            Stream::Content(bytes) if str::from_utf8(bytes).is_ok() => json!({"text": add(bytes)}),
            Stream::Content(bytes) => json!({"bytes": add(bytes)}),
            Stream::Close => json!({}),
        };
        outline.insert("stream".to_owned(), stream);
    }
    if let Some(response) = &item.response {
        let (status, headers) = (response.status, &response.headers);
        let response = json!({"status": status, "headers": headers, "bytes": add(&response.body)});
        outline.insert("response".to_owned(), response);
    }
    if let Some(message) = &item.web_socket {
        let message = match message {
            WebSocketMessage::Text(text) => json!({"text": add(text.as_bytes())}),
            WebSocketMessage::Binary(bytes) => json!({"bytes": add(bytes)}),
            WebSocketMessage::Close { code, reason } => json!({"code": code, "reason": reason}),
        };
        outline.insert("socket".to_owned(), message);
    }
    let mut encoded = Value::Object(outline).to_string().into_bytes();
    encoded.push(b'\n');
    encoded.append(&mut contents);
    encoded
}

/// What a message says to each kind of receiver. Contents are ranges of its content.
#[derive(Debug, Default)]
struct Kept {
    meta: Meta,
    /// `None` ends the stream.
    stream: Option<Option<Content>>,
    response: Option<(ResponseHead, Range<usize>)>,
    /// The code and the reason with which it is closed go in place of a content.
    socket: Option<Result<Content, (u16, String)>>,
}

/// A media type, and a range of the content of a message.
type Content = (&'static str, Range<usize>);

/// The beginning of a response that was published.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub status: u16,
    pub headers: Vec<(String, String)>,
}

impl Kept {
    /// Of a message that says something else to each kind of receiver.
    fn of(message: &Message) -> Option<Self> {
        if *message.draft.media_type != *MEDIA_TYPE {
            return None;
        }
        let content = &message.draft.content;
        let end = content.iter().position(|&byte| byte == b'\n')?;
        let outline: Value = serde_json::from_slice(&content[..end]).ok()?;
        let mut start = end + 1;
        let mut range = |bytes: &Value| {
            let end = start.checked_add(bytes.as_u64()? as usize)?;
            let range = start..end;
            start = end;
            (end <= content.len()).then_some(range)
        };
        let (stream, response, socket) =
            (&outline["stream"], &outline["response"], &outline["socket"]);
        let mut of_type = |of: &Value| {
            let text = range(&of["text"]).map(|range| (TEXT, range));
            text.or_else(|| Some((BYTES, range(&of["bytes"])?)))
        };
        let mut kept = Self {
            meta: Self::meta(&outline["meta"]),
            ..Self::default()
        };
        if stream.is_object() {
            kept.stream = Some(of_type(stream));
        }
        if response.is_object() {
            let head = ResponseHead {
                status: response["status"].as_u64()?.try_into().ok()?,
                headers: serde_json::from_value(response["headers"].clone()).ok()?,
            };
            kept.response = Some((head, of_type(response)?.1));
        }
        if socket.is_object() {
            kept.socket = Some(of_type(socket).ok_or_else(|| {
                let code = socket["code"]
                    .as_u64()
                    .map_or(CLOSE_CODE, |code| code as u16);
                let reason = socket["reason"].as_str().unwrap_or_default();
                (code, reason.to_owned())
            }));
        }
        (start == content.len()).then_some(kept)
    }

    fn meta(outline: &Value) -> Meta {
        let text = |index: usize| outline[index].as_str().unwrap_or_default().to_owned();
        Meta {
            sender: text(0),
            skip_users: text(1),
            require_sub: text(2),
        }
    }

    /// The same, read once for all receivers of the event loop.
    fn of_entry(entry: &Rc<Entry>) -> Option<Rc<Option<Self>>> {
        let is_item = *entry.message.draft.media_type == *MEDIA_TYPE;
        is_item.then(|| entry.parsed(Self::of))
    }

    /// The content for receivers, and its media type.
    fn content(self, is_raw: bool) -> (String, Range<usize>) {
        let owned = |(media_type, range): Content| (media_type.to_owned(), range);
        let of_stream = self.stream.flatten().map(owned);
        if is_raw {
            return of_stream.unwrap_or_default();
        }
        let of_socket = self.socket.and_then(Result::ok).map(owned);
        let of_response = self.response.map(|(mut head, range)| {
            let is_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
            let at = head.headers.iter().position(is_type);
            let media_type = at.map_or(BYTES.to_owned(), |at| head.headers.swap_remove(at).1);
            (media_type, range)
        });
        of_socket.or(of_response).or(of_stream).unwrap_or_default()
    }
}

/// Whether `media_type` is that of items. They decide about the responses of clients, so only the control endpoint may
/// publish them.
pub fn is_media_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Which messages of its channels a client that is held does not get.
pub struct Filtering {
    user: String,
    channels: Vec<Channel>,
}

impl Filtering {
    /// `None` if no channel has a filter.
    pub fn new(user: String, channels: Vec<Channel>) -> Option<Self> {
        let has_filter = |channel: &Channel| channel.filters != Filters::default();
        let is_needed = channels.iter().any(has_filter);
        is_needed.then_some(Self { user, channels })
    }

    /// Whether the client does not get a message of the channel of that number.
    pub fn drops(&self, number: usize, entry: &Rc<Entry>) -> bool {
        let filters = self.channels[number].filters;
        let listens = |name: &str| self.channels.iter().any(|channel| channel.name == name);
        let kept = Kept::of_entry(entry);
        let kept = kept.as_ref().and_then(|kept| kept.as_ref().as_ref());
        kept.is_some_and(|kept| filters.drop(&kept.meta, &self.user, listens))
    }
}

/// Whether streams end with this message.
pub fn ends_streams(entry: &Rc<Entry>) -> bool {
    let kept = Kept::of_entry(entry);
    let kept = kept.as_ref().and_then(|kept| kept.as_ref().as_ref());
    kept.is_some_and(|kept| kept.stream == Some(None))
}

/// The code and the reason with which this message closes WebSockets, if it does.
pub fn close_of_sockets(entry: &Rc<Entry>) -> Option<(u16, String)> {
    let kept = Kept::of_entry(entry)?;
    let socket = kept.as_ref().as_ref()?.socket.as_ref()?;
    socket.as_ref().err().cloned()
}

/// The content for receivers, and its media type. Raw streams get what is for streams; all others get messages.
pub fn content(message: &Message, is_raw: bool) -> (Cow<'_, str>, &[u8]) {
    let draft = &message.draft;
    match Kept::of(message) {
        None => (Cow::Borrowed(&draft.media_type), &draft.content),
        Some(kept) => {
            let (media_type, range) = kept.content(is_raw);
            (Cow::Owned(media_type), &draft.content[range])
        }
    }
}

/// The response that the message is for those who wait for one, whose body is a range of the content; `None` if it is only for
/// others.
pub fn response(entry: &Rc<Entry>) -> Option<(ResponseHead, Range<usize>)> {
    if let Some(kept) = Kept::of_entry(entry)
        && let Some(kept) = &*kept
    {
        return kept.response.clone();
    }
    let draft = &entry.message.draft;
    let head = ResponseHead {
        status: 200,
        headers: vec![("Content-Type".to_owned(), draft.media_type.to_string())],
    };
    Some((head, 0..draft.content.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levity_mailbox::{Draft, MessageId};
    use levity_wire::grip::items;

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
        let (head, range) = Kept::of(&all).and_then(|kept| kept.response).expect("one");
        assert_eq!((head.status, &all.draft.content[range]), (201, &b"r"[..]));
        assert_eq!(head.headers, [("A".to_owned(), "b".to_owned())]);
        let end = message(item(r#"{"http-stream":{"action":"close"}}"#));
        let kept = Kept::of(&end).expect("an item");
        assert!(kept.stream == Some(None) && kept.response.is_none());
        assert_eq!(*content(&end, true).1, *b"");
        for (close, expected) in [
            (r#"{"action":"close"}"#, (1000, String::new())),
            (
                r#"{"action":"close","code":4000,"reason":"x"}"#,
                (4000, "x".to_owned()),
            ),
        ] {
            let kept = Kept::of(&message(item(&format!(r#"{{"ws-message":{close}}}"#))));
            assert_eq!(kept.expect("an item").socket, Some(Err(expected)));
        }
    }

    #[test]
    fn meta_data_is_kept() {
        let content = r#"{"items":[{"channel":"a","meta":{"sender":"s","skip_users":"a,b","require_sub":"c"},
            "http-stream":{"content":"x"}}]}"#;
        let item = items(content.as_bytes()).expect("items").remove(0);
        let meta = item.meta.clone();
        let kept = message(item);
        assert_eq!(Kept::of(&kept).expect("an item").meta, meta);
        let (media_type, content) = super::content(&kept, false);
        assert_eq!((&*media_type, content), (TEXT, &b"x"[..]));
    }

    #[test]
    fn no_part_of_an_item_is_one() {
        let formats = r#"{"http-stream":{"content":"a"},"http-response":{"body":"b"},"ws-message":{"content":"c"}}"#;
        let (media_type, whole) = kept(item(formats));
        for end in 0..=whole.len() {
            let message = Message {
                id: MessageId {
                    epoch: 1,
                    sequence: 1,
                },
                draft: Arc::new(Draft {
                    media_type: media_type.as_str().into(),
                    content: whole[..end].into(),
                    ..Draft::default()
                }),
            };
            let is_item = Kept::of(&message).is_some();
            assert_eq!(is_item, end == whole.len(), "{end}");
        }
    }
}
