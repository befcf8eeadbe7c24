//! Tables that others refer to by their `name`, such as `[[upstream]]`.

use std::cell::Cell;
use std::ops::Range;

use crate::reader::Reader;
use crate::section::{Section, Text};
use crate::suggest::{listed, nearest};

/// The tables of one kind, in the order of the file.
pub(crate) struct Named {
    /// What such a table is called in messages, with its article.
    kind: &'static str,
    tables: Vec<Table>,
}

struct Table {
    /// Empty when it is wrong.
    name: String,
    /// The position of the table.
    span: Range<usize>,
    /// The position of the name.
    name_span: Range<usize>,
    /// Whether anything refers to it.
    is_used: Cell<bool>,
}

/// What a name may be.
pub(crate) struct NameForm {
    /// Characters besides letters and digits.
    pub(crate) others: &'static [u8],
    /// The maximum length in bytes.
    pub(crate) bytes_max: usize,
    /// The same for readers.
    pub(crate) help: &'static str,
}

impl Named {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            tables: Vec::new(),
        }
    }

    /// Reads the name of the next table, which is unique; empty when it is wrong.
    pub(crate) fn add(&mut self, section: &Section<'_>, form: &NameForm) -> String {
        let name = self.name(section, form).unwrap_or_default();
        self.tables.push(Table {
            name: name.clone(),
            span: section.span.clone(),
            name_span: section.span_of("name"),
            is_used: Cell::new(false),
        });
        name
    }

    fn name(&self, section: &Section<'_>, form: &NameForm) -> Option<String> {
        section.require("name");
        let given = section.text("name")?;
        let text = given.text;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || form.others.contains(&byte);
        if text.is_empty() || text.len() > form.bytes_max || !text.bytes().all(fits) {
            let message = format!("`{text}` is not the name of {}", self.kind);
            given.refuse_with(message, form.help);
            return None;
        }
        if let Some(first) = self.tables.iter().find(|other| other.name == text) {
            let help = format!("the first is on {}", section.reader.line(&first.name_span));
            given.refuse_with(format!("{} `{text}` is given twice", self.word()), help);
        }
        Some(text.to_owned())
    }

    /// The number of the table called `name`. Reports an unknown name, with `help` if there is some.
    pub(crate) fn find(
        &self,
        reader: &Reader<'_>,
        name: &Text<'_>,
        help: Option<String>,
    ) -> Option<usize> {
        let found = self.tables.iter().position(|known| known.name == name.text);
        // A table with a wrong name may be the one that is meant.
        if found.is_none() && self.names().all(|name| !name.is_empty()) {
            let message = format!("no {} has the name `{}`", self.word(), name.text);
            let help = help.unwrap_or_else(|| self.help(name.text));
            reader.report_absent(Some(&name.span), message, Some(help));
        }
        if let Some(number) = found {
            self.tables[number].is_used.set(true);
        }
        found
    }

    /// Notes tables that were never found by [`Self::find`].
    pub(crate) fn note_unused(&self, reader: &Reader<'_>) {
        for known in self.tables.iter().filter(|known| !known.is_used.get()) {
            let note = format!("no site or route uses the {} `{}`", self.word(), known.name);
            reader.note(&known.span, note);
        }
    }

    /// The last word of the kind.
    fn word(&self) -> &'static str {
        self.kind.rsplit(' ').next().unwrap_or(self.kind)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|known| known.name.as_str())
    }

    fn help(&self, name: &str) -> String {
        match nearest(name, self.names()) {
            Some(nearest) => format!("did you mean \"{nearest}\"?"),
            None if self.tables.is_empty() => {
                format!("add `[[{}]]` with that `name`", self.word())
            }
            None => format!("known: {}", listed(self.names())),
        }
    }
}
