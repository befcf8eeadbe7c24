//! Rewriting of Location and Set-Cookie: an application names its own host and paths, and clients need those
//! of this server.

use std::borrow::Cow;

use super::backend::Backend;
use super::codec::head::Head;
use crate::route::Proxy;
use levity_config::Rewrite;
use levity_config::address::Address;
use levity_config::upstream::At;

/// Applies the rules of `proxy` to a response of `backend`, whatever its status.
pub fn rewrite(head: &mut Head, proxy: &Proxy, backend: &Backend) {
    let rules = &proxy.rewrite;
    head.fields.edit("location", |value| {
        let ruled = replace_start(&rules.location, value);
        ruled.or_else(|| at_this_site(value, proxy, backend))
    });
    if !(rules.cookie_path.is_empty() && rules.cookie_domain.is_empty()) {
        head.fields.edit("set-cookie", |value| cookie(value, rules));
    }
}

/// The first pair whose first half is a prefix of `value`, applied.
fn replace_start(pairs: &[(String, String)], value: &[u8]) -> Option<Vec<u8>> {
    pairs.iter().find_map(|(found, put)| {
        let rest = value.strip_prefix(found.as_bytes())?;
        Some([put.as_bytes(), rest].concat())
    })
}

/// Turns a URL with a host that only this server uses for the application into a path of this site.
fn at_this_site(url: &[u8], proxy: &Proxy, backend: &Backend) -> Option<Vec<u8>> {
    if !proxy.upstream.settings.protocol.is_http() {
        return None;
    }
    let scheme = url.get(..7)?;
    let rest = &url[7..];
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return None;
    }
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    if !is_own(authority, proxy, backend) {
        return None;
    }
    let slash: &[u8] = if rest.starts_with(b"/") { b"" } else { b"/" };
    let path = [&proxy.strip_prefix, slash, rest].concat();
    // Such a path would be a reference to another host (RFC 3986, 4.2), or be taken for one by browsers.
    let is_elsewhere = matches!(path.as_slice(), [b'/', b'/' | b'\\', ..]);
    (!is_elsewhere).then_some(path)
}

/// Whether the authority is that of the backend, of an entry in `to`, or the Host that the route sets.
fn is_own(authority: &[u8], proxy: &Proxy, backend: &Backend) -> bool {
    let is = |name: &str| is_same_authority(authority, name);
    let of_entry = |at: &At| match at {
        At::Address(address) => is_address(address, authority),
        At::Localhost(port) => is(&format!("localhost:{port}")),
        At::Name(name, port) => is(&format!("{name}:{port}")),
    };
    let set = &proxy.request_headers.set;
    let mut hosts = set
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    is_address(&backend.address, authority)
        || proxy
            .upstream
            .settings
            .to
            .iter()
            .any(|entry| of_entry(&entry.at))
        || hosts.any(|(_, host)| is(host))
}

fn is_address(address: &Address, authority: &[u8]) -> bool {
    match address {
        Address::Tcp(address) => is_same_authority(authority, &address.to_string()),
        Address::Unix(_) => false,
    }
}

/// Port 80 may be omitted.
fn is_same_authority(one: &[u8], other: &str) -> bool {
    let other = other.as_bytes();
    let without_port = |authority: &[u8]| {
        let authority = authority.strip_suffix(b":80").unwrap_or(authority);
        authority.to_ascii_lowercase()
    };
    without_port(one) == without_port(other)
}

/// A cookie with its `Path` and `Domain` rewritten; parsed as browsers do (RFC 6265, 5.2). `None` when it
/// does not change.
fn cookie(line: &[u8], rules: &Rewrite) -> Option<Vec<u8>> {
    let mut parts = line.split(|&byte| byte == b';');
    let pair = parts.next()?;
    let name = pair.split(|&byte| byte == b'=').next()?;
    if name.len() == pair.len() || name.trim_ascii().is_empty() {
        return None;
    }
    let mut out = pair.to_vec();
    let mut changed = false;
    for part in parts {
        let part = match attribute(part, rules) {
            Some(rewritten) => {
                changed = true;
                Cow::Owned(rewritten)
            }
            None => Cow::Borrowed(part),
        };
        out.push(b';');
        out.extend_from_slice(&part);
    }
    changed.then_some(out)
}

/// One attribute with the text before it; `None` when it does not change.
fn attribute(part: &[u8], rules: &Rewrite) -> Option<Vec<u8>> {
    let equals = part.iter().position(|&byte| byte == b'=')?;
    let (name, value) = (part[..equals].trim_ascii(), part[equals + 1..].trim_ascii());
    let value = if name.eq_ignore_ascii_case(b"path") {
        replace_start(&rules.cookie_path, value)?
    } else if name.eq_ignore_ascii_case(b"domain") {
        domain(&rules.cookie_domain, value)?
    } else {
        return None;
    };
    Some([&part[..=equals], &value].concat())
}

/// Domains are compared without case and without a leading dot (RFC 6265, 5.2.3).
fn domain(pairs: &[(String, String)], value: &[u8]) -> Option<Vec<u8>> {
    let bare = |domain: &[u8]| {
        domain
            .strip_prefix(b".")
            .unwrap_or(domain)
            .to_ascii_lowercase()
    };
    let same = |pair: &&(String, String)| bare(pair.0.as_bytes()) == bare(value);
    let (_, put) = pairs.iter().find(same)?;
    Some(put.clone().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        owned.collect()
    }

    #[test]
    fn the_first_pair_that_fits_is_taken() {
        let pairs = pairs(&[
            ("http://a/x/", "/y/"),
            ("http://a/", "/"),
            ("/old", "/new"),
            ("/gone", ""),
        ]);
        for (value, expected) in [
            ("http://a/x/1", Some("/y/1")),
            ("http://a/z?q#f", Some("/z?q#f")),
            ("/older", Some("/newer")),
            ("/gone/1", Some("/1")),
            ("http://b/", None),
            ("a/old", None),
            ("", None),
        ] {
            let replaced = replace_start(&pairs, value.as_bytes());
            assert_eq!(replaced.as_deref(), expected.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn cookies() {
        let rules = Rewrite {
            location: Vec::new(),
            cookie_path: pairs(&[("/app/", "/"), ("/", "/x/")]),
            cookie_domain: pairs(&[
                (".internal.example", "example.org"),
                ("other", ".example.net"),
            ]),
        };
        for (line, expected) in [
            ("a=b; Path=/app/c; HttpOnly", Some("a=b; Path=/c; HttpOnly")),
            ("a=b;path = /app/", Some("a=b;path =/")),
            ("a=\"b;PATH=/q\"", Some("a=\"b;PATH=/x/q\"")),
            ("a=b; Path=\"/app/\"", None),
            (
                "a=b; Domain=Internal.Example; Secure",
                Some("a=b; Domain=example.org; Secure"),
            ),
            (
                "a=b; domain=.internal.example",
                Some("a=b; domain=example.org"),
            ),
            ("a=b; Domain=sub.internal.example", None),
            (
                "a=b; Domain=OTHER; Path=/",
                Some("a=b; Domain=.example.net; Path=/x/"),
            ),
            ("a=b; Path=/app/1; Path=/2", Some("a=b; Path=/1; Path=/x/2")),
            ("a=; Path=/app/", Some("a=; Path=/")),
            ("a=b; Path; Domain", None),
            ("a=b; Pathology=/app/", None),
            ("a=b", None),
            // Not a cookie: no name, or no `=`.
            ("=b; Path=/app/", None),
            (" =b; Path=/app/", None),
            ("garbage; Path=/app/", None),
            ("", None),
        ] {
            let rewritten = cookie(line.as_bytes(), &rules);
            assert_eq!(rewritten.as_deref(), expected.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn hosts_with_ports_are_compared() {
        for (one, other, same) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1", "127.0.0.1:80", true),
            ("App.Example:80", "app.example", true),
            ("[::1]:8080", "[::1]:8080", true),
            ("127.0.0.1:8081", "127.0.0.1:8080", false),
            ("127.0.0.1", "127.0.0.1:8080", false),
            ("127.0.0.1:8080@evil", "127.0.0.1:8080", false),
            ("user@127.0.0.1:8080", "127.0.0.1:8080", false),
        ] {
            assert_eq!(
                is_same_authority(one.as_bytes(), other),
                same,
                "{one} {other}"
            );
        }
    }
}
