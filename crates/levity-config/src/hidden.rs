//! Values from variables in texts for people, which show `${NAME}` in their place.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Match};
use serde_json::Value;

/// A value, in any case, and what is shown in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) value: String,
    pub(crate) shown: String,
    /// Whether it is also found where it begins, and where it ends, within a word.
    pub(crate) is_open: [bool; 2],
}

/// Values, and what is shown in their place. `Debug` shows none of them.
#[derive(Clone, Default)]
pub struct Hidden {
    entries: Vec<Entry>,
    /// Finds them all in one pass: there may be thousands of them, and of texts. `None` if there are none.
    finder: Option<AhoCorasick>,
}

impl PartialEq for Hidden {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Hidden {}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.entries.iter().map(|entry| &entry.shown);
        f.debug_list().entries(names).finish()
    }
}

impl Hidden {
    /// Of several entries for a value the first counts.
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.retain(|entry| !entry.value.is_empty());
        entries.sort_by(|one, other| one.value.cmp(&other.value));
        entries.dedup_by(|one, other| one.value == other.value);
        let finder = (!entries.is_empty()).then(|| {
            let values = entries.iter().map(|entry| &entry.value);
            // A table of states, the usual kind, takes seconds to make for a value of some KiB.
            let finder = AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::NoncontiguousNFA))
                .ascii_case_insensitive(true)
                .build(values);
            finder.expect("fewer states than 2^31: the values fit into memory")
        });
        Self { entries, finder }
    }

    /// `text` without the values, of which the first and longest counts where several are.
    #[must_use]
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let all = self.finder.iter();
        let all = all.flat_map(|finder| finder.find_overlapping_iter(text));
        let mut found: Vec<_> = all.filter(|found| self.counts(text, found)).collect();
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        found.sort_by_key(|found| (found.start(), Reverse(found.end())));
        let (mut hidden, mut from) = (String::new(), 0);
        for found in found {
            if found.start() >= from {
                let entry = &self.entries[found.pattern()];
                hidden.extend([&text[from..found.start()], &entry.shown]);
                from = found.end();
            }
        }
        Cow::Owned(hidden + &text[from..])
    }

    /// `json` without the values in its strings, except in entries with a name of `fixed`: those have words of the program.
    #[must_use]
    pub fn hide_in(&self, json: Value, fixed: &[&str]) -> Value {
        let hide = |json| self.hide_in(json, fixed);
        match json {
            Value::String(text) => Value::String(self.hide(&text).into_owned()),
            Value::Array(elements) => elements.into_iter().map(hide).collect(),
            Value::Object(entries) => {
                let entries = entries.into_iter();
                let entries = entries.map(|(key, value)| match fixed.contains(&&*key) {
                    true => (key, value),
                    false => (key, hide(value)),
                });
                entries.collect()
            }
            other => other,
        }
    }

    /// Whether the value that was found neither begins nor ends within a word, unless it may, and is no name of a variable.
    fn counts(&self, text: &str, found: &Match) -> bool {
        let [opens, closes] = self.entries[found.pattern()].is_open;
        let is_in_word = |at: usize| {
            let before = text[..at].chars().next_back();
            let after = text[at..].chars().next();
            before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric)
        };
        (opens || !is_in_word(found.start()))
            && (closes || !is_in_word(found.end()))
            && !text[..found.start()]
                .trim_end_matches(is_of_name)
                .ends_with("${")
    }
}

/// Whether the name of a variable may have it.
fn is_of_name(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(entries: &[(&str, &str, [bool; 2])]) -> Hidden {
        let entry = |(value, shown, is_open): &(&str, &str, [bool; 2])| Entry {
            value: (*value).to_owned(),
            shown: (*shown).to_owned(),
            is_open: *is_open,
        };
        Hidden::new(entries.iter().map(entry).collect())
    }

    #[test]
    fn values_are_hidden_in_any_text() {
        let hidden = hidden(&[
            ("Secret", "${A}", [false; 2]),
            ("/x/deep", "/x/${B}", [false; 2]),
            ("deep", "${B}", [false; 2]),
            ("deep", "${LATER}", [true; 2]),
            ("", "${EMPTY}", [false; 2]),
            ("begin", "${C}", [false, true]),
            ("end", "${D}", [true, false]),
        ]);
        for (text, expected) in [
            ("", ""),
            (
                "`Secret`, secret; Secrets aSecret \u{e4}Secret",
                "`${A}`, ${A}; Secrets aSecret \u{e4}Secret",
            ),
            ("in /x/deep/er and deep", "in /x/${B}/er and ${B}"),
            ("Secret", "${A}"),
            ("\u{e4} Secret\u{2009}\u{e4}", "\u{e4} ${A}\u{2009}\u{e4}"),
            // The longer one ends within a word.
            ("/x/deeper /x/deep", "/x/deeper /x/${B}"),
            (
                "beginning rebegin the end, bend ends",
                "${C}ning rebegin the ${D}, b${D} ends",
            ),
            (
                "${SECRET} ${MY_SECRET} $SECRET",
                "${SECRET} ${MY_SECRET} $${A}",
            ),
        ] {
            assert_eq!(hidden.hide(text), expected);
        }
        assert!(matches!(hidden.hide("plain"), Cow::Borrowed("plain")));
        assert_eq!(Hidden::default().hide("Secret"), "Secret");
        assert!(!format!("{hidden:?}").to_lowercase().contains("secret"));
    }

    #[test]
    fn fixed_entries_of_json_stay() {
        let hidden = hidden(&[("deep", "${B}", [false; 2])]);
        let json = json!({ "deep": ["a deep", 1, null, { "x": "deep", "state": "deep" }], "state": ["deep"] });
        let expected = json!({ "deep": ["a ${B}", 1, null, { "x": "${B}", "state": "deep" }], "state": ["deep"] });
        assert_eq!(hidden.hide_in(json, &["state"]), expected);
    }
}
