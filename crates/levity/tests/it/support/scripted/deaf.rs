//! A backend that accepts no connection, and whose queue of them is full.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that are enough to fill any queue that this asks for.
const FILLING: usize = 4;

/// Listens, and never accepts.
pub struct Deaf {
    address: String,
    listener: Socket,
    /// What fills the queue, or would have.
    _waiting: Vec<Socket>,
    /// How many of them are in it.
    taken: usize,
    _own: Option<tempfile::TempDir>,
}

impl Deaf {
    /// Where the first packet of a connection is dropped.
    pub fn tcp() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listener(Domain::IPV4, &any.into());
        let at = listener.local_addr().expect("an address");
        let address = at.as_socket().expect("an IP address").to_string();
        Self::full(address, listener, &at, None)
    }

    /// Where `connect` says EAGAIN.
    pub fn unix() -> Self {
        let own = tempfile::tempdir().expect("a temporary folder");
        let path = own.path().join("socket");
        let at = SockAddr::unix(&path).expect("a path");
        let listener = listener(Domain::UNIX, &at);
        super::open_to_all(own.path(), &path);
        Self::full(format!("unix:{}", path.display()), listener, &at, Some(own))
    }

    fn full(
        address: String,
        listener: Socket,
        at: &SockAddr,
        own: Option<tempfile::TempDir>,
    ) -> Self {
        let mut taken = 0;
        let mut waiting = || {
            let socket = Socket::new(at.domain(), Type::STREAM, None).expect("socket");
            socket.set_nonblocking(true).expect("O_NONBLOCK");
            // Those that come too late are told so, or wait without an answer.
            taken += usize::from(socket.connect(at).is_ok());
            socket
        };
        let waiting = (0..FILLING).map(|_| waiting()).collect();
        Self {
            address,
            listener,
            _waiting: waiting,
            taken,
            _own: own,
        }
    }

    /// In the form of the configuration.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Drops those that wait, and gives the listener to whoever hears those that come.
    pub fn hear(&self) -> UnixListener {
        for _ in 0..self.taken {
            self.listener.accept().expect("a connection that waits");
        }
        self.listener.try_clone().expect("another handle").into()
    }
}

fn listener(domain: Domain, at: &SockAddr) -> Socket {
    let socket = Socket::new(domain, Type::STREAM, None).expect("socket");
    socket.bind(at).expect("bind");
    socket.listen(0).expect("listen");
    socket
}
