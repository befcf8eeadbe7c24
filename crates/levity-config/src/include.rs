//! The strings of `include`: names of files, and patterns of names.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use levity_disk::patiently;

use crate::name_pattern::NamePattern;
use crate::on_disk::{found, others_may_write};

/// What the names of files end with: an editor, a package manager or a person who turns a file off gives it another end.
const SUFFIX: &str = ".toml";

/// What a string stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matched {
    /// In the order of their bytes.
    pub(crate) paths: Vec<PathBuf>,
    /// Folders of patterns in which others may put files, and who.
    pub(crate) writable: Vec<(PathBuf, String)>,
}

/// The files that `given` names, relative to `folder`. More than `count_max` of them need not be all. Whether a file that is
/// named without a star is there is not looked at. May block.
///
/// # Errors
/// In words, and whether that is only that a folder does not respond.
pub(crate) fn expand(
    folder: &Path,
    given: &str,
    count_max: usize,
) -> Result<Matched, (String, bool)> {
    let wrong = |reason: &str| (format!("`{given}` {reason}"), false);
    let pattern = Path::new(given);
    let name = pattern.file_name().filter(|_| !given.ends_with('/'));
    let Some(name) = name.filter(|_| !given.contains('\0')) else {
        return Err(wrong("is not the path of a file"));
    };
    if !is_pattern(given) {
        return match name.as_bytes().ends_with(SUFFIX.as_bytes()) {
            true => Ok(Matched {
                paths: vec![folder.join(given)],
                ..Matched::default()
            }),
            false => Err(wrong("does not end in `.toml`")),
        };
    }
    let mut matched = Matched {
        paths: vec![folder.to_owned()],
        ..Matched::default()
    };
    let mut components = pattern.components().peekable();
    while let Some(component) = components.next() {
        let is_last = components.peek().is_none();
        matched.descend(component, is_last, count_max)?;
    }
    matched
        .paths
        .sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(matched)
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

impl Matched {
    /// Goes on from the folders so far to what a component of the path names in them.
    fn descend(
        &mut self,
        component: Component<'_>,
        is_last: bool,
        count_max: usize,
    ) -> Result<(), (String, bool)> {
        if component == Component::CurDir {
            return Ok(());
        }
        let text = component.as_os_str();
        let pattern = text.to_str().filter(|text| is_pattern(text));
        let Some(pattern) = pattern else {
            self.paths.iter_mut().for_each(|path| path.push(text));
            return Ok(());
        };
        let mut paths = Vec::new();
        for folder in std::mem::take(&mut self.paths) {
            let wanted = NamePattern::new(pattern);
            let left = count_max + 1 - paths.len();
            let listed = patiently(here(&folder), move |folder| {
                list(folder, &wanted, is_last, left)
            });
            match found(listed) {
                Ok(listed) => {
                    paths.extend(listed.names.iter().map(|name| folder.join(name)));
                    self.writable
                        .extend(listed.others.map(|others| (folder, others)));
                }
                // Nothing matches there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let is_silent = error.kind() == io::ErrorKind::TimedOut;
                    return Err((
                        format!("cannot list {}: {error}", here(&folder).display()),
                        is_silent,
                    ));
                }
            }
            if paths.len() > count_max {
                break;
            }
        }
        self.paths = paths;
        Ok(())
    }
}

/// What is in a folder.
struct Listed {
    names: Vec<OsString>,
    /// Who besides root and the user of the server may put files there.
    others: Option<String>,
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
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let is_wanted = is_wanted(&name) && (is_last || folder.join(&name).is_dir());
        if is_wanted && names.len() < count_max {
            names.push(name);
        }
    }
    Ok(Listed {
        names,
        others: others_may_write(&fs::metadata(folder)?),
    })
}

/// The path of a folder, which is empty for the one of this process.
fn here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}
