//! Applications that the proxy stands in front of, without it: what a test through the proxy may
//! expect of them, and whether our codecs understand them.

use levity_wire::ajp13::{self, Message, PACKET_BYTES_MAX, Reader, SendHeaders, Upload};
use levity_wire::cgi::{Environment, Request, ResponseHead, Split, parse_response, split_script};
use levity_wire::fastcgi::{self, Event};
use levity_wire::http1::{Limits, Version};
use levity_wire::scgi;
use serde_json::Value;

use crate::support::{App, Client, Tree, WebSocket, content, head, sha256};

/// More than any application may hold in memory.
const UPLOAD_BYTES: usize = 64 * 1024 * 1024;

/// For protocols whose peers have no reason to hold anything.
const SMALL_UPLOAD_BYTES: usize = 1_000_000;

#[track_caller]
fn json(body: &[u8]) -> Value {
    let value = serde_json::from_slice(body);
    value.unwrap_or_else(|error| panic!("{error}: {}", body.escape_ascii()))
}

/// What the upload handler of each application says.
#[track_caller]
fn assert_arrived(said: &[u8], sent: &[u8]) {
    let said = json(said);
    assert_eq!(said["length"], sent.len());
    assert_eq!(said["sha256"], sha256(sent).as_str());
}

/// A request to an application of CGI: a script of `root`, or an application mounted there.
fn cgi<'a>(root: &'a Tree, split: Split<'a>, method: &'a str, target: &'a str) -> Request<'a> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (target, None),
    };
    Request {
        method: method.as_bytes(),
        path: path.as_bytes(),
        query,
        version: Version::Http11,
        host: Some(b"localhost"),
        server_name: b"localhost",
        server_port: 80,
        server_software: b"levity",
        remote_addr: Some([192, 0, 2, 1].into()),
        remote_port: Some(4321),
        https: false,
        content_length: None,
        document_root: root.path().as_os_str().as_encoded_bytes(),
        script: split_script(&path.as_bytes()[1..], split).expect("a script"),
    }
}

const PHP: Split = Split::Suffix(b".php");

fn filled(request: &Request, fields: &[(&[u8], &[u8])]) -> Environment {
    let mut environment = Environment::default();
    let fields = fields.iter().copied();
    environment.fill(request, fields).expect("variables");
    environment
}

/// An answer of an application of CGI.
struct Answered {
    head: ResponseHead,
    bytes: Vec<u8>,
    stderr: String,
    reusable: bool,
}

impl Answered {
    #[track_caller]
    fn new(bytes: Vec<u8>) -> Self {
        let mut head = ResponseHead::default();
        let complete = parse_response(&bytes, &mut head, &Limits::default());
        assert_eq!(complete, Ok(true), "{}", bytes.escape_ascii());
        Self {
            head,
            bytes,
            stderr: String::new(),
            reusable: false,
        }
    }

    fn body(&self) -> &[u8] {
        &self.bytes[self.head.bytes..]
    }

    fn header(&self, name: &str) -> &str {
        let value = self.head.header(&self.bytes, name);
        std::str::from_utf8(value.unwrap_or_default()).expect("a header in UTF-8")
    }
}

/// One request by FastCGI on a connection that may have carried others.
#[track_caller]
fn fastcgi(client: &mut Client, environment: &Environment, body: &[u8]) -> Answered {
    let mut head = Vec::new();
    fastcgi::write_head(environment, true, &mut head);
    client.send(head);
    for record in fastcgi::stdin(body) {
        client.send([&record.header, record.content, record.padding].concat());
    }
    client.send(fastcgi::STDIN_END);
    fastcgi_answer(client)
}

#[track_caller]
fn fastcgi_answer(client: &mut Client) -> Answered {
    let mut answer = fastcgi::Answer::new(true);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let arrived = client.read_some();
        let decoded = answer.decode(&arrived, |event| match event {
            Event::Stdout(bytes) => stdout.extend_from_slice(bytes),
            Event::Stderr(bytes) => stderr.extend_from_slice(bytes),
            Event::End { app_status, .. } => assert_eq!(app_status, 0),
        });
        if decoded.expect("records of FastCGI").done {
            let mut answered = Answered::new(stdout);
            answered.stderr = String::from_utf8(stderr).expect("messages in UTF-8");
            answered.reusable = answer.is_reusable();
            return answered;
        }
    }
}

#[test]
fn php_fpm_is_told_about_the_request() {
    let (app, root) = (App::php_fpm(), App::php());
    let request = cgi(&root, PHP, "GET", "/index.php/some/info?a=b");
    let environment = filled(&request, &[(b"X-Asked", b"yes"), (b"x-asked", b"twice")]);
    let mut client = app.client();
    // Again and again on one connection.
    for _ in 0..3 {
        let answered = fastcgi(&mut client, &environment, b"");
        assert_eq!(answered.head.status, 200);
        assert_eq!(answered.header("content-type"), "application/json");
        let said = json(answered.body());
        let folder = root.path().display();
        assert_eq!(said["SCRIPT_NAME"], "/index.php");
        assert_eq!(said["PATH_INFO"], "/some/info");
        assert_eq!(said["REQUEST_URI"], "/index.php/some/info?a=b");
        assert_eq!(said["QUERY_STRING"], "a=b");
        assert_eq!(said["DOCUMENT_ROOT"], folder.to_string());
        assert_eq!(said["SCRIPT_FILENAME"], format!("{folder}/index.php"));
        assert_eq!(said["HTTP_X_ASKED"], "yes, twice");
        assert_eq!(said["REMOTE_ADDR"], "192.0.2.1");
        assert!(answered.reusable);
    }
}

#[test]
fn php_fpm_takes_as_many_variables_as_may_be() {
    let (app, root) = (App::php_fpm(), App::php());
    let names: Vec<String> = (0..15).map(|number| format!("X-Long-{number}")).collect();
    let value = [b'v'; 3900];
    let fields: Vec<(&[u8], &[u8])> = names
        .iter()
        .map(|name| (name.as_bytes(), &value[..]))
        .collect();
    let environment = filled(&cgi(&root, PHP, "GET", "/index.php"), &fields);
    let said = json(fastcgi(&mut app.client(), &environment, b"").body());
    for number in 0..15 {
        let long = said[format!("HTTP_X_LONG_{number}")].as_str();
        assert_eq!(long.map(str::len), Some(value.len()));
    }
}

#[test]
fn php_fpm_takes_a_large_upload() {
    let (app, root) = (App::php_fpm(), App::php());
    let body = content(1, UPLOAD_BYTES);
    let mut request = cgi(&root, PHP, "POST", "/upload.php");
    request.content_length = Some(body.len() as u64);
    let environment = filled(&request, &[(b"Content-Type", b"application/octet-stream")]);
    let answered = fastcgi(&mut app.client(), &environment, &body);
    assert_arrived(answered.body(), &body);
    assert!(answered.reusable);
}

#[test]
fn php_fpm_answers_with_statuses_and_headers() {
    let (app, root) = (App::php_fpm(), App::php());
    let target = "/answer.php?status=404&header[]=X-Accel-Redirect:%20/a&body=gone&zeros=100000";
    let environment = filled(&cgi(&root, PHP, "GET", target), &[]);
    let answered = fastcgi(&mut app.client(), &environment, b"");
    assert_eq!(answered.head.status, 404);
    assert_eq!(answered.header("x-accel-redirect"), "/a");
    assert_eq!(&answered.body()[..6], b"gone\0\0");
    assert_eq!(answered.body().len(), 100_004);
}

#[test]
fn php_fpm_complains_of_what_it_does_not_find() {
    let (app, root) = (App::php_fpm(), App::php());
    let environment = filled(&cgi(&root, PHP, "GET", "/absent.php"), &[]);
    let answered = fastcgi(&mut app.client(), &environment, b"");
    assert_eq!(answered.head.status, 404);
    assert!(
        answered.stderr.contains("Primary script unknown"),
        "{}",
        answered.stderr
    );
}

#[test]
fn php_fpm_sends_messages_beside_its_answer() {
    let (app, root) = (App::php_fpm(), App::php());
    let environment = filled(&cgi(&root, PHP, "GET", "/stderr.php?say=bye"), &[]);
    let answered = fastcgi(&mut app.client(), &environment, b"");
    assert_eq!(answered.body(), b"an answer and its rest");
    for message in ["before the answer", "within the answer", "bye"] {
        assert!(answered.stderr.contains(message), "{}", answered.stderr);
    }
}

#[test]
fn php_fpm_takes_its_time() {
    let (app, root) = (App::php_fpm(), App::php());
    let environment = filled(&cgi(&root, PHP, "GET", "/slow.php?head&ms=50"), &[]);
    assert_eq!(
        fastcgi(&mut app.client(), &environment, b"").body(),
        b"begin done"
    );
}

#[test]
fn symfony_leaves_files_to_the_server() {
    let (app, root) = (App::php_fpm(), App::php());
    let file = root.file("secret/file", "content");
    let target = format!("/symfony.php?path={}", file.display());
    let folder = file.parent().expect("a folder").display();
    let mapping = format!("{folder}/=/protected/");
    let request = cgi(&root, PHP, "GET", &target);
    let send =
        |fields: &[(&[u8], &[u8])]| fastcgi(&mut app.client(), &filled(&request, fields), b"");
    let itself = send(&[]);
    assert_eq!(
        (itself.body(), itself.header("x-sendfile")),
        (&b"content"[..], "")
    );
    let by_path = send(&[(b"X-Sendfile-Type", b"X-Sendfile")]);
    assert_eq!(by_path.header("x-sendfile"), file.to_str().expect("UTF-8"));
    let by_url = send(&[
        (b"X-Sendfile-Type", b"X-Accel-Redirect"),
        (b"X-Accel-Mapping", mapping.as_bytes()),
    ]);
    assert_eq!(by_url.header("x-accel-redirect"), "/protected/file");
    // It announces the bytes of the file that it leaves to the server.
    for answered in [by_path, by_url] {
        assert_eq!(
            (answered.head.content_length, answered.body()),
            (Some(7), &b""[..])
        );
        assert!(
            answered
                .header("content-type")
                .starts_with("text/x-symfony")
        );
    }
}

/// One request by SCGI.
#[track_caller]
fn scgi(app: &App, environment: &Environment, body: &[u8]) -> Answered {
    let mut client = app.client();
    let mut sent = Vec::new();
    scgi::write_head(environment, body.len() as u64, &mut sent);
    sent.extend_from_slice(body);
    client.send(sent);
    Answered::new(client.read_to_end().body())
}

#[test]
fn uwsgi_is_told_about_the_request() {
    let (app, root) = (App::uwsgi(), Tree::new());
    let request = cgi(&root, Split::Mount(b""), "GET", "/echo?a=b");
    let answered = scgi(&app, &filled(&request, &[(b"X-Asked", b"yes")]), b"");
    assert_eq!(answered.head.status, 200);
    let said = json(answered.body());
    assert_eq!(said["SCRIPT_NAME"], "");
    assert_eq!(said["PATH_INFO"], "/echo");
    assert_eq!(said["QUERY_STRING"], "a=b");
    assert_eq!(said["HTTP_X_ASKED"], "yes");
    assert_eq!(said["SCGI"], "1");
}

#[test]
fn uwsgi_takes_an_upload() {
    let (app, root) = (App::uwsgi(), Tree::new());
    let body = content(2, SMALL_UPLOAD_BYTES);
    let request = cgi(&root, Split::Mount(b""), "POST", "/upload");
    assert_arrived(scgi(&app, &filled(&request, &[]), &body).body(), &body);
}

/// The body in chunks of this many bytes.
fn chunked(body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    for chunk in body.chunks(chunk_bytes) {
        sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
        sent.extend_from_slice(chunk);
        sent.extend(b"\r\n");
    }
    sent.extend(b"0\r\n\r\n");
    sent
}

/// Sends a body with its length, and one in chunks, to a handler that tells what arrived.
#[track_caller]
fn assert_uploads(app: &App, len: usize) {
    let body = content(3, len);
    let mut client = app.client();
    let length = len.to_string();
    client.send(head("POST", "/upload", &[("Content-Length", &length)]));
    client.send(&body);
    assert_arrived(&client.receive().body, &body);
    client.send(head("POST", "/upload", &[("Transfer-Encoding", "chunked")]));
    client.send(chunked(&body, 10_000));
    assert_arrived(&client.receive().body, &body);
}

#[test]
fn gunicorn_answers() {
    let app = App::gunicorn();
    let mut client = app.client();
    let said = json(&client.get_with("/echo?a=b", &[("X-Asked", "yes")]).body);
    assert_eq!(said["QUERY_STRING"], "a=b");
    assert_eq!(said["HTTP_X_ASKED"], "yes");
    let streamed = client.get("/chunked?pieces=4&bytes=3");
    assert!(streamed.is_chunked() && streamed.trailers.is_empty());
    assert_eq!(streamed.text(), "000111222333");
    assert_eq!(client.get("/slow?ms=20").text(), "done");
    let answered = client.get("/answer?status=418%20Teapot&header=X-A:%20b&body=tea");
    assert_eq!(answered.status_line, "HTTP/1.1 418 Teapot");
    assert_eq!(
        (answered.field("x-a"), answered.text()),
        ("b", "tea".into())
    );
    assert!(app.said().contains("Listening at"));
}

#[test]
fn gunicorn_takes_uploads() {
    assert_uploads(&App::gunicorn(), SMALL_UPLOAD_BYTES);
}

#[test]
fn a_gunicorn_of_its_own_ends_with_the_test() {
    let app = App::own_gunicorn();
    app.client().get("/echo").assert_status(200);
    let address = app.address().to_owned();
    assert_ne!(address, App::gunicorn().address());
    drop(app);
    assert!(std::net::TcpStream::connect(&address).is_err());
}

#[test]
fn django_leaves_files_to_the_server() {
    let (app, root) = (App::gunicorn(), Tree::new());
    let file = root.file("some file.txt", "content");
    let folder = root.path().display();
    // The length is that of the file, whose bytes never come: the connection is of no more use.
    for (backend, header, value) in [
        ("nginx", "x-accel-redirect", "/protected/some%20file.txt"),
        ("xsendfile", "x-sendfile", file.to_str().expect("UTF-8")),
    ] {
        let mut client = app.client();
        let target = format!("/django?backend={backend}&root={folder}&path=some%20file.txt");
        client.send(head("GET", &target, &[]));
        let head = client.receive_head().expect("a head");
        head.assert_status(200);
        assert_eq!(head.field(header), value);
        assert_eq!(head.field("content-type"), "text/plain");
        assert_eq!(head.length(), Some(7));
    }
}

#[test]
fn flask_leaves_files_to_the_server() {
    let (app, root) = (App::gunicorn(), Tree::new());
    let file = root.file("file.txt", "content");
    let mut client = app.client();
    let target = format!("/flask?path={}", file.display());
    client.send(head("GET", &target, &[]));
    let head = client.receive_head().expect("a head");
    head.assert_status(200);
    assert_eq!(head.field("x-sendfile"), file.to_str().expect("UTF-8"));
}

#[test]
fn uvicorn_answers() {
    let app = App::uvicorn();
    let mut client = app.client();
    let said = json(&client.get_with("/echo?a=b", &[("X-Asked", "yes")]).body);
    assert_eq!(said["query"], "a=b");
    let headers = said["headers"].as_array().expect("headers");
    assert!(
        headers.contains(&serde_json::json!(["x-asked", "yes"])),
        "{said}"
    );
    assert_eq!(client.get("/slow?ms=20").text(), "done");
    let events = client.get("/events?count=3&ms=1");
    assert_eq!(events.field("content-type"), "text/event-stream");
    assert_eq!(events.text().matches("data: event").count(), 3);
}

#[test]
fn uvicorn_sends_events_without_end() {
    let mut client = App::uvicorn().client();
    client.send(head("GET", "/events?ms=5", &[]));
    assert!(client.receive_head().expect("a head").is_chunked());
    client.read_through(b"data: event 9\n\n");
}

#[test]
fn uvicorn_takes_uploads() {
    assert_uploads(&App::uvicorn(), SMALL_UPLOAD_BYTES);
}

#[test]
fn uvicorn_answers_while_it_is_asked() {
    let mut client = App::uvicorn().client();
    client.send(head("POST", "/back", &[("Transfer-Encoding", "chunked")]));
    assert!(client.receive_head().expect("a head").is_chunked());
    for word in ["ping", "pong"] {
        client.send(format!("4\r\n{word}\r\n"));
        assert_eq!(
            client.read_exactly(9),
            format!("4\r\n{word}\r\n").as_bytes()
        );
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.read_exactly(5), b"0\r\n\r\n");
}

#[test]
fn uvicorn_speaks_web_socket() {
    let mut socket = WebSocket::open(App::uvicorn().client(), "/socket");
    assert_eq!(socket.answer.field("upgrade"), "websocket");
    for message in ["hello", "", "again"] {
        socket.send(message);
        assert_eq!(socket.receive(), message);
    }
    socket.send("close");
    assert_eq!(socket.receive_close(), 4000);
}

#[test]
fn puma_answers() {
    let app = App::puma();
    let said = json(
        &app.client()
            .get_with("/echo?a=b", &[("X-Asked", "yes")])
            .body,
    );
    assert_eq!(said["QUERY_STRING"], "a=b");
    assert_eq!(said["HTTP_X_ASKED"], "yes");
    assert_uploads(&app, SMALL_UPLOAD_BYTES);
}

#[test]
fn rack_leaves_files_to_the_server() {
    let (app, root) = (App::puma(), Tree::new());
    let file = root.file("file.txt", "content");
    let path = file.to_str().expect("UTF-8");
    let target = format!("/file?path={path}");
    let mut client = app.client();
    let itself = client.get(&target);
    assert_eq!(
        (itself.text(), itself.header("x-sendfile")),
        ("content".into(), None)
    );
    let by_path = client.get_with(&target, &[("X-Sendfile-Type", "X-Sendfile")]);
    assert_eq!(
        (by_path.field("x-sendfile"), by_path.length()),
        (path, Some(0))
    );
    let mapping = format!("{}/=/protected/", root.path().display());
    let asked = [
        ("X-Sendfile-Type", "X-Accel-Redirect"),
        ("X-Accel-Mapping", &mapping),
    ];
    let by_url = client.get_with(&target, &asked);
    assert_eq!(by_url.field("x-accel-redirect"), "/protected/file.txt");
    assert_eq!(by_url.field("x-sendfile-type-was"), "X-Accel-Redirect");
}

/// A connection by AJP13 and what was read of it too early.
struct Ajp {
    client: Client,
    ahead: Vec<u8>,
}

/// An answer of a servlet container.
#[derive(Default)]
struct Contained {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    reuse: bool,
}

impl Ajp {
    fn new(app: &App) -> Self {
        let (client, ahead) = (app.client(), Vec::new());
        Self { client, ahead }
    }

    fn ping(&mut self) {
        self.client.send(ajp13::PING);
        let mut pong = false;
        self.read(Reader::pong(), |_, message| {
            pong = message == Message::CPong;
        });
        assert!(pong);
    }

    /// With a body whose length is said, or that is chunked.
    fn request(&mut self, method: &str, target: &str, body: &[u8], says_length: bool) -> Contained {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let head = ajp13::Head {
            method: method.as_bytes(),
            version: Version::Http11,
            path: path.as_bytes(),
            query: (!query.is_empty()).then_some(query.as_bytes()),
            remote_address: b"192.0.2.1",
            remote_port: Some(4321),
            server_name: b"localhost",
            server_port: 80,
            secure: false,
            secret: Some(App::TOMCAT_SECRET.as_bytes()),
        };
        let length = body.len().to_string();
        let framing: (&[u8], &[u8]) = match says_length {
            true => (b"content-length", length.as_bytes()),
            false => (b"transfer-encoding", b"chunked"),
        };
        let headers: [(&[u8], &[u8]); 3] = [(b"host", b"localhost"), (b"x-asked", b"yes"), framing];
        let mut out = Vec::new();
        ajp13::write_head(&head, headers, &mut out).expect("a head that fits");
        let mut upload = Upload::new(says_length.then_some(body.len() as u64));
        let mut left = body;
        left = &left[upload.write(left, &mut out)..];
        self.client.send(&out);
        let mut contained = Contained::default();
        self.read(Reader::response(), |client, message| match message {
            Message::SendHeaders(head) => contained.head(&head),
            Message::SendBodyChunk(bytes) => contained.body.extend_from_slice(bytes),
            Message::GetBodyChunk { requested } => {
                upload.ask(requested).expect("it waits for nothing else");
                let mut out = Vec::new();
                left = &left[upload.write(left, &mut out)..];
                upload.write_end(&mut out);
                client.send(out);
            }
            Message::EndResponse { reuse } => contained.reuse = reuse,
            Message::CPong => panic!("a CPong"),
        });
        contained
    }

    /// Hands over one message after the other until the answer ends.
    fn read(&mut self, mut reader: Reader, mut take: impl FnMut(&mut Client, Message)) {
        loop {
            let decoded = reader.decode(&self.ahead).expect("packets of AJP13");
            let ends = matches!(
                decoded.message,
                Some(Message::EndResponse { .. } | Message::CPong)
            );
            let waits = decoded.message.is_none();
            if let Some(message) = decoded.message {
                take(&mut self.client, message);
            }
            let consumed = decoded.consumed;
            self.ahead.drain(..consumed);
            assert!(self.ahead.len() < PACKET_BYTES_MAX * 16);
            if ends {
                return;
            }
            if waits {
                self.ahead.extend(self.client.read_some());
            }
        }
    }
}

impl Contained {
    fn head(&mut self, head: &SendHeaders) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.status = head.status;
        let headers = head.headers();
        self.headers = headers
            .map(|(name, value)| (text(name), text(value)))
            .collect();
    }
}

#[test]
#[ignore = "slow: starts Tomcat"]
fn tomcat_answers() {
    let app = App::tomcat();
    let mut ajp = Ajp::new(&app);
    ajp.ping();
    for _ in 0..2 {
        let contained = ajp.request("GET", "/echo.jsp?a=b", b"", true);
        let said = String::from_utf8(contained.body).expect("UTF-8");
        assert_eq!(contained.status, 200, "{said}");
        for line in [
            "uri=/echo.jsp\n",
            "query=a=b\n",
            "remote=192.0.2.1:4321\n",
            "x-asked: yes\n",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let is_text = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("text/plain")
        };
        assert!(
            contained.headers.iter().any(is_text),
            "{:?}",
            contained.headers
        );
        assert!(contained.reuse);
    }
    ajp.ping();
    let absent = ajp.request("GET", "/absent.jsp", b"", true);
    assert_eq!(absent.status, 404);
}

#[test]
#[ignore = "slow: starts Tomcat"]
fn tomcat_takes_uploads() {
    let app = App::tomcat();
    let mut ajp = Ajp::new(&app);
    let body = content(4, SMALL_UPLOAD_BYTES);
    for says_length in [true, false, true] {
        let contained = ajp.request("POST", "/upload.jsp", &body, says_length);
        assert_eq!(contained.status, 200, "{}", contained.body.escape_ascii());
        assert_arrived(&contained.body, &body);
        assert!(contained.reuse);
    }
    let empty = ajp.request("POST", "/upload.jsp", b"", false);
    assert_arrived(&empty.body, b"");
}
