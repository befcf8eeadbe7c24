//! What handlers have in common of what they do with a request, in words.

use std::io;

use levity_config::NamePattern;
use rustix::io::Errno;

use super::Outcome;
use crate::explanation::{Explanation, Topic};
use crate::resolve::Found;
use crate::resolve::servable::object::RunnableScript;
use crate::route::Files;

/// Why a request for a file is refused with 405.
pub(super) const METHODS_OF_FILES: &str = "files are for GET, HEAD and OPTIONS only";

/// What follows after a handler that may leave the request to the next one.
pub(super) fn goes_on(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Response(response) => format!(" answers with {}", response.status),
        _ => ": the next handler follows".to_owned(),
    }
}

/// Where a redirect leads.
pub(super) fn redirected_to(outcome: &Outcome<'_>) -> Option<String> {
    let Outcome::Response(response) = outcome else {
        return None;
    };
    let location = response.fields.value("location")?;
    Some(String::from_utf8_lossy(location).into_owned())
}

/// Says what a search for `path` among `files` has found.
pub(super) fn search(
    files: &Files,
    path: &[u8],
    found: &io::Result<Found>,
    explanation: &Explanation,
) {
    let root = files.root.last();
    let (root, path) = (root.path().display(), String::from_utf8_lossy(path));
    let names_folder = path.is_empty() || path.ends_with('/');
    let found = match found {
        Ok(Found::File(file, _)) => {
            let what = match file.led.index {
                None => "a file".to_owned(),
                Some(number) => {
                    let name = String::from_utf8_lossy(&files.index[number]);
                    format!("its index file {name}")
                }
            };
            format!("{what} of {} bytes", file.entry.meta.size)
        }
        Ok(Found::Directory(_)) if !names_folder => {
            "a folder, but the path has no slash at its end".to_owned()
        }
        Ok(Found::Directory(_)) => "a folder without index".to_owned(),
        Err(error) => error.to_string(),
    };
    explanation.add(Topic::File, format!("{root}/{path}: {found}"));
}

/// Says which script among `files` runs.
pub(super) fn script(files: &Files, script: &RunnableScript, explanation: &Explanation) {
    let root = files.root.last();
    let name = String::from_utf8_lossy(script.name());
    let mut text = format!("{}/{name}: the script that runs", root.path().display());
    if let Some(info) = script.info() {
        let info = String::from_utf8_lossy(info);
        text.push_str(&format!(", with /{info} as its PATH_INFO"));
    }
    explanation.add(Topic::File, text);
}

/// Says why `path` is not looked for among `files`.
pub(super) fn hidden(files: &Files, path: &[u8], explanation: &Explanation) {
    let reason = match files.hidden_name(path) {
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            let is_in_list = |pattern: &NamePattern| pattern.matches(name.as_bytes());
            match files.names.hidden.iter().any(is_in_list) {
                true => format!("the name `{name}` is in `hide`"),
                false => {
                    format!("the name `{name}` begins with a dot, and `show` does not have it")
                }
            }
        }
        None => "it is a script, whose source is not sent".to_owned(),
    };
    let path = String::from_utf8_lossy(path);
    explanation.add(Topic::File, format!("/{path}: not looked for, {reason}"));
    explanation.set_reason(reason);
}

/// Why a file cannot be sent.
pub(super) fn failure(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "nothing has this name".to_owned(),
        Some(Errno::NOTDIR) => "a part of the path before its end is no folder".to_owned(),
        Some(Errno::ACCESS | Errno::PERM) => "whoever runs this command may not read it".to_owned(),
        Some(_) if levity_disk::left_root(error) => {
            "a symbolic link leaves the root; `symlinks = \"follow\"` allows that".to_owned()
        }
        _ => error.to_string(),
    }
}
