//! The host and port of a request (RFC 9110, 7.2; RFC 3986, 3.2.2).

use std::borrow::Cow;
use std::net::Ipv6Addr;

use super::Reject;
use super::line::alphanumeric_or;
use crate::decimal;

/// Longest host name, RFC 1035, 2.3.4.
const NAME_BYTES_MAX: usize = 255;

const BAD_HOST: Reject = Reject::bad("bad host");

pub(crate) struct Authority<'a> {
    /// With brackets if it is an IPv6 address.
    pub(crate) name: &'a [u8],
    /// The part after the colon: at most five digits, possibly none.
    pub(crate) port: Option<&'a [u8]>,
}

/// The name in a Host value in the form used to look up sites: in lower case, without port, without
/// the final dot of a fully qualified name, with the brackets of an IPv6 address. Allocates only if
/// there is an upper-case letter.
///
/// # Errors
/// 400 unless it is `name[:port]`, `ipv4[:port]` or `[ipv6][:port]`. Names may contain the
/// characters of RFC 3986, 3.2.2, except two consecutive dots, and percent escapes, which parsers
/// interpret differently.
pub fn host_name(host: &[u8]) -> Result<Cow<'_, str>, Reject> {
    let name = split(host)?.name;
    let name = str::from_utf8(name.strip_suffix(b".").unwrap_or(name)).map_err(|_| BAD_HOST)?;
    Ok(if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    })
}

/// Whether two Host values mean the same where the port is `default_port` unless it is said. Of values that are
/// invalid only the same text is the same.
pub(crate) fn is_same(one: &[u8], other: &[u8], default_port: u16) -> bool {
    let meaning = |host| name_and_port(host, default_port);
    let is_same_text = one.eq_ignore_ascii_case(other);
    is_same_text || meaning(one).is_some_and(|one| meaning(other) == Some(one))
}

/// The name in a Host value as [`host_name`] gives it, and the port, which is `default_port` unless it is said. `None` for a
/// value that is invalid.
pub fn name_and_port(host: &[u8], default_port: u16) -> Option<(Cow<'_, str>, u16)> {
    let port = split(host).ok()?.port.filter(|port| !port.is_empty());
    let port = port.map_or(Some(u64::from(default_port)), decimal::parse)?;
    Some((host_name(host).ok()?, u16::try_from(port).ok()?))
}

/// The port that a scheme implies; `None` if it is not one of HTTP.
pub fn default_port(scheme: &[u8]) -> Option<u16> {
    match scheme {
        scheme if scheme.eq_ignore_ascii_case(b"http") => Some(80),
        scheme if scheme.eq_ignore_ascii_case(b"https") => Some(443),
        _ => None,
    }
}

/// The scheme of a URL, the authority, and the rest, which begins with `/`, `?` or `#` unless it is empty. `None` for a
/// reference without an authority behind a scheme.
pub fn split_url(url: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (scheme, rest) = url.split_at(url.iter().position(|&byte| byte == b':')?);
    let rest = rest.strip_prefix(b"://")?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    Some((scheme, authority, rest))
}

pub(crate) fn split(host: &[u8]) -> Result<Authority<'_>, Reject> {
    let name_len = match host {
        [b'[', ..] => address_len(host),
        _ => name_len(host),
    };
    let (name, rest) = host.split_at(name_len.ok_or(BAD_HOST)?);
    match rest {
        [] => Ok(Authority { name, port: None }),
        [b':', port @ ..] if is_port(port) => Ok(Authority {
            name,
            port: Some(port),
        }),
        _ => Err(BAD_HOST),
    }
}

/// Length of the `[v6]` at the start of `host`. Zone identifiers have no meaning for the other side
/// and are rejected.
fn address_len(host: &[u8]) -> Option<usize> {
    let end = host.iter().position(|&byte| byte == b']')?;
    str::from_utf8(&host[1..end])
        .ok()?
        .parse::<Ipv6Addr>()
        .ok()?;
    Some(end + 1)
}

/// Length of the name at the start of `host`, if each of its labels has at least one byte.
fn name_len(host: &[u8]) -> Option<usize> {
    let mut label_bytes = 0;
    for (at, &byte) in host.iter().enumerate() {
        match byte {
            _ if is_name_byte(byte) => label_bytes += 1,
            b'.' if label_bytes > 0 => label_bytes = 0,
            b':' => return (1..=NAME_BYTES_MAX).contains(&at).then_some(at),
            _ => return None,
        }
    }
    (1..=NAME_BYTES_MAX)
        .contains(&host.len())
        .then_some(host.len())
}

/// A byte of a label: `unreserved` and `sub-delims` of RFC 3986, 2.
fn is_name_byte(byte: u8) -> bool {
    static NAME: [bool; 256] = alphanumeric_or(b"-_~!$&'()*+,;=");
    NAME[byte as usize]
}

/// RFC 3986, 3.2.3 allows an empty port.
fn is_port(port: &[u8]) -> bool {
    let fits = |number| number <= u64::from(u16::MAX);
    port.is_empty() || (port.len() <= 5 && decimal::parse(port).is_some_and(fits))
}
