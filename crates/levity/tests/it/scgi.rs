//! SCGI: one request per connection.

use serde_json::Value;

use crate::support::scripted::Scripted;
use crate::support::{App, Server, Tree, assert_same, content, head, sha256, started_in_front_of};

fn server(address: &str) -> Server {
    started_in_front_of(address, "scgi", &Tree::new(), "")
}

/// Responds to every request with this CGI output.
fn saying(output: impl Into<Vec<u8>>) -> Scripted {
    let output = output.into();
    Scripted::unix(move |conn| {
        conn.read_scgi();
        conn.send(&output);
    })
}

#[test]
fn each_request_has_a_connection() {
    let backend = saying("Status: 203 Perhaps\nX-A: b\n\nbody");
    let server = server(backend.address());
    let mut client = server.client();
    for _ in 0..2 {
        let answer = client.get("/a%20b?c=d");
        assert_eq!(answer.status_line, "HTTP/1.1 203 Perhaps");
        assert_eq!((answer.field("x-a"), &*answer.text()), ("b", "body"));
    }
    client.head("/").assert_status(203);
    assert_eq!(backend.connections(), 3);
    let request = &backend.requests()[0];
    for (name, value) in [
        ("CONTENT_LENGTH", "0"),
        ("SCGI", "1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/a%20b?c=d"),
        ("SCRIPT_NAME", ""),
        ("PATH_INFO", "/a b"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
    ] {
        assert_eq!(request.field(name), Some(value), "{name}");
    }
    assert_eq!(request.field("SCRIPT_FILENAME"), None);
}

#[test]
fn bodies_are_of_known_length() {
    let backend = saying("A: b\n\ndone");
    let server = server(backend.address());
    let body = content(1, 60_000);
    let mut client = server.client();
    client.send(head("POST", "/", &[("Content-Length", "60000")]));
    client.send(&body);
    assert_eq!(client.receive().text(), "done");
    client.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    client.send(format!("{:x}\r\n", body.len()));
    client.send(&body);
    client.send("\r\n0\r\n\r\n");
    assert_eq!(client.receive().text(), "done");
    for request in backend.requests() {
        assert_eq!(request.field("CONTENT_LENGTH"), Some("60000"));
        assert_same(&request.body, &body);
    }
}

#[test]
fn a_response_ends_with_the_connection_or_its_length() {
    let unended = Scripted::unix(|conn| {
        conn.read_scgi();
        conn.send("Content-Length: 4\n\nbody and more");
        conn.stall();
    });
    assert_eq!(server(unended.address()).get("/").text(), "body");
    unended.release();
    let slow = Scripted::unix(|conn| {
        conn.read_scgi();
        conn.send_slowly("HTTP/1.0 404 Gone\r\nA: b\r\n\r\nnothing");
    });
    let answer = server(slow.address()).get("/");
    assert_eq!((answer.status, &*answer.text()), (404, "nothing"));
    let short = saying("Content-Length: 40\n\nbody");
    server(short.address()).client().assert_cut_short();
}

#[test]
fn a_malformed_response_is_502() {
    for output in ["", "no field\n\n", "A: b\n"] {
        let backend = saying(output);
        server(backend.address()).get("/").assert_status(502);
    }
}

#[test]
fn uwsgi_responds() {
    let app = App::uwsgi();
    let server = server(app.address());
    let mut client = server.client();
    let json = |body: &[u8]| -> Value { serde_json::from_slice(body).expect("JSON") };
    let said = json(
        &client
            .get_with("/echo/a%20b?c=d", &[("X-Asked", "yes")])
            .body,
    );
    for (name, value) in [
        ("SCRIPT_NAME", ""),
        ("PATH_INFO", "/echo/a b"),
        ("QUERY_STRING", "c=d"),
        ("HTTP_X_ASKED", "yes"),
        ("SERVER_NAME", "localhost"),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
    let body = content(2, 1_000_000);
    client.send(head("POST", "/upload", &[("Content-Length", "1000000")]));
    client.send(&body);
    let said = json(&client.receive().body);
    assert_eq!(said["length"], body.len());
    assert_eq!(said["sha256"], sha256(&body).as_str());
    client.head("/answer?body=tea").assert_status(200);
    let answer = client.get("/answer?status=418%20Teapot&header=X-A:%20b&body=tea");
    assert_eq!(answer.status_line, "HTTP/1.1 418 Teapot");
    assert_eq!(answer.text(), "tea");
}
