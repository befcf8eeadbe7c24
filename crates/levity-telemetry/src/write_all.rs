//! Writing to a descriptor that the parent process may have made non-blocking.

use std::fs::File;
use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, poll};

/// Writes all of `bytes`. Blocks, even if the descriptor is non-blocking: a parent process may hand down such
/// a standard output or error.
///
/// # Errors
/// The error of the system, with the number of bytes that were written before it.
pub fn write_all(mut file: &File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_writable(file).map_err(|error| (written, error))?;
            }
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

fn wait_writable(file: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn nonblocking_pipe() -> (File, File) {
        let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().expect("pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
        (reader.into(), writer.into())
    }

    #[test]
    fn a_nonblocking_pipe_is_waited_for() {
        let (mut reader, writer) = nonblocking_pipe();
        let sent: Vec<u8> = (0..1 << 20).map(|n| n as u8).collect();
        let expected = sent.clone();
        let thread = std::thread::spawn(move || write_all(&writer, &sent).is_ok());
        let mut got = Vec::new();
        reader.read_to_end(&mut got).expect("read");
        assert!(thread.join().expect("writer thread"));
        assert!(got == expected);
    }
}
