//! The writer: the least that a server can do for a fan-out. One thread writes each message to every socket.

use crate::failure::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
const ACKNOWLEDGEMENT: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
/// The epoch in the ids of messages, as long as one of Levity.
const EPOCH: &str = "1849747500000000000";

/// A server of event streams with one box. It ends when it is killed.
#[derive(Clone, Debug, clap::Args)]
pub struct Writer {
    /// The address to listen on.
    #[arg(long)]
    pub address: SocketAddr,
}

impl Writer {
    /// Runs in this process. All subscribers connect before the first publisher; one publisher at a time.
    ///
    /// # Errors
    /// The address is in use.
    pub fn run(&self) -> Result<()> {
        let listener =
            TcpListener::bind(self.address).context(|| format!("listen on {}", self.address))?;
        let mut subscribers = Vec::new();
        let mut sequence = 0;
        loop {
            let accepted = listener.accept().context(|| "accept".into())?;
            let mut connection = accepted.0;
            // The last segment of a message must not wait for the acknowledgement of the one before.
            connection
                .set_nodelay(true)
                .context(|| "TCP_NODELAY".into())?;
            while let Some(request) = read_request(&mut connection) {
                if request.starts_with(b"GET ") {
                    // A subscriber that has gone away gets nothing. Its loss is counted where it is missed.
                    let _ = connection.write_all(HEAD);
                    subscribers.push(connection);
                    break;
                }
                sequence += 1;
                let event = event(sequence, body_of(&request));
                for mut subscriber in &subscribers {
                    let _ = subscriber.write_all(&event);
                }
                if connection.write_all(ACKNOWLEDGEMENT).is_err() {
                    break;
                }
            }
        }
    }
}

/// The bytes that Levity writes for a message.
fn event(sequence: u64, message: &[u8]) -> Vec<u8> {
    let before = format!("id: {EPOCH}-{sequence}\ndata: ");
    let length = before.len() + message.len() + 2;
    let chunk = format!("{length:x}\r\n{before}");
    [chunk.as_bytes(), message, b"\n\n\r\n"].concat()
}

/// A request with its body; None when the connection has ended.
fn read_request(connection: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut request, mut piece) = (Vec::new(), [0; 16 * 1024]);
    while missing_bytes(&request) != Some(0) {
        match connection.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&piece[..read]),
        }
    }
    Some(request)
}

/// What is missing of the body; None while the header section is incomplete.
fn missing_bytes(request: &[u8]) -> Option<usize> {
    let received = body_start(request).map(|start| request.len() - start)?;
    let head = String::from_utf8_lossy(request);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |length| length.parse::<usize>().unwrap_or(0));
    Some(length.saturating_sub(received))
}

fn body_start(request: &[u8]) -> Option<usize> {
    Some(memchr::memmem::find(request, b"\r\n\r\n")? + 4)
}

fn body_of(request: &[u8]) -> &[u8] {
    body_start(request).map_or(&[], |start| &request[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::dialect::Dialect;
    use crate::mailbox::stream::Stream;

    #[test]
    fn a_request_is_complete_with_its_body() {
        let mut request = Vec::new();
        Dialect::Writer.publish("h", 0, "", b"text", &mut request);
        assert_eq!(missing_bytes(&request), Some(0));
        assert_eq!(body_of(&request), b"text");
        assert_eq!(missing_bytes(&request[..request.len() - 1]), Some(1));
        assert_eq!(missing_bytes(&request[..request.len() - 6]), None);
    }

    #[test]
    fn what_it_writes_is_an_event() {
        let mut stream = Stream::default();
        let mut events = Vec::new();
        let bytes = [HEAD, &event(1, b"one"), &event(2, &[b'x'; 300])].concat();
        stream
            .feed(&bytes, |data| events.push(data.to_vec()))
            .unwrap();
        assert_eq!(events, [b"one".to_vec(), vec![b'x'; 300]]);
    }
}
