//! The X-Sendfile family: an application names what is to be sent in its place.

mod file;
mod frameworks;
mod handover;
mod parts;
mod preload;
mod receipt;
mod refused;
mod temporary;

use crate::support::scripted::{Conn, Scripted, fastcgi};
use crate::support::{Answer, Client, Launch, Tree};

/// Fields that must never reach a client, whatever came of them.
const FAMILY: [&str; 13] = [
    "x-sendfile",
    "x-sendfile2",
    "x-sendfile-temporary",
    "x-sendfile-receipt",
    "x-sendfile-preload",
    "x-sendfile-type",
    "x-lighttpd-send-file",
    "x-lighttpd-send-tempfile",
    "x-lighttpd-send-temp-file",
    "x-accel-redirect",
    "x-accel-expires",
    "x-reproxy-url",
    "x-litespeed-location",
];

/// A backend that answers as its client says, in fields of the request: `X-Status`, and `Accept-Say` with
/// header lines divided by `|`.
struct App {
    backend: Scripted,
    protocol: &'static str,
}

impl App {
    fn http() -> Self {
        Self {
            backend: Scripted::tcp(http),
            protocol: "http",
        }
    }

    fn fastcgi() -> Self {
        Self {
            backend: Scripted::unix(fastcgi),
            protocol: "fastcgi",
        }
    }

    fn both() -> [Self; 2] {
        [Self::http(), Self::fastcgi()]
    }

    /// The upstream `app` with these further keys.
    fn upstream(&self, keys: &str) -> String {
        upstream("app", self.protocol, &self.backend, keys)
    }

    /// A server with this upstream behind all paths, and whatever comes after the site.
    fn launch(&self, keys: &str, rest: &str) -> Launch {
        launch(&self.upstream(keys), rest)
    }
}

fn upstream(name: &str, protocol: &str, backend: &Scripted, keys: &str) -> String {
    let to = backend.address();
    format!("[[upstream]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nto = [\"{to}\"]\n{keys}\n")
}

/// A server with `tables`, a site whose upstream is `app`, and whatever comes after that.
fn launch(tables: &str, rest: &str) -> Launch {
    let listen = "[admin]\nlisten = \"unix:{own}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    Launch::run(&format!(
        "{listen}{tables}[[site]]\nproxy = \"app\"\n{rest}"
    ))
}

/// What the backend is to answer with: 200 and these header lines.
fn say(lines: &[&str]) -> String {
    lines.join("|")
}

/// Asks for `/` in a way that is answered with these header lines.
#[track_caller]
fn ask(client: &mut Client, lines: &[&str]) -> Answer {
    ask_with(client, "GET", lines, &[])
}

/// What the application is to say goes in a field that does not tell clients apart.
#[track_caller]
fn ask_with(client: &mut Client, method: &str, lines: &[&str], more: &[(&str, &str)]) -> Answer {
    let lines = say(lines);
    let mut headers = vec![("Accept-Say", &lines[..])];
    headers.extend(more);
    let answer = client.request(method, "/", &headers);
    assert_no_talk(&answer);
    answer
}

/// Nothing of the talk between application and server is left.
#[track_caller]
fn assert_no_talk(answer: &Answer) {
    for name in FAMILY {
        assert_eq!(answer.header(name), None, "{name}: {answer:?}");
    }
}

/// With a length among the lines it sends no body, as frameworks do that leave a file to the server.
fn http(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let status = request.field("x-status").unwrap_or("200 OK");
        let (lines, has_length) = lines(request.field("accept-say"));
        let rest = match has_length {
            true => "\r\n",
            false => "Content-Length: 4\r\n\r\nbody",
        };
        conn.send(format!("HTTP/1.1 {status}\r\n{lines}{rest}"));
    }
}

fn fastcgi(conn: &mut Conn) {
    while let Some((request, _)) = conn.read_fastcgi() {
        let status = request.field("HTTP_X_STATUS").unwrap_or("200 OK");
        let (lines, has_length) = lines(request.field("HTTP_ACCEPT_SAY"));
        let body = if has_length { "" } else { "body" };
        let answer = format!("Status: {status}\r\n{lines}\r\n{body}");
        conn.send(fastcgi::answer(answer));
    }
}

fn lines(say: Option<&str>) -> (String, bool) {
    let lines = say
        .unwrap_or_default()
        .split('|')
        .filter(|line| !line.is_empty());
    let lines: String = lines.map(|line| format!("{line}\r\n")).collect();
    let has_length = lines.to_ascii_lowercase().contains("content-length:");
    (lines, has_length)
}

/// `NAME = ["PATH"]` in a configuration.
fn roots(name: &str, folder: &std::path::Path) -> String {
    format!("{name} = [\"{}\"]\n", folder.display())
}

/// The files of `tree` beneath `/protected`, for applications only, and beneath `/open`.
fn internal_files(tree: &Tree) -> String {
    format!(
        "[[site.route]]\npath = \"/protected/*\"\nroot = \"{}\"\nstrip_prefix = \"/protected\"\ninternal = true\n\
         [[site.route]]\npath = \"/open/*\"\nroot = \"{}\"\nstrip_prefix = \"/open\"\n",
        tree.path().display(),
        tree.path().display()
    )
}
