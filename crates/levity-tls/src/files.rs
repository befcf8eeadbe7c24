//! Small files with certificates, keys and state.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process;

/// The maximum size of a file with certificates or a key, in bytes. A larger one is most likely another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a file. Blocks.
///
/// # Errors
/// In words, with the path.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let name = path.display();
    read.map_err(|error| format!("{name} cannot be read: {error}"))?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("{name} has more than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}

/// Writes a file, whole or not at all: what was there before stays until the new content is on the disk. Several processes may
/// do so at the same time. Blocks.
///
/// # Errors
/// When it cannot be written, such as on a full disk.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".new{}", process::id()));
    let temporary = Path::new(&temporary);
    let written = write_new(temporary, bytes, mode).and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
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
    let file = options.write(true).create(true).truncate(true).mode(mode);
    let mut file = file.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
