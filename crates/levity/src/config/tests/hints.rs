//! What is said to guesses, and to keys and words of other servers.

use super::upstream::UPSTREAM;
use super::*;

/// The one problem of `text`: its message and its help.
#[track_caller]
fn only(text: &str) -> (String, String) {
    let problems = parse(text).expect_err(text);
    assert_eq!(problems.len(), 1, "{text}: {problems:?}");
    let Problem { message, help, .. } = problems.into_iter().next().unwrap();
    (message, help.unwrap_or_default())
}

#[test]
fn keys_of_other_servers() {
    for (table, line, help) in [
        ("[[listen]]\n", "port = 80", "`address` has the port too"),
        ("", "[[location]]", "it is `[[site.route]]`"),
        ("", "[tls]", "there is no TLS yet"),
        ("[server]\n", "gzip = true", "`precompressed`"),
        ("[limits]\n", "proxy_read_timeout = 1", "`[[upstream]]`"),
        (UPSTREAM, "max_conns = 1", "`connections`"),
        (UPSTREAM, "proxy_read_timeout = 1", "then `idle_timeout`"),
        (UPSTREAM, "lb_policy = \"x\"", "`balance`"),
        (UPSTREAM, "tls = true", "no TLS to applications yet"),
        (
            UPSTREAM,
            "health_uri = \"/\"",
            "`path` of `[upstream.check]`",
        ),
        (UPSTREAM, "check = { uri = \"/\" }", "`path`, such as"),
    ] {
        let (message, told) = only(&format!("{table}{line}\n{SITE}"));
        assert!(message.starts_with("unknown key"), "{line}: {message}");
        assert!(told.contains(help), "{line}: {told}");
    }
}

#[test]
fn keys_of_other_servers_in_sites_and_routes() {
    let both = [
        SITE,
        "[[site]]\nroot = \"/\"\n[[site.route]]\npath = \"/a\"\n",
    ];
    for (line, help) in [
        ("redirect = \"/\"", "no redirects"),
        ("return = 301", "no redirects"),
        ("try_files = \"$uri\"", "`try = [\"file\", \"proxy\"]`"),
        ("autoindex = \"on\"", "`listing`"),
        ("upstream = \"a\"", "`proxy` takes the name"),
        ("reverse_proxy = \"a\"", "`proxy` takes the name"),
        ("add_header = \"A: 1\"", "`headers"),
        ("gzip = true", "`precompressed`"),
        ("tls = true", "there is no TLS yet"),
        ("deny = \"all\"", "by address yet"),
        ("auth_basic = \"a\"", "no authentication yet"),
        ("error_page = \"/a\"", "no error pages"),
    ] {
        for before in both {
            let (message, told) = only(&format!("{before}{line}"));
            assert!(message.starts_with("unknown key"), "{line}: {message}");
            assert!(told.contains(help), "{line}: {told}");
        }
    }
    let of_site = [
        ("server_name = \"a\"", "`hosts`"),
        ("location = {}", "`[[site.route]]`"),
    ];
    for (line, help) in of_site {
        let (_, told) = only(&format!("{SITE}{line}"));
        assert!(told.contains(help), "{line}: {told}");
    }
    let (_, told) = only(&format!("{}alias = \"/b\"", both[1]));
    assert!(told.contains("`strip_prefix`"), "{told}");
}

#[test]
fn tables_without_what_they_belong_to() {
    let (message, _) = only("[[site.route]]\npath = \"/a\"");
    assert_eq!(message, "`[[site.route]]` needs a `[[site]]` before it");
    let (message, _) = only(&format!("[upstream.check]\npath = \"/a\"\n{SITE}"));
    assert_eq!(
        message,
        "`[upstream.check]` needs a `[[upstream]]` before it"
    );
}

#[test]
fn words_of_other_servers() {
    for (key, word, help) in [
        ("protocol", "https", "no TLS to applications yet"),
        ("protocol", "uwsgi", "--scgi-socket"),
        ("balance", "least_conn", "\"least-connections\""),
        ("balance", "ip_hash", "`sticky"),
    ] {
        let (message, told) = only(&format!("{UPSTREAM}{key} = \"{word}\"\n{SITE}"));
        assert_eq!(message, format!("`{word}` is no value of `{key}`"));
        assert!(told.contains(help), "{word}: {told}");
    }
}
