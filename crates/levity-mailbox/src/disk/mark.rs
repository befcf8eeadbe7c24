//! The mark that the database is damaged: the next start sets it aside.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};

use super::failure::Failure;
use super::schema::DATABASE;

/// The file.
const DAMAGED: &str = "damaged";

pub(super) struct Mark {
    path: PathBuf,
    /// Kept open: the close of a file ends the locks that SQLite has on it.
    database: Arc<File>,
    report: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Mark {
    /// The mark of a database of which this is the file.
    pub fn new(
        folder: &Path,
        database: Arc<File>,
        report: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        Self {
            path: path(folder),
            database,
            report,
        }
    }

    /// Whether a failure says that the database is damaged, and nothing has said so before. A second look at the disk may find
    /// something else: after this the kernel has no pages of the database that a new connection could get.
    pub fn is_in_doubt(&self, failure: &Failure) -> bool {
        let is_in_doubt = matches!(failure, Failure::Damaged(_)) && !self.path.exists();
        if is_in_doubt {
            forget_pages(&self.database);
        }
        is_in_doubt
    }

    /// Makes the mark, if that is what a failure says.
    pub fn make(&self, failure: &Failure) {
        if !matches!(failure, Failure::Damaged(_)) || self.path.exists() {
            return;
        }
        let after = match write(&self.path, "") {
            Ok(()) => "the next start sets the database aside and begins an empty one".to_owned(),
            Err(error) => format!("and {} cannot be made: {error}", self.path.display()),
        };
        (self.report)(&format!("{failure}: {after}"));
    }
}

/// Has the next reads of a file ask the disk.
pub(super) fn forget_pages(file: &File) {
    // Without it, they find the same.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

pub(super) fn is_made(folder: &Path) -> bool {
    path(folder).exists()
}

/// Keeps the database under another name, with the number `fresh` in it, or that of a start which was killed while it did the
/// same. Returns the number.
pub(super) fn set_aside(folder: &Path, fresh: u64) -> io::Result<u64> {
    let mark = path(folder);
    let noted = fs::read_to_string(&mark).ok();
    let number = noted.and_then(|number| number.parse().ok());
    let number = number.unwrap_or(fresh);
    // Without space for the mark, only a kill right now could part the two files.
    let _ = write(&mark, &number.to_string());
    // The log first: a new database would take it for its own.
    for ending in ["-wal", ""] {
        let aside = folder.join(format!("messages.damaged-{number}.db{ending}"));
        unless_missing(fs::rename(
            folder.join(format!("{DATABASE}{ending}")),
            aside,
        ))?;
    }
    unless_missing(fs::remove_file(mark))?;
    Ok(number)
}

fn path(folder: &Path) -> PathBuf {
    folder.join(DAMAGED)
}

fn write(mark: &Path, content: &str) -> io::Result<()> {
    let mut file = File::create(mark)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
