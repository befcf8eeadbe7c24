//! What other servers and likely guesses call things here, where one cannot stand for the other: what to write
//! instead. Names whose values fit are in [`Key::also`](super::keys::Key::also).

/// A key that is none of ours.
struct Foreign {
    theirs: &'static [&'static str],
    /// The tables in which it is looked for.
    places: &'static [&'static str],
    /// Our key in those tables; empty when there is none.
    ours: &'static str,
    /// What to do.
    help: &'static str,
}

const PLACES: &[&str] = &["site", "site.route"];
const ROUTE: &[&str] = &["site.route"];
const SITE: &[&str] = &["site"];
const LISTEN: &[&str] = &["listen"];
const UPSTREAM: &[&str] = &["upstream"];
const CHECK: &[&str] = &["upstream.check"];
const ANYWHERE: &[&str] = &[
    "",
    "server",
    "limits",
    "listen",
    "site",
    "site.route",
    "upstream",
];

const fn foreign(
    theirs: &'static [&'static str],
    places: &'static [&'static str],
    ours: &'static str,
    help: &'static str,
) -> Foreign {
    Foreign {
        theirs,
        places,
        ours,
        help,
    }
}

const KEYS: &[Foreign] = &[
    foreign(
        &["proxy_pass", "reverse_proxy", "upstream"],
        PLACES,
        "proxy",
        "`proxy` takes the name of an `[[upstream]]`, whose `to` has the address",
    ),
    foreign(
        &["fastcgi_pass"],
        PLACES,
        "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"fastcgi\"`, whose `to` has the address",
    ),
    foreign(
        &["client_max_body_size"],
        PLACES,
        "body_bytes",
        "`body_bytes`, a size such as \"100MiB\"; 0 takes no body at all",
    ),
    foreign(
        &["port"],
        LISTEN,
        "address",
        "`address` has the port too: \"127.0.0.1:8080\", or \"8080\" for every address of the machine",
    ),
    foreign(
        &["location"],
        &["", "site"],
        "",
        "it is `[[site.route]]`, with a `path`, beneath its `[[site]]`",
    ),
    foreign(
        &["server_name"],
        SITE,
        "hosts",
        "`hosts`, an array such as [\"example.org\"]",
    ),
    foreign(
        &["try_files"],
        PLACES,
        "try",
        "`try = [\"file\", \"proxy\"]`: the file if there is one, else the upstream",
    ),
    foreign(
        &["autoindex"],
        PLACES,
        "listing",
        "`listing`, which is `true` or `false`",
    ),
    foreign(
        &["alias"],
        ROUTE,
        "root",
        "`root`, and `strip_prefix` for what `path` begins with",
    ),
    foreign(
        &["add_header"],
        ROUTE,
        "headers",
        "`headers = { set = { NAME = \"VALUE\" } }`",
    ),
    foreign(
        &["add_header"],
        SITE,
        "",
        "`headers` of a `[[site.route]]`; for a whole site of one with path `/*`, last",
    ),
    foreign(
        &["gzip", "gzip_static", "compress", "encode"],
        ANYWHERE,
        "",
        "nothing is compressed on the fly; `precompressed` of a site sends files that were compressed before",
    ),
    foreign(
        &["redirect", "return"],
        PLACES,
        "",
        "there are no redirects and fixed answers yet",
    ),
    foreign(
        &["error_page", "error_pages"],
        PLACES,
        "",
        "there are no error pages of one's own yet",
    ),
    foreign(
        &["allow", "deny"],
        ANYWHERE,
        "",
        "nobody is allowed or denied by address yet",
    ),
    foreign(
        &["auth_basic", "basic_auth", "basicauth"],
        ANYWHERE,
        "",
        "there is no authentication yet",
    ),
    foreign(
        &["tls", "ssl", "ssl_certificate"],
        UPSTREAM,
        "",
        "there is no TLS to applications yet",
    ),
    foreign(
        &["tls", "ssl", "ssl_certificate"],
        ANYWHERE,
        "",
        "there is no TLS yet: put a proxy that terminates it in front",
    ),
    foreign(
        &["max_conns"],
        UPSTREAM,
        "connections",
        "`connections`, which holds for each backend",
    ),
    foreign(
        &["lb_policy"],
        UPSTREAM,
        "balance",
        "`balance` says who is asked, `sticky` what ties a client to a backend",
    ),
    foreign(
        &["proxy_read_timeout"],
        UPSTREAM,
        "first_byte_timeout",
        "`first_byte_timeout` until the answer begins, then `idle_timeout` between its parts",
    ),
    foreign(
        &["proxy_read_timeout"],
        ANYWHERE,
        "",
        "`first_byte_timeout` and `idle_timeout` of the `[[upstream]]`",
    ),
    foreign(
        &["health_uri"],
        UPSTREAM,
        "",
        "`path` of `[upstream.check]`",
    ),
    foreign(
        &["uri", "health_uri"],
        CHECK,
        "path",
        "`path`, such as \"/health\"",
    ),
];

/// Values that are none of ours, each with the key that they are given to and what to do.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "protocol",
        "https",
        "there is no TLS to applications yet, only \"http\"",
    ),
    (
        "protocol",
        "uwsgi",
        "\"scgi\", with uwsgi started with --scgi-socket",
    ),
    (
        "balance",
        "least_conn",
        "did you mean \"least-connections\"?",
    ),
    (
        "balance",
        "ip_hash",
        "`sticky = \"cookie:NAME\"` ties a client to a backend",
    ),
];

/// Our key for what others call `name` in the table `path`, empty when there is none, and what to do.
pub(super) fn key(path: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let is_meant = |one: &&Foreign| one.theirs.contains(&name) && one.places.contains(&path);
    let found = KEYS.iter().find(is_meant)?;
    Some((found.ours, found.help))
}

/// What to do about `word`, given to the key `name`.
pub(super) fn word(name: &str, word: &str) -> Option<&'static str> {
    let mut words = WORDS.iter();
    let (.., help) = words.find(|(key, theirs, _)| *key == name && *theirs == word)?;
    Some(help)
}

#[cfg(test)]
mod tests {
    use super::super::keys::{TABLES, Table};
    use super::*;

    /// A hint that names a key which is gone, or stands where nobody looks, helps nobody.
    #[test]
    fn hints_are_about_what_is_there() {
        for Foreign {
            theirs,
            places,
            ours,
            ..
        } in KEYS
        {
            for place in *places {
                let table = Table::find(place);
                let names: Vec<&str> = table.names().collect();
                assert!(ours.is_empty() || names.contains(ours), "{place} {ours}");
                for name in *theirs {
                    assert!(!names.contains(name), "{place} {name}");
                }
            }
        }
        for (key, ..) in WORDS {
            let mut keys = TABLES.iter().flat_map(|table| table.keys);
            assert!(keys.any(|known| known.name == *key), "{key}");
        }
    }
}
