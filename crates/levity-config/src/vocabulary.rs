//! The words that a schema has, and its documentation: one of them in a message is no secret, wherever it came from.

use std::collections::HashSet;

use crate::schema::{Key, Kind, Schema};

/// What booleans are written as, here and in other programs.
const BOOLEANS: [&str; 6] = ["true", "false", "on", "off", "yes", "no"];

/// Words as they are written there.
#[derive(Default)]
pub(crate) struct Vocabulary {
    /// Names of tables and keys, and the values out of lists.
    names: HashSet<&'static str>,
    /// All words of the documentation.
    words: HashSet<&'static str>,
}

impl Vocabulary {
    pub(crate) fn of(schema: Schema) -> Self {
        let Schema(tables) = schema;
        let keys = || tables.iter().flat_map(|table| table.keys);
        let docs = tables.iter().map(|table| table.doc);
        let docs = docs.chain(keys().flat_map(|key| [key.doc, key.kind.expected()]));
        let names = tables.iter().flat_map(|table| table.path.split('.'));
        let names = names.chain(BOOLEANS).chain(keys().flat_map(of_key));
        Self {
            names: names.chain(docs.clone().flat_map(quoted)).collect(),
            words: docs.flat_map(words).collect(),
        }
    }

    /// Whether `text`, in whatever case, is the name of a table or key, or a value out of a list.
    pub(crate) fn has_name(&self, text: &str) -> bool {
        self.names.contains(&*text.to_ascii_lowercase())
    }

    /// Whether `word`, in whatever case, may be in a message that knows no value.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.contains(&*word.to_ascii_lowercase()) || self.has_name(word)
    }
}

/// The words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty())
}

/// Its names, and its values.
fn of_key(key: &'static Key) -> impl Iterator<Item = &'static str> {
    let values = match key.kind {
        Kind::Word(values) => values,
        _ => &[],
    };
    let also = key.also.iter().map(|(also, _)| *also);
    [key.name]
        .into_iter()
        .chain(also)
        .chain(values.iter().copied())
}

/// The values that documentation names so: `"file"`.
fn quoted(doc: &str) -> impl Iterator<Item = &str> {
    let quoted = doc.split('`').skip(1).step_by(2);
    quoted.filter_map(|text| text.strip_prefix('"')?.strip_suffix('"'))
}
