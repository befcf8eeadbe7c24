//! Who the client is, behind proxies that are trusted and others.

use std::path::Path;

use crate::support::scripted::{Conn, Request, Scripted};
use crate::support::{Client, Launch, Server};

fn answer(conn: &mut Conn) {
    while conn.read_request().is_some() {
        conn.answer("200 OK", "");
    }
}

const TRUSTING: &str = "[server]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n";

/// A server that hands everything to `backend`; `tables` come first, `keys` are those of its upstream.
fn in_front_of(backend: &Scripted, tables: &str, keys: &str) -> Server {
    in_front_of_site(backend, tables, keys, "")
}

/// The same with these keys of the site.
fn in_front_of_site(backend: &Scripted, tables: &str, keys: &str, site: &str) -> Server {
    let to = backend.address();
    Launch::run(&format!(
        "{tables}\n[log]\naccess = \"stdout\"\nformat = \"json\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"unix:{{own}}/http.sock\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n{keys}\n[[site]]\nproxy = \"app\"\n{site}"
    ))
    .start()
}

/// The request as it reached the backend, and the line of the access log, of a client that sends these
/// fields from this machine.
fn told(tables: &str, keys: &str, fields: &[(&str, &str)]) -> (Request, serde_json::Value) {
    let backend = Scripted::tcp(answer);
    let server = in_front_of(&backend, tables, keys);
    server.get_with("/", fields).assert_status(200);
    (backend.request(), logged(&server))
}

fn logged(server: &Server) -> serde_json::Value {
    serde_json::from_str(&server.prints("\"target\":\"/\"")).expect("a line of JSON")
}

/// Values of the fields by which a backend is told of the client.
fn fields(request: &Request) -> [Option<&str>; 4] {
    [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
    ]
    .map(|name| request.field(name))
}

#[test]
fn what_an_unknown_client_says_is_dropped() {
    let (request, line) = told(
        "",
        "",
        &[
            ("Forwarded", "for=192.0.2.1;proto=https"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("X_Forwarded_For", "192.0.2.1"),
            ("X.Forwarded.For", "192.0.2.1"),
            ("X-Forwarded_Proto", "https"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "evil.example"),
            ("X-Forwarded-Port", "1"),
            ("X-Forwarded-Prefix", "/evil"),
            ("X-Real-IP", "192.0.2.1"),
            ("X_Real_IP", "192.0.2.1"),
            ("X-Other", "stays"),
            ("X_Other", "stays too"),
        ],
    );
    let expected = [
        Some("for=127.0.0.1;host=localhost;proto=http"),
        Some("127.0.0.1"),
        Some("http"),
        Some("localhost"),
    ];
    assert_eq!(fields(&request), expected);
    let head = String::from_utf8_lossy(&request.head);
    assert!(
        !head.contains("192.0.2.1") && !head.contains("evil"),
        "{head}"
    );
    assert_eq!(request.field("x-other"), Some("stays"));
    assert_eq!(request.field("x_other"), Some("stays too"));
    assert_eq!(line["peer"], "127.0.0.1");
    assert_eq!(line.get("via"), None);
}

#[test]
fn a_trusted_proxy_is_believed_and_quoted() {
    let (request, line) = told(
        TRUSTING,
        "",
        &[
            ("X-Forwarded-For", "198.51.100.66, 192.0.2.1, 10.0.0.2"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "www.example"),
            ("X-Real-IP", "192.0.2.1"),
        ],
    );
    let expected = [
        Some(
            "for=198.51.100.66, for=192.0.2.1, for=10.0.0.2, for=127.0.0.1;host=www.example;proto=https",
        ),
        Some("198.51.100.66, 192.0.2.1, 10.0.0.2, 127.0.0.1"),
        Some("https"),
        Some("www.example"),
    ];
    assert_eq!(fields(&request), expected);
    assert_eq!(request.field("x-real-ip"), Some("192.0.2.1"));
    assert_eq!(
        (&line["peer"], &line["via"]),
        (&"192.0.2.1".into(), &"127.0.0.1".into())
    );
}

/// What trusted proxies say besides, and nobody else.
const BESIDES: [(&str, &str); 3] = [
    ("X-Forwarded-Port", "8443"),
    ("x-forwarded-user", "ann"),
    ("X-Forwarded-Client-Cert", "Hash=1"),
];

#[track_caller]
fn besides(request: &Request) -> [Option<&str>; 3] {
    BESIDES.map(|(name, _)| request.field(name))
}

#[test]
fn what_a_trusted_proxy_says_besides_passes() {
    for (tables, keys, passes) in [
        (TRUSTING, "", true),
        (TRUSTING, "forwarded = \"x-forwarded\"", true),
        (TRUSTING, "forwarded = \"forwarded\"", false),
        (TRUSTING, "forwarded = \"off\"", false),
        ("", "", false),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n", "", false),
    ] {
        let (request, _) = told(tables, keys, &BESIDES);
        let expected = BESIDES.map(|(_, value)| passes.then_some(value));
        assert_eq!(besides(&request), expected, "{tables}{keys}");
    }
}

/// Its client may have sent them.
#[test]
fn other_spellings_of_a_trusted_proxy_do_not_pass() {
    let sent = [
        ("X_Forwarded_User", "evil"),
        ("X-Forwarded_User", "evil"),
        ("X.Forwarded.Port", "evil"),
        ("X-Forwarded-Client.Cert", "evil"),
        ("X-Forwarded_For", "evil"),
        ("X-Forwarded-Prefix", "evil"),
    ];
    let (request, _) = told(TRUSTING, "forwarded = \"x-forwarded\"", &sent);
    let head = String::from_utf8_lossy(&request.head);
    assert!(!head.contains("evil"), "{head}");
}

/// Nor in a trailer, which the proxy may pass on unread.
#[test]
fn trailers_of_a_trusted_proxy_do_not_say_it() {
    let backend = Scripted::tcp(answer);
    let server = in_front_of(&backend, TRUSTING, "");
    let mut client = server.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\nX-Forwarded-User: evil\r\nX-Sum: 1\r\n\r\n",
    );
    client.receive().assert_status(200);
    let request = backend.request();
    assert_eq!(request.trailers, [("X-Sum".to_owned(), b"1".to_vec())]);
}

/// Whoever passes a gate is who the gate says, wherever it is.
#[test]
fn names_that_a_gate_writes_do_not_pass() {
    let users = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";
    let tree = crate::support::Tree::new();
    let users = tree.file("users", users).display().to_string();
    let portal = "forward_auth = { upstream = \"app\", path = \"/portal\", ";
    let gates = [
        format!("basic_auth = {{ users = \"{users}\", user_header = \"X-Forwarded-User\" }}"),
        format!("{portal}copy = [\"X-Forwarded-User\"] }}"),
        format!("{portal}user = \"X-FORWARDED-USER\" }}"),
    ];
    for gate in gates {
        let backend = Scripted::tcp(answer);
        let site = format!("[[site.route]]\npath = \"/in\"\n{gate}\n");
        let server = in_front_of_site(&backend, TRUSTING, "", &site);
        // `ann:secret`
        let password = [("Authorization", "Basic YW5uOnNlY3JldA==")];
        let sent = [&BESIDES[..], &password].concat();
        for path in ["/", "/in"] {
            server.get_with(path, &sent).assert_status(200);
        }
        for request in backend.requests() {
            let user = request.field("x-forwarded-user");
            let is_own = request.target == "/in" && gate.starts_with("basic_auth");
            assert_eq!(user, is_own.then_some("ann"), "{} {gate}", request.target);
            assert_eq!(request.field("x-forwarded-port"), Some("8443"), "{gate}");
        }
    }
}

#[test]
fn forwarded_is_read_with_the_scheme_of_its_element() {
    let list = "for=198.51.100.66;proto=http, for=\"[2001:db8::1]:4711\";proto=https, for=10.0.0.2;proto=http";
    let (request, line) = told(TRUSTING, "", &[("Forwarded", list)]);
    let ours = format!("{list}, for=127.0.0.1;host=localhost;proto=https");
    let expected = [
        Some(ours.as_str()),
        Some("198.51.100.66, 2001:db8::1, 10.0.0.2, 127.0.0.1"),
        Some("https"),
        Some("localhost"),
    ];
    assert_eq!(fields(&request), expected);
    assert_eq!(line["peer"], "2001:db8::1");
}

#[test]
fn which_of_two_lists_is_believed() {
    // The proxy has seen 192.0.2.1 and says so; what it passes on unread may come from anybody.
    for forwarded in [
        "for=192.0.2.9, for=10.0.0.2",
        "for=192.0.2.66, for=192.0.2.1",
        "for=192.0.2.1;proto=https;host=evil",
        "for=unknown",
    ] {
        let fields = [
            ("Forwarded", forwarded),
            ("X-Forwarded-For", "192.0.2.1, 10.0.0.2"),
        ];
        let (request, line) = told(TRUSTING, "", &fields);
        assert_eq!(line["peer"], "192.0.2.1", "{forwarded}");
        assert_eq!(
            request.field("x-forwarded-proto"),
            Some("http"),
            "{forwarded}"
        );
        let passed = request.field("forwarded").expect("a list");
        assert!(
            passed.starts_with("for=192.0.2.1, for=10.0.0.2, "),
            "{passed}"
        );
    }
}

#[test]
fn schemes_that_are_believed() {
    for (fields, scheme) in [
        (&[("X-Forwarded-Proto", "HTTPS")][..], "https"),
        (&[("X-Forwarded-Proto", "ftp")], "http"),
        (&[("X-Forwarded-Proto", "https, http")], "http"),
        (
            &[
                ("X-Forwarded-Proto", "https, http"),
                ("X-Forwarded-For", "192.0.2.1, 10.0.0.2"),
            ],
            "https",
        ),
        (
            &[
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-For", "192.0.2.1, 10.0.0.2"),
            ],
            "https",
        ),
        (&[("Forwarded", "for=unknown;proto=https")], "https"),
        (&[("Forwarded", "for=192.0.2.1;proto=ftp")], "http"),
        // Traefik names the scheme of a WebSocket.
        (&[("X-Forwarded-Proto", "wss")], "https"),
        (&[("X-Forwarded-Proto", "ws")], "http"),
        (&[("X-Forwarded-Proto", "ws, Wss ")], "https"),
        (&[("Forwarded", "for=192.0.2.1;proto=\"WSS\"")], "https"),
        // A proxy that does not know this header passes it on as the client wrote it.
        (&[("X-Forwarded-Ssl", "on")], "http"),
    ] {
        let (request, _) = told(TRUSTING, "", fields);
        assert_eq!(
            request.field("x-forwarded-proto"),
            Some(scheme),
            "{fields:?}"
        );
    }
}

#[test]
fn fields_that_the_upstream_is_to_get() {
    let from_client = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("Forwarded", "for=192.0.2.1"),
    ];
    let list = "for=192.0.2.1, for=127.0.0.1;host=localhost;proto=http";
    for (keys, expected) in [
        ("forwarded = \"off\"", [None; 4]),
        ("forwarded = \"forwarded\"", [Some(list), None, None, None]),
        (
            "forwarded = \"x-forwarded\"",
            [
                None,
                Some("192.0.2.1, 127.0.0.1"),
                Some("http"),
                Some("localhost"),
            ],
        ),
    ] {
        let (request, _) = told(TRUSTING, keys, &from_client);
        assert_eq!(fields(&request), expected, "{keys}");
    }
}

/// Spring takes the first host in `Forwarded`, others take X-Forwarded-Host: both are what the client has asked for.
#[test]
fn the_host_is_the_same_in_both_formats() {
    let element = "for=192.0.2.1;host=\"www.example:8443\";proto=https";
    let nearer = format!("{element}, for=10.0.0.2;host=middle.example");
    let spoofed = format!("for=192.0.2.66;host=evil.example, {element}");
    let x_for = ("X-Forwarded-For", "192.0.2.1");
    for (sent, host) in [
        (&[("X-Forwarded-Host", "www.example")][..], "www.example"),
        (&[x_for, ("X-Forwarded-Host", "a.b:81")], "a.b:81"),
        (&[("Forwarded", element)], "www.example:8443"),
        (&[("Forwarded", &nearer)], "www.example:8443"),
        // Only the last element is of a trusted proxy.
        (&[("Forwarded", &spoofed)], "www.example:8443"),
        (&[x_for, ("X-Forwarded-Host", "evil, c.d")], "c.d"),
        // A proxy that writes one of them passes on the other as the client wrote it.
        (&[("Forwarded", element), x_for], "localhost"),
        (
            &[("Forwarded", element), ("X-Forwarded-Host", "evil")],
            "www.example:8443",
        ),
        // What one form does not say may be in the other.
        (
            &[("Forwarded", "for=192.0.2.1"), ("X-Forwarded-Host", "c.d")],
            "c.d",
        ),
        (&[("X-Forwarded-Host", "not a host")], "localhost"),
        (&[("Forwarded", "for=192.0.2.1;host=\"a b\"")], "localhost"),
    ] {
        let (request, _) = told(TRUSTING, "", sent);
        let x_host = request.field("x-forwarded-host");
        assert_eq!(x_host, Some(host), "{sent:?}");
        let list = request.field("forwarded").expect("a list");
        let own = list.rsplit("for=127.0.0.1;").next().expect("ours");
        let own = own.replace('"', "");
        assert!(own.starts_with(&format!("host={host};proto=")), "{list}");
    }
}

/// What a client on the Unix socket of a server with `tables` is taken for.
fn over_unix(tables: &str, sent: &[(&str, &str)]) -> (Request, serde_json::Value) {
    let backend = Scripted::tcp(answer);
    let server = in_front_of(&backend, tables, "");
    let socket = server.own("http.sock");
    Client::unix(Path::new(&socket))
        .get_with("/", sent)
        .assert_status(200);
    (backend.request(), logged(&server))
}

#[test]
fn a_peer_on_a_unix_socket_is_trusted_by_that_word() {
    let sent = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
    ];
    let (request, line) = over_unix("[server]\ntrusted_proxies = [\"unix\"]", &sent);
    let expected = [
        Some("for=192.0.2.1, for=unknown;host=localhost;proto=https"),
        Some("192.0.2.1"),
        Some("https"),
        Some("localhost"),
    ];
    assert_eq!(fields(&request), expected);
    assert_eq!(line["peer"], "192.0.2.1");
    assert_eq!(line.get("via"), Some(&serde_json::Value::Null));

    let (request, line) = over_unix(TRUSTING, &sent);
    assert_eq!(request.field("x-forwarded-for"), Some("unknown"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert!(line["peer"].is_null() && line.get("via").is_none());
}

#[test]
fn applications_of_cgi_get_the_client_as_variables() {
    let backend = Scripted::tcp(|conn| {
        conn.read_scgi().expect("a request");
        conn.send("Status: 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let server = in_front_of(&backend, TRUSTING, "protocol = \"scgi\"");
    let sent = [
        ("X-Forwarded-For", "192.0.2.1:4711"),
        ("X-Forwarded-Proto", "https"),
        ("X_Forwarded_For", "192.0.2.66"),
    ];
    server.get_with("/", &sent).assert_status(200);
    let request = backend.request();
    assert_eq!(request.field("REMOTE_ADDR"), Some("192.0.2.1"));
    assert_eq!(request.field("REMOTE_PORT"), Some("4711"));
    assert_eq!(request.field("HTTPS"), Some("on"));
    let list = request.field("HTTP_X_FORWARDED_FOR");
    assert_eq!(list, Some("192.0.2.1:4711, 127.0.0.1"));
}
