//! `levity mailbox`: sends to mailboxes of a running server, shows what they get, and lists them.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use socket2::Socket;

/// For the answer to a request that ends by itself.
const TIMEOUT: Duration = Duration::from_secs(30);

/// No server sends a longer header line, nor a longer list.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The media type of a stream of messages.
const LINES: &str = "application/x-ndjson";

/// Where mailboxes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host with its port, as in the URL.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// The Unix socket to connect to, in place of the host.
    pub socket: Option<PathBuf>,
    /// The key of publishers.
    pub key: Option<String>,
}

const NO_URL: &str = "a URL such as http://127.0.0.1:8080/chat/room";

impl std::str::FromStr for Place {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let rest = url.strip_prefix("http://").ok_or(NO_URL)?;
        let (host, path) = rest.split_once('/').ok_or(NO_URL)?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_plain(rest) {
            return Err(NO_URL);
        }
        Ok(Self {
            host: host.to_owned(),
            target: format!("/{path}"),
            socket: None,
            key: None,
        })
    }
}

/// Sends `content` as a message that `headers` describe. Returns what the server says about it.
///
/// # Errors
/// When there is no answer, or it is a refusal.
pub fn send(
    place: &Place,
    mut headers: Vec<(&'static str, String)>,
    content: &[u8],
) -> io::Result<String> {
    headers.push(("Content-Length", content.len().to_string()));
    let (response, _) = request(place, "POST", &place.target, &headers, content)?;
    json(place, response).map(|(text, _)| text)
}

/// The text and the value of an answer in JSON.
fn json(place: &Place, response: BufReader<Socket>) -> io::Result<(String, Value)> {
    let mut text = String::new();
    response.take(LINE_BYTES_MAX).read_to_string(&mut text)?;
    match serde_json::from_str(&text) {
        Ok(value) => Ok((text, value)),
        Err(_) => Err(no_mailbox(place)),
    }
}

/// Something else has answered.
fn no_mailbox(place: &Place) -> io::Error {
    let Place { host, target, .. } = place;
    io::Error::other(format!("no mailbox answers at http://{host}{target}"))
}

/// Writes each message of a box to `out` as a line of JSON, from `cursor` on, until the server ends the stream. Returns the id
/// after which to continue.
///
/// # Errors
/// When the connection fails.
pub fn tail(
    place: &Place,
    cursor: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<Option<String>> {
    let mut headers = vec![("Accept", LINES.to_owned())];
    headers.extend(cursor.map(|cursor| ("Last-Event-ID", cursor.to_owned())));
    let (mut response, start) = request(place, "GET", &place.target, &headers, b"")?;
    if !start.is_stream {
        return Err(no_mailbox(place));
    }
    response.get_ref().set_read_timeout(None)?;
    let mut last = start.last.or(cursor.map(str::to_owned));
    let mut line = String::new();
    while response.read_line(&mut line)? > 0 {
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            last = message["id"].as_str().map(str::to_owned).or(last);
            out.write_all(line.as_bytes())?;
            out.flush()?;
        }
        line.clear();
    }
    Ok(last)
}

/// Writes the names of all boxes to `out`, with messages, bytes and receivers.
///
/// # Errors
/// When there is no answer, or it is a refusal.
pub fn list(place: &Place, out: &mut dyn Write) -> io::Result<()> {
    let mut after = String::new();
    loop {
        let target = format!("{}?list&after={after}", place.target);
        let (response, _) = request(place, "GET", &target, &[], b"")?;
        let (_, answer) = json(place, response)?;
        for one in answer["mailboxes"].as_array().into_iter().flatten() {
            let name = one["mailbox"].as_str().unwrap_or_default();
            writeln!(
                out,
                "{name}\t{}\t{}\t{}",
                counted(&one["messages"], "message"),
                counted(&one["bytes"], "byte"),
                counted(&one["receivers_here"], "receiver")
            )?;
        }
        match answer["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => return Ok(()),
        }
    }
}

/// The number of things, with their name.
fn counted(number: &Value, thing: &str) -> String {
    match number.as_u64() {
        Some(1) => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// Connects to the server. Who waits for an answer waits for [`TIMEOUT`].
fn connect(place: &Place) -> io::Result<Socket> {
    let (connected, name) = match &place.socket {
        Some(path) => {
            let connected = UnixStream::connect(path).map(Socket::from);
            (connected, path.display().to_string())
        }
        None => {
            let connected = TcpStream::connect(with_port(&place.host)).map(Socket::from);
            (connected, place.host.clone())
        }
    };
    let socket =
        connected.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    match has_port {
        true => host.to_owned(),
        false => format!("{host}:80"),
    }
}

/// What the header of a response says.
#[derive(Debug, Default)]
struct Start {
    /// It is a stream of messages.
    is_stream: bool,
    /// The id after which the stream begins.
    last: Option<String>,
}

impl Start {
    fn read(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("mailbox-last") {
            self.last = Some(value.trim().to_owned());
        } else if name.eq_ignore_ascii_case("content-type") {
            self.is_stream = value.trim() == LINES;
        }
    }
}

/// Sends a request and reads the header of its response. HTTP/1.0, in which the end of the connection ends the body.
fn request(
    place: &Place,
    method: &str,
    target: &str,
    headers: &[(&str, String)],
    body: &[u8],
) -> io::Result<(BufReader<Socket>, Start)> {
    let mut stream = connect(place)?;
    let mut head = format!("{method} {target} HTTP/1.0\r\nHost: {}\r\n", place.host);
    if let Some(key) = &place.key {
        head.push_str(&format!("Authorization: Bearer {key}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut response = BufReader::new(stream);
    let status = header_line(&mut response)?;
    let mut start = Start::default();
    loop {
        match header_line(&mut response)? {
            line if line.is_empty() => break,
            line => start.read(&line),
        }
    }
    let code = status.split(' ').nth(1).unwrap_or_default();
    if code.starts_with('2') {
        return Ok((response, start));
    }
    let mut text = String::new();
    let _ = response.take(LINE_BYTES_MAX).read_to_string(&mut text);
    let text = text.lines().next().unwrap_or(&status);
    let help = help_on_refusal(place, text);
    Err(io::Error::other(format!(
        "the server refuses: {text}{help}"
    )))
}

/// What lets a publisher in, to stand behind the `text` of a refusal; empty if that is for another reason.
fn help_on_refusal(place: &Place, text: &str) -> String {
    let is_for_listener = text.contains("`publish = true`");
    match &place.socket {
        Some(path) if is_for_listener => {
            let path = path.display();
            format!("; write `publish = true` beneath `address = \"unix:{path}\"`")
        }
        None if is_for_listener => "; connect to it with `--socket PATH`".to_owned(),
        _ if text.contains("`publish_key_file`") => "; give that file to `--key-file`".to_owned(),
        _ => String::new(),
    }
}

fn header_line(response: &mut BufReader<Socket>) -> io::Result<String> {
    let mut line = String::new();
    response
        .by_ref()
        .take(LINE_BYTES_MAX)
        .read_line(&mut line)?;
    if line.is_empty() {
        let text = "the server has closed the connection";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let place: Place = "http://localhost:8080/chat/room?x".parse().expect("a URL");
        assert_eq!(
            (&*place.host, &*place.target),
            ("localhost:8080", "/chat/room?x")
        );
        for url in [
            "",
            "https://a/b",
            "http://a",
            "http:///b",
            "http://a/b c",
            "a/b",
        ] {
            assert_eq!(url.parse::<Place>(), Err(NO_URL), "{url}");
        }
        assert_eq!(with_port("a"), "a:80");
        assert_eq!(with_port("[::1]:7"), "[::1]:7");
        assert_eq!(with_port("[::1]"), "[::1]:80");
    }
}
