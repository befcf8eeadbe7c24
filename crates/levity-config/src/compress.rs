//! The codings of compression and their levels.

use levity_wire::encoding::Coding;

use crate::section::{Section, Text};

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
    let Some(coding) = Coding::ALL.into_iter().find(|coding| coding.name() == name) else {
        let names = Coding::ALL.map(|coding| format!("\"{}\"", coding.name()));
        let help = format!("one of {}, with a level as in \"br:5\"", names.join(", "));
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
