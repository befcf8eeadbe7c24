//! Reads the pairs of the filter that replaces text in responses.

use crate::section::{Section, Text};

/// The maximum number of pairs in one table.
const PAIRS_MAX: usize = 64;

/// The maximum number of bytes to find.
const FOUND_BYTES_MAX: usize = 1024;

/// The maximum number of bytes to put in their place.
const PUT_BYTES_MAX: usize = 16 * 1024;

/// The pairs of `substitute`; `None` when the key is absent.
pub(crate) fn pairs(section: &Section<'_>, name: &str) -> Option<Vec<(String, String)>> {
    let pairs = section.pairs(name);
    if pairs.len() > PAIRS_MAX {
        let count = pairs.len();
        section.report(
            name,
            format_args!("{count} pairs are more than {PAIRS_MAX}"),
            None,
        );
    }
    for (found, put) in &pairs {
        if found.text.is_empty() {
            found.refuse_with(
                "there is no text to find",
                "write \"TEXT\" = \"REPLACEMENT\"",
            );
        }
        for (text, bytes_max) in [(found, FOUND_BYTES_MAX), (put, PUT_BYTES_MAX)] {
            let bytes = text.text.len();
            if bytes > bytes_max {
                text.refuse(format!("{bytes} bytes of text are more than {bytes_max}"));
            }
        }
    }
    let owned = |(found, put): (Text<'_>, Text<'_>)| (found.text.to_owned(), put.text.to_owned());
    section
        .has(name)
        .then(|| pairs.into_iter().map(owned).collect())
}
