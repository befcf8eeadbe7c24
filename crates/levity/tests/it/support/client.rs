//! A client that sends exactly the bytes it is told to, and takes the answers apart.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Type};

use super::WAIT_MAX;
use super::socket::Socket;
use super::wire::{Fields, Wire, lines};

/// A receive buffer this small leaves most of a large file with the server.
const RECEIVE_BYTES_SMALL: usize = 16 * 1024;

/// One connection.
pub struct Client {
    wire: Wire,
}

/// A complete answer.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    /// `HTTP/1.1 200 OK`
    pub status_line: String,
    headers: Fields,
    pub body: Vec<u8>,
    /// What followed a chunked body.
    pub trailers: Fields,
}

/// Why there is no complete answer.
#[derive(PartialEq, Eq)]
pub enum Cut {
    /// The server closed; these body bytes came before, if there was a head.
    Closed(Option<Vec<u8>>),
    /// The connection was reset; these body bytes came before, if there was a head.
    Reset(Option<Vec<u8>>),
    /// Nothing came for [`WAIT_MAX`].
    Silent,
}

impl Cut {
    /// The body bytes that came before the end; a server that is merely silent has not ended.
    #[track_caller]
    pub fn body(self) -> Vec<u8> {
        match self {
            Self::Closed(body) | Self::Reset(body) => body.unwrap_or_default(),
            Self::Silent => panic!("the connection is still open"),
        }
    }
}

/// Megabytes are of no use in a message.
impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (how, body) = match self {
            Self::Closed(body) => ("closed", body),
            Self::Reset(body) => ("reset", body),
            Self::Silent => return f.write_str("silent"),
        };
        match body {
            Some(body) => write!(f, "{how} after a head and {} bytes", body.len()),
            None => write!(f, "{how} before a head"),
        }
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, WAIT_MAX).expect("connect");
        Self::of(stream)
    }

    /// A client that can hold little of what it has not read.
    pub fn narrow(address: SocketAddr) -> Self {
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::STREAM, None).expect("socket");
        socket
            .set_recv_buffer_size(RECEIVE_BYTES_SMALL)
            .expect("SO_RCVBUF");
        socket
            .connect_timeout(&address.into(), WAIT_MAX)
            .expect("connect");
        Self::of(socket.into())
    }

    pub fn of(stream: TcpStream) -> Self {
        Self::over(Socket::of_tcp(stream).expect("socket options"))
    }

    pub fn unix(path: &Path) -> Self {
        Self::over(Socket::unix(path).expect("connect"))
    }

    /// A client of an address in the form of the configuration.
    #[track_caller]
    pub fn to(address: &str) -> Self {
        Self::over(Socket::connect(address).expect("connect"))
    }

    fn over(socket: Socket) -> Self {
        let wire = Wire::new(socket);
        Self { wire }
    }

    pub fn read_timeout(&self, limit: Duration) {
        self.wire.socket.read_timeout(limit).expect("SO_RCVTIMEO");
    }

    pub fn write_timeout(&self, limit: Duration) {
        self.wire.socket.write_timeout(limit).expect("SO_SNDTIMEO");
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("send");
    }

    /// Sends what the server takes before it closes.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.socket.write_all(bytes.as_ref())
    }

    /// Ends our side.
    pub fn finish(&self) {
        let shut = self.wire.socket.shutdown(Shutdown::Write);
        shut.expect("shutdown");
    }

    /// Makes a reset of the end of the connection; over TCP only.
    pub fn reset_when_closed(&self) {
        self.wire.socket.reset_when_closed().expect("SO_LINGER");
    }

    /// Sends a request of one method, path and further header lines, and takes the answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(head(method, path, headers));
        self.receive_to(method)
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    #[track_caller]
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers)
    }

    /// The same for a host of its own.
    #[track_caller]
    pub fn get_for(&mut self, host: &str, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        self.receive()
    }

    #[track_caller]
    pub fn head(&mut self, path: &str) -> Answer {
        self.request("HEAD", path, &[])
    }

    /// The next answer, to anything but a HEAD request.
    #[track_caller]
    pub fn receive(&mut self) -> Answer {
        self.receive_to("GET")
    }

    #[track_caller]
    pub fn receive_to(&mut self, method: &str) -> Answer {
        match self.try_receive_to(method) {
            Ok(answer) => answer,
            Err(cut) => panic!("no answer to {method}: {cut:?}"),
        }
    }

    pub fn try_receive(&mut self) -> Result<Answer, Cut> {
        self.try_receive_to("GET")
    }

    fn try_receive_to(&mut self, method: &str) -> Result<Answer, Cut> {
        let mut answer = self.receive_head()?;
        let taken = match (method, answer.status) {
            ("HEAD", _) | (_, 100..200 | 204 | 304) => Ok(()),
            _ if answer.is_chunked() => self.take_chunked(&mut answer),
            _ => self.take_length(&mut answer),
        };
        taken.map(|()| answer)
    }

    fn take_length(&mut self, answer: &mut Answer) -> Result<(), Cut> {
        let len = answer.length().expect("an answer with a Content-Length");
        let body = self.wire.take(len);
        answer.body = body.map_err(|end| self.cut(end, true))?;
        Ok(())
    }

    fn take_chunked(&mut self, answer: &mut Answer) -> Result<(), Cut> {
        let body = &mut answer.body;
        let trailers = self.wire.take_chunked(body);
        let cut = |end| cut(end, Some(std::mem::take(body)));
        answer.trailers = trailers.map_err(cut)?;
        Ok(())
    }

    /// The head of the next answer only; its body is left to [`Client::read_exactly`].
    pub fn receive_head(&mut self) -> Result<Answer, Cut> {
        let head = self.wire.take_through(b"\r\n\r\n");
        let head = head.map_err(|end| self.cut(end, false))?;
        Ok(Answer::of_head(&head))
    }

    /// The next `len` bytes, whatever they are.
    #[track_caller]
    pub fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        match self.wire.take(len) {
            Ok(bytes) => bytes,
            Err(end) => panic!("instead of {len} bytes: {:?}", self.cut(end, true)),
        }
    }

    /// Everything through the next `end`.
    #[track_caller]
    pub fn read_through(&mut self, end: &[u8]) -> Vec<u8> {
        match self.wire.take_through(end) {
            Ok(bytes) => bytes,
            Err(cut) => panic!("no {}: {:?}", end.escape_ascii(), self.cut(cut, true)),
        }
    }

    /// Whatever comes next, at least one byte.
    #[track_caller]
    pub fn read_some(&mut self) -> Vec<u8> {
        if self.wire.ahead.is_empty()
            && let Err(end) = self.wire.read_more()
        {
            panic!("instead of bytes: {:?}", self.cut(end, true));
        }
        std::mem::take(&mut self.wire.ahead)
    }

    /// Everything until the server closes or resets the connection.
    pub fn read_to_end(&mut self) -> Cut {
        loop {
            if let Err(end) = self.wire.read_more() {
                return self.cut(end, true);
            }
        }
    }

    /// Expects that an answer which a backend cuts short is either refused or cut off, and never ends as
    /// if it were complete.
    #[track_caller]
    pub fn assert_cut_short(&mut self) {
        self.send(head("GET", "/", &[]));
        match self.try_receive() {
            Ok(answer) => answer.assert_status(502),
            Err(cut) => assert_ne!(cut, Cut::Silent),
        }
    }

    /// Expects no further byte, and the end of the connection.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.read_to_end().body();
        assert!(rest.is_empty(), "unasked for: {}", rest.escape_ascii());
    }

    fn cut(&mut self, end: io::Error, had_head: bool) -> Cut {
        let body = had_head.then(|| std::mem::take(&mut self.wire.ahead));
        cut(end, body)
    }
}

fn cut(end: io::Error, body: Option<Vec<u8>>) -> Cut {
    match end.kind() {
        ErrorKind::UnexpectedEof => Cut::Closed(body),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Cut::Reset(body),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Cut::Silent,
        _ => panic!("{end}"),
    }
}

/// A request head without surprises.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

impl Answer {
    /// That of bytes which end where the connection has ended.
    #[track_caller]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let end = memchr::memmem::find(bytes, b"\r\n\r\n").expect("a header") + 4;
        Self {
            body: bytes[end..].to_vec(),
            ..Self::of_head(&bytes[..end])
        }
    }

    #[track_caller]
    fn of_head(head: &[u8]) -> Self {
        let (status_line, headers) = lines(head);
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("not a status line: {status_line}")),
            status_line,
            headers,
            body: Vec::new(),
            trailers: Fields::new(),
        }
    }

    /// The one value of a header; more than one fails the test.
    #[track_caller]
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        let mut named = self
            .headers
            .iter()
            .filter(|(is, _)| is.eq_ignore_ascii_case(name));
        let first = named.next();
        assert!(named.next().is_none(), "{name} is given twice: {self:?}");
        first.map(|(_, value)| value.as_slice())
    }

    /// The one value of a header.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let text = |value| std::str::from_utf8(value).expect("a header in UTF-8");
        self.header_bytes(name).map(text)
    }

    /// A header that must be there.
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        self.header(name)
            .unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    /// Headers in order, but for the date.
    pub fn headers(&self) -> Fields {
        let kept = self
            .headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("date"));
        kept.cloned().collect()
    }

    #[track_caller]
    pub fn length(&self) -> Option<usize> {
        self.header("content-length")
            .map(|length| length.parse().expect("a length"))
    }

    #[track_caller]
    pub fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }

    #[track_caller]
    pub fn closes(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn assert_status(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status_line)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", value.escape_ascii())?;
        }
        let start = &self.body[..self.body.len().min(200)];
        write!(f, "{} bytes: {}", self.body.len(), start.escape_ascii())
    }
}
