use super::*;

const SITE: &str = "[[site]]\nroot = \"/srv\"\n";

fn messages(text: &str) -> Vec<String> {
    let problems = parse(text).unwrap_err();
    problems.iter().map(|p| p.message.clone()).collect()
}

/// Every problem as `line:column message [help]`.
fn told(text: &str) -> Vec<String> {
    let problems = parse(text).expect_err(text);
    let told = problems.iter().map(|p| {
        let place = p
            .place
            .as_ref()
            .map_or("-".to_owned(), |at| format!("{}:{}", at.line, at.column));
        let help = p
            .help
            .as_ref()
            .map_or(String::new(), |help| format!(" [{help}]"));
        format!("{place} {}{help}", p.message)
    });
    told.collect()
}

#[track_caller]
fn assert_told(text: &str, expected: &[&str]) {
    assert_eq!(told(text), expected, "{text}");
}

/// With a valid site behind it.
#[track_caller]
fn assert_told_in(text: &str, expected: &[&str]) {
    assert_told(&format!("{text}\n{SITE}"), expected);
}

fn all(tables: &str) -> Config {
    parse(&format!("{tables}\n{SITE}")).unwrap()
}

#[test]
fn a_site_is_enough() {
    let config = parse(SITE).unwrap();
    let site = &config.sites[0];
    assert_eq!(site.root, Path::new("/srv"));
    assert_eq!(site.index, ["index.html"]);
    assert!(site.hosts.is_empty() && !site.listing && site.routes.is_empty());
    assert_eq!(
        Config {
            sites: Vec::new(),
            ..config
        },
        Config::default()
    );
}

#[test]
fn defaults() {
    let Config {
        server,
        disk,
        log,
        admin,
        limits,
        listen,
        ..
    } = Config::default();
    assert_eq!(server.workers, None);
    assert_eq!(disk.engine, "auto");
    assert_eq!(
        (
            disk.threads,
            disk.stat_threads,
            disk.depth,
            disk.chunk_bytes
        ),
        (None, None, None, None)
    );
    assert_eq!(
        (disk.cache_bytes, disk.buffer_bytes, disk.queue),
        (64 << 20, 256 << 20, 4096)
    );
    assert_eq!(disk.entry_ttl, Duration::from_secs(1));
    assert_eq!(
        log,
        Log {
            access: AccessLog::Off,
            format: LogFormat::Combined
        }
    );
    assert_eq!(admin, None);
    assert_eq!(listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(limits.header_timeout, Duration::from_secs(10));
    assert_eq!(
        (limits.request_line_bytes, limits.head_bytes),
        (8 << 10, 16 << 10)
    );
    assert_eq!((limits.headers, limits.connections), (100, None));
    assert_eq!(limits, Limits::default());
}

/// A default that is written down changes nothing.
#[test]
fn defaults_in_the_table_are_those_of_the_code() {
    let mut text = String::new();
    for table in keys::TABLES.iter().filter(|table| !table.path.is_empty()) {
        let given: Vec<String> = table
            .keys
            .iter()
            .filter_map(reference::default_line)
            .collect();
        if table.path == "site" {
            text += &format!("{SITE}{}\n", given.join("\n"));
        } else if !given.is_empty() {
            text += &format!("{}\n{}\n", table.heading(), given.join("\n"));
        }
    }
    assert_eq!(parse(&text).unwrap(), parse(SITE).unwrap(), "{text}");
}

/// A key that nobody reads would be accepted and do nothing.
#[test]
fn every_key_of_the_table_is_read() {
    for table in keys::TABLES {
        for key in table.keys {
            let line = format!("{} = 1979-05-27", key.name);
            let text = match table.path {
                "site" => format!("[[site]]\n{line}\n"),
                path if path.starts_with("site.") => format!(
                    "{SITE}[[site.route]]\npath = \"/a\"\n{}",
                    below(path, &line)
                ),
                _ => format!("{}\n{line}\n{SITE}", table.heading()),
            };
            // A route has a path already.
            let text = if line.starts_with("path ") {
                text.replace("path = \"/a\"\n", "")
            } else {
                text
            };
            let read = messages(&text)
                .iter()
                .any(|m| m.starts_with("expected ") && m.ends_with("found datetime"));
            assert!(read, "{text}");
        }
    }
}

fn below(path: &str, line: &str) -> String {
    if path.ends_with(".headers") {
        format!("[site.route.headers]\n{line}\n")
    } else {
        format!("{line}\n")
    }
}

#[test]
fn every_value() {
    let text = "
[server]
workers = 2
[disk]
engine = \"io_uring\"
threads = 8
stat_threads = 2
depth = 32
chunk = \"512KiB\"
cache_bytes = 0
buffer_bytes = \"1GiB\"
queue = 1_000
entry_ttl = \"0s\"
[log]
access = \"./access.log\"
format = \"json\"
[admin]
listen = \"unix:admin.sock\"
[limits]
idle_timeout = \"2m\"
connections = 5000
[[listen]]
address = \"8080\"
[[listen]]
address = \"[::1]:8081\"
[[site]]
hosts = [\"Example.org\", \"*.example.org\"]
root = \"/srv/a\"
listing = true
index = []
symlinks = \"follow\"
[[site.route]]
path = \"/static/*\"
root = \"/srv/static\"
strip_prefix = \"/static\"
listing = false
index = [\"a.htm\", \"b.htm\"]
symlinks = \"beneath\"
headers = { set = { \"X-B\" = \"1\", \"X-A\" = \"2\" }, remove = [\"ETag\"] }
[[site]]
root = \"/srv/b\"
";
    let config = parse(text).unwrap();
    assert_eq!(config.server.workers, Some(2));
    let expected = Disk {
        engine: "io_uring".to_owned(),
        threads: Some(8),
        stat_threads: Some(2),
        depth: Some(32),
        chunk_bytes: Some(512 << 10),
        cache_bytes: 0,
        buffer_bytes: 1 << 30,
        queue: 1000,
        entry_ttl: Duration::ZERO,
    };
    assert_eq!(config.disk, expected);
    assert_eq!(
        config.log,
        Log {
            access: AccessLog::File("./access.log".into()),
            format: LogFormat::Json
        }
    );
    assert_eq!(config.admin, Some(Address::Unix("admin.sock".into())));
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(120));
    assert_eq!(config.limits.connections, Some(5000));
    assert_eq!(
        config.listen,
        ["[::]:8080".parse().unwrap(), "[::1]:8081".parse().unwrap()]
    );
    let [first, second] = &config.sites[..] else {
        panic!("two sites")
    };
    assert_eq!(first.hosts, ["example.org", "*.example.org"]);
    assert!(first.listing && first.index.is_empty() && first.symlinks == Symlinks::Follow);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let route = Route {
        path: Pattern::Prefix("/static/".to_owned()),
        root: Some("/srv/static".into()),
        strip_prefix: Some("/static".to_owned()),
        listing: Some(false),
        index: Some(vec!["a.htm".to_owned(), "b.htm".to_owned()]),
        symlinks: Some(Symlinks::Beneath),
        headers: Headers {
            set: vec![pair("X-B", "1"), pair("X-A", "2")],
            remove: vec!["ETag".to_owned()],
        },
    };
    assert_eq!(first.routes, [route]);
    assert_eq!(second.root, Path::new("/srv/b"));
}

#[test]
fn the_engine_for_tests_is_accepted() {
    assert_eq!(
        all("[disk]\nengine = \"simulated\"").disk.engine,
        "simulated"
    );
}
