//! A client on one connection that never waits: it sends and receives while the server is stopped.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use super::frames::Frames;
use super::server::PATH;
use crate::run::Result;

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// Without TLS, with prior knowledge (RFC 9113, 3.3).
    Http2,
}

enum Codec {
    Http1,
    Http2(Frames),
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    codec: Codec,
    unsent: Vec<u8>,
    received: Vec<u8>,
    requested: u64,
    answered: u64,
}

impl Client {
    /// Connects to an address with a port.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: &str, protocol: Protocol) -> Result<Self> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nonblocking(true)?;
            // With Nagle's algorithm a request would wait for an acknowledgement of the one before.
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: io::Error| format!("{address}: {error}"))?;
        let mut unsent = Vec::new();
        let codec = match protocol {
            Protocol::Http1 => Codec::Http1,
            Protocol::Http2 => Codec::Http2(Frames::new(PATH, &mut unsent)),
        };
        Ok(Self {
            stream,
            codec,
            unsent,
            received: Vec::new(),
            requested: 0,
            answered: 0,
        })
    }

    /// Adds so many requests to what is to be sent.
    pub fn request(&mut self, count: u64) {
        self.requested += count;
        for _ in 0..count {
            match &mut self.codec {
                Codec::Http1 => {
                    let request = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                    self.unsent.extend_from_slice(request.as_bytes());
                }
                Codec::Http2(frames) => frames.request(&mut self.unsent),
            }
        }
    }

    /// How many responses have arrived in full.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether all requests are answered.
    pub fn is_idle(&self) -> bool {
        self.requested == self.answered
    }

    /// Sends and receives as much as is possible without waiting.
    ///
    /// # Errors
    /// The connection breaks, or a response is none of 200.
    pub fn turn(&mut self) -> Result<()> {
        self.receive()?;
        self.answered += match &mut self.codec {
            Codec::Http1 => read_responses(&mut self.received)?,
            Codec::Http2(frames) => frames.read(&mut self.received, &mut self.unsent)?,
        };
        self.send()
    }

    fn receive(&mut self) -> Result<()> {
        match self.stream.read_to_end(&mut self.received) {
            Ok(_) => Err("the server has closed the connection".to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn send(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

/// Takes whole responses of HTTP/1, which have a length, from `bytes`.
fn read_responses(bytes: &mut Vec<u8>) -> Result<u64> {
    let (mut ended, mut start) = (0, 0);
    while let Some(length) = response_bytes(&bytes[start..])? {
        if bytes.len() - start < length {
            break;
        }
        start += length;
        ended += 1;
    }
    bytes.drain(..start);
    Ok(ended)
}

/// The length of the first response, if its header is complete.
fn response_bytes(bytes: &[u8]) -> Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let status = response
        .parse(bytes)
        .map_err(|error| format!("a response that cannot be read: {error}"))?;
    let httparse::Status::Complete(header_bytes) = status else {
        return Ok(None);
    };
    if response.code != Some(200) {
        return Err(format!("a response of {:?}", response.code));
    }
    let mut fields = response.headers.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|field| str::from_utf8(field.value).ok()?.parse().ok());
    let body_bytes: usize = length.ok_or("a response without a length")?;
    Ok(Some(header_bytes + body_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_whatever_their_pieces() {
        let all = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        for cut in 0..all.len() {
            let mut bytes = all[..cut].to_vec();
            let mut ended = read_responses(&mut bytes).unwrap();
            bytes.extend_from_slice(&all[cut..]);
            ended += read_responses(&mut bytes).unwrap();
            assert_eq!((ended, bytes.len()), (2, 0), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_response_of_200_is_an_error() {
        for text in [
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "220 smtp\r\n\r\n",
        ] {
            assert!(read_responses(&mut text.into()).is_err(), "{text}");
        }
    }
}
