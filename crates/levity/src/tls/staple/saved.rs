//! Responses in files, so that a restart needs no request.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use levity_disk::read_patiently;
use levity_tls::files;

/// The folder within that of all state.
const FOLDER: &str = "ocsp";

/// The maximum number of bytes that are read of a file. A response has some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The mode of the files. They hold no secrets.
const MODE: u32 = 0o644;

/// The age at which a file is removed: that of a certificate which is not used any more.
const AGE_MAX: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The file for a certificate with the digest `id`.
pub(super) fn path(folder: &Path, id: &[u8]) -> PathBuf {
    let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(FOLDER).join(name).with_extension("der")
}

/// The content of a file, if there is one. Blocks.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    read_patiently(file, FILE_BYTES_MAX).ok()
}

/// Writes a file, whole or not at all, and removes old ones beside it. Blocks.
///
/// # Errors
/// In words, with the path.
pub(super) fn write(file: &Path, der: &[u8]) -> Result<(), String> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let written = files::create_private_folder(folder).and_then(|()| {
        files::write(file, der, MODE)?;
        // They do no harm.
        let _ = files::remove_leftovers(folder);
        remove_old(folder, SystemTime::now())
    });
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// Removes a file, which may be gone already. Blocks.
///
/// # Errors
/// In words, with the path.
pub(super) fn remove(file: &Path) -> Result<(), String> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Another server may remove some at the same time.
fn remove_old(folder: &Path, now: SystemTime) -> io::Result<()> {
    let is_old = |entry: &DirEntry| {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        modified.is_ok_and(|modified| modified + AGE_MAX < now)
    };
    let old = fs::read_dir(folder)?.flatten().filter(is_old);
    old.for_each(|entry| drop(fs::remove_file(entry.path())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_is_written_whole_and_old_ones_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let [new, old] = [[1; 32], [2; 32]].map(|id| path(folder.path(), &id));
        assert_eq!(read(&new), None);
        write(&old, b"old").expect("written");
        let left = folder.path().join(FOLDER).join("a.der,0123456789abcdef");
        let day = Duration::from_secs(24 * 60 * 60);
        for (path, age) in [(&old, AGE_MAX + day), (&left, day)] {
            let file = File::create(path).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("a time");
        }
        write(&new, b"first").expect("written");
        write(&new, b"second").expect("written");
        assert_eq!(read(&new).as_deref(), Some(&b"second"[..]));
        let left = fs::read_dir(folder.path().join(FOLDER)).expect("a folder");
        assert_eq!(left.count(), 1);
        remove(&new).expect("removed");
        remove(&new).expect("gone already");
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FOLDER), "").expect("written");
        let error = write(&path(folder.path(), &[0; 32]), b"").expect_err("no folder");
        assert!(error.contains("/ocsp/0000"), "{error}");
    }
}
