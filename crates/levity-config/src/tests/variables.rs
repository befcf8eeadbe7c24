//! Values from variables, and secrets in files.

use super::*;

const VARIABLES: &[(&str, &str)] = &[
    ("PORT", "8443"),
    ("HOST", "Www.Example.org"),
    ("ROOT", "/srv/secret-tree"),
    ("ON", "true"),
    ("SIZE", "16KiB"),
    ("BAD", "se-cr-et"),
    ("QUOTE", "a\"\n[[site]]\nroot = \"/b"),
];

fn with(text: &str) -> Result<Config, Vec<Problem>> {
    parse_with(text, &Variables::of(VARIABLES))
}

/// Every problem as `line:column message [help]`.
fn refused(text: &str) -> Vec<String> {
    shown(&with(text).expect_err(text))
}

#[test]
fn values_are_taken_for_strings_numbers_and_booleans() {
    let text = "[server]\nworkers = \"${WORKERS:-7}\"\n[limits]\nbody_bytes = \"${SIZE}\"\nheader_bytes = \"${BYTES:-8192}\"\n\
                idle_timeout = \"${TIME:-3s}\"\n[[listen]]\naddress = \"127.0.0.1:${PORT}\"\n[[site]]\nhosts = [\"${HOST}\"]\n\
                root = \"${ROOT}/www\"\nlisting = \"${ON}\"\ntry = [\"file\", \"${STATUS:-404}\"]\n\
                [site.headers]\nset = { X = \"$${A}${status} ${HOST}\", \"${HOST}\" = \"1\" }\n";
    // The name of a header is a key, which is taken as it is.
    let text = text.replace(", \"${HOST}\" = \"1\"", "");
    let config = with(&text).expect(&text);
    assert_eq!(config.server.workers, Some(7));
    assert_eq!(config.limits.body_bytes, 16 << 10);
    assert_eq!(config.limits.header_bytes, 8192);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(3));
    assert_eq!(config.listen, [listen_at("127.0.0.1:8443")]);
    let site = &config.sites[0];
    assert_eq!(site.hosts, ["www.example.org"]);
    assert_eq!(
        site.location.root.as_deref(),
        Some(Path::new("/srv/secret-tree/www"))
    );
    assert!(site.location.options.listing);
    let tries = [Try::File, Try::Status(404)];
    assert_eq!(site.location.proxying.tries.as_deref(), Some(&tries[..]));
    let set = ("X".to_owned(), "${A}${status} Www.Example.org".to_owned());
    assert_eq!(site.location.headers[0].set, [set]);
}

#[test]
fn keys_are_taken_as_they_are() {
    let text = format!("{SITE}[site.headers]\nset = {{ \"${{HOST}}\" = \"1\" }}\n");
    assert_eq!(refused(&text), ["4:9 `${HOST}` is not a header name"]);
}

#[test]
fn a_value_is_no_toml() {
    let text = "[[site]]\nrespond = { body = \"${QUOTE}\" }\n";
    let config = with(text).expect(text);
    assert_eq!(config.sites.len(), 1);
    let Some(Answer::Fixed(fixed)) = &config.sites[0].location.answer else {
        panic!("a response");
    };
    assert_eq!(fixed.body, "a\"\n[[site]]\nroot = \"/b");
}

#[test]
fn what_is_not_set_is_an_error_at_its_place() {
    let help = |name: &str| {
        format!(
            " [set it in the environment of the server, or write `${{{name}:-default}}`; `$${{{name}` stands for `${{{name}`]"
        )
    };
    let text = "[server]\nworkers = \"${NONE}\"\n[[listen]]\naddress = \"127.0.0.1:${P}${NONE}\"\n\
                [[site]]\nhosts = [\"a.test\", \"x${P}.test\"]\nroot = \"/srv\"\n\
                [site.headers]\nset = { A = \"\\u0024{P}\" }\n";
    assert_eq!(
        refused(text),
        [
            format!("2:12 `${{NONE}}` is not set{}", help("NONE")),
            format!("4:22 `${{P}}` is not set{}", help("P")),
            format!("4:26 `${{NONE}}` is not set{}", help("NONE")),
            format!("6:22 `${{P}}` is not set{}", help("P")),
            format!("9:13 `${{P}}` is not set{}", help("P")),
        ]
    );
}

#[test]
fn what_is_no_complete_reference_is_an_error_at_its_place() {
    for (value, expected) in [
        (
            "${NONE",
            "3:20 `${NONE` is not a complete reference [write `${NONE}` or `${NONE:-default}`; `$${NONE` stands for `${NONE`]",
        ),
        (
            "x ${HOST:?x}",
            "3:22 `${HOST` is not a complete reference [write `${HOST}` or `${HOST:-default}`; `$${HOST` stands for `${HOST`]",
        ),
        (
            "${HOST:-${NONE}}",
            "3:20 the default of `${HOST` has `${` [a default is text; `$${HOST` stands for `${HOST`]",
        ),
    ] {
        let text = format!("[[site]]\n[site.respond]\nheaders = {{ \"A\" = \"{value}\" }}\n");
        let text = text
            .replace("\"A\" = ", "A = ")
            .replace("headers", "  headers");
        assert_eq!(refused(&text), [expected], "{value}");
    }
    let text = "[[site]]\nrespond = { body = \"${status} $${price} ${x.Y} $${HOST}\" }\n";
    let config = with(text).expect(text);
    let Some(Answer::Fixed(fixed)) = &config.sites[0].location.answer else {
        panic!("a response");
    };
    assert_eq!(fixed.body, "${status} $${price} ${x.Y} ${HOST}");
}

#[test]
fn each_reference_without_a_value_has_its_own_place() {
    for (value, expected) in [
        (
            "$${UNSET} and ${UNSET_B} ${UNSET}",
            &["3:27 `${UNSET_B}`", "3:38 `${UNSET}`"][..],
        ),
        ("${UNSET}${UNSET}", &["3:13 `${UNSET}`", "3:21 `${UNSET}`"]),
        (
            "${UNSET_B}${UNSET}",
            &["3:13 `${UNSET_B}`", "3:23 `${UNSET}`"],
        ),
        // An escape before it.
        ("\\t${x}${UNSET}", &["3:19 `${UNSET}`"]),
        // One that is written with an escape: which one is not known.
        (
            "\\u0024{UNSET}${UNSET}",
            &["3:12 `${UNSET}`", "3:12 `${UNSET}`"],
        ),
    ] {
        let text = format!("[[site]]\n[site.respond]\nbody     = \"{value}\"\n");
        let found = refused(&text);
        let found: Vec<_> = found
            .iter()
            .filter_map(|one| one.split_once(" is not set"))
            .collect();
        let found: Vec<_> = found.into_iter().map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{value}");
    }
}

/// The option of the command is named, and what stands in its file counts.
#[test]
fn a_command_may_take_variables_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (main, file) = (folder.path().join("levity.toml"), folder.path().join("env"));
    std::fs::write(
        &main,
        "[[site]]\nrespond = { body = \"${LEVITY_TEST_A}\" }\n",
    )
    .expect("a file");
    std::fs::write(&file, "LEVITY_TEST_A=1\n").expect("a file");
    let given = Variables::of_command("--env-file", Some(&file)).expect("variables");
    crate::load(&main, &given).expect("valid");
    let none = Variables::of_command("--env-file", None).expect("variables");
    let problems = crate::load(&main, &none).expect_err("not set").problems;
    let help = problems[0].help.as_deref().expect("help");
    assert!(
        help.starts_with(
            "set it in the environment of the server or, for this command, by `--env-file`, or"
        ),
        "{help}"
    );
    std::fs::write(&file, "A=1\nB= 2\n").expect("a file");
    let reason = Variables::of_command("--env-file", Some(&file)).expect_err("a blank");
    assert!(
        reason.contains("/env:2: the value of `B` begins or ends with a blank"),
        "{reason}"
    );
}

/// An error that knows what a value is shares words with it, and is told in full.
#[test]
fn an_error_keeps_its_key_reason_and_help() {
    let variables = Variables::of(&[
        ("WORD", "not-a-value"),
        ("URL", "http://hunter2.example/backend"),
    ]);
    for (line, expected) in [
        (
            "[disk]\nengine = \"${WORD}\"",
            "2:10 `${WORD}` is not a value of `engine` [one of ",
        ),
        (
            "[[listen]]\naddress = \"${URL}\"",
            "2:11 `${URL}` is not an address",
        ),
        (
            "[server]\ntrusted_proxies = [\"${WORD}\"]",
            "2:20 `${WORD}` is not a network [",
        ),
    ] {
        let text = format!("{line}\n{SITE}");
        let problems = shown(&parse_with(&text, &variables).expect_err(line));
        assert!(problems[0].starts_with(expected), "{problems:?}");
        assert!(!problems[0].contains("hunter2"), "{problems:?}");
    }
}

/// Each message is searched once, whatever the number of values: with a search for each value this took fifty times as long.
#[test]
fn thousands_of_values_do_not_slow_thousands_of_errors() {
    const COUNT: usize = 4096;
    let names: Vec<_> = (0..COUNT)
        .map(|number| (format!("V{number}"), format!("/srv/value-{number}")))
        .collect();
    let names: Vec<_> = names
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let variables = Variables::of(&names);
    let time = |root: &dyn Fn(usize) -> String| {
        let site = |number| {
            format!(
                "[[site]]\nhosts = [\"h{number}.test\"]\nroot = \"{}\"\nxyz = 1\n",
                root(number)
            )
        };
        let text: String = (0..COUNT).map(site).collect();
        let begun = std::time::Instant::now();
        let problems = parse_with(&text, &variables).expect_err("unknown keys");
        assert_eq!(problems.len(), COUNT);
        begun.elapsed()
    };
    let without = time(&|number| format!("/srv/value-{number}"));
    let with = time(&|number| format!("${{V{number}}}"));
    assert!(with < 10 * without, "{with:?} {without:?}");
}

#[test]
fn a_value_of_another_form_is_not_shown() {
    for (line, expected) in [
        (
            "[server]\nworkers = \"${BAD}\"",
            "2:11 `workers`: the value of `${BAD}` is not \"auto\" or a whole number",
        ),
        (
            "[server]\nworkers = \"x${PORT}\"",
            "2:11 expected \"auto\" or a whole number, found string",
        ),
        (
            "[server]\nworkers = \"${PORT}\"",
            "2:11 `workers` must be from 1 to 1024",
        ),
        (
            "[limits]\nbody_bytes = \"${BAD}\"",
            "2:14 `body_bytes` is not a size such as \"16KiB\"",
        ),
        (
            "[limits]\nidle_timeout = \"${PORT}\"",
            "2:16 `idle_timeout` is not a duration such as \"30s\"",
        ),
        (
            "[disk]\nengine = \"${BAD}\"",
            "2:10 `${BAD}` is not a value of `engine`",
        ),
        (
            "[[listen]]\naddress = \"${BAD}\"",
            "2:11 `${BAD}` is not an address",
        ),
        (
            "[[listen]]\naddress = \"80\"\ntls = \"${BAD}\"",
            "3:7 `tls`: the value of `${BAD}` is not `true` or `false`",
        ),
        (
            "[server]\ntrusted_proxies = [\"x/${PORT}\"]",
            "2:20 `x/${PORT}` is not a network",
        ),
        (
            "[[upstream]]\nname = \"a\"\nto = [\"http://${HOST}:80/\"]",
            "3:7 `http://${HOST}:80/` is not a backend",
        ),
    ] {
        let text = format!("{line}\n{SITE}");
        let problems = refused(&text);
        let (message, help) = problems[0].split_once(" [").unwrap_or((&problems[0], ""));
        assert_eq!((message, problems.len()), (expected, 1), "{line}");
        let is_shown = |(_, value): &(&str, &str)| help.contains(value);
        assert!(!VARIABLES.iter().any(is_shown), "{help}");
    }
}

/// A problem of one place may name the value of another.
#[test]
fn values_of_other_places_are_not_shown() {
    let text = "[[site]]\nhosts = [\"${HOST}\"]\nroot = \"/srv\"\n[[site]]\nhosts = [\"www.example.org\"]\nroot = \"${ROOT}\"\n\
                [[site.route]]\npath = \"/x/*\"\nroot = \"${ROOT}/in\"\nupload = {}\n[[site.route]]\npath = \"/y/*\"\n\
                root = \"${ROOT}\"\nupload = {}\n";
    let problems = refused(text).join("\n");
    assert!(
        problems.contains("host `${HOST}` is given twice"),
        "{problems}"
    );
    assert!(
        problems.contains("${ROOT}/in lies in ${ROOT}"),
        "{problems}"
    );
    assert!(!problems.contains("secret"), "{problems}");
    let text = "[[site]]\nroot = \"/srv\"\nproxy = \"a\"\n[[upstream]]\nname = \"a\"\nto = [\"a:1\"]\n\
                [[upstream]]\nname = \"${BAD}\"\nto = [\"b:1\"]\n";
    let config = with(text).expect(text);
    let notes = config.note_texts().join("\n");
    assert!(notes.contains("uses the upstream `${BAD}`"), "{notes}");
    assert!(!format!("{config:?}").contains("se-cr-et"));
    let shown = "se-cr-et at www.example.org, /srv/secret-tree";
    assert_eq!(
        config.hidden.hide(shown),
        "${BAD} at www.example.org, /srv/secret-tree"
    );
}

/// Each word of a value that some message of a wrong value contains would be seen by whoever reads the log.
#[test]
fn no_message_shows_a_piece_of_a_wrong_value() {
    const WRONG: &str = "Zq7://xk9vw.Qp3:77777/z/../jw8?{ky6} \\d(";
    let variables = Variables::of(&[("WRONG", WRONG)]);
    let (mut count, lower) = (0, WRONG.to_lowercase());
    let pieces: Vec<_> = ["zq7", "xk9vw", "qp3", "77777", "jw8", "ky6"].into();
    assert!(pieces.iter().all(|piece| lower.contains(piece)));
    for table in TABLES.iter().filter(|table| !table.path.is_empty()) {
        for key in table.keys {
            for value in ["\"${WRONG}\"", "[\"${WRONG}\"]", "{ a = \"${WRONG}\" }"] {
                let line = format!("{} = {value}", key.name);
                let text = format!("{}\n{SITE}", beneath_site(table, &line));
                let Err(problems) = parse_with(&text, &variables) else {
                    continue;
                };
                for problem in shown(&problems) {
                    count += 1;
                    let problem = problem.to_lowercase();
                    let is_shown = pieces.iter().any(|piece| problem.contains(piece));
                    assert!(!is_shown, "{text}\n{problem}");
                }
            }
        }
    }
    assert!(count > 500, "{count}");
}

/// The text of a file with the line in the table.
fn beneath_site(table: &Table, line: &str) -> String {
    match table.path {
        "site" => format!("[[site]]\n{line}\n"),
        "site.route" => format!("{SITE}[[site.route]]\n{line}\n"),
        path if path.starts_with("site.") => {
            let required = required(path).join("\n");
            format!(
                "{SITE}[[site.route]]\npath = \"/a\"\n{}\n{required}\n{line}\n",
                table.heading()
            )
        }
        path if path.starts_with("upstream.") => {
            format!("[[upstream]]\n{}\n{line}\n", table.heading())
        }
        _ => format!("{}\n{line}\n", table.heading()),
    }
}

#[test]
fn each_secret_may_be_in_a_file() {
    let mut count = 0;
    for table in TABLES {
        for key in table.keys.iter().filter(|key| key.has_file) {
            count += 1;
            let file = format!("{}_file", key.name);
            let of_file = table.keys.iter().find(|key| key.name == file);
            assert!(
                of_file.is_some_and(|key| key.is_secret),
                "{} {file}",
                table.path
            );
        }
    }
    assert_eq!(count, 4);
}

/// A server with the first line of a file as secret of its upstream, and as URL of its store.
#[test]
fn secrets_in_files_are_their_first_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file");
    };
    let loaded = |secret: &str, url: &str| {
        let text = format!(
            "[mailbox_store]\nstore = \"redis\"\n{url}\n[[upstream]]\nname = \"a\"\nto = [\"127.0.0.1:8009\"]\nprotocol = \"ajp13\"\n\
             {secret}\n[[site]]\nproxy = \"a\"\n"
        );
        write("levity.toml", &text);
        load(&folder.path().join("levity.toml"))
    };
    write("secret", "s3cret\nmore\n");
    write("url", "redis://u:p@127.0.0.1:6379\r\n");
    write("empty", "\n");
    let config = loaded("secret_file = \"secret\"", "url_file = \"url\"").expect("valid");
    assert_eq!(config.upstreams[0].secret, Some(Secret(b"s3cret".to_vec())));
    let url = config.mailbox_store.url.as_deref();
    assert_eq!(url, Some("redis://u:p@127.0.0.1:6379"));
    for name in ["secret", "url"] {
        assert!(config.secrets.contains(&folder.path().join(name)));
    }
    let refused = |secret: &str, url: &str| shown(&loaded(secret, url).expect_err(secret).problems);
    let shown_folder = folder.path().display();
    assert_eq!(
        refused("secret_file = \"empty\"", "url_file = \"secret\""),
        [
            "3:12 `url_file`: not that of a server of redis [such as \"redis://127.0.0.1:6379\"]",
            "8:15 `secret_file`: not valid [not empty, and no control characters]",
        ]
    );
    assert_eq!(
        refused(
            "secret = \"a\"\nsecret_file = \"secret\"",
            "url_file = \"none\""
        ),
        [
            format!(
                "3:12 `url_file`: {shown_folder}/none cannot be read: No such file or directory (os error 2)"
            ),
            "8:10 `secret`: `secret_file` is given too".to_owned(),
        ]
    );
    assert_eq!(refused("", ""), ["1:1 `url` is missing"]);
}

#[test]
fn credentials_are_in_the_folder_of_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("levity.toml");
    let credentials = folder.path().join("credentials");
    std::fs::create_dir(&credentials).expect("a folder");
    std::fs::write(credentials.join("url"), "0123456789abcdef\n").expect("a file");
    let loaded = |path: &str, variables: &[(&str, &str)]| {
        let text =
            format!("[[site]]\nrespond = {{}}\nsigned_url = {{ secret_file = \"{path}\" }}\n");
        std::fs::write(&file, text).expect("a file");
        crate::load(&file, &Variables::of(variables))
    };
    let set = [("CREDENTIALS_DIRECTORY", credentials.to_str().expect("text"))];
    let config = loaded("credential:url", &set).expect("valid");
    let signed = config.sites[0].location.gates.signed_url.as_ref();
    let secret = signed.map(|signed| signed.secret.0.as_slice());
    assert_eq!(secret, Some(&b"0123456789abcdef"[..]));
    assert!(config.secrets.contains(&credentials.join("url")));
    let refused = |path: &str, variables| {
        let problems = loaded(path, variables).expect_err(path).problems;
        shown(&problems)
    };
    let at = "3:30";
    for variables in [
        &[][..],
        &[("CREDENTIALS_DIRECTORY", "")],
        &[("CREDENTIALS_DIRECTORY", "a")],
    ] {
        assert_eq!(
            refused("credential:url", variables),
            [format!(
                "{at} `secret_file`: there are no credentials: `$CREDENTIALS_DIRECTORY` is not set [outside of the service, set it to a folder \
                 with a file `url`, or use `--env-file` of `check`, `explain` or `certs` with `CREDENTIALS_DIRECTORY=FOLDER`; in the unit, \
                 `LoadCredential=url:PATH` beneath [Service] sets it]"
            )]
        );
    }
    for name in ["", "a/b", "..", ".a"] {
        assert_eq!(
            refused(&format!("credential:{name}"), &set),
            [format!(
                "{at} `secret_file`: what follows `credential:` is not the name of a credential"
            )]
        );
    }
    let none = refused("credential:none", &set);
    assert!(
        none[0].contains("/credentials/none cannot be read"),
        "{none:?}"
    );
}

#[test]
fn a_credential_that_cannot_be_used_is_one_problem() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("levity.toml");
    let count = |names: [&str; 2], variables: &[(&str, &str)]| {
        let [one, other] = names.map(|name| format!("secret_file = \"credential:{name}\""));
        let text = format!(
            "[[site]]\nrespond = {{}}\nsigned_url = {{ {one} }}\n[[site.route]]\npath = \"/a/*\"\nsigned_url = {{ {other} }}\n"
        );
        std::fs::write(&file, text).expect("a file");
        let errors = crate::load(&file, &Variables::of(variables)).expect_err("no credential");
        errors.problems.len()
    };
    let set = [("CREDENTIALS_DIRECTORY", "/none/there")];
    for variables in [&[][..], &set[..]] {
        assert_eq!(count(["a", "a"], variables), 1, "{variables:?}");
        assert_eq!(count(["a", "b"], variables), 2, "{variables:?}");
    }
}
