//! Header fields: end-to-end and hop-by-hop.

use std::path::Path;
use std::time::Duration;

use super::tell_target;
use crate::clients::run;
use crate::support::scripted::{Scripted, ajp, fastcgi};
use crate::support::{Answer, Launch, Tree, in_front_of, started_in_front_of};

/// The response that a client receives if the backend sends these header lines.
fn answered(lines: &'static str) -> Answer {
    let backend = Scripted::tcp(move |conn| {
        conn.read_request();
        conn.send(format!(
            "HTTP/1.1 200 Fine\r\n{lines}Content-Length: 0\r\n\r\n"
        ));
    });
    Launch::proxy(backend.address(), "").start().get("/")
}

#[test]
fn fields_of_a_request_pass_in_their_order() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "forwarded = \"off\"").start();
    let sent = [
        ("X-B", "1"),
        ("Accept", "a, b"),
        ("X-B", "2"),
        ("Cookie", "c=\"d\""),
        ("X-Empty", ""),
    ];
    server.get_with("/", &sent).assert_status(200);
    let seen = backend.request().fields;
    let expected = [("Host", "localhost")]
        .into_iter()
        .chain(sent)
        .chain([("Via", "1.1 levity")]);
    let expected: Vec<_> = expected
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .collect();
    assert_eq!(seen, expected);
}

#[cfg(feature = "http2")]
#[test]
fn via_has_the_version_of_the_client() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let url = format!("http://{}/", server.address());
    for option in ["--http1.0", "--http1.1", "--http2-prior-knowledge"] {
        let curl = ["-sSf", option, &url];
        let output = run(Duration::from_secs(10), "curl", &curl, Path::new("/"));
        assert!(output.status.success(), "{option}");
    }
    let seen = backend.requests();
    let via: Vec<_> = seen.iter().map(|request| request.field("via")).collect();
    assert_eq!(via, ["1.0 levity", "1.1 levity", "2.0 levity"].map(Some));
}

/// nginx compresses nothing for a request with Via, unless it is told so.
#[test]
fn via_can_be_removed() {
    let backend = Scripted::tcp(|conn| {
        while conn.read_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nVia: 1.1 app\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let keys = "[site.request_headers]\nremove = [\"VIA\"]\n[site.headers]\nremove = [\"Via\"]\n";
    for (keys, is_there) in [("", true), (keys, false)] {
        let upstream = format!(
            "[[upstream]]\nname = \"app\"\nto = [\"{}\"]\n",
            backend.address()
        );
        let tree = Tree::new();
        let site = format!("proxy = \"app\"\n{keys}");
        let server = Launch::site(tree.path(), &upstream, &site).start();
        let answer = server.get_with("/", &[("Via", "1.1 client")]);
        assert_eq!(answer.header("via").is_some(), is_there);
        let seen = backend.requests().pop().expect("a request");
        let names = seen.fields.iter().map(|(name, _)| name);
        let via = names.filter(|name| name.eq_ignore_ascii_case("via"));
        assert_eq!(via.count(), if is_there { 2 } else { 0 });
    }
}

#[test]
fn the_host_passes_unchanged() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: Example.test:8080\r\n\r\n");
    client.receive().assert_status(200);
    assert_eq!(backend.request().field("host"), Some("Example.test:8080"));
}

#[test]
fn hop_by_hop_fields_of_a_request_do_not_pass() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let sent = [
        ("Connection", "keep-alive, X-Private, x-absent"),
        ("X-Private", "secret"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Connection", "close"),
        ("TE", "gzip"),
        ("Trailer", "X"),
        ("Upgrade", "h2c"),
        ("X-Public", "stays"),
    ];
    server.get_with("/", &sent).assert_status(200);
    let request = backend.request();
    for (name, _) in &sent[..8] {
        assert_eq!(request.field(name), None, "{name}");
    }
    assert_eq!(request.field("x-public"), Some("stays"));
}

/// An application that maps fields to variables would take these for framing fields.
#[test]
fn no_other_name_frames_a_body() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let sent = [
        ("Transfer_Encoding", "chunked"),
        ("transfer.encoding", "chunked"),
        ("Content_Length", "5"),
        ("Transfer-Encoding-X", "stays"),
    ];
    server.get_with("/", &sent).assert_status(200);
    let request = backend.request();
    for (name, _) in &sent[..3] {
        assert_eq!(request.field(name), None, "{name}");
    }
    assert_eq!(request.field("transfer-encoding-x"), Some("stays"));
}

#[test]
fn connection_cannot_remove_fields_of_the_server() {
    let backend = Scripted::tcp(tell_target);
    let server = Launch::proxy(backend.address(), "").start();
    let listed = "close, Host, X-Forwarded-For, Forwarded, Via, Content-Length, Content-Type";
    let sent = [
        ("Connection", listed),
        ("Content-Type", "text/x-a"),
        ("Content-Length", "2"),
    ];
    let mut client = server.client();
    client.send(crate::support::head("POST", "/", &sent) + "ok");
    client.receive().assert_status(200);
    let request = backend.request();
    for name in [
        "host",
        "x-forwarded-for",
        "forwarded",
        "via",
        "content-type",
    ] {
        assert!(request.field(name).is_some(), "{name}");
    }
    assert_eq!(request.body, b"ok");
}

/// The same for every protocol of applications.
#[cfg(feature = "ajp")]
#[test]
fn fields_listed_in_connection_and_proxy_do_not_pass() {
    let sent = [
        ("Connection", "close, Cookie, Authorization"),
        ("Cookie", "a=b"),
        ("Authorization", "Basic x"),
        ("Proxy", "http://evil.example"),
        ("pROXY", "http://evil.example"),
        ("X-Public", "stays"),
    ];
    let http = Scripted::tcp(tell_target);
    Launch::proxy(http.address(), "")
        .start()
        .get_with("/", &sent)
        .assert_status(200);
    let ajp13 = Scripted::tcp(|conn| {
        while conn.read_ajp().is_some() {
            conn.send([ajp::send_headers(200, &[]), ajp::end(true)].concat());
        }
    });
    let fastcgi = Scripted::unix(|conn| {
        while conn.read_fastcgi().is_some() {
            conn.send(fastcgi::answer("A: b\n\n"));
        }
    });
    for (protocol, backend) in [("ajp13", &ajp13), ("fastcgi", &fastcgi)] {
        let server = started_in_front_of(backend.address(), protocol, &Tree::new(), "");
        server.get_with("/", &sent).assert_status(200);
    }
    for (backend, prefix) in [(&http, ""), (&ajp13, ""), (&fastcgi, "HTTP_")] {
        let request = backend.request();
        let field = |name: &str| request.field(&format!("{prefix}{name}"));
        for name in ["COOKIE", "AUTHORIZATION", "PROXY"] {
            assert_eq!(field(name), None, "{prefix}{name}");
        }
        let public = if prefix.is_empty() {
            "X-PUBLIC"
        } else {
            "X_PUBLIC"
        };
        assert_eq!(field(public), Some("stays"));
    }
}

#[test]
fn fields_of_a_response_pass() {
    let answer = answered(
        "X-B: 1\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: theirs\r\nX-B: 2\r\n",
    );
    assert_eq!(answer.status_line, "HTTP/1.1 200 Fine");
    assert_eq!(answer.field("date"), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(answer.field("server"), "theirs");
    let values = |name: &str| {
        let headers = answer.headers().into_iter();
        let named = headers.filter(|(is, _)| is.eq_ignore_ascii_case(name));
        named
            .map(|(_, value)| String::from_utf8(value).expect("UTF-8"))
            .collect::<Vec<_>>()
    };
    assert_eq!(values("x-b"), ["1", "2"]);
    assert_eq!(values("set-cookie"), ["a=b", "c=d"]);
}

#[test]
fn a_missing_date_is_added() {
    assert!(answered("").header("date").is_some());
}

#[test]
fn hop_by_hop_fields_of_a_response_do_not_pass() {
    let answer = answered(
        "Connection: X-Secret, set-cookie, close\r\nX-Secret: 1\r\nSet-Cookie: a=b\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nTrailer: X\r\nUpgrade: h2c\r\nX-Public: stays\r\n",
    );
    for name in [
        "connection",
        "x-secret",
        "set-cookie",
        "keep-alive",
        "proxy-authenticate",
        "trailer",
        "upgrade",
    ] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(answer.field("x-public"), "stays");
}

/// A header that begins with `start`, which has so many header lines. The target of the request says what else it has: a line
/// of that size, so many lines, or so many bytes in all.
fn sized(target: &str, (start, lines): (&str, usize)) -> String {
    let (what, size) = target[1..].split_once('/').expect("two segments");
    let size: usize = size.parse().expect("a number");
    let line = |bytes: usize| format!("X: {}\r\n", "v".repeat(bytes - "X: ".len()));
    let more = match what {
        "line" => line(size),
        "lines" => line(9).repeat(size - lines),
        _ => {
            let left = size - start.len() - "\r\n".len();
            let [first, second] =
                [left / 2, left - left / 2].map(|bytes| line(bytes - "\r\n".len()));
            first + &second
        }
    };
    format!("{start}{more}\r\n")
}

#[test]
fn a_header_section_at_its_limits() {
    let keys = "[upstream.limits]\nline_bytes = \"1KiB\"\nhead_bytes = \"2KiB\"\nheaders = 10\n";
    let http = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let start = ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 1);
            conn.send(sized(&request.target, start));
        }
    });
    let fastcgi = Scripted::unix(|conn| {
        while let Some((request, _)) = conn.read_fastcgi() {
            let start = ("Status: 200\r\nContent-Length: 0\r\n", 2);
            conn.send(fastcgi::answer(sized(&request.target, start)));
        }
    });
    for (protocol, backend) in [("http", &http), ("fastcgi", &fastcgi)] {
        let server = in_front_of(&[backend.address()], protocol, keys, &Tree::new(), "").start();
        for (what, size) in [("line", 1024), ("lines", 10), ("bytes", 2048)] {
            for (size, status) in [(size, 200), (size + 1, 502)] {
                let answer = server.get(&format!("/{what}/{size}"));
                assert_eq!(answer.status, status, "{protocol} {what} {size}");
            }
        }
    }
}

#[test]
fn a_long_header_section_passes() {
    let value = "v".repeat(7_000);
    let lines: String = (0..8)
        .map(|number| format!("X-{number}: {value}\r\n"))
        .collect();
    let backend = Scripted::tcp(move |conn| {
        while conn.read_request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n"
            ));
        }
    });
    let server = Launch::proxy(backend.address(), "").start();
    let mut client = server.client();
    for _ in 0..3 {
        let answer = client.get("/");
        for number in 0..8 {
            assert_eq!(answer.field(&format!("x-{number}")).len(), value.len());
        }
    }
    assert_eq!(backend.connections(), 1);
}
