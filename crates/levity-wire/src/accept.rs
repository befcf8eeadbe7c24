//! The Accept header: the media types that a client prefers (RFC 9110, 12.5.1).

use crate::encoding::{WEIGHT_MAX, weight_of};
use crate::http1::trim;

/// How closely a media range names a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    /// `*/*`
    Any,
    /// `text/*`
    Type,
    /// `text/html`
    Exact,
}

/// The index of the media type in `offered` that a client prefers: the one with the largest weight. Of equal weights the
/// type that is named most closely wins, then the first one: a client that sends `application/json, */*` wants JSON.
/// `None` if no line accepts any of them.
///
/// Parameters other than `q` are ignored, and so are invalid elements. The closest range gives a type its weight,
/// `q=0` included.
pub fn preferred<'a>(lines: impl IntoIterator<Item = &'a [u8]>, offered: &[&str]) -> Option<usize> {
    // The closest range so far of each type, and its weight.
    let mut found: Vec<Option<(Match, u16)>> = vec![None; offered.len()];
    for line in lines {
        for (range, weight) in line.split(|&byte| byte == b',').filter_map(range_of) {
            for (media_type, found) in offered.iter().zip(&mut found) {
                let Some(match_) = match_of(range, media_type.as_bytes()) else {
                    continue;
                };
                if found.is_none_or(|(best, _)| best < match_) {
                    *found = Some((match_, weight));
                }
            }
        }
    }
    let acceptable = found.iter().enumerate().filter_map(|(index, found)| {
        let (match_, weight) = found.filter(|&(_, weight)| weight > 0)?;
        Some(((weight, match_), index))
    });
    // `max_by_key` would return the last of equal ones.
    let best = acceptable.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, index)| index)
}

/// A media range without its parameters, and its weight in thousandths.
fn range_of(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = element.split(|&byte| byte == b';').map(trim);
    let range = parts.next()?;
    let is_weight = |part: &&[u8]| {
        part.get(..2)
            .is_some_and(|name| name.eq_ignore_ascii_case(b"q="))
    };
    let weight = match parts.find(is_weight) {
        Some(weight) => weight_of(weight)?,
        None => WEIGHT_MAX,
    };
    Some((range, weight))
}

fn match_of(range: &[u8], media_type: &[u8]) -> Option<Match> {
    if range == b"*/*" {
        return Some(Match::Any);
    }
    if range.eq_ignore_ascii_case(media_type) {
        return Some(Match::Exact);
    }
    let prefix = range
        .strip_suffix(b"*")
        .filter(|prefix| prefix.ends_with(b"/"))?;
    let start = media_type.get(..prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(Match::Type)
}

#[cfg(test)]
mod tests {
    const OFFERED: [&str; 3] = ["text/html", "application/json", "text/plain"];

    fn preferred(value: &str) -> Option<&'static str> {
        super::preferred([value.as_bytes()], &OFFERED).map(|index| OFFERED[index])
    }

    #[test]
    fn the_largest_weight_wins() {
        for (value, expected) in [
            ("*/*", Some("text/html")),
            ("text/*", Some("text/html")),
            ("application/json", Some("application/json")),
            ("Application/JSON;charset=utf-8", Some("application/json")),
            (
                "text/html;q=0.8, application/json;q=0.9",
                Some("application/json"),
            ),
            ("text/html;q=0, */*", Some("application/json")),
            ("text/*;q=0.5, application/json;q=0.4", Some("text/html")),
            (
                "text/plain;format=flowed;q=0.7, text/html;q=0.6",
                Some("text/plain"),
            ),
            // Browsers.
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
                Some("text/html"),
            ),
            // jQuery and axios.
            (
                "application/json, text/javascript, */*; q=0.01",
                Some("application/json"),
            ),
            (
                "application/json, text/plain, */*",
                Some("application/json"),
            ),
            ("image/png", None),
            ("*/*;q=0", None),
            ("", None),
        ] {
            assert_eq!(preferred(value), expected, "{value}");
        }
    }

    #[test]
    fn bad_syntax_is_ignored() {
        for value in [
            "text/html;q=2",
            "*",
            "text*",
            "texthtml",
            "text/html/x",
            "application/json;q=",
            ";q=1",
        ] {
            assert_eq!(preferred(value), None, "{value}");
        }
        assert_eq!(preferred("text/html;q=2,, text/plain"), Some("text/plain"));
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [&b"text/plain;q=0.5"[..], b"application/json;q=0.6"];
        assert_eq!(super::preferred(lines, &OFFERED), Some(1));
        assert_eq!(super::preferred([], &OFFERED), None);
    }
}
