//! Conditional requests (RFC 9110, 13).

use std::iter;

use crate::date;

/// The validators of an existing representation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'a> {
    /// The entity tag as sent: with its quotes, and with `W/` if it is weak.
    pub etag: Option<&'a [u8]>,
    /// The time of Last-Modified, in seconds since 1970.
    pub modified: Option<u64>,
}

/// The result of evaluating the conditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Respond as if there were no condition.
    Proceed,
    /// 304: the client's copy is current.
    NotModified,
    /// 412: the client's copy does not meet the condition.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since in the order of
/// RFC 9110, 13.2.2. Call it only for a representation that exists, and once its status is 2xx.
///
/// `header` returns the values of a header by its lower-case name: either all of them, as
/// `|name| head.headers.named(bytes, name)` does, which handles entity tags in several lines; or
/// just the first, as an `Option`.
///
/// Invalid values never leave a client with a wrong copy, at the cost of transferring too much:
/// invalid dates are ignored, and nothing matches an invalid tag.
///
/// ```
/// use levity_wire::condition::{Validators, Verdict, evaluate};
/// use levity_wire::http1::{Limits, RequestHead, parse_request};
///
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: W/\"1\", \"2\"\r\n\r\n";
/// let mut head = RequestHead::default();
/// assert_eq!(parse_request(bytes, &mut head, &Limits::default()), Ok(true));
///
/// let validators = Validators { etag: Some(b"\"2\""), modified: None };
/// let verdict = evaluate(true, |name| head.headers.named(bytes, name), &validators);
/// assert_eq!(verdict, Verdict::NotModified);
/// ```
pub fn evaluate<'a, Values>(
    get_or_head: bool,
    header: impl Fn(&'static str) -> Values,
    validators: &Validators,
) -> Verdict
where
    Values: IntoIterator<Item = &'a [u8]>,
{
    let any_tag = |name, same: Comparison| any_tag(header(name), validators.etag, same);
    let date = |name| single_date(header(name)).zip(validators.modified);

    let required = any_tag("if-match", strong).unwrap_or_else(|| {
        date("if-unmodified-since").is_none_or(|(date, modified)| modified <= date)
    });
    if !required {
        return Verdict::Failed;
    }
    match any_tag("if-none-match", weak) {
        Some(true) if get_or_head => Verdict::NotModified,
        Some(true) => Verdict::Failed,
        Some(false) => Verdict::Proceed,
        None => match date("if-modified-since") {
            Some((date, modified)) if get_or_head && modified <= date => Verdict::NotModified,
            _ => Verdict::Proceed,
        },
    }
}

/// Whether an If-Range value matches the current state, so that a Range may be served; otherwise
/// the whole representation is sent (RFC 9110, 13.1.5).
///
/// Tags are compared strongly; a date must equal Last-Modified byte for byte. A date is a strong
/// validator only if the file cannot have changed twice in that second (8.8.2.2): set
/// `validators.modified` to `None` while it is too recent.
pub fn if_range(value: &[u8], validators: &Validators) -> bool {
    if tag_len(value) == Some(value.len()) {
        validators.etag.is_some_and(|etag| strong(value, etag))
    } else {
        validators
            .modified
            .is_some_and(|modified| date::format(modified) == value)
    }
}

/// Whether the entity tags in `value`, that of an If-None-Match, include `etag` (weak comparison).
pub fn lists(value: &[u8], etag: &[u8]) -> bool {
    tags(value).any(|tag| weak(tag, etag))
}

type Comparison = fn(&[u8], &[u8]) -> bool;

/// RFC 9110, 8.8.3.2: equal, and neither is weak.
fn strong(a: &[u8], b: &[u8]) -> bool {
    a == b && a.starts_with(b"\"")
}

/// RFC 9110, 8.8.3.2: equal except for `W/`.
fn weak(a: &[u8], b: &[u8]) -> bool {
    opaque(a) == opaque(b)
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether one of the listed tags, or `*`, matches; `None` without any value.
fn any_tag<'a>(
    values: impl IntoIterator<Item = &'a [u8]>,
    etag: Option<&[u8]>,
    same: Comparison,
) -> Option<bool> {
    let matches = |value: &'a [u8]| {
        value == b"*" || etag.is_some_and(|etag| tags(value).any(|tag| same(tag, etag)))
    };
    values.into_iter().map(matches).reduce(|a, b| a || b)
}

/// `None` also for a repeated header: it is not a list, so its value is ambiguous.
fn single_date<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut values = values.into_iter();
    let value = values.next()?;
    if values.next().is_some() {
        None
    } else {
        date::parse(value)
    }
}

/// The entity tags of a list, up to the first invalid byte. Tags may contain commas, so the list
/// cannot be split at them.
pub(crate) fn tags(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let start = rest.iter().position(|byte| !b" \t,".contains(byte))?;
        let listed = &rest[start..];
        let (tag, after) = listed.split_at(tag_len(listed)?);
        rest = after;
        Some(tag)
    })
}

/// Length of the entity tag at the start: `[W/]"..."` (RFC 9110, 8.8.3).
fn tag_len(bytes: &[u8]) -> Option<usize> {
    let quoted = opaque(bytes);
    let content = quoted.strip_prefix(b"\"")?;
    let content_len = content.iter().position(|&byte| !is_etag_byte(byte))?;
    let closed = content[content_len] == b'"';
    closed.then_some(bytes.len() - quoted.len() + content_len + 2)
}

fn is_etag_byte(byte: u8) -> bool {
    byte == b'!' || (b'#'..=b'~').contains(&byte) || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, NotModified, Proceed};
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const MODIFIED: u64 = 784_111_777;

    const STRONG: Validators = Validators {
        etag: Some(b"\"a\""),
        modified: Some(MODIFIED),
    };
    const WEAK: Validators = Validators {
        etag: Some(b"W/\"a\""),
        modified: Some(MODIFIED),
    };
    const NONE: Validators = Validators {
        etag: None,
        modified: None,
    };

    fn verdict(get_or_head: bool, lines: &[(&str, &str)], validators: &Validators) -> Verdict {
        let header = |name: &str| {
            let named = move |line: &&(&str, &str)| line.0.eq_ignore_ascii_case(name);
            lines
                .iter()
                .filter(named)
                .map(|line| line.1.as_bytes())
                .collect::<Vec<_>>()
        };
        evaluate(get_or_head, header, validators)
    }

    #[track_caller]
    fn get(lines: &[(&str, &str)], validators: &Validators, expected: Verdict) {
        assert_eq!(verdict(true, lines, validators), expected, "GET {lines:?}");
    }

    #[track_caller]
    fn put(lines: &[(&str, &str)], validators: &Validators, expected: Verdict) {
        assert_eq!(verdict(false, lines, validators), expected, "PUT {lines:?}");
    }

    #[test]
    fn no_condition() {
        get(&[], &STRONG, Proceed);
        put(&[], &NONE, Proceed);
    }

    #[test]
    fn if_match_compares_strongly() {
        get(&[("If-Match", "\"a\"")], &STRONG, Proceed);
        get(&[("If-Match", "\"b\", \"a\"")], &STRONG, Proceed);
        get(&[("If-Match", "*")], &STRONG, Proceed);
        get(&[("If-Match", "*")], &NONE, Proceed);
        get(&[("If-Match", "\"b\"")], &STRONG, Failed);
        get(&[("If-Match", "W/\"a\"")], &STRONG, Failed);
        get(&[("If-Match", "\"a\"")], &WEAK, Failed);
        get(&[("If-Match", "W/\"a\"")], &WEAK, Failed);
        get(&[("If-Match", "\"a\"")], &NONE, Failed);
        put(&[("If-Match", "\"b\"")], &STRONG, Failed);
    }

    #[test]
    fn if_none_match_compares_weakly() {
        get(&[("If-None-Match", "\"a\"")], &STRONG, NotModified);
        get(&[("If-None-Match", "W/\"a\"")], &STRONG, NotModified);
        get(&[("If-None-Match", "\"a\"")], &WEAK, NotModified);
        get(&[("If-None-Match", "*")], &STRONG, NotModified);
        get(&[("If-None-Match", "*")], &NONE, NotModified);
        get(&[("If-None-Match", "\"b\"")], &STRONG, Proceed);
        get(&[("If-None-Match", "\"a\"")], &NONE, Proceed);
        put(&[("If-None-Match", "\"a\"")], &STRONG, Failed);
        put(&[("If-None-Match", "*")], &STRONG, Failed);
        put(&[("If-None-Match", "\"b\"")], &STRONG, Proceed);
    }

    #[test]
    fn lists_of_tags() {
        let matching = [
            "\"a\"",
            "\"b\",\"a\"",
            "\"b\" ,\t\"a\"",
            ",, \"a\",",
            "W/\"b\", W/\"a\"",
            "\",\", \"a\"",
            "\"\", \"a\"",
            "\"\\\", \"a\"",
            "\"\u{e9}\", \"a\"",
        ];
        for value in matching {
            get(&[("If-None-Match", value)], &STRONG, NotModified);
        }
        let other = [
            "",
            ",",
            "a",
            "\"a",
            "a\"",
            "w/\"a\"",
            "W/a",
            "W/",
            "W",
            "\"a \"",
            "\"b\", *",
            "**",
            "'a'",
            "x\"a\"",
            "\"b\"; \"a\"",
            "\"b c\", \"a\"",
            "\"b,\"a\"",
        ];
        for value in other {
            get(&[("If-None-Match", value)], &STRONG, Proceed);
            get(&[("If-Match", value)], &STRONG, Failed);
        }
    }

    #[test]
    fn tags_in_several_lines_are_one_list() {
        get(
            &[("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")],
            &STRONG,
            NotModified,
        );
        get(
            &[("If-Match", "\"b\""), ("If-Match", "\"a\"")],
            &STRONG,
            Proceed,
        );
    }

    #[test]
    fn dates() {
        get(&[("If-Modified-Since", DATE)], &STRONG, NotModified);
        get(&[("If-Modified-Since", LATER)], &STRONG, NotModified);
        get(&[("If-Modified-Since", EARLIER)], &STRONG, Proceed);
        get(
            &[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT")],
            &STRONG,
            NotModified,
        );
        get(&[("If-Modified-Since", DATE)], &NONE, Proceed);
        get(&[("If-Modified-Since", "tomorrow")], &STRONG, Proceed);
        get(
            &[("If-Modified-Since", LATER), ("If-Modified-Since", LATER)],
            &STRONG,
            Proceed,
        );
        put(&[("If-Modified-Since", DATE)], &STRONG, Proceed);
        get(&[("If-Unmodified-Since", DATE)], &STRONG, Proceed);
        get(&[("If-Unmodified-Since", LATER)], &STRONG, Proceed);
        get(&[("If-Unmodified-Since", EARLIER)], &STRONG, Failed);
        put(&[("If-Unmodified-Since", EARLIER)], &STRONG, Failed);
        get(&[("If-Unmodified-Since", EARLIER)], &NONE, Proceed);
        get(&[("If-Unmodified-Since", "yesterday")], &STRONG, Proceed);
    }

    #[test]
    fn the_order_of_evaluation() {
        // If-Match hides If-Unmodified-Since.
        get(
            &[("If-Match", "\"a\""), ("If-Unmodified-Since", EARLIER)],
            &STRONG,
            Proceed,
        );
        get(
            &[("If-Match", "\"b\""), ("If-Unmodified-Since", LATER)],
            &STRONG,
            Failed,
        );
        // If-None-Match hides If-Modified-Since.
        get(
            &[("If-None-Match", "\"b\""), ("If-Modified-Since", LATER)],
            &STRONG,
            Proceed,
        );
        get(
            &[("If-None-Match", "\"a\""), ("If-Modified-Since", EARLIER)],
            &STRONG,
            NotModified,
        );
        // 412 comes before 304.
        get(
            &[("If-Match", "\"b\""), ("If-None-Match", "\"a\"")],
            &STRONG,
            Failed,
        );
        get(
            &[("If-Unmodified-Since", EARLIER), ("If-None-Match", "\"a\"")],
            &STRONG,
            Failed,
        );
        get(
            &[("If-Match", "\"a\""), ("If-None-Match", "\"a\"")],
            &STRONG,
            NotModified,
        );
    }

    #[test]
    fn the_first_value_alone_will_do() {
        let header = |name: &str| (name == "if-none-match").then_some(&b"\"a\""[..]);
        assert_eq!(evaluate(true, header, &STRONG), NotModified);
    }

    #[test]
    fn if_range_is_strong() {
        assert!(if_range(b"\"a\"", &STRONG));
        assert!(if_range(DATE.as_bytes(), &STRONG));
        let other = [
            "",
            "*",
            "a",
            "\"b\"",
            "W/\"a\"",
            "\"a\",",
            "\"a\", \"b\"",
            " \"a\"",
            "\"a",
            EARLIER,
            LATER,
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
        ];
        for value in other {
            assert!(!if_range(value.as_bytes(), &STRONG), "{value}");
        }
        assert!(!if_range(b"\"a\"", &WEAK));
        assert!(!if_range(b"W/\"a\"", &WEAK));
        assert!(!if_range(b"\"a\"", &NONE));
        assert!(!if_range(DATE.as_bytes(), &NONE));
    }
}
