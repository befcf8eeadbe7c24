//! GRIP, the Generic Realtime Intermediary Protocol of Pushpin: an application answers with the instruction to hold the
//! client, and publishes to the channels that the client listens to.
//!
//! This reads what the public libraries send (gripcontrol and django-grip of Python, `@fanoutio/grip` and `serve-grip` of
//! Node.js): instructions in headers ([`Instruct::read_header`]) and as JSON ([`Instruct::from_json`]), and the items of
//! the control endpoint ([`items`]). A channel is a mailbox: see [`box_name`].
//!
//! What is not supported:
//!
//! - Filters that change messages or ask the application (`build-id`, `var-subst`, `http-check`, `http-modify`, and
//!   `content-filters` of an item). Filters restrict who gets what, so they are refused: ignored, they would show messages to
//!   the wrong clients. Meta data (`Grip-Set-Meta`, `meta`) that [`Filters`] do not look at is ignored.
//! - Recovery through the application (`Grip-Link`, the actions `hint` and `refresh`). The mailbox has the messages, so
//!   the link is ignored; an item without content is refused.
//! - `body-patch`, and WebSocket over HTTP.

mod filter;
mod header;
mod instruct;
mod json;
mod publish;

use std::time::Duration;

pub use filter::{Filters, Meta};
pub use instruct::{Channel, Hold, Instruct, KeepAlive, KeepAliveMode};
pub use publish::{Content, Item, items};

use crate::Reject;
use crate::mailbox::is_name;

/// The media type of an instruction as JSON.
pub const INSTRUCT_TYPE: &str = "application/grip-instruct";

/// The header that proves to an application that a request came through this server: a token, see
/// [`jwt::Unsigned`](crate::jwt::Unsigned).
pub const SIG: &str = "Grip-Sig";

/// The header that says how the client is held. Without it an instruction in headers has no effect.
pub const HOLD: &str = "Grip-Hold";

/// The maximum number of channels of one instruction.
pub const CHANNELS_MAX: usize = 64;

/// The maximum number of items that are published at once.
pub const ITEMS_MAX: usize = 64;

/// The maximum number of headers of a response in JSON.
pub const HEADERS_MAX: usize = 64;

/// The maximum size of the headers of a response in JSON, in bytes of names and values.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The maximum size of the content that keeps a connection alive, in bytes.
pub const KEEP_ALIVE_BYTES_MAX: usize = 4 * 1024;

/// The maximum length of a value of meta data in bytes.
pub const META_BYTES_MAX: usize = 4 * 1024;

/// The time without an event after which a held response ends, or the content that keeps a stream alive is sent, if the
/// application says nothing else.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(55);

/// The maximum of such a time: one day.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const NO_CHANNEL: Reject = Reject::bad("GRIP channel without a name");
const CHANNEL_TOO_LONG: Reject = Reject::bad("name of a GRIP channel too long for a mailbox");

/// A response that an application describes in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// From 200 to 599.
    pub status: u16,
    /// Names and values that can be written: without those of the connection and of the framing, which are the server's.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

/// The name of the box for a channel. Any bytes can be the name of a channel; different channels have different boxes.
///
/// A name that is also one of a box stays as it is, with one exception: `=` and two hexadecimal digits in upper case stand
/// for a byte that a box cannot have in its name. These are the bytes that [`is_name`] refuses, slashes that would make an
/// empty segment, and the first dot of a segment of dots.
///
/// # Errors
/// 400 for an empty name, and for one that is too long for a box.
pub fn box_name(channel: &[u8]) -> Result<String, Reject> {
    if channel.is_empty() {
        return Err(NO_CHANNEL);
    }
    let mut name = String::with_capacity(channel.len());
    for (at, &byte) in channel.iter().enumerate() {
        if is_escaped(channel, at) {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            name.push('=');
            name.push(char::from(DIGITS[usize::from(byte >> 4)]));
            name.push(char::from(DIGITS[usize::from(byte & 15)]));
        } else {
            name.push(char::from(byte));
        }
        if name.len() > crate::mailbox::NAME_BYTES_MAX {
            return Err(CHANNEL_TOO_LONG);
        }
    }
    Ok(name)
}

fn is_escaped(channel: &[u8], at: usize) -> bool {
    let (before, after) = (&channel[..at], &channel[at + 1..]);
    let starts_segment = matches!(before, [] | [.., b'/']);
    match channel[at] {
        b'/' => starts_segment || after.is_empty(),
        b'.' => {
            let mut rest = after.iter().skip_while(|&&byte| byte == b'.');
            starts_segment && matches!(rest.next(), None | Some(b'/'))
        }
        b'=' => {
            let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
            matches!(after, [high, low, ..] if is_digit(high) && is_digit(low))
        }
        byte => !is_name(&[byte]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::NAME_BYTES_MAX;

    #[test]
    fn channels_are_boxes() {
        for (channel, name) in [
            ("room", "room"),
            ("chat/room-1:x@y", "chat/room-1:x@y"),
            ("a b", "a=20b"),
            ("{id},é", "=7Bid=7D=2C=C3=A9"),
            ("/room", "=2Froom"),
            ("/", "=2F"),
            ("a//b/", "a/=2Fb=2F"),
            ("..", "=2E."),
            ("a/../b", "a/=2E./b"),
            ("...a/.b", "...a/.b"),
            ("a=b", "a=b"),
            ("a=2F", "a=3D2F"),
            ("a=2f", "a=2f"),
            ("==41", "==3D41"),
            ("%2F", "=252F"),
        ] {
            assert_eq!(box_name(channel.as_bytes()).as_deref(), Ok(name));
            assert!(is_name(name.as_bytes()), "{name}");
        }
        assert_eq!(box_name(b""), Err(NO_CHANNEL));
        assert!(box_name(&[b'a'; NAME_BYTES_MAX]).is_ok());
        assert_eq!(box_name(&[b'a'; NAME_BYTES_MAX + 1]), Err(CHANNEL_TOO_LONG));
        assert_eq!(
            box_name(&[b' '; NAME_BYTES_MAX / 3 + 1]),
            Err(CHANNEL_TOO_LONG)
        );
    }
}
