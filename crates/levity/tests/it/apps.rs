//! Applications that the proxy stands in front of, without it: what a test through the proxy may
//! expect of them, and whether our codecs understand them.

use std::net::TcpStream;

use levity_wire::cgi::Split;
use levity_wire::fastcgi;
use serde_json::Value;

use crate::support::direct::{self, Ajp, cgi, filled};
use crate::support::{App, Tree, WebSocket, content, head, scripted, sha256, wait_until};

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

const PHP: Split = Split::Suffix(b".php");

#[test]
fn php_fpm_is_told_about_the_request() {
    let (app, root) = (App::php_fpm(), App::php());
    let request = cgi(&root, PHP, "GET", "/index.php/some/info?a=b");
    let environment = filled(&request, &[(b"X-Asked", b"yes"), (b"x-asked", b"twice")]);
    let mut client = app.client();
    // Again and again on one connection.
    for _ in 0..3 {
        let answered = direct::fastcgi(&mut client, &environment, b"");
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
    let said = json(direct::fastcgi(&mut app.client(), &environment, b"").body());
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
    let answered = direct::fastcgi(&mut app.client(), &environment, &body);
    assert_arrived(answered.body(), &body);
    assert!(answered.reusable);
}

#[test]
fn php_fpm_answers_with_statuses_and_headers() {
    let (app, root) = (App::php_fpm(), App::php());
    let target = "/answer.php?status=404&header[]=X-Accel-Redirect:%20/a&body=gone&zeros=100000";
    let environment = filled(&cgi(&root, PHP, "GET", target), &[]);
    let answered = direct::fastcgi(&mut app.client(), &environment, b"");
    assert_eq!(answered.head.status, 404);
    assert_eq!(answered.header("x-accel-redirect"), "/a");
    assert_eq!(&answered.body()[..6], b"gone\0\0");
    assert_eq!(answered.body().len(), 100_004);
}

#[test]
fn php_fpm_complains_of_what_it_does_not_find() {
    let (app, root) = (App::php_fpm(), App::php());
    let environment = filled(&cgi(&root, PHP, "GET", "/absent.php"), &[]);
    let answered = direct::fastcgi(&mut app.client(), &environment, b"");
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
    let answered = direct::fastcgi(&mut app.client(), &environment, b"");
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
        direct::fastcgi(&mut app.client(), &environment, b"").body(),
        b"begin done"
    );
}

/// To the script, an abort looks like the end of the body, of which it sees some or nothing. The
/// connection closes although the answer is in order and its keeping was asked for.
#[test]
fn php_fpm_runs_what_was_aborted() {
    let (app, root) = (App::php_fpm(), App::php());
    let mut request = cgi(&root, PHP, "POST", "/upload.php");
    request.content_length = Some(9);
    let mut client = app.client();
    let mut sent = Vec::new();
    fastcgi::write_head(&filled(&request, &[]), true, &mut sent);
    for record in fastcgi::stdin(b"half") {
        sent.extend([&record.header, record.content, record.padding].concat());
    }
    sent.extend(scripted::fastcgi::ABORT);
    client.send(sent);
    let answered = direct::fastcgi_answer(&mut client);
    let length = json(answered.body())["length"].as_u64();
    assert!(length.is_some_and(|length| length <= 4), "{length:?}");
    assert!(answered.reusable);
    client.assert_closed();
}

#[test]
fn symfony_leaves_files_to_the_server() {
    let (app, root) = (App::php_fpm(), App::php());
    let file = root.file("secret/file", "content");
    let target = format!("/symfony.php?path={}", file.display());
    let folder = file.parent().expect("a folder").display();
    let mapping = format!("{folder}/=/protected/");
    let request = cgi(&root, PHP, "GET", &target);
    let send = |fields: &[(&[u8], &[u8])]| {
        direct::fastcgi(&mut app.client(), &filled(&request, fields), b"")
    };
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

#[test]
fn uwsgi_is_told_about_the_request() {
    let (app, root) = (App::uwsgi(), Tree::new());
    let request = cgi(&root, Split::Mount(b""), "GET", "/echo?a=b");
    let answered = direct::scgi(
        app.client(),
        &filled(&request, &[(b"X-Asked", b"yes")]),
        b"",
    );
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
    assert_arrived(
        direct::scgi(app.client(), &filled(&request, &[]), &body).body(),
        &body,
    );
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
    // Its worker dies together with it, but not in the same moment.
    wait_until("nobody listens", || TcpStream::connect(&address).is_err());
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
    assert_eq!(by_url.field("x-kept-type"), "X-Accel-Redirect");
}

#[test]
#[ignore = "slow: starts Tomcat"]
fn tomcat_answers() {
    let app = App::tomcat();
    let mut ajp = Ajp::new(app.client());
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
    let mut ajp = Ajp::new(app.client());
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
