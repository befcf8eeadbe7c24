//! Reading from a connection by lengths and ends, for either side of it.

use std::io::{self, ErrorKind, Read};

use super::socket::Socket;

/// Names and values, in the order they came.
pub type Fields = Vec<(String, Vec<u8>)>;

/// A connection and what was read from it too early.
pub struct Wire {
    pub socket: Socket,
    pub ahead: Vec<u8>,
}

impl Wire {
    pub fn new(socket: Socket) -> Self {
        let ahead = Vec::new();
        Self { socket, ahead }
    }

    /// Reads once. The end of the connection is an error of kind `UnexpectedEof`.
    pub fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 * 1024];
        // A read with a time-out is interrupted even by a signal that has no handler, such as SIGCONT.
        let count = loop {
            match self.socket.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        match count {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.ahead.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    /// The next `len` bytes; those that came stay where they are if there are not as many.
    pub fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < len {
            self.read_more()?;
        }
        Ok(self.ahead.drain(..len).collect())
    }

    /// Everything through the next `end`.
    pub fn take_through(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut from = 0;
        loop {
            let found = self.ahead[from..]
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.ahead.drain(..from + at + end.len()).collect());
            }
            from = (self.ahead.len() + 1).saturating_sub(end.len());
            self.read_more()?;
        }
    }

    /// Appends a chunked body, as far as it comes, and gives its trailers.
    pub fn take_chunked(&mut self, body: &mut Vec<u8>) -> io::Result<Fields> {
        loop {
            let line = self.take_through(b"\r\n")?;
            let len = chunk_len(&line);
            if len == 0 {
                return self.take_trailers();
            }
            let end = body.len() + len;
            while body.len() < end {
                if self.ahead.is_empty() {
                    self.read_more()?;
                }
                let some = self.ahead.len().min(end - body.len());
                body.extend(self.ahead.drain(..some));
            }
            assert_eq!(self.take(2)?, b"\r\n", "behind a chunk");
        }
    }

    fn take_trailers(&mut self) -> io::Result<Fields> {
        let mut trailers = Fields::new();
        loop {
            let line = self.take_through(b"\r\n")?;
            if line == b"\r\n" {
                return Ok(trailers);
            }
            trailers.push(field(&line));
        }
    }
}

#[track_caller]
fn chunk_len(line: &[u8]) -> usize {
    let text = String::from_utf8_lossy(line);
    let digits = text.trim_end().split(';').next().unwrap_or_default();
    usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("not a chunk's length: {text:?}"))
}

/// The lines of a head, the first of which is not a field.
pub fn lines(head: &[u8]) -> (String, Fields) {
    let mut lines = head
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let fields = lines.filter(|line| !line.is_empty()).map(field).collect();
    (first, fields)
}

/// Name and value of a header line.
#[track_caller]
pub fn field(line: &[u8]) -> (String, Vec<u8>) {
    let colon = line
        .iter()
        .position(|&byte| byte == b':')
        .expect("a colon in a header line");
    let name = String::from_utf8(line[..colon].to_vec()).expect("a header name");
    (name, line[colon + 1..].trim_ascii().to_vec())
}
