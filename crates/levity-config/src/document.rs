//! The files of a configuration as one document: its strings have the values of their references, its lists are those of all files.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::reader::Reader;
use crate::schema::Table;
use crate::section::Section;
use crate::source::Source;
use crate::strings::{Replaced, Strings, UnsetReference};
use crate::variables::{Unset, Variables, substitute};

/// The key of the main file that names the others.
pub(crate) const INCLUDE: &str = "include";

/// Parses the files of `reader`. What is wrong with them, and with references in them, is reported.
pub(crate) fn document<'t>(reader: &mut Reader<'t>, variables: &Variables) -> DeTable<'t> {
    let parts: Vec<_> = reader.source.parts().collect();
    let parsed = parts.into_iter().map(|(start, text)| {
        let (document, errors) = DeTable::parse_recoverable(text);
        reader.syntax(start, document.get_ref(), errors);
        (start, document.into_inner())
    });
    let parsed: Vec<_> = parsed.collect();
    let (mut replaced, mut unset) = (Vec::new(), Vec::new());
    let substituted = parsed.into_iter().map(|(start, table)| {
        let mut part = Part {
            start,
            source: &reader.source,
            variables,
            replaced: &mut replaced,
            unset: &mut unset,
        };
        (start, part.table(table))
    });
    let substituted: Vec<_> = substituted.collect();
    unset.iter().for_each(|one| report_unset(reader, one));
    reader.strings = Strings::new(replaced, unset);
    joined(substituted, reader)
}

/// The tables of all files, each with its first byte, as one.
fn joined<'t>(parts: Vec<(usize, DeTable<'t>)>, reader: &Reader<'t>) -> DeTable<'t> {
    let mut whole = DeTable::new();
    for (number, (start, table)) in parts.into_iter().enumerate() {
        let end = reader.source.end(start);
        // An editor may have emptied it, and be about to write: its sites are gone until then.
        if number > 0 && table.is_empty() && !reader.is_broken(&(start..end)) {
            reader.note(&(start..start), "the file has no table".to_owned());
        }
        for (key, value) in table {
            match number > 0 && key.get_ref() == INCLUDE {
                true => report_include(reader, &key.span()),
                false => add(&mut whole, (key, value), reader),
            }
        }
    }
    whole
}

fn report_include(reader: &Reader<'_>, span: &Range<usize>) {
    let help = "name its files in `include` of the main file".to_owned();
    reader.report(span, "an included file includes no others", Some(help));
}

fn report_unset(reader: &Reader<'_>, one: &UnsetReference) {
    let Unset { name, is_no_text } = &one.unset;
    let (message, help) = match is_no_text {
        true => (format!("the value of `${{{name}}}` is not UTF-8"), None),
        false => {
            let help = format!(
                "set it in the environment of the server, or write `${{{name}:-default}}`; `$${{` stands for `${{`"
            );
            (format!("`${{{name}}}` is not set"), Some(help))
        }
    };
    reader.report(&one.at, message, help);
}

type Entry<'t> = (Spanned<DeString<'t>>, Spanned<DeValue<'t>>);

/// Adds an entry of a file behind those before. What is damaged was reported, and gives way to what is not.
fn add<'t>(whole: &mut DeTable<'t>, entry: Entry<'t>, reader: &Reader<'_>) {
    let is_damaged =
        |(key, value): &Entry<'_>| reader.is_broken(&key.span()) || reader.is_broken(&value.span());
    let (key, value) = match whole.remove_entry(entry.0.get_ref().as_ref()) {
        Some(first) if is_damaged(&entry) => first,
        Some(first) if !is_damaged(&first) => both(first, entry, reader),
        _ => entry,
    };
    whole.insert(key, value);
}

/// Two entries of one name: tables of a list behind each other, of anything else the first. What cannot stay is reported.
fn both<'t>(mut first: Entry<'t>, second: Entry<'t>, reader: &Reader<'_>) -> Entry<'t> {
    let name = first.0.get_ref().clone();
    let table = reader.schema.top(&name);
    if !table.is_some_and(|table| table.repeated) {
        let heading = table.map_or_else(|| name.to_string(), Table::heading);
        let help = format!("the first is on {}", reader.line(&first.0.span()));
        let message = format!("`{heading}` stands in two files");
        reader.report(&second.0.span(), message, Some(help));
        return first;
    }
    let is_array = |entry: &Entry<'_>| matches!(entry.1.get_ref(), DeValue::Array(_));
    let wrong = match (is_array(&first), is_array(&second)) {
        (_, false) => &second.1,
        (false, true) => &first.1,
        (true, true) => {
            append(&mut first.1, second.1);
            return first;
        }
    };
    Section::empty(reader, "").refuse_as_array(&name, wrong);
    if is_array(&second) { second } else { first }
}

fn append<'t>(first: &mut Spanned<DeValue<'t>>, second: Spanned<DeValue<'t>>) {
    if let (DeValue::Array(all), DeValue::Array(more)) = (first.get_mut(), second.into_inner()) {
        more.into_iter().for_each(|one| all.push(one));
    }
}

/// One file on its way to the document.
struct Part<'t, 'p> {
    /// Its first byte among those of all.
    start: usize,
    source: &'p Source<'t>,
    variables: &'p Variables,
    replaced: &'p mut Vec<Replaced>,
    unset: &'p mut Vec<UnsetReference>,
}

impl<'t> Part<'t, '_> {
    fn table(&mut self, table: DeTable<'t>) -> DeTable<'t> {
        let entries = table.into_iter();
        let entries = entries.map(|(key, value)| {
            let span = self.span(&key.span());
            (Spanned::new(span, key.into_inner()), self.value(value))
        });
        entries.collect()
    }

    fn value(&mut self, value: Spanned<DeValue<'t>>) -> Spanned<DeValue<'t>> {
        let span = self.span(&value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => DeValue::String(self.string(&span, text)),
            DeValue::Array(elements) => {
                let elements = elements.into_iter().map(|one| self.value(one));
                DeValue::Array(elements.collect())
            }
            DeValue::Table(table) => DeValue::Table(self.table(table)),
            other => other,
        };
        Spanned::new(span, value)
    }

    fn span(&self, span: &Range<usize>) -> Range<usize> {
        self.start + span.start..self.start + span.end
    }

    fn string(&mut self, span: &Range<usize>, text: DeString<'t>) -> DeString<'t> {
        match substitute(&text, self.variables) {
            Ok(None) => text,
            Ok(Some(substituted)) => {
                let value = substituted.value.clone();
                self.replaced.push(Replaced {
                    span: span.clone(),
                    written: text.into_owned(),
                    value: substituted.value,
                    variables: substituted.variables,
                    is_whole: substituted.is_whole,
                });
                DeString::Owned(value)
            }
            Err(unset) => {
                let unset = unset.into_iter().map(|unset| UnsetReference {
                    string: span.clone(),
                    at: self.position_of(&unset.name, span),
                    unset,
                });
                self.unset.extend(unset.collect::<Vec<_>>());
                text
            }
        }
    }

    /// Where a reference is written in the string at `span`; all of the string for one that is written with an escape.
    fn position_of(&self, name: &str, span: &Range<usize>) -> Range<usize> {
        let opening = format!("${{{name}");
        match self.source.slice(span).find(&opening) {
            Some(at) => span.start + at..span.start + at + opening.len() + 1,
            None => span.clone(),
        }
    }
}
