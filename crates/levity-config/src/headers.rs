//! Reads changes to headers, and checks their names and values.

use std::collections::HashSet;

use crate::host::is_host_name;
use crate::model::Headers;
use crate::section::{Section, Text};
use crate::token::is_token;
use crate::upstream::Rewrite;

/// Headers that frame a message or are about one connection: a change would break the connection (RFC 9112
/// section 6).
const OF_CONNECTIONS: &[&str] = &[
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Response headers that only the server can know: RFC 9110 sections 6.6.1 and 14.4.
const RESERVED_IN_RESPONSES: &[&str] = &["content-range", "date"];

/// Request headers in which the server names the client to a backend, or that it answers itself. A change would
/// let one client pass for another.
const RESERVED_IN_REQUESTS: &[&str] = &[
    "expect",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-sendfile-type",
];

/// `[site.headers]` and its like: the rules of the tables around come first.
pub(crate) fn of_responses(section: &Section<'_>, above: &[Headers]) -> Vec<Headers> {
    let own = read(section, RESERVED_IN_RESPONSES);
    let own = Headers {
        always: section.boolean("always") == Some(true),
        ..own
    };
    let resets = resets(section);
    let above = above.iter().filter(|_| !resets).cloned();
    let has_own = own != Headers::default();
    above.chain(has_own.then_some(own)).collect()
}

/// `[site.request_headers]` and its like, merged with the rules of the table around it.
pub(crate) fn of_requests(section: &Section<'_>, above: &Headers) -> Headers {
    let own = read(section, RESERVED_IN_REQUESTS);
    let added = own.add.iter().map(|(name, _)| name);
    for (key, mut names) in [
        ("add", added.collect::<Vec<_>>()),
        ("remove", own.remove.iter().collect()),
    ] {
        names.retain(|name| name.eq_ignore_ascii_case("host"));
        // A request has exactly one (RFC 9112 section 3.2).
        if !names.is_empty() {
            section.report(key, "`Host` can only be `set`", None);
        }
    }
    match resets(section) {
        true => own,
        false => merged(above.clone(), own),
    }
}

fn resets(section: &Section<'_>) -> bool {
    section.boolean("reset") == Some(true)
}

/// The rules of `above`, without those about names that `own` sets or removes, and then those of `own`.
fn merged(mut above: Headers, own: Headers) -> Headers {
    let set = own.set.iter().map(|(name, _)| name);
    let replaced: Vec<_> = set.chain(&own.remove).collect();
    let is_kept = |name: &str| {
        !replaced
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name))
    };
    above.set.retain(|(name, _)| is_kept(name));
    above.add.retain(|(name, _)| is_kept(name));
    above.remove.retain(|name| is_kept(name));
    Headers {
        set: [above.set, own.set].concat(),
        add: [above.add, own.add].concat(),
        remove: [above.remove, own.remove].concat(),
        always: false,
    }
}

/// The headers of a fixed response: pairs of names and values.
pub(crate) fn of_answer(section: &Section<'_>, key: &str) -> Vec<(String, String)> {
    let pairs = section.pairs(key);
    let mut seen = HashSet::new();
    for (name, value) in &pairs {
        check_name(name, RESERVED_IN_RESPONSES, &mut seen);
        check_value(name, value);
    }
    owned(&pairs)
}

/// The name of a header that requests may have, in lower case; `None` when the key is absent.
pub(crate) fn name(section: &Section<'_>, key: &str) -> Option<String> {
    let given = section.text(key)?;
    check_name(&given, RESERVED_IN_REQUESTS, &mut HashSet::new());
    Some(given.text.to_ascii_lowercase())
}

/// Names of headers that another party sets in requests.
pub(crate) fn names_for_requests(section: &Section<'_>, key: &str) -> Vec<String> {
    let given = section.names(key).unwrap_or_default();
    let mut seen = HashSet::new();
    let name = |name: &Text<'_>| for_requests(name, &mut seen);
    given.iter().map(name).collect()
}

/// The name of one such header.
pub(crate) fn name_for_requests(section: &Section<'_>, key: &str) -> Option<String> {
    let given = section.text(key)?;
    Some(for_requests(&given, &mut HashSet::new()))
}

fn for_requests(name: &Text<'_>, seen: &mut HashSet<String>) -> String {
    check_name(name, RESERVED_IN_REQUESTS, seen);
    if name.text.eq_ignore_ascii_case("host") {
        name.refuse("`Host` is that of the request");
    }
    name.text.to_owned()
}

fn check_name(name: &Text<'_>, reserved: &[&str], seen: &mut HashSet<String>) {
    let lower = name.text.to_ascii_lowercase();
    let reason = if !is_token(name.text) {
        "is not a header name"
    } else if is_one_of(&lower, OF_CONNECTIONS) || is_one_of(&lower, reserved) {
        "is set by the server itself"
    } else if !seen.insert(lower) {
        "is given twice"
    } else {
        return;
    };
    name.refuse(format!("`{}` {reason}", name.text));
}

/// Whether only the server itself may write the header of that name in a response.
pub(crate) fn is_reserved_in_responses(name: &str) -> bool {
    is_one_of(name, OF_CONNECTIONS) || is_one_of(name, RESERVED_IN_RESPONSES)
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn check_value(name: &Text<'_>, value: &Text<'_>) {
    if !is_field_value(value.text) {
        let message = format!("the value of `{}` is not valid in a header", name.text);
        value.refuse_with(message, FIELD_VALUE);
    }
}

fn read(section: &Section<'_>, reserved: &[&str]) -> Headers {
    let mut seen = HashSet::new();
    let set = section.pairs("set");
    let add = section.pairs("add");
    let removed = section.names("remove").unwrap_or_default();
    let written = set.iter().chain(&add);
    written
        .clone()
        .for_each(|(name, _)| check_name(name, reserved, &mut seen));
    for name in &removed {
        // It tells a backend only that there is a proxy, so no client passes for another without it.
        let is_via = name.text.eq_ignore_ascii_case("via");
        check_name(name, if is_via { &[] } else { reserved }, &mut seen);
    }
    written.for_each(|(name, value)| check_value(name, value));
    Headers {
        set: owned(&set),
        add: owned(&add),
        remove: removed.iter().map(|name| name.text.to_owned()).collect(),
        always: false,
    }
}

/// `[site.rewrite]` and its like. The pairs of the table come before those of the one around it.
pub(crate) fn rewrite(section: &Section<'_>, above: Rewrite) -> Rewrite {
    const LOCATION: &str = "no space, no control character, and text to replace";
    const PATH: &str = "a path starts with `/` and has no `;`";
    const DOMAIN: &str = "a host name, which may have a dot before it";
    let location = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let replaced = |text: &str| !text.is_empty() && location(text);
    let path = |text: &str| text.starts_with('/') && location(text) && !text.contains(';');
    let domain = |text: &str| is_host_name(text.strip_prefix('.').unwrap_or(text));
    Rewrite {
        location: [
            replacements(section, "location", replaced, location, LOCATION),
            above.location,
        ]
        .concat(),
        cookie_path: [
            replacements(section, "cookie_path", path, path, PATH),
            above.cookie_path,
        ]
        .concat(),
        cookie_domain: [
            replacements(section, "cookie_domain", domain, domain, DOMAIN),
            above.cookie_domain,
        ]
        .concat(),
    }
}

fn replacements(
    section: &Section<'_>,
    name: &str,
    is_found: impl Fn(&str) -> bool,
    is_put: impl Fn(&str) -> bool,
    help: &str,
) -> Vec<(String, String)> {
    let pairs = section.pairs(name);
    for (found, put) in &pairs {
        let sound = [(found, is_found(found.text)), (put, is_put(put.text))];
        for (text, _) in sound.iter().filter(|(_, sound)| !sound) {
            text.refuse_with(format!("`{}` is not valid in `{name}`", text.text), help);
        }
    }
    owned(&pairs)
}

fn owned(pairs: &[(Text<'_>, Text<'_>)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| (name.text.to_owned(), value.text.to_owned()))
        .collect()
}

/// Whether a request line can have this target: RFC 9112 section 3.2.1.
pub(crate) fn is_request_target(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#')
}

const FIELD_VALUE: &str = "no control characters, and no space at either end";

/// RFC 9110 section 5.5.
pub(crate) fn is_field_value(value: &str) -> bool {
    value.trim_matches([' ', '\t']) == value
        && value
            .bytes()
            .all(|b| b == b'\t' || (b >= 0x20 && b != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_fields() {
        assert!(is_token("Cache-Control") && !is_token("") && !is_token("a b") && !is_token("a:"));
        assert!(is_field_value("") && is_field_value("a\tb, \u{e9}"));
        assert!(!is_field_value("a\r\nb") && !is_field_value(" a") && !is_field_value("a\u{7f}"));
    }
}
