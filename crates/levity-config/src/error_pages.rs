//! `error_pages` and `replace_errors`: pages in place of built-in ones and of an upstream's errors.

use std::str::FromStr;

use crate::section::Section;

/// One status of an error, or all of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statuses {
    /// `404`
    One(u16),
    /// `4xx` or `5xx`: its first digit.
    Class(u16),
}

impl Statuses {
    /// Whether `status` is among them.
    #[must_use]
    pub fn include(self, status: u16) -> bool {
        match self {
            Self::One(one) => status == one,
            // What HTTP does not know counts as 5xx (RFC 9110, 15).
            Self::Class(digit) => (status / 100).min(5) == digit,
        }
    }
}

impl FromStr for Statuses {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "4xx" => Ok(Self::Class(4)),
            "5xx" => Ok(Self::Class(5)),
            _ => {
                let status = text.parse().map_err(drop)?;
                let is_error = text.len() == 3 && (400..=599).contains(&status);
                is_error.then_some(Self::One(status)).ok_or(())
            }
        }
    }
}

const STATUSES: &str = "a status from 400 to 599, \"4xx\" or \"5xx\"";

/// Pairs of statuses and of paths beneath the root; `None` when the key is absent.
pub(crate) fn pages(section: &Section<'_>, name: &str) -> Option<Vec<(Statuses, String)>> {
    let mut pages = Vec::new();
    for (statuses, path) in section.has(name).then(|| section.pairs(name))? {
        if !path.text.starts_with('/') || path.text.ends_with('/') || path.text.contains(['?', '#'])
        {
            let help = "a path beneath `root`, such as \"/404.html\"";
            path.refuse_with(format!("`{}` is not the path of a page", path.text), help);
        }
        match statuses.text.parse() {
            Ok(parsed) => pages.push((parsed, path.text.to_owned())),
            Err(()) => statuses.refuse_with(
                format!("`{}` is not the status of an error", statuses.text),
                STATUSES,
            ),
        }
    }
    Some(pages)
}

/// A list of statuses; `None` when the key is absent or wrong.
pub(crate) fn list(section: &Section<'_>, name: &str) -> Option<Vec<Statuses>> {
    let mut list = Vec::new();
    for given in section.names(name)? {
        match given.text.parse() {
            Ok(statuses) => list.push(statuses),
            Err(()) => given.refuse_with(
                format!("`{}` is not the status of an error", given.text),
                STATUSES,
            ),
        }
    }
    Some(list)
}
