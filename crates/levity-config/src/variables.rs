//! `${NAME}` in the strings of a configuration: values from the environment.

use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::on_disk::{Unusable, text_of};

/// The maximum length of a file of variables.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Begins a reference.
pub(crate) const OPENING: &str = "${";

/// The white space of a line as systemd reads it.
const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// Where the values of `${NAME}` come from. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those of a file, which go before those of the process.
    given: Arc<BTreeMap<String, String>>,
    has_process: bool,
    /// What else may set one, for the help on one that is not set.
    option: Option<&'static str>,
}

impl Variables {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            has_process: true,
            ..Self::default()
        }
    }

    /// Those of this process for a command with an `option` that names a file of variables, which go before. The file has lines
    /// `NAME=VALUE`, as `EnvironmentFile=` of systemd.exec(5). Empty lines count for nothing, nor do those that begin with `#` or `;`. A
    /// line that systemd would read in another way than as it is written is refused. Blocks.
    ///
    /// # Errors
    /// In words, with the path; also for a file that has more than 1 MiB or is not UTF-8.
    pub fn of_command(option: &'static str, file: Option<&Path>) -> Result<Self, String> {
        Ok(Self {
            given: Arc::new(file.map(read).transpose()?.unwrap_or_default()),
            has_process: true,
            option: Some(option),
        })
    }

    /// The option of the command that names a file of variables, if it has one.
    pub(crate) fn option(&self) -> Option<&'static str> {
        self.option
    }

    /// The value of a variable; `None` if it is not set.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub(crate) fn get(&self, name: &str) -> Result<Option<String>, NotText> {
        if let Some(value) = self.given.get(name) {
            return Ok(Some(value.clone()));
        }
        match env::var(name) {
            _ if !self.has_process => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(NotText),
        }
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.given.keys()).finish()
    }
}

/// A value is not UTF-8.
#[derive(Debug)]
pub(crate) struct NotText;

/// The variables of a file; otherwise what is wrong with it.
fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let shown = path.display();
    let text = text_of(path, FILE_BYTES_MAX).map_err(|unusable| match unusable {
        Unusable::Silent => format!("{shown} does not respond"),
        Unusable::Absent(reason) | Unusable::Wrong(reason) => format!("{shown} {reason}"),
    })?;
    parse(&text).map_err(|(line, reason)| format!("{shown}:{line}: {reason}"))
}

/// The variables of a text; otherwise the number of a line, and what is wrong with it.
fn parse(text: &str) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut variables = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start_matches(BLANKS);
        let is_comment = line.starts_with(['#', ';']);
        if is_comment && line.ends_with('\\') {
            let reason = "a comment ends with a backslash: systemd before 254 takes the next line for a part of it";
            return Err((number, reason.to_owned()));
        }
        if is_comment || line.is_empty() {
            continue;
        }
        let (name, value) = variable(line).map_err(|reason| (number, reason))?;
        if variables
            .insert(name.to_owned(), value.to_owned())
            .is_some()
        {
            return Err((number, format!("`{name}` is given twice")));
        }
    }
    Ok(variables)
}

/// Name and value. The line is not shown: it may have a secret.
fn variable(line: &str) -> Result<(&str, &str), String> {
    let Some((name, value)) = line.split_once('=') else {
        return Err(
            "a line is `NAME=VALUE`, a comment that begins with `#` or `;`, or empty".to_owned(),
        );
    };
    let is_name = |name: &str| {
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        begins
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !is_name(name) {
        return Err("what is before `=` is no name: letters, digits and `_`".to_owned());
    }
    match differs(value) {
        Some(reason) => Err(format!("the value of `{name}` {reason}")),
        None => Ok((name, value)),
    }
}

/// Why systemd would read another value: it takes off blanks and quotes, and a backslash has a meaning.
fn differs(value: &str) -> Option<&'static str> {
    match () {
        () if value.starts_with(['"', '\'']) => {
            Some("begins with a quote, which would be part of it: leave the quotes out")
        }
        () if value.trim_matches(BLANKS) != value => {
            Some("begins or ends with a blank, which systemd takes off: leave it out")
        }
        () if value.contains('\\') => {
            Some("has a backslash, which systemd reads as the begin of an escape")
        }
        () if value.contains('\r') => Some("has a carriage return, where systemd ends the line"),
        () => None,
    }
}

/// A string with the values of its references.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Substituted {
    pub(crate) value: String,
    /// Names and values of the variables in it. A default is no secret: the file has it.
    pub(crate) variables: Vec<(String, String)>,
    /// Whether the string is a reference and nothing else.
    pub(crate) is_whole: bool,
}

/// A reference without a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Faulty {
    pub(crate) name: String,
    /// Its first byte in the string.
    pub(crate) at: usize,
    /// How many `${` are before it in the string.
    pub(crate) ordinal: usize,
    pub(crate) fault: Fault,
}

/// Why a reference has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Unset,
    /// The value is not UTF-8.
    NotText,
    /// Neither `}` nor `:-default}` is behind the name.
    Unfinished,
    /// Its default has `${`.
    Nested,
}

/// `${NAME}` or `${NAME:-default}`.
struct Reference<'t> {
    name: &'t str,
    default: Option<&'t str>,
    /// What follows it.
    rest: &'t str,
}

impl<'t> Reference<'t> {
    /// The reference to `name`, which is before `text`.
    ///
    /// # Errors
    /// What is wrong with it, and what follows it.
    fn after_name(name: &'t str, text: &'t str) -> Result<Self, (Fault, &'t str)> {
        let (default, rest) = match text.strip_prefix(":-") {
            Some(rest) => {
                let (default, rest) = rest.split_once('}').ok_or((Fault::Unfinished, text))?;
                (Some(default), rest)
            }
            None => (
                None,
                text.strip_prefix('}').ok_or((Fault::Unfinished, text))?,
            ),
        };
        match default.is_some_and(|default| default.contains(OPENING)) {
            true => Err((Fault::Nested, rest)),
            false => Ok(Self {
                name,
                default,
                rest,
            }),
        }
    }

    /// The value, and whether it is that of the variable. As in a shell, `:-` counts also for a variable that is empty.
    fn value(&self, variables: &Variables) -> Result<(String, bool), Fault> {
        let value = variables.get(self.name);
        match (value.map_err(|NotText| Fault::NotText)?, self.default) {
            (Some(value), None) => Ok((value, true)),
            (Some(value), Some(_)) if !value.is_empty() => Ok((value, true)),
            (_, Some(default)) => Ok((default.to_owned(), false)),
            (None, None) => Err(Fault::Unset),
        }
    }
}

/// The name of a variable at the start of `text`, and what follows it. `None` for any other name, such as `status`: then `${` belongs
/// to another language.
fn name_of(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name.starts_with(|c: char| !c.is_ascii_digit());
    (begins && name.bytes().all(is_part)).then_some((name, rest))
}

/// `text` with the values of its references; `None` if it has nothing to replace. `$${NAME` becomes `${NAME`.
///
/// # Errors
/// The references without a value.
pub(crate) fn substitute(
    text: &str,
    variables: &Variables,
) -> Result<Option<Substituted>, Vec<Faulty>> {
    let mut scan = Scan::default();
    let (mut rest, mut is_whole) = (text, false);
    while let Some((before, after)) = rest.split_once(OPENING) {
        let is_first = rest.len() == text.len() && before.is_empty();
        let (is_escaped, at) = (before.ends_with('$'), text.len() - after.len());
        rest = match name_of(after) {
            Some((name, behind)) if !is_escaped => {
                scan.value.push_str(before);
                let behind = scan.reference(name, behind, at - OPENING.len(), variables);
                is_whole = is_first && behind.is_empty();
                behind
            }
            named => {
                let kept = before.len() - usize::from(is_escaped && named.is_some());
                scan.value.extend([&before[..kept], OPENING]);
                after
            }
        };
        scan.openings += 1;
    }
    scan.value.push_str(rest);
    match scan.faulty.is_empty() {
        true => Ok((is_whole || scan.value != text).then_some(Substituted {
            value: scan.value,
            variables: scan.used,
            is_whole,
        })),
        false => Err(scan.faulty),
    }
}

/// A string of which a part has been read.
#[derive(Default)]
struct Scan {
    value: String,
    used: Vec<(String, String)>,
    faulty: Vec<Faulty>,
    /// How many `${` there were.
    openings: usize,
}

impl Scan {
    /// Takes the reference at a byte, whose name is before `behind`. What is left behind it.
    fn reference<'t>(
        &mut self,
        name: &'t str,
        behind: &'t str,
        at: usize,
        variables: &Variables,
    ) -> &'t str {
        let (value, rest) = match Reference::after_name(name, behind) {
            Ok(reference) => (reference.value(variables), reference.rest),
            Err((fault, rest)) => (Err(fault), rest),
        };
        match value {
            Ok((value, is_variable)) => {
                self.value.push_str(&value);
                self.used
                    .extend(is_variable.then(|| (name.to_owned(), value)));
            }
            Err(fault) => self.faulty.push(Faulty {
                name: name.to_owned(),
                at,
                ordinal: self.openings,
                fault,
            }),
        }
        rest
    }
}

#[cfg(test)]
impl Variables {
    /// These alone.
    pub(crate) fn of(given: &[(&str, &str)]) -> Self {
        let given = given.iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            given: Arc::new(given.collect()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        Variables::of(&[("A", "one"), ("B_2", "${A}\"\n"), ("EMPTY", ""), ("_", "u")])
    }

    fn value(text: &str) -> String {
        let substituted = substitute(text, &variables()).expect(text);
        substituted.map_or_else(|| text.to_owned(), |one| one.value)
    }

    #[test]
    fn references_are_replaced() {
        for (text, expected) in [
            ("", ""),
            ("$A", "$A"),
            ("${A}", "one"),
            ("x${A}y${_}${A}", "xoneyuone"),
            ("${EMPTY}", ""),
            ("${EMPTY:-x}", "x"),
            ("${A:-x}", "one"),
            ("${NONE:-}", ""),
            ("${NONE:-a b/$c{}", "a b/$c{"),
            // A value is not looked at again.
            ("${B_2}", "${A}\"\n"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_stays() {
        for text in [
            "${",
            "${}",
            "${status}",
            "${Aa}",
            "${aA}",
            "${1A}",
            "${1A",
            "${ A}",
            "${\u{c4}}",
            "${A\u{e4}}",
            "${Abc.d}",
            "$ {A}",
            "{A}",
            "$${price}",
            "$${}",
            "$${",
            "$$$",
            "a$${status} $${x",
        ] {
            assert_eq!(substitute(text, &variables()), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_reference_that_is_not_finished_is_an_error() {
        for (text, at, fault) in [
            ("${A", 0, Fault::Unfinished),
            ("x${A", 1, Fault::Unfinished),
            ("${A.b}", 0, Fault::Unfinished),
            ("${A }", 0, Fault::Unfinished),
            ("${A:b}", 0, Fault::Unfinished),
            ("${A:?x}", 0, Fault::Unfinished),
            ("${A-b}", 0, Fault::Unfinished),
            ("${A[0]}", 0, Fault::Unfinished),
            ("${A:-b", 0, Fault::Unfinished),
            ("${A:-${B_2}}", 0, Fault::Nested),
            ("${A:-$${B_2}}", 0, Fault::Nested),
            ("${A:-${b}}", 0, Fault::Nested),
        ] {
            let faulty = substitute(text, &variables()).expect_err(text);
            assert_eq!(
                (faulty[0].at, faulty[0].fault, faulty.len()),
                (at, fault, 1),
                "{text}"
            );
            assert_eq!(faulty[0].name, "A", "{text}");
        }
    }

    #[test]
    fn two_dollars_before_a_name_stand_for_one() {
        for (text, expected) in [
            ("$${A}", "${A}"),
            ("$${A", "${A"),
            ("$${A.b}", "${A.b}"),
            ("$${status}", "$${status}"),
            ("a$${A ${A}", "a${A one"),
            ("$$${A}", "$${A}"),
            ("$$", "$$"),
            ("$$A", "$$A"),
            ("$${price}${A}", "$${price}one"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        // Nothing of it is a secret.
        let substituted = substitute("$${A}", &variables())
            .expect("text")
            .expect("a change");
        assert!(substituted.variables.is_empty() && !substituted.is_whole);
    }

    #[test]
    fn a_string_may_be_one_reference() {
        for (text, expected) in [
            ("${A}", true),
            ("${A:-1}", true),
            ("${A}${A}", false),
            (" ${A}", false),
            ("${A} ", false),
            ("$${A}${A}", false),
            ("${x${A}", false),
        ] {
            let substituted = substitute(text, &variables()).expect(text).expect(text);
            assert_eq!(substituted.is_whole, expected, "{text}");
        }
    }

    #[test]
    fn all_that_is_not_set_is_told_with_its_place() {
        let text = "${X}${A}$${X}${Y_1}${X:-}${x}${X}";
        let unset = substitute(text, &variables()).expect_err("unset");
        let told: Vec<_> = (unset.iter())
            .map(|one| (one.name.as_str(), one.at, one.ordinal))
            .collect();
        assert_eq!(told, [("X", 0, 0), ("Y_1", 13, 3), ("X", 29, 6)]);
        assert!(unset.iter().all(|one| one.fault == Fault::Unset));
    }

    #[test]
    fn lines_of_a_file() {
        let text = "# comment\n\nA=1\r\n \t B_b=x=y # z'\"\nC=\n; D=1\n_9=\u{e4}";
        let given = parse(text).expect(text);
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let expected = [
            ("A", "1"),
            ("B_b", "x=y # z'\""),
            ("C", ""),
            ("_9", "\u{e4}"),
        ];
        assert_eq!(given, expected);
        for (text, line, reason) in [
            (
                "A=1\nB",
                2,
                "a line is `NAME=VALUE`, a comment that begins with `#` or `;`",
            ),
            ("export A=1", 1, "is no name"),
            ("=1", 1, "is no name"),
            ("1A=1", 1, "is no name"),
            ("A =1", 1, "is no name"),
            ("A=1\n\nA=2", 3, "`A` is given twice"),
            ("A=\"1\"", 1, "the value of `A` begins with a quote"),
            ("A='1'", 1, "the value of `A` begins with a quote"),
            ("A= x", 1, "the value of `A` begins or ends with a blank"),
            ("A=x\t", 1, "the value of `A` begins or ends with a blank"),
            ("A= ", 1, "the value of `A` begins or ends with a blank"),
            ("\nA=a\\b", 2, "the value of `A` has a backslash"),
            ("A=a\\\nB=b", 1, "the value of `A` has a backslash"),
            ("A=a\rb", 1, "the value of `A` has a carriage return"),
            ("A=1\n# x\\\nB=1", 2, "a comment ends with a backslash"),
        ] {
            let (at, message) = parse(text).expect_err(text);
            assert!(
                at == line && message.contains(reason),
                "{text}: {at} {message}"
            );
        }
    }

    #[test]
    fn values_are_not_shown() {
        let shown = format!("{:?}", Variables::of(&[("A", "secret")]));
        assert_eq!(shown, "[\"A\"]");
    }
}
