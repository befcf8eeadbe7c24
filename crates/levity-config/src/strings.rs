//! The strings of a configuration that have references: what became of them, and what messages show of them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;

use crate::hidden::{Entry, Hidden};
use crate::schema::{Key, Kind, Schema};
use crate::variables::Fault;
use crate::vocabulary::{Vocabulary, words};

/// Shorter values would be found in texts that have nothing to do with them: `80`, `on`.
const BYTES_MIN: usize = 4;

/// A number of fewer digits is a port, a status or a count.
const DIGITS_MIN: usize = 6;

/// A word of so many bytes that is in a value and in a message about it is no chance.
const WORD_BYTES: usize = 3;

/// Nor is one of so many within a longer word.
const PIECE_BYTES: usize = 5;

/// The strings with references.
#[derive(Default)]
pub(crate) struct Strings {
    replaced: Vec<Replaced>,
    faulty: Vec<FaultyReference>,
    /// What messages about anything else show in place of their values.
    hidden: Hidden,
    vocabulary: Vocabulary,
}

/// A reference without a value.
pub(crate) struct FaultyReference {
    /// The string that it is in.
    pub(crate) string: Range<usize>,
    /// The reference itself.
    pub(crate) at: Range<usize>,
    pub(crate) name: String,
    pub(crate) fault: Fault,
}

impl Strings {
    pub(crate) fn new(
        mut replaced: Vec<Replaced>,
        faulty: Vec<FaultyReference>,
        schema: Schema,
    ) -> Self {
        replaced.sort_by_key(|one| one.span.start);
        let has_variables = replaced.iter().any(Replaced::has_variables);
        let vocabulary = has_variables.then(|| Vocabulary::of(schema));
        let vocabulary = vocabulary.unwrap_or_default();
        let entries = replaced.iter().flat_map(Replaced::entries);
        let entries = entries.filter(|entry| is_told_by(&entry.value, &vocabulary));
        Self {
            hidden: Hidden::new(entries.collect()),
            replaced,
            faulty,
            vocabulary,
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
        self.faulty.iter().any(|one| one.string == *span)
    }

    /// A message and its help, without the values. `span` is what they are about.
    pub(crate) fn hide(
        &self,
        span: Option<&Range<usize>>,
        message: &str,
        help: Option<String>,
    ) -> (String, Option<String>) {
        let own = span.and_then(|span| self.at(span));
        let own = own.filter(|own| own.has_variables());
        let help = help.filter(|help| !own.is_some_and(|own| own.has_number_in(help)));
        let of_own = own
            .map(|own| own.hidden(&self.vocabulary))
            .unwrap_or_default();
        let hide = |text: &str| self.hidden.hide(&of_own.hide(text)).into_owned();
        (hide(message), help.map(|help| hide(&help)))
    }

    /// For texts that are made later.
    pub(crate) fn hidden(&self) -> Hidden {
        self.hidden.clone()
    }
}

/// Whether who sees `value` in any text learns something.
fn is_told_by(value: &str, vocabulary: &Vocabulary) -> bool {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    value.len() >= if is_number { DIGITS_MIN } else { BYTES_MIN } && !vocabulary.has_name(value)
}

/// A string of the configuration in which references were replaced.
pub(crate) struct Replaced {
    pub(crate) span: Range<usize>,
    /// The key whose value it is, or is in.
    pub(crate) key: Option<&'static Key>,
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
    fn pairs(&self) -> impl Iterator<Item = (&str, String)> {
        let whole = self
            .has_variables()
            .then(|| (self.value.as_str(), self.written.clone()));
        let variables = self.variables.iter();
        let variables = variables.map(|(name, value)| (value.as_str(), reference(name)));
        whole.into_iter().chain(variables)
    }

    /// What is hidden in texts about anything else: the values, and the parts of them that such texts show by themselves. What stands
    /// for a word out of a list, or for a number with a unit, is no secret.
    fn entries(&self) -> Vec<Entry> {
        let is_plain = |key: &Key| {
            let kind = key.kind;
            matches!(kind, Kind::Word(_) | Kind::Boolean) || kind.bounds().is_some()
        };
        if self.key.is_some_and(is_plain) {
            return Vec::new();
        }
        let values = self.pairs();
        let values = values.map(|(value, shown)| entry(value, &shown, [false; 2]));
        let of_variables = self.variables.iter().flat_map(|(name, value)| {
            let parts = parts(value).into_iter();
            parts.map(|(part, is_open)| entry(part, &reference(name), is_open))
        });
        let has_variable = |(part, _): &(&str, _)| {
            let mut values = self.variables.iter().map(|(_, value)| value);
            values.any(|value| value.len() >= BYTES_MIN && part.contains(value))
        };
        let of_whole = parts(&self.value).into_iter().filter(has_variable);
        let of_whole = of_whole.map(|(part, is_open)| entry(part, &self.written, is_open));
        values.chain(of_variables).chain(of_whole).collect()
    }

    /// What is hidden in a message about the string itself, which may show any word of it. A word that such a message may have anyway is
    /// hidden only where it is quoted as a value is.
    fn hidden(&self, vocabulary: &Vocabulary) -> Hidden {
        let values = self
            .pairs()
            .filter(|(value, _)| !vocabulary.has_name(value));
        let values = values.flat_map(|(value, shown)| match vocabulary.has(value) {
            true => ['`', '"']
                .map(|quote| {
                    (
                        format!("{quote}{value}{quote}"),
                        format!("{quote}{shown}{quote}"),
                    )
                })
                .to_vec(),
            false => vec![(value.to_owned(), shown)],
        });
        let values = values.map(|(value, shown)| entry(&value, &shown, [false; 2]));
        let pieces = self.variables.iter().flat_map(|(name, value)| {
            let words =
                words(value).filter(|word| word.len() >= WORD_BYTES && !vocabulary.has(word));
            words.map(|word| entry(word, &reference(name), [word.len() >= PIECE_BYTES; 2]))
        });
        Hidden::new(pieces.chain(values).collect())
    }

    /// Whether `help` has a number of the value: such a help is made of it.
    fn has_number_in(&self, help: &str) -> bool {
        let numbers = |text: &str| -> HashSet<String> {
            let numbers = text.split(|c: char| !c.is_ascii_digit());
            numbers
                .filter(|digits| !digits.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let in_help = numbers(help);
        let mut values = self.variables.iter().map(|(_, value)| value);
        values.any(|value| !numbers(value).is_disjoint(&in_help))
    }
}

fn reference(name: &str) -> String {
    format!("${{{name}}}")
}

fn entry(value: &str, shown: &str, is_open: [bool; 2]) -> Entry {
    Entry {
        value: value.to_owned(),
        shown: shown.to_owned(),
        is_open,
    }
}

/// The parts of a value that are shown by themselves, and whether they may begin and end within a word: what stands between `{…}` of a
/// template, without the scheme of a URL, and host and port of an address.
fn parts(value: &str) -> Vec<(&str, [bool; 2])> {
    let mut parts = Vec::new();
    for (literal, [opens, closes]) in literals(value) {
        let scheme = literal.split_once("://");
        let bare = scheme.map_or(literal, |(_, bare)| bare);
        let is_template = opens || closes;
        let opens = opens && scheme.is_none();
        parts.extend(is_template.then(|| (bare.trim(), [opens, closes])));
        let path = literal
            .strip_prefix("unix:")
            .and_then(|path| path.split(' ').next());
        let authority = bare.split(['/', '?', '#', ' ']).next().unwrap_or_default();
        let is_open = [opens, closes && authority.len() == bare.len()];
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let host = authority.rsplit_once(':');
        let host = host.filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = host.map(|(host, _)| host);
        let is_address = scheme.is_some() || host.is_some();
        let address = host.into_iter().chain([authority]).filter(|_| is_address);
        parts.extend(path.map(|path| (path, [false; 2])));
        parts.extend(address.map(|part| (part, is_open)));
    }
    parts.retain(|(part, _)| words(part).any(|word| word.len() >= WORD_BYTES) && !is_local(part));
    parts
}

/// What stands before, between and behind `{…}`, and whether such a thing is before it and behind it.
fn literals(template: &str) -> Vec<(&str, [bool; 2])> {
    let (mut literals, mut rest, mut opens) = (Vec::new(), template, false);
    while let Some((literal, (_, behind))) =
        (rest.split_once('{')).and_then(|(literal, group)| Some((literal, group.split_once('}')?)))
    {
        literals.push((literal, [opens, true]));
        (rest, opens) = (behind, true);
    }
    literals.push((rest, [opens, false]));
    literals
}

/// Whether `host` is this machine, as anyone may say.
fn is_local(host: &str) -> bool {
    let ip = host.parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SCHEMA;
    use crate::schema::key;

    fn replaced(written: &str, value: &str, variables: &[(&str, &str)]) -> Replaced {
        let variables = variables.iter();
        Replaced {
            span: 4..9,
            key: None,
            written: written.to_owned(),
            value: value.to_owned(),
            variables: variables
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            is_whole: false,
        }
    }

    fn strings(replaced: Replaced) -> Strings {
        Strings::new(vec![replaced], Vec::new(), SCHEMA)
    }

    #[test]
    fn a_message_about_a_value_shows_no_piece_of_it_and_keeps_the_rest() {
        for (value, message, expected) in [
            (
                "70000",
                "`70000` is not an address",
                "`${A}` is not an address",
            ),
            ("7x", "`7x` is not 17x", "`${A}` is not 17x"),
            (
                "http://hunter-xyzzy/a",
                "`http://hunter-xyzzy/a` is wrong",
                "`${A}` is wrong",
            ),
            (
                "http://hunter-xyzzy/a",
                "`HUNTER-Xyzzy` of http is wrong",
                "`${A}-${A}` of http is wrong",
            ),
            (
                "/srv/does-not-exist",
                "`root`: /srv/does-not-exist does not exist",
                "`root`: ${A} does not exist",
            ),
            (
                "/srv/hunter/not",
                "`root`: /srv/hunter is not there",
                "`root`: /${A}/${A} is not there",
            ),
            ("not", "`not` is not a network", "`${A}` is not a network"),
            (
                "engine",
                "`engine` is not a value of `engine`",
                "`engine` is not a value of `engine`",
            ),
            (
                "hunter22",
                "of hunter22s and xhunter22",
                "of ${A}s and x${A}",
            ),
        ] {
            let strings = strings(replaced("${A}", value, &[("A", value)]));
            let (message, _) = strings.hide(Some(&(4..9)), message, None);
            assert_eq!(message, expected, "{value}");
        }
        let part = strings(replaced("/srv/${A}", "/srv/deep", &[("A", "deep")]));
        let hide = |message: &str| part.hide(Some(&(5..6)), message, None).0;
        assert_eq!(hide("/srv/deep is missing"), "/srv/${A} is missing");
    }

    #[test]
    fn help_with_a_number_of_the_value_is_made_of_it() {
        let strings = strings(replaced("${A}", "1 mb", &[("A", "1 mb")]));
        let hide = |span: Range<usize>, help: &str| {
            strings.hide(Some(&span), "`1 mb` is wrong", Some(help.to_owned()))
        };
        let (message, help) = hide(4..9, "did you mean \"1MB\"?");
        assert_eq!((message.as_str(), help), ("`${A}` is wrong", None));
        let (_, help) = hide(4..9, "units are MB and KiB");
        assert_eq!(help.as_deref(), Some("units are MB and KiB"));
        for span in [0..1, 3..9, 4..10, 9..10] {
            let (message, help) = hide(span, "did you mean 1 mb?");
            assert_eq!(message, "`${A}` is wrong");
            assert_eq!(help.as_deref(), Some("did you mean ${A}?"));
        }
        let default = Strings::new(vec![replaced("${A:-1}", "1", &[])], Vec::new(), SCHEMA);
        let help = Some("write 2".to_owned());
        assert_eq!(
            default.hide(Some(&(4..9)), "1 is wrong", help.clone()),
            ("1 is wrong".to_owned(), help)
        );
    }

    /// What is shown of a text, where `${A}` is a value of a key.
    fn shown(value: &str, key: Option<&'static Key>, text: &str) -> String {
        let replaced = Replaced {
            key,
            ..replaced("${A}", value, &[("A", value)])
        };
        strings(replaced).hidden().hide(text).into_owned()
    }

    #[test]
    fn parts_of_values_are_hidden_where_they_are_shown_alone() {
        for (value, text, expected) in [
            (
                "https://hunter2.example{path}",
                "to https://hunter2.example/x",
                "to https://${A}/x",
            ),
            (
                "https://hunter2{rest}.test/end",
                "https://hunter2abc.test/end",
                "https://${A}abc${A}",
            ),
            (
                "{scheme}://hunter2.test{path}",
                "http://hunter2.test/a",
                "http://${A}/a",
            ),
            (
                "http://topsy.invalid:80/ weight=2",
                "topsy.invalid does not resolve",
                "${A} does not resolve",
            ),
            (
                "Topsy.invalid:80",
                "topsy.invalid:80, topsy.invalid",
                "${A}, ${A}",
            ),
            (
                "redis://user:pass@topsy.invalid:1/x",
                "topsy.invalid:1",
                "${A}",
            ),
            (
                "unix:/run/topsy.sock weight=2",
                "/run/topsy.sock: refused",
                "${A}: refused",
            ),
            (
                "http://127.0.0.1:8080",
                "client 127.0.0.1",
                "client 127.0.0.1",
            ),
            ("http://localhost:8080", "localhost", "localhost"),
            ("a quiet text", "a quiet night", "a quiet night"),
            ("https://{host}{path}", "https://other/", "https://other/"),
        ] {
            assert_eq!(shown(value, None, text), expected, "{value}");
        }
        let mixed = strings(replaced(
            "<{a}> static {b} ${A}",
            "<{a}> static {b} hunter2",
            &[("A", "hunter2")],
        ));
        assert_eq!(mixed.hidden().hide("static hunter2"), "static ${A}");
    }

    #[test]
    fn what_is_no_secret_is_not_hidden() {
        const COUNT: Key = key("a", Kind::Count("1", "9"), None);
        const SIZE: Key = key("a", Kind::Size("1B", "9B"), None);
        const DURATION: Key = key("a", Kind::Duration("1s", "9s"), None);
        const WORD: Key = key("a", Kind::Word(&["x"]), None);
        const BOOLEAN: Key = key("a", Kind::Boolean, None);
        const NAMES: Key = key("a", Kind::Names, None);
        for value in [
            "12345",
            "abc",
            "false",
            "file",
            "http",
            "memory",
            "proxy",
            "site",
            "Round-Robin",
        ] {
            assert_eq!(shown(value, Some(&NAMES), value), value);
        }
        for value in ["123456", "hunter2"] {
            for key in [&COUNT, &SIZE, &DURATION, &WORD, &BOOLEAN] {
                assert_eq!(shown(value, Some(key), value), value);
            }
            assert_eq!(shown(value, Some(&NAMES), value), "${A}");
        }
    }
}
