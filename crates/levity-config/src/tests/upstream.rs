//! `[[upstream]]`

use strum::VariantArray as _;

use super::*;
use crate::upstream::{
    At, Backend, Balance, Check, Forwarded, Protocol, ProxyProtocol, ResponseLimits, Retry, Sticky,
};

pub(super) const UPSTREAM: &str = "[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:9\"]\n";
pub(super) const PHP: &str =
    "[[upstream]]\nname = \"php\"\nprotocol = \"fastcgi\"\nto = [\"unix:/p\"]\n";

fn upstream(lines: &str) -> Upstream {
    let config = all(&format!("{UPSTREAM}{lines}"));
    config.upstreams.into_iter().next().unwrap()
}

/// Lines of an upstream that begins on line 1, and has its own from line 4 on.
#[track_caller]
fn assert_upstream_problems(lines: &str, expected: &[&str]) {
    assert_problems_beside(&format!("{UPSTREAM}{lines}"), expected);
}

fn backend(at: &str) -> Backend {
    Backend {
        at: At::Address(at.parse().unwrap()),
        weight: 1,
        backup: false,
        drain: false,
        tls: None,
    }
}

#[test]
fn name_and_backends_are_enough() {
    let expected = Upstream {
        name: "app".to_owned(),
        protocol: Protocol::Http,
        to: vec![backend("127.0.0.1:9")],
        tls: None,
        balance: Balance::RoundRobin,
        sticky: None,
        connections: 256,
        keep_alive: 32,
        keep_alive_timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        tunnel_timeout: Duration::from_secs(3600),
        queue: 1024,
        queue_timeout: Duration::from_secs(10),
        retry: Retry {
            times: 2,
            within: Duration::from_secs(2),
        },
        fail_after: 1,
        fail_for: Duration::from_secs(10),
        slow_start: Duration::ZERO,
        check: None,
        limits: ResponseLimits {
            line_bytes: 16 << 10,
            head_bytes: 64 << 10,
            headers: 200,
        },
        buffer_requests: false,
        event_stream_heartbeat: None,
        forwarded: Forwarded::Both,
        proxy_protocol: None,
        secret: None,
        unread: Vec::new(),
        sendfile_roots: Vec::new(),
        temporary_roots: Vec::new(),
        keep_until_sent: false,
        reproxy: Vec::new(),
        resolve_interval: Duration::from_secs(30),
    };
    assert_eq!(upstream(""), expected);
}

#[test]
fn every_value_of_an_upstream() {
    let text = "
[[upstream]]
name = \"a-b_c.1\"
protocol = \"scgi\"
to = [\"unix:a.sock weight=3\", \"[::1]:81 backup\", \"App:82 drain\"]
balance = \"carp\"
sticky = \"header:X-User\"
connections = 10
keep_alive = 10
keep_alive_timeout = \"1s\"
connect_timeout = \"2s\"
first_byte_timeout = \"3s\"
idle_timeout = \"4s\"
tunnel_timeout = \"9s\"
queue = 0
queue_timeout = \"5s\"
fail_after = 6
fail_for = \"7s\"
slow_start = \"8s\"
buffer_requests = true
event_stream_heartbeat = \"15s\"
forwarded = \"x-forwarded\"
proxy_protocol = \"v2\"
sendfile_roots = [\"/a\", \"b\"]
temporary_roots = [\"/c\"]
temporary_removal = \"sent\"
reproxy = [\"app\"]
resolve_interval = \"9s\"
[upstream.limits]
line_bytes = \"2KiB\"
head_bytes = \"3KiB\"
headers = 11
[upstream.retry]
times = 16
for = \"8s\"
on = [\"connect\"]
[upstream.check]
path = \"/well?a=%20\"
host = \"app.example:81\"
interval = \"1s\"
timeout = \"500ms\"
fall = 4
rise = 5
";
    let expected = Upstream {
        name: "a-b_c.1".to_owned(),
        protocol: Protocol::Scgi,
        tls: None,
        to: vec![
            Backend {
                weight: 3,
                ..backend("unix:a.sock")
            },
            Backend {
                backup: true,
                ..backend("[::1]:81")
            },
            Backend {
                at: At::Name("app".to_owned(), 82),
                drain: true,
                tls: None,
                ..backend("1")
            },
        ],
        balance: Balance::Carp,
        sticky: Some(Sticky::Header("x-user".to_owned())),
        connections: 10,
        keep_alive: 0,
        keep_alive_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(2),
        first_byte_timeout: Duration::from_secs(3),
        idle_timeout: Duration::from_secs(4),
        tunnel_timeout: Duration::from_secs(9),
        queue: 0,
        queue_timeout: Duration::from_secs(5),
        retry: Retry {
            times: 16,
            within: Duration::from_secs(8),
        },
        fail_after: 6,
        fail_for: Duration::from_secs(7),
        slow_start: Duration::from_secs(8),
        check: Some(Check {
            path: Some("/well?a=%20".to_owned()),
            host: Some("app.example:81".to_owned()),
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
            fall: 4,
            rise: 5,
        }),
        limits: ResponseLimits {
            line_bytes: 2 << 10,
            head_bytes: 3 << 10,
            headers: 11,
        },
        buffer_requests: true,
        event_stream_heartbeat: Some(Duration::from_secs(15)),
        forwarded: Forwarded::XForwarded,
        proxy_protocol: Some(ProxyProtocol::V2),
        secret: None,
        unread: Vec::new(),
        sendfile_roots: vec!["/a".into(), "b".into()],
        temporary_roots: vec!["/c".into()],
        keep_until_sent: true,
        reproxy: vec!["app".to_owned()],
        resolve_interval: Duration::from_secs(9),
    };
    let config = all(&format!("{text}{UPSTREAM}"));
    assert_eq!(config.upstreams.len(), 2);
    assert_eq!(config.upstreams[0], expected);
}

#[test]
fn limits_of_a_header() {
    assert_upstream_problems(
        "[upstream.limits]\nline_bytes = \"4KiB\"\nhead_bytes = \"3KiB\"\nheaders = 9",
        &[
            "5:14 `line_bytes` (4KiB) is larger than `head_bytes` (3KiB)",
            "7:11 `headers` must be from 10 to 1000",
        ],
    );
    assert_eq!(
        upstream("[upstream.limits]\nhead_bytes = \"1KiB\"")
            .limits
            .head_bytes,
        1024
    );
    assert_upstream_problems(
        "protocol = \"ajp13\"\n[upstream.limits]",
        &["5:1 `limits`: they have no effect with ajp13, whose headers fit in one packet"],
    );
}

#[test]
fn every_word_of_an_upstream() {
    type Line = (&'static str, fn(&Upstream) -> bool);
    let lines: &[Line] = &[
        ("protocol = \"fastcgi\"", |u| {
            u.protocol == Protocol::Fastcgi
        }),
        ("protocol = \"ajp13\"", |u| u.protocol == Protocol::Ajp13),
        ("protocol = \"h2\"", |u| u.protocol == Protocol::H2),
        ("balance = \"sqf\"", |u| {
            u.balance == Balance::LeastConnections
        }),
        ("sticky = \"cookie:SID\"", |u| {
            u.sticky == Some(Sticky::Cookie("SID".to_owned()))
        }),
        ("forwarded = \"forwarded\"", |u| {
            u.forwarded == Forwarded::Forwarded
        }),
        ("forwarded = \"off\"", |u| u.forwarded == Forwarded::Off),
        ("proxy_protocol = \"v1\"", |u| {
            u.proxy_protocol == Some(ProxyProtocol::V1)
        }),
        ("retry.on = []", |u| u.retry.within.is_zero()),
        ("[upstream.check]", |u| {
            u.check.as_ref().is_some_and(|check| check.path.is_none())
        }),
    ];
    for (line, is_read) in lines {
        assert!(is_read(&upstream(line)), "{line}");
    }
    for balance in Balance::VARIANTS {
        let line = format!("balance = \"{}\"", balance.label());
        assert_eq!(upstream(&line).balance, *balance);
    }
}

#[test]
fn few_connections_keep_fewer() {
    assert_eq!(upstream("connections = 8").keep_alive, 8);
    assert_eq!(upstream("protocol = \"fastcgi\"").keep_alive, 0);
    let kept = upstream("protocol = \"fastcgi\"\nkeep_alive = 4");
    assert_eq!(kept.keep_alive, 4);
    assert_upstream_problems(
        "connections = 8\nkeep_alive = 9",
        &["5:14 `keep_alive` (9) is larger than `connections` (8)"],
    );
    assert_upstream_problems(
        "keep_alive = 257",
        &[
            "4:14 `keep_alive` (257) is larger than `connections` (256) [`connections` has its default here]",
        ],
    );
}

#[test]
fn wrong_words_of_an_upstream() {
    let words: Vec<_> = Balance::VARIANTS.iter().map(|one| one.label()).collect();
    let words = words.join("`, `");
    let of_balance = format!("5:11 `hash` is not a value of `balance` [one of `{words}`]");
    assert_upstream_problems(
        "protocol = \"https\"\nbalance = \"hash\"\nsticky = \"cookie\"\nforwarded = true\nproxy_protocol = \"v3\"",
        &[
            "4:12 `https` is not a value of `protocol` [write \"http\", and `https://` before the backends in `to`]",
            &of_balance,
            "6:10 `cookie` is not a value of `sticky` [\"cookie:NAME\" or \"header:NAME\"]",
            "7:13 expected a string, found boolean [one of `both`, `forwarded`, `x-forwarded`, `off`]",
            "8:18 `v3` is not a value of `proxy_protocol` [one of `off`, `v1`, `v2`]",
        ],
    );
    assert_upstream_problems(
        "protocol = \"fcgi\"",
        &["4:12 `fcgi` is not a value of `protocol` [did you mean \"fastcgi\"?]"],
    );
    assert_upstream_problems(
        "protocol = \"grpc\"",
        &["4:12 `grpc` is not a value of `protocol` [\"h2\" is what gRPC needs]"],
    );
    for sticky in ["cookie:", "cookie:a b", "header:a=b", "ip:", "Cookie:a"] {
        let reports = format!(
            "4:10 `{sticky}` is not a value of `sticky` [\"cookie:NAME\" or \"header:NAME\"]"
        );
        assert_upstream_problems(&format!("sticky = \"{sticky}\""), &[&reports]);
    }
}

#[test]
fn the_former_key_of_retries_names_the_new_one() {
    assert_upstream_problems(
        "retries = 2\nretry.on = [\"connect\", \"timeout\"]",
        &[
            "4:1 unknown key `retries` [it is `times` of `[upstream.retry]`]",
            "5:24 `timeout` is not a failure to wait after [\"connect\" is the only one]",
        ],
    );
}

#[test]
fn quantities_of_an_upstream_at_the_edge() {
    // The key, its least value, one below, its largest value, one above.
    let edges = "\
        connections 32 0 65535 65536
        keep_alive 0 -1 256 65536
        queue 0 -1 1000000 1000001
        retry.times 0 -1 16 17
        retry.for 0s -1s 1m 61s
        fail_after 1 0 1000 1001
        keep_alive_timeout 10ms 9ms 1d 25h
        connect_timeout 10ms 9ms 1h 61m
        first_byte_timeout 10ms 9ms 1d 25h
        idle_timeout 10ms 9ms 1d 25h
        tunnel_timeout 10ms 9ms 1d 25h
        queue_timeout 10ms 9ms 1h 61m
        fail_for 0s -1s 1d 25h
        slow_start 0s -1s 1h 61m
        resolve_interval 1s 999ms 1d 25h
        check.interval 10ms 9ms 1h 61m
        check.timeout 10ms 9ms 1h 61m
        check.fall 1 0 100 101
        check.rise 1 0 100 101";
    for edge in edges.lines() {
        let [key, least, below, most, above] = edge.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("{edge}");
        };
        let line = |value: &str| match value.parse::<i64>() {
            Ok(number) => format!("{key} = {number}"),
            Err(_) => format!("{key} = \"{value}\""),
        };
        for good in [least, most] {
            upstream(&line(good));
        }
        for bad in [below, above] {
            let text = format!("{UPSTREAM}{}\n{SITE}", line(bad));
            let name = key.rsplit('.').next().expect("a name");
            let messages = messages(&text);
            assert_eq!(messages.len(), 1, "{text}");
            assert!(
                messages[0].starts_with(&format!("`{name}` ")),
                "{messages:?}"
            );
        }
    }
}

#[test]
fn names_of_upstreams() {
    assert_problems_beside(
        "[[upstream]]\nto = [\"a:1\"]\n[[upstream]]\nname = \"a b\"\nto = [\"a:1\"]\n[[upstream]]\nname = \"\"\nto = [\"a:1\"]\n\
         [[upstream]]\nname = \"a\"\nto = [\"a:1\"]\n[[upstream]]\nname = \"a\"\nto = [\"a:1\"]\n[[upstream]]\nnam = \"b\"\nto = [\"a:1\"]",
        &[
            "1:1 `name` is missing",
            "4:8 `a b` is not the name of an upstream [letters, digits, `-`, `_` and `.`]",
            "7:8 `` is not the name of an upstream [letters, digits, `-`, `_` and `.`]",
            "13:8 upstream `a` is given twice [the first is on line 10]",
            "16:1 unknown key `nam` [did you mean `name`?]",
        ],
    );
}

#[test]
fn backends() {
    let to = |to: &str| format!("[[upstream]]\nname = \"a\"\nto = {to}");
    assert_problems_beside("[[upstream]]\nname = \"a\"", &["1:1 `to` is missing"]);
    assert_problems_beside(&to("[]"), &["3:6 `to`: it lists no backend"]);
    assert_problems_beside(
        &to("\"a:1\""),
        &["3:6 expected an array of strings, found string [write [\"a:1\"]]"],
    );
    assert_problems_beside(
        &to("[\"http://a:1/\", \"80\", \"b\", \"b:1 heavy\", \"B:1\", \"b:1 weight=2\"]"),
        &[
            "3:7 `http://a:1/` is not a backend [write \"a:1\", with a port: `protocol` says what is spoken, not `http://`, and only `https://` adds TLS]",
            "3:22 `80` is not a backend [a port alone is no backend: for this machine write \"127.0.0.1:80\"]",
            "3:28 `b` is not a backend [the port is missing, as in \"b:8080\"]",
            "3:33 `b:1 heavy` is not a backend [`heavy` is none of `weight=N`, `backup` and `drain`]",
            "3:53 `b:1 weight=2` repeats a backend",
        ],
    );
    for second in ["127.0.0.1:1", "[::1]:1", "LOCALHOST:1"] {
        let repeats = format!("3:22 `{second}` repeats a backend");
        assert_problems_beside(
            &to(&format!("[\"localhost:1\", \"{second}\"]")),
            &[&repeats],
        );
    }
    for spare in ["[\"a:1 backup\"]", "[\"a:1 drain\", \"a:2 backup\"]"] {
        assert_problems_beside(
            &to(spare),
            &["3:6 `to`: every backend is `backup` or `drain`"],
        );
    }
    all(&to("[\"a:1 drain\", \"a:2 backup\", \"a:3\"]"));
}

#[test]
fn names_of_other_servers_for_keys_of_upstreams() {
    let config = all(
        "[[upstream]]\nname = \"a\"\nbackends = [\"a:1\"]\nbalancer = \"sqf\"\nmax-pool-size = 64\nkeepalive = 2\n\
         max_fails = 3\nfail_timeout = \"1m\"",
    );
    let upstream = &config.upstreams[0];
    assert_eq!(
        (upstream.to.len(), upstream.balance),
        (1, Balance::LeastConnections)
    );
    assert_eq!((upstream.connections, upstream.keep_alive), (64, 2));
    assert_eq!(
        (upstream.fail_after, upstream.fail_for),
        (3, Duration::from_secs(60))
    );
    let note = "line 1: no site or route uses the upstream `a`".to_owned();
    assert_eq!(
        (config.note_texts().len(), &config.note_texts()[0]),
        (7, &note)
    );
    all("[[upstream]]\nname = \"a\"\nservers = [\"a:1\"]");
}

#[test]
fn upstreams_that_nobody_uses() {
    let unused = |text: &str| parse(text).unwrap().note_texts();
    let both = format!("{UPSTREAM}{PHP}[[site]]\nroot = \"/\"\n");
    assert_eq!(
        unused(&both),
        [
            "line 1: no site or route uses the upstream `app`",
            "line 4: no site or route uses the upstream `php`"
        ]
    );
    let route = format!(
        "{both}[[site.route]]\npath = \"/a\"\nproxy = \"php\"\n[[site.route]]\npath = \"/b\"\nproxy = \"app\""
    );
    assert!(unused(&route).is_empty());
    let handed = format!("{PHP}reproxy = [\"app\"]\n{UPSTREAM}[[site]]\nproxy = \"php\"");
    assert!(unused(&handed).is_empty());
}

#[test]
fn checks() {
    assert_upstream_problems(
        "check = true",
        &["4:9 expected a table, found boolean [write `[upstream.check]`]"],
    );
    let help = "it starts with `/` and has no space, no control character and no `#`; other characters than ASCII are written as `%..`";
    for path in ["", "well", "/a b", "/a#b", "/\u{e9}", "http://a/"] {
        let reports = format!("5:8 `{path}` is not a request target [{help}]");
        assert_upstream_problems(&format!("[upstream.check]\npath = \"{path}\""), &[&reports]);
    }
    let help =
        "a name or an address, and a port if need be: \"app.example\" or \"app.example:8080\"";
    for host in [
        "",
        "http://a",
        "a b",
        "a..b",
        "a:65536",
        "::1",
        "a\\r\\nX: b",
    ] {
        let shown = host.replace("\\r", "\r").replace("\\n", "\n");
        let reports = format!("6:8 `{shown}` is not a host [{help}]");
        assert_upstream_problems(
            &format!("[upstream.check]\npath = \"/\"\nhost = \"{host}\""),
            &[&reports],
        );
    }
    assert_upstream_problems(
        "[upstream.check]\nhost = \"a\"",
        &["5:8 `host`: it has no effect without `path` [add the `path` to request]"],
    );
    assert_upstream_problems(
        "protocol = \"ajp13\"\n[upstream.check]\nhost = \"a\"\npath = \"/\"",
        &["6:8 `host`: checks over ajp13 send none"],
    );
}

#[test]
fn reproxying() {
    let text = format!(
        "{UPSTREAM}reproxy = [\"app\", \"php\", \"bb\", \"bb\", \"bbb\", 1]\n{PHP}[[upstream]]\nname = \"bb\"\nto = [\"a:1\"]"
    );
    assert_problems_beside(
        &text,
        &[
            "4:12 `app` is this upstream itself",
            "4:19 `php` is not of protocol http or h2",
            "4:32 `bb` is given twice",
            "4:38 no upstream has the name `bbb` [known: `app`, `php`, `bb`]",
            "4:45 expected a string, found integer [write \"1\"]",
        ],
    );
    assert_problems_beside(
        &format!("{UPSTREAM}reproxy = [\"b:1\"]"),
        &[
            "4:12 no upstream has the name `b:1` [`reproxy` takes the name of an `[[upstream]]`; put the address into its `to`]",
        ],
    );
    // Later upstreams are known too, and one whose protocol is wrong is not blamed again.
    let wrong = "[[upstream]]\nname = \"b\"\nprotocol = \"htp\"\nto = [\"a:1\"]";
    assert_problems_beside(
        &format!("{UPSTREAM}reproxy = [\"b\"]\n{wrong}"),
        &["7:12 `htp` is not a value of `protocol` [did you mean \"http\"?]"],
    );
}

#[test]
fn folders_of_upstreams_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    std::fs::create_dir(folder.path().join("www")).unwrap();
    let lines = |lines: &str| {
        std::fs::write(
            &file,
            format!("[[upstream]]\nname = \"a\"\nto = [\"unix:s\"]\n{lines}\n{SITE}root2 = 1\n"),
        )
        .unwrap();
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace("root2 = 1\n", "")
            .replace("/srv", "www");
        std::fs::write(&file, text).unwrap();
        load(&file)
    };
    let shown = folder.path().display();
    let messages = |lines: Result<Config, Errors>| -> Vec<String> {
        lines
            .unwrap_err()
            .problems
            .into_iter()
            .map(|p| p.message)
            .collect()
    };
    assert_eq!(
        messages(lines(
            "sendfile_roots = [\"www\", \"absent\", \"\"]\ntemporary_roots = [\"levity.toml\"]"
        )),
        [
            format!("`sendfile_roots`: {shown}/absent does not exist"),
            "`sendfile_roots`: not a path".to_owned(),
            format!("`temporary_roots`: {shown}/levity.toml is not a folder"),
        ]
    );
    let upstream = lines("sendfile_roots = [\"www\"]")
        .unwrap()
        .upstreams
        .remove(0);
    assert_eq!(upstream.sendfile_roots, [folder.path().join("www")]);
    assert_eq!(
        upstream.to[0].at,
        At::Address(Address::Unix(folder.path().join("s")))
    );
}

#[test]
fn every_start_of_a_file_is_survived() {
    let text = format!(
        "{UPSTREAM}reproxy = [\"b\"]\nsticky = \"header:a\"\n[upstream.check]\npath = \"/\"\n{PHP}[[site]]\nproxy = \"php\"\n\
         root = \"/\"\ntry = [\"file\", \"proxy\"]\nscript_suffix = \".p\"\n[[site.route]]\npath = \"/\"\n\
         rewrite = {{ location = {{ \"/\" = \"/a\" }} }}"
    );
    for end in 0..text.len() {
        if let Err(problems) = parse(&text[..end]) {
            assert!(!problems.is_empty());
        }
    }
}

#[test]
fn connections_over_http2_are_of_many_clients() {
    assert_upstream_problems(
        "protocol = \"h2\"\nproxy_protocol = \"v2\"",
        &[
            "5:18 `proxy_protocol`: it cannot be with `protocol = \"h2\"`, whose connections carry requests of many clients",
        ],
    );
    let encrypted = UPSTREAM.replace("127.0.0.1:9", "https://a.test:9");
    let config = all(&format!("{encrypted}protocol = \"h2\"\n"));
    assert_eq!(config.upstreams[0].protocol_label(), "h2 over TLS");
}

#[test]
fn secrets_are_for_containers() {
    let reports = upstream("protocol = \"ajp13\"\nsecret = \"between us\"");
    assert_eq!(reports.secret, Some(Secret(b"between us".to_vec())));
    assert_upstream_problems(
        "secret = \"between us\"",
        &["4:10 `secret`: only upstreams of protocol ajp13 have one"],
    );
    for secret in ["", "a\\n", "\\u0000"] {
        assert_upstream_problems(
            &format!("protocol = \"ajp13\"\nsecret = \"{secret}\""),
            &["5:10 `secret`: not valid [not empty, and no control characters]"],
        );
    }
    assert_upstream_problems(
        "protocol = \"ajp13\"\nsecret = 1",
        &["5:10 expected a string, found integer [write \"1\"]"],
    );
}
