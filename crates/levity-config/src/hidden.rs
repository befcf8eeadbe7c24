//! Values from variables in texts for people, which show `${NAME}` in their place.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

/// Shorter values, and numbers, would be found in texts that have nothing to do with them: `80`, `on`.
const BYTES_MIN: usize = 4;

/// Values, and what is shown in their place. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hidden(Vec<(String, String)>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(_, shown)| shown);
        f.debug_list().entries(names).finish()
    }
}

impl Hidden {
    /// Those of `pairs` that are found in no text by chance, also in lower case, as names of hosts are kept.
    pub(crate) fn of(pairs: impl Iterator<Item = (String, String)>) -> Self {
        let is_number = |value: &str| value.bytes().all(|byte| byte.is_ascii_digit());
        let pairs = pairs.filter(|(value, _)| value.len() >= BYTES_MIN && !is_number(value));
        let forms = pairs.flat_map(|(value, shown)| {
            let lower = value.to_ascii_lowercase();
            let lower = (lower != value).then(|| (lower, shown.clone()));
            std::iter::once((value, shown)).chain(lower)
        });
        Self::of_all(forms.collect())
    }

    /// All of `pairs`.
    pub(crate) fn of_all(mut pairs: Vec<(String, String)>) -> Self {
        // A longer value may contain a shorter one.
        pairs.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        pairs.dedup_by(|(one, _), (other, _)| one == other);
        Self(pairs)
    }

    /// `text` without the values. One within a longer word is not touched.
    #[must_use]
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut hidden = String::new();
        let (mut from, mut at) = (0, 0);
        while let Some(next) = text[at..].chars().next() {
            if let Some((value, shown)) = self.value_at(text, at) {
                hidden.extend([&text[from..at], shown]);
                at += value.len();
                from = at;
            } else {
                at += next.len_utf8();
            }
        }
        match from {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(hidden + &text[from..]),
        }
    }

    /// `json` without the values in its strings.
    #[must_use]
    pub fn hide_in(&self, json: Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.hide(&text).into_owned()),
            Value::Array(elements) => elements.into_iter().map(|one| self.hide_in(one)).collect(),
            Value::Object(entries) => {
                let entries = entries.into_iter();
                entries
                    .map(|(key, value)| (key, self.hide_in(value)))
                    .collect()
            }
            other => other,
        }
    }

    /// The longest value at a byte of `text`, and what is shown in its place.
    fn value_at(&self, text: &str, at: usize) -> Option<(&str, &str)> {
        let mut pairs = self.0.iter();
        let found =
            pairs.find(|(value, _)| text[at..].starts_with(value) && stands_alone(text, at, value));
        found.map(|(value, shown)| (value.as_str(), shown.as_str()))
    }
}

/// Whether `value` at a byte of `text` neither begins nor ends within a word.
fn stands_alone(text: &str, at: usize, value: &str) -> bool {
    let joins = |one: Option<char>, other: Option<char>| {
        one.is_some_and(char::is_alphanumeric) && other.is_some_and(char::is_alphanumeric)
    };
    let (before, after) = (&text[..at], &text[at + value.len()..]);
    !joins(before.chars().next_back(), value.chars().next())
        && !joins(value.chars().next_back(), after.chars().next())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_hidden_in_any_text() {
        let pairs = [
            ("Secret", "${A}"),
            ("/x/deep", "/x/${B}"),
            ("deep", "${B}"),
            ("8080", "${PORT}"),
            ("on", "${ON}"),
        ];
        let owned = |(value, shown): (&str, &str)| (value.to_owned(), shown.to_owned());
        let hidden = Hidden::of(pairs.into_iter().map(owned));
        for (text, expected) in [
            ("", ""),
            (
                "`Secret`, secret; Secrets aSecret \u{e4}Secret",
                "`${A}`, ${A}; Secrets aSecret \u{e4}Secret",
            ),
            ("in /x/deep/er and deep", "in /x/${B}/er and ${B}"),
            ("8080 on", "8080 on"),
            ("Secret", "${A}"),
            ("\u{e4} Secret\u{2009}\u{e4}", "\u{e4} ${A}\u{2009}\u{e4}"),
        ] {
            assert_eq!(hidden.hide(text), expected);
        }
        assert!(matches!(hidden.hide("plain"), Cow::Borrowed("plain")));
        assert!(!format!("{hidden:?}").to_lowercase().contains("secret"));
        let json = json!({ "deep": ["a Secret", 1, null, { "x": "deep" }] });
        let expected = json!({ "deep": ["a ${A}", 1, null, { "x": "${B}" }] });
        assert_eq!(hidden.hide_in(json), expected);
    }
}
