//! Who may use a site or route.

use super::*;

fn networks(texts: &[&str]) -> AddressSet {
    let networks = texts.iter().map(|text| text.parse().expect(text));
    AddressSet {
        networks: networks.collect(),
        unix: false,
    }
}

#[test]
fn routes_inherit_each_list() {
    let text = format!(
        "{SITE}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]\n\
         [[site.route]]\npath = \"/a/*\"\n\
         [[site.route.route]]\npath = \"/a/b\"\ndeny = []\n\
         [[site.route]]\npath = \"/c\"\nallow = [\"all\"]\n\
         [[site.route]]\npath = \"/d\"\nallow = [\"unix\"]\n"
    );
    let site = parse(&text).expect(&text).sites.remove(0);
    let of = |number: usize| &site.routes[number].location.gates;
    assert_eq!(site.location.gates.allow, Some(networks(&["10.0.0.0/8"])));
    assert_eq!(*of(1), site.location.gates);
    assert_eq!(of(0).allow, site.location.gates.allow);
    assert_eq!(of(0).deny, AddressSet::default());
    assert_eq!(
        (&of(2).allow, &of(2).deny),
        (&None, &networks(&["10.9.0.0/16"]))
    );
    assert!(
        of(3)
            .allow
            .as_ref()
            .is_some_and(|set| set.unix && set.networks.is_empty())
    );
}

#[test]
fn lists_that_cannot_be() {
    for (line, expected) in [
        ("allow = []", "`allow`: it names nobody"),
        (
            "allow = [\"10.0.0.1/8\"]",
            "`10.0.0.1/8` is no network [bits beyond",
        ),
        (
            "deny = [\"unix:/a\"]",
            "`unix:/a` is no network [\"unix\" stands for",
        ),
        (
            "deny = \"all\"",
            "expected an array of strings, found string [write [\"all\"]]",
        ),
        (
            "allow = [\"10.0.0.0/8\"]\ndeny = [\"all\"]",
            "`deny`: nobody would be let in [leave it out",
        ),
    ] {
        let problems = reports(&format!("{SITE}{line}\n"));
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(problems[0].contains(expected), "{line}: {problems:?}");
    }
}

const HASH: &str = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";

/// The configuration with a site of these lines, in a folder with a file `users` of this text.
fn loaded(users: &str, lines: &str) -> Result<Config, Vec<Problem>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("levity.toml");
    std::fs::write(folder.path().join("users"), users).expect("a file");
    std::fs::write(&file, format!("[[site]]\nroot = \".\"\n{lines}")).expect("a file");
    load(&file).map_err(|errors| errors.problems)
}

#[test]
fn users_are_read_with_the_configuration() {
    let lines = "basic_auth = { users = \"users\", realm = \"a b\", allow_users = [\"b\"], pass_authorization = true }\n\
        [[site.route]]\npath = \"/a/*\"\nallow = [\"10.0.0.0/8\"]\n\
        [[site.route.route]]\npath = \"/a/open\"\nbasic_auth = false\n\
        [[site.route]]\npath = \"/b\"\nbasic_auth = { users = \"users\" }\n";
    let users = format!("# two\na:{HASH}\nb:{HASH}\n");
    let site = loaded(&users, lines).expect("a site").sites.remove(0);
    let own = site.location.gates.basic_auth.clone().expect("a gate");
    let names: Vec<_> = own.users.iter().map(|entry| entry.user.as_str()).collect();
    assert_eq!((own.realm.as_str(), names), ("a b", vec!["a", "b"]));
    assert!(own.pass_authorization && own.file.is_absolute());
    assert_eq!(own.allow_users, Some(vec!["b".to_owned()]));
    let of = |number: usize| site.routes[number].location.gates.basic_auth.as_ref();
    assert_eq!(of(0), None);
    assert!(site.routes[0].location.gates.allow.is_some());
    assert_eq!(of(1), Some(&own));
    let inner = of(2).expect("a gate");
    assert_eq!(
        (inner.realm.as_str(), &inner.allow_users),
        ("Restricted", &None)
    );
}

#[test]
fn gates_that_cannot_be() {
    let users = format!("a:{HASH}\nb:{{SHA}}x\n");
    for (users, line, expected) in [
        ("", "basic_auth = {}", "`users` is missing"),
        ("", "basic_auth = true", "expected a table, found boolean"),
        (
            "",
            "basic_auth = { users = \"absent\" }",
            "cannot be read: No such file",
        ),
        (
            "",
            "basic_auth = { users = \".\" }",
            "cannot be read: Is a directory",
        ),
        (
            &users,
            "basic_auth = { users = \"users\" }",
            "users, line 2: SHA-1 without salt",
        ),
        (
            "",
            "basic_auth = { users = \"users\", realm = \"a\\\"\" }",
            "`realm`: not a text for a header",
        ),
        (
            &users[..63],
            "basic_auth = { users = \"users\", allow_users = [\"c\"] }",
            "`c` is not in ",
        ),
        (
            "",
            "basic_auth = { users = \"users\", allow_users = [] }",
            "`allow_users`: it names nobody",
        ),
    ] {
        let problems = loaded(users, line).expect_err(line);
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(
            problems[0].message.contains(expected),
            "{line}: {problems:?}"
        );
    }
}

const AUTH: &str = "[[upstream]]\nname = \"auth\"\nto = [\"a:1\"]\n[[upstream]]\nname = \"php\"\nto = [\"a:2\"]\nprotocol = \"fastcgi\"\n";

#[test]
fn an_application_may_decide() {
    let text = format!(
        "{AUTH}{SITE}forward_auth = {{ upstream = \"auth\", path = \"/a?b\", copy = [\"Remote-User\"], user = \"Remote-User\" }}\n\
         [[site.route]]\npath = \"/a\"\n[[site.route]]\npath = \"/b\"\nforward_auth = false\n"
    );
    let site = parse(&text).expect(&text).sites.remove(0);
    let own = site.location.gates.forward_auth.clone().expect("a gate");
    assert_eq!((own.upstream.as_str(), own.path.as_str()), ("auth", "/a?b"));
    assert_eq!(
        (own.copy, own.user.as_deref()),
        (vec!["Remote-User".to_owned()], Some("Remote-User"))
    );
    assert_eq!(site.routes[0].location.gates, site.location.gates);
    assert_eq!(site.routes[1].location.gates, Gates::default());
}

#[test]
fn what_an_application_cannot_decide() {
    for (line, expected) in [
        ("upstream = \"auth\"", "`path` is missing"),
        ("path = \"/\"", "`upstream` is missing"),
        (
            "upstream = \"none\", path = \"/\"",
            "no upstream has the name `none`",
        ),
        (
            "upstream = \"php\", path = \"/\"",
            "`upstream`: only an upstream of protocol http or h2 decides",
        ),
        (
            "upstream = \"auth\", path = \"a\"",
            "`a` is no path [it begins with",
        ),
        (
            "upstream = \"auth\", path = \"/\", copy = [\"a b\"]",
            "`a b` is not a header name",
        ),
        (
            "upstream = \"auth\", path = \"/\", copy = [\"X-Forwarded-For\"]",
            "`X-Forwarded-For` is set by the server itself",
        ),
        (
            "upstream = \"auth\", path = \"/\", copy = [\"Host\"]",
            "`Host` is that of the request",
        ),
        (
            "upstream = \"auth\", path = \"/\", user = \":\"",
            "`:` is not a header name",
        ),
    ] {
        let problems = reports(&format!("{AUTH}{SITE}forward_auth = {{ {line} }}\n"));
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(problems[0].contains(expected), "{line}: {problems:?}");
    }
}

#[test]
fn urls_may_be_signed() {
    let text = format!(
        "{SITE}signed_url = {{ secret = \"s\", md5 = \"{{expires}}{{path}}{{client}} {{secret}}\", signature = \"md5\" }}\n\
         [[site.route]]\npath = \"/a\"\nsigned_url = {{ secret_file = \"key\", client = true }}\n\
         [[site.route]]\npath = \"/b\"\nsigned_url = false\n"
    );
    let site = parse(&text).expect(&text).sites.remove(0);
    let own = site.location.gates.signed_url.clone().expect("a gate");
    let parts = vec![
        SignedPart::Expires,
        SignedPart::Path,
        SignedPart::Client,
        SignedPart::Text(" ".to_owned()),
        SignedPart::Secret,
    ];
    assert_eq!(own.form, SignatureForm::Md5(parts));
    assert_eq!(
        (own.signature.as_str(), own.expires.as_str()),
        ("md5", "expires")
    );
    assert!(!format!("{own:?}").contains("\"s\""));
    let of = |number: usize| site.routes[number].location.gates.signed_url.clone();
    let inner = of(0).expect("a gate");
    assert_eq!(inner.form, SignatureForm::HmacSha256 { with_client: true });
    assert_eq!(of(1), None);
}

#[test]
fn what_cannot_sign() {
    let long = "secret = \"0123456789abcdef\"";
    for (line, expected) in [
        (String::new(), "`secret_file` is missing"),
        (
            "secret = \"short\"".to_owned(),
            "a secret has at least 16 bytes",
        ),
        (
            "secret = \"\", md5 = \"{path}{secret}\"".to_owned(),
            "at least 1 bytes",
        ),
        (
            "secret = \"0123456789abcdef\\nsecond\"".to_owned(),
            "a secret is one line",
        ),
        (
            format!("{long}, secret_file = \"users\""),
            "`secret_file` is given too",
        ),
        ("secret_file = \"absent\"".to_owned(), "cannot be read"),
        (
            "secret_file = \"users\"".to_owned(),
            "a secret has at least 16 bytes",
        ),
        (
            format!("{long}, signature = \"expires\""),
            "it is `expires` too",
        ),
        (
            format!("{long}, expires = \"a&b\""),
            "not the name of a parameter",
        ),
        (format!("{long}, md5 = \"{{path}}\""), "it lacks `{secret}`"),
        (
            format!("{long}, md5 = \"{{secret}}{{uri}}\""),
            "not a placeholder",
        ),
        (
            format!("{long}, md5 = \"{{path}}{{secret\""),
            "not a placeholder",
        ),
        (
            format!("{long}, md5 = \"{{path}}{{secret}}\", client = true"),
            "`md5` says what is signed",
        ),
    ] {
        let problems = loaded("# a\n", &format!("signed_url = {{ {line} }}\n")).expect_err(&line);
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(
            problems[0].message.contains(expected),
            "{line}: {problems:?}"
        );
    }
}

#[test]
fn tokens_may_be_asked_for() {
    let secret = "0123456789abcdef0123456789abcdef\n";
    let lines = "jwt = { secret_file = \"users\", issuer = \"i\", audience = [\"a\"], cookie = \"t\" }\n\
        [[site.route]]\npath = \"/a\"\n[[site.route]]\npath = \"/b\"\njwt = false\n";
    let site = loaded(secret, lines).expect("a site").sites.remove(0);
    let own = site.location.gates.jwt.clone().expect("a gate");
    assert_eq!(
        (own.issuer.as_deref(), own.cookie.as_deref(), own.query),
        (Some("i"), Some("t"), None)
    );
    assert_eq!((own.audience, own.keys.len()), (vec!["a".to_owned()], 1));
    assert_eq!(site.routes[0].location.gates, site.location.gates);
    assert_eq!(site.routes[1].location.gates.jwt, None);
    for (file, line, expected) in [
        ("", "", "`keys` is missing"),
        ("", "keys = \"absent\"", "cannot be read"),
        ("x", "keys = \"users\"", "users: not JSON"),
        ("{\"keys\": []}", "keys = \"users\"", "it has no key"),
        (
            "short",
            "secret_file = \"users\"",
            "a secret has at least 32 bytes",
        ),
        (
            secret,
            "secret_file = \"users\", cookie = \"a=b\"",
            "not a name for a token",
        ),
        (
            secret,
            "secret_file = \"users\", realm = \"\\n\"",
            "not a text for a header",
        ),
    ] {
        let problems = loaded(file, &format!("jwt = {{ {line} }}\n")).expect_err(line);
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(
            problems[0].message.contains(expected),
            "{line}: {problems:?}"
        );
    }
}

/// The first route that matches wins, and with it its gates.
#[test]
fn routes_that_take_paths_of_guarded_ones_are_noted() {
    let notes = |routes: &str| {
        parse(&format!("{SITE}{routes}"))
            .expect(routes)
            .note_texts()
    };
    let guarded = "[[site.route]]\npath = \"/in/*\"\nallow = [\"10.0.0.0/8\"]\n";
    for open in [
        "path = \"*.png\"",
        "path = \"/in/a/*\"",
        "path = \"/in/a\"",
        "regex = \"a$\"",
    ] {
        let notes = notes(&format!("[[site.route]]\n{open}\n{guarded}"));
        assert!(
            notes.len() == 1 && notes[0].contains("without its gates"),
            "{open}: {notes:?}"
        );
    }
    for harmless in [
        "path = \"/out/*\"",
        "path = \"/in\"",
        "path = \"*.png\"\ndeny = []",
        "path = \"*.png\"\nrespond = {}",
    ] {
        assert_eq!(
            notes(&format!("[[site.route]]\n{harmless}\n{guarded}")),
            [""; 0],
            "{harmless}"
        );
    }
    let inside = format!(
        "allow = [\"10.0.0.0/8\"]\n[[site.route]]\npath = \"*.png\"\n{}",
        guarded.replace("10.0.0.0/8", "all")
    );
    assert_eq!(notes(&inside), [""; 0]);
    let within = "[[site.route.route]]\npath = \"/in/*.png\"\n";
    assert_eq!(
        notes(&format!(
            "{guarded}{within}[[site.route]]\npath = \"*.png\"\n"
        )),
        [""; 0]
    );
}

const APP: &str = "[[upstream]]\nname = \"app\"\nto = [\"127.0.0.1:1\"]\n";
const FOLDER: &str = "[[site.route]]\npath = \"/in/*\"\nallow = [\"10.0.0.0/8\"]\n";

/// Applications often take `/in` for `/in/`.
#[test]
fn a_guarded_folder_whose_name_gets_to_an_upstream_is_noted() {
    let notes = |site: &str| {
        let text = format!("[[site]]\n{site}{APP}");
        parse(&text).expect(site).note_texts()
    };
    let all = "proxy = \"app\"\n";
    assert_eq!(
        notes(&format!("{all}{FOLDER}")),
        [
            "line 4: `/in/*` has gates that `/in`, without the slash, has not: the site on line 1 sends that path to the \
             upstream `app`; add a route `/in` with the same gates, or with `redirect = { to = \"/in/\" }`"
        ]
    );
    let by_route = "root = \"/srv\"\n[[site.route]]\npath = \"/i*\"\nproxy = \"app\"\n";
    let found = notes(&format!("{by_route}{FOLDER}"));
    let named = found
        .iter()
        .filter(|note| note.contains("without the slash"));
    assert_eq!(named.count(), 1, "{found:?}");
    assert!(
        found
            .iter()
            .any(|note| note.contains("the route `/i*` on line 4"))
    );
    let name = "[[site.route]]\npath = \"/in\"\n";
    let sometimes =
        format!("{all}{FOLDER}{name}when = {{ method = [\"GET\"] }}\ninternal = true\n");
    assert_eq!(notes(&sometimes).len(), 1, "other methods get to the site");
    let files = format!("root = \"/srv\"\n[[site.route]]\npath = \"/out/*\"\n{all}{FOLDER}");
    for quiet in [
        format!("{all}{FOLDER}{name}allow = [\"10.0.0.0/8\"]\n"),
        format!("{all}{FOLDER}{name}redirect = {{ to = \"/in/\" }}\n"),
        format!(
            "{all}{FOLDER}{name}when = {{ client = [\"10.0.0.0/8\"] }}\n{name}root = \"/srv\"\n"
        ),
        format!("{all}allow = [\"10.0.0.0/8\"]\n{FOLDER}"),
        format!("{all}{}", FOLDER.replace("10.0.0.0/8", "all")),
        format!("{all}{}", FOLDER.replace("/in/*", "/*")),
        format!("{all}{}", FOLDER.replace("/in/*", "/in")),
        format!("{all}root = \"/srv\"\ntry = [\"file\", 404]\n{FOLDER}"),
        files,
    ] {
        let found = notes(&quiet);
        let mut found = found.iter();
        assert!(
            !found.any(|note| note.contains("without the slash")),
            "{quiet}"
        );
    }
}

/// `location /admin {}` of nginx goes on behind a slash, `/admin*` does not.
#[test]
fn open_paths_beneath_a_star_are_noted() {
    let notes = |keys: &str| {
        let text = format!("[[site]]\nroot = \"/srv\"\n[[site.route]]\n{keys}");
        let notes = parse(&text).expect(keys).note_texts();
        let is_meant = |note: &String| note.contains("ends where a segment ends");
        notes.into_iter().filter(is_meant).collect::<Vec<_>>()
    };
    for closed in [
        "basic_auth = { users = \"users\" }",
        "deny = [\"all\"]",
        "allow = [\"10.0.0.0/8\"]",
        "internal = true",
        "respond = { status = 403 }",
    ] {
        assert_eq!(
            notes(&format!("path = \"/admin*\"\n{closed}\n")),
            [
                "line 4: `/admin*` ends where a segment ends, and paths beneath it are not closed: the site on line 1 serves \
             `/admin/*`; write `/admin**`"
            ],
            "{closed}"
        );
        for path in ["/*/admin*", "/{admin,x}*", "/admin/a*"] {
            let found = notes(&format!("path = \"{path}\"\n{closed}\n"));
            assert_eq!(found.len(), 1, "{path} {closed}");
        }
        for path in ["/admin**", "/admin/*", "/admin*.php", "/*/admin/*", "*.php"] {
            let found = notes(&format!("path = \"{path}\"\n{closed}\n"));
            assert_eq!(found, [""; 0], "{path} {closed}");
        }
        for beside in ["/admin/*", "/admin**", "/*"] {
            let keys = format!(
                "path = \"/admin*\"\n{closed}\n[[site.route]]\npath = \"{beside}\"\n{closed}\n"
            );
            assert_eq!(notes(&keys), [""; 0], "{beside} {closed}");
        }
    }
    assert_eq!(
        notes("path = \"/admin*\"\nrespond = { body = \"x\" }\n"),
        [""; 0]
    );
    // Nothing is served there.
    let text = "[[site]]\nroot = \"/srv\"\ntry = [404]\n[[site.route]]\npath = \"/a*\"\ndeny = [\"all\"]\n";
    assert!(
        parse(text)
            .is_ok_and(|config| !config.note_texts().iter().any(|note| note.contains("/a*")))
    );
}

/// `location /team {}` of nginx is a prefix.
#[test]
fn open_paths_beneath_a_guarded_name_are_noted() {
    let notes = |site: &str| {
        let text = format!("[[site]]\n{site}{APP}");
        let notes = parse(&text).expect(site).note_texts();
        let is_meant = |note: &String| note.contains("is that path alone, and");
        notes.into_iter().filter(is_meant).collect::<Vec<_>>()
    };
    let note = |open: &str| {
        format!(
            "line 4: `/team` is that path alone, and paths beneath it do not have its gates: {open} serves `/team/*`; guard \
             `/team/*` too"
        )
    };
    let files = "root = \"/srv\"\n";
    let app = "proxy = \"app\"\n";
    let gate = "allow = [\"10.0.0.0/8\"]";
    let route = |path: &str, keys: &str| format!("[[site.route]]\npath = \"{path}\"\n{keys}\n");
    let team = route("/team", gate);
    let beneath = |keys: &str| format!("{files}{team}{}", route("/team/*", keys));
    for (site, open) in [
        (format!("{files}{team}"), "the site on line 1"),
        (format!("{app}{team}"), "the site on line 1"),
        (beneath("index = []"), "the route `/team/*` on line 7"),
        (beneath(app), "the route `/team/*` on line 7"),
        // Not all of what is beneath.
        (
            format!("{files}{team}{}", route("/team/", gate)),
            "the site on line 1",
        ),
        (
            format!("{files}{team}{}", route("/team/a/*", gate)),
            "the site on line 1",
        ),
        (
            beneath("when = { method = [\"GET\"] }\ninternal = true"),
            "the site on line 1",
        ),
    ] {
        assert_eq!(notes(&site), [note(open)], "{site}");
    }
    for quiet in [
        beneath(gate),
        beneath("internal = true"),
        beneath("respond = { status = 404 }"),
        beneath("redirect = { to = \"/team\" }"),
        beneath("when = { client = [\"10.0.0.0/8\"] }").replace(files, "respond = {}\n"),
        format!("{files}{gate}\n{team}"),
        format!("{files}{}", route("/team.html", gate)),
        format!("{files}{}", route("/team/", gate)),
        format!("{files}{}", route("/", gate)),
        format!("{files}{}", route("/team/*", gate)),
        format!("{files}{}", route("/team", "allow = [\"all\"]")),
        format!(
            "{files}{}",
            route("/team", "respond = {}\ndeny = [\"::1\"]")
        ),
        format!("respond = {{}}\n{}{team}", route("/a/*", app)),
    ] {
        assert_eq!(notes(&quiet), [""; 0], "{quiet}");
    }
}

const LISTEN: &str = "\
    [[listen]]\naddress = \"127.0.0.1:8081\"\n[[listen]]\naddress = \"127.0.0.1:8082\"\n";

/// As with `alias` of nginx: gates are of paths, and files may have several.
#[test]
fn files_with_gates_that_other_paths_lead_to_are_noted() {
    let notes = |text: &str| parse(text).expect(text).note_texts();
    let note = |line, path: &str, alias: &str, open: &str| {
        format!(
            "line {line}: files of `{path}` have gates here that they have not at `{alias}`, where {open} serves the same files; \
             give it the gates, or a `root` without these files"
        )
    };
    let site = format!("{SITE}{FOLDER}");
    let route = |path: &str, keys: &str| format!("[[site.route]]\npath = \"{path}\"\n{keys}\n");
    let stripped = |path: &str, prefix: &str, root: &str| {
        route(
            path,
            &format!("strip_prefix = \"{prefix}\"\nroot = \"{root}\""),
        )
    };
    let other = |keys: &str| format!("[[site]]\nhosts = [\"b\"]\nroot = \"/srv\"\n{keys}");
    for (more, alias, open) in [
        (
            stripped("/all/*", "/all", "/srv"),
            "/all/in/*",
            "the route `/all/*` on line 7",
        ),
        (
            stripped("/all/*", "/all", "/"),
            "/all/srv/in/*",
            "the route `/all/*` on line 7",
        ),
        (
            stripped("/a/*", "/a", "/srv/x/../in"),
            "/a/*",
            "the route `/a/*` on line 7",
        ),
        (other(""), "/in/*", "the site on line 6"),
        (
            other(&route("/in/*", "index = []")),
            "/in/*",
            "the route `/in/*` on line 10",
        ),
    ] {
        let found = notes(&format!("{site}{more}"));
        assert_eq!(found, [note(4, "/in/*", alias, open)], "{more}");
    }
    // The other way round: a part of what the site serves is guarded by another path only.
    let guarded = stripped("/g/*", "/g", "/srv/kept") + "allow = [\"10.0.0.0/8\"]\n";
    let found = notes(&format!("{SITE}{guarded}"));
    assert_eq!(found, [note(4, "/g/*", "/kept/*", "the site on line 1")]);
    let found = notes(&format!("{SITE}{}", other("allow = [\"10.0.0.0/8\"]")));
    let of_site = note(3, "", "/*", "the site on line 1").replace("``", "this site");
    assert_eq!(found, [of_site]);
    let file = "[[site.route]]\npath = \"/a.key\"\nallow = [\"10.0.0.0/8\"]\n";
    let found = notes(&format!("{SITE}{file}{}", stripped("/a/*", "/a", "/srv")));
    assert_eq!(
        found,
        [note(4, "/a.key", "/a/a.key", "the route `/a/*` on line 7")]
    );
    let some = file.replace("/a.key", "*.key");
    let found = notes(&format!("{SITE}{some}{}", other("")));
    assert_eq!(
        found,
        [note(4, "*.key", "*.key", "the site on line 6")]
            .map(|note| note.replace("`*.key", "`/**/*.key"))
    );
    let gate = "allow = [\"10.0.0.0/8\"]";
    for quiet in [
        stripped("/all/*", "/all", "/srv/in") + gate,
        stripped("/part/*", "/part", "/srv/in/part"),
        stripped("/a/*", "/a", "/srv/input"),
        stripped("/a/*", "/a", "/srv") + "hide = [\"in\"]",
        stripped("/a/*", "/a", "/srv") + "internal = true",
        stripped("/a/*", "/a", "/srv") + "when = { client = [\"10.0.0.0/8\"] }",
        stripped("/a/*", "/a", "/srv") + "[[site.route.route]]\npath = \"/a/in/*\"\n" + gate,
        route("/a/*", "root = \"/srv\""),
        route("/a/*", "strip_prefix = \"/a\"\nrespond = {}"),
        other(&route("/in/*", gate)),
        other(&route("/in/*", "respond = {}")),
        // Another gate of the same kind, files that no path names, and one listener of several.
        other(&route("/in/*", "allow = [\"192.0.2.0/24\"]")),
        other("try = [\"/index.html\", 404]"),
        stripped("/a/*", "/a", "/srv") + "when = { listen = [\"127.0.0.1:8081\"] }\n" + LISTEN,
    ] {
        assert_eq!(notes(&format!("{site}{quiet}")), [""; 0], "{quiet}");
    }
    // Everyone may read, and only some may write.
    let writers = route("/*", &format!("when = {{ method = [\"PUT\"] }}\n{gate}"));
    assert_eq!(notes(&format!("{SITE}{writers}{}", other(""))), [""; 0]);
}

/// A gate is one of paths and not of applications.
#[test]
fn other_ways_to_a_guarded_application_are_noted() {
    let more = "[[upstream]]\nname = \"both\"\nto = [\"127.0.0.1:2\", \"127.0.0.1:1\"]\n\
        [[upstream]]\nname = \"other\"\nto = [\"127.0.0.1:3\"]\n\
        [[upstream]]\nname = \"php\"\nto = [\"unix:/php\"]\nprotocol = \"fastcgi\"\n";
    let notes = |site: &str| {
        let text = format!("[[site]]\n{site}\n{APP}{more}");
        let notes = parse(&text).expect(&text).note_texts();
        let is_meant = |note: &String| note.contains("the same application");
        notes.into_iter().filter(is_meant).collect::<Vec<_>>()
    };
    let note = |owner: &str, alias: &str, open: &str, name: &str| {
        format!(
            "{owner} has gates that `{alias}` has not, where {open} asks the same application, by the upstream `{name}`; give \
             it the gates, or make it `internal`"
        )
    };
    let route = |path: &str, keys: &str| format!("[[site.route]]\npath = \"{path}\"\n{keys}\n");
    let stripped = |path: &str, name: &str| {
        let prefix = path.trim_end_matches("/*");
        route(
            path,
            &format!("strip_prefix = \"{prefix}\"\nproxy = \"{name}\""),
        )
    };
    let other = |keys: &str| format!("[[site]]\nhosts = [\"b\"]\n{keys}\n");
    let app = "proxy = \"app\"\n";
    let site = format!("{app}{FOLDER}");
    let folder = "line 4: `/in/*`";
    for (more, alias, open, name) in [
        (other(app), "/in/*", "the site on line 6", "app"),
        (
            other("proxy = \"both\""),
            "/in/*",
            "the site on line 6",
            "both",
        ),
        (
            stripped("/a/*", "app"),
            "/a/in/*",
            "the route `/a/*` on line 7",
            "app",
        ),
        (
            stripped("/a/*", "app") + "when = { method = [\"GET\"] }",
            "/a/in/*",
            "the route `/a/*` on line 7",
            "app",
        ),
        (
            other(&format!("root = \"/srv\"\n{}", route("/in/*", app))),
            "/in/*",
            "the route `/in/*` on line 10",
            "app",
        ),
    ] {
        let expected = note(folder, alias, open, name);
        assert_eq!(notes(&format!("{site}{more}")), [expected], "{more}");
    }
    let gate = "allow = [\"10.0.0.0/8\"]";
    let one = route("/x", gate);
    assert_eq!(
        notes(&format!("{app}{one}{}", stripped("/a/*", "app"))),
        [note(
            "line 4: `/x`",
            "/a/x",
            "the route `/a/*` on line 7",
            "app"
        )]
    );
    // The other way round, and a gate that both have.
    let guarded = stripped("/g/*", "app") + gate;
    assert_eq!(
        notes(&format!("{app}deny = [\"::1\"]\n{guarded}")),
        [note("line 5: `/g/*`", "/*", "the site on line 1", "app")]
    );
    let php = "proxy = \"php\"\nscript_index = \"a.php\"\nroot = \"/srv\"\n";
    assert_eq!(notes(&format!("{php}{gate}\n{}", other(php))).len(), 1);
    for quiet in [
        stripped("/a/*", "other"),
        stripped("/a/*", "app") + "internal = true",
        stripped("/a/*", "app") + "when = { client = [\"10.0.0.0/8\"] }",
        stripped("/a/*", "app") + "[[site.route.route]]\npath = \"/a/in/*\"\n" + gate,
        route("/a/*", app),
        route("/a/*", "strip_prefix = \"/a\"\nrespond = {}"),
        other(&format!("{app}{}", route("/in/*", gate))),
        // Another gate of the same kind, and one listener of several.
        other(&format!(
            "{app}{}",
            route("/in/*", "allow = [\"192.0.2.0/24\"]")
        )),
        stripped("/a/*", "app") + "when = { listen = [\"127.0.0.1:8081\"] }\n" + LISTEN,
        other(&format!("{app}{}", route("/in/*", "respond = {}"))),
        other(&format!("root = \"/srv\"\n{}", route("/into/*", app))),
        other(&format!("root = \"/srv\"\n{}", route("/in/deeper/*", app))),
        other(&format!("{app}root = \"/srv\"\ntry = [\"file\", 404]")),
    ] {
        assert_eq!(notes(&format!("{site}{quiet}")), [""; 0], "{quiet}");
    }
    let of_clients = format!("{FOLDER}when = {{ client = [\"::1\"] }}\n");
    let beside = |keys: &str| {
        format!(
            "respond = {{}}\n{FOLDER}{app}{}",
            other(&format!("{app}{keys}"))
        )
    };
    assert_eq!(notes(&beside("")).len(), 1);
    for quiet in [
        beside("deny = [\"::1\"]"),
        format!("{app}{of_clients}{}", other(app)),
        format!("{php}{gate}\n{}", other(&php.replace("/srv", "/else"))),
    ] {
        assert_eq!(notes(&quiet), [""; 0], "{quiet}");
    }
}

#[test]
fn links_to_guarded_folders_are_resolved() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("kept/in")).expect("folders");
    std::os::unix::fs::symlink("kept", path("link")).expect("a link");
    let file = path("levity.toml");
    let text =
        format!("[[site]]\nroot = \"kept\"\n{FOLDER}[[site]]\nhosts = [\"b\"]\nroot = \"link\"\n");
    std::fs::write(&file, text).expect("a file");
    let notes = load(&file).expect("a configuration").note_texts();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("the site on line 6"), "{notes:?}");
}

#[test]
fn files_with_secrets_that_are_served_are_noted() {
    let notes = |text: &str| {
        let notes = parse(text).expect(text).note_texts();
        let is_meant = |note: &String| note.contains("lies beneath a `root`");
        notes.into_iter().filter(is_meant).collect::<Vec<_>>()
    };
    let note = |line, file: &str, open: &str, path: &str| {
        format!(
            "line {line}: {file} lies beneath a `root`, at `{path}` of {open}: nobody gets it, but move it to a folder that is not served"
        )
    };
    let users = "basic_auth = { users = \"/srv/in/users\" }\n";
    let url = "signed_url = { secret_file = \"/srv/./key\" }\n";
    let token = "jwt = { secret_file = \"/srv/key\" }\n";
    let route = |path: &str, keys: &str| format!("[[site.route]]\npath = \"{path}\"\n{keys}\n");
    let site = "the site on line 1";
    let kept = "[[site]]\nroot = \"/kept\"\n";
    for (text, expected) in [
        (
            format!("{SITE}{users}"),
            note(3, "/srv/in/users", site, "/in/users"),
        ),
        (format!("{SITE}{url}"), note(3, "/srv/./key", site, "/key")),
        (format!("{SITE}{token}"), note(3, "/srv/key", site, "/key")),
        // Once, and by whatever site.
        (
            format!(
                "{kept}{users}{}[[site]]\nhosts = [\"b\"]\nroot = \"/srv/x/..\"\n",
                route("/a", users)
            ),
            note(3, "/srv/in/users", "the site on line 8", "/in/users"),
        ),
        (
            format!(
                "{kept}{users}{}",
                route("/a/*", "strip_prefix = \"/a\"\nroot = \"/srv\"")
            ),
            note(
                3,
                "/srv/in/users",
                "the route `/a/*` on line 5",
                "/a/in/users",
            ),
        ),
        (
            format!("{SITE}{users}hide = [\"user\"]"),
            note(3, "/srv/in/users", site, "/in/users"),
        ),
        (
            format!(
                "{SITE}{}show = [\".users\"]",
                users.replace("users\"", ".users\"")
            ),
            note(3, "/srv/in/.users", site, "/in/.users"),
        ),
    ] {
        assert_eq!(notes(&text), [expected], "{text}");
    }
    for quiet in [
        format!("{SITE}{}", users.replace("/srv/", "/srv2/")),
        format!("{SITE}{}", users.replace("users\"", ".users\"")),
        format!("{SITE}{}", users.replace("/in/", "/.in/")),
        format!("{SITE}{users}hide = [\"u*\"]"),
        format!("{SITE}{users}hide = [\"in\"]"),
        format!("{SITE}{users}{}", route("/in/*", "internal = true")),
        format!("{SITE}{users}{}", route("/in/*", "deny = [\"all\"]")),
        format!("{SITE}{users}try = [\"/a.html\"]"),
        format!("{SITE}{users}try = [\"directory\", \"file.html\", 404]"),
        format!("{SITE}{users}{}", route("/in/users", "respond = {}")),
        format!("{SITE}jwt = {{ keys = \"/srv/key\" }}"),
        format!("{kept}{users}{}", route("/a/*", "root = \"/srv\"")),
        format!("{kept}{users}"),
    ] {
        assert_eq!(notes(&quiet), [""; 0], "{quiet}");
    }
    let secret = "0123456789abcdef0123456789abcdef\n";
    let config = loaded(secret, "jwt = { secret_file = \"users\" }\n").expect("a site");
    let is_noted = |path: &str| config.note_texts().iter().any(|note| note.contains(path));
    assert!(is_noted("at `/users`"), "{:?}", config.note_texts());
}

/// What a configuration names keeps the rules of its own path, except the pages of errors.
#[test]
fn named_files_of_other_rules_are_noted() {
    let php = "[[upstream]]\nname = \"php\"\nprotocol = \"fastcgi\"\nto = [\"127.0.0.1:1\"]\n";
    let notes = |site: &str| {
        let text = format!("[[site]]\nroot = \"/srv\"\n{site}{php}");
        let notes = parse(&text).expect(site).note_texts();
        let is_meant =
            |note: &String| note.contains("`error_pages` sends") || note.contains("leads to");
        notes.into_iter().filter(is_meant).collect::<Vec<_>>()
    };
    let route = |path: &str, keys: &str| format!("[[site.route]]\npath = \"{path}\"\n{keys}\n");
    let errors = "error_pages = { 404 = \"/errors/404.html\" }\n";
    let gate = "allow = [\"10.0.0.0/8\"]";
    assert_eq!(
        notes(&format!("{errors}{}", route("/errors/*", gate))),
        [
            "line 1: `error_pages` sends `/errors/404.html` to whoever gets the error, also to those whom the route `/errors/*` \
             on line 5 does not let in"
        ]
    );
    let script = "proxy = \"php\"\ntry = [\"file\", \"proxy\"]\nscript_index = \"index.php\"\n";
    let refused = |key: &str, path: &str, route: &str, line: usize| {
        format!(
            "line 1: `{key}` leads to `{path}`, which the route `{route}` on line {line} refuses: requests that get there are \
             refused too"
        )
    };
    assert_eq!(
        notes(&format!(
            "{script}{}",
            route("*.php", "respond = { status = 403 }")
        )),
        [refused("script_index", "/index.php", "/**/*.php", 7)]
    );
    let page = "try = [\"file\", \"/app.html\"]\n";
    for keys in [
        "internal = true",
        "deny = [\"all\"]",
        "respond = { status = 404 }",
    ] {
        assert_eq!(
            notes(&format!("{page}{}", route("/app.html", keys))),
            [refused("try", "/app.html", "/app.html", 5)]
        );
    }
    for quiet in [
        format!("{errors}{}", route("/errors/*", "internal = true")),
        format!("{errors}{gate}\n"),
        format!("{errors}{}", route("/other/*", gate)),
        format!("{page}{}", route("/app.html", gate)),
        format!("{script}{}", route("/wp-login.php", "deny = [\"all\"]")),
    ] {
        assert_eq!(notes(&quiet), [""; 0], "{quiet}");
    }
}
