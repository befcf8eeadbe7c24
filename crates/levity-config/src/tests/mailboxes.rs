//! `mailbox`, where messages are kept, and `resume`.

use super::upstream::UPSTREAM;
use super::*;

/// A set of mailboxes. What follows begins on line 3.
const CHAT: &str = "[[mailbox]]\nname = \"chat\"\n";

fn set(lines: &str) -> Mailbox {
    all(&format!("{CHAT}{lines}")).mailboxes.remove(0)
}

fn site_of(text: &str) -> Site {
    parse(text).expect(text).sites.remove(0)
}

/// With a set, an upstream of three lines, and a site from line 6 on.
fn site_text(lines: &str) -> String {
    format!("{CHAT}{UPSTREAM}[[site]]\n{lines}")
}

#[track_caller]
fn assert_site_problems(lines: &str, expected: &[&str]) {
    assert_problems(&site_text(lines), expected);
}

#[test]
fn a_name_is_enough() {
    let expected = Mailbox {
        name: "chat".to_owned(),
        mode: MailboxMode::Topic,
        message_bytes: 64 << 10,
        messages: 64,
        bytes: 256 << 10,
        lifetime: None,
        idle: Duration::from_secs(60),
        boxes: 10_000,
        receivers: 100_000,
        receivers_per_client: 100,
        publishes_per_second: 1000,
        durable: false,
        heartbeat: Duration::from_secs(15),
        retry: Duration::from_secs(3),
        rotate: Duration::from_secs(3600),
        publish_key: None,
        grip_key: None,
        unread: Vec::new(),
        origins: None,
        claim: None,
        protocol: MailboxProtocol::Mailbox,
    };
    assert_eq!(set(""), expected);
    let config = Config::default();
    let memory = MailboxStore {
        kind: StoreKind::Memory,
        folder: None,
        url: None,
    };
    assert_eq!(config.mailbox_store, memory);
    assert_eq!(config.limits.mailbox_memory, 256 << 20);
    assert_eq!(config.limits.resume_memory, 64 << 20);
    assert!(config.mailboxes.is_empty());
}

#[test]
fn every_value_of_a_mailbox() {
    let text = "
[mailbox_store]
store = \"disk\"
folder = \"/var/lib/levity\"
[limits]
mailbox_memory = \"1MiB\"
[[mailbox]]
name = \"a-B_1\"
mode = \"inbox\"
message_bytes = \"1MiB\"
messages = 1
bytes = \"1MiB\"
lifetime = \"1h\"
idle = \"2s\"
boxes = 3
receivers = 4
receivers_per_client = 5
publishes_per_second = 6
durable = true
heartbeat = \"7s\"
retry = \"8s\"
rotate = \"10s\"
publish_key_file = \"publish.key\"
grip_key_file = \"grip.key\"
origins = [\"https://Example.org\", \"https://*.example.org\"]
claim = \"mailbox\"
protocol = \"mailbox\"
";
    let config = all(text);
    let expected = Mailbox {
        name: "a-B_1".to_owned(),
        mode: MailboxMode::Inbox,
        message_bytes: 1 << 20,
        messages: 1,
        bytes: 1 << 20,
        lifetime: Some(Duration::from_secs(3600)),
        idle: Duration::from_secs(2),
        boxes: 3,
        receivers: 4,
        receivers_per_client: 5,
        publishes_per_second: 6,
        durable: true,
        heartbeat: Duration::from_secs(7),
        retry: Duration::from_secs(8),
        rotate: Duration::from_secs(10),
        publish_key: Some(Secret(Vec::new())),
        grip_key: Some(Secret(Vec::new())),
        unread: Vec::new(),
        origins: config.mailboxes[0].origins.clone(),
        claim: Some("mailbox".to_owned()),
        protocol: MailboxProtocol::Mailbox,
    };
    assert_eq!(config.mailboxes, [expected]);
    let origins = config.mailboxes[0].origins.as_ref().expect("origins");
    for (origin, expected) in [
        ("https://example.org", true),
        ("https://A.EXAMPLE.org", true),
        ("http://example.org", false),
        ("https://example.org:8443", false),
    ] {
        assert_eq!(origins.contain(origin.as_bytes()), expected, "{origin}");
    }
    assert!(!origins.any);
    let store = MailboxStore {
        kind: StoreKind::Disk,
        folder: Some("/var/lib/levity".into()),
        url: None,
    };
    assert_eq!(config.mailbox_store, store);
    assert_eq!(config.limits.mailbox_memory, 1 << 20);
    let streams = set("protocol = \"durable-streams\"");
    assert_eq!(streams.protocol, MailboxProtocol::DurableStreams);
}

#[test]
fn what_cannot_be_a_mailbox() {
    let long = "a".repeat(65);
    let long = format!("name = \"{long}\"");
    let form = "is not the name of a mailbox [1 to 64 letters, digits, `-` and `_`]";
    assert_problems_beside(
        &format!("[[mailbox]]\n{long}\n[[mailbox]]\nname = \"a.b\"\n[[mailbox]]\nname = \"\""),
        &[
            &format!("2:8 `{}` {form}", "a".repeat(65)),
            &format!("4:8 `a.b` {form}"),
            &format!("6:8 `` {form}"),
        ],
    );
    let longest = format!("[[mailbox]]\nname = \"{}\"", "a".repeat(64));
    assert_eq!(all(&longest).mailboxes[0].name.len(), 64);
    assert_problems_beside(
        &format!("{CHAT}[[mailbox]]\nmode = \"topics\"\n{CHAT}"),
        &[
            "3:1 `name` is missing",
            "4:8 `topics` is not a value of `mode` [did you mean \"topic\"?]",
            "6:8 mailbox `chat` is given twice [the first is on line 2]",
        ],
    );
    assert_problems_beside(
        &format!(
            "{CHAT}message_bytes = \"1MiB\"\ndurable = true\norigins = []\nclaim = \"\"\n{}",
            "messages = 0\nrotate = \"900ms\"\nprotocol = \"sse\""
        ),
        &[
            "3:17 `message_bytes` (1MiB) is larger than `bytes` (256KiB) [`bytes` has its default here]",
            "4:11 `durable`: messages are kept in memory only [add `[mailbox_store]` with `store = \"disk\"`]",
            "5:11 `origins`: it is empty [leave it out for pages of the host itself; `[\"*\"]` permits every page]",
            "6:9 `claim`: it is empty",
            "7:12 `messages` must be from 1 to 10000",
            "8:10 `rotate` must be from 1s to 30d",
            "9:12 `sse` is not a value of `protocol` [one of `mailbox`, `durable-streams`]",
        ],
    );
    assert_problems_beside(
        &format!(
            "[limits]\nmailbox_memory = \"1MiB\"\n{CHAT}message_bytes = 1048577\nbytes = \"2MiB\"\norigins = [\"example.org\"]"
        ),
        &[
            "5:17 `message_bytes`: `limits.mailbox_memory` has no room for such a message",
            "7:12 `example.org` is no origin [such as \"https://example.org\", \"https://*.example.org\", \
             \"http://localhost:3000\" or \"*\"]",
        ],
    );
}

#[test]
fn what_streams_cannot_be() {
    assert_problems(
        &format!(
            "[mailbox_store]\nstore = \"disk\"\nfolder = \"/a\"\n{CHAT}durable = true\nprotocol = \"durable-streams\"\n\
             [[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\n\
             [[site]]\nproxy = \"app\"\nmailbox_headers = \"chat\""
        ),
        &["13:19 `mailbox_headers`: clients of durable streams are not held by an application"],
    );
}

#[test]
fn stores_and_the_keys_that_they_have() {
    let store = |lines: &str| all(&format!("[mailbox_store]\n{lines}")).mailbox_store;
    for url in [
        "redis://127.0.0.1",
        "redis://user:pass:word@[::1]:6379/1",
        "redis://valkey.internal:6379",
    ] {
        let found = store(&format!("store = \"redis\"\nurl = \"{url}\""));
        assert_eq!(
            (found.kind, found.url.as_deref()),
            (StoreKind::Redis, Some(url))
        );
    }
    for (lines, expected) in [
        ("store = \"disk\"", "1:1 `folder` is missing"),
        ("store = \"redis\"", "1:1 `url` is missing"),
        (
            "folder = \"/a\"",
            "2:10 `folder`: it is of use with `store = \"disk\"` only",
        ),
        (
            "store = \"memory\"\nurl = \"redis://a\"",
            "3:7 `url`: it is of use with `store = \"redis\"` only",
        ),
        (
            "store = \"dsk\"\nurl = \"a\"",
            "2:9 `dsk` is not a value of `store` [did you mean \"disk\"?]",
        ),
        (
            "store = \"journal\"\nfolder = \"/a\"",
            "2:9 `journal` is not a value of `store` [write \"disk\", with another folder: messages of a journal are not \
             taken over]",
        ),
        (
            "store = \"valkey\"\nurl = \"a\"",
            "2:9 `valkey` is not a value of `store` [write \"redis\": Valkey speaks its protocol]",
        ),
        (
            "store = \"nats\"\nurl = \"nats://127.0.0.1:4222\"",
            "2:9 `nats` is not a value of `store` [there is no store on NATS any more: \"redis\" is a server that several \
             processes may share]",
        ),
    ] {
        assert_problems_beside(&format!("[mailbox_store]\n{lines}"), &[expected]);
    }
    // A store that is not known may be durable.
    assert_problems_beside(
        &format!("[mailbox_store]\nstore = \"file\"\n{CHAT}durable = true"),
        &["2:9 `file` is not a value of `store` [write \"disk\"]"],
    );
}

#[test]
fn urls_of_stores() {
    let problem =
        |kind: &str, help: &str| format!("3:7 `url`: not that of a server of {kind} [{help}]");
    let redis = "such as \"redis://127.0.0.1:6379\"";
    let tls = "there is no TLS to stores yet";
    for (kind, url, help) in [
        ("redis", "127.0.0.1:6379", redis),
        ("redis", "http://127.0.0.1:6379", redis),
        ("redis", "redis:127.0.0.1:6379", redis),
        ("redis", "redis://", redis),
        ("redis", "redis:///1", redis),
        ("redis", "redis://:6379", redis),
        ("redis", "redis://a:b", redis),
        ("redis", "redis://a b", redis),
        ("redis", "redis://a/\\n", redis),
        ("redis", "redis://password@", redis),
        ("redis", "rediss://a", tls),
    ] {
        assert_problems_beside(
            &format!("[mailbox_store]\nstore = \"{kind}\"\nurl = \"{url}\""),
            &[&problem(kind, help)],
        );
    }
}

#[test]
fn messages_are_not_served() {
    let text = "[mailbox_store]\nstore = \"disk\"\nfolder = \"/srv/messages\"\n[[site]]\nroot = \"/srv\"\n";
    assert_problems(
        text,
        &[
            "5:8 `root`: `mailbox_store.folder`, /srv/messages, lies in /srv [keep messages in a folder that is not served]",
        ],
    );
}

/// The keys of a set whose files have these texts, loaded from the disk; otherwise the messages of the problems.
fn loaded(publish: &str, grip: &str) -> Result<Mailbox, Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("levity.toml");
    std::fs::create_dir(folder.path().join("www")).expect("a folder");
    let lines = "publish_key_file = \"publish.key\"\ngrip_key_file = \"grip.key\"\n";
    for (name, text) in [("publish.key", publish), ("grip.key", grip)] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let text = format!("{CHAT}{lines}[[site]]\nroot = \"www\"\n");
    std::fs::write(&file, text).expect("a file");
    let config = load(&file).map_err(|errors| {
        let problems = errors.problems.into_iter();
        problems.map(|problem| problem.message).collect::<Vec<_>>()
    });
    Ok(config?.mailboxes.remove(0))
}

#[test]
fn keys_are_read_from_files() {
    let (key, other) = ("k".repeat(32), "g".repeat(40));
    let set = loaded(&format!("{key}\nrest"), &other).expect("keys");
    assert_eq!(set.publish_key, Some(Secret(key.clone().into_bytes())));
    assert_eq!(set.grip_key, Some(Secret(other.into_bytes())));
    assert_eq!(format!("{:?}", set.publish_key), "Some(Secret)");
    let problems = loaded(&key[1..], &key).expect_err("a short key");
    assert_eq!(
        problems,
        ["`publish_key_file`: a secret has at least 32 bytes"]
    );
    let problems = loaded(&key, &"g".repeat(4097)).expect_err("a long file");
    assert!(
        problems[0].starts_with("`grip_key_file`") && problems[0].contains("more than 4096 bytes"),
        "{problems:?}"
    );
}

#[test]
fn routes_with_a_mailbox() {
    let site = site_of(&site_text(
        "mailbox = \"chat\"\nallow = [\"10.0.0.0/8\"]\n\
         [[site.route]]\npath = \"/inherited\"\n\
         [[site.route]]\npath = \"/app/*\"\nproxy = \"app\"\nmailbox_headers = \"chat\"\n\
         [[site.route.route]]\npath = \"/app/same\"\n\
         [[site.route.route]]\npath = \"/app/off\"\nmailbox_headers = false\n\
         [[site.route]]\npath = \"/files/*\"\nroot = \"/srv\"\n\
         [[site.route]]\npath = \"/gone\"\nrespond = { status = 410 }\n",
    ));
    assert_eq!(site.location.answer, Some(Answer::Mailbox(0)));
    let of = |path: &str| {
        let pattern: Vec<_> = site
            .routes
            .iter()
            .filter(|route| route.matcher().path.to_string() == path)
            .collect();
        &pattern[0].location
    };
    assert_eq!(of("/inherited").answer, Some(Answer::Mailbox(0)));
    assert_eq!(of("/app/*").answer, None);
    assert_eq!(of("/app/*").mailbox_headers, Some(0));
    assert_eq!(of("/app/same").mailbox_headers, Some(0));
    assert_eq!(of("/app/off").mailbox_headers, None);
    assert_eq!(of("/files/*").answer, None);
    assert!(matches!(of("/gone").answer, Some(Answer::Fixed(_))));
}

#[test]
fn sets_are_found_by_name() {
    let site = site_of(&format!(
        "{CHAT}[[mailbox]]\nname = \"news\"\n[[site]]\nroot = \"/srv\"\n\
         [[site.route]]\npath = \"/a\"\nmailbox = \"news\"\n"
    ));
    assert_eq!(site.routes[0].location.answer, Some(Answer::Mailbox(1)));
    assert_site_problems(
        "mailbox = \"chta\"",
        &["7:11 no mailbox has the name `chta` [did you mean \"chat\"?]"],
    );
    assert_site_problems(
        "proxy = \"app\"\nmailbox_headers = \"news\"",
        &["8:19 no mailbox has the name `news` [known: `chat`]"],
    );
    assert_problems(
        "[[site]]\nmailbox = \"a\"",
        &["2:11 no mailbox has the name `a` [add `[[mailbox]]` with that `name`]"],
    );
    assert_site_problems(
        "mailbox = { name = \"a\" }",
        &[
            "7:11 expected a string, found table [a `[[mailbox]]` has the settings, and a site or route only its name: \
             `mailbox = \"NAME\"`]",
        ],
    );
}

#[test]
fn what_a_mailbox_excludes() {
    let upload = "`mailbox` answers every request here";
    for (line, expected) in [
        ("proxy = \"app\"", "11:9 `proxy`: `mailbox` answers"),
        ("root = \"/a\"", "11:8 `root`: `mailbox` answers"),
        ("try = [\"file\"]", "11:7 `try`: `mailbox` answers"),
        ("listing = true", "11:11 `listing`: `mailbox` answers"),
        (
            "redirect = { to = \"/b\" }",
            "10:11 `mailbox`: `redirect` answers",
        ),
        ("reroute = \"/b\"", "10:11 `mailbox`: `reroute` answers"),
        ("respond = {}", "10:11 `mailbox`: `respond` answers"),
        ("upload = {}", &format!("11:10 `upload`: {upload}")),
        (
            "internal = true",
            "10:11 `mailbox`: clients do not get to internal routes",
        ),
        (
            "mailbox_headers = \"chat\"",
            "11:19 `mailbox_headers`: there is no `proxy` here",
        ),
        ("resume = {}", "11:10 `resume`: there is no `proxy` here"),
    ] {
        let text = site_text(&format!(
            "root = \"/srv\"\n[[site.route]]\npath = \"/a\"\nmailbox = \"chat\"\n{line}\n"
        ));
        let found = reports(&text);
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].starts_with(expected), "{line}: {found:?}");
    }
    // An internal route around it.
    assert_site_problems(
        "root = \"/srv\"\n[[site.route]]\npath = \"/a/*\"\ninternal = true\n\
         [[site.route.route]]\npath = \"/a/b\"\nmailbox = \"chat\"",
        &["13:11 `mailbox`: clients do not get to internal routes"],
    );
}

#[test]
fn claims_need_tokens() {
    let set = "[[mailbox]]\nname = \"chat\"\nclaim = \"mailbox\"\n";
    let jwt = "jwt = { keys = \"keys\" }\n";
    let needs = "`claim` of the mailbox `chat` needs a `jwt` here";
    let text = |site: &str, route: &str| {
        format!(
            "{set}[[site]]\nroot = \"/srv\"\n{site}[[site.route]]\npath = \"/a/*\"\nmailbox = \"chat\"\n{route}"
        )
    };
    assert_problems(&text("", ""), &[&format!("8:11 `mailbox`: {needs}")]);
    parse(&text(jwt, "")).expect("tokens of the site");
    parse(&text("", jwt)).expect("its own tokens");
    assert_problems(
        &text(jwt, "jwt = false\n"),
        &[&format!("9:11 `mailbox`: {needs}")],
    );
    let inner = "[[site.route.route]]\npath = \"/a/b\"\njwt = false\n";
    assert_problems(&text(jwt, inner), &[&format!("12:7 `jwt`: {needs}")]);
    assert_problems(&text("", "jwt = {}\n"), &["9:7 `keys` is missing"]);
}

#[test]
fn notes_about_mailboxes() {
    let notes = |site: &str| {
        parse(&site_text(site))
            .expect("a configuration")
            .note_texts()
    };
    let proxied = "proxy = \"app\"\nmailbox_headers = \"chat\"\n";
    assert_eq!(
        notes("proxy = \"app\"\n"),
        ["line 1: no site or route uses the mailbox `chat`"]
    );
    assert_eq!(notes(proxied), [""; 0]);
    let route = |gate: &str| {
        notes(&format!(
            "{proxied}[[site.route]]\npath = \"/a\"\nmailbox = \"chat\"\n{gate}"
        ))
    };
    let open = route("");
    assert!(
        open.len() == 1 && open[0].starts_with("line 11: everyone who can connect and knows"),
        "{open:?}"
    );
    assert_eq!(route("allow = [\"10.0.0.0/8\"]\n"), [""; 0]);
}

/// The notes of a file with the set `chat` and these lines, about who publishes.
fn notes_about_publishers(lines: &str) -> Vec<String> {
    let text = format!("{CHAT}{lines}");
    let mut notes = parse(&text).expect(&text).note_texts();
    notes.retain(|note| note.contains("publish"));
    notes
}

#[test]
fn sets_without_publishers_are_noted() {
    let receivers = "[[site]]\nrespond = {}\n[[site.route]]\npath = \"/a\"\nmailbox = \"chat\"\n";
    let notes = |lines: &str| notes_about_publishers(&format!("{lines}{receivers}"));
    let help = "give it a `publish_key_file`, or add `[[listen]]` with `address = \"unix:/run/levity/publish.sock\"` and \
                `publish = true` for processes of the user of the server and of root";
    let nobody = format!("line 1: nobody can publish to the mailbox `chat`: {help}");
    assert_eq!(notes(""), [nobody.as_str()]);
    assert_eq!(notes("[[listen]]\naddress = \"unix:s\"\n"), [nobody]);
    assert_eq!(notes("publish_key_file = \"key\"\n"), [""; 0]);
    let listen = "[[listen]]\naddress = \"unix:s\"\npublish = true\n";
    assert_eq!(notes(listen), [""; 0]);
    let claim = format!("claim = \"m\"\n{receivers}jwt = {{ keys = \"keys\" }}\n");
    assert_eq!(notes_about_publishers(&claim), [""; 0]);
    let both = format!("publish_key_file = \"key\"\n{claim}");
    let useless = "line 1: `publish_key_file`: nobody can send the key of the mailbox `chat`: with `claim`, its sites and routes \
                   have a `jwt`, which refuses the key; give publishers a token whose `m` has `{\"publish\": [\"*\"]}`";
    assert_eq!(notes_about_publishers(&both), [useless]);
    // No client gets there.
    let unused = format!("publish_key_file = \"key\"\nclaim = \"m\"\n{SITE}");
    assert_eq!(notes_about_publishers(&unused), [""; 0]);
    let by_headers = format!(
        "{UPSTREAM}{receivers}[[site]]\nhosts = [\"a\"]\nproxy = \"app\"\nmailbox_headers = \"chat\"\n"
    );
    assert_eq!(notes_about_publishers(&by_headers), [""; 0]);
    assert_eq!(notes_about_publishers(SITE), [""; 0]);
}

#[test]
fn listeners_for_publishers_that_proxies_may_use_are_noted() {
    let more = |site: &str| {
        format!(
            "line 5: `publish`: the site `{site}` serves more than mailboxes here: a proxy for it that runs as the user of the \
             server, or as root, needs a `[[listen]]` of its own, or all its clients can publish"
        )
    };
    let listen = "[[listen]]\naddress = \"1\"\n[[listen]]\naddress = \"unix:s\"\npublish = true\n";
    let notes = |sites: &str| notes_about_publishers(&format!("{listen}{sites}"));
    let route = "[[site.route]]\npath = \"/b/*\"\n";
    for (site, name) in [
        ("root = \"/srv\"", "default"),
        (
            "hosts = [\"a\"]\nredirect = { to = \"https://b.test\" }",
            "",
        ),
        ("respond = {}", ""),
        ("mailbox = \"chat\"", ""),
        (
            &format!("respond = {{}}\n{route}root = \"/srv\""),
            "default",
        ),
        (
            &format!("respond = {{}}\n{route}root = \"/srv\"\nupload = {{}}"),
            "default",
        ),
        (
            &format!("respond = {{}}\n{route}root = \"/srv\"\nwhen = {{ listen = [\"1\"] }}"),
            "",
        ),
        (
            &format!("respond = {{}}\n{route}root = \"/srv\"\nwhen = {{ listen = [\"unix:s\"] }}"),
            "default",
        ),
        (
            "respond = {}\n[[site]]\nhosts = [\"a\", \"b\"]\nproxy = \"app\"",
            "a",
        ),
    ] {
        let site = format!("[[site]]\n{site}\n{UPSTREAM}");
        let expected = (!name.is_empty()).then(|| more(name));
        assert_eq!(notes(&site), Vec::from_iter(expected), "{site}");
    }
}

#[test]
fn only_a_unix_socket_can_be_for_publishers() {
    assert_problems_beside(
        "[[listen]]\naddress = \"8080\"\npublish = true",
        &[
            "3:11 `publish`: only a Unix socket tells the user of a client [write `address = \
             \"unix:/run/levity/publish.sock\"`, or give the set a `publish_key_file`]",
        ],
    );
    assert_problems_beside(
        "[[listen]]\naddress = \"unix:s\"\nproxy_protocol = true\npublish = true",
        &[
            "4:11 `publish`: with `proxy_protocol`, all clients of the proxy could publish [give the proxy a `[[listen]]` of \
             its own]",
        ],
    );
}

#[test]
fn responses_that_outlive_connections() {
    let site = site_of(&site_text(
        "proxy = \"app\"\nresume = {}\n\
         [[site.route]]\npath = \"/same\"\n\
         [[site.route]]\npath = \"/off\"\nresume = false\n\
         [[site.route]]\npath = \"/own\"\nresume = { for = \"1s\", bytes = \"64KiB\", streams = 1, streams_per_client = 2 }\n",
    ));
    let defaults = Resume {
        keep: Duration::from_secs(300),
        bytes: 4 << 20,
        streams: 1000,
        streams_per_client: 32,
    };
    let own = Resume {
        keep: Duration::from_secs(1),
        bytes: 64 << 10,
        streams: 1,
        streams_per_client: 2,
    };
    let found: Vec<_> = site
        .locations()
        .map(|location| location.resume.clone())
        .collect();
    let expected = [Some(defaults.clone()), None, Some(own), Some(defaults)];
    assert_eq!(found, expected);
    // It may be meant for the routes.
    let site = site_of(&site_text(
        "root = \"/srv\"\nresume = {}\nmailbox_headers = \"chat\"\n[[site.route]]\npath = \"/a\"\nproxy = \"app\"\n",
    ));
    let route = &site.routes[0].location;
    assert!(route.resume.is_some() && route.mailbox_headers == Some(0));
    // Nothing is turned off by this, which does no harm.
    site_of("[[site]]\nroot = \"/srv\"\nresume = false\nmailbox_headers = false\n");
    assert_site_problems(
        "root = \"/srv\"\nresume = {}\nmailbox_headers = \"chat\"\n",
        &[
            "8:10 `resume`: there is no `proxy` here",
            "9:19 `mailbox_headers`: there is no `proxy` here",
        ],
    );
    assert_site_problems(
        "proxy = \"app\"\nresume = { for = \"1ms\", bytes = 1, stream = 5 }\n",
        &[
            "8:18 `for` must be from 1s to 1d",
            "8:33 `bytes` must be from 64KiB to 1GiB",
            "8:36 unknown key `stream` [did you mean `streams`?]",
        ],
    );
    assert_problems_beside(
        "[limits]\nresume_memory = 2097151\n",
        &["2:17 `resume_memory` must be from 2MiB to 1TiB"],
    );
    for (value, help) in [
        ("true", "boolean [write `resume = {}`]"),
        ("\"5m\"", "string [write `resume = { for = \"5m\" }`]"),
    ] {
        assert_site_problems(
            &format!("proxy = \"app\"\nresume = {value}\n"),
            &[&format!("8:10 expected a table, found {help}")],
        );
    }
}
