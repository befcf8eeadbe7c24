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
const OPENING: &str = "${";

/// Where the values of `${NAME}` come from. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those of a file, which go before those of the process.
    given: Arc<BTreeMap<String, String>>,
    has_process: bool,
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

    /// Those in a file of lines `NAME=VALUE`, and those of this process that it does not name. Empty lines count for nothing, nor do
    /// those that begin with `#`. A value is taken as it is: this is no shell. Blocks.
    ///
    /// # Errors
    /// In words, with the path; also for a file that has more than 1 MiB or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = text_of(path, FILE_BYTES_MAX).map_err(|unusable| match unusable {
            Unusable::Silent => format!("{shown} does not respond"),
            Unusable::Wrong(reason) => format!("{shown} {reason}"),
        })?;
        let given = parse(&text).map_err(|(line, reason)| format!("{shown}:{line}: {reason}"))?;
        Ok(Self {
            given: Arc::new(given),
            has_process: true,
        })
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

/// The variables of a file; otherwise the number of a line, and what is wrong with it.
fn parse(text: &str) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut variables = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
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
        return Err("a line is `NAME=VALUE`, a comment that begins with `#`, or empty".to_owned());
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
    if value.starts_with(['"', '\'']) {
        return Err(format!(
            "the quotes around the value of `{name}` would be part of it: leave them out"
        ));
    }
    Ok((name, value))
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

/// Why a reference has no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unset {
    pub(crate) name: String,
    /// Whether there is one, which is not UTF-8.
    pub(crate) is_no_text: bool,
}

/// `${NAME}` or `${NAME:-default}`.
struct Reference<'t> {
    name: &'t str,
    default: Option<&'t str>,
    /// What follows it.
    rest: &'t str,
}

impl<'t> Reference<'t> {
    /// The reference whose opening is before `text`; `None` for anything else, such as `${status}`.
    fn after_opening(text: &'t str) -> Option<Self> {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let end = text.find(|c| !is_part(c))?;
        let (name, rest) = text.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (default, rest) = match rest.strip_prefix(":-") {
            Some(rest) => rest
                .split_once('}')
                .map(|(text, rest)| (Some(text), rest))?,
            None => (None, rest.strip_prefix('}')?),
        };
        Some(Self {
            name,
            default,
            rest,
        })
    }

    /// The value, and whether it is that of the variable. As in a shell, `:-` counts also for a variable that is empty.
    fn value(&self, variables: &Variables) -> Result<(String, bool), Unset> {
        let unset = |is_no_text| Unset {
            name: self.name.to_owned(),
            is_no_text,
        };
        let value = variables.get(self.name).map_err(|NotText| unset(true))?;
        match (value, self.default) {
            (Some(value), None) => Ok((value, true)),
            (Some(value), Some(_)) if !value.is_empty() => Ok((value, true)),
            (_, Some(default)) => Ok((default.to_owned(), false)),
            (None, None) => Err(unset(false)),
        }
    }
}

/// `text` with the values of its references; `None` if it has nothing to replace. `$${` becomes `${`.
///
/// # Errors
/// The references without a value.
pub(crate) fn substitute(
    text: &str,
    variables: &Variables,
) -> Result<Option<Substituted>, Vec<Unset>> {
    if !text.contains(OPENING) {
        return Ok(None);
    }
    let (mut value, mut used, mut unset) = (String::new(), Vec::new(), Vec::new());
    let (mut rest, mut is_whole) = (text, false);
    while let Some((before, after)) = rest.split_once(OPENING) {
        if let Some(before) = before.strip_suffix('$') {
            value.extend([before, OPENING]);
            rest = after;
            continue;
        }
        value.push_str(before);
        let Some(reference) = Reference::after_opening(after) else {
            value.push_str(OPENING);
            rest = after;
            continue;
        };
        is_whole = rest.len() == text.len() && before.is_empty() && reference.rest.is_empty();
        match reference.value(variables) {
            Ok((of_reference, is_variable)) => {
                value.push_str(&of_reference);
                used.extend(is_variable.then(|| (reference.name.to_owned(), of_reference)));
            }
            Err(one) => unset.push(one),
        }
        rest = reference.rest;
    }
    value.push_str(rest);
    match unset.is_empty() {
        true => Ok((is_whole || value != text).then_some(Substituted {
            value,
            variables: used,
            is_whole,
        })),
        false => Err(unset),
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
            has_process: false,
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
            ("${NONE:-${A}}", "${A}"),
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
            "${1A}",
            "${A",
            "${A.b}",
            "${A }",
            "${ A}",
            "${A:b}",
            "${A-b}",
            "${A:-b",
            "${\u{c4}}",
            "$ {A}",
            "{A}",
        ] {
            assert_eq!(substitute(text, &variables()), Ok(None), "{text}");
        }
    }

    #[test]
    fn two_dollars_stand_for_the_characters() {
        for (text, expected) in [
            ("$${A}", "${A}"),
            ("$${status}", "${status}"),
            ("a$${${A}", "a${one"),
            ("$$${A}", "$${A}"),
            ("$$", "$$"),
            ("$$A", "$$A"),
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
            ("${NONE:-${NONE:-}", true),
            ("${A}${A}", false),
            (" ${A}", false),
            ("${A} ", false),
            ("$${${A}", false),
            ("${x${A}", false),
        ] {
            let substituted = substitute(text, &variables()).expect(text).expect(text);
            assert_eq!(substituted.is_whole, expected, "{text}");
        }
    }

    #[test]
    fn all_that_is_not_set_is_told() {
        let unset = substitute("${X}${A}${Y_1}${X:-}", &variables()).expect_err("unset");
        let names: Vec<_> = unset.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["X", "Y_1"]);
    }

    #[test]
    fn lines_of_a_file() {
        let text = "# comment\n\nA=1\r\n  B_b= x=y # z\nC=\n_9=\u{e4}";
        let given = parse(text).expect(text);
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let expected = [("A", "1"), ("B_b", " x=y # z"), ("C", ""), ("_9", "\u{e4}")];
        assert_eq!(given, expected);
        for (text, line, reason) in [
            ("A=1\nB", 2, "a line is `NAME=VALUE`"),
            ("export A=1", 1, "is no name"),
            ("=1", 1, "is no name"),
            ("1A=1", 1, "is no name"),
            ("A =1", 1, "is no name"),
            ("A=1\n\nA=2", 3, "`A` is given twice"),
            ("A=\"1\"", 1, "the quotes around the value of `A`"),
            ("A='1'", 1, "the quotes around the value of `A`"),
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
