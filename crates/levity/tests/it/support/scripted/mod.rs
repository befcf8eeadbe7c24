//! A backend inside the test, which does what no sound backend would.
//!
//! A function of the test has each accepted connection for itself, on a thread of its own. What it
//! reads by [`Conn`] is kept for assertions, whatever the protocol.

pub mod ajp;
mod conn;
mod deaf;
pub mod fastcgi;
mod http;
mod scgi;

use std::any::Any;
use std::fs::{self, Permissions};
use std::io;
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::socket::Socket;
use super::wire::Fields;
use super::{WAIT_MAX, wait_until};

pub use conn::Conn;
pub use deaf::Deaf;

/// A request as it arrived, of any protocol.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of the connection that it came over, counted from 0.
    pub connection: usize,
    pub method: String,
    /// As sent: with its query for HTTP, REQUEST_URI for those of CGI, without a query for AJP13.
    pub target: String,
    /// All bytes before the body: head of HTTP, netstring of SCGI, head packet of AJP13, and what
    /// FastCGI's records of variables held.
    pub head: Vec<u8>,
    /// Header fields of HTTP and AJP13, variables of FastCGI and SCGI, in the order they came.
    pub fields: Fields,
    /// Attributes of AJP13.
    pub attributes: Fields,
    /// Without chunks or records. A body that has not been read yet is empty.
    pub body: Vec<u8>,
    /// What followed a chunked body.
    pub trailers: Fields,
}

impl Request {
    /// The one value of a field; more than one fails the test.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        one(&self.fields, name)
    }

    #[track_caller]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        one(&self.attributes, name)
    }
}

#[track_caller]
fn one<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let mut named = fields
        .iter()
        .filter(|(is, _)| is.eq_ignore_ascii_case(name));
    let first = named.next();
    assert!(named.next().is_none(), "{name} is given twice: {fields:?}");
    first.map(|(_, value)| std::str::from_utf8(value).expect("a value in UTF-8"))
}

/// A scripted backend; ends with the value, and with it all of its connections.
pub struct Scripted {
    address: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    /// Holds the socket.
    _own: Option<tempfile::TempDir>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections so far.
    connections: usize,
    /// Handles of those that are open, to end them.
    open: Vec<(usize, Socket)>,
    requests: Vec<Request>,
    threads: Vec<JoinHandle<()>>,
    /// What a function panicked with.
    panics: Vec<Box<dyn Any + Send>>,
    released: bool,
    ending: bool,
}

type Handler = Arc<dyn Fn(&mut Conn) + Send + Sync>;

impl Scripted {
    /// On a TCP port of loopback.
    pub fn tcp(handle: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("bind"), handle)
    }

    /// On a socket that listens already.
    pub fn on(listener: TcpListener, handle: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("an address").to_string();
        let accept = move || Socket::of_tcp(listener.accept()?.0);
        Self::start(address, None, accept, Arc::new(handle))
    }

    /// On a Unix socket that everybody may connect to.
    pub fn unix(handle: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        let own = tempfile::tempdir().expect("a temporary folder");
        let path = own.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bind");
        open_to_all(own.path(), &path);
        let address = format!("unix:{}", path.display());
        let accept = move || Socket::of_unix(listener.accept()?.0);
        Self::start(address, Some(own), accept, Arc::new(handle))
    }

    fn start(
        address: String,
        own: Option<tempfile::TempDir>,
        accept: impl Fn() -> io::Result<Socket> + Send + 'static,
        handler: Handler,
    ) -> Self {
        let shared = Arc::<Shared>::default();
        let to = shared.clone();
        let accepting = thread::spawn(move || {
            while let Ok(socket) = accept() {
                if !to.clone().begin(socket, &handler) {
                    return;
                }
            }
        });
        Self {
            address,
            shared,
            accepting: Some(accepting),
            _own: own,
        }
    }

    /// In the form of the configuration: `unix:/path` or `127.0.0.1:80`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// How many connections are open at this side.
    pub fn open(&self) -> usize {
        self.shared.lock().open.len()
    }

    /// Every request so far, in the order in which their reading ended.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The only request so far.
    #[track_caller]
    pub fn request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests");
        requests.remove(0)
    }

    /// Waits until so many requests have been read.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) {
        wait_until("the requests arrive", || {
            self.shared.lock().requests.len() >= count
        });
    }

    /// Waits until no connection is open.
    #[track_caller]
    pub fn wait_for_no_connection(&self) {
        wait_until("the connections end", || self.open() == 0);
    }

    /// Lets every function go on that stalls, now and from now on.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    fn end(&mut self) -> Vec<Box<dyn Any + Send>> {
        self.shared.lock().ending = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        drop(Socket::connect(&self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().expect("the accepting thread");
        }
        for (_, socket) in &self.shared.lock().open {
            // Fails when the peer has closed it.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut self.shared.lock().threads);
        for thread in threads {
            thread.join().expect("panics are caught");
        }
        std::mem::take(&mut self.shared.lock().panics)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        if let Some(panic) = self.end().pop()
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread of a connection; not when the test is over.
    fn begin(self: Arc<Self>, socket: Socket, handler: &Handler) -> bool {
        let (to, handler) = (self.clone(), handler.clone());
        let mut state = self.lock();
        if state.ending {
            return false;
        }
        let number = state.connections;
        state.connections += 1;
        let handle = socket.try_clone().expect("another handle");
        state.open.push((number, handle));
        state
            .threads
            .push(thread::spawn(move || to.run(number, socket, &handler)));
        true
    }

    fn run(self: Arc<Self>, number: usize, socket: Socket, handler: &Handler) {
        let mut conn = Conn::new(number, socket, self.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| handler(&mut conn)));
        // It counts as open until it is closed.
        drop(conn);
        let mut state = self.lock();
        state.open.retain(|(open, _)| *open != number);
        if let Err(panic) = ended
            && !state.ending
        {
            state.panics.push(panic);
        }
    }

    fn keep(&self, request: Request) {
        self.lock().requests.push(request);
    }

    /// Waits until it is released or the test is over.
    fn stall(&self) {
        let waits = |state: &mut State| !state.released && !state.ending;
        let stalled = self
            .changed
            .wait_timeout_while(self.lock(), WAIT_MAX, waits);
        let (_state, result) = stalled.unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "nobody released it");
    }
}

/// Lets everybody connect to a Unix socket in a folder.
fn open_to_all(folder: &Path, socket: &Path) {
    for (path, mode) in [(folder, 0o755), (socket, 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    }
}

/// An address at which every connection is refused, and that nobody else can get meanwhile.
pub struct Refusing {
    address: String,
    /// Bound, but it does not listen.
    socket: socket2::Socket,
}

impl Refusing {
    pub fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("socket");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("bind");
        let address = socket.local_addr().expect("an address").as_socket();
        Self {
            address: address.expect("an IP address").to_string(),
            socket,
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Refuses no more.
    pub fn listen(self) -> TcpListener {
        self.socket.listen(64).expect("listen");
        self.socket.into()
    }
}
