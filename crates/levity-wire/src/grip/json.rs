//! Members of JSON that instructions and items have in common. `null` is as good as an absent member.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value};

use super::{HEADER_BYTES_MAX, HEADERS_MAX, Response, box_name};
use crate::Reject;
use crate::http1::{is_hop_by_hop, is_one_of, write};
use crate::mailbox_header::is_reserved;

const NO_OBJECT: Reject = Reject::bad("GRIP: no JSON object");
const BAD_STATUS: Reject = Reject::bad("GRIP: `code` is no status from 200 to 599");
const BAD_HEADERS: Reject =
    Reject::bad("GRIP: `headers` is neither an object nor a list of pairs, of texts");
const HEADERS_TOO_MANY: Reject =
    Reject::bad("GRIP: more than 64 `headers`, or more than 16 KiB of them");
const BAD_BASE64: Reject = Reject::bad("GRIP: `body-bin` or `content-bin` is not in Base64");
const HAS_PATCH: Reject = Reject::bad("GRIP: `body-patch` is not supported");

/// The framing is the server's.
const FRAMING: &[&str] = &["content-length", "date", "server"];

/// A JSON text that is an object.
pub(super) fn parse(text: &[u8]) -> Result<Map<String, Value>, Reject> {
    let value = serde_json::from_slice(text).map_err(|_| NO_OBJECT)?;
    object(value)
}

pub(super) fn object(value: Value) -> Result<Map<String, Value>, Reject> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(NO_OBJECT),
    }
}

/// A member that is not `null`.
pub(super) fn take(object: &mut Map<String, Value>, name: &str) -> Option<Value> {
    object.remove(name).filter(|value| !value.is_null())
}

/// A text; `reason` says what is wrong with another value.
pub(super) fn text(
    object: &mut Map<String, Value>,
    name: &str,
    reason: &'static str,
) -> Result<Option<String>, Reject> {
    match take(object, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Reject::bad(reason)),
    }
}

/// A member in bytes: as text, or in Base64 in the member whose name ends in `-bin`, which takes precedence.
pub(super) fn bytes(
    object: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<Vec<u8>>, Reject> {
    const NO_TEXT: &str = "GRIP: `body` or `content` is no text";
    let encoded = text(object, &format!("{name}-bin"), BAD_BASE64.reason)?;
    if let Some(encoded) = encoded {
        let decoded = BASE64_STANDARD.decode(encoded);
        return decoded.map(Some).map_err(|_| BAD_BASE64);
    }
    Ok(text(object, name, NO_TEXT)?.map(String::into_bytes))
}

/// A whole number, also in a text: Node.js sends the status so.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => crate::decimal::parse(text.as_bytes()),
        value => value.as_u64(),
    }
}

/// `code`, `reason` (which no later version of HTTP has, so it is ignored), `headers`, `body` and `body-bin`.
pub(super) fn response(mut object: Map<String, Value>) -> Result<Response, Reject> {
    let status = take(&mut object, "code");
    let status = status.map_or(Some(200), |code| number(&code));
    let status = status.and_then(|code| u16::try_from(code).ok());
    if take(&mut object, "body-patch").is_some() {
        return Err(HAS_PATCH);
    }
    Ok(Response {
        status: status.filter(is_status).ok_or(BAD_STATUS)?,
        headers: take(&mut object, "headers").map_or(Ok(Vec::new()), headers)?,
        body: bytes(&mut object, "body")?.unwrap_or_default(),
    })
}

/// Whether a final response may have this status.
pub(super) fn is_status(status: &u16) -> bool {
    (200..=599).contains(status)
}

/// Those that can be forwarded.
fn headers(value: Value) -> Result<Vec<(String, String)>, Reject> {
    let pairs: Vec<(String, Value)> = match value {
        Value::Object(object) => object.into_iter().collect(),
        list => serde_json::from_value(list).map_err(|_| BAD_HEADERS)?,
    };
    if pairs.len() > HEADERS_MAX {
        return Err(HEADERS_TOO_MANY);
    }
    let mut headers = Vec::with_capacity(pairs.len());
    let mut line = Vec::new();
    let mut bytes = 0;
    for (name, value) in pairs {
        let value = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => return Err(BAD_HEADERS),
        };
        bytes += name.len() + value.len();
        if bytes > HEADER_BYTES_MAX {
            return Err(HEADERS_TOO_MANY);
        }
        line.clear();
        write::field(&mut line, name.as_bytes(), value.as_bytes())
            .map_err(|_| Reject::bad("GRIP: a header that cannot be sent"))?;
        let bytes = name.as_bytes();
        if !is_hop_by_hop(bytes) && !is_one_of(bytes, FRAMING) && !is_reserved(bytes) {
            headers.push((name, value));
        }
    }
    Ok(headers)
}

/// The name of the box for the channel in the member `name`.
pub(super) fn channel(object: &mut Map<String, Value>, name: &str) -> Result<String, Reject> {
    let channel = text(object, name, "GRIP: the name of a channel is no text")?;
    box_name(channel.unwrap_or_default().as_bytes())
}

/// Whether the member `name` says anything. A list that is empty does not.
pub(super) fn is_set(object: &Map<String, Value>, name: &str) -> bool {
    match object.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}
