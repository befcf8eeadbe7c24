//! Messages for the errors of the TOML parser.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

/// The position of the bracket that an error calls unclosed. The parser gives the end of the file as the
/// position, and has read everything in between as values.
pub(crate) fn opening(document: &DeTable<'_>, errors: &[Error]) -> Option<usize> {
    let unclosed = |error: &&Error| {
        matches!(
            error
                .message()
                .split_once(',')
                .map_or(error.message(), |(what, _)| what),
            "unclosed array" | "unclosed inline table"
        )
    };
    let end = errors.iter().find(unclosed)?.span()?.start;
    document
        .values()
        .filter_map(|value| outermost(value, end))
        .min()
}

fn outermost(value: &Spanned<DeValue<'_>>, end: usize) -> Option<usize> {
    let span = value.span();
    match value.get_ref() {
        DeValue::Array(_) | DeValue::Table(_) if span.end >= end => Some(span.start),
        DeValue::Array(elements) => elements
            .iter()
            .filter_map(|element| outermost(element, end))
            .min(),
        DeValue::Table(entries) => entries
            .values()
            .filter_map(|value| outermost(value, end))
            .min(),
        _ => None,
    }
}

/// A message, and a hint where the parser's message does not say what to write.
pub(crate) fn explain(error: &Error, marked: &str) -> (String, Option<String>) {
    if error.message().starts_with("string values must be quoted") {
        return if marked.is_empty() {
            ("the value is missing".to_owned(), None)
        } else {
            (
                "a string must be quoted".to_owned(),
                Some(format!("write \"{marked}\"")),
            )
        };
    }
    if (error.message(), marked) == ("duplicate key", "tls") {
        let help = "in a table, `issuer = \"acme\"` stands for `tls = \"acme\"`, and `issuer = \"internal\"` for `tls = \"internal\"`";
        return ("`tls` is given twice".to_owned(), Some(help.to_owned()));
    }
    (error.message().to_owned(), None)
}
