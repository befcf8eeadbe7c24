//! Messages that came by GRIP. One that says the same to everybody is kept as any other; one that says something else to each
//! kind of receiver is kept with all of it.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use levity_mailbox::{Entry, Message};
use levity_wire::grip::{self, Channel, Filters, Item, Meta};
use levity_wire::mime;
use serde::{Deserialize, Serialize};

/// The media type of a message with a content for each kind of receiver.
const MEDIA_TYPE: &str = "application/grip-item";

/// The code of a WebSocket that is closed without one.
const CLOSE_CODE: u16 = 1000;

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// The media type and the content under which an item is kept.
pub fn kept(item: Item) -> (&'static str, Vec<u8>) {
    use grip::Content::{Binary, Text};
    let is_plain = item.meta == Meta::default();
    match (item.stream, item.response, item.web_socket) {
        (Some(Text(text)), None, None) | (None, None, Some(Text(text))) if is_plain => {
            (TEXT, text.into_bytes())
        }
        (Some(Binary(bytes)), None, None) | (None, None, Some(Binary(bytes))) if is_plain => {
            (BYTES, bytes)
        }
        (stream, response, web_socket) => {
            let Meta {
                sender,
                skip_users,
                require_sub,
            } = item.meta;
            let mut contents = Vec::new();
            let outline = Outline {
                meta: (!is_plain).then_some((sender, skip_users, require_sub)),
                stream: stream.map(|content| Part::new(content, &mut contents)),
                response: response.map(|response| ResponseHead::new(response, &mut contents)),
                socket: web_socket.map(|content| Part::new(content, &mut contents)),
            };
            let mut kept = serde_json::to_vec(&outline).expect("memory takes all");
            kept.push(b'\n');
            kept.append(&mut contents);
            (MEDIA_TYPE, kept)
        }
    }
}

/// The line of JSON with which the content of such a message begins: what belongs to whom. Behind it are the contents as they are,
/// in the order of the fields: those who read them need no memory of their own.
#[derive(Serialize, Deserialize)]
struct Outline {
    /// Sender, users to skip, and the required subscription.
    meta: Option<(String, String, String)>,
    stream: Option<Part>,
    response: Option<ResponseHead>,
    socket: Option<Part>,
}

/// The size of a content in bytes, or the end.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Part {
    Text {
        text: usize,
    },
    Bytes {
        bytes: usize,
    },
    Close {
        code: Option<u16>,
        #[serde(default)]
        reason: String,
    },
}

impl Part {
    fn new(content: grip::Content, contents: &mut Vec<u8>) -> Self {
        match content {
            grip::Content::Text(text) => Self::Text {
                text: appended(contents, text.as_bytes()),
            },
            grip::Content::Binary(bytes) => Self::Bytes {
                bytes: appended(contents, &bytes),
            },
            grip::Content::Close { code, reason } => Self::Close { code, reason },
        }
    }

    /// The content that begins at `start`, which then is its end.
    fn read(self, start: &mut usize) -> Result<Content, Close> {
        match self {
            Self::Text { text } => Ok((TEXT, range(start, text))),
            Self::Bytes { bytes } => Ok((BYTES, range(start, bytes))),
            Self::Close { code, reason } => Err((code.unwrap_or(CLOSE_CODE), reason)),
        }
    }
}

fn appended(contents: &mut Vec<u8>, content: &[u8]) -> usize {
    contents.extend_from_slice(content);
    content.len()
}

fn range(start: &mut usize, bytes: usize) -> Range<usize> {
    let begin = *start;
    *start = begin.saturating_add(bytes);
    begin..*start
}

/// What a message says to each kind of receiver. Contents are ranges of its content.
#[derive(Debug)]
struct Kept {
    meta: Meta,
    stream: Option<Result<Content, Close>>,
    response: Option<(ResponseHead, Range<usize>)>,
    socket: Option<Result<Content, Close>>,
}

/// A media type, and a range of the content of a message.
type Content = (&'static str, Range<usize>);

/// The code and the reason with which a WebSocket is closed.
type Close = (u16, String);

/// The beginning of a response that was published, and the size of its body in bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResponseHead {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    bytes: usize,
}

impl ResponseHead {
    fn new(response: grip::Response, contents: &mut Vec<u8>) -> Self {
        Self {
            status: response.status,
            headers: response.headers,
            bytes: appended(contents, &response.body),
        }
    }
}

impl Kept {
    /// Of a message that says something else to each kind of receiver.
    fn of(message: &Message) -> Option<Self> {
        if *message.draft.media_type != *MEDIA_TYPE {
            return None;
        }
        let content = &message.draft.content;
        let end = content.iter().position(|&byte| byte == b'\n')?;
        let outline: Outline = serde_json::from_slice(&content[..end]).ok()?;
        let (sender, skip_users, require_sub) = outline.meta.unwrap_or_default();
        let mut start = end + 1;
        let kept = Self {
            meta: Meta {
                sender,
                skip_users,
                require_sub,
            },
            stream: outline.stream.map(|part| part.read(&mut start)),
            response: outline.response.map(|head| {
                let range = range(&mut start, head.bytes);
                (head, range)
            }),
            socket: outline.socket.map(|part| part.read(&mut start)),
        };
        (start == content.len()).then_some(kept)
    }

    /// What `look` finds in the same, which is read once for all receivers of the event loop.
    fn of_entry<T>(entry: &Rc<Entry>, look: impl FnOnce(&Self) -> T) -> Option<T> {
        let is_item = *entry.message.draft.media_type == *MEDIA_TYPE;
        let kept = is_item.then(|| entry.parsed(Self::of))?;
        (*kept).as_ref().map(look)
    }

    /// The content for receivers, and its media type.
    fn content(self, is_raw: bool) -> (String, Range<usize>) {
        let owned = |(media_type, range): Content| (media_type.to_owned(), range);
        let of_stream = self.stream.and_then(Result::ok).map(owned);
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
    mime::essence(media_type.as_bytes()).eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
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
        let drops = |kept: &Kept| filters.drop(&kept.meta, &self.user, listens);
        Kept::of_entry(entry, drops) == Some(true)
    }
}

/// Whether streams end with this message.
pub fn ends_streams(entry: &Rc<Entry>) -> bool {
    Kept::of_entry(entry, |kept| matches!(kept.stream, Some(Err(_)))) == Some(true)
}

/// The code and the reason with which this message closes WebSockets, if it does.
pub fn close_of_sockets(entry: &Rc<Entry>) -> Option<(u16, String)> {
    Kept::of_entry(entry, |kept| kept.socket.as_ref()?.as_ref().err().cloned())?
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
    if let Some(response) = Kept::of_entry(entry, |kept| kept.response.clone()) {
        return response;
    }
    let draft = &entry.message.draft;
    let head = ResponseHead {
        status: 200,
        headers: vec![("Content-Type".to_owned(), draft.media_type.to_string())],
        bytes: draft.content.len(),
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
        assert!(matches!(kept.stream, Some(Err(_))) && kept.response.is_none());
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
                    media_type: media_type.into(),
                    content: whole[..end].into(),
                    ..Draft::default()
                }),
            };
            let is_item = Kept::of(&message).is_some();
            assert_eq!(is_item, end == whole.len(), "{end}");
        }
    }
}
