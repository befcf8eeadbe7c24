//! Names that the server finds for another path: index files, suffixes and pages of `try`, scripts, precompressed forms,
//! listings. Each is answered by the rules of its own location, as if it had been asked for.

mod conditions;
mod forms;
mod generated;
mod moves;
mod table;
mod unguarded;
mod uploads;

use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;
use tokio::{runtime, time};

use crate::support::scripted::{Conn, Scripted, fastcgi};
use crate::support::{Launch, Server, Tree, WAIT_MAX, head};

/// Made by `htpasswd -bnBC 4`: `secret`.
const USERS: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

/// `ann:secret`.
const ANN: (&str, &str) = ("Authorization", "Basic YW5uOnNlY3JldA==");

/// A table whose clients are named by `X-Forwarded-For`.
const PROXIES: &str = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n";

const INSIDE: (&str, &str) = ("X-Forwarded-For", "10.1.2.3");
const OUTSIDE: (&str, &str) = ("X-Forwarded-For", "192.0.2.1");

/// Scripts among files.
const SCRIPTS: &str = "try = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\n";

type Headers<'a> = &'a [(&'a str, &'a str)];

#[derive(Clone, Copy, Debug)]
enum Version {
    Http1,
    Http2,
}

const VERSIONS: [Version; 2] = [Version::Http1, Version::Http2];

/// Headers are in lower case and in order, without the date.
#[derive(PartialEq, Eq)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(is, _)| is == name);
        named.next().map(|(_, value)| value.as_str())
    }
}

/// A long list is of no use in a message.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: String = self.body.chars().take(100).collect();
        write!(f, "{} {:?} {start:?}", self.status, self.headers)
    }
}

/// The answer to one request on a connection of its own. What changes files has their new content.
#[track_caller]
fn answer(server: &Server, version: Version, method: &str, path: &str, headers: Headers) -> Reply {
    let body: &[u8] = if method == "PUT" { b"new" } else { b"" };
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    if !matches!(method, "GET" | "HEAD") {
        all.push(("Content-Length", &length));
    }
    let mut reply = match version {
        Version::Http1 => over_http1(server, method, path, &all, body),
        Version::Http2 => over_http2(server, method, path, &all, body),
    };
    let of_the_connection = ["date", "connection", "transfer-encoding"];
    let headers = &mut reply.headers;
    headers.retain(|(name, _)| !of_the_connection.contains(&name.as_str()));
    headers.sort();
    reply
}

#[track_caller]
fn over_http1(server: &Server, method: &str, path: &str, headers: Headers, body: &[u8]) -> Reply {
    let mut client = server.client();
    client.send([head(method, path, headers).as_bytes(), body].concat());
    let answer = client.receive_to(method);
    let text = |value: Vec<u8>| String::from_utf8(value).expect("a header in UTF-8");
    let headers = answer.headers().into_iter();
    Reply {
        status: answer.status,
        body: answer.text(),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), text(value)))
            .collect(),
    }
}

#[track_caller]
fn over_http2(server: &Server, method: &str, path: &str, headers: Headers, body: &[u8]) -> Reply {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(()).expect("a request");
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let asking = async {
        let stream = TcpStream::connect(server.address()).await.expect("connect");
        let (client, connection) = h2::client::handshake(stream).await.expect("a connection");
        let ended = tokio::spawn(connection);
        let reply = exchange(client, request, Bytes::copy_from_slice(body)).await;
        ended.abort();
        reply
    };
    let limited = async { time::timeout(WAIT_MAX, asking).await.expect("in time") };
    runtime.expect("a runtime").block_on(limited)
}

async fn exchange(
    client: h2::client::SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
) -> Reply {
    let mut client = client.ready().await.expect("a connection");
    let (response, mut stream) = client
        .send_request(request, body.is_empty())
        .expect("a request");
    if !body.is_empty() {
        // A refusal may come before it.
        let _ = stream.send_data(body, true);
    }
    let (head, mut content) = response.await.expect("a response").into_parts();
    let mut body = Vec::new();
    while let Some(part) = content.data().await {
        let part = part.expect("a whole body");
        body.extend_from_slice(&part);
        let flow = content.flow_control();
        flow.release_capacity(part.len()).expect("a stream");
    }
    let text = |value: &http::HeaderValue| value.to_str().expect("a header in ASCII").to_owned();
    let headers = head.headers.iter();
    Reply {
        status: head.status.as_u16(),
        body: String::from_utf8_lossy(&body).into_owned(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
    }
}

/// How many faults a message has.
const FAULTS_SHOWN: usize = 12;

/// What is wrong, said once for all rows of a test.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn note(&mut self, is_right: bool, what: impl FnOnce() -> String) {
        if !is_right {
            self.0.push(what());
        }
    }

    #[track_caller]
    fn assert_none(self) {
        let count = self.0.len();
        let first: Vec<_> = self.0.into_iter().take(FAULTS_SHOWN).collect();
        assert_eq!(count, 0, "{}", first.join("\n"));
    }
}

/// Reads each path over both versions; the content of a status of 200 has to be the given one, of which a script may add
/// more.
#[track_caller]
fn assert_reads(server: &Server, headers: Headers, expected: &[(&str, u16, &str)]) {
    let mut faults = Faults::default();
    for version in VERSIONS {
        for method in ["GET", "HEAD"] {
            for (path, status, content) in expected {
                let reply = answer(server, version, method, path, headers);
                let has_content = match (method, status) {
                    ("HEAD", _) => reply.body.is_empty(),
                    (_, 200) => reply.body.contains(content),
                    _ => true,
                };
                let is_right = reply.status == *status && has_content;
                faults.note(is_right, || {
                    format!("{version:?} {method} {path}: not {status} {content:?}, but {reply:?}")
                });
            }
        }
    }
    faults.assert_none();
}

/// Expects each path to be refused with the status, the headers and the content of the direct one.
#[track_caller]
fn assert_refused(server: &Server, headers: Headers, direct: &str, status: u16, others: &[&str]) {
    let mut faults = Faults::default();
    for version in VERSIONS {
        for method in ["GET", "HEAD"] {
            let expected = answer(server, version, method, direct, headers);
            assert_eq!(expected.status, status, "{method} {direct}: {expected:?}");
            for other in others {
                let reply = answer(server, version, method, other, headers);
                faults.note(reply == expected, || {
                    format!("{version:?} {method} {other}: not {expected:?}, but {reply:?}")
                });
            }
        }
    }
    faults.assert_none();
}

/// A site with `root`; `{root}` in its keys stands for the path of that.
fn site(tree: &Tree, tables: &str, keys: &str) -> Launch {
    let keys = keys.replace("{root}", tree.path().to_str().expect("a path in UTF-8"));
    Launch::site(tree.path(), tables, &keys).workers(1)
}

fn started(tree: &Tree, keys: &str) -> Server {
    site(tree, PROXIES, keys).start()
}

/// A site with scripts, which `backend` runs.
fn with_scripts(backend: &Scripted, tree: &Tree, keys: &str) -> Server {
    let upstream = format!(
        "{PROXIES}[[upstream]]\nname = \"app\"\nprotocol = \"fastcgi\"\nto = [\"{}\"]\n",
        backend.address()
    );
    let keys = format!("proxy = \"app\"\n{SCRIPTS}{keys}");
    site(tree, &upstream, &keys).start()
}

/// Runs every script: it says which one, and how it was asked for.
fn runner() -> Scripted {
    Scripted::unix(|conn: &mut Conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            let field = |name| request.field(name).unwrap_or("");
            let said = format!(
                "ran {} with {} for {}",
                field("SCRIPT_NAME"),
                field("PATH_INFO"),
                field("REQUEST_URI")
            );
            let head = "Content-Type: text/plain\r\n\r\n";
            if !conn.send(fastcgi::answer(format!("{head}{said}"))) {
                break;
            }
        }
    })
}

/// A tree in which each file has its own name as its content.
fn tree_of(names: &[impl AsRef<str>]) -> Tree {
    let tree = Tree::new();
    for name in names {
        tree.file(name.as_ref(), content_of(name.as_ref()));
    }
    tree
}

/// Lets the server write to a folder.
fn open_to_all(tree: &Tree, folder: &str) {
    let open_to_all = Permissions::from_mode(0o777);
    fs::set_permissions(tree.at(folder), open_to_all).expect("chmod");
}

/// The content of such a file: no list of names has it.
fn content_of(name: &str) -> String {
    format!("[[{}]]", name.replace('/', "~"))
}

/// `[[site.route]]` with these keys.
fn route(keys: &str) -> String {
    format!("[[site.route]]\n{keys}\n")
}

/// A route that refuses everybody.
fn denied(path: &str) -> String {
    route(&format!("path = \"{path}\"\ndeny = [\"all\"]"))
}
