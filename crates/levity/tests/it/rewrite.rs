//! Header fields on their way to an application and back.

use crate::support::scripted::{Conn, Scripted};
use crate::support::{Answer, Launch, Server, head};

/// Sends back the lines that the query of the request has, divided by `|`; `SELF` is the backend's own
/// address.
fn say(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let lines = query.replace('_', " ").replace('|', "\r\n");
        let own = request.field("x-own").unwrap_or_default();
        let lines = lines.replace("SELF", own);
        let status = match path.rsplit('/').next() {
            Some("404") => "404 Not Found",
            Some("304") => "304 Not Modified",
            _ => "302 Found",
        };
        conn.send(format!(
            "HTTP/1.1 {status}\r\nContent-Length: 0\r\n{lines}\r\n\r\n"
        ));
    }
}

/// In front of `backend`, with a route of these keys for everything.
fn in_front_of(backend: &Scripted, route: &str) -> Server {
    let to = backend.address();
    Launch::run(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n[[site]]\nproxy = \"app\"\n{route}\n"
    ))
    .start()
}

/// The answer to a request by which a backend says `lines`.
fn said(route: &str, target: &str) -> Answer {
    let backend = Scripted::tcp(say);
    let own = backend.address().to_owned();
    let server = in_front_of(&backend, route);
    let mut client = server.client();
    client.send(head("GET", target, &[("X-Own", &own)]));
    client.receive_head().expect("a head")
}

fn location(route: &str, target: &str) -> String {
    said(route, target).field("location").to_owned()
}

const EVERYTHING: &str = "[[site.route]]\npath = \"/*\"\n";

#[test]
fn where_an_application_sends_clients() {
    let rules = format!(
        "{EVERYTHING}[site.route.rewrite]\n\
         location = {{ \"http://a.internal/x/\" = \"/y/\", \"http://a.internal/\" = \"https://example.org/\", \"/old\" = \"/new\" }}"
    );
    for (line, expected) in [
        ("http://a.internal/x/1", "/y/1"),
        ("http://a.internal/z", "https://example.org/z"),
        ("/old/1", "/new/1"),
        ("/other", "/other"),
        ("http://b.internal/x/1", "http://b.internal/x/1"),
    ] {
        assert_eq!(location(&rules, &format!("/?Location:_{line}")), expected);
    }
    let answer = said(&rules, "/404?location:_/old|Content-Location:_/old");
    assert_eq!(
        (answer.field("location"), answer.field("content-location")),
        ("/new", "/old")
    );
}

#[test]
fn an_address_that_only_we_know_becomes_a_path() {
    let stripped = "[[site.route]]\npath = \"/app/*\"\nstrip_prefix = \"/app\"\n";
    let named =
        format!("{EVERYTHING}request_headers = {{ set = {{ \"Host\" = \"app.internal\" }} }}\n");
    let ruled = format!("{EVERYTHING}rewrite = {{ location = {{ \"http://\" = \"http://\" }} }}\n");
    for (route, target, sent, expected) in [
        ("", "/", "http://SELF/login?a=b", "/login?a=b"),
        ("", "/", "HTTP://SELF", "/"),
        ("", "/", "http://SELF?a", "/?a"),
        (stripped, "/app/", "http://SELF/login", "/app/login"),
        (stripped, "/app/", "/login", "/login"),
        (&named, "/", "http://App.Internal:80/x", "/x"),
        ("", "/", "http://app.internal/x", "http://app.internal/x"),
        ("", "/", "https://SELF/x", "/x"),
        ("", "/", "http://localhost:PORT/x", "/x"),
        ("", "/", "ftp://SELF/x", "ftp://SELF/x"),
        ("", "/", "http://SELF@b/x", "http://SELF@b/x"),
        // As the client and the backend may not mean by the host that the route sets.
        (
            &named,
            "/",
            "https://app.internal/x",
            "https://app.internal/x",
        ),
        (
            &named,
            "/",
            "http://app.internal:81/x",
            "http://app.internal:81/x",
        ),
        ("", "/", "http://SELF0/x", "http://SELF0/x"),
        ("", "/", "http://localhost/x", "http://localhost/x"),
        // Paths that lead elsewhere.
        (
            "",
            "/",
            "http://SELF//evil.example/",
            "http://SELF//evil.example/",
        ),
        (
            "",
            "/",
            "http://SELF/\\evil.example/",
            "http://SELF/\\evil.example/",
        ),
        (stripped, "/app/", "http://SELF//x", "/app//x"),
        (&ruled, "/", "http://SELF/x", "http://SELF/x"),
    ] {
        let backend = Scripted::tcp(say);
        let own = backend.address().to_owned();
        let (_, port) = own.rsplit_once(':').expect("a port");
        let sent = sent.replace("PORT", port);
        let server = in_front_of(&backend, route);
        let mut client = server.client();
        client.send(head(
            "GET",
            &format!("{target}?Location:_{sent}|Refresh:_1;_url={sent}"),
            &[("X-Own", &own)],
        ));
        let answer = client.receive_head().expect("a head");
        assert_eq!(
            answer.field("location"),
            expected.replace("SELF", &own),
            "{sent}"
        );
        let refresh = format!("1; url={}", expected.replace("SELF", &own));
        assert_eq!(answer.field("refresh"), refresh, "{sent}");
    }
}

#[test]
fn where_cookies_go() {
    let rules = format!(
        "{EVERYTHING}[site.route.rewrite]\ncookie_path = {{ \"/app/\" = \"/\" }}\n\
         cookie_domain = {{ \"internal\" = \"example.org\" }}"
    );
    let sent = "Set-Cookie:_a=1;_Path=/app/x;_Domain=Internal|Set-Cookie:_b=2|set-cookie:_nothing;Path=/app/";
    let answer = said(&rules, &format!("/404?{sent}"));
    let cookies: Vec<_> = answer
        .headers()
        .into_iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        .map(|(_, value)| String::from_utf8(value).expect("ASCII"))
        .collect();
    let expected = [
        "a=1; Path=/x; Domain=example.org",
        "b=2",
        "nothing;Path=/app/",
    ];
    assert_eq!(cookies, expected);
}

/// What a backend says with 304 passes, but not in place of what the route has said with 200.
#[test]
fn rules_take_a_type_off_a_304_and_put_none() {
    let rules = format!("{EVERYTHING}headers = {{ set = {{ \"Content-Type\" = \"text/x-a\" }} }}");
    let lines = "Content-Type:_text/x-theirs|Content-Language:_en";
    let answer = said(&rules, &format!("/304?{lines}"));
    answer.assert_status(304);
    assert_eq!(answer.header("content-type"), None);
    assert_eq!(answer.field("content-language"), "en");
    let answer = said("", &format!("/304?{lines}"));
    assert_eq!(answer.field("content-type"), "text/x-theirs");
}

#[test]
fn answers_below_400_follow_the_rules_of_the_route() {
    let rules = format!(
        "{EVERYTHING}headers = {{ set = {{ \"X-Set\" = \"1\", \"Server\" = \"mine\" }}, add = {{ \"Link\" = \"new\" }}, \
         remove = [\"X-Gone\"] }}"
    );
    let lines = "X-Set:_0|Server:_theirs|Link:_old|X-Gone:_1";
    let values = |answer: &Answer, name: &str| {
        let headers = answer.headers();
        let of_name = headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        of_name
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
            .collect::<Vec<_>>()
    };
    let answer = said(&rules, &format!("/?{lines}"));
    for (name, expected) in [
        ("X-Set", &["1"][..]),
        ("Server", &["mine"]),
        ("Link", &["old", "new"]),
        ("X-Gone", &[]),
    ] {
        assert_eq!(values(&answer, name), expected, "{name}");
    }
    let refused = said(&rules, &format!("/404?{lines}"));
    for (name, expected) in [
        ("X-Set", "0"),
        ("Server", "theirs"),
        ("Link", "old"),
        ("X-Gone", "1"),
    ] {
        assert_eq!(values(&refused, name), [expected], "{name}");
    }
}

#[test]
fn requests_follow_the_rules_of_the_route() {
    let backend = Scripted::tcp(say);
    let route = format!(
        "{EVERYTHING}request_headers = {{ set = {{ \"Host\" = \"app.internal:81\", \"X-User\" = \"us\" }}, \
         add = {{ \"X-More\" = \"2\" }}, remove = [\"Cookie\"] }}"
    );
    let server = in_front_of(&backend, &route);
    let sent = [
        ("X-User", "them"),
        ("X_User", "them"),
        ("X-More", "1"),
        ("Cookie", "a=b"),
        ("X-Stays", "1"),
    ];
    server.get_with("/", &sent).assert_status(302);
    let request = backend.request();
    assert_eq!(request.field("host"), Some("app.internal:81"));
    assert_eq!(request.field("x-forwarded-host"), Some("localhost"));
    assert_eq!(
        (request.field("x-user"), request.field("x_user")),
        (Some("us"), None)
    );
    let more = request.fields.iter().filter(|(name, _)| name == "X-More");
    assert_eq!(
        more.map(|(_, value)| &value[..]).collect::<Vec<_>>(),
        [b"1", b"2"]
    );
    assert_eq!(
        (request.field("cookie"), request.field("x-stays")),
        (None, Some("1"))
    );
}

#[test]
fn an_application_is_told_what_was_taken_off_its_paths() {
    let route = "[[site.route]]\npath = \"/app/*\"\nstrip_prefix = \"/app\"\n";
    let own =
        format!("{route}request_headers = {{ set = {{ \"X-Forwarded-Prefix\" = \"/own\" }} }}\n");
    let prefix = |keys: &str, target: &str| {
        let backend = Scripted::tcp(say);
        let server = in_front_of(&backend, keys);
        let told = [("X-Forwarded-Prefix", "/front/")];
        server.get_with(target, &told).assert_status(302);
        let prefix = backend.request().field("x-forwarded-prefix")?.to_owned();
        Some(prefix)
    };
    assert_eq!(prefix(route, "/app/x").as_deref(), Some("/front/app"));
    assert_eq!(prefix("", "/x").as_deref(), Some("/front"));
    assert_eq!(prefix(&own, "/app/x").as_deref(), Some("/own"));
}
