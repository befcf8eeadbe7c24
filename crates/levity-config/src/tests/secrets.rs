//! What is sent to nobody.

use super::*;
use crate::schema::Kind;

/// Keys with paths, or several of them, of what everyone may have, or what other rules keep from clients.
const NO_SECRETS: &[(&str, &str)] = &[
    ("disk", "spool"),
    ("disk", "variants"),
    ("acme.authority", "roots"),
    ("site", "root"),
    ("site.route", "root"),
    ("site.route", "reroute"),
    ("site.route", "strip_prefix"),
    ("site.tls", "client_authorities"),
    ("site.forward_auth", "path"),
    ("site.route.forward_auth", "path"),
    // A set of public keys may be for clients. It is a secret if it has one.
    ("site.jwt", "keys"),
    ("site.route.jwt", "keys"),
    ("upstream.tls", "authorities"),
    // It is a secret if the key is in it.
    ("upstream.tls", "certificate"),
    ("upstream.check", "path"),
    ("mailbox_store", "folder"),
];

#[test]
fn each_path_of_the_table_is_a_secret_or_known_to_be_none() {
    let mut known = NO_SECRETS.to_vec();
    for table in TABLES {
        for key in table.keys {
            let is_path = matches!(key.kind, Kind::Text("a path"));
            let is_none = known.iter().position(|one| *one == (table.path, key.name));
            let _ = is_none.map(|number| known.remove(number));
            let is_known = is_none.is_some() != key.is_secret;
            let has_no_path = !is_path && is_none.is_none();
            assert!(is_known || has_no_path, "{} {}", table.path, key.name);
        }
    }
    assert_eq!(known, []);
}

#[test]
fn the_list_of_secrets() {
    let text = "
[tls]
folder = \"/s/tls\"
ticket_keys = [\"/s/ticket\", \"/s/ticket2\"]
[[acme.authority]]
directory = \"https://ca.example/\"
account = \"a\"
account_key = \"/s/account\"
[acme.dns]
server = \"192.0.2.53:53\"
key = \"/s/tsig\"
[[listen]]
address = \"443\"
[[site]]
hosts = [\"a.example\"]
root = \"/srv\"
tls = { certificates = [\"/s/cert\"], keys = [\"/s/key\"] }
basic_auth = { users = \"/s/users\" }
signed_url = { secret_file = \"/s/url\" }
jwt = { secret_file = \"/s/jwt\" }
[[site]]
hosts = [\"b.example\"]
root = \"/srv\"
tls = { certificates = [\"/s/both\"] }
proxy = \"a\"
[[upstream]]
name = \"a\"
to = [\"https://192.0.2.1:443\"]
tls = { certificate = \"/s/client\", key = \"/s/client-key\" }
[[upstream]]
name = \"b\"
to = [\"https://192.0.2.1:443\"]
tls = { certificate = \"/s/client-both\" }
[[site]]
hosts = [\"c.example\"]
mailbox = \"a\"
[[mailbox]]
name = \"a\"
publish_key_file = \"/s/publish\"
grip_key_file = \"/s/grip\"
";
    let config = parse(text).expect(text);
    let secrets: Vec<_> = config
        .secrets
        .iter()
        .filter_map(|path| path.to_str())
        .collect();
    let expected = [
        "account",
        "both",
        "client-both",
        "client-key",
        "grip",
        "jwt",
        "key",
        "publish",
        "ticket",
        "ticket2",
        "tls",
        "tsig",
        "url",
        "users",
    ];
    assert_eq!(secrets, expected.map(|name| format!("/s/{name}")));
}

#[test]
fn secrets_beneath_roots_are_noted_also_without_gates() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let notes = |root: &str, table: &str| {
        let text = format!("[[site]]\nroot = \"{root}\"\n{table}");
        std::fs::write(at("levity.toml"), text).expect("a file");
        load(&at("levity.toml"))
            .expect("a configuration")
            .note_texts()
    };
    std::fs::create_dir(at("www")).expect("a folder");
    std::os::unix::fs::symlink("www", at("link")).expect("a link");
    for name in ["www/keys.json", "www/url"] {
        let key =
            "{\"keys\":[{\"kty\":\"oct\",\"k\":\"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY\"}]}";
        std::fs::write(at(name), key).expect("a file");
    }
    let note = |line: usize, name: &str, path: &str| {
        let shown = at(name).display().to_string();
        format!(
            "line {line}: {shown} lies beneath a `root`, at `{path}` of the site on line 1: nobody gets it, but move it to a folder \
             that is not served"
        )
    };
    assert_eq!(notes("www", ""), [""; 0]);
    assert_eq!(notes(".", ""), [note(1, "levity.toml", "/levity.toml")]);
    let url = "signed_url = { secret_file = \"www/url\" }\n";
    assert_eq!(notes("link", url), [note(3, "www/url", "/url")]);
    let keys = "jwt = { keys = \"link/keys.json\" }\n";
    assert_eq!(
        notes("www", keys),
        [note(3, "link/keys.json", "/keys.json")]
    );
    let tickets = "[tls]\nticket_keys = [\"www/tickets\"]\n";
    std::fs::write(at("www/tickets"), [7; 80]).expect("a file");
    assert_eq!(notes("www", tickets), [note(4, "www/tickets", "/tickets")]);
}
