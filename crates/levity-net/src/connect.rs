//! Outgoing connections.

use std::io;
use std::time::Duration;

use levity_config::address::Address;
use tokio::net::{TcpStream, UnixStream};
use tokio::time;

#[cfg(any(test, feature = "test-support"))]
use crate::memory_listener;
use crate::transport::Transport;

/// How long to wait before the next attempt when the backlog of a Unix socket is full.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Connects to `address`. Tries again as long as the backlog of a Unix socket is full; the caller limits
/// the time.
///
/// # Errors
/// Those of connect(2).
pub async fn connect(address: &Address) -> io::Result<Transport> {
    #[cfg(any(test, feature = "test-support"))]
    if let Some(accepted) = memory_listener::join(address) {
        return accepted
            .await
            .map_err(|_| io::ErrorKind::ConnectionRefused.into());
    }
    match address {
        Address::Tcp(address) => {
            let tcp = TcpStream::connect(address).await?;
            // A request leaves in one write; the second half of a body must not wait for an answer.
            tcp.set_nodelay(true)?;
            Ok(Transport::Tcp(tcp))
        }
        Address::Unix(path) => loop {
            // EAGAIN: the listener does not accept as fast as clients connect (connect(2)).
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    time::sleep(FULL_RETRY_INTERVAL).await;
                }
                connected => return Ok(Transport::Unix(connected?)),
            }
        },
    }
}
