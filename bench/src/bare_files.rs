//! The least that a cold file costs: for each connection a thread, which opens the file, has the kernel send it and
//! closes it.

use crate::failure::{Context, Result};
use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 4096;

/// A server that ends when it is killed. A request has to arrive in one piece.
#[derive(Clone, Debug, clap::Args)]
pub struct BareFiles {
    /// The address to listen on.
    #[arg(long)]
    pub address: SocketAddr,
    /// The folder of the files.
    #[arg(long)]
    pub root: PathBuf,
}

impl BareFiles {
    /// Runs in this process.
    ///
    /// # Errors
    /// The address is in use.
    pub fn run(&self) -> Result<()> {
        self.serve()
            .context(|| format!("serve on {}", self.address))
    }

    fn serve(&self) -> std::io::Result<()> {
        for socket in TcpListener::bind(self.address)?.incoming() {
            let (socket, root) = (socket?, self.root.clone());
            // A client that leaves is no failure.
            thread::spawn(move || drop(answer(socket, &root)));
        }
        Ok(())
    }
}

/// Answers the requests of a connection until it ends.
fn answer(mut socket: TcpStream, root: &Path) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES_MAX];
    loop {
        let path = match socket.read(&mut request)? {
            0 => return Ok(()),
            bytes => path_in(&request[..bytes]).ok_or(ErrorKind::InvalidData)?,
        };
        let file = File::open(root.join(path))?;
        let len = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
        let flags = match len {
            0 => SendFlags::empty(),
            _ => SendFlags::MORE,
        };
        send(&socket, header.as_bytes(), flags)?;
        let mut left = len;
        while left > 0 {
            match sendfile(&socket, &file, None, left)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                sent => left -= sent,
            }
        }
    }
}

/// The path of a request, relative to the root.
fn path_in(request: &[u8]) -> Option<&str> {
    let line = request.split(|&byte| byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
    path.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    #[test]
    fn files_follow_each_other_on_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let content = vec![7; 3_000_000];
        std::fs::write(folder.path().join("large"), &content).unwrap();
        std::fs::write(folder.path().join("empty"), "").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let root = folder.path().to_owned();
        let ended = thread::spawn(move || answer(server, &root));
        let mut reader = BufReader::new(client.try_clone().unwrap());
        for (name, expected) in [("large", &content[..]), ("empty", &[]), ("large", &content)] {
            let request = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let header = (0..3).map(|_| {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                line
            });
            let length = format!("Content-Length: {}\r\n", expected.len());
            assert_eq!(
                header.collect::<String>(),
                format!("HTTP/1.1 200 OK\r\n{length}\r\n")
            );
            let mut body = vec![0; expected.len()];
            reader.read_exact(&mut body).unwrap();
            assert!(body == expected);
        }
        let absent = b"GET /absent HTTP/1.1\r\n\r\n";
        client.write_all(absent).unwrap();
        let error = ended.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
