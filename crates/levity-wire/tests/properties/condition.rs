//! Conditional requests and dates.

use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::date;

use super::is_etag;

/// Any conditions are safe to evaluate.
pub fn condition(bytes: &[u8]) {
    let request = Conditional::read(bytes);
    let verdict = request.verdict();
    let asked = |name: &str| request.values(name).next().is_some();
    if verdict == Verdict::NotModified {
        assert!(request.get_or_head);
        assert!(asked("if-none-match") || asked("if-modified-since"));
    }
    if verdict == Verdict::Failed && request.get_or_head {
        assert!(asked("if-match") || asked("if-unmodified-since"));
    }
    if let Some(etag) = request.validators.etag.filter(|etag| is_etag(etag)) {
        let own = |name| move |asked: &str| (asked == name).then_some(etag);
        let only = |name| condition::evaluate(true, own(name), &request.validators);
        assert_eq!(only("if-none-match"), Verdict::NotModified);
        assert_eq!(
            only("if-match") == Verdict::Proceed,
            etag.starts_with(b"\"")
        );
    }
    for value in request.values("if-range") {
        let modified = request.validators.modified.map(date::format);
        let named = request.validators.etag == Some(value)
            || modified.is_some_and(|modified| modified == value);
        assert!(named || !condition::if_range(value, &request.validators));
        assert!(!value.starts_with(b"W/") || !condition::if_range(value, &request.validators));
    }
    dates_are_stable(bytes);
}

fn dates_are_stable(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Some(seconds) = date::parse(line) {
            assert_eq!(date::parse(&date::format(seconds)), Some(seconds));
        }
    }
}

/// A request parsed from lines `name: value`, where `method`, `etag` and `modified` are not
/// headers.
pub struct Conditional<'a> {
    lines: Vec<(String, &'a [u8])>,
    get_or_head: bool,
    validators: Validators<'a>,
}

impl<'a> Conditional<'a> {
    pub fn read(bytes: &'a [u8]) -> Self {
        let lines: Vec<_> = bytes
            .split(|&byte| byte == b'\n')
            .filter_map(name_and_value)
            .collect();
        let first = |name| lines.iter().find(|line| line.0 == name).map(|line| line.1);
        let get_or_head = first("method") == Some(b"GET");
        let validators = Validators {
            etag: first("etag"),
            modified: first("modified").and_then(date::parse),
        };
        Self {
            lines,
            get_or_head,
            validators,
        }
    }

    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines
            .iter()
            .filter(move |line| line.0 == name)
            .map(|line| line.1)
    }

    pub fn verdict(&self) -> Verdict {
        condition::evaluate(self.get_or_head, |name| self.values(name), &self.validators)
    }
}

fn name_and_value(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = String::from_utf8_lossy(&line[..colon]).to_lowercase();
    Some((name, line[colon + 1..].trim_ascii()))
}
