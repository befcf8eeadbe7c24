//! Small files with certificates, keys and state.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The maximum size of a file with certificates or a key, in bytes. A larger one is most likely another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a file. Blocks.
///
/// # Errors
/// In words, with the path.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    whole(path, read_some(path))
}

/// The content of a file; `None` if there is no such file. Blocks.
///
/// # Errors
/// In words, with the path, when it is not known what the file has, or whether it is there.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match read_some(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => whole(path, read).map(Some),
    }
}

/// The content of a file up to a byte more than it may have.
fn read_some(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn whole(path: &Path, read: io::Result<Vec<u8>>) -> Result<Vec<u8>, String> {
    let name = path.display();
    let bytes = read.map_err(|error| format!("{name} cannot be read: {error}"))?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("{name} has more than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}

/// What the name of a file ends with that is not whole yet, before [`unique`] digits. No host has such a name.
const TEMPORARY: char = ',';

/// The age after which nobody is about to finish a file.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// The length of what [`unique`] gives.
const UNIQUE_CHARS: usize = 16;

/// Writes a file, whole or not at all: what was there before stays until the new content is on the disk. Several tasks and machines
/// may do so at the same time. Blocks.
///
/// # Errors
/// When it cannot be written, such as on a full disk.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = temporary(path)?;
    let written = write_new(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}

/// Random digits, for the name of a file that nobody else has.
///
/// # Errors
/// When the machine has no random numbers.
pub fn unique() -> io::Result<String> {
    let mut bytes = [0; UNIQUE_CHARS / 2];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// Removes what is left in `folder` of writers that have died. Blocks.
///
/// # Errors
/// When the folder cannot be read or written.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    let mut left = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_temporary(&path) {
            left.push(path);
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let now = now_in(folder)?;
    for path in left {
        // Another server may have been quicker.
        let modified = fs::metadata(&path).and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > TEMPORARY_AGE_MAX) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// The time by the clock that gives the files in `folder` theirs: it may be that of another machine. Blocks.
///
/// # Errors
/// When the folder cannot be written.
pub fn now_in(folder: &Path) -> io::Result<SystemTime> {
    let path = temporary(&folder.join("now"))?;
    let file = File::create_new(&path)?;
    let modified = file.metadata().and_then(|meta| meta.modified());
    fs::remove_file(path)?;
    modified
}

fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("{TEMPORARY}{}", unique()?));
    Ok(name.into())
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let end = name.and_then(|name| Some(name.rsplit_once(TEMPORARY)?.1));
    end.is_some_and(|end| {
        end.len() == UNIQUE_CHARS && end.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Makes a folder, and those above it, for its user only. One that is there stays as it is. Blocks.
///
/// # Errors
/// When it cannot be made.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode);
    let mut file = file.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_old_leftovers_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let make = |name: &str, age: Duration| {
            let file = File::create(at(name)).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("a time");
        };
        let old = TEMPORARY_AGE_MAX * 2;
        make("a.pem,0123456789abcdef", old);
        make("b.pem,0123456789abcdef", Duration::ZERO);
        make("c.pem,short", old);
        make("d.pem", old);
        write(&at("e.pem"), b"content", 0o600).expect("written");
        remove_leftovers(folder.path()).expect("read");
        let kept = ["b.pem,0123456789abcdef", "c.pem,short", "d.pem", "e.pem"];
        assert_eq!(names(folder.path()), kept);
    }

    #[test]
    fn a_file_that_is_not_there_is_no_error_and_one_that_cannot_be_read_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "content").expect("written");
        assert_eq!(read_if_there(&at("none")), Ok(None));
        assert_eq!(read_if_there(&at("file")), Ok(Some(b"content".to_vec())));
        for unusable in [folder.path().to_owned(), at("file").join("below")] {
            let reason = read_if_there(&unusable).expect_err("no file");
            assert!(reason.contains(" cannot be read: "), "{reason}");
        }
    }

    #[test]
    fn names_of_temporary_files_are_told_apart() {
        let path = Path::new("/a/b.json");
        let [one, two] = [temporary(path), temporary(path)].map(|one| one.expect("random numbers"));
        assert_ne!(one, two);
        assert!(is_temporary(&one) && !is_temporary(path));
    }
}
