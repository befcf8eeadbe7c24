//! Translates the header section of a request to HTTP/1, so that one parser decides for all versions what a request means.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::priority::Priority;
use crate::http1::{self, Span, Trailers, has_control, is_same_host, is_token};

/// What a header section says besides the text.
#[derive(Debug, Default)]
pub(super) struct HeadInfo {
    /// Content-Length.
    pub length: Option<u64>,
    pub priority: Priority,
    /// It is an extended CONNECT (RFC 8441).
    pub is_tunnel: bool,
}

/// The initial capacity for a header section in bytes.
const TEXT_BYTES: usize = 512;

/// Memory for the header section of a request, which the next request reuses.
#[derive(Debug, Default)]
pub(super) struct HeadText {
    /// The header section.
    pub head: Vec<u8>,
    /// The values of pseudo-headers.
    pseudo: Vec<u8>,
}

/// Why a request is malformed (RFC 9113, 8.1.1).
pub(super) type Malformed = &'static str;

/// Writes a header section while its fields are decoded.
pub(super) struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    pseudo_text: &'o mut Vec<u8>,
    /// The text is cut off after as many bytes, so that the parser refuses it.
    bytes_max: usize,
    pseudo: Pseudo,
    has_begun: bool,
    cookies: Vec<u8>,
    /// For the key of a WebSocket.
    nonce: u128,
    info: HeadInfo,
}

/// Where the values of pseudo-headers are (RFC 9113, 8.3.1; RFC 8441, 4).
#[derive(Clone, Copy, Default)]
struct Pseudo {
    method: Option<Span>,
    path: Option<Span>,
    authority: Option<Span>,
    protocol: Option<Span>,
    scheme: Option<Span>,
}

impl<'o> HeadWriter<'o> {
    /// A writer of at most about `bytes_max` to `text`.
    pub fn new(text: &'o mut HeadText, bytes_max: usize, nonce: u128) -> Self {
        let HeadText { head, pseudo } = text;
        head.clear();
        head.reserve(TEXT_BYTES);
        pseudo.clear();
        Self {
            out: head,
            pseudo_text: pseudo,
            bytes_max,
            pseudo: Pseudo::default(),
            has_begun: false,
            cookies: Vec::new(),
            nonce,
            info: HeadInfo::default(),
        }
    }

    /// Takes the next field.
    ///
    /// # Errors
    /// When the request is malformed.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        if name.first() == Some(&b':') {
            return self.pseudo_field(name, value);
        }
        check_value(value)?;
        check_name(name)?;
        self.begin()?;
        if self.out.len() > self.bytes_max {
            return Ok(());
        }
        match name {
            b"host" => {
                if let Some(authority) = self.pseudo.authority {
                    let authority = authority.of(self.pseudo_text);
                    return match is_same_host(authority, value, self.default_port()) {
                        true => Ok(()),
                        false => Err("Host and :authority differ"),
                    };
                }
            }
            b"cookie" => {
                // RFC 9113, 8.2.3.
                let between: &[u8] = if self.cookies.is_empty() { b"" } else { b"; " };
                self.cookies.extend_from_slice(between);
                self.cookies.extend_from_slice(value);
                self.check_length(self.cookies.len());
                return Ok(());
            }
            b"te" if value != b"trailers" => return Err("a TE other than trailers"),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Err("a header of HTTP/1"),
            // A tunnel has no length, and the key was written before.
            b"content-length" | b"sec-websocket-key" if self.info.is_tunnel => return Ok(()),
            b"content-length" => self.info.length = length(value),
            b"priority" => self.info.priority = Priority::stated(value),
            _ => {}
        }
        self.line(name, value);
        Ok(())
    }

    /// Ends the header section.
    ///
    /// # Errors
    /// When the request is malformed.
    pub fn finish(mut self) -> Result<HeadInfo, Malformed> {
        self.begin()?;
        let cookies = std::mem::take(&mut self.cookies);
        if !cookies.is_empty() {
            self.line(b"cookie", &cookies);
        }
        if self.out.len() <= self.bytes_max {
            self.out.extend_from_slice(b"\r\n");
        }
        Ok(self.info)
    }

    fn pseudo_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        // What is safe passes `check_value` too.
        let is_safe = |byte: &u8| byte.is_ascii_graphic() || *byte >= 0x80;
        if !value.iter().all(is_safe) {
            check_value(value)?;
            return Err("white space in a pseudo-header");
        }
        if self.has_begun {
            return Err("a pseudo-header after a header");
        }
        let place = match name {
            b":method" => &mut self.pseudo.method,
            b":path" => &mut self.pseudo.path,
            b":authority" => &mut self.pseudo.authority,
            b":protocol" => &mut self.pseudo.protocol,
            b":scheme" => &mut self.pseudo.scheme,
            _ => return Err("an unknown pseudo-header"),
        };
        if place.is_some() {
            return Err("a repeated pseudo-header");
        }
        // The parser refuses a value that is too long, with the right status.
        let value = &value[..value.len().min(self.bytes_max + 1)];
        let start = self.pseudo_text.len();
        self.pseudo_text.extend_from_slice(value);
        *place = Some(Span::new(start, self.pseudo_text.len()));
        Ok(())
    }

    /// The port that the scheme implies; zero, which is none, for a scheme that is not of HTTP.
    fn default_port(&self) -> u16 {
        let scheme = self.pseudo.scheme.map(|scheme| scheme.of(self.pseudo_text));
        http1::default_port(scheme.unwrap_or_default()).unwrap_or_default()
    }

    /// Writes the request line and Host before the first field.
    fn begin(&mut self) -> Result<(), Malformed> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let text = std::mem::take(self.pseudo_text);
        let begun = self.write_pseudo(&text);
        *self.pseudo_text = text;
        begun
    }

    fn write_pseudo(&mut self, text: &[u8]) -> Result<(), Malformed> {
        let (method, target) = self.pseudo.request_line(text)?;
        for part in [method, b" ", target, b" HTTP/1.1\r\n"] {
            self.out.extend_from_slice(part);
        }
        self.pseudo.authority = self.pseudo.authority.filter(|name| !name.is_empty());
        if let Some(authority) = self.pseudo.authority {
            self.line(b"host", authority.of(text));
        }
        if let Some(protocol) = self.pseudo.protocol {
            self.info.is_tunnel = true;
            self.line(b"connection", b"Upgrade");
            self.line(b"upgrade", protocol.of(text));
            // HTTP/2 needs no key (RFC 8441, 5), but an application over HTTP/1 does.
            let key = BASE64_STANDARD.encode(self.nonce.to_be_bytes());
            self.line(b"sec-websocket-key", key.as_bytes());
        }
        Ok(())
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b": ", value, b"\r\n"] {
            self.out.extend_from_slice(part);
        }
        self.check_length(0);
    }

    /// Cuts the text off if it is too long with `more` bytes to come.
    fn check_length(&mut self, more: usize) {
        if self.out.len() + more > self.bytes_max {
            self.out.resize(self.bytes_max + 1, b'x');
            self.cookies = Vec::new();
        }
    }
}

impl Pseudo {
    /// The method and the target of HTTP/1, in the `text` of the values.
    fn request_line(self, text: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
        let method = self.method.ok_or("no :method")?.of(text);
        if !is_token(method) {
            return Err("a malformed :method");
        }
        let is_connect = method == b"CONNECT";
        if is_connect && self.protocol.is_none() {
            return match (self.path, self.scheme, self.authority) {
                (None, None, Some(authority)) => Ok((method, authority.of(text))),
                _ => Err("a CONNECT with a path, or without an authority"),
            };
        }
        if self.protocol.is_some() && !is_connect {
            return Err("a :protocol without CONNECT");
        }
        let path = self.path.ok_or("no :path")?.of(text);
        if self.scheme.is_none() {
            return Err("no :scheme");
        }
        let is_all = path == b"*" && method == b"OPTIONS";
        if !(is_all || path.starts_with(b"/")) {
            return Err("a :path that does not begin with a slash");
        }
        let method = if is_connect { b"GET" } else { method };
        Ok((method, path))
    }
}

/// Takes a field of the trailers.
///
/// # Errors
/// When they are malformed.
pub(super) fn trailer(trailers: &mut Trailers, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    check_name(name)?;
    check_value(value)?;
    trailers.add(name, value);
    Ok(())
}

/// RFC 9113, 8.2.1: a token without upper-case letters.
fn check_name(name: &[u8]) -> Result<(), Malformed> {
    match is_token(name) && !name.iter().any(u8::is_ascii_uppercase) {
        true => Ok(()),
        false => Err("a malformed name of a header"),
    }
}

/// RFC 9113, 8.2.1, and no other control characters than HTTP/1 allows.
fn check_value(value: &[u8]) -> Result<(), Malformed> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    match is_space(value.first()) || is_space(value.last()) || has_control(value) {
        true => Err("a malformed value of a header"),
        false => Ok(()),
    }
}

fn length(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}
