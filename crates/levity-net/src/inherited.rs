//! Listening sockets that a service manager has made and passes to the process (socket activation, `sd_listen_fds(3)`).

use std::io;
use std::net::{SocketAddr, TcpListener};

use levity_config::address::Address;
use listenfd::ListenFd;
use socket2::SockRef;

use crate::bind::{Bound, bind, set_connection_options};
use crate::listener::ListeningSocket;

/// The sockets that a service manager has passed. They stay open until the process ends, as they do at the service manager, so a
/// reload may use an address again that an earlier one had left.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(SocketAddr, TcpListener)>);

impl Inherited {
    /// Takes the sockets out of the environment: `LISTEN_PID`, `LISTEN_FDS`. A second call gets none. Call it before there are other
    /// threads, because it changes the environment.
    ///
    /// # Errors
    /// When one of them is no listening TCP socket.
    pub fn take() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).filter_map(|number| {
            let taken = passed.take_tcp_listener(number).transpose()?;
            Some(taken.and_then(with_address).map_err(|error| {
                let text = format!(
                    "socket {number} of the service manager is no listening TCP socket: {error}"
                );
                io::Error::new(error.kind(), text)
            }))
        });
        Ok(Self(sockets.collect::<io::Result<_>>()?))
    }

    /// The addresses of the sockets that are none of `configured`.
    pub fn unused<'a>(
        &'a self,
        configured: impl Iterator<Item = &'a Address> + Clone + 'a,
    ) -> impl Iterator<Item = SocketAddr> + 'a {
        let addresses = self.0.iter().map(|(address, _)| *address);
        addresses.filter(move |&address| {
            let mut configured = configured.clone();
            !configured.any(|one| is_same(one, address))
        })
    }

    /// The socket with this address, for `workers` loops, which share it; if there is none, [binds](bind) it.
    ///
    /// # Errors
    /// As those of [`bind`]; when there are no descriptors left.
    pub fn bind(&self, address: &Address, workers: usize) -> io::Result<Bound> {
        let of_address = |(own, _): &&(SocketAddr, _)| is_same(address, *own);
        let Some((actual, socket)) = self.0.iter().find(of_address) else {
            return bind(address, workers);
        };
        let sockets = (0..workers).map(|_| Ok(ListeningSocket::Tcp(socket.try_clone()?)));
        let sockets = sockets.collect::<io::Result<_>>()?;
        let actual = Address::Tcp(*actual);
        Ok(Bound::without_file(address, &actual, sockets))
    }
}

/// Whether a socket on `own` is the one for `configured`. On a machine without IPv6, every address is that of IPv4.
fn is_same(configured: &Address, own: SocketAddr) -> bool {
    match *configured {
        Address::Tcp(configured) if configured.ip().is_unspecified() && configured.is_ipv6() => {
            own.ip().is_unspecified() && own.port() == configured.port()
        }
        Address::Tcp(configured) => configured == own,
        Address::Unix(_) => false,
    }
}

fn with_address(socket: TcpListener) -> io::Result<(SocketAddr, TcpListener)> {
    let address = socket.local_addr()?;
    // That of a connection (`Accept=yes`) has an address as well.
    if !SockRef::from(&socket).is_listener()? {
        return Err(io::Error::other("it does not listen"));
    }
    socket.set_nonblocking(true)?;
    set_connection_options(&SockRef::from(&socket))?;
    Ok((address, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited() -> (Inherited, SocketAddr) {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let (address, socket) = with_address(socket).expect("an address");
        (Inherited(vec![(address, socket)]), address)
    }

    #[test]
    fn all_loops_share_the_socket_of_an_address() {
        let (inherited, address) = inherited();
        let configured = Address::Tcp(address);
        let bound = inherited.bind(&configured, 2).expect("bound");
        assert_eq!((bound.sockets.len(), &bound.actual), (2, &configured));
        drop(bound);
        // It was not closed.
        inherited.bind(&configured, 1).expect("bound again");
        assert!(bind(&configured, 1).is_err());
    }

    #[test]
    fn other_addresses_are_bound_as_usual() {
        let (inherited, address) = inherited();
        let other = "127.0.0.1:0".parse::<Address>().expect("an address");
        let bound = inherited.bind(&other, 1).expect("bound");
        assert_ne!(bound.actual, Address::Tcp(address));
        let unused: Vec<_> = inherited.unused([other].iter()).collect();
        assert_eq!(unused, [address]);
        let configured = [Address::Tcp(address)];
        assert_eq!(inherited.unused(configured.iter()).count(), 0);
    }
}
