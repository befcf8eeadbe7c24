//! Instructions and items of GRIP.

use base64::prelude::{BASE64_STANDARD, Engine};
use levity_wire::Reject;
use levity_wire::grip::{
    CHANNELS_MAX, Content, HEADER_BYTES_MAX, HEADERS_MAX, Hold, ITEMS_MAX, Instruct,
    KEEP_ALIVE_BYTES_MAX, Response, TIMEOUT_MAX, box_name, items,
};
use levity_wire::http1::{is_hop_by_hop, write};
use levity_wire::mailbox::{is_key, is_name};
use levity_wire::mailbox_header::is_reserved;
use levity_wire::websocket::{CLOSE_REASON_BYTES_MAX, is_close_code};

use super::first_line;

/// What is accepted is within the limits and can be used as it is, different channels have different boxes, and contents
/// arrive as they are.
pub fn grip(bytes: &[u8]) {
    let (name, value) = first_line(bytes);
    let mut instruct = Instruct::default();
    if instruct.read_header(name, value).is_ok() {
        instruct_is_sound(&instruct);
    }
    channels_survive(&instruct);
    if let Ok((instruct, response)) = Instruct::from_json(value) {
        instruct_is_sound(&instruct);
        assert_eq!(instruct.check(), Ok(()));
        response_is_sound(&response);
    }
    items_are_sound(value);
    box_is_the_channels_own(value);
    contents_survive(value);
}

/// Whether a header, instruction or list of items is accepted: its name or kind is the first line.
pub fn grip_outcome(bytes: &[u8]) -> Result<bool, Reject> {
    let (name, value) = first_line(bytes);
    match name {
        b"instruct" => Instruct::from_json(value).map(|(instruct, _)| instruct.hold.is_some()),
        b"publish" => items(value).map(|items| !items.is_empty()),
        name => {
            let mut instruct = Instruct::default();
            instruct.read_header(name, value)?;
            Ok(instruct != Instruct::default())
        }
    }
}

fn instruct_is_sound(instruct: &Instruct) {
    assert!(instruct.channels.len() <= CHANNELS_MAX);
    for channel in &instruct.channels {
        assert!(is_name(channel.name.as_bytes()), "{}", channel.name);
    }
    if let Some(keep_alive) = &instruct.keep_alive {
        assert!((1..=KEEP_ALIVE_BYTES_MAX).contains(&keep_alive.data.len()));
        assert!(!keep_alive.timeout.is_zero() && keep_alive.timeout <= TIMEOUT_MAX);
    }
    let timeout = instruct.timeout.unwrap_or(TIMEOUT_MAX);
    assert!(!timeout.is_zero() && timeout <= TIMEOUT_MAX);
    assert!(
        instruct
            .status
            .is_none_or(|status| (200..600).contains(&status))
    );
    assert!(instruct.exposed.len() <= HEADERS_MAX);
}

/// The channels of a header can be written and read again.
fn channels_survive(instruct: &Instruct) {
    let mut elements = Vec::new();
    for channel in &instruct.channels {
        elements.push(decoded(&channel.name));
        // What a header can have as a name.
        let is_plain = |byte: &u8| !b",;\"\\".contains(byte);
        let name = elements.pop().unwrap_or_default();
        if !name.iter().all(is_plain) || name.trim_ascii() != name {
            return;
        }
        let filters = channel.filters;
        let named = [
            (filters.skip_self, "; filter=skip-self"),
            (filters.skip_users, "; filter=skip-users"),
            (filters.require_sub, "; filter=require-sub"),
        ];
        let named = named.iter().filter(|(is_set, _)| *is_set);
        let named: String = named.map(|(_, text)| *text).collect();
        elements.push([&name[..], named.as_bytes()].concat());
    }
    let mut again = Instruct::default();
    let value = elements.join(&b", "[..]);
    assert_eq!(again.read_header(b"Grip-Channel", &value), Ok(()));
    assert_eq!(again.channels, instruct.channels);
}

fn response_is_sound(response: &Response) {
    assert!((200..600).contains(&response.status));
    assert!(response.headers.len() <= HEADERS_MAX);
    let mut bytes = 0;
    for (name, value) in &response.headers {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        bytes += name.len() + value.len();
        assert!(write::field(&mut Vec::new(), name, value).is_ok());
        assert!(!is_hop_by_hop(name) && !is_reserved(name));
        assert!(!name.eq_ignore_ascii_case(b"content-length"));
    }
    assert!(bytes <= HEADER_BYTES_MAX);
}

fn items_are_sound(content: &[u8]) {
    let Ok(items) = items(content) else {
        return;
    };
    assert!(items.len() <= ITEMS_MAX);
    for item in items {
        assert!(is_name(item.name.as_bytes()));
        assert!(item.id.is_none_or(|id| is_key(id.as_bytes())));
        assert!(item.stream.is_some() || item.response.is_some() || item.web_socket.is_some());
        if let Some(response) = &item.response {
            response_is_sound(response);
        }
        if let Some(Content::Close { code, reason }) = item.web_socket {
            assert!(code.is_none_or(is_close_code));
            assert!(reason.len() <= CLOSE_REASON_BYTES_MAX);
            assert!(code.is_some() || reason.is_empty());
        }
    }
}

/// The channel can be told from the name of its box.
fn box_is_the_channels_own(channel: &[u8]) {
    if let Ok(name) = box_name(channel) {
        assert!(is_name(name.as_bytes()), "{name}");
        assert_eq!(decoded(&name), channel);
        let has_escape = decoded(&name) != name.as_bytes();
        assert!(has_escape || name.as_bytes() == channel);
    } else {
        assert!(channel.is_empty() || channel.len() * 3 > 200);
    }
}

fn decoded(name: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let mut out = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = match after {
            [high, low, ..] if *first == b'=' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let (byte, used) = digits.map_or((*first, 1), |(high, low)| (high << 4 | low, 3));
        out.push(byte);
        rest = &rest[used..];
    }
    out
}

/// Any bytes can be published in Base64 and kept alive with in each format, and any text can be published as it is.
fn contents_survive(content: &[u8]) {
    let encoded = BASE64_STANDARD.encode(content);
    let text = String::from_utf8_lossy(content);
    let published = serde_json::json!({"items": [
        {"channel": "a", "http-stream": {"content-bin": encoded}, "ws-message": {"content": text}},
    ]});
    let items = items(published.to_string().as_bytes()).expect("it is well-formed");
    let stream = match &items[0].stream {
        Some(Content::Text(text)) => text.as_bytes(),
        Some(Content::Binary(bytes)) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(stream, content);
    assert_eq!(items[0].web_socket, Some(Content::Text(text.into_owned())));

    let escaped: String = content
        .iter()
        .map(|byte| format!("\\x{byte:02x}"))
        .collect();
    for value in [
        format!("{escaped}; format=cstring"),
        format!("{encoded};format=base64; timeout=1"),
    ] {
        let mut instruct = Instruct::default();
        let read = instruct.read_header(b"grip-keep-alive", value.as_bytes());
        assert_eq!(
            read.is_ok(),
            (1..=KEEP_ALIVE_BYTES_MAX).contains(&content.len())
        );
        let data = instruct.keep_alive.map(|keep_alive| keep_alive.data);
        assert!(data.is_none_or(|data| data == content));
        assert_eq!(instruct.hold, None::<Hold>);
    }
}
