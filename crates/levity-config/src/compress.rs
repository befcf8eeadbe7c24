//! The codings of compression and their levels.

use levity_wire::encoding::Coding;

use crate::section::{Section, Text};
use crate::suggest::nearest;

/// A coding that responses may get, and how much work goes into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressCoding {
    /// The coding.
    pub coding: Coding,
    /// The level of its encoder; `None` for the default. See [`levels`].
    pub level: Option<u8>,
}

/// The lowest and the highest level of an encoder.
pub fn levels(coding: Coding) -> (u8, u8) {
    match coding {
        Coding::Zstd | Coding::Dcz => (1, 19),
        Coding::Brotli | Coding::Dcb => (0, 11),
        Coding::Gzip => (1, 9),
    }
}

/// `compress_codings`
pub(crate) fn codings(section: &Section<'_>, name: &str) -> Option<Vec<CompressCoding>> {
    let mut codings: Vec<CompressCoding> = Vec::new();
    for given in section.names(name)? {
        let Some(coding) = coding(&given) else {
            continue;
        };
        match codings.iter().any(|other| other.coding == coding.coding) {
            true => given.refuse(format!("`{}` is given twice", coding.coding.name())),
            false => codings.push(coding),
        }
    }
    Some(codings)
}

fn coding(given: &Text<'_>) -> Option<CompressCoding> {
    let (name, level) = match given.text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (given.text, None),
    };
    let Some(coding) = named(name) else {
        let help = match meant(name) {
            Some(meant) => {
                let text = given.text.replacen(name, meant.name(), 1);
                format!("did you mean \"{text}\"?")
            }
            None => format!("{}, with a level as in \"br:5\"", one_of_all()),
        };
        given.refuse_with(format!("`{name}` is not a coding"), help);
        return None;
    };
    let (lowest, highest) = levels(coding);
    let in_range = |level: &u8| (lowest..=highest).contains(level);
    let number = level.map(|level| level.parse().ok().filter(in_range));
    if number == Some(None) {
        let message = format!("the level of `{name}` must be from {lowest} to {highest}");
        given.refuse(message);
        return None;
    }
    Some(CompressCoding {
        coding,
        level: number.flatten(),
    })
}

/// `precompressed`
pub(crate) fn precompressed(section: &Section<'_>, name: &str) -> Option<Vec<Coding>> {
    let mut codings = Vec::new();
    for given in section.names(name)? {
        let text = given.text;
        let Some(coding) = named(text) else {
            given.refuse_with(format!("`{text}` is not a coding"), help_on_file(text));
            continue;
        };
        if codings.contains(&coding) {
            given.refuse(format!("`{text}` is given twice"));
        }
        codings.push(coding);
    }
    Some(codings)
}

/// What to write in place of `text` as the coding of a precompressed file.
fn help_on_file(text: &str) -> String {
    let name = text.split_once(':').map(|(name, _)| name);
    if let Some(coding) = name.and_then(named) {
        let name = coding.name();
        return format!("write \"{name}\": it has no level, `levity precompress` makes the files");
    }
    match meant(text) {
        Some(coding) => format!("did you mean \"{}\"?", coding.name()),
        None => one_of_all(),
    }
}

fn named(name: &str) -> Option<Coding> {
    Coding::ALL.into_iter().find(|coding| coding.name() == name)
}

/// The coding that another name stands for: that of its program or its files, or a misspelt one.
fn meant(name: &str) -> Option<Coding> {
    match name.to_ascii_lowercase().as_str() {
        "brotli" => Some(Coding::Brotli),
        "gz" => Some(Coding::Gzip),
        "zstandard" => Some(Coding::Zstd),
        _ => named(nearest(name, Coding::ALL.map(Coding::name))?),
    }
}

fn one_of_all() -> String {
    let names = Coding::ALL.map(|coding| format!("\"{}\"", coding.name()));
    format!("one of {}", names.join(", "))
}
