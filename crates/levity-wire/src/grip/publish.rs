//! What is published through the control endpoint (EPCP, the Extensible Pubsub Control Protocol).

use serde_json::{Map, Value};

use super::json::{self, bytes, number, object, take, text};
use super::{ITEMS_MAX, Meta, Response};
use crate::Reject;
use crate::mailbox::is_key;
use crate::websocket::{CLOSE_REASON_BYTES_MAX, is_close_code};

const NO_ITEMS: Reject = Reject::bad("GRIP: `items` is no list of objects");
const ITEMS_TOO_MANY: Reject = Reject::bad("GRIP: more than 64 `items`");
const BAD_ID: Reject =
    Reject::bad("GRIP: `id` is not 1 to 128 visible ASCII characters without commas");
const NO_FORMAT: Reject =
    Reject::bad("GRIP: an item has none of `http-stream`, `http-response` and `ws-message`");
const BAD_ACTION: Reject =
    Reject::bad("GRIP: only the action `send` is supported, and `close` of a stream or WebSocket");
const HAS_FILTERS: Reject = Reject::bad("GRIP: `content-filters` are not supported");
const NO_CONTENT: Reject = Reject::bad("GRIP: neither `content` nor `content-bin`");
const BAD_TYPE: Reject = Reject::bad("GRIP: the type of a message is neither `text` nor `binary`");
const BAD_TEXT: Reject = Reject::bad("GRIP: a message of type `text` is not in UTF-8");
const BAD_CLOSE: Reject = Reject::bad("GRIP: bad code or reason of a closed WebSocket");

/// A message in up to three formats, one for each kind of receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The name of the box of its channel: see [`box_name`](super::box_name).
    pub name: String,
    /// Its id, which [`is_key`].
    pub id: Option<String>,
    /// What filters of channels look at.
    pub meta: Meta,
    /// For those who are held with a stream.
    pub stream: Option<Content>,
    /// For those who wait for a response.
    pub response: Option<Response>,
    /// For WebSockets.
    pub web_socket: Option<Content>,
}

/// What a stream or a WebSocket gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text; of a stream, also bytes that are UTF-8.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// Its end.
    Close {
        /// Why a WebSocket is closed, as a number that may be sent.
        code: Option<u16>,
        /// The same in words: at most [`CLOSE_REASON_BYTES_MAX`] bytes, and none without a code.
        reason: String,
    },
}

/// Reads the content of a request to publish: `{"items": [..]}`. The formats of an item are in it, or in its member
/// `formats`; unknown ones are ignored.
///
/// # Errors
/// 400 if it is malformed, exceeds a limit, or demands what is not supported.
pub fn items(content: &[u8]) -> Result<Vec<Item>, Reject> {
    let list = match take(&mut json::parse(content)?, "items") {
        Some(Value::Array(list)) => list,
        _ => return Err(NO_ITEMS),
    };
    if list.len() > ITEMS_MAX {
        return Err(ITEMS_TOO_MANY);
    }
    list.into_iter().map(item).collect()
}

fn item(value: Value) -> Result<Item, Reject> {
    let mut item = object(value).map_err(|_| NO_ITEMS)?;
    let name = json::channel(&mut item, "channel")?;
    let id = text(&mut item, "id", BAD_ID.reason)?.filter(|id| !id.is_empty());
    if id.as_ref().is_some_and(|id| !is_key(id.as_bytes())) {
        return Err(BAD_ID);
    }
    let meta = Meta::of_item(&mut item)?;
    let mut formats = match take(&mut item, "formats") {
        None => item,
        Some(formats) => object(formats)?,
    };
    let item = Item {
        name,
        id,
        meta,
        stream: format(&mut formats, "http-stream", stream)?,
        response: format(&mut formats, "http-response", response)?,
        web_socket: format(&mut formats, "ws-message", web_socket)?,
    };
    match (&item.stream, &item.response, &item.web_socket) {
        (None, None, None) => Err(NO_FORMAT),
        _ => Ok(item),
    }
}

fn format<T>(
    formats: &mut Map<String, Value>,
    name: &str,
    read: impl Fn(bool, Map<String, Value>) -> Result<T, Reject>,
) -> Result<Option<T>, Reject> {
    let Some(format) = take(formats, name) else {
        return Ok(None);
    };
    let mut format = object(format)?;
    if json::is_set(&format, "content-filters") {
        return Err(HAS_FILTERS);
    }
    let closes = match text(&mut format, "action", BAD_ACTION.reason)?.as_deref() {
        None | Some("send") => false,
        Some("close") => true,
        Some(_) => return Err(BAD_ACTION),
    };
    read(closes, format).map(Some)
}

fn stream(closes: bool, mut format: Map<String, Value>) -> Result<Content, Reject> {
    if closes {
        let (code, reason) = (None, String::new());
        return Ok(Content::Close { code, reason });
    }
    let content = String::from_utf8(bytes(&mut format, "content")?.ok_or(NO_CONTENT)?);
    Ok(content.map_or_else(|bytes| Content::Binary(bytes.into_bytes()), Content::Text))
}

fn response(closes: bool, format: Map<String, Value>) -> Result<Response, Reject> {
    match closes {
        true => Err(BAD_ACTION),
        false => json::response(format),
    }
}

fn web_socket(closes: bool, mut format: Map<String, Value>) -> Result<Content, Reject> {
    if closes {
        return close(format);
    }
    let word = text(&mut format, "type", BAD_TYPE.reason)?;
    let is_binary = match word.as_deref() {
        None => json::is_set(&format, "content-bin"),
        Some("text") => false,
        Some("binary") => true,
        Some(_) => return Err(BAD_TYPE),
    };
    let content = bytes(&mut format, "content")?.ok_or(NO_CONTENT)?;
    match is_binary {
        true => Ok(Content::Binary(content)),
        false => String::from_utf8(content).map_or(Err(BAD_TEXT), |text| Ok(Content::Text(text))),
    }
}

fn close(mut format: Map<String, Value>) -> Result<Content, Reject> {
    let code = match take(&mut format, "code") {
        None => None,
        Some(code) => {
            let code = number(&code).and_then(|code| u16::try_from(code).ok());
            Some(code.filter(|code| is_close_code(*code)).ok_or(BAD_CLOSE)?)
        }
    };
    let reason = text(&mut format, "reason", BAD_CLOSE.reason)?.unwrap_or_default();
    let has_no_room = code.is_none() && !reason.is_empty();
    if has_no_room || reason.len() > CLOSE_REASON_BYTES_MAX {
        return Err(BAD_CLOSE);
    }
    Ok(Content::Close { code, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(item: &str) -> Result<Item, Reject> {
        let content = format!(r#"{{"items":[{item}]}}"#);
        items(content.as_bytes()).map(|mut items| items.remove(0))
    }

    fn web_socket(format: &str) -> Result<Content, Reject> {
        let item = one(&format!(r#"{{"channel":"a","ws-message":{format}}}"#))?;
        Ok(item.web_socket.expect("it has the format"))
    }

    #[test]
    fn items_of_the_libraries() {
        // Publisher.publishHttpStream of Node.js.
        let item = one(r#"{"formats":{"http-stream":{"content":"data: a\n\n"}},"channel":"a b"}"#);
        let item = item.expect("an item");
        assert_eq!((&item.name[..], &item.id), ("a=20b", &None));
        assert_eq!(item.stream, Some(Content::Text("data: a\n\n".to_owned())));
        assert_eq!((item.response, item.web_socket), (None, None));
        // publish_http_response of gripcontrol, with the formats in the item.
        let item = one(
            r#"{"channel":"a","id":"2","prev-id":"1","meta":{"sender":"x"},"other":{},
            "http-response":{"code":200,"reason":"OK","headers":{"A":"b"},"body":"x"},
            "http-stream":{"action":"close","content":""},
            "ws-message":{"content-bin":"/w=="}}"#,
        );
        let item = item.expect("an item");
        assert_eq!(item.id.as_deref(), Some("2"));
        assert_eq!(item.meta.sender, "x");
        assert_eq!(
            item.response.expect("it has one").headers,
            [("A".to_owned(), "b".to_owned())]
        );
        let (code, reason) = (None, String::new());
        assert_eq!(item.stream, Some(Content::Close { code, reason }));
        assert_eq!(item.web_socket, Some(Content::Binary(vec![0xff])));
        assert_eq!(items(br#"{"items":[]}"#), Ok(Vec::new()));
    }

    #[test]
    fn messages_of_web_sockets() {
        let text = |text: &str| Ok(Content::Text(text.to_owned()));
        let binary = |bytes: &[u8]| Ok(Content::Binary(bytes.to_vec()));
        let close = |code, reason: &str| {
            let reason = reason.to_owned();
            Ok(Content::Close { code, reason })
        };
        for (format, expected) in [
            (r#"{"content":"é"}"#, text("é")),
            (r#"{"content":"","action":"send"}"#, text("")),
            (r#"{"content":"a","type":"binary"}"#, binary(b"a")),
            (r#"{"content-bin":"YQ==","type":"text"}"#, text("a")),
            (r#"{"content-bin":"/w==","type":"text"}"#, Err(BAD_TEXT)),
            (r#"{"content":"a","type":"ping"}"#, Err(BAD_TYPE)),
            ("{}", Err(NO_CONTENT)),
            (r#"{"action":"close"}"#, close(None, "")),
            (
                r#"{"action":"close","code":4000,"reason":"x"}"#,
                close(Some(4000), "x"),
            ),
            (r#"{"action":"close","code":1005}"#, Err(BAD_CLOSE)),
            (r#"{"action":"close","code":66536}"#, Err(BAD_CLOSE)),
            (r#"{"action":"close","reason":"x"}"#, Err(BAD_CLOSE)),
        ] {
            assert_eq!(web_socket(format), expected, "{format}");
        }
        let closed = |length| {
            let reason = "r".repeat(length);
            web_socket(&format!(
                r#"{{"action":"close","code":1000,"reason":"{reason}"}}"#
            ))
        };
        assert!(closed(CLOSE_REASON_BYTES_MAX).is_ok());
        assert_eq!(closed(CLOSE_REASON_BYTES_MAX + 1), Err(BAD_CLOSE));
    }

    #[test]
    fn items_that_cannot_be() {
        for (item, expected) in [
            ("1", NO_ITEMS),
            (r#"{"channel":"a"}"#, NO_FORMAT),
            (r#"{"channel":"a","formats":{}}"#, NO_FORMAT),
            (r#"{"channel":"a","formats":{"x":{}}}"#, NO_FORMAT),
            (r#"{"channel":"a","http-stream":{}}"#, NO_CONTENT),
            (
                r#"{"channel":"a","http-stream":{"action":"hint"}}"#,
                BAD_ACTION,
            ),
            (r#"{"channel":"a","http-stream":{"action":1}}"#, BAD_ACTION),
            (
                r#"{"channel":"a","http-response":{"action":"close"}}"#,
                BAD_ACTION,
            ),
            (
                r#"{"channel":"a","http-stream":{"content":"a","content-filters":["x"]}}"#,
                HAS_FILTERS,
            ),
            (
                r#"{"channel":"a","id":1,"http-stream":{"content":"a"}}"#,
                BAD_ID,
            ),
            (
                r#"{"channel":"a","id":"1,2","http-stream":{"content":"a"}}"#,
                BAD_ID,
            ),
            (
                r#"{"channel":"a","meta":{"require_sub":["b"]},"http-stream":{"content":"a"}}"#,
                Reject::bad("GRIP: meta data that is no text"),
            ),
        ] {
            assert_eq!(one(item), Err(expected), "{item}");
        }
        assert!(one(r#"{"http-stream":{"content":"a"}}"#).is_err());
        assert!(
            one(r#"{"channel":"a","http-stream":{"content":"a","content-filters":[]}}"#).is_ok()
        );
        for content in ["", "{}", "[]", r#"{"items":{}}"#] {
            assert_eq!(
                items(content.as_bytes()).map_err(|reject| reject.status),
                Err(400),
                "{content}"
            );
        }
        let some = |count| {
            let item = r#"{"channel":"a","http-stream":{"content":"a"}},"#.repeat(count);
            items(format!(r#"{{"items":[{}]}}"#, item.trim_end_matches(',')).as_bytes())
        };
        assert_eq!(some(ITEMS_MAX).map(|items| items.len()), Ok(ITEMS_MAX));
        assert_eq!(some(ITEMS_MAX + 1), Err(ITEMS_TOO_MANY));
    }
}
