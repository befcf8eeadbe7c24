//! X-Sendfile and related headers, rule by rule.

use std::borrow::Cow;
use std::time::Duration;

use levity_wire::Reject;
use levity_wire::sendfile_header::{
    Delegation, FilePart, InternalUri, PARTS_MAX, PATH_BYTES_MAX, PRELOAD_TTL_MAX, Preload,
    URLS_MAX, file_parts, file_path, internal_uri, is_reserved, preload, urls, utf8_of_latin1,
};

fn refused<T: std::fmt::Debug>(result: Result<T, Reject>, value: &[u8]) -> &'static str {
    let reject = result.expect_err(&value.escape_ascii().to_string());
    assert_eq!(reject.status, 502, "{}", value.escape_ascii());
    reject.reason
}

#[test]
fn names() {
    let cases = [
        ("X-Sendfile", Some(Delegation::File)),
        ("x-sendfile", Some(Delegation::File)),
        ("X-LIGHTTPD-send-file", Some(Delegation::File)),
        ("X-Sendfile-Temporary", Some(Delegation::TemporaryFile)),
        ("X-LIGHTTPD-send-tempfile", Some(Delegation::TemporaryFile)),
        ("X-LIGHTTPD-send-temp-file", Some(Delegation::TemporaryFile)),
        ("X-Sendfile2", Some(Delegation::FileParts)),
        ("X-Accel-Redirect", Some(Delegation::InternalUri)),
        ("X-REPROXY-URL", Some(Delegation::Urls)),
        ("X-Sendfile-Type", None),
        ("X_Sendfile", None),
        ("X-Sendfile3", None),
        ("X-Accel-Expires", None),
        ("Location", None),
        ("", None),
    ];
    for (name, delegation) in cases {
        assert_eq!(Delegation::of(name.as_bytes()), delegation, "{name}");
        assert!(
            delegation.is_none() || is_reserved(name.as_bytes()),
            "{name}"
        );
    }
}

#[test]
fn reserved_names() {
    let reserved = [
        "X-Sendfile-Type",
        "x-sendfile-type",
        "X_SENDFILE_TYPE",
        "X.Sendfile~Type",
        "x-sendfile_type",
        "X-Sendfile2",
        "X-Sendfile-Receipt",
        "X-Accel-Mapping",
        "X_Accel-Mapping",
        "x-accel-buffering",
        "X-LIGHTTPD-send-file",
        "X-LIGHTTPD-Anything",
        "X-Reproxy-File",
        "X-REPROXY-URL",
        "X-LiteSpeed-Location",
    ];
    for name in reserved {
        assert!(is_reserved(name.as_bytes()), "{name}");
    }
    let free = [
        "",
        "X",
        "X-",
        "X-Send",
        "X-Sendfil",
        "XSendfile-Type",
        "XXSendfile-Type",
        "X-Accelerate",
        "X-Accel",
        "X-Forwarded-For",
        "Accept",
        "Y-Sendfile-Type",
        "HTTP-X-Sendfile-Type",
    ];
    for name in free {
        assert!(!is_reserved(name.as_bytes()), "{name}");
    }
}

#[test]
fn file_paths() {
    let cases: [(&[u8], Option<&[u8]>); 12] = [
        (b"/srv/a.pdf", None),
        (b"/", None),
        (b"/a b+c", None),
        (b"/\xff", None),
        (b"/a/../b", None),
        (b"/100%", None),
        (b"/100%.pdf%4", None),
        (b"/a%20b", Some(b"/a b")),
        (b"/%C3%a9%zz%2", Some(b"/\xc3\xa9%zz%2")),
        (b"/%2541", Some(b"/%41")),
        // Only the path as sent is valid.
        (b"/%2e%2e%2fa", None),
        (b"/a%00b", None),
    ];
    for (value, decoded) in cases {
        let path = file_path(value).expect("a good path");
        assert_eq!(path.raw, value);
        assert_eq!(path.decoded.as_deref(), decoded, "{}", value.escape_ascii());
    }
}

#[test]
fn paths_in_latin1() {
    for (path, read) in [
        (&b"/\xfc x.txt"[..], Some("/ü x.txt")),
        (b"/\xe4\xf6/../\xff", Some("/äö/../ÿ")),
        (b"/\x80", Some("/\u{80}")),
        (b"/plain", None),
        ("/ü in UTF-8".as_bytes(), None),
    ] {
        let read = read.map(|path| path.as_bytes().to_vec());
        assert_eq!(utf8_of_latin1(path), read, "{}", path.escape_ascii());
    }
    // Two bytes for each.
    let longest = [&b"/"[..], &[0xfc; (PATH_BYTES_MAX - 1) / 2]].concat();
    let read = utf8_of_latin1(&longest).expect("a path");
    assert_eq!(read.len(), PATH_BYTES_MAX);
    assert_eq!(utf8_of_latin1(&[&longest[..], b"x"].concat()), None);
}

#[test]
fn bad_file_paths() {
    let long = [&b"/"[..], &[b'p'; PATH_BYTES_MAX]].concat();
    let no_slash = "path without a leading slash";
    let cases: [(&[u8], &str); 6] = [
        (b"", no_slash),
        (b"a", no_slash),
        (b"%2fa", no_slash),
        (b"file:///a", no_slash),
        (b"/a\0", "NUL in the path"),
        (&long, "path too long"),
    ];
    for (value, reason) in cases {
        assert_eq!(refused(file_path(value), value), reason);
    }
    assert!(file_path(&long[..PATH_BYTES_MAX]).is_ok());
}

#[test]
fn internal_uris() {
    type Case<'a> = (&'a [u8], &'a [u8], &'a [u8], Option<&'a [u8]>);
    let cases: [Case<'_>; 9] = [
        (
            b"/internal/a.pdf",
            b"/internal/a.pdf",
            b"internal/a.pdf",
            None,
        ),
        (b"/", b"/", b"", None),
        (b"/a b", b"/a b", b"a b", None),
        (b"/a%20b", b"/a%20b", b"a b", None),
        (b"/a%2520b", b"/a%2520b", b"a%20b", None),
        (b"/a%3Fb?c%20d?e", b"/a%3Fb", b"a?b", Some(b"c%20d?e")),
        (b"/a?", b"/a", b"a", Some(b"")),
        (b"/C#.pdf", b"/C#.pdf", b"C#.pdf", None),
        (b"//a/./../b/", b"//a/./../b/", b"b/", None),
    ];
    for (value, path, decoded, query) in cases {
        let mut out = b"left over".to_vec();
        let uri = internal_uri(value, &mut out);
        assert_eq!(uri, Ok(InternalUri { path, query }));
        assert_eq!(out, decoded, "{}", value.escape_ascii());
    }
}

#[test]
fn bad_internal_uris() {
    let long = [&b"/"[..], &[b'p'; PATH_BYTES_MAX]].concat();
    let no_slash = "path without a leading slash";
    let cases: [(&[u8], &str); 12] = [
        (b"", no_slash),
        (b"?a", no_slash),
        (b"a", no_slash),
        (b"@name", no_slash),
        (b"http://a/", no_slash),
        (b"/../a", "path climbs above the root"),
        (b"/%2e%2e/a", "path climbs above the root"),
        (b"/a%2fb", "escaped slash in the path"),
        (b"/100%.pdf", "bad percent escape in the path"),
        (b"/a%00", "NUL in the path"),
        (b"/a\0", "NUL in the path"),
        (&long, "path too long"),
    ];
    for (value, reason) in cases {
        assert_eq!(refused(internal_uri(value, &mut Vec::new()), value), reason);
    }
}

fn part(path: &[u8], first: u64, last: Option<u64>) -> FilePart<'_> {
    FilePart {
        path: Cow::Borrowed(path),
        first,
        last,
    }
}

#[test]
fn parts_of_files() {
    let cases: [(&[u8], &[FilePart<'_>]); 9] = [
        (b"/a 0-", &[part(b"/a", 0, None)]),
        (b"/a 0-0", &[part(b"/a", 0, Some(0))]),
        (b"  /a   5-9  ", &[part(b"/a", 5, Some(9))]),
        (
            b"/a 0-1, /b 2-3,/c 4-",
            &[
                part(b"/a", 0, Some(1)),
                part(b"/b", 2, Some(3)),
                part(b"/c", 4, None),
            ],
        ),
        (b"/a%20b%2Cc 1-", &[part(b"/a b,c", 1, None)]),
        (b"/a,b 1-", &[part(b"/a,b", 1, None)]),
        (b"/100% 1-", &[part(b"/100%", 1, None)]),
        (b"%2fa 1-", &[part(b"/a", 1, None)]),
        (
            b"/a 18446744073709551615-18446744073709551615",
            &[part(b"/a", u64::MAX, Some(u64::MAX))],
        ),
    ];
    for (value, parts) in cases {
        assert_eq!(
            file_parts(value).as_deref(),
            Ok(parts),
            "{}",
            value.escape_ascii()
        );
    }
}

#[test]
fn bad_parts_of_files() {
    let range = "bad range of a file";
    let no_slash = "path without a leading slash";
    let cases: [(&[u8], &str); 24] = [
        (b"", range),
        (b" ", range),
        (b"/a", range),
        (b"/a ", range),
        (b"/a -", range),
        (b"/a -5", range),
        (b"/a 5", range),
        (b"/a 5-4", range),
        (b"/a 0-1-2", range),
        (b"/a +0-1", range),
        (b"/a 0 -1", range),
        (b"/a 0- 1", range),
        (b"/a 0x0-1", range),
        (b"/a b 0-1", range),
        (b"/a 0-1 /b 2-3", range),
        (b"/a 0-1,", range),
        (b"/a 0-1,,/b 2-3", no_slash),
        (b",/a 0-1", no_slash),
        (b"/a 18446744073709551616-", range),
        (b"/a 0-18446744073709551616", range),
        (b"/a 99999999999999999999999999-", range),
        (b"a 0-1", no_slash),
        (b"/a%00 0-1", "NUL in the path"),
        (b"/a\0 0-1", "NUL in the path"),
    ];
    for (value, reason) in cases {
        let shown = value.escape_ascii().to_string();
        assert_eq!(refused(file_parts(value), value), reason, "{shown}");
    }
}

#[test]
fn parts_of_files_are_bounded() {
    let full = vec!["/a 0-1"; PARTS_MAX].join(",");
    assert_eq!(
        file_parts(full.as_bytes()).map(|parts| parts.len()),
        Ok(PARTS_MAX)
    );
    let more = full + ", /b 0-1";
    let reason = refused(file_parts(more.as_bytes()), more.as_bytes());
    assert_eq!(reason, "too many parts of files");
    let long = format!("/{} 0-", "%70".repeat(PATH_BYTES_MAX));
    let reason = refused(file_parts(long.as_bytes()), long.as_bytes());
    assert_eq!(reason, "path too long");
}

#[test]
fn preloads() {
    let content = |target, path: &'static [u8], seconds, media_type| Preload {
        target,
        path: Cow::Borrowed(path),
        ttl: Duration::from_secs(seconds),
        media_type,
    };
    let cases: [(&[u8], Preload<'_>); 5] = [
        (b"/a /f ttl=1", content(b"/a", b"/f", 1, None)),
        (
            b"  /a?b=c%20d  /f%20g,   ttl=3600 ",
            content(b"/a?b=c%20d", b"/f g,", 3600, None),
        ),
        (
            b"/a /f type=text/html;charset=utf-8 ttl=60",
            content(b"/a", b"/f", 60, Some(b"text/html;charset=utf-8")),
        ),
        (b"/ /%2520 ttl=007", content(b"/", b"/%20", 7, None)),
        (
            b"/ttl=5 /type=x ttl=2",
            content(b"/ttl=5", b"/type=x", 2, None),
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(preload(value), Ok(expected), "{}", value.escape_ascii());
    }
    assert_eq!(PRELOAD_TTL_MAX, Duration::from_secs(3600));
}

#[test]
fn bad_preloads() {
    let target = "no target that begins with a slash";
    let path = "path without a leading slash";
    let word = "unknown or repeated parameter";
    let time = "ttl= is not from 1 to 3600 seconds";
    let cases: [(&[u8], &str); 21] = [
        (b"", target),
        (b"   ", target),
        (b"a /f ttl=1", target),
        (b"http://a/b /f ttl=1", target),
        (b"/a", path),
        (b"/a f ttl=1", path),
        (b"/a ttl=1", path),
        (b"/a %2Ff ttl", word),
        (b"/a /f%00 ttl=1", "NUL in the path"),
        (b"/a /f", time),
        (b"/a /f type=text/html", time),
        (b"/a /f ttl=0", time),
        (b"/a /f ttl=3601", time),
        (b"/a /f ttl=18446744073709551616", time),
        (b"/a /f ttl=+1", time),
        (b"/a /f ttl=1.5", time),
        (b"/a /f ttl=1s", time),
        (b"/a /f ttl= type=x", word),
        (b"/a /f ttl=1 type=", word),
        (b"/a /f ttl=1 ttl=2", word),
        (b"/a /f ttl=1 TTL=1", word),
    ];
    for (value, reason) in cases {
        let shown = value.escape_ascii().to_string();
        assert_eq!(refused(preload(value), value), reason, "{shown}");
    }
    let long = format!("/a /{} ttl=1", "f".repeat(PATH_BYTES_MAX));
    assert_eq!(refused(preload(long.as_bytes()), b"long"), "path too long");
}

#[test]
fn addresses() {
    let cases: [(&[u8], &str); 8] = [
        (b"http://a/", "a 80 /"),
        (b"http://a", "a 80 /"),
        (b"HTTP://A.example:8080/x?y", "A.example:8080 8080 /x?y"),
        (b"http://[::1]:1/%20", "[::1]:1 1 /%20"),
        (b"http://192.0.2.1:/x", "192.0.2.1: 80 /x"),
        (b"http://a/ http://b:81/c", "a 80 /, b:81 81 /c"),
        (b"  http://a/   http://b/  ", "a 80 /, b 80 /"),
        (b"http://a/x//y/../z@:b", "a 80 /x//y/../z@:b"),
    ];
    for (value, expected) in cases {
        let shown: Vec<String> = urls(value)
            .unwrap_or_else(|reject| panic!("{}: {reject}", value.escape_ascii()))
            .iter()
            .map(|url| {
                let (host, target) = (url.host.escape_ascii(), url.target.escape_ascii());
                format!("{host} {} {target}", url.port)
            })
            .collect();
        assert_eq!(shown.join(", "), expected);
    }
}

#[test]
fn bad_addresses() {
    let bad = "bad URL";
    let scheme = "URL scheme is not http";
    let cases: [(&[u8], &str); 18] = [
        (b"", bad),
        (b"   ", bad),
        (b"/a", bad),
        (b"a.example", scheme),
        (b"https://a/", scheme),
        (b"ftp://a.example/", scheme),
        (b"unix:/run/a", scheme),
        (b"http:///a", bad),
        (b"http://", bad),
        (b"http://user@a/", bad),
        (b"http://a:65536/", bad),
        (b"http://a:b/", bad),
        (b"http://a?b", bad),
        (b"http://a/#b", bad),
        (b"http://a/\tb", bad),
        (b"http://a/\r\nX:", bad),
        (b"http://a/ https://b/", scheme),
        (b"http://a/,http://b/ b", bad),
    ];
    for (value, reason) in cases {
        let shown = value.escape_ascii().to_string();
        assert_eq!(refused(urls(value), value), reason, "{shown}");
    }
    let full = vec!["http://a/"; URLS_MAX].join(" ");
    assert_eq!(urls(full.as_bytes()).map(|urls| urls.len()), Ok(URLS_MAX));
    let more = full + " http://a/";
    assert_eq!(refused(urls(more.as_bytes()), b"more"), "too many URLs");
}

/// An application that checked a name for slashes and `..` has not seen escaped ones.
#[test]
fn a_path_is_not_read_twice_where_that_leads_elsewhere() {
    for value in [
        "/files/alice/%2e%2e%2fbob%2fsecret",
        "/files/alice/%2e%2e/bob",
        "/files/a%2Fb",
        "/files/%2e/x",
    ] {
        let path = file_path(value.as_bytes()).expect("a path");
        assert_eq!(
            (path.raw, path.decoded),
            (value.as_bytes(), None),
            "{value}"
        );
        let elsewhere = "escaped slashes or dot segments in the path";
        let part = format!("/first 0-, {value} 0-");
        assert_eq!(refused(file_parts(part.as_bytes()), b""), elsewhere);
        let content = format!("/target {value} ttl=1");
        assert_eq!(refused(preload(content.as_bytes()), b""), elsewhere);
    }
}

/// As PHP's urlencode.
#[test]
fn a_path_may_be_escaped_as_a_whole() {
    let whole = "%2Ffiles%2Fa%20b";
    let part = format!("{whole} 0-");
    let parts = file_parts(part.as_bytes()).expect("a part");
    assert_eq!(&*parts[0].path, b"/files/a b");
    let content = format!("/target {whole} ttl=1");
    let content = preload(content.as_bytes()).expect("content");
    assert_eq!(&*content.path, b"/files/a b");
}
