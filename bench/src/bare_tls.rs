//! The least that a server of TLS can hold for a connection: a socket and a session of rustls. One thread answers every
//! piece that it reads with the same bytes.

use crate::failure::{Context, Result};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// The longest request, in bytes.
const READ_BYTES: usize = 16 * 1024;
const EVENTS_MAX: usize = 64;

/// A server that ends when it is killed.
#[derive(Clone, Debug, clap::Args)]
pub struct BareTls {
    /// The address to listen on.
    #[arg(long)]
    pub address: SocketAddr,
    /// The certificate, in PEM.
    #[arg(long)]
    pub certificate: PathBuf,
    /// Its key, in PEM.
    #[arg(long)]
    pub key: PathBuf,
}

struct Connection {
    socket: TcpStream,
    tls: ServerConnection,
}

impl BareTls {
    /// Runs in this process.
    ///
    /// # Errors
    /// The certificate cannot be used; the address is in use.
    pub fn run(&self) -> Result<()> {
        crate::load::command::raise_descriptor_limit(4096)?;
        let config = self.config()?;
        let listener =
            TcpListener::bind(self.address).context(|| format!("listen on {}", self.address))?;
        self.serve(&listener, &config)
            .context(|| "bare server".into())
    }

    fn config(&self) -> Result<Arc<ServerConfig>> {
        let certificate =
            CertificateDer::from_pem_file(&self.certificate).context(|| "certificate".into())?;
        let key = PrivateKeyDer::from_pem_file(&self.key).context(|| "key".into())?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        config
            .map(Arc::new)
            .context(|| "certificate and key".into())
    }

    fn serve(&self, listener: &TcpListener, config: &Arc<ServerConfig>) -> std::io::Result<()> {
        let ready = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&ready, listener)?;
        let mut connections = HashMap::new();
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [none; EVENTS_MAX];
        loop {
            let count = epoll::wait(&ready, &mut events, None)?;
            for event in &events[..count] {
                let descriptor = event.data.u64();
                if descriptor == listener.as_raw_fd() as u64 {
                    let (socket, _) = listener.accept()?;
                    socket.set_nonblocking(true)?;
                    let descriptor = watch(&ready, &socket)?;
                    let tls = ServerConnection::new(config.clone()).map_err(Error::other)?;
                    connections.insert(descriptor, Connection { socket, tls });
                } else if let Some(connection) = connections.get_mut(&descriptor)
                    && connection.answer().is_err()
                {
                    connections.remove(&descriptor);
                }
            }
        }
    }
}

/// Returns the number of the descriptor, which its events have.
fn watch(ready: &OwnedFd, source: &(impl AsRawFd + std::os::fd::AsFd)) -> std::io::Result<u64> {
    let descriptor = source.as_raw_fd() as u64;
    epoll::add(
        ready,
        source,
        EventData::new_u64(descriptor),
        EventFlags::IN,
    )?;
    Ok(descriptor)
}

impl Connection {
    /// Reads what is there. An error is the end of the connection.
    fn answer(&mut self) -> std::io::Result<()> {
        if self.tls.read_tls(&mut self.socket)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.tls.process_new_packets().map_err(Error::other)?;
        match self.tls.reader().read(&mut [0; READ_BYTES]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => self.tls.writer().write_all(RESPONSE)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(error) => return Err(error),
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}
