//! The variables of a request, and the split of a path into script and path info, rule by rule.

use std::net::{IpAddr, Ipv4Addr};

use levity_wire::cgi::{ENVIRONMENT_BYTES_MAX, Environment, Request, Script, Split, split_script};
use levity_wire::http1::{Reject, Version};

const SCRIPT: Script<'_> = Script {
    name: b"blog/index.php",
    info: Some(b"2026/a b"),
    is_file: true,
};

fn request() -> Request<'static> {
    Request {
        method: b"POST",
        path: b"/blog/index.php/2026/a%20b",
        query: Some(b"x=1&y"),
        version: Version::Http11,
        host: Some(b"example.org:8443"),
        server_name: b"example.org",
        server_port: 8443,
        server_software: b"levity/1",
        server_addr: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        remote_addr: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
        remote_port: Some(50_000),
        https: true,
        content_length: Some(12),
        document_root: b"/srv/www",
        script: SCRIPT,
    }
}

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

fn filled(request: &Request<'_>, fields: Fields<'_>) -> Result<Environment, Reject> {
    let mut environment = Environment::default();
    environment.fill(request, fields.iter().copied())?;
    Ok(environment)
}

fn lines(environment: &Environment) -> Vec<String> {
    environment
        .pairs()
        .map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()))
        .collect()
}

/// The variables of this request with these headers.
#[track_caller]
fn variables(request: &Request<'_>, fields: Fields<'_>) -> Vec<String> {
    lines(&filled(request, fields).expect("acceptable"))
}

/// The variables of these headers.
#[track_caller]
fn passed(fields: Fields<'_>) -> Vec<String> {
    let own = variables(&request(), &[]).len();
    variables(&request(), fields).split_off(own)
}

#[track_caller]
fn value<'a>(variables: &'a [String], name: &str) -> Option<&'a str> {
    let mut values = variables
        .iter()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let first = values.next();
    assert_eq!(values.next(), None, "{name} twice");
    first
}

#[test]
fn all_variables_in_order() {
    let fields: Fields<'_> = &[
        (b"Host", b"ignored.example"),
        (b"content-type", b"text/plain"),
        (b"Content-Length", b"12"),
        (b"User-Agent", b"curl/8"),
    ];
    let expected = [
        "REQUEST_METHOD=POST",
        "REQUEST_URI=/blog/index.php/2026/a%20b?x=1&y",
        "QUERY_STRING=x=1&y",
        "SERVER_PROTOCOL=HTTP/1.1",
        "CONTENT_LENGTH=12",
        "DOCUMENT_ROOT=/srv/www",
        "SCRIPT_NAME=/blog/index.php",
        "PATH_INFO=/2026/a b",
        "SCRIPT_FILENAME=/srv/www/blog/index.php",
        "PATH_TRANSLATED=/srv/www/2026/a b",
        "GATEWAY_INTERFACE=CGI/1.1",
        "SERVER_SOFTWARE=levity/1",
        "SERVER_NAME=example.org",
        "SERVER_PORT=8443",
        "SERVER_ADDR=192.0.2.1",
        "REDIRECT_STATUS=200",
        "REQUEST_SCHEME=https",
        "HTTPS=on",
        "REMOTE_ADDR=192.0.2.7",
        "REMOTE_PORT=50000",
        "HTTP_HOST=example.org:8443",
        "CONTENT_TYPE=text/plain",
        "HTTP_USER_AGENT=curl/8",
    ];
    assert_eq!(variables(&request(), fields), expected);
}

#[test]
fn absent_values_are_unset_or_empty() {
    let bare = Request {
        query: None,
        version: Version::Http10,
        host: None,
        server_addr: None,
        remote_addr: None,
        remote_port: None,
        https: false,
        content_length: None,
        script: Script {
            name: b"a.php",
            info: None,
            is_file: true,
        },
        path: b"/a.php",
        ..request()
    };
    let variables = variables(&bare, &[]);
    let absent = [
        "HTTPS",
        "HTTP_HOST",
        "SERVER_ADDR",
        "REMOTE_PORT",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "PATH_TRANSLATED",
    ];
    for name in absent {
        assert_eq!(value(&variables, name), None, "{name}");
    }
    assert_eq!(value(&variables, "REQUEST_SCHEME"), Some("http"));
    assert_eq!(value(&variables, "QUERY_STRING"), Some(""));
    assert_eq!(value(&variables, "PATH_INFO"), Some(""));
    assert_eq!(value(&variables, "REMOTE_ADDR"), Some(""));
    assert_eq!(value(&variables, "REQUEST_URI"), Some("/a.php"));
    assert_eq!(value(&variables, "SERVER_PROTOCOL"), Some("HTTP/1.0"));
}

#[test]
fn an_empty_query_leaves_its_mark() {
    let request = Request {
        path: b"/",
        query: Some(b""),
        ..request()
    };
    assert_eq!(value(&variables(&request, &[]), "REQUEST_URI"), Some("/?"));
}

#[test]
fn an_ipv4_client_of_an_ipv6_socket_has_an_ipv4_address() {
    let request = Request {
        remote_addr: "::ffff:192.0.2.7".parse().ok(),
        ..request()
    };
    let variables = variables(&request, &[]);
    assert_eq!(value(&variables, "REMOTE_ADDR"), Some("192.0.2.7"));
}

#[test]
fn the_root_directory_as_document_root() {
    let request = Request {
        document_root: b"/",
        ..request()
    };
    let variables = variables(&request, &[]);
    assert_eq!(value(&variables, "DOCUMENT_ROOT"), Some("/"));
    let file = value(&variables, "SCRIPT_FILENAME");
    assert_eq!(file, Some("/blog/index.php"));
}

/// PHP runs any file that either variable names.
#[test]
fn a_mounted_application_is_given_no_file() {
    for (prefix, name) in [(&b"app"[..], "/app"), (&b""[..], "")] {
        let path = [prefix, b"/upload.jpg"].concat();
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let script = split_script(path, Split::Mount(prefix)).expect("below its mount");
        let request = Request {
            script,
            ..request()
        };
        let variables = variables(&request, &[]);
        assert_eq!(value(&variables, "SCRIPT_NAME"), Some(name));
        assert_eq!(value(&variables, "PATH_INFO"), Some("/upload.jpg"));
        assert_eq!(value(&variables, "SCRIPT_FILENAME"), None);
        assert_eq!(value(&variables, "PATH_TRANSLATED"), None);
    }
}

#[test]
fn no_field_is_taken_for_the_proxy_of_the_application() {
    for name in [&b"Proxy"[..], b"proxy", b"PROXY"] {
        assert!(passed(&[(name, b"http://evil.example/")]).is_empty());
    }
    let other = passed(&[(b"Proxy-Authorization", b"x"), (b"X-Proxy", b"y")]);
    assert_eq!(other, ["HTTP_PROXY_AUTHORIZATION=x", "HTTP_X_PROXY=y"]);
}

#[test]
fn a_field_cannot_take_the_name_of_another() {
    let names: [&[u8]; 7] = [
        b"X_Forwarded_For",
        b"X-Forwarded_For",
        b"X.Forwarded.For",
        b"X-Forwarded-For_",
        b"Content_Length",
        b"X!Y",
        b"X'Y",
    ];
    for name in names {
        assert!(
            passed(&[(name, b"1")]).is_empty(),
            "{}",
            name.escape_ascii()
        );
    }
}

#[test]
fn framing_is_not_passed_on() {
    let fields: Fields<'_> = &[
        (b"Transfer-Encoding", b"chunked"),
        (b"CONTENT-LENGTH", b"99"),
    ];
    assert!(passed(fields).is_empty());
}

#[test]
fn repeated_fields_are_joined() {
    let fields: Fields<'_> = &[
        (b"Accept", b"a"),
        (b"Cookie", b"x=1"),
        (b"X-One", b""),
        (b"ACCEPT", b"b, c"),
        (b"cookie", b"y=2"),
        (b"accept", b""),
    ];
    assert_eq!(
        passed(fields),
        [
            "HTTP_ACCEPT=a, b, c, ",
            "HTTP_COOKIE=x=1; y=2",
            "HTTP_X_ONE="
        ]
    );
}

#[test]
fn bytes_beyond_ascii_are_passed_as_they_are() {
    assert_eq!(passed(&[(b"X", b"\xff\t\xc3")]), ["HTTP_X=\\xff\\t\\xc3"]);
}

#[test]
fn a_nul_is_refused_wherever_it_is() {
    let nul = Err((400, "NUL in a CGI variable"));
    let refused = |request: Request<'_>, fields: Fields<'_>| {
        filled(&request, fields)
            .map(|environment| lines(&environment))
            .map_err(|reject| (reject.status, reject.reason))
    };
    let script = Script {
        info: Some(b"a\0SCRIPT_FILENAME\0/etc"),
        ..SCRIPT
    };
    assert_eq!(
        refused(
            Request {
                script,
                ..request()
            },
            &[]
        ),
        nul
    );
    let document_root = b"/srv\0";
    let cut = Request {
        document_root,
        ..request()
    };
    assert_eq!(refused(cut, &[]), nul);
    assert_eq!(refused(request(), &[(b"X", b"a\0b")]), nul);
    let mut environment = Environment::default();
    assert!(environment.set("A", b"\0").is_err());
    assert!(environment.set("A\0B", b"").is_err());
    assert!(lines(&environment).is_empty());
}

#[test]
fn the_bound_is_inclusive() {
    let mut environment = Environment::default();
    let value = vec![b'v'; ENVIRONMENT_BYTES_MAX - 1];
    assert_eq!(environment.set("N", &value), Ok(()));
    let reject = environment.set("M", b"").expect_err("one byte too many");
    let too_long = (431, "request too long for CGI variables");
    assert_eq!((reject.status, reject.reason), too_long);
    environment.clear();
    let reject = environment.set("NN", &value).expect_err("too many");
    assert_eq!((reject.status, reject.reason), too_long);

    let half = vec![b'v'; ENVIRONMENT_BYTES_MAX / 2];
    let fields: Fields<'_> = &[(b"X", &half), (b"X", &half)];
    let reject = filled(&request(), fields).map(|environment| lines(&environment));
    assert_eq!(reject.map_err(|reject| reject.status), Err(431));
}

#[test]
fn a_used_environment_is_as_good_as_a_new_one() {
    let mut environment = filled(&request(), &[(b"X", b"1")]).expect("acceptable");
    let fields: Fields<'_> = &[(b"Y", b"2")];
    let filled_again = environment.fill(&request(), fields.iter().copied());
    assert_eq!(filled_again, Ok(()));
    assert_eq!(lines(&environment), variables(&request(), fields));
    environment.clear();
    assert_eq!(environment.pairs().count(), 0);
}

#[test]
fn set_replaces_a_value() {
    let mut environment = filled(&request(), &[(b"X", b"1")]).expect("acceptable");
    for (name, text) in [("HTTP_X", "2"), ("APP_ENV", "test"), ("APP_ENV", "live")] {
        assert_eq!(environment.set(name, text.as_bytes()), Ok(()));
        assert_eq!(value(&lines(&environment), name), Some(text));
    }
    assert!(lines(&environment).ends_with(&["HTTP_X=2".to_owned(), "APP_ENV=live".to_owned()]));
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("tests are UTF-8")
}

/// Script name and path info, if the script is a file.
fn divided<'a>(path: &'a str, split: Split<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let script = split_script(path.as_bytes(), split)?;
    assert_eq!(script.is_file, !matches!(split, Split::Mount(_)));
    Some((text(script.name), script.info.map(text)))
}

#[test]
fn the_first_segment_with_the_suffix_is_the_script() {
    let cases = [
        ("a.php", Some(("a.php", None))),
        ("a.php/", Some(("a.php", Some("")))),
        ("a.php/b", Some(("a.php", Some("b")))),
        ("a.php/b/", Some(("a.php", Some("b/")))),
        ("x/y/a.php/b/c", Some(("x/y/a.php", Some("b/c")))),
        ("a.php/b.php", Some(("a.php", Some("b.php")))),
        (
            "a/b.php/upload.jpg/x.php",
            Some(("a/b.php", Some("upload.jpg/x.php"))),
        ),
        ("a.php\n/b\nc", None),
        ("a\n.php/b\nc", Some(("a\n.php", Some("b\nc")))),
        // A script by its name: the caller checks whether such a file exists.
        ("upload.jpg/x.php", Some(("upload.jpg/x.php", None))),
        ("x.php.jpg", None),
        ("x.php.jpg/y", None),
        ("x.phps", None),
        ("x.PHP", None),
        ("xphp", None),
        (".php", None),
        (".php/x", None),
        ("a/.php", None),
        ("a/.php/b.php", Some(("a/.php/b.php", None))),
        ("", None),
        ("a/b/", None),
    ];
    for (path, expected) in cases {
        assert_eq!(divided(path, Split::Suffix(b".php")), expected, "{path:?}");
    }
}

#[test]
fn a_front_controller_answers_every_path() {
    for path in ["", "a/b", "upload.jpg/x.php", "index.php/a"] {
        let index = divided(path, Split::Index(b"index.php"));
        assert_eq!(index, Some(("index.php", None)), "{path:?}");
    }
}

#[test]
fn a_mount_ends_where_a_segment_does() {
    let cases = [
        ("app", "app", Some(("app", None))),
        ("app/", "app", Some(("app", Some("")))),
        ("app/a/b.php", "app", Some(("app", Some("a/b.php")))),
        ("app/a/b", "app/a", Some(("app/a", Some("b")))),
        ("application", "app", None),
        ("other/app", "app", None),
        ("", "app", None),
        ("", "", Some(("", Some("")))),
        ("a/b", "", Some(("", Some("a/b")))),
    ];
    for (path, prefix, expected) in cases {
        let mount = Split::Mount(prefix.as_bytes());
        assert_eq!(divided(path, mount), expected, "{path:?} at {prefix:?}");
    }
}
