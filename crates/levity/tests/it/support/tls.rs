//! A client that speaks TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use levity_tls::{Trust, client_config};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::WAIT_MAX;

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// What clients share that trust the authorities in a file. One that comes again resumes its session.
pub fn trusting(authorities: &Path) -> Arc<ClientConfig> {
    let config = client_config(Trust::Authorities(authorities), None);
    config.expect("a configuration").into()
}

/// A client of `a.test` that has sent nothing.
pub fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = "a.test".try_into().expect("a name");
    ClientConnection::new(config.clone(), name).expect("a session")
}

/// A connection for `a.test`, before its handshake.
pub fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> TlsStream {
    StreamOwned::new(session(config), socket(address))
}

/// A TCP connection that waits for `WAIT_MAX` at most.
pub fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
    stream.set_nodelay(true).expect("set");
    stream
}

/// Asks for `path`, and gives the body of the response, which the server ends with the connection.
///
/// # Errors
/// When the server closes without the closing alert, too.
pub fn fetch(stream: &mut TlsStream, path: &str) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let head_bytes = memchr::memmem::find(&response, b"\r\n\r\n").map(|at| at + 4);
    let head_bytes = head_bytes.ok_or(io::ErrorKind::InvalidData)?;
    let has_content = response.starts_with(b"HTTP/1.1 200 ");
    match has_content {
        true => Ok(response.split_off(head_bytes)),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&response).into_owned(),
        )),
    }
}
