//! `upload`: requests that write files beneath the root of a site or route.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levity_disk::{check_writable, patiently};
use strum::{EnumString, VariantNames};

use crate::in_unit::remedy;
use crate::line::Line;
use crate::on_disk::found;
use crate::root::resolved;
use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;

const TABLE: &str = "upload";

/// What clients may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The methods that are permitted, each once; never empty.
    pub methods: Vec<UploadMethod>,
    /// The maximum size of a file in bytes.
    pub max_file_bytes: u64,
    /// The maximum size of all files beneath the root in bytes.
    pub quota_bytes: Option<u64>,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Whether missing folders on the way to a file are made.
    pub create_folders: bool,
    /// Whether a file is on the disk before the response.
    pub fsync: bool,
    /// How long an incomplete file is kept; zero keeps none.
    pub resume: Duration,
    /// The maximum number of incomplete files that are kept.
    pub resume_parts: usize,
}

/// A method that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "UPPERCASE")]
pub enum UploadMethod {
    /// Writes a file.
    Put,
    /// Removes a file or an empty folder.
    Delete,
    /// Makes a folder (RFC 4918).
    Mkcol,
}

/// `[site.upload]` and `[site.route.upload]`
pub(crate) const KEYS: &[Key] = documented! {
    /// The methods that are permitted: `"PUT"` writes a file, `"DELETE"` removes a file or an empty folder, `"MKCOL"` makes
    /// a folder.
    key("methods", Kind::Names, Some("[\"PUT\"]"));
    /// Size of one file; a larger one gets 413, before its content is sent if the client waits for that
    /// (`Expect: 100-continue`). `limits.body_bytes` does not count here.
    key("max_file_bytes", Kind::Size("0B", "1024TiB"), Some("100MiB"));
    /// Size of all files beneath the root, those of others and those that are being received included, and 1 KiB for each
    /// file and each folder; one that would exceed it gets 507. A file that replaces another one needs room only for what it
    /// is larger; until it does, such files may take up to `max_file_bytes` more in all. All files are counted before the
    /// first one is received, and again every 10 minutes. Without the key only the disk is the limit.
    key("quota_bytes", Kind::Size("0B", "1024TiB"), None);
    /// Whether a file that exists may be replaced; otherwise `PUT` of its name gets 409.
    key("overwrite", Kind::Boolean, Some("true"));
    /// Whether folders that do not exist are made on the way to a file, once it is complete; otherwise `PUT` gets 409.
    key("create_folders", Kind::Boolean, Some("false"));
    /// Whether file and name are on the disk before the response: a crash of the machine does not lose them then. It takes
    /// as long as the disk needs.
    key("fsync", Kind::Boolean, Some("false"));
    /// How long the part of a file that has arrived before its connection ended is kept for the rest. `0s` keeps none.
    /// [How](tasks/uploads.md#continuing) a client continues.
    key("resume", Kind::Duration("0s", "7d"), Some("1h"));
    /// Number of such parts beneath the root, and no more than a 32nd of the limit on open files; the oldest gives way. They
    /// count for `quota_bytes`.
    key("resume_parts", Kind::Count("1", "1024"), Some("64"));
};

/// The roots of the uploads so far, with their lines.
pub(crate) type Roots = RefCell<Vec<(PathBuf, Line)>>;

/// Reads the table; `None` when it is absent.
pub(crate) fn read(section: &Section<'_>) -> Option<Upload> {
    if !section.has_table(TABLE) {
        // Reports another kind of value.
        let _ = (section.has(TABLE) && !section.is_off(TABLE)).then(|| section.child(TABLE));
        return None;
    }
    let section = section.child(TABLE);
    let bytes = |key| section.optional_count(key).map(|bytes| bytes as u64);
    Some(Upload {
        methods: methods(&section),
        max_file_bytes: bytes("max_file_bytes").unwrap_or_default(),
        quota_bytes: bytes("quota_bytes"),
        overwrite: section.boolean_or_default("overwrite"),
        create_folders: section.boolean_or_default("create_folders"),
        fsync: section.boolean_or_default("fsync"),
        resume: section.duration("resume"),
        resume_parts: section.count("resume_parts"),
    })
}

fn methods(section: &Section<'_>) -> Vec<UploadMethod> {
    const KEY: &str = "methods";
    let Some(given) = section.names(KEY) else {
        return vec![UploadMethod::Put];
    };
    if section.is_empty_array(KEY) {
        section.report(KEY, "it is empty", None);
    }
    let mut methods = Vec::new();
    for given in given {
        let Some(method) = given.word(KEY, UploadMethod::VARIANTS) else {
            continue;
        };
        match methods.contains(&method) {
            true => given.refuse(format!("`{}` is given twice", given.text)),
            false => methods.push(method),
        }
    }
    methods
}

/// What matters of the location of a table.
pub(crate) struct Place<'a> {
    pub(crate) root: Option<&'a Path>,
    pub(crate) is_internal: bool,
    /// The key of what answers every request, such as `redirect`.
    pub(crate) answer: Option<&'static str>,
    /// Files may answer.
    pub(crate) asks_files: bool,
    /// Routes within it may be meant.
    pub(crate) has_routes: bool,
    /// There is no gate.
    pub(crate) is_open: bool,
    pub(crate) has_signed_urls: bool,
}

/// Reports a table of the section where nothing can be written, and roots of uploads within each other: files would have two
/// quotas, and two rules about who may write them.
pub(crate) fn check(section: &Section<'_>, place: &Place<'_>, roots: &Roots) {
    if !section.has_table(TABLE) {
        return;
    }
    let Some(root) = place.root else {
        return section.report(TABLE, "there is no `root` for the files", None);
    };
    if place.is_internal {
        let help = "an application writes files itself".to_owned();
        return section.report(TABLE, "nothing is written at internal routes", Some(help));
    }
    if !place.has_routes
        && let Some(key) = place.answer
    {
        let message = format!("`{key}` answers every request here");
        return section.report(TABLE, message, None);
    }
    if !place.has_routes && !place.asks_files {
        let help = "`try = [\"file\", \"proxy\"]` lets files answer too".to_owned();
        return section.report(TABLE, "all requests go to the upstream", Some(help));
    }
    if section.reads_files()
        && let Err(error) = found(patiently(root, |root| match root.is_dir() {
            true => check_writable(root),
            false => Ok(()),
        }))
        // A root that does not respond is noted.
        && error.kind() != io::ErrorKind::TimedOut
    {
        let remedy = remedy(root, &error);
        let message = format!("{} cannot be written to: {error}{remedy}", root.display());
        return section.report(TABLE, message, None);
    }
    check_nesting(section, root, roots);
    note_gates(section, place);
}

/// Notes who may write, where that may not be what is meant.
fn note_gates(section: &Section<'_>, place: &Place<'_>) {
    let note = if place.is_open {
        "everyone who can connect may write here; `basic_auth` or another gate would restrict that"
    } else if place.has_signed_urls {
        "a signed URL is good for every method: whoever has one to download a file may write it, too"
    } else {
        return;
    };
    section
        .reader
        .note(&section.span_of(TABLE), note.to_owned());
}

fn check_nesting(section: &Section<'_>, root: &Path, roots: &Roots) {
    let own = resolved(root, section.reads_files());
    let mut known = roots.borrow_mut();
    let mut others = known.iter().filter(|(other, _)| *other != own);
    let nested =
        others.find_map(
            |(other, line)| match (own.starts_with(other), other.starts_with(&own)) {
                (true, _) => Some((&own, other, line)),
                (_, true) => Some((other, &own, line)),
                _ => None,
            },
        );
    if let Some((inner, outer, line)) = nested {
        let message = format!(
            "{} lies in {}, and both take uploads; the other is on {line}",
            inner.display(),
            outer.display()
        );
        let help = "let routes of one root share it, with `strip_prefix` if they need one";
        section.report(TABLE, message, Some(help.to_owned()));
    }
    let line = section.reader.line(&section.span_of(TABLE));
    known.push((own, line));
}
