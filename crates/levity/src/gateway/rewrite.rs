//! Rewriting of Location, Refresh and Set-Cookie: an application names its own host and paths, and clients need those
//! of this server.

use std::borrow::Cow;

use levity_wire::http1::{self, Method};

use crate::message::client::Client;
use crate::message::request::Request;
use crate::upstream::backend::Backend;
use crate::upstream::codec::head::Head;
use crate::upstream::is_address_of;
use crate::upstream::proxy::Proxy;
use levity_config::Rewrite;

/// What a client has asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The request target, if to be sent back to it would change nothing.
    pub target: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// What `client` has asked for by `request`, wherever rules have led it, before it got `head`. A POST is sent back to its own URL
    /// for a GET, and a client with a new cookie gets something else there.
    pub fn by(client: &'a Client, request: &'a Request, head: &Head) -> Self {
        let is_read = matches!(request.head.method, Method::Get | Method::Head);
        let changes_nothing = is_read && head.fields.value("set-cookie").is_none();
        Self {
            scheme: client.scheme,
            target: changes_nothing.then(|| request.sent_target()),
        }
    }
}

/// Applies the rules of `proxy` to a response of `backend`, whatever its status, for a client that has `asked` for it.
pub fn rewrite(head: &mut Head, proxy: &Proxy, backend: &Backend, asked: Asked<'_>) {
    let rules = &proxy.rewrite;
    let rewritten = |url: &[u8], asked| {
        let ruled = by_rule(&rules.location, url);
        ruled.or_else(|| at_this_site(url, proxy, backend, asked))
    };
    head.fields.edit("location", |url| rewritten(url, asked));
    head.fields.edit("refresh", |value| {
        let (time, url) = split_refresh(value)?;
        // A page may have itself shown again.
        let asked = Asked {
            target: None,
            ..asked
        };
        Some([time, b" url=", &rewritten(url, asked)?].concat())
    });
    if !(rules.cookie_path.is_empty() && rules.cookie_domain.is_empty()) {
        head.fields.edit("set-cookie", |value| cookie(value, rules));
    }
}

/// The time of a Refresh with the mark behind it, and the URL, which may have quotes and lack `url=` (HTML, 4.2.5.3).
fn split_refresh(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = value.iter().position(|byte| b";,".contains(byte))?;
    let (time, url) = value.split_at(end + 1);
    let mut url = url.trim_ascii();
    if let Some((name, rest)) = url.split_at_checked(3)
        && name.eq_ignore_ascii_case(b"url")
        && let Some(named) = rest.trim_ascii_start().strip_prefix(b"=")
    {
        url = named.trim_ascii_start();
    }
    if let [quote @ (b'"' | b'\''), quoted @ ..] = url {
        url = quoted.split(|byte| byte == quote).next()?;
    }
    Some((time, url))
}

/// The first pair whose first half is a prefix of `value`, applied.
fn replace_start(pairs: &[(String, String)], value: &[u8]) -> Option<Vec<u8>> {
    pairs
        .iter()
        .find_map(|pair| Some(replacement(pair, value)?.concat()))
}

/// As [`replace_start`] for a URL. A pair is not used if it would take a host for a path, as `"/"` would that of
/// `//other.example/`, or a path for a host.
fn by_rule(pairs: &[(String, String)], url: &[u8]) -> Option<Vec<u8>> {
    pairs.iter().find_map(|pair| {
        let (found, put) = (pair.0.as_bytes(), pair.1.as_bytes());
        let new = replacement(pair, url)?.concat();
        let is_sound = names_host(found) == names_host(url) && names_host(put) == names_host(&new);
        is_sound.then_some(new)
    })
}

/// The parts of `value` after the pair, if its first half is a prefix.
fn replacement<'a>((found, put): &'a (String, String), value: &'a [u8]) -> Option<[&'a [u8]; 2]> {
    Some([put.as_bytes(), value.strip_prefix(found.as_bytes())?])
}

/// Whether a reference begins with a host (RFC 3986, 4.2), or is taken for one by browsers.
fn names_host(reference: &[u8]) -> bool {
    matches!(reference, [b'/', b'/' | b'\\', ..])
}

/// Turns a URL with a host that only this server uses for the application into a path of this site.
fn at_this_site(url: &[u8], proxy: &Proxy, backend: &Backend, asked: Asked<'_>) -> Option<Vec<u8>> {
    if !proxy.upstream.settings.protocol.is_http() {
        return None;
    }
    let (scheme, authority, rest) = http1::split_url(url)?;
    let named = |host| http1::name_and_port(host, http1::default_port(scheme)?);
    let (host, port) = named(authority)?;
    let slash: &[u8] = if rest.starts_with(b"/") { b"" } else { b"/" };
    let path = [&proxy.strip_prefix, slash, rest].concat();
    let is_backend =
        proxy.upstream.has_backend_at(&host, port) || is_address_of(&backend.address, &host, port);
    let is_host_set = || proxy.host_set().and_then(named) == Some((host, port));
    let is_own = is_backend || !is_elsewhere(scheme, &path, proxy, asked) && is_host_set();
    (is_own && !names_host(&path)).then_some(path)
}

/// Whether a URL with the Host that a route sets is a place of its own, since clients may know that name: it has a scheme that neither
/// the client nor the backend uses, or is the one that was asked for with TLS. As a path it would lead to itself.
fn is_elsewhere(scheme: &[u8], path: &[u8], proxy: &Proxy, asked: Asked<'_>) -> bool {
    let is = |other: &str| scheme.eq_ignore_ascii_case(other.as_bytes());
    let without_fragment = path.split(|&byte| byte == b'#').next();
    let has_tls_in_place = asked.scheme == "http" && without_fragment == asked.target;
    !is(asked.scheme) && (!is(proxy.upstream.scheme()) || has_tls_in_place)
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
    fn no_rule_takes_a_host_for_a_path() {
        let pairs = pairs(&[
            ("http://a/", "/"),
            ("/app", ""),
            ("//cdn.a/", "//cdn.example/"),
            ("/", "/wiki/"),
        ]);
        for (url, expected) in [
            ("/x", Some("/wiki/x")),
            ("/", Some("/wiki/")),
            ("//other.example/a", None),
            ("/\\other.example/a", None),
            ("//cdn.a/x", Some("//cdn.example/x")),
            ("http://a/x", Some("/x")),
            ("http://a//other.example/x", None),
            ("/app//other.example/x", Some("/wiki/app//other.example/x")),
        ] {
            let ruled = by_rule(&pairs, url.as_bytes());
            assert_eq!(ruled.as_deref(), expected.map(str::as_bytes), "{url}");
        }
    }

    #[test]
    fn forms_of_refresh() {
        for (value, split) in [
            ("0;url=http://a/", Some(("0;", "http://a/"))),
            ("5 , URL = 'http://a/' x", Some(("5 ,", "http://a/"))),
            ("0; \"/a;b\"", Some(("0;", "/a;b"))),
            ("0; /url", Some(("0;", "/url"))),
            ("0;ur", Some(("0;", "ur"))),
            ("5", None),
        ] {
            let found = split_refresh(value.as_bytes());
            let split = split.map(|(time, url)| (time.as_bytes(), url.as_bytes()));
            assert_eq!(found, split, "{value}");
        }
    }
}
