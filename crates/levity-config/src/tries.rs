//! `try`: what answers at a site or route, in order.

use std::ops::RangeInclusive;

use crate::foreign;
use crate::name_pattern::is_hidden;
use crate::section::{Element, Section, Text};
use crate::suggest::nearest;

/// One of the things that are tried in order. The first that can answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Try {
    /// `"file"`: the file that the path names. Unless [`Directory`](Self::Directory) is tried too, also the index file
    /// of a folder.
    File,
    /// `"file.html"`: the file whose name is the path with this suffix behind it, which begins with a dot.
    FileWith(String),
    /// `"directory"`: the folder that the path names: its index file, or a listing where that is on.
    Directory,
    /// `"/index.html"`: the file at this path beneath the root. It begins with a slash.
    Path(String),
    /// `"proxy"`: the upstream.
    Proxy,
    /// `404`: an error of this status.
    Status(u16),
}

/// The statuses of errors.
const STATUSES: RangeInclusive<u16> = 400..=599;

const PROXY_HELP: &str = "add proxy = \"NAME\", the name of an [[upstream]]";

const WORDS: &[&str] = &["file", "file.html", "directory", "proxy"];

impl Try {
    /// Whether a file or folder beneath the root may answer.
    #[must_use]
    pub fn asks_files(&self) -> bool {
        !matches!(self, Self::Proxy | Self::Status(_))
    }

    /// Whether the path of a request names what is looked for, unlike a fixed file for all requests.
    pub(crate) fn looks_for_path(&self) -> bool {
        matches!(self, Self::File | Self::FileWith(_) | Self::Directory)
    }

    /// Whether it answers every request, so that nothing behind it is tried.
    fn always_answers(&self) -> bool {
        matches!(self, Self::Proxy | Self::Status(_))
    }
}

/// What the steps can use, of the table or of the site around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) root: bool,
    pub(crate) proxy: bool,
}

/// Reads `try`; `None` when it is absent or no array.
pub(crate) fn read(section: &Section<'_>, has: Given) -> Option<Vec<Try>> {
    let given = section.names_and_numbers("try")?;
    if given.is_empty() {
        section.report("try", "it is empty", None);
    }
    let mut tries: Vec<Try> = Vec::new();
    for element in given {
        let (one, at) = match element {
            Element::Text(text) => (step(&text), text),
            Element::Number(digits) => (status(&digits), digits),
        };
        let Some(one) = one else { continue };
        if tries.contains(&one) {
            at.refuse(format!("`{}` is given twice", at.text));
        } else if let Some(last) = tries.iter().find(|one| one.always_answers()) {
            let last = match last {
                Try::Status(status) => status.to_string(),
                _ => "proxy".to_owned(),
            };
            at.refuse(format!("`{}` must come before `{last}`", at.text));
        } else if one.asks_files() && !has.root {
            at.refuse(format!("`{}` needs a `root`, and there is none", at.text));
        } else if one == Try::Proxy && !has.proxy {
            let message = "`try` needs an upstream, and no `proxy` names one";
            at.refuse_with(message, PROXY_HELP);
        }
        tries.push(one);
    }
    Some(tries)
}

fn step(given: &Text<'_>) -> Option<Try> {
    let text = given.text;
    match text {
        "file" => return Some(Try::File),
        "directory" => return Some(Try::Directory),
        "proxy" => return Some(Try::Proxy),
        _ => {}
    }
    let suffix = text.strip_prefix("file").filter(|suffix| is_suffix(suffix));
    if let Some(suffix) = suffix {
        return Some(Try::FileWith(suffix.to_owned()));
    }
    if text.starts_with('/') {
        return path(given);
    }
    let help = if let Some(help) = foreign::word("try", text) {
        help.to_owned()
    } else if text.contains(['$', '{']) {
        "a path is fixed; `script_index` runs a script for every path".to_owned()
    } else if let Some(nearest) = nearest(text, WORDS.iter().copied()) {
        format!("did you mean \"{nearest}\"?")
    } else {
        "one of \"file\", \"file.html\", \"directory\", \"/index.html\", \"proxy\", 404".to_owned()
    };
    given.refuse_with(format!("`{text}` is not a value of `try`"), help);
    None
}

/// Whether names of files can end so: a dot and more.
fn is_suffix(text: &str) -> bool {
    text.len() > 1 && text.starts_with('.') && !text.contains(['/', '\0', '$', '{'])
}

/// A file at a fixed path beneath the root.
fn path(given: &Text<'_>) -> Option<Try> {
    let text = given.text;
    let is_wrong = |segment: &str| matches!(segment, "" | "." | "..");
    let is_hidden = |segment: &str| is_hidden(segment.as_bytes());
    let help = if text.contains(['?', '$', '{', '*', '\0']) || text.ends_with(".php") {
        "a file is sent as it is, without a query; `script_index` runs a script"
    } else if text.ends_with('/') {
        "name the file, such as \"/index.html\""
    } else if text[1..].split('/').any(is_wrong) {
        "a path without `//`, `.` and `..`"
    } else if text.split('/').any(is_hidden) {
        "names with a leading dot are not served"
    } else {
        return Some(Try::Path(text.to_owned()));
    };
    given.refuse_with(format!("`{text}` is not the path of a file"), help);
    None
}

fn status(given: &Text<'_>) -> Option<Try> {
    let status = given.text.parse().ok();
    let status = status.filter(|status| STATUSES.contains(status));
    if status.is_none() {
        let help = "a number is the status of an error, 400 to 599; `respond` gives others";
        given.refuse_with(format!("`{}` is not a value of `try`", given.text), help);
    }
    status.map(Try::Status)
}
