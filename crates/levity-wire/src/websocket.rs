//! The opening handshake of WebSockets (RFC 6455, 4), the negotiation of compression (RFC 7692), and frames (RFC 6455, 5).
//!
//! SHA-1, which the handshake needs, is the caller's.

mod header;
pub mod input;

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::Reject;
use crate::http1::{is_token, list, trim};
use crate::parameters::{parameter, split};
pub use header::{ClientHeader, Opcode, Violation, push_header};

/// The only version, as text.
pub const VERSION: &str = "13";

/// The maximum number of subprotocols that a client may offer.
pub const PROTOCOLS_MAX: usize = 32;

/// The maximum number of extensions that a client may offer.
pub const EXTENSIONS_MAX: usize = 32;

/// The maximum length of the reason of a Close frame in bytes: a control frame has at most 125, two of them for the code.
pub const CLOSE_REASON_BYTES_MAX: usize = 123;

const BAD_KEY: Reject = Reject::bad("Sec-WebSocket-Key is not 16 bytes in Base64");
/// 426: the response has to name the version that is supported (RFC 6455, 4.4).
const OTHER_VERSION: Reject = Reject::new(426, "Sec-WebSocket-Version is not 13");
const BAD_PROTOCOL: Reject = Reject::bad("bad or repeated name in Sec-WebSocket-Protocol");
const PROTOCOLS_TOO_MANY: Reject = Reject::bad("more than 32 names in Sec-WebSocket-Protocol");
const BAD_EXTENSION: Reject = Reject::bad("malformed Sec-WebSocket-Extensions");
const EXTENSIONS_TOO_MANY: Reject =
    Reject::bad("more than 32 extensions in Sec-WebSocket-Extensions");

/// The length of what a key is in Base64.
const KEY_BYTES: usize = 16;
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Checks the value of Sec-WebSocket-Version.
///
/// # Errors
/// 426 for another version than [`VERSION`].
pub fn check_version(value: &[u8]) -> Result<(), Reject> {
    match trim(value) == VERSION.as_bytes() {
        true => Ok(()),
        false => Err(OTHER_VERSION),
    }
}

/// What the value of Sec-WebSocket-Accept is the digest of: its SHA-1, given to [`accept`].
///
/// # Errors
/// 400 if `key`, the value of Sec-WebSocket-Key, is not 16 bytes in Base64.
pub fn accept_input(key: &[u8]) -> Result<Vec<u8>, Reject> {
    let key = trim(key);
    match BASE64_STANDARD.decode(key) {
        Ok(decoded) if decoded.len() == KEY_BYTES => Ok([key, GUID].concat()),
        _ => Err(BAD_KEY),
    }
}

/// The value of Sec-WebSocket-Accept for the SHA-1 of [`accept_input`].
#[must_use]
pub fn accept(digest: &[u8]) -> String {
    BASE64_STANDARD.encode(digest)
}

/// The subprotocols that the client offers, in its order of preference, from all lines of Sec-WebSocket-Protocol.
///
/// # Errors
/// 400 for what is no token, for a name twice (RFC 6455, 4.1), and for more than [`PROTOCOLS_MAX`].
pub fn protocols<'v>(lines: impl IntoIterator<Item = &'v [u8]>) -> Result<Vec<&'v str>, Reject> {
    let mut names = Vec::new();
    for name in lines
        .into_iter()
        .flat_map(list)
        .filter(|name| !name.is_empty())
    {
        let name = Some(name).filter(|name| is_token(name));
        let name = name
            .and_then(|name| str::from_utf8(name).ok())
            .ok_or(BAD_PROTOCOL)?;
        if names.contains(&name) {
            return Err(BAD_PROTOCOL);
        }
        if names.len() == PROTOCOLS_MAX {
            return Err(PROTOCOLS_TOO_MANY);
        }
        names.push(name);
    }
    Ok(names)
}

/// Compression of each message with DEFLATE, with a window of 32 KiB and a new one for each message on both sides: a
/// socket that is idle holds no memory for it, and a message can be compressed once for all sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    /// The client has named the window of the server, and gets it back (RFC 7692, 7.1.2.1).
    names_window: bool,
}

impl Deflate {
    /// The first offer in the lines of Sec-WebSocket-Extensions that can be accepted. An offer that demands a smaller
    /// window of the server is declined, and one with unknown, repeated or invalid parameters has to be (RFC 7692, 5.1).
    ///
    /// # Errors
    /// 400 if a line does not follow the grammar of RFC 6455, 9.1, and for more than [`EXTENSIONS_MAX`] offers.
    pub fn negotiate<'v>(
        lines: impl IntoIterator<Item = &'v [u8]>,
    ) -> Result<Option<Self>, Reject> {
        let offers = lines.into_iter().flat_map(|line| split(line, b','));
        let (mut count, mut chosen) = (0, None);
        for offer in offers.filter(|offer| !offer.is_empty()) {
            count += 1;
            if count > EXTENSIONS_MAX {
                return Err(EXTENSIONS_TOO_MANY);
            }
            let accepted = Self::accept(offer)?;
            chosen = chosen.or(accepted);
        }
        Ok(chosen)
    }

    /// The value of Sec-WebSocket-Extensions in the response.
    #[must_use]
    pub fn response(self) -> &'static str {
        match self.names_window {
            true => {
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=15"
            }
            false => "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        }
    }

    /// The offer if it is one that can be accepted. It is read to its end in any case.
    fn accept(offer: &[u8]) -> Result<Option<Self>, Reject> {
        const NAMES: [&[u8]; 4] = [
            b"server_no_context_takeover",
            b"client_no_context_takeover",
            b"server_max_window_bits",
            b"client_max_window_bits",
        ];
        let mut parts = split(offer, b';');
        let name = parts
            .next()
            .filter(|name| is_token(name))
            .ok_or(BAD_EXTENSION)?;
        let mut is_accepted = name.eq_ignore_ascii_case(b"permessage-deflate");
        let mut seen = [false; NAMES.len()];
        for part in parts {
            let (name, value) = parameter(part).ok_or(BAD_EXTENSION)?;
            let value = value.as_deref();
            if !is_token(name) || value.is_some_and(|value| !is_token(value)) {
                return Err(BAD_EXTENSION);
            }
            let known = NAMES
                .iter()
                .position(|known| name.eq_ignore_ascii_case(known));
            let is_valid = match (known, value) {
                (Some(0 | 1), None) | (Some(2), Some(b"15")) | (Some(3), None) => true,
                (Some(3), Some(bits)) => is_window(bits),
                _ => false,
            };
            is_accepted &=
                is_valid && known.is_some_and(|at| !std::mem::replace(&mut seen[at], true));
        }
        let names_window = seen[2];
        Ok(is_accepted.then_some(Self { names_window }))
    }
}

/// Whether this is the logarithm of the size of a window: 8 to 15, without leading zeros.
fn is_window(bits: &[u8]) -> bool {
    matches!(bits, [b'8' | b'9'] | [b'1', b'0'..=b'5'])
}

/// The longest header of a frame that is not masked, in bytes.
const HEADER_BYTES_MAX: usize = 10;

/// The frame of a whole message, compressed as [`Deflate`] says or not.
#[must_use]
pub fn frame(opcode: Opcode, is_compressed: bool, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES_MAX + content.len());
    push_header(
        &mut frame,
        opcode,
        is_compressed,
        true,
        content.len() as u64,
    );
    frame.extend_from_slice(content);
    frame
}

/// Whether a Close frame may have this code (RFC 6455, 7.4, and the registry of IANA).
#[must_use]
pub fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_of_the_rfc() {
        // RFC 6455, 1.3.
        let input = accept_input(b"dGhlIHNhbXBsZSBub25jZQ==").expect("a key");
        assert_eq!(
            &input[..],
            b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        );
        let digest = [
            0xb3, 0x7a, 0x4f, 0x2c, 0xc0, 0x62, 0x4f, 0x16, 0x90, 0xf6, 0x46, 0x06, 0xcf, 0x38,
            0x59, 0x45, 0xb2, 0xbe, 0xc4, 0xea,
        ];
        assert_eq!(accept(&digest), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_and_versions() {
        for bad in [
            "",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZSE=",
            "dGhlIHNhbXBsZSBub25jZSEh",
            "dGhlIHNhbXBsZSBub25jZR==",
            "dGhlIHNhbXBsZSBub25j-Q==",
        ] {
            assert_eq!(accept_input(bad.as_bytes()), Err(BAD_KEY), "{bad}");
        }
        assert_eq!(check_version(b" 13 "), Ok(()));
        assert_eq!(
            check_version(b"8").map_err(|reject| reject.status),
            Err(426)
        );
        assert_eq!(check_version(b"13, 8"), Err(OTHER_VERSION));
    }

    #[test]
    fn subprotocols_are_a_list() {
        let protocols =
            |lines: &[&'static str]| protocols(lines.iter().map(|line| line.as_bytes()));
        assert_eq!(protocols(&["a, b.c", "d,"]), Ok(vec!["a", "b.c", "d"]));
        assert_eq!(protocols(&[]), Ok(Vec::new()));
        for bad in [
            &["a, a"][..],
            &["a", "b,a"],
            &["a b"],
            &["\"a\""],
            &["\u{e4}"],
        ] {
            assert_eq!(protocols(bad), Err(BAD_PROTOCOL), "{bad:?}");
        }
        let names: Vec<_> = (0..=PROTOCOLS_MAX).map(|at| at.to_string()).collect();
        let count =
            |names: &[String]| super::protocols([names.join(",").as_bytes()]).map(|all| all.len());
        assert_eq!(count(&names[1..]), Ok(PROTOCOLS_MAX));
        assert_eq!(count(&names), Err(PROTOCOLS_TOO_MANY));
    }

    fn negotiated(lines: &[&str]) -> Result<Option<&'static str>, Reject> {
        let lines = lines.iter().map(|line| line.as_bytes());
        Ok(Deflate::negotiate(lines)?.map(Deflate::response))
    }

    #[test]
    fn compression_is_negotiated() {
        const PLAIN: &str =
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        let with_window = format!("{PLAIN}; server_max_window_bits=15");
        for accepted in [
            // Browsers, and ws of Node.js.
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate",
            "Permessage-Deflate ; client_max_window_bits = 10;server_no_context_takeover",
            "permessage-deflate; client_max_window_bits=\"8\"; client_no_context_takeover",
            "x-webkit-deflate-frame, permessage-deflate",
            "a; b=\"c\", , permessage-deflate; server_max_window_bits=10, permessage-deflate",
        ] {
            assert_eq!(negotiated(&[accepted]), Ok(Some(PLAIN)), "{accepted}");
        }
        assert_eq!(negotiated(&["a", "permessage-deflate"]), Ok(Some(PLAIN)));
        let offer = "permessage-deflate; server_max_window_bits=15, permessage-deflate";
        assert_eq!(negotiated(&[offer]), Ok(Some(&with_window[..])));
        for declined in [
            "",
            "permessage-bzip2",
            "permessage-deflate; server_max_window_bits=10",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=015",
            "permessage-deflate; server_max_window_bits=15; server_max_window_bits=15",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=08",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; unknown",
        ] {
            assert_eq!(negotiated(&[declined]), Ok(None), "{declined}");
        }
    }

    #[test]
    fn malformed_offers() {
        for bad in [
            "permessage deflate",
            "permessage-deflate;",
            "; a",
            "permessage-deflate; =1",
            "permessage-deflate; a=",
            "permessage-deflate; a=\"",
            "permessage-deflate; a=\"b c\"",
            "permessage-deflate, a=b",
        ] {
            assert_eq!(negotiated(&[bad]), Err(BAD_EXTENSION), "{bad}");
        }
        assert_eq!(negotiated(&["a"; EXTENSIONS_MAX]), Ok(None));
        assert_eq!(
            negotiated(&["a"; EXTENSIONS_MAX + 1]),
            Err(EXTENSIONS_TOO_MANY)
        );
    }

    #[test]
    fn close_codes() {
        for code in [1000, 1003, 1007, 1014, 3000, 4999] {
            assert!(is_close_code(code), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
            assert!(!is_close_code(code), "{code}");
        }
    }
}
