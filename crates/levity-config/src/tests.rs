mod acme;
mod answers;
mod files;
mod gates;
mod hints;
mod includes;
mod logs;
mod mailboxes;
mod matching;
mod proxying;
mod rate_limits;
mod secrets;
mod sites;
mod syntax;
mod uploads;
mod upstream;
mod variables;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use levity_disk::{Changes, Direct};
use levity_wire::encoding::Coding;
use toml::de::{DeTable, DeValue};

use crate::address::Address;
use crate::files::FILE_BYTES_MAX;
use crate::keys::{SCHEMA, TABLES};
use crate::load::parse_with;
use crate::schema::Table;
use crate::*;

const SITE: &str = "[[site]]\nroot = \"/srv\"\n";

impl Config {
    /// The notes as they are shown.
    fn note_texts(&self) -> Vec<String> {
        self.notes.iter().map(Note::to_string).collect()
    }
}

/// Also checks that the values may be in variables.
fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let parsed = crate::parse(text);
    if let Ok(config) = &parsed {
        let (text, variables) = with_references(text);
        let again = parse_with(&text, &variables).expect(&text);
        assert_eq!(
            without_lines(again),
            without_lines(config.clone()),
            "{text}"
        );
    }
    parsed
}

/// What does not depend on how it was written.
fn without_lines(mut config: Config) -> Config {
    config.notes.clear();
    config.paths.clear();
    config.hidden = Hidden::default();
    for site in &mut config.sites {
        site.line = Line::default();
        site.routes.iter_mut().for_each(|route| route.line = None);
    }
    config
}

/// The text with references in place of its strings and numbers, and the variables.
fn with_references(text: &str) -> (String, Variables) {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut found = Vec::new();
    for value in document.get_ref().values() {
        scalars(value, &mut found);
    }
    found.sort_by_key(|(span, _)| span.start);
    let (mut out, mut variables, mut end) = (String::new(), Vec::new(), 0);
    for (number, (span, value)) in found.into_iter().enumerate() {
        let name = format!("V{number}");
        out += &format!("{}\"${{{name}}}\"", &text[end..span.start]);
        end = span.end;
        variables.push((name, value));
    }
    let variables = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let variables = Variables::of(&variables.collect::<Vec<_>>());
    (out + &text[end..], variables)
}

fn scalars(value: &toml::Spanned<DeValue<'_>>, found: &mut Vec<(std::ops::Range<usize>, String)>) {
    match value.get_ref() {
        DeValue::String(text) => found.push((value.span(), text.to_string())),
        DeValue::Integer(digits) if digits.radix() == 10 => {
            found.push((value.span(), digits.as_str().to_owned()));
        }
        DeValue::Array(elements) => elements.iter().for_each(|one| scalars(one, found)),
        DeValue::Table(entries) => entries.values().for_each(|one| scalars(one, found)),
        _ => {}
    }
}

/// Without variables.
fn load(path: &Path) -> Result<Config, Errors> {
    crate::load(path, &Variables::default())
}

fn messages(text: &str) -> Vec<String> {
    let problems = parse(text).unwrap_err();
    problems.iter().map(|p| p.message.clone()).collect()
}

/// Every problem as `line:column message [help]`.
fn reports(text: &str) -> Vec<String> {
    shown(&parse(text).expect_err(text))
}

pub(crate) fn shown(problems: &[Problem]) -> Vec<String> {
    let reports = problems.iter().map(|p| {
        let position = p
            .position
            .as_ref()
            .map_or("-".to_owned(), |at| format!("{}:{}", at.line, at.column));
        let help = p
            .help
            .as_ref()
            .map_or(String::new(), |help| format!(" [{help}]"));
        format!("{position} {}{help}", p.message)
    });
    reports.collect()
}

#[track_caller]
fn assert_problems(text: &str, expected: &[&str]) {
    assert_eq!(reports(text), expected, "{text}");
}

/// With a valid site behind it.
#[track_caller]
fn assert_problems_beside(text: &str, expected: &[&str]) {
    assert_problems(&format!("{text}\n{SITE}"), expected);
}

fn listen_at(text: &str) -> Listen {
    text.parse::<Address>().unwrap().into()
}

fn all(tables: &str) -> Config {
    parse(&format!("{tables}\n{SITE}")).unwrap()
}

#[test]
fn a_site_is_enough() {
    let config = parse(SITE).unwrap();
    let site = &config.sites[0];
    assert_eq!(site.location.root.as_deref(), Some(Path::new("/srv")));
    assert_eq!(site.location.options, LocationOptions::default());
    assert_eq!(site.location.options.index, ["index.html"]);
    assert!(site.hosts.is_empty() && site.routes.is_empty());
    assert_eq!(
        Config {
            sites: Vec::new(),
            paths: Vec::new(),
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
    assert_eq!(
        (server.workers, server.trusted_proxies, server.etag),
        (None, TrustedProxies::default(), Etag::File)
    );
    assert_eq!(disk.spool, Path::new("/var/tmp"));
    assert_eq!((disk.cache_bytes, disk.chunk_bytes), (64 << 20, None));
    assert_eq!(disk.entry_ttl, Duration::from_secs(1));
    let settings = disk.settings;
    assert_eq!(settings.engine, "auto");
    assert_eq!(
        (settings.threads, settings.stat_threads, settings.depth),
        (None, None, None)
    );
    assert_eq!(
        (settings.buffer_bytes_max, settings.queue_max),
        (256 << 20, 4096)
    );
    assert_eq!(settings.dead_after, Duration::from_secs(5));
    assert_eq!(
        log,
        Log {
            access: AccessLog::Stdout,
            format: LogFormat::Combined,
            timing: LogTiming::Off
        }
    );
    assert_eq!(admin, None);
    assert_eq!(listen, [listen_at("127.0.0.1:8080")]);
    assert_eq!(limits.header_timeout, Duration::from_secs(10));
    assert_eq!(
        (limits.request_line_bytes, limits.head_bytes),
        (8 << 10, 16 << 10)
    );
    assert_eq!((limits.headers, limits.connections), (100, None));
    assert_eq!((limits.body_bytes, limits.body_memory), (1 << 20, 64 << 10));
}

/// A default that is written down changes nothing.
#[test]
fn defaults_in_the_table_are_those_of_the_code() {
    let (mut bare, mut given) = (String::new(), String::new());
    // The file itself has no heading, an answer leaves no room for another nor for uploads, TLS needs a
    // listener, and the others need an upstream.
    let untested = [
        ".tls",
        ".redirect",
        ".upload",
        ".request_headers",
        ".forward_auth",
        ".resume",
    ];
    let is_untested = |table: &&Table| untested.iter().any(|end| table.path.ends_with(end));
    let is_tested = |table: &&Table| !table.path.is_empty() && !is_untested(table);
    for table in TABLES.iter().filter(is_tested) {
        let lines: Vec<String> = table
            .keys
            .iter()
            .filter_map(|key| Some(format!("{} = {}", key.name, key.written_default()?)))
            .collect();
        if !lines.is_empty() {
            let required = required(table.path).join("\n");
            bare += &format!("{}\n{required}\n", table.heading());
            given += &format!("{}\n{required}\n{}\n", table.heading(), lines.join("\n"));
        }
    }
    let parsed = |text: &str| without_lines(parse(text).unwrap());
    assert_eq!(parsed(&given), parsed(&bare), "{given}");
}

/// The lines without which a table is incomplete.
fn required(path: &str) -> &'static [&'static str] {
    match path {
        "listen" => &["address = \"80\""],
        "site.tls" => &["certificates = [\"a\"]"],
        "site" => &["root = \"/srv\""],
        "site.route" => &["path = \"/a\""],
        "site.cors" | "site.route.cors" => &["origins = []"],
        "upstream" => &["name = \"a\"", "to = [\"a:80\"]"],
        "mailbox" => &["name = \"a\""],
        path if path.ends_with(".jwt") => &["keys = \"keys\""],
        path if path.ends_with(".signed_url") => &["secret = \"0123456789abcdef\""],
        path if path.ends_with(".forward_auth") => &["upstream = \"a\"", "path = \"/\""],
        path if path.ends_with(".basic_auth") => &["users = \"users\""],
        path if path.ends_with(".limit") => &["requests = \"1/s\""],
        _ => &[],
    }
}

/// A key that nobody reads would be accepted and do nothing.
#[test]
fn every_key_of_the_table_is_read() {
    for table in TABLES {
        for key in table.keys {
            let line = format!("{} = 1979-05-27", key.name);
            let text = match table.path {
                "" => format!("{line}\n{SITE}"),
                "site" => format!("[[site]]\n{line}\n"),
                "site.disk" => format!("{SITE}[site.disk]\n{line}\n"),
                path if path.starts_with("site.") => format!(
                    "{SITE}[[site.route]]\npath = \"/a\"\n{}",
                    below(table, &line)
                ),
                path if path.starts_with("upstream.") => {
                    format!("[[upstream]]\n{}\n{line}\n{SITE}", table.heading())
                }
                _ => format!("{}\n{line}\n{SITE}", table.heading()),
            };
            // A route has a path already.
            let text = if line.starts_with("path ") || line.starts_with("regex ") {
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

/// A key that `false` may stand for is reset where it is inherited.
#[test]
fn every_key_that_may_be_dropped_is() {
    let asked = RefCell::new(BTreeSet::new());
    location::inherited(&Location::default(), |name| {
        asked.borrow_mut().insert(name.to_owned());
        false
    });
    let route = SCHEMA.table("site.route");
    let names = SCHEMA
        .names(route)
        .filter(|name| SCHEMA.may_drop(route, name));
    let may_be_dropped: BTreeSet<_> = names.map(str::to_owned).collect();
    let mut is_asked = asked.into_inner();
    // Those whose `false` is a value like another.
    is_asked.retain(|name| SCHEMA.may_drop(route, name));
    assert_eq!(is_asked, may_be_dropped);
}

fn below(table: &Table, line: &str) -> String {
    let heading = table.heading();
    match table.path {
        "site.route" => format!("{line}\n"),
        // `after` is read with a rate only.
        path if path.ends_with(".limit") && line.starts_with("after ") => {
            format!("{heading}\nrequests = \"1/s\"\n{line}\n")
        }
        _ => format!("{heading}\n{line}\n"),
    }
}

#[test]
fn every_value() {
    let text = "
[server]
workers = 2
trusted_proxies = [\"10.0.0.0/8\", \"unix\", \"::1\"]
etag = \"mtime-size\"
request_id = \"X-Request-Id\"
[disk]
engine = \"io_uring\"
threads = 64
stat_threads = 2
depth = 32
chunk = \"512KiB\"
direct = \"always\"
changes = \"in-place\"
cache_bytes = 0
buffer_bytes = \"1GiB\"
queue = 1_000
dead_after = \"10s\"
entry_ttl = \"0s\"
watch = \"inotify\"
spool = \"/srv/spool\"
variants = \"/var/cache/levity\"
variants_bytes = \"1GiB\"
[log]
access = \"./access.log\"
format = \"json\"
timing = \"chunk\"
[admin]
listen = \"unix:admin.sock\"
control = \"unix:control.sock\"
hosts = [\"WEB1.example\", \"*.example.org.\"]
[limits]
idle_timeout = \"2m\"
half_closed_timeout = \"6s\"
connections = 5000
body_memory = \"1GiB\"
compression_memory = \"1MiB\"
digest_bytes = \"0B\"
[[listen]]
address = \"8080\"
proxy_protocol = true
[[listen]]
address = \"[::1]:8081\"
[[listen]]
address = \"unix:publish.sock\"
publish = true
[[site]]
hosts = [\"Example.org\", \"*.example.org\"]
root = \"/srv/a\"
listing = true
listing_archive = [\"tar\", \"zip\"]
index = []
symlinks = \"follow\"
server_timing = true
compress_dictionaries = true
digest = true
[[site.route]]
path = \"/static/*\"
root = \"/srv/static\"
strip_prefix = \"/static\"
listing = false
hide = [\"*.bak\"]
show = [\".a\", \".b*\"]
index = [\"a.htm\", \"b.htm\"]
precompressed = [\"br\"]
symlinks = \"beneath\"
disk = { engine = \"gthread-aio\", chunk = \"1MiB\", direct = \"never\", changes = \"never\" }
server_timing = false
compress = true
compress_codings = [\"br:5\"]
compress_types = [\"text/*\"]
compress_min_bytes = 0
compress_dictionaries = false
digest = false
substitute = { \"b\" = \"\", \"A\" = \"1\" }
substitute_types = [\"text/CSS\", \"text/*\"]
headers = { set = { \"X-B\" = \"1\", \"X-A\" = \"2\" }, remove = [\"ETag\"] }
[[site]]
root = \"/srv/b\"
";
    let config = parse(text).unwrap();
    let server = Server {
        workers: Some(2),
        trusted_proxies: TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
            unix: true,
        },
        etag: Etag::MtimeSize,
        request_id: Some("x-request-id".to_owned()),
        headers: Vec::new(),
    };
    assert_eq!(config.server, server);
    let expected = Disk {
        settings: levity_disk::Settings {
            engine: "io_uring".to_owned(),
            threads: Some(64),
            stat_threads: Some(2),
            depth: Some(32),
            queue_max: 1000,
            buffer_bytes_max: 1 << 30,
            dead_after: Duration::from_secs(10),
        },
        chunk_bytes: Some(512 << 10),
        direct: Direct::Always,
        changes: Changes::InPlace,
        cache_bytes: 0,
        entry_ttl: Duration::ZERO,
        watch: Watch::Inotify,
        spool: "/srv/spool".into(),
        variants: Some("/var/cache/levity".into()),
        variants_bytes: 1 << 30,
    };
    assert_eq!(config.disk, expected);
    assert_eq!(
        config.log,
        Log {
            access: AccessLog::File("./access.log".into()),
            format: LogFormat::Json,
            timing: LogTiming::Chunk
        }
    );
    let admin = config.admin.expect("an admin listener");
    assert_eq!(admin.listen, Address::Unix("admin.sock".into()));
    assert_eq!(config.control.as_deref(), Some(Path::new("control.sock")));
    assert_eq!(admin.names.added, ["web1.example", "*.example.org"]);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(120));
    assert_eq!(config.limits.half_closed_timeout, Duration::from_secs(6));
    assert_eq!(config.limits.connections, Some(5000));
    assert_eq!(config.limits.body_memory, 1 << 30);
    assert_eq!(config.limits.compression_memory, 1 << 20);
    assert_eq!(config.limits.digest_bytes, 0);
    let first = Listen {
        proxy_protocol: true,
        ..listen_at("[::]:8080")
    };
    let last = Listen {
        publish: true,
        ..listen_at("unix:publish.sock")
    };
    assert_eq!(config.listen, [first, listen_at("[::1]:8081"), last]);
    let [first, second] = &config.sites[..] else {
        panic!("two sites")
    };
    assert_eq!(first.hosts, ["example.org", "*.example.org"]);
    let options = &first.location.options;
    assert!(
        options.digest
            && options.listing
            && options.index.is_empty()
            && options.symlinks == Symlinks::Follow
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = Location {
        root: Some("/srv/static".into()),
        strip_prefix: Some("/static".to_owned()),
        options: LocationOptions {
            listing: false,
            listing_archive: vec![ArchiveForm::Tar, ArchiveForm::Zip],
            hide: vec![NamePattern::new("*.bak")],
            show: vec![NamePattern::new(".a"), NamePattern::new(".b*")],
            index: vec!["a.htm".to_owned(), "b.htm".to_owned()],
            precompressed: vec![Coding::Brotli],
            compress: true,
            compress_codings: vec![CompressCoding {
                coding: Coding::Brotli,
                level: Some(5),
            }],
            compress_types: vec!["text/*".parse().unwrap()],
            compress_min_bytes: 0,
            compress_dictionaries: false,
            substitute: vec![pair("b", ""), pair("A", "1")],
            substitute_types: ["text/CSS", "text/*"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            disk: LocationDisk {
                engine: Some("threads".to_owned()),
                chunk_bytes: Some(1 << 20),
                direct: Some(Direct::Never),
                changes: Some(Changes::Never),
            },
            ..LocationOptions::default()
        },
        headers: vec![Headers {
            set: vec![pair("X-B", "1"), pair("X-A", "2")],
            remove: vec!["ETag".to_owned()],
            ..Headers::default()
        }],
        ..Location::default()
    };
    assert_eq!(first.routes[0].location, expected);
    let matcher = first.routes[0].matcher();
    assert_eq!(matcher.path, Pattern::Prefix("/static/".to_owned()));
    assert!(first.location.options.server_timing && !second.location.options.server_timing);
    assert!(
        first.location.options.compress_dictionaries
            && !second.location.options.compress_dictionaries
    );
    assert_eq!(second.location.root.as_deref(), Some(Path::new("/srv/b")));
}

#[test]
fn the_engine_for_tests_is_accepted() {
    assert_eq!(
        all("[disk]\nengine = \"simulated\"").disk.settings.engine,
        "simulated"
    );
}

#[test]
fn names_of_other_servers_are_taken_with_a_note() {
    let config = all(
        "[disk]\nengine = \"linux-sendfile\"\nmax-read-threads = 50\nmax-stat-threads = 2\n\
         directio = \"always\"",
    );
    let disk = &config.disk;
    let settings = &disk.settings;
    assert_eq!(settings.engine, "sendfile");
    assert_eq!(
        (settings.threads, settings.stat_threads),
        (Some(50), Some(2))
    );
    assert_eq!(disk.direct, Direct::Always);
    let notes = &config.note_texts();
    assert!(
        notes[0].contains("`max-read-threads` counts, but is called `threads`"),
        "{notes:?}"
    );
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(Config::default().note_texts().is_empty());
}

#[test]
fn bodies_for_which_there_is_never_room_are_noted() {
    let at = |of_all: &str, of_site: &str| {
        let limits = format!("[limits]\nspool_bytes = \"1GiB\"\n{of_all}");
        let site = format!("[[site]]\nhosts = [\"a\"]\nrespond = {{ status = 204 }}\n{of_site}");
        parse(&(limits + &site))
            .expect("a configuration")
            .note_texts()
    };
    let (allowed, larger) = ("body_bytes = \"1GiB\"\n", "body_bytes = \"2GiB\"\n");
    assert_eq!(at(allowed, allowed), [""; 0]);
    for (notes, line) in [(at(larger, ""), 3), (at("", larger), 6)] {
        let [note] = notes.as_slice() else {
            panic!("{notes:?}")
        };
        let start = format!("line {line}: `body_bytes` is larger than `limits.spool_bytes`");
        assert!(note.starts_with(&start), "{note}");
    }
}

#[test]
fn a_part_in_memory_that_is_larger_than_all_is_noted() {
    let notes = |limits: &str| all(&format!("[limits]\n{limits}")).note_texts();
    let (body, bodies) = ("body_memory = \"2MiB\"\n", "bodies_memory = \"1MiB\"\n");
    for limits in [
        body,
        bodies,
        "body_memory = \"1MiB\"\nbodies_memory = \"1MiB\"",
    ] {
        assert_eq!(notes(limits), [""; 0], "{limits}");
    }
    let notes = notes(&format!("{body}{bodies}"));
    let [note] = notes.as_slice() else {
        panic!("{notes:?}")
    };
    assert!(
        note.contains("`body_memory` is larger than `bodies_memory`"),
        "{note}"
    );
}

// ---- what is wrong, where, and what to do ----

#[test]
fn names_of_other_servers_in_the_wrong_table() {
    assert_problems_beside(
        "[server]\nmax-read-threads = 4",
        &["2:1 unknown key `max-read-threads` [it is `threads` of `[disk]`]"],
    );
}

#[test]
fn a_key_by_two_names_is_given_twice() {
    assert_problems_beside(
        "[disk]\nthreads = 50\nmax-read-threads = 40\ndirectio = \"4m\"",
        &[
            "3:1 `max-read-threads` is `threads`, which is given too",
            "4:12 `4m` is not a value of `direct` [one of `auto`, `always`, `never`]",
        ],
    );
}

#[test]
fn unknown_keys_name_the_nearest() {
    assert_problems(
        "enigne = 1\n[disk]\nthread = 8\nzz = 1\nworkers = 1\n[[site]]\nroot = \"/\"\n[site.rout]\n[zzz]\n",
        &[
            "1:1 unknown key `enigne` [did you mean `engine` of `[disk]`, `[site.disk]`, `[site.route.disk]`?]",
            "3:1 unknown key `thread` [did you mean `threads`?]",
            "4:1 unknown key `zz` [known here: `engine`, `threads`, `stat_threads`, `depth`, `chunk`, `direct`, \
             `changes`, `cache_bytes`, `buffer_bytes`, `queue`, `dead_after`, `entry_ttl`, `watch`, `spool`, `variants`, `variants_bytes`]",
            "5:1 unknown key `workers` [`workers` is a key of `[server]`]",
            "8:7 unknown key `rout` [did you mean `route`?]",
            "9:2 unknown key `zzz` [known here: `include`, `server`, `disk`, `log`, `admin`, `limits`, `listen`, `tls`, `acme`, `site`, `upstream`, `mailbox_store`, `mailbox`]",
        ],
    );
}

#[test]
fn wrong_types() {
    assert_problems_beside(
        "[server]\nworkers = \"2\"\n[disk]\nchunk = true\nengine = 1\nqueue = 1.5\n[limits]\nidle_timeout = 30\n\
         headers = \"100\"\nbody_bytes = \"100\"\n[[listen]]\naddress = 8080",
        &[
            "2:11 expected \"auto\" or a whole number, found string [write 2]",
            "4:9 expected \"auto\" or a size such as \"16KiB\", found boolean",
            "5:10 expected a string, found integer [one of `auto`, `threads`, `io_uring`, `linux-aio`, `readahead`, `posix-aio`, `sendfile`]",
            "6:9 expected a whole number, found float",
            "8:16 expected a duration such as \"30s\", found integer [did you mean \"30s\"?]",
            "9:11 expected a whole number, found string [write 100]",
            "10:14 expected a size such as \"16KiB\", found string [write 100]",
            "12:11 expected a string, found integer [write \"8080\"]",
        ],
    );
}

#[test]
fn wrong_forms_and_bounds() {
    assert_problems_beside(
        "[server]\nworkers = 0\n[disk]\nqueue = 99999999999999999999\ncache_bytes = -1\nchunk = \"1GiB\"\ndepth = \"many\"\n\
         dead_after = \"0s\"\n[limits]\nidle_timeout = \"30\"\nsend_timeout = \"1.5s\"\nio_timeout = \"2d\"\nheaders = 0xf\nhead_bytes = \"\"",
        &[
            "2:11 `workers` must be from 1 to 1024",
            "4:9 `queue` must be from 16 to 1000000",
            "5:15 `cache_bytes` must not be negative",
            "6:9 `chunk` must be from 4KiB to 16MiB",
            "7:9 expected \"auto\" or a whole number, found string",
            "8:14 `dead_after` must be from 10ms to 1h",
            "10:16 `idle_timeout` is not a duration such as \"30s\" [did you mean \"30s\"?]",
            "11:16 `send_timeout` is not a duration such as \"30s\" [units are ms, s, m, h, d]",
            "12:14 `io_timeout` must be from 10ms to 1h",
            "14:14 `head_bytes` is not a size such as \"16KiB\"",
        ],
    );
}

#[test]
fn words() {
    assert_problems(
        "[disk]\nengine = \"iouring\"\n[log]\naccess = \"stdot\"\nformat = \"xml\"\n[[site]]\nroot = \"/\"\nsymlinks = \"Follow\"\n",
        &[
            "2:10 `iouring` is not a value of `engine` [did you mean \"io_uring\"?]",
            "4:10 `access`: expected \"off\", \"stdout\" or the path of a file [for a file write \"./stdot\"]",
            "5:10 `xml` is not a value of `format` [\"combined\", \"json\" or fields in braces: \"{peer} {status}\"]",
            "8:12 `Follow` is not a value of `symlinks` [did you mean \"follow\"?]",
        ],
    );
}

/// Under systemd standard output is a socket, which cannot be opened.
#[test]
fn a_log_by_the_name_of_an_open_file() {
    for name in ["/dev/stdout", "/dev/fd/1"] {
        let config = all(&format!("[log]\naccess = \"{name}\""));
        assert_eq!(config.log.access, AccessLog::Stdout, "{name}");
    }
    assert_problems(
        &format!("[log]\naccess = \"/dev/stderr\"\n{SITE}"),
        &[
            "2:10 whether /dev/stderr can be opened depends on how the server is started [\"stdout\", or the path of a file]",
        ],
    );
}

#[test]
fn timing_needs_json() {
    let reports = [
        "2:10 `timing`: only lines in JSON have room for it [write `format = \"json\"` beside it]",
    ];
    assert_problems_beside("[log]\ntiming = \"chunk\"", &reports);
    assert_problems_beside(
        "[log]\ntiming = \"request\"\nformat = \"combined\"",
        &reports,
    );
    assert_problems_beside(
        "[log]\ntiming = \"chunks\"\nformat = \"jsn\"",
        &[
            "2:10 `chunks` is not a value of `timing` [did you mean \"chunk\"?]",
            "3:10 `jsn` is not a value of `format` [did you mean \"json\"?]",
        ],
    );
    assert_problems_beside(
        "[log]\ntiming = \"chunk\"\nformat = \"jsn\"",
        &["3:10 `jsn` is not a value of `format` [did you mean \"json\"?]"],
    );
    all("[log]\ntiming = \"off\"");
}

#[test]
fn bounds_that_contradict_each_other() {
    assert_problems_beside(
        "[disk]\nthreads = 4\nstat_threads = 4\nchunk = \"16MiB\"\nbuffer_bytes = \"1MiB\"\n\
         [limits]\nrequest_line_bytes = \"32KiB\"\nheader_bytes = 17000",
        &[
            "3:16 `stat_threads` (4) must be smaller than `threads` (4)",
            "4:9 `chunk` (16MiB) is larger than `buffer_bytes` (1MiB)",
            "7:22 `request_line_bytes` (32KiB) is larger than `head_bytes` (16KiB) [`head_bytes` has its default here]",
            "8:16 `header_bytes` (17000) is larger than `head_bytes` (16KiB) [`head_bytes` has its default here]",
        ],
    );
    assert_problems_beside(
        "[limits]\nhead_bytes = \"4KiB\"\nheader_bytes = \"1KiB\"",
        &[
            "2:14 `request_line_bytes` (8KiB) is larger than `head_bytes` (4KiB) [`request_line_bytes` has its default here]",
        ],
    );
    assert_problems_beside(
        "[disk]\nchunk = 5000",
        &["2:9 `chunk`: 5000 bytes are not a multiple of 4096"],
    );
    assert_problems_beside(
        "[disk]\nthreads = 4\nstat_threads = 3",
        &[
            "2:11 `threads`: threads (4) less stat_threads (3) must be more than depth (1), or one disk that freezes \
             stops all the others",
        ],
    );
    assert_problems_beside(
        "[disk]\nthreads = 4\ndepth = 8",
        &[
            "2:11 `threads`: threads (4) less stat_threads (0) must be more than depth (8), or one disk that freezes \
             stops all the others [`stat_threads` is an eighth of `threads` unless it is given]",
        ],
    );
    assert_eq!(
        all("[disk]\nthreads = 5\nstat_threads = 3")
            .disk
            .settings
            .stat_threads,
        Some(3)
    );
    assert_eq!(
        all("[disk]\nchunk = \"1MiB\"\nbuffer_bytes = \"1MiB\"")
            .disk
            .settings
            .buffer_bytes_max,
        1 << 20
    );
}

#[test]
fn addresses() {
    assert_problems_beside(
        "[admin]\nlisten = \"[::]:8080\"\n[[listen]]\naddress = \"8080\"\n[[listen]]\naddress = \":8080\"\n\
         [[listen]]\naddress = \"a:80\"\n[[listen]]\n[[listen]]\naddres = 1",
        &[
            "2:10 `listen`: clients connect to [::]:8080",
            "6:11 `address`: [::]:8080 is given twice [the first is on line 4]",
            "8:11 `a:80` is not an address [`a` is not an IP address; names are not resolved, except `localhost`, \
             because their meaning may change while the server runs]",
            "9:1 `address` is missing",
            "11:1 unknown key `addres` [did you mean `address`?]",
        ],
    );
    assert_problems_beside(
        "[admin]\nlisten = \":9000\"",
        &[
            "2:10 `listen`: a port alone would give everyone access [write 127.0.0.1:PORT, or [::]:PORT for everyone]",
        ],
    );
    assert_problems_beside(
        "[admin]\nlisten = \"[::]:9000\"\nhosts = [\"a:80\", \"*\"]",
        &[
            "3:10 `a:80` is not a host name [leave scheme and port out]",
            "3:18 any name would give any web page access [write the names out; `*.example.org` is every name beneath]",
        ],
    );
    let twice = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    assert_eq!(all(&format!("{twice}{twice}")).listen.len(), 2);
    assert_problems_beside(
        &format!("{twice}{twice}proxy_protocol = true"),
        &[
            "5:18 `proxy_protocol`: it differs from that of the other 127.0.0.1:0 [the first is on line 2]",
        ],
    );
}

#[test]
fn tables_of_the_wrong_shape() {
    assert_problems(
        "disk = 1\nlisten = [\"8080\"]\n[[server]]\n[site]\nroot = \"/\"\n",
        &[
            "1:8 expected a table, found integer [write `[disk]`]",
            "2:11 expected a table, found string [write `[[listen]]`]",
            "3:1 expected a table, found array [`[server]` is the process; a server of nginx is a `[[site]]` here]",
            "4:1 expected an array of tables, found table [write `[[site]]`]",
        ],
    );
}

#[test]
fn trips_for_nothing_are_limited() {
    assert_eq!(all("").limits.absent_trips, 100);
    assert_problems_beside(
        "[limits]\nabsent_trips = 0",
        &["2:16 `absent_trips` must be from 1 to 1000000"],
    );
}

#[test]
fn watching() {
    assert_eq!(all("").disk.watch, Watch::Off);
    assert_eq!(
        all("[disk]\nwatch = \"inotify\"").disk.watch,
        Watch::Inotify
    );
    assert_problems_beside(
        "[disk]\nwatch = \"inotifi\"",
        &["2:9 `inotifi` is not a value of `watch` [did you mean \"inotify\"?]"],
    );
}

#[test]
fn what_is_trusted() {
    assert_problems_beside(
        "[server]\ntrusted_proxies = [\"10.0.0.1/8\", \"proxy\", 1, \"unix:/run/x\", \"Unix\"]",
        &[
            "2:20 `10.0.0.1/8` is not a network [bits beyond the prefix are set: the network is 10.0.0.0/8]",
            "2:34 `proxy` is not a network [`proxy` is not an IP address]",
            "2:43 expected a string, found integer [write \"1\"]",
            "2:46 `unix:/run/x` is not a network [\"unix\" trusts whoever connects over a Unix socket]",
            "2:61 `Unix` is not a network [`Unix` is not an IP address]",
        ],
    );
}

#[test]
fn the_memory_of_bodies() {
    assert_eq!(all("[limits]\nbody_memory = 0").limits.body_memory, 0);
    assert_problems_beside(
        "[limits]\nbody_memory = \"2GiB\"",
        &["2:15 `body_memory` must be from 0B to 1GiB"],
    );
}

#[test]
fn which_listeners_have_a_proxy_head() {
    let config =
        all("[[listen]]\naddress = \"1\"\nproxy_protocol = true\n[[listen]]\naddress = \"2\"");
    let has = |text: &str| config.has_proxy_header(&text.parse().unwrap());
    assert_eq!((has("1"), has("2"), has("3")), (true, false, false));
    assert_problems_beside(
        "[[listen]]\naddress = \"1\"\nproxy_protocol = \"v1\"",
        &["3:18 expected `true` or `false`, found string"],
    );
}
