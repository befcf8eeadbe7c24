//! The strings of `include`: names of files, and patterns of names.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use levity_disk::{patiently, patiently_for_each};

use crate::name_pattern::NamePattern;
use crate::on_disk::{Writers, found};

/// What the names of files end with: an editor, a package manager or a person who turns a file off gives it another end.
const SUFFIX: &str = ".toml";

/// What a string stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matched {
    /// In the order of their bytes.
    pub(crate) paths: Vec<PathBuf>,
    /// Folders of patterns, which are listed.
    pub(crate) listed: Vec<PathBuf>,
    /// Folders of patterns in which others may put files, and who.
    pub(crate) writable: Vec<(PathBuf, String)>,
    /// For each folder of patterns the files that seem to be meant, but have another end, in the order of their bytes.
    pub(crate) passed_over: Vec<Vec<PathBuf>>,
    /// A folder that a pattern needs, and that is not there.
    pub(crate) absent: Option<PathBuf>,
    /// Whether the paths were found, so that one of them need not have what follows.
    has_star: bool,
}

/// What is wrong in words, and whether that is only that a folder does not respond.
type Failure = (String, bool);

/// The files that `given` names, relative to `folder`. More than `count_max` of them need not be all. Whether a file that is
/// named without a star is there is not looked at. May block.
///
/// # Errors
/// When it names no files, or a folder cannot be listed.
pub(crate) fn expand(
    folder: &Path,
    given: &str,
    count_max: usize,
    writers: &Writers,
) -> Result<Matched, Failure> {
    check(given).map_err(|reason| (format!("`{given}` {reason}"), false))?;
    let mut matched = Matched {
        paths: vec![folder.to_owned()],
        ..Matched::default()
    };
    let mut components = Path::new(given).components().peekable();
    while let Some(component) = components.next() {
        let is_last = components.peek().is_none();
        let name = component.as_os_str();
        match name.to_str().filter(|text| is_pattern(text)) {
            Some(pattern) => matched.descend(pattern, is_last, count_max, writers)?,
            None if component == Component::CurDir => {}
            None => matched.push(name, is_last),
        }
        if !is_last && matched.paths.len() > count_max {
            let message = format!("`{given}` looks into more than {count_max} folders");
            return Err((message, false));
        }
    }
    matched
        .paths
        .sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(matched)
}

/// Whether it may name files; otherwise why not.
fn check(given: &str) -> Result<(), &'static str> {
    let name = Path::new(given).file_name();
    if name.is_none() || given.ends_with('/') || given.contains('\0') {
        return Err("is not the path of a file");
    }
    if given.starts_with('~') {
        return Err("begins with `~`, which is not expanded: write the path in full");
    }
    if given.contains("**") {
        return Err(
            "has `**`: `*` stands for text within one name; name each depth by itself, as in `a/*.toml` and `a/*/*.toml`",
        );
    }
    if given.contains(['[', ']', '{', '}']) {
        return Err(
            "has brackets, which stand for nothing here: `*` stands for any text within a name, `?` for one character",
        );
    }
    match given.ends_with(SUFFIX) || given.ends_with('*') {
        true => Ok(()),
        false => Err("does not end in `.toml`: only such files are included"),
    }
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

impl Matched {
    /// Goes on from the folders so far to the names in them that match.
    fn descend(
        &mut self,
        pattern: &str,
        is_last: bool,
        count_max: usize,
        writers: &Writers,
    ) -> Result<(), Failure> {
        let mut paths = Vec::new();
        for folder in std::mem::take(&mut self.paths) {
            self.listed.push(here(&folder).to_owned());
            let wanted = NamePattern::new(pattern);
            let left = count_max + 1 - paths.len();
            let listed = patiently(here(&folder), move |folder| {
                list(folder, &wanted, is_last, left)
            });
            match found(listed) {
                Ok(listed) => {
                    paths.extend(listed.names.iter().map(|name| folder.join(name)));
                    let passed_over = listed.passed_over.iter().map(|name| folder.join(name));
                    self.passed_over.push(passed_over.collect());
                    let others = writers.others(&listed.meta);
                    self.writable.extend(others.map(|others| (folder, others)));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.absent = Some(folder).filter(|_| !self.has_star);
                }
                Err(error) => {
                    let is_silent = error.kind() == io::ErrorKind::TimedOut;
                    let shown = here(&folder).display();
                    return Err((format!("cannot list {shown}: {error}"), is_silent));
                }
            }
            if paths.len() > count_max {
                break;
            }
        }
        (self.paths, self.has_star) = (paths, true);
        Ok(())
    }

    /// Goes on to what is called `name`. Of files in folders that were found, those stay that are there, and links that lead nowhere.
    fn push(&mut self, name: &OsStr, is_last: bool) {
        self.paths.iter_mut().for_each(|path| path.push(name));
        if !is_last || !self.has_star {
            return;
        }
        let looked = patiently_for_each(&self.paths, |path| fs::symlink_metadata(path));
        let is_absent = |error: io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            )
        };
        let mut is_kept = looked
            .into_iter()
            .map(|meta| !found(meta).is_err_and(is_absent));
        self.paths.retain(|_| is_kept.next().expect("one of each"));
    }
}

/// What is in a folder.
struct Listed {
    names: Vec<OsString>,
    /// Files that match but for [`SUFFIX`], and that nobody has [turned off](is_off).
    passed_over: Vec<OsString>,
    /// That of the folder.
    meta: Metadata,
}

/// Up to `count_max` names in `folder` that match, of files if `is_last`, else of folders. Links lead to either.
fn list(
    folder: &Path,
    pattern: &NamePattern,
    is_last: bool,
    count_max: usize,
) -> io::Result<Listed> {
    let is_wanted = |name: &OsString| {
        let name = name.as_bytes();
        let has_end = !is_last || name.ends_with(SUFFIX.as_bytes());
        has_end && !name.starts_with(b".") && pattern.matches(name)
    };
    let stem = pattern.without_end(SUFFIX);
    let is_passed_over = |name: &OsString| {
        is_last && stem.matches(name.as_bytes()) && !is_off(name) && folder.join(name).is_file()
    };
    let (mut names, mut passed_over) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !is_wanted(&name) {
            passed_over.extend(Some(name).filter(is_passed_over));
        } else if names.len() < count_max && (is_last || folder.join(&name).is_dir()) {
            names.push(name);
        }
    }
    passed_over.sort_unstable();
    Ok(Listed {
        names,
        passed_over,
        meta: fs::metadata(folder)?,
    })
}

/// Whether a file is not meant to be included: a copy of an editor or a package manager, one that a person has given another end, or a
/// text for people.
fn is_off(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(['.', '#'])
        || name.starts_with("README")
        || name.ends_with(['~', '#'])
        || [SUFFIX, ".bak", ".dpkg-"]
            .iter()
            .any(|text| name.contains(text))
}

/// The path of a folder, which is empty for the one of this process.
fn here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}
