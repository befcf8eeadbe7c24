//! The files of a configuration as one document: its strings have the values of their references, its lists are those of all files.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::reader::Reader;
use crate::schema::{Key, Schema, Table};
use crate::section::Section;
use crate::source::Source;
use crate::strings::{FaultyReference, Replaced, Strings};
use crate::variables::{Fault, Faulty, OPENING, Variables, substitute};

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
    let root = Place {
        table: reader.schema.top(""),
        key: None,
    };
    let (mut replaced, mut faulty) = (Vec::new(), Vec::new());
    let substituted = parsed.into_iter().map(|(start, table)| {
        let mut part = Part {
            start,
            source: &reader.source,
            schema: reader.schema,
            variables,
            replaced: &mut replaced,
            faulty: &mut faulty,
        };
        (start, part.table(table, root))
    });
    let substituted: Vec<_> = substituted.collect();
    let option = variables.option();
    faulty
        .iter()
        .for_each(|one| report_faulty(reader, one, option));
    reader.strings = Strings::new(replaced, faulty, reader.schema);
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

/// `option` is that of the command for a file of variables.
fn report_faulty(reader: &Reader<'_>, one: &FaultyReference, option: Option<&str>) {
    let name = &one.name;
    let escape = format!("`$${{{name}` stands for `${{{name}`");
    let (message, help) = match one.fault {
        Fault::Unset => {
            let or_option = option.map(|option| format!(" or, for this command, by `{option}`"));
            let or_option = or_option.unwrap_or_default();
            let help = format!(
                "set it in the environment of the server{or_option}, or write `${{{name}:-default}}`; {escape}"
            );
            (format!("`${{{name}}}` is not set"), Some(help))
        }
        Fault::NotText => (format!("the value of `${{{name}}}` is not UTF-8"), None),
        Fault::Unfinished => {
            let help = format!("write `${{{name}}}` or `${{{name}:-default}}`; {escape}");
            (
                format!("`${{{name}` is not a complete reference"),
                Some(help),
            )
        }
        Fault::Nested => {
            let help = format!("a default is text; {escape}");
            let message = format!("the default of `${{{name}` has `${{`");
            (message, Some(help))
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

/// What a value is one of.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The table that it is, if it is one that the schema has.
    table: Option<&'static Table>,
    /// The key of it, or of the free table around it.
    key: Option<&'static Key>,
}

impl Place {
    fn beneath(self, name: &str, schema: Schema) -> Self {
        let Some(table) = self.table else {
            return self;
        };
        Self {
            table: schema.find_child(table, name),
            key: table.find_key(name).or_else(|| table.key_also(name)),
        }
    }
}

/// One file on its way to the document.
struct Part<'t, 'p> {
    /// Its first byte among those of all.
    start: usize,
    source: &'p Source<'t>,
    schema: Schema,
    variables: &'p Variables,
    replaced: &'p mut Vec<Replaced>,
    faulty: &'p mut Vec<FaultyReference>,
}

impl<'t> Part<'t, '_> {
    fn table(&mut self, table: DeTable<'t>, place: Place) -> DeTable<'t> {
        let entries = table.into_iter();
        let entries = entries.map(|(key, value)| {
            let span = self.span(&key.span());
            let place = place.beneath(key.get_ref(), self.schema);
            (
                Spanned::new(span, key.into_inner()),
                self.value(value, place),
            )
        });
        entries.collect()
    }

    fn value(&mut self, value: Spanned<DeValue<'t>>, place: Place) -> Spanned<DeValue<'t>> {
        let span = self.span(&value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => DeValue::String(self.string(&span, text, place.key)),
            DeValue::Array(elements) => {
                let elements = elements.into_iter().map(|one| self.value(one, place));
                DeValue::Array(elements.collect())
            }
            DeValue::Table(table) => DeValue::Table(self.table(table, place)),
            other => other,
        };
        Spanned::new(span, value)
    }

    fn span(&self, span: &Range<usize>) -> Range<usize> {
        self.start + span.start..self.start + span.end
    }

    fn string(
        &mut self,
        span: &Range<usize>,
        text: DeString<'t>,
        key: Option<&'static Key>,
    ) -> DeString<'t> {
        match substitute(&text, self.variables) {
            Ok(None) => text,
            Ok(Some(substituted)) => {
                let value = substituted.value.clone();
                self.replaced.push(Replaced {
                    span: span.clone(),
                    key,
                    written: text.into_owned(),
                    value: substituted.value,
                    variables: substituted.variables,
                    is_whole: substituted.is_whole,
                });
                DeString::Owned(value)
            }
            Err(faulty) => {
                let faulty = faulty.into_iter().map(|faulty| FaultyReference {
                    string: span.clone(),
                    at: self.position_of(&faulty, &text, span),
                    name: faulty.name,
                    fault: faulty.fault,
                });
                self.faulty.extend(faulty.collect::<Vec<_>>());
                text
            }
        }
    }

    /// Where a reference in `text`, which is written at `span`, is: the same byte, or where the text is written with escapes, the `${` of
    /// the same number. All of the string if one of these is written with an escape.
    fn position_of(&self, faulty: &Faulty, text: &str, span: &Range<usize>) -> Range<usize> {
        let written = self.source.slice(span);
        let of_number = || {
            let are_all_written = written.matches(OPENING).count() == text.matches(OPENING).count();
            let mut openings = written.match_indices(OPENING).filter(|_| are_all_written);
            openings.nth(faulty.ordinal).map(|(at, _)| at)
        };
        let same = written.find(text).map(|start| start + faulty.at);
        let Some(at) = same.or_else(of_number) else {
            return span.clone();
        };
        // With its closing bracket.
        let end =
            at + OPENING.len() + faulty.name.len() + usize::from(faulty.fault == Fault::Unset);
        span.start + at..span.start + end
    }
}
