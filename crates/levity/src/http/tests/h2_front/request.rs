//! Converts a HEADERS frame to a request.

use std::hash::{BuildHasher, RandomState};

use ::http::request::Parts;
use ::http::{Method, header};
use h2::ext::Protocol;
use levity_wire::http1::{Framing, Limits, Reject};

use crate::http::request::Request;

/// The request with these header fields. An extended CONNECT (RFC 8441) becomes the GET that offers its protocol.
///
/// # Errors
/// 400 for bytes that are not allowed in a request.
pub fn of(parts: &Parts, has_body: bool, limits: &Limits) -> Result<Request, Reject> {
    let protocol = parts.extensions.get::<Protocol>();
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let method = match protocol {
        Some(_) => Method::GET.as_str(),
        None => parts.method.as_str(),
    };
    let path = parts.uri.path_and_query().map(|path| path.as_str());
    let target = path.or(authority).unwrap_or("/");
    let named = parts.headers.get(header::HOST);
    let host = authority.map(str::as_bytes);
    let host = host.or(named.map(|host| host.as_bytes())).unwrap_or(b"");
    let mut fields = fields(parts, protocol.is_some());
    if let Some(protocol) = protocol {
        offer(protocol, &mut fields);
    }
    let lines = fields.iter().map(|(name, value)| (*name, value.as_slice()));
    let mut request = Request::build(method.as_bytes(), target.as_bytes(), host, lines, limits)?;
    if has_body && protocol.is_none() && request.head.framing == Framing::None {
        // The length is unknown.
        request.head.framing = Framing::Chunked;
    }
    Ok(request)
}

/// The header fields, with all cookies in one line (RFC 9113, 8.2.3).
fn fields(parts: &Parts, is_tunnel: bool) -> Vec<(&[u8], Vec<u8>)> {
    let is_left_out = |name: &header::HeaderName| {
        *name == header::HOST
            || *name == header::COOKIE
            || (is_tunnel && *name == header::CONTENT_LENGTH)
    };
    let others = parts.headers.iter().filter(|(name, _)| !is_left_out(name));
    let others = others.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes().to_vec()));
    let mut fields: Vec<_> = others.collect();
    let crumbs = parts.headers.get_all(header::COOKIE).iter();
    let crumbs: Vec<_> = crumbs.map(|crumb| crumb.as_bytes()).collect();
    if !crumbs.is_empty() {
        fields.push((b"cookie", crumbs.join(&b"; "[..])));
    }
    fields
}

/// Adds the headers that RFC 6455, 4.1 requires of a client over HTTP/1.1.
fn offer(protocol: &Protocol, fields: &mut Vec<(&[u8], Vec<u8>)>) {
    fields.push((b"connection", b"Upgrade".to_vec()));
    fields.push((b"upgrade", protocol.as_str().as_bytes().to_vec()));
    fields.push((b"sec-websocket-key", key()));
    if !fields
        .iter()
        .any(|(name, _)| *name == b"sec-websocket-version")
    {
        fields.push((b"sec-websocket-version", b"13".to_vec()));
    }
}

/// Sixteen random bytes in Base64.
fn key() -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let random = |of: u8| u128::from(RandomState::new().hash_one(of));
    let bits = random(0) << 64 | random(1);
    // The 22nd digit encodes only two bits.
    let digit = |index: u32| DIGITS[(bits.rotate_left(6 * (index + 1)) & 63) as usize];
    let last = DIGITS[((bits & 3) << 4) as usize];
    (0..21).map(digit).chain([last, b'=', b'=']).collect()
}
