//! Typed access to the tables of a configuration. Every problem is collected in the [`Reader`].

mod files;
mod secret;

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::address::{Address, AddressError};
use crate::reader::Reader;
use crate::schema::{Key, Kind, Schema, Table};
use crate::suggest::{listed, nearest};
use crate::{foreign, unknown};

pub use self::secret::Secret;

/// A string of a file.
pub(crate) struct Text<'r> {
    pub(crate) text: &'r str,
    pub(crate) span: Range<usize>,
    reader: &'r Reader<'r>,
}

impl<'r> Text<'r> {
    /// Reports that it is wrong.
    pub(crate) fn refuse(&self, message: impl Into<String>) {
        self.reader.report(&self.span, message, None);
    }

    /// Reports that it is wrong, and what to write instead.
    pub(crate) fn refuse_with(&self, message: impl Into<String>, help: impl Into<String>) {
        self.reader.report(&self.span, message, Some(help.into()));
    }

    /// The variant that it stands for, as a value of the key `name`. Reports a word that is none of `words`.
    pub(crate) fn word<W: FromStr>(&self, name: &str, words: &[&str]) -> Option<W> {
        self.one_of(name, words)?.parse().ok()
    }

    /// The address that it is; a socket is relative to the folder of the file in which it stands.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn address(&self) -> Result<Address, AddressError> {
        Address::parse_beneath(self.text, self.reader.folder(&self.span))
    }

    fn one_of(&self, name: &str, words: &[&str]) -> Option<&'r str> {
        let text = self.text;
        if words.contains(&text) {
            return Some(text);
        }
        let help = match foreign::word(name, text) {
            Some(help) => help.to_owned(),
            None => match nearest(text, words.iter().copied()) {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => one_of(words),
            },
        };
        self.refuse_with(format!("`{text}` is not a value of `{name}`"), help);
        None
    }
}

/// An element of an array.
pub(crate) enum Element<'r> {
    Text(Text<'r>),
    /// A whole number, as it is written.
    Number(Text<'r>),
}

/// One table of a file.
pub(crate) struct Section<'r> {
    pub(crate) reader: &'r Reader<'r>,
    pub(crate) span: Range<usize>,
    table: &'static Table,
    entries: Option<&'r DeTable<'r>>,
}

impl<'r> Section<'r> {
    /// The configuration itself.
    pub(crate) fn root(reader: &'r Reader<'r>, document: &'r DeTable<'r>) -> Self {
        Section::open(reader, reader.schema.table(""), document, 0..0)
    }

    /// A table that the configuration does not have: every key has its default.
    pub(crate) fn empty(reader: &'r Reader<'r>, path: &str) -> Self {
        Section {
            reader,
            span: 0..0,
            table: reader.schema.table(path),
            entries: None,
        }
    }

    fn open(
        reader: &'r Reader<'r>,
        table: &'static Table,
        entries: &'r DeTable<'r>,
        span: Range<usize>,
    ) -> Self {
        let section = Section {
            reader,
            span,
            table,
            entries: Some(entries),
        };
        for (name, value) in entries {
            if let Some(key) = table.key_also(name.as_ref()) {
                section.renamed(key, name.as_ref(), &name.span());
            } else if !section.known().any(|known| known == name.as_ref())
                && !section.is_damaged(&name.span(), value)
            {
                section.unknown(name.as_ref(), &name.span());
            }
        }
        section
    }

    fn renamed(&self, key: &Key, name: &str, span: &Range<usize>) {
        if self
            .entries
            .is_some_and(|entries| entries.contains_key(key.name))
        {
            let message = format!("`{name}` is `{}`, which is given too", key.name);
            self.reader.report(span, message, None);
        } else {
            let remark = key.also.iter().find(|(also, _)| *also == name);
            let remark = remark.map_or("", |(_, remark)| *remark);
            let note = format!("`{name}` counts, but is called `{}` here{remark}", key.name);
            self.reader.note(span, note);
        }
    }

    fn unknown(&self, name: &str, span: &Range<usize>) {
        let help = unknown::help(self.reader.schema, self.table, name);
        let message = format!("unknown key `{name}`");
        self.reader.report(span, message, Some(help));
    }

    /// Whether the table has an unknown key that is a misspelling of `name`, or another server's name for it.
    /// Such a key has been reported already.
    pub(crate) fn has_misspelt(&self, name: &str) -> bool {
        let unknown = |given: &str| !self.known().any(|known| known == given);
        let foreign = |given: &str| {
            foreign::key(self.table.path, given).is_some_and(|(ours, _)| ours == name)
        };
        self.entries
            .into_iter()
            .flat_map(|entries| entries.keys())
            .any(|key| {
                let key = key.as_ref();
                let nearest = || nearest(key, self.known());
                unknown(key) && (foreign(key) || nearest() == Some(name))
            })
    }

    /// The names of the keys and tables that may stand in this table.
    fn known(&self) -> impl Iterator<Item = &'static str> {
        self.reader.schema.names(self.table)
    }

    /// Whether the name or the value is on a line with a syntax error, where the parser has guessed, or lacks the value of a
    /// variable. Both have been reported.
    fn is_damaged(&self, name: &Range<usize>, value: &Spanned<DeValue<'_>>) -> bool {
        self.reader.is_broken(name) || self.reader.is_broken(&value.span()) || self.is_unset(value)
    }

    /// Whether the value, or an element of it, is a string that lacks the value of a variable.
    fn is_unset(&self, value: &Spanned<DeValue<'_>>) -> bool {
        match value.get_ref() {
            DeValue::String(_) => self.reader.strings.is_unset(&value.span()),
            DeValue::Array(elements) => elements.iter().any(|one| {
                let is_text = matches!(one.get_ref(), DeValue::String(_));
                is_text && self.reader.strings.is_unset(&one.span())
            }),
            _ => false,
        }
    }

    /// Whether a value is a string that is a reference and nothing else: it may stand for a number or a boolean.
    fn is_reference(&self, value: &Spanned<DeValue<'_>>) -> bool {
        let string = self.reader.strings.at(&value.span());
        string.is_some_and(|string| string.is_whole)
    }

    /// The entry of a key, which may be under another server's name.
    fn entry(&self, name: &str) -> Option<(&'r Spanned<DeString<'r>>, &'r Spanned<DeValue<'r>>)> {
        let entries = self.entries?;
        let also = || {
            let mut names = self.also(name).iter();
            names.find_map(|(also, _)| entries.get_key_value(*also))
        };
        entries.get_key_value(name).or_else(also)
    }

    fn value(&self, name: &str) -> Option<&'r Spanned<DeValue<'r>>> {
        let (key, value) = self.entry(name)?;
        (!self.drops(name) && !self.is_damaged(&key.span(), value)).then_some(value)
    }

    /// Whether the file has the key, even with a wrong value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some() && !self.drops(name)
    }

    /// Whether a site or route has `false` in place of `name`, so that it does not inherit it. To all else the key is absent.
    pub(crate) fn drops(&self, name: &str) -> bool {
        let value = self.entry(name).map(|(_, value)| value.get_ref());
        matches!(value, Some(DeValue::Boolean(false)))
            && self.reader.schema.may_drop(self.table, name)
    }

    /// The position of what drops `name`.
    pub(crate) fn dropped(&self, name: &str) -> Option<Range<usize>> {
        let (key, _) = self.entry(name).filter(|_| self.drops(name))?;
        Some(key.span())
    }

    /// Other servers' names for the key `name`; empty for a table.
    fn also(&self, name: &str) -> &'static [(&'static str, &'static str)] {
        let key = self.table.keys.iter().find(|key| key.name == name);
        key.map_or(&[], |key| key.also)
    }

    /// Reports that the key is absent, unless it is misspelt.
    pub(crate) fn require(&self, name: &str) {
        if !self.has(name) && !self.has_misspelt(name) {
            let message = format!("`{name}` is missing");
            self.reader.report_absent(Some(&self.span), message, None);
        }
    }

    /// The position of the value of `name`, or of the table when it is absent.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.value(name).map_or(self.span.clone(), Spanned::span)
    }

    pub(crate) fn report(&self, name: &str, message: impl Display, help: Option<String>) {
        self.reader
            .report(&self.span_of(name), format!("`{name}`: {message}"), help);
    }

    /// Notes something about the value of `name` that is not an error.
    pub(crate) fn note(&self, name: &str, message: impl Into<String>) {
        self.reader.note(&self.span_of(name), message.into());
    }

    fn report_kind(
        &self,
        value: &Spanned<DeValue<'_>>,
        expected: impl Display,
        help: Option<String>,
    ) {
        let message = format!("expected {expected}, found {}", value.get_ref().type_str());
        self.reader.report(&value.span(), message, help);
    }

    /// Reports that the value of `name` has the wrong TOML type.
    pub(crate) fn refuse_type(&self, name: &str, expected: &str, help: &str) {
        if let Some(value) = self.value(name) {
            self.report_kind(value, expected, Some(help.to_owned()));
        }
    }

    // ---- tables ----

    /// Whether the file has the table `name` beneath this one. Another kind of value is reported by
    /// [`child`](Self::child).
    pub(crate) fn has_table(&self, name: &str) -> bool {
        let value = self.value(name).map(Spanned::get_ref);
        matches!(value, Some(DeValue::Table(_)))
    }

    /// The tables of the array `name` beneath this one as they are, for a look that reports nothing: their positions, and whether
    /// they have `key`.
    pub(crate) fn glance(&self, name: &str, key: &str) -> Vec<(Range<usize>, bool)> {
        let Some(DeValue::Array(elements)) = self.value(name).map(Spanned::get_ref) else {
            return Vec::new();
        };
        let look = |element: &Spanned<DeValue<'_>>| {
            let DeValue::Table(entries) = element.get_ref() else {
                return (element.span(), false);
            };
            (element.span(), entries.contains_key(key))
        };
        elements.iter().map(look).collect()
    }

    /// The string that stands in place of the table `name`.
    pub(crate) fn text_for_table(&self, name: &str) -> Option<Text<'r>> {
        let value = self.value(name)?;
        matches!(value.get_ref(), DeValue::String(_))
            .then(|| self.string(value))
            .flatten()
    }

    /// Whether the table `name` beneath this one is `false`: it turns off what it would inherit.
    pub(crate) fn is_off(&self, name: &str) -> bool {
        let value = self.value(name).map(Spanned::get_ref);
        matches!(value, Some(DeValue::Boolean(false)))
    }

    /// The table `name` beneath this one.
    pub(crate) fn child(&self, name: &str) -> Section<'r> {
        let table = self.reader.schema.child(self.table, name);
        match self.value(name).map(|value| (value, value.get_ref())) {
            Some((value, DeValue::Table(entries))) => {
                Section::open(self.reader, table, entries, value.span())
            }
            Some((value, found)) => {
                let is_array = matches!(found, DeValue::Array(_));
                let help = foreign::array(table.path).filter(|_| is_array);
                let help = help.map(str::to_owned);
                let help = help.or_else(|| self.help_on_type(name, value));
                let help = help.unwrap_or_else(|| format!("write `{}`", table.heading()));
                self.report_kind(value, "a table", Some(help));
                Section::empty(self.reader, table.path)
            }
            None => Section::empty(self.reader, table.path),
        }
    }

    /// The tables of the array `name` beneath this one.
    pub(crate) fn children(&self, name: &str) -> Vec<Section<'r>> {
        let table = self.reader.schema.child(self.table, name);
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let DeValue::Array(elements) = value.get_ref() else {
            self.refuse_as_array(name, value);
            return Vec::new();
        };
        let section = |element: &'r Spanned<DeValue<'r>>| {
            let DeValue::Table(entries) = element.get_ref() else {
                let help = format!("write `{}`", table.heading());
                self.report_kind(element, "a table", Some(help));
                return None;
            };
            Some(Section::open(self.reader, table, entries, element.span()))
        };
        elements.iter().filter_map(section).collect()
    }

    /// Reports what stands in place of the array of tables `name` beneath this one.
    pub(crate) fn refuse_as_array(&self, name: &str, value: &Spanned<DeValue<'_>>) {
        let table = self.reader.schema.child(self.table, name);
        if let Some(message) = without_parent(self.reader.schema, table, value.get_ref()) {
            return self.reader.report(&value.span(), message, None);
        }
        let help = self.help_on_type(name, value);
        let help = help.unwrap_or_else(|| format!("write `{}`", table.heading()));
        self.report_kind(value, "an array of tables", Some(help));
    }

    // ---- quantities ----

    pub(crate) fn duration(&self, name: &str) -> Duration {
        Duration::from_millis(self.quantity(name).unwrap_or_default())
    }

    /// A number, or a size in bytes.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.optional_count(name).unwrap_or_default()
    }

    /// The same for a key that has no number by default: `None` is `"auto"`, or an absent key.
    pub(crate) fn optional_count(&self, name: &str) -> Option<usize> {
        // On a 32-bit machine the upper bound of the table may not fit.
        self.quantity(name)
            .map(|quantity| usize::try_from(quantity).unwrap_or(usize::MAX))
    }

    fn quantity(&self, name: &str) -> Option<u64> {
        let key = self.table.key(name);
        let default = || key.default.and_then(|text| key.kind.quantity(text).ok());
        let Some(value) = self.value(name) else {
            return default();
        };
        let is_reference = self.is_reference(value);
        let wrong = match quantity(key, value.get_ref(), is_reference) {
            Ok(quantity) => return quantity,
            Err(wrong) => wrong,
        };
        match wrong {
            Wrong::Kind(_) if is_reference => {
                let auto = if key.is_auto() { "\"auto\" or " } else { "" };
                self.report_reference(name, value, format_args!("{auto}{}", key.kind.expected()));
            }
            Wrong::Kind(help) => {
                let auto = if key.is_auto() { "\"auto\" or " } else { "" };
                self.report_kind(value, format_args!("{auto}{}", key.kind.expected()), help);
            }
            Wrong::Form(help) => {
                let message = format!("`{name}` is not {}", key.kind.expected());
                self.reader.report(&value.span(), message, help);
            }
            Wrong::Bounds(reason) => {
                let message = format!("`{name}` {reason}");
                let help = foreign::out_of_bounds(name, self.source_of(value));
                let help = help.map(str::to_owned);
                self.reader.report(&value.span(), message, help);
            }
        }
        default()
    }

    /// Reports that the variable of a reference has no value of the right form.
    fn report_reference(&self, name: &str, value: &Spanned<DeValue<'_>>, expected: impl Display) {
        let written = self.source_of(value).trim_matches(['"', '\'']);
        let message = format!("`{name}`: the value of `{written}` is not {expected}");
        self.reader.report(&value.span(), message, None);
    }

    /// Reports when `small` is larger than `large`. `"auto"` is never in the way.
    pub(crate) fn at_most(&self, small: &str, large: &str) {
        self.compare(small, large, u64::le, "is larger than");
    }

    /// Reports when `small` is not smaller than `large`.
    pub(crate) fn less_than(&self, small: &str, large: &str) {
        self.compare(small, large, u64::lt, "must be smaller than");
    }

    fn compare(&self, small: &str, large: &str, fits: fn(&u64, &u64) -> bool, relation: &str) {
        let (Some(a), Some(b)) = (self.peek(small), self.peek(large)) else {
            return;
        };
        if fits(&a, &b) {
            return;
        }
        let at = if self.has(small) { small } else { large };
        let message = format!(
            "`{small}` ({}) {relation} `{large}` ({})",
            self.written(small),
            self.written(large)
        );
        let other = if at == small { large } else { small };
        let help = (!self.has(other)).then(|| format!("`{other}` has its default here"));
        self.reader.report(&self.span_of(at), message, help);
    }

    /// The quantity without a report; `None` also when it is wrong.
    fn peek(&self, name: &str) -> Option<u64> {
        let key = self.table.key(name);
        match self.value(name) {
            Some(value) => {
                let is_reference = self.is_reference(value);
                quantity(key, value.get_ref(), is_reference).ok().flatten()
            }
            None => key.kind.quantity(key.default?).ok(),
        }
    }

    fn written(&self, name: &str) -> &'r str {
        match self.value(name) {
            Some(value) => self.source_of(value).trim_matches(['"', '\'']),
            None => self.table.key(name).default.unwrap_or_default(),
        }
    }

    // ---- other values ----

    /// `None` when the key is absent or wrong.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::Boolean(given) => return Some(*given),
            DeValue::String(text) if self.is_reference(value) => {
                let given = text.parse().ok();
                if given.is_none() {
                    self.report_reference(name, value, self.table.key(name).kind.expected());
                }
                return given;
            }
            _ => {}
        }
        let meant = match value.get_ref() {
            DeValue::String(text) => switch(text),
            DeValue::Integer(digits) => switch(digits.as_str()),
            _ => None,
        };
        let help = meant.map(|meant| format!("write {meant}"));
        let help = help.or_else(|| self.help_on_type(name, value));
        self.report_kind(value, self.table.key(name).kind.expected(), help);
        None
    }

    /// Whether the value of `name` is `true`, for a look that reports nothing.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| match value.get_ref() {
            DeValue::Boolean(given) => *given,
            DeValue::String(text) => self.is_reference(value) && text == "true",
            _ => false,
        })
    }

    /// The same, or the key's default.
    pub(crate) fn boolean_or_default(&self, name: &str) -> bool {
        self.boolean(name)
            .unwrap_or_else(|| self.default(name) == "true")
    }

    /// The default of a key that has one.
    pub(crate) fn default(&self, name: &str) -> &'static str {
        self.table.key(name).default.expect("a key with a default")
    }

    /// A string, `None` when the key is absent or wrong.
    pub(crate) fn text(&self, name: &str) -> Option<Text<'r>> {
        let value = self.value(name)?;
        let text = self.string(value);
        if text.is_none() {
            let kind = self.table.key(name).kind;
            let by_kind = || match (kind, value.get_ref()) {
                (Kind::Word(words), _) => Some(one_of(words)),
                (Kind::Text(_), DeValue::Integer(_)) => {
                    Some(format!("write \"{}\"", self.source_of(value)))
                }
                _ => None,
            };
            let help = self.help_on_type(name, value).or_else(by_kind);
            self.report_kind(value, kind.expected(), help);
        }
        text
    }

    /// `None` when the value is no string.
    fn string(&self, value: &'r Spanned<DeValue<'r>>) -> Option<Text<'r>> {
        let DeValue::String(text) = value.get_ref() else {
            return None;
        };
        Some(Text {
            text,
            span: value.span(),
            reader: self.reader,
        })
    }

    fn help_on_type(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        foreign::of_type(name, value.get_ref().type_str(), self.source_of(value))
    }

    /// Whether the value of `name` is a string that stands for no number.
    pub(crate) fn is_text(&self, name: &str) -> bool {
        let is_text = |value: &&Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::String(text) => !(self.is_reference(value) && is_number(text)),
            _ => false,
        };
        self.value(name).as_ref().is_some_and(is_text)
    }

    /// Whether the value of `name` is an array.
    pub(crate) fn is_array(&self, name: &str) -> bool {
        let value = self.value(name).map(Spanned::get_ref);
        matches!(value, Some(DeValue::Array(_)))
    }

    /// Whether the value of `name` is `[]`. False also for an array whose elements are wrong.
    pub(crate) fn is_empty_array(&self, name: &str) -> bool {
        let value = self.value(name).map(Spanned::get_ref);
        matches!(value, Some(DeValue::Array(elements)) if elements.is_empty())
    }

    /// The value as it is written in the file.
    fn source_of(&self, value: &Spanned<DeValue<'_>>) -> &'r str {
        self.reader.source.slice(&value.span())
    }

    /// A word out of the key's list, or the result of `unlisted` for another word; `None` when the key is absent
    /// or wrong.
    pub(crate) fn word_or(
        &self,
        name: &str,
        unlisted: fn(&str) -> Option<&'static str>,
    ) -> Option<&'r str> {
        let Kind::Word(words) = self.table.key(name).kind else {
            unreachable!("`{name}` is a word")
        };
        let given = self.text(name)?;
        let unlisted = unlisted(given.text);
        unlisted.or_else(|| given.one_of(name, words))
    }

    /// The variant that a word of the key's list stands for; `None` when the key is absent or wrong.
    pub(crate) fn word<W: FromStr>(&self, name: &str) -> Option<W> {
        self.word_or(name, |_| None)?.parse().ok()
    }

    /// The same, or that of the key's default.
    pub(crate) fn word_or_default<W: FromStr>(&self, name: &str) -> W {
        self.word(name).unwrap_or_else(|| self.default_word(name))
    }

    /// The variant that the key's default stands for.
    pub(crate) fn default_word<W: FromStr>(&self, name: &str) -> W {
        let default = self.default(name).parse().ok();
        default.unwrap_or_else(|| unreachable!("the default of `{name}` is a word"))
    }

    /// Strings of an array; `None` when the key is absent or wrong.
    pub(crate) fn names(&self, name: &str) -> Option<Vec<Text<'r>>> {
        let elements = self.array(name)?.iter();
        Some(elements.filter_map(|one| self.element(one)).collect())
    }

    /// Strings and whole numbers of an array; `None` when the key is absent or wrong.
    pub(crate) fn names_and_numbers(&self, name: &str) -> Option<Vec<Element<'r>>> {
        let number = |text, value: &Spanned<DeValue<'_>>| {
            Some(Element::Number(Text {
                text,
                span: value.span(),
                reader: self.reader,
            }))
        };
        let element = |value: &'r Spanned<DeValue<'r>>| match value.get_ref() {
            DeValue::Integer(_) => number(self.source_of(value), value),
            DeValue::String(text) if self.is_reference(value) && is_number(text) => {
                number(text, value)
            }
            _ => self.element(value).map(Element::Text),
        };
        Some(self.array(name)?.iter().filter_map(element).collect())
    }

    fn array(&self, name: &str) -> Option<&'r [Spanned<DeValue<'r>>]> {
        let value = self.value(name)?;
        let expected = self.table.key(name).kind.expected();
        let DeValue::Array(elements) = value.get_ref() else {
            let is_single = matches!(value.get_ref(), DeValue::String(_));
            let help = is_single.then(|| format!("write [{}]", self.source_of(value)));
            let help = help.or_else(|| self.help_on_type(name, value));
            self.report_kind(value, expected, help);
            return None;
        };
        Some(elements)
    }

    /// Names and strings of a free table, in the order of the file.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(Text<'r>, Text<'r>)> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let DeValue::Table(entries) = value.get_ref() else {
            self.report_kind(value, self.table.key(name).kind.expected(), None);
            return Vec::new();
        };
        let pair = |(key, value): (&'r Spanned<DeString<'r>>, _)| {
            let name = Text {
                text: key.as_ref(),
                span: key.span(),
                reader: self.reader,
            };
            Some((name, self.element(value)?))
        };
        let mut pairs: Vec<_> = entries.iter().filter_map(pair).collect();
        pairs.sort_by_key(|(name, _)| name.span.start);
        pairs
    }

    /// A string of an array or a free table. Reports anything else.
    fn element(&self, value: &'r Spanned<DeValue<'r>>) -> Option<Text<'r>> {
        let text = self.string(value);
        if text.is_none() {
            let is_number = matches!(value.get_ref(), DeValue::Integer(_));
            let help = is_number.then(|| format!("write \"{}\"", self.source_of(value)));
            self.report_kind(value, "a string", help);
        }
        text
    }
}

enum Wrong {
    Kind(Option<String>),
    Form(Option<String>),
    Bounds(String),
}

/// `None` is `"auto"`. A string that is a reference may be a number.
fn quantity(key: &Key, value: &DeValue<'_>, is_reference: bool) -> Result<Option<u64>, Wrong> {
    let number = match (value, key.kind) {
        (DeValue::String(digits), Kind::Size(..) | Kind::Count(..))
            if is_reference && is_number(digits) =>
        {
            // As below.
            digits.parse().unwrap_or(u64::MAX)
        }
        (DeValue::String(text), _) if key.is_auto() && text == "auto" => return Ok(None),
        (DeValue::String(text), Kind::Duration(..) | Kind::Size(..)) if !is_number(text) => key
            .kind
            .quantity(text)
            .map_err(|help| Wrong::Form(Some(help).filter(|help| !help.is_empty())))?,
        (DeValue::Integer(digits), Kind::Size(..) | Kind::Count(..)) => {
            // A number that does not fit is out of any bounds.
            let limit = if digits.as_str().starts_with('-') {
                0
            } else {
                u64::MAX
            };
            match u64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(number) => number,
                Err(_) => return Err(out_of_bounds(key, limit)),
            }
        }
        (DeValue::Integer(digits), Kind::Duration(..)) => {
            return Err(Wrong::Kind(Some(format!("did you mean \"{digits}s\"?"))));
        }
        (DeValue::String(text), Kind::Count(..) | Kind::Size(..)) if is_number(text) => {
            return Err(Wrong::Kind(Some(format!("write {text}"))));
        }
        (DeValue::String(text), Kind::Duration(..)) => {
            return Err(Wrong::Form(Some(format!("did you mean \"{text}s\"?"))));
        }
        _ => return Err(Wrong::Kind(None)),
    };
    key.kind.check(number).map(Some).map_err(Wrong::Bounds)
}

/// A minimum of 0 lets a negative number through the check of its clamped value.
fn out_of_bounds(key: &Key, clamped: u64) -> Wrong {
    match key.kind.check(clamped) {
        Err(reason) => Wrong::Bounds(reason),
        Ok(_) => Wrong::Bounds("must not be negative".to_owned()),
    }
}

/// The boolean that `text` stands for in other programs.
fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Some(true),
        "off" | "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn one_of(words: &[&str]) -> String {
    format!("one of {}", listed(words.iter().copied()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The message for a file that has a table beneath `table` only, such as one that begins with `[[site.route]]`.
fn without_parent(schema: Schema, table: &Table, value: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(entries) = value else {
        return None;
    };
    let (name, _) = entries.iter().next().filter(|_| entries.len() == 1)?;
    let child = schema
        .children(table)
        .find(|child| child == name.get_ref())?;
    let path = format!("{}.{child}", table.path);
    let (child, parent) = (schema.table(&path).heading(), table.heading());
    Some(format!("`{child}` needs a `{parent}` before it"))
}
