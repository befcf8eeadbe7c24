//! Where a rule leads, and values of headers: text in which `:name` stands for a part of the path.

use super::source::{name_at, split_url};
use crate::template::{Part, Template};

/// Characters that URLs have only escaped.
const ESCAPED: &str = "\"<>\\^`{|}";

/// A target, whose names of `names` are groups.
///
/// # Errors
///
/// A phrase that says what is wrong.
pub(super) fn template(to: &str, names: &[&str]) -> Result<Template, String> {
    if split_url(to).is_some_and(|(_, host, _)| !host.is_ascii()) {
        return Err(
            "the host of its target is not ASCII, such as `xn--caf-dma.example`".to_owned(),
        );
    }
    let parts = parts(to, names).into_iter().map(|part| match part {
        Part::Text(text) => Part::Text(escaped(&text)),
        part => part,
    });
    let is_url = ["https://", "http://"]
        .iter()
        .any(|scheme| to.starts_with(scheme));
    Template::of(parts.collect()).map_err(|_| {
        let reason = match is_url {
            true => "the host of its target is missing or has a placeholder",
            false if to.starts_with("//") => "`//` before a name stands for a host: its target begins with `https://` or `http://`",
            false => "its target begins neither with `/` nor with `https://` or `http://`",
        };
        reason.to_owned()
    })
}

/// A name in `to` that is not one of `names`.
pub(super) fn unknown_name<'t>(to: &'t str, names: &[&str]) -> Option<&'t str> {
    let colons = to.match_indices(':');
    let mut found = colons.map(|(at, _)| name_at(&to[at..]));
    found.find(|name| !name.is_empty() && !names.contains(name))
}

/// Text with a group for each of `names`. Other names stay as they are.
pub(super) fn parts(text: &str, names: &[&str]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut before = 0;
    for (at, _) in text.match_indices(':') {
        let name = name_at(&text[at..]);
        let Some(group) = names.iter().position(|known| *known == name) else {
            continue;
        };
        if before < at {
            parts.push(Part::Text(text[before..at].to_owned()));
        }
        parts.push(Part::Group(group + 1));
        before = at + 1 + name.len();
    }
    if before < text.len() || parts.is_empty() {
        parts.push(Part::Text(text[before..].to_owned()));
    }
    parts
}

/// The text of a URL, with escapes for what it cannot have.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii_graphic() && !ESCAPED.contains(character) {
            escaped.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let text = |text: &str| Part::Text(text.to_owned());
        for (to, parts) in [
            ("/b", vec![text("/b")]),
            ("/:a", vec![text("/"), Part::Group(1)]),
            ("/:a/", vec![text("/"), Part::Group(1), text("/")]),
            ("/:ab/:b_/:splat", vec![text("/:ab/:b_/"), Part::Group(2)]),
            (
                "/n?s=:splat&a=:a",
                vec![text("/n?s="), Part::Group(2), text("&a="), Part::Group(1)],
            ),
            ("/caf\u{e9}#\u{e9}", vec![text("/caf%C3%A9#%C3%A9")]),
            ("/{a}\\%20$1", vec![text("/%7Ba%7D%5C%20$1")]),
            ("https://a.example", vec![text("https://a.example")]),
            (
                "http://a.example:80/:a",
                vec![text("http://a.example:80/"), Part::Group(1)],
            ),
        ] {
            assert_eq!(template(to, &["a", "splat"]), Ok(Template(parts)), "{to}");
        }
        for (to, unknown) in [
            ("/:a/:splat", None),
            ("/:a/:b/:c", Some("b")),
            ("https://a.example:80/10:30", None),
            ("/x?y=:ab", Some("ab")),
        ] {
            assert_eq!(unknown_name(to, &["a", "splat"]), unknown, "{to}");
        }
        for to in [
            "//b.example",
            "https://a.example:splat",
            "https://:a.example/",
            "https://caf\u{e9}.example/",
            "https:///a",
            "ftp://a.example/",
        ] {
            assert!(template(to, &["a", "splat"]).is_err(), "{to}");
        }
    }
}
