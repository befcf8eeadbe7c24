//! A client that sends exactly the bytes it is told to, and takes the answers apart.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::WAIT_MAX;

/// A receive buffer this small leaves most of a large file with the server.
const RECEIVE_BYTES_SMALL: usize = 16 * 1024;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// One connection.
pub struct Client {
    stream: Stream,
    /// Read, but not part of an answer yet.
    ahead: Vec<u8>,
}

/// A complete answer.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    /// `HTTP/1.1 200 OK`
    pub status_line: String,
    headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
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
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("socket");
        socket
            .set_recv_buffer_size(RECEIVE_BYTES_SMALL)
            .expect("SO_RCVBUF");
        socket
            .connect_timeout(&address.into(), WAIT_MAX)
            .expect("connect");
        Self::of(socket.into())
    }

    pub fn of(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(WAIT_MAX))
            .expect("SO_RCVTIMEO");
        stream
            .set_write_timeout(Some(WAIT_MAX))
            .expect("SO_SNDTIMEO");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self {
            stream: Stream::Tcp(stream),
            ahead: Vec::new(),
        }
    }

    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connect");
        stream
            .set_read_timeout(Some(WAIT_MAX))
            .expect("SO_RCVTIMEO");
        Self {
            stream: Stream::Unix(stream),
            ahead: Vec::new(),
        }
    }

    pub fn read_timeout(&self, limit: Duration) {
        let set = match &self.stream {
            Stream::Tcp(tcp) => tcp.set_read_timeout(Some(limit)),
            Stream::Unix(unix) => unix.set_read_timeout(Some(limit)),
        };
        set.expect("SO_RCVTIMEO");
    }

    pub fn write_timeout(&self, limit: Duration) {
        let set = match &self.stream {
            Stream::Tcp(tcp) => tcp.set_write_timeout(Some(limit)),
            Stream::Unix(unix) => unix.set_write_timeout(Some(limit)),
        };
        set.expect("SO_SNDTIMEO");
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("send");
    }

    /// Sends what the server takes before it closes.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(tcp) => tcp.write_all(bytes.as_ref()),
            Stream::Unix(unix) => unix.write_all(bytes.as_ref()),
        }
    }

    /// Ends our side.
    pub fn finish(&self) {
        let shut = match &self.stream {
            Stream::Tcp(tcp) => tcp.shutdown(Shutdown::Write),
            Stream::Unix(unix) => unix.shutdown(Shutdown::Write),
        };
        shut.expect("shutdown");
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
        let len = match (method, answer.status) {
            ("HEAD", _) | (_, 100..200 | 204 | 304) => 0,
            _ => answer.length().expect("an answer with a Content-Length"),
        };
        while self.ahead.len() < len {
            if let Err(end) = self.read_more() {
                return Err(self.cut(end, true));
            }
        }
        answer.body = self.ahead.drain(..len).collect();
        Ok(answer)
    }

    /// The head of the next answer only; its body is left to [`Client::read_exactly`].
    pub fn receive_head(&mut self) -> Result<Answer, Cut> {
        loop {
            if let Some(end) = find(&self.ahead, b"\r\n\r\n") {
                let head: Vec<u8> = self.ahead.drain(..end + 4).collect();
                return Ok(Answer::of_head(&head[..end]));
            }
            if let Err(end) = self.read_more() {
                return Err(self.cut(end, false));
            }
        }
    }

    /// The next `len` bytes, whatever they are.
    #[track_caller]
    pub fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len {
            if let Err(end) = self.read_more() {
                panic!("instead of {len} bytes: {:?}", self.cut(end, true));
            }
        }
        self.ahead.drain(..len).collect()
    }

    /// Everything until the server closes or resets the connection.
    pub fn read_to_end(&mut self) -> Cut {
        loop {
            if let Err(end) = self.read_more() {
                return self.cut(end, true);
            }
        }
    }

    /// Expects no further byte, and the end of the connection.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.read_to_end().body();
        assert!(rest.is_empty(), "unasked for: {}", rest.escape_ascii());
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 * 1024];
        let read = match &mut self.stream {
            Stream::Tcp(tcp) => tcp.read(&mut piece),
            Stream::Unix(unix) => unix.read(&mut piece),
        };
        match read? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.ahead.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    fn cut(&mut self, end: io::Error, had_head: bool) -> Cut {
        let body = had_head.then(|| std::mem::take(&mut self.ahead));
        match end.kind() {
            ErrorKind::UnexpectedEof => Cut::Closed(body),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Cut::Reset(body),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Cut::Silent,
            _ => panic!("{end}"),
        }
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

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

impl Answer {
    #[track_caller]
    fn of_head(head: &[u8]) -> Self {
        let mut lines = head
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii_end);
        let status_line = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("not a status line: {status_line}")),
            status_line,
            headers: lines.map(header).collect(),
            body: Vec::new(),
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
    pub fn headers(&self) -> Vec<(String, Vec<u8>)> {
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

fn header(line: &[u8]) -> (String, Vec<u8>) {
    let colon = line
        .iter()
        .position(|&byte| byte == b':')
        .expect("a colon in a header line");
    let name = String::from_utf8(line[..colon].to_vec()).expect("a header name");
    (name, line[colon + 1..].trim_ascii().to_vec())
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
