//! Writing to open files.

use std::io;

use rustix::io::{Errno, retry_on_intr};

use super::meta::Kind;
use super::open_file::OpenFile;

/// Writes all of `bytes` at `offset`. Blocks.
pub(crate) fn write(file: &OpenFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let writing = file.writing()?;
    write_all(file, bytes, offset)?;
    writing.reach(offset + bytes.len() as u64);
    Ok(())
}

/// Writes all of `bytes` at the end, and returns the offset. Blocks.
pub(crate) fn append(file: &OpenFile, bytes: &[u8]) -> io::Result<u64> {
    let (writing, len) = (file.writing()?, bytes.len() as u64);
    let offset = writing.reserve(len);
    let written = write_all(file, bytes, offset);
    if written.is_err() {
        writing.give_back(offset, len);
    }
    written.map(|()| offset)
}

fn write_all(file: &OpenFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        let at = offset.saturating_add(written as u64);
        match rustix::io::pwrite(file.as_fd(), &bytes[written..], at) {
            // No file system returns 0, but the loop would not end.
            Ok(0) => return Err(Errno::IO.into()),
            // Short if the device is full or the limit on sizes is reached: the next call fails with the reason.
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes the content of a file durable, or the names in a directory. After an error every later call for `file` fails
/// with the same. Blocks.
pub(crate) fn sync(file: &OpenFile) -> Result<(), Errno> {
    sync_by(file, || match file.meta.kind {
        // The names are the content of a directory, which `fdatasync` need not write everywhere.
        Kind::Directory => rustix::fs::fsync(file.as_fd()),
        Kind::Regular | Kind::Other => rustix::fs::fdatasync(file.as_fd()),
    })
}

/// As [`sync`], by `call`.
pub(crate) fn sync_by(
    file: &OpenFile,
    call: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match file.sync_error() {
        Some(errno) => Err(errno),
        None => retry_on_intr(call).inspect_err(|errno| file.sync_failed(*errno)),
    }
}
