//! What does not depend on the order of the files.

use super::*;

#[test]
fn the_default_site_is_named() {
    let default = |lines: &str| {
        format!(
            "[[site]]\nhosts = [\"a.test\"]\nrespond = {{}}\n{lines}\n{}",
            site("b.test")
        )
    };
    let config = parse(&default("default = true")).expect("valid");
    assert_eq!(config.default_site(), Some(0));
    let config = parse(&default("default = false")).expect("valid");
    assert_eq!(config.default_site(), None);
    let config = parse(&format!("{}{SITE_ALONE}", site("a.test"))).expect("valid");
    assert_eq!(config.default_site(), Some(1));
    let config = parse(&format!("{SITE_ALONE}default = true\n")).expect("valid");
    assert_eq!(config.default_site(), Some(0));
    assert_problems(
        &format!("{}default = true\n", default("default = true")),
        &["8:11 `default`: a second site answers for all other names [the first is on line 4]"],
    );
    assert_problems(
        &format!("{SITE_ALONE}{}", default("default = true")),
        &[
            "1:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 6]",
        ],
    );
    let folder = Folder::new(&format!("{ALL}{}default = true\n", site("a.test")));
    folder.write(
        "sites.d/b.toml",
        format!("{}default = true\n", site("b.test")),
    );
    assert_eq!(
        folder.problems(),
        [
            "sites.d/b.toml:4:11 `default`: a second site answers for all other names [the first is on line 5 of levity.toml]"
        ]
    );
}

#[test]
fn the_order_of_files_chooses_no_certificate() {
    let tls = |host: &str| format!("{}tls = \"internal\"\n", site(host));
    let listen = "[[listen]]\naddress = \"443\"\n";
    let chosen = |main: &str, included: &[&str]| {
        let folder = Folder::new(main);
        for (number, text) in included.iter().enumerate() {
            folder.write(&format!("sites.d/{number}.toml"), text);
        }
        folder.loaded().default_tls_site()
    };
    let (a, b) = (tls("a.test"), tls("b.test"));
    let alone = format!("{listen}{}{a}{b}", site("c.test"));
    assert_eq!(chosen(&alone, &[]), None, "in one file");
    let main = format!("{ALL}{listen}");
    assert_eq!(chosen(&main, &[&a]), Some(0), "the only one");
    assert_eq!(chosen(&main, &[&site("c.test"), &a]), Some(1));
    assert_eq!(chosen(&main, &[&a, &b]), None);
    let default = format!("{b}default = true\n");
    assert_eq!(chosen(&main, &[&a, &default]), Some(1));
    let open = "[[site]]\nrespond = {}\ntls = \"internal\"\n";
    assert_eq!(chosen(&main, &[&a, open, &b]), Some(1));
    let plain = format!("{}default = true\n", site("c.test"));
    assert_eq!(chosen(&main, &[&plain, &a]), Some(1));
    assert_eq!(chosen(&main, &[&plain, &a, &b]), None);
}

#[test]
fn the_order_of_files_chooses_no_port() {
    let listen = |ports: &[u16]| {
        let listen = ports.iter().map(|port| Listen {
            tls: true,
            ..listen_at(&port.to_string())
        });
        redirect_port(&listen.collect::<Vec<_>>())
    };
    for (ports, expected) in [
        (&[][..], None),
        (&[0], None),
        (&[29443, 28443], Some(28443)),
        (&[28443, 29443], Some(28443)),
        (&[0, 29443], Some(29443)),
        (&[81, 443], None),
        (&[443, 81], None),
    ] {
        assert_eq!(listen(ports), expected, "{ports:?}");
    }
}

#[test]
fn a_site_for_all_names_has_one_error_at_one_place() {
    let open = "[[site]]\nrespond = {}\n";
    assert_problems(
        &format!("{open}{open}{}default = true\n", site("a.test")),
        &[
            "1:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 8]",
            "3:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 8]",
        ],
    );
    assert_problems(
        &format!("{open}default = true\n{open}default = true\n"),
        &["6:11 `default`: a second site answers for all other names [the first is on line 3]"],
    );
}

#[test]
fn a_note_says_what_clients_of_a_site_without_tls_get() {
    let listen = "[[listen]]\naddress = \"443\"\n";
    let tls = |host: &str| format!("{}tls = \"internal\"\n", site(host));
    let note = |sites: &str| {
        let config = parse(&format!("{listen}{}{sites}", site("plain.test"))).expect("valid");
        config.note_texts().join("\n")
    };
    let start = "line 3: the site has no `tls`: over TLS, clients that ask for `plain.test`";
    let other = format!("{start} get the certificate of another site, and refuse it");
    assert_eq!(note(&tls("a.test")), other);
    let (a, b) = (tls("a.test"), tls("b.test"));
    assert_eq!(note(&format!("{a}{b}default = true\n")), other);
    assert_eq!(note(&format!("{a}{b}")), format!("{start} are refused"));
}

#[test]
fn the_places_of_a_server_are_read_or_reported() {
    let places = |main: &str, other: &str| {
        let folder = Folder::new(main);
        folder.write("sites.d/a.toml", other);
        let is_enough = |places: &AdminPlaces| places.control.is_some();
        let main = folder.at("levity.toml");
        let places = load_admin(&main, &Variables::default(), is_enough);
        let control = places.map(|places| places.control);
        control.map_err(|errors| shown(&errors.problems))
    };
    let unset = "[admin]\ncontrol = \"unix:${NONE_SUCH}\"\n";
    let site = "[[site]]\nroot = \"${NONE_SUCH}\"\n";
    let named = "[admin]\ncontrol = \"unix:/run/s\"\n";
    for (main, other, expected) in [
        ("", "", Ok(None)),
        (ALL, site, Ok(None)),
        (ALL, "[admin] junk", Err("1:9 ")),
        ("[admin]\nlisten = \"127.0.0.1:1\"\n", "", Ok(None)),
        (unset, "", Err("`${NONE_SUCH}` is not set")),
        (ALL, unset, Err("`${NONE_SUCH}` is not set")),
        (
            "[admin]\nlisten = \"${NONE_SUCH}\"\n",
            "",
            Err("`${NONE_SUCH}` is not set"),
        ),
        ("admin = 1\n", "", Err("expected a table, found integer")),
        (
            "include = [\"none.toml\"]\n",
            "",
            Err("/none.toml: No such file"),
        ),
        (
            "include = [\"${NONE_SUCH}\"]\n",
            "",
            Err("`${NONE_SUCH}` is not set"),
        ),
        (ALL, named, Ok(Some("/run/s"))),
        (
            &format!("include = [\"none.toml\"]\n{named}{site}"),
            "",
            Ok(Some("/run/s")),
        ),
    ] {
        match (places(main, other), expected) {
            (Ok(control), Ok(expected)) => {
                assert_eq!(control.as_deref(), expected.map(Path::new), "{main}")
            }
            (Err(problems), Err(expected)) => {
                assert!(problems[0].contains(expected), "{problems:?}")
            }
            (found, _) => panic!("{main}{other}: {found:?}"),
        }
    }
}
