//! The strings of a configuration that have references: what became of them, and what messages show of them.

use std::collections::HashSet;
use std::ops::Range;

use crate::hidden::Hidden;
use crate::variables::Unset;

/// A word of so many bytes that is in a value and in a message about it is no chance.
const WORD_BYTES: usize = 3;

/// Nor is a part of a word that has so many.
const PIECE_BYTES: usize = 5;

/// The strings with references.
#[derive(Default)]
pub(crate) struct Strings {
    pub(crate) replaced: Vec<Replaced>,
    pub(crate) unset: Vec<UnsetReference>,
    /// What messages about anything else show in place of their values.
    hidden: Hidden,
}

/// A reference without a value.
pub(crate) struct UnsetReference {
    /// The string that it is in.
    pub(crate) string: Range<usize>,
    /// The reference itself.
    pub(crate) at: Range<usize>,
    pub(crate) unset: Unset,
}

impl Strings {
    pub(crate) fn new(mut replaced: Vec<Replaced>, unset: Vec<UnsetReference>) -> Self {
        replaced.sort_by_key(|one| one.span.start);
        let hidden = Hidden::of(replaced.iter().flat_map(Replaced::pairs));
        Self {
            replaced,
            unset,
            hidden,
        }
    }

    /// The string at `span` that has values.
    pub(crate) fn at(&self, span: &Range<usize>) -> Option<&Replaced> {
        let next = self
            .replaced
            .partition_point(|one| one.span.start <= span.start);
        let before = self.replaced.get(next.checked_sub(1)?)?;
        (span.end <= before.span.end).then_some(before)
    }

    /// Whether the string at `span` lacks a value.
    pub(crate) fn is_unset(&self, span: &Range<usize>) -> bool {
        self.unset.iter().any(|one| one.string == *span)
    }

    /// A message and its help, without the values. `span` is what they are about.
    pub(crate) fn hide(
        &self,
        span: Option<&Range<usize>>,
        message: &str,
        help: Option<String>,
    ) -> (String, Option<String>) {
        let own = span.and_then(|span| self.at(span));
        let (message, help) = match own.filter(|own| own.has_variables()) {
            // It is often made of the value.
            Some(own) => (own.message(message), None),
            None => (message.to_owned(), help),
        };
        let hide = |text: String| self.hidden.hide(&text).into_owned();
        (hide(message), help.map(hide))
    }

    /// For texts that are made later.
    pub(crate) fn hidden(&self) -> Hidden {
        self.hidden.clone()
    }
}

/// A string of the configuration in which references were replaced.
pub(crate) struct Replaced {
    pub(crate) span: Range<usize>,
    /// As it is written, without quotes.
    pub(crate) written: String,
    pub(crate) value: String,
    /// Names and values of its variables.
    pub(crate) variables: Vec<(String, String)>,
    /// Whether it is a reference and nothing else.
    pub(crate) is_whole: bool,
}

impl Replaced {
    /// Whether there is more in it than defaults, which the file shows.
    fn has_variables(&self) -> bool {
        !self.variables.is_empty()
    }

    /// Values with what is shown in their place: of the string, and of each variable.
    fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        let whole = self
            .has_variables()
            .then(|| (self.value.clone(), self.written.clone()));
        let variables = self.variables.iter();
        let variables = variables.map(|(name, value)| (value.clone(), format!("${{{name}}}")));
        let pairs = whole.into_iter().chain(variables);
        pairs.filter(|(value, _)| !value.is_empty())
    }

    /// A message about the string. What it says of the value may be a piece of it: then it says nothing.
    pub(crate) fn message(&self, message: &str) -> String {
        let hidden = Hidden::of_all(self.pairs().collect());
        let message = hidden.hide(message);
        let has_piece = |(_, value): &(String, String)| shares(value, &message);
        match self.variables.iter().any(has_piece) {
            true => format!("the value of `{}` cannot be used here", self.written),
            false => message.into_owned(),
        }
    }
}

/// Whether a word of `value`, or so much of it that it is no chance, is in `message`, without regard to case.
fn shares(value: &str, message: &str) -> bool {
    let (value, message) = (value.to_lowercase(), message.to_lowercase());
    let words = |text: &'_ str| -> HashSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric());
        words
            .filter(|word| word.len() >= WORD_BYTES)
            .map(str::to_owned)
            .collect()
    };
    let is_in_message = |piece: &[u8]| {
        let mut pieces = message.as_bytes().windows(PIECE_BYTES);
        pieces.any(|of| of == piece)
    };
    !words(&value).is_disjoint(&words(&message))
        || value.as_bytes().windows(PIECE_BYTES).any(is_in_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(written: &str, value: &str, variables: &[(&str, &str)]) -> Replaced {
        let variables = variables.iter();
        Replaced {
            span: 4..9,
            written: written.to_owned(),
            value: value.to_owned(),
            variables: variables
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            is_whole: false,
        }
    }

    #[test]
    fn a_message_about_a_value_shows_no_piece_of_it() {
        for (written, value, message, expected) in [
            (
                "${A}",
                "70000",
                "`70000` is not an address",
                "`${A}` is not an address",
            ),
            ("${A}", "7x", "`7x` is not 17x", "`${A}` is not 17x"),
            (
                "${A}",
                "http://secret-host/a",
                "`http://secret-host/a` is wrong",
                "`${A}` is wrong",
            ),
            (
                "${A}",
                "http://secret-host/a",
                "`SECRET-Host` is wrong",
                "the value of `${A}` cannot be used here",
            ),
        ] {
            let one = replaced(written, value, &[("A", value)]);
            assert_eq!(one.message(message), expected, "{message}");
        }
        let part = replaced("/srv/${A}", "/srv/deep", &[("A", "deep")]);
        assert_eq!(part.message("/srv/deep is missing"), "/srv/${A} is missing");
    }

    #[test]
    fn help_is_often_made_of_the_value() {
        let strings = Strings::new(vec![replaced("${A}", "1 mb", &[("A", "1 mb")])], Vec::new());
        let hide = |span: Range<usize>| {
            strings.hide(
                Some(&span),
                "`1 mb` is wrong",
                Some("did you mean 1 mb?".to_owned()),
            )
        };
        assert_eq!(hide(4..9), ("`${A}` is wrong".to_owned(), None));
        let elsewhere = (
            "`${A}` is wrong".to_owned(),
            Some("did you mean ${A}?".to_owned()),
        );
        for span in [0..1, 3..9, 4..10, 9..10] {
            assert_eq!(hide(span.clone()), elsewhere, "{span:?}");
        }
        let default = Strings::new(vec![replaced("${A:-1}", "1", &[])], Vec::new());
        let help = Some("write 2".to_owned());
        assert_eq!(
            default.hide(Some(&(4..9)), "1 is wrong", help.clone()),
            ("1 is wrong".to_owned(), help)
        );
    }
}
