//! The output of the access log: a file that can be reopened, or standard output.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};

use crate::write_all::write_all;

/// Opens a log file for appending, creating it readable by its owner and group. May block.
///
/// # Errors
/// ENXIO for a pipe that nobody reads: to wait for a reader would keep the thread from ending.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    // From here on a slow reader is waited for.
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// Standard output without the standard library's lock and line buffer.
pub(super) fn standard() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// An open file, and whether its last line is complete.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// The last write failed in the middle of a line.
    torn: bool,
}

impl Output {
    pub(super) fn new(file: File) -> Self {
        Self { file, torn: false }
    }

    /// Appends whole lines. On an error, gives the number of lines that were not written whole. May block.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        self.mend()
            .and_then(|()| write_all(&self.file, lines))
            .map_err(|(written, error)| {
                let (done, lost) = lines.split_at(written);
                self.torn |= done.last().is_some_and(|&last| last != b'\n');
                (line_count(lost), error)
            })
    }

    /// Ends a torn line, so that the next does not continue it.
    fn mend(&mut self) -> Result<(), (usize, io::Error)> {
        if self.torn {
            write_all(&self.file, b"\n").map_err(|(_, error)| (0, error))?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Lines in a block: escapes leave one newline in each.
pub(super) fn line_count(block: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', block).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        let mut output = Output {
            file: writer.into(),
            torn: true,
        };
        output.append(b"next\n").expect("append");
        drop(output);
        let mut got = String::new();
        File::from(reader).read_to_string(&mut got).expect("read");
        assert_eq!(got, "\nnext\n");
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted() {
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let mut output = Output::new(full);
        let (lost, error) = output.append(b"one\ntwo\n").expect_err("no space");
        assert_eq!((lost, error.kind()), (2, io::ErrorKind::StorageFull));
    }
}
