//! `[acme]`, and sites that get certificates by it.

use super::{messages, parse, reports};
use crate::acme::{Challenge, Dns};
use crate::tls::Certificates;

const ROOT: &str = "root = \"/srv\"\ntls = \"acme\"\n";

fn site(hosts: &str) -> String {
    format!("[[site]]\nhosts = [{hosts}]\n{ROOT}")
}

/// The help of the one problem about `host`.
#[track_caller]
fn refused(tables: &str, host: &str) -> String {
    let text = format!("{}{tables}", site(&format!("\"{host}\"")));
    let problems = parse(&text).expect_err(host);
    assert_eq!(problems.len(), 1, "{host}: {problems:?}");
    let problem = &problems[0];
    assert_eq!(
        problem.message,
        format!("`tls`: there can be no certificate for `{host}`")
    );
    problem.help.clone().expect("a reason")
}

#[test]
fn six_lines_are_a_public_site() {
    let config = parse(&site("\"example.org\", \"www.example.org\"")).expect("no problem");
    assert_eq!(
        config.note_texts().len(),
        0,
        "listeners are where authorities look: {:?}",
        config.note_texts()
    );
    let tls = config.sites[0].tls.as_ref().expect("TLS");
    assert_eq!(
        (&tls.certificates, tls.redirect),
        (&Certificates::Acme, true)
    );
    let acme = &config.acme;
    assert_eq!(acme.challenges, [Challenge::TlsAlpn01, Challenge::Http01]);
    assert_eq!(
        acme.authorities[0].directory,
        "https://acme-v02.api.letsencrypt.org/directory"
    );
}

#[test]
fn names_that_no_authority_would_certify_are_not_asked_for() {
    for (host, reason) in [
        ("localhost", "nobody can register names of `localhost`"),
        ("printer.local", "nobody can register"),
        ("a.internal", "nobody can register"),
        ("router.home.arpa", "nobody can register"),
        ("intranet", "a name with one part"),
        ("a_b.example.org", "do not take it"),
        ("-a.example.org", "do not take it"),
        ("*.example.org", "`[acme.dns]`"),
        ("192.0.2.7", "nobody outside can reach"),
        ("10.0.0.1", "nobody outside can reach"),
        ("100.64.0.1", "nobody outside can reach"),
        ("[fd00::1]", "nobody outside can reach"),
        ("8.8.8.8", "`profile = \"shortlived\"`"),
    ] {
        let help = refused("", host);
        assert!(help.contains(reason), "{host}: {help}");
    }
    let fits = format!("{}.org", "a".repeat(63));
    parse(&site(&format!(
        "\"{fits}\", \"xn--bcher-kva.de\", \"notlocal.de\""
    )))
    .expect("names");
}

#[test]
fn an_authority_of_ones_own_has_its_own_rules() {
    let own = "[[acme.authority]]\ndirectory = \"https://ca.lan/acme\"\n";
    let hosts = site("\"localhost\", \"a_b.internal\", \"10.0.0.1\"");
    let config = parse(&format!("{hosts}{own}")).expect("no problem");
    assert_eq!(config.acme.authorities[0].directory, "https://ca.lan/acme");
    let mixed = format!("{own}[[acme.authority]]\ndirectory = \"letsencrypt\"\n");
    parse(&format!("{hosts}{mixed}")).expect("the first one issues it");
    let dns = "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nhook = [\"a\"]\n";
    let help = refused(&format!("{dns}{own}"), "10.0.0.1");
    assert!(help.contains("\"tls-alpn-01\" or \"http-01\""), "{help}");
}

#[test]
fn short_lived_ones_are_for_addresses_too() {
    let profile = "[[acme.authority]]\ndirectory = \"letsencrypt\"\nprofile = \"shortlived\"\n";
    let config = parse(&format!("{}{profile}", site("\"8.8.8.8\", \"[2600::1]\""))).expect("valid");
    assert_eq!(
        config.acme.authorities[0].profile.as_deref(),
        Some("shortlived")
    );
}

#[test]
fn names_that_nobody_knows_in_advance_need_somebody_to_ask() {
    let problems = messages(&format!("[[site]]\n{ROOT}"));
    assert_eq!(
        problems,
        ["`tls`: the site has no `hosts` for which to get certificates"]
    );
    let ask = "[acme]\nask = \"http://127.0.0.1:9000/allowed\"\n";
    parse(&format!("{ask}[[site]]\n{ROOT}")).expect("on demand");
    let config = parse(&format!("{ask}{}", site("\"*.example.org\""))).expect("on demand");
    assert!(config.acme.is_on_demand("*.example.org"));
    assert!(!config.acme.is_on_demand("a.example.org"));
    let dns = "[acme.dns]\nserver = \"192.0.2.53:53\"\n";
    let config = parse(&format!("{ask}{dns}{}", site("\"*.example.org\""))).expect("by records");
    assert!(!config.acme.is_on_demand("*.example.org"));
}

#[test]
fn ports_where_authorities_do_not_look_are_noted() {
    let listen = "[[listen]]\naddress = \"8443\"\ntls = true\n[[listen]]\naddress = \"8080\"\n";
    let notes = |tables: &str| {
        let text = format!("{listen}{}{tables}", site("\"example.org\""));
        parse(&text).expect("no problem").note_texts()
    };
    let note = &notes("")[0];
    assert!(note.contains("ports 80 and 443"), "{note}");
    assert!(notes("[acme.dns]\nhook = [\"a\"]\n").is_empty());
    assert!(notes("[[acme.authority]]\ndirectory = \"https://ca.lan\"\n").is_empty());
    let only = "[[listen]]\naddress = \"443\"\n";
    let text = format!(
        "{only}{}[acme]\nchallenges = [\"http-01\"]\n",
        site("\"a.org\"")
    );
    let reports = reports(&text);
    assert!(
        reports[0].contains("none that is possible here"),
        "{reports:?}"
    );
}

#[test]
fn records_are_made_by_a_program_or_by_updates() {
    let dns = |keys: &str| format!("{}[acme.dns]\n{keys}\n", site("\"*.example.org\""));
    let hook = parse(&dns("hook = [\"/bin/hook\", \"a\"]")).expect("a hook");
    let words = ["/bin/hook", "a"].map(str::to_owned).to_vec();
    assert_eq!(hook.acme.dns, Some(Dns::Hook(words)));
    let update =
        parse(&dns("server = \"192.0.2.53:53\"\nzone = \"example.org\"")).expect("updates");
    let Some(Dns::Update { server, zone, key }) = update.acme.dns else {
        panic!("updates");
    };
    assert_eq!(server.to_string(), "192.0.2.53:53");
    assert_eq!((zone.as_deref(), key), (Some("example.org"), None));
    for (keys, message) in [
        ("", "`server` is missing"),
        ("hook = []", "`hook`: there is no program"),
        (
            "server = \"ns.example.org\"",
            "`ns.example.org` is not an address",
        ),
        (
            "server = \"192.0.2.53:53\"\nhook = [\"a\"]",
            "`hook`: `server` is given too; one of them is used",
        ),
    ] {
        let found = messages(&dns(keys));
        assert!(found.iter().any(|one| one == message), "{found:?}");
    }
}

#[test]
fn values_that_are_wrong() {
    for (tables, message) in [
        (
            "[acme]\ncontact = \"admin\"",
            "`admin` is not an address of mail",
        ),
        (
            "[acme]\nask = \"127.0.0.1:9000\"",
            "`127.0.0.1:9000` is not a URL with `http://` or `https://`",
        ),
        (
            "[acme]\nchallenges = [\"dns\"]",
            "`dns` is not a value of `challenges`",
        ),
        ("[acme]\nchallenges = []", "`challenges`: there is none"),
        ("[[acme.authority]]", "`directory` is missing"),
        (
            "[[acme.authority]]\ndirectory = \"lets\"",
            "`lets` is not a URL with `https://`",
        ),
        (
            "[[acme.authority]]\ndirectory = \"http://ca.lan/directory\"",
            "`http://ca.lan/directory` is not a URL with `https://`",
        ),
        (
            "[[acme.authority]]\ndirectory = \"zerossl\"",
            "`zerossl` wants an account that was made at its site",
        ),
        (
            "[[acme.authority]]\ndirectory = \"https://dv.acme-v02.api.pki.goog/directory\"",
            "`https://dv.acme-v02.api.pki.goog/directory` wants an account that was made at its site",
        ),
        (
            "[[acme.authority]]\ndirectory = \"google\"\naccount = \"a\"",
            "`account_key` is missing",
        ),
        (
            "[[acme.authority]]\ndirectory = \"google\"\naccount_key = \"a\"",
            "`account` is missing",
        ),
        (
            "[[acme.authority]]\ndirectory = \"https://ca.lan\"\n[[acme.authority]]\ndirectory = \"https://ca.lan\"",
            "`directory`: it is given twice",
        ),
    ] {
        let text = format!("{}{tables}\n", site("\"example.org\""));
        assert_eq!(messages(&text)[0], message, "{tables}");
    }
    let text = "[[site]]\nroot = \"/srv\"\ntls = \"auto\"\n";
    assert_eq!(messages(text)[0], "`auto` is not a value of `tls`");
    let both = "[[site]]\nhosts = [\"a.org\"]\nroot = \"/srv\"\n[site.tls]\nissuer = \"acme\"\ncertificates = [\"a\"]\n";
    assert_eq!(
        messages(both)[0],
        "`issuer`: there are files, too; one of them is used"
    );
}

/// One error says what to write, and none says what follows from it.
#[test]
fn values_of_another_type_are_one_error() {
    let files = "[[site]]\nhosts = [\"a.org\"]\nroot = \"/srv\"\n[site.tls]\n";
    let star = site("\"*.example.org\"");
    let one = site("\"example.org\"");
    for (text, message, help) in [
        (
            format!("{one}[acme]\nchallenges = \"http-01\"\n"),
            "expected an array of strings, found string",
            "write [\"http-01\"]",
        ),
        (
            format!("{one}[acme]\ncontact = [\"a@example.org\"]\n"),
            "expected a string, found array",
            "write one address, such as \"admin@example.org\"",
        ),
        (
            format!("{star}[acme.dns]\nhook = \"/bin/hook\"\n"),
            "expected an array of strings, found string",
            "write [\"/bin/hook\"]",
        ),
        (
            format!("{files}certificates = \"a.pem\"\nkeys = [\"a.key\"]\n"),
            "expected an array of strings, found string",
            "write [\"a.pem\"]",
        ),
        (
            format!("{files}certificates = [\"a.pem\"]\nkeys = \"a.key\"\n"),
            "expected an array of strings, found string",
            "write [\"a.key\"]",
        ),
        (
            "[[site]]\nroot = \"/srv\"\ntls = true\n".to_owned(),
            "expected \"acme\", \"internal\" or a table, found boolean",
            "write \"acme\" for certificates that browsers trust",
        ),
        (
            format!("{one}[site.tls]\nhsts = \"1d\"\n"),
            "`tls` is given twice",
            "in a table, `issuer = \"acme\"` stands for `tls = \"acme\"`",
        ),
    ] {
        let problems = parse(&text).expect_err(&text);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert_eq!(problems[0].message, message, "{text}");
        let given = problems[0].help.as_deref().unwrap_or_default();
        assert!(given.starts_with(help), "{text}: {given}");
    }
}

#[test]
fn what_nobody_uses_is_noted() {
    let notes = |text: &str| parse(text).expect("no problem").note_texts();
    let plain = "[[site]]\nroot = \"/srv\"\n";
    let unused = notes(&format!("[acme]\ncontact = \"a@example.org\"\n{plain}"));
    assert_eq!(
        unused,
        ["line 1: no site has `tls = \"acme\"`, which would use `[acme]`"]
    );
    let other = |host: &str| format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"/srv\"\n");
    let internal =
        "[[site]]\nhosts = [\"a.test\", \"*.a.test\"]\nroot = \"/srv\"\ntls = \"internal\"\n";
    let beside = notes(&format!("{internal}{}", other("b.test")));
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert!(
        beside[0].starts_with(
            "line 5: the site has no `tls`: over TLS, clients that ask for `b.test` get"
        ),
        "{beside:?}"
    );
    for text in [other("b.a.test"), plain.to_owned()] {
        assert_eq!(notes(&format!("{internal}{text}")), [""; 0]);
    }
}

#[test]
fn a_hook_that_cannot_be_started_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let loaded = |program: &str| {
        let file = folder.path().join("levity.toml");
        let text = format!(
            "{}[acme.dns]\nhook = [\"{program}\"]\n",
            site("\"*.example.org\"")
        );
        let root = folder.path().join("www");
        std::fs::create_dir_all(&root).expect("a folder");
        let text = text.replace("/srv", root.to_str().expect("UTF-8"));
        std::fs::write(&file, text).expect("written");
        crate::load(&file, &crate::Variables::default())
    };
    let absent = folder.path().join("absent").display().to_string();
    let reason = |program: &str| {
        loaded(program).expect_err("an error").problems[0]
            .message
            .clone()
    };
    assert!(reason(&absent).contains("absent cannot be started: No such file"));
    let data = folder.path().join("levity.toml").display().to_string();
    assert!(reason(&data).ends_with("levity.toml is not executable"));
    let notes = |program: &str| loaded(program).expect("no problem").note_texts();
    assert_eq!(notes("/bin/sh"), [""; 0]);
    assert_eq!(notes("sh"), [""; 0]);
    let note = &notes("levity-hook-that-is-nowhere")[0];
    assert!(
        note.contains("is not found here; write the whole path"),
        "{note}"
    );
}
