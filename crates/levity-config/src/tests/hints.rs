//! Hints for misspelt keys, and for keys and values of other servers.

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
        (
            "[server]\n",
            "letsencrypt = true",
            "`tls = \"acme\"` of a site",
        ),
        ("[server]\n", "gzip = true", "`compress = true` of a"),
        ("[limits]\n", "proxy_read_timeout = 1", "`[[upstream]]`"),
        (UPSTREAM, "max_conns = 1", "`connections`"),
        (UPSTREAM, "proxy_read_timeout = 1", "then `idle_timeout`"),
        (UPSTREAM, "lb_policy = \"x\"", "`balance`"),
        (UPSTREAM, "ssl = true", "`https://` before the backends"),
        (UPSTREAM, "grpc_ssl_verify = true", "`[upstream.tls]`"),
        (UPSTREAM, "grpc_read_timeout = 1", "then `idle_timeout`"),
        (UPSTREAM, "grpc_pass = \"a:1\"", "`to`, an array"),
        (UPSTREAM, "http2 = true", "`protocol = \"h2\"`"),
        (UPSTREAM, "grpc = true", "`protocol = \"h2\"`"),
        (
            UPSTREAM,
            "health_uri = \"/\"",
            "`path` of `[upstream.check]`",
        ),
        (UPSTREAM, "check = { uri = \"/\" }", "`path`, such as"),
    ] {
        let (message, reports) = only(&format!("{table}{line}\n{SITE}"));
        assert!(message.starts_with("unknown key"), "{line}: {message}");
        assert!(reports.contains(help), "{line}: {reports}");
    }
}

/// Keys that are often tried, in the tables where they are tried.
#[test]
fn keys_that_are_often_tried() {
    let route = "[[site]]\nroot = \"/\"\n[[site.route]]\npath = \"/a\"\n";
    for (line, help) in [
        ("listen = \"80\"", "`address` of `[[listen]]`"),
        ("port = 80", "`address` of `[[listen]]`"),
        ("server_tokens = false", "never contains the version"),
        ("keepalive_timeout = 1", "`idle_timeout` of `[limits]`"),
        ("keepAlive = 1", "`idle_timeout` of `[limits]`"),
        ("mime = {}", "Content-Type"),
        ("default_type = \"a\"", "Content-Type"),
        ("expires = \"1h\"", "`cache = \"1h\"`"),
        ("access_log = \"/a\"", "`access` of `[log]`"),
        ("error_log = \"/a\"", "standard error"),
        ("limit_req = 1", "`limit = [{ requests = \"10/s\""),
        ("jwt = { secret = \"abc\" }", "`secret_file`, a file with"),
        ("limit_rate_after = 1", "`limit = [{ bytes = \"1MiB/s\""),
        ("limit_conn = 1", "`limit = [{ connections = 8 }]`"),
        ("http2 = true", "HTTP/2 needs no key"),
        ("http3 = true", "no HTTP/3"),
        ("brotli = true", "`compress = true`"),
        ("gzip_types = []", "`compress_types"),
        ("allow_origin = true", "`cors = {"),
        ("spa = true", "`try = [\"file\", \"/index.html\"]`"),
        ("proxy_cache = \"a\"", "not cached yet"),
        ("user = \"a\"", "`User=`"),
        ("include = \"a\"", "above its first table"),
        (
            "ssl_certificate_key = \"a\"",
            "`[site.tls]` has `certificates`",
        ),
        ("document-root = \"/a\"", "`root`, the path"),
        ("websocket = true", "works by default"),
        ("proxy_set_header = \"a\"", "`request_headers"),
        ("grpc_set_header = \"a\"", "`request_headers"),
        ("grpc_pass = \"a\"", "with `protocol = \"h2\"`"),
        ("grpc_connect_timeout = 1", "`connect_timeout` of the"),
        ("grpc_next_upstream_tries = 1", "`times` and `for`"),
        ("grpc_ssl_certificate = \"a\"", "`[upstream.tls]`"),
        ("proxy_ssl_server_name = true", "`[upstream.tls]`"),
        ("grpc_socket_keepalive = true", "speaks gRPC"),
        ("autoindex_format = \"a\"", "`listing`"),
        ("sendfile = true", "`engine` of `[disk]`"),
        ("timeout = \"1s\"", "`first_byte_timeout` and"),
        ("read_timeout = \"1s\"", "`first_byte_timeout` and"),
        ("hsts = true", "`hsts` of `[site.tls]`"),
        ("alias = \"/b\"", "`strip_prefix`"),
        (
            "set_real_ip_from = \"a\"",
            "`trusted_proxies` of `[server]`",
        ),
        ("real_ip_header = \"a\"", "`trusted_proxies` of `[server]`"),
        ("uwsgi_pass = \"a\"", "--scgi-socket"),
        ("handle = {}", "`[[site.route]]`, with a `path`"),
        ("handle_path = {}", "`strip_prefix` removes"),
        ("sub_filter = \"a\"", "`substitute = {"),
        ("sub_filter_types = \"a\"", "`substitute_types`, an array"),
        ("sub_filter_once = false", "replaces every occurrence"),
        ("SubstituteMaxLineLength = \"1m\"", "knows no lines"),
        ("templates = true", "no templates"),
    ] {
        for before in [SITE, route] {
            let (message, reports) = only(&format!("{before}{line}"));
            assert!(message.starts_with("unknown key"), "{line}: {message}");
            assert!(reports.contains(help), "{line}: {reports}");
        }
    }
    for (table, line, help) in [
        ("", "port = 80", "`address` of `[[listen]]`"),
        ("", "bind = \"a\"", "`address` of `[[listen]]`"),
        ("", "handle = {}", "`[[site.route]]`"),
        ("", "servers = []", "is a `[[site]]` here"),
        ("", "[events]", "`connections` of `[limits]`"),
        ("[server]\n", "sub_filter = \"a\"", "of a site or route"),
        (
            "",
            "read_timeout = \"1s\"",
            "`header_timeout` and `body_timeout`",
        ),
        (
            "[limits]\n",
            "read_timeout = \"1s\"",
            "`header_timeout` and",
        ),
        (
            "[server]\n",
            "set_real_ip_from = \"a\"",
            "`trusted_proxies`, whose",
        ),
        ("[server]\n", "log = \"a\"", "at the top"),
        (
            "[[listen]]\naddress = \"80\"\n",
            "reuseport = true",
            "nothing to set",
        ),
        ("", "resolver = \"a\"", "by the system"),
        ("", "user = \"a\"", "`User=`"),
        ("", "worker_processes = 1", "`workers` of `[server]`"),
        ("", "error_log = \"a\"", "standard error"),
        ("", "access_log = \"a\"", "`access` of `[log]`"),
        ("", "[http]", "at the top level"),
        ("", "[metrics]", "`listen` of `[admin]`"),
        (
            "[server]\n",
            "server_tokens = \"off\"",
            "never contains the version",
        ),
        ("[server]\n", "listen = 80", "`address` of `[[listen]]`"),
        (
            "[server]\n",
            "server_name = \"a\"",
            "`hosts` of a `[[site]]`",
        ),
        (
            "[server]\n",
            "keepalive_timeout = 1",
            "`idle_timeout` of `[limits]`",
        ),
        ("[server]\n", "daemon = true", "stays in the foreground"),
        ("[limits]\n", "keepalive_timeout = 1", "`idle_timeout`, for"),
        ("[limits]\n", "worker_connections = 1", "`connections`, for"),
        ("[limits]\n", "limit_conn = 1", "`[[site.limit]]`"),
        ("[log]\n", "error_log = \"a\"", "standard error"),
        ("[log]\n", "log_format = \"a\"", "`format`"),
        (
            "[limits]\n",
            "compress_memory = \"1MiB\"",
            "did you mean `compression_memory`?",
        ),
        (UPSTREAM, "server = \"a\"", "`to`, an array"),
        (
            UPSTREAM,
            "keepaliveTimeout = \"1s\"",
            "did you mean `keep_alive_timeout`?",
        ),
        (UPSTREAM, "timeout = \"1s\"", "`first_byte_timeout`"),
    ] {
        let (message, reports) = only(&format!("{table}{line}\n{SITE}"));
        assert!(message.starts_with("unknown key"), "{line}: {message}");
        assert!(reports.contains(help), "{line}: {reports}");
    }
}

#[test]
fn a_server_of_nginx_is_a_site() {
    let (message, reports) = only(&format!("[[server]]\nworkers = 1\n{SITE}"));
    assert_eq!(message, "expected a table, found array");
    assert!(reports.contains("is a `[[site]]` here"), "{reports}");
    let (_, reports) = only(&format!("[[log]]\n{SITE}"));
    assert_eq!(reports, "write `[log]`");
}

#[test]
fn ways_to_try() {
    for (word, help) in [
        ("index.html", "write \"/index.html\""),
        ("$uri", "write \"file\""),
        ("$uri/", "write \"directory\""),
        ("{path}.html", "write \"file.html\""),
        ("=404", "write the number"),
        ("404", "write the number"),
        ("@app", "\"proxy\" is the upstream"),
        ("files", "did you mean \"file\"?"),
        ("nothing", "one of \"file\", \"file.html\""),
    ] {
        let (message, reports) = only(&format!("{SITE}try = [\"file\", \"{word}\"]"));
        assert_eq!(message, format!("`{word}` is not a value of `try`"));
        assert!(reports.contains(help), "{word}: {reports}");
    }
}

/// A guess is a key of this table or names its table. Keys that resemble none have no guess.
#[test]
fn guesses_are_close() {
    for (line, help) in [
        ("lisitng = true", "did you mean `listing`?"),
        ("listning = true", "did you mean `listing`?"),
        ("worker = 1", "did you mean `workers` of `[server]`?"),
        ("workers = 1", "`workers` is a key of `[server]`"),
        (
            "path = \"/\"",
            "`path` is a key of `[site.forward_auth]`, `[[site.route]]`,",
        ),
        ("rise = 1", "`rise` is a key of `[upstream.check]`"),
        ("check = {}", "it is `[upstream.check]`"),
        ("lifting_the_site = 1", "known here: `hosts`"),
        ("moat = 1", "known here: `hosts`"),
    ] {
        let (message, reports) = only(&format!("{SITE}{line}"));
        assert!(message.starts_with("unknown key"), "{line}: {message}");
        assert!(reports.starts_with(help), "{line}: {reports}");
    }
}

#[test]
fn keys_of_other_servers_in_sites_and_routes() {
    let both = [
        SITE,
        "[[site]]\nroot = \"/\"\n[[site.route]]\npath = \"/a\"\n",
    ];
    for (line, help) in [
        ("return = 301", "`redirect = { to = "),
        (
            "try_files = \"$uri\"",
            "`try = [\"file\", \"directory\", \"proxy\"]`",
        ),
        ("autoindex = \"on\"", "`listing`"),
        ("upstream = \"a\"", "`proxy` takes the name"),
        ("reverse_proxy = \"a\"", "`proxy` takes the name"),
        ("add_header = \"A: 1\"", "`headers"),
        ("gzip = true", "`compress = true`"),
        ("gzip_comp_level = 6", "`compress_codings"),
        ("compress_level = 6", "`compress_codings = ["),
        ("compress_min_length = 20", "`compress_min_bytes`"),
        (
            "compress_dictionary = true",
            "did you mean `compress_dictionaries`?",
        ),
        ("gzip_types = \"text/css\"", "`compress_types"),
        ("brotli_static = true", "`precompressed"),
        ("https = true", "`[site.tls]` has `certificates`"),
        ("allow_from = \"10.0.0.1\"", "`allow = ["),
        ("satisfy = \"any\"", "pass every gate"),
        ("auth_basic = \"a\"", "`basic_auth = {"),
        ("auth_request = \"/a\"", "`forward_auth = {"),
        ("secure_link_md5 = \"a\"", "`signed_url = {"),
        ("auth_jwt = \"a\"", "`jwt = {"),
        ("error_page = \"/a\"", "`error_pages = {"),
        ("fastcgi_intercept_errors = true", "`replace_errors"),
        (
            "fastcgi_cache = \"a\"",
            "responses of applications are not cached",
        ),
        ("fastcgi_read_timeout = \"1s\"", "`first_byte_timeout`"),
        (
            "ssl_protocols = \"TLSv1.2\"",
            "leave it out: TLS 1.3 and 1.2",
        ),
        ("fastcgi_index = \"index.php\"", "`script_suffix` selects"),
    ] {
        for before in both {
            let (message, reports) = only(&format!("{before}{line}"));
            assert!(message.starts_with("unknown key"), "{line}: {message}");
            assert!(reports.contains(help), "{line}: {reports}");
        }
    }
    let of_site = [
        ("server_name = \"a\"", "`hosts`"),
        ("location = {}", "`[[site.route]]`"),
    ];
    for (line, help) in of_site {
        let (_, reports) = only(&format!("{SITE}{line}"));
        assert!(reports.contains(help), "{line}: {reports}");
    }
    let (_, reports) = only(&format!("{}alias = \"/b\"", both[1]));
    assert!(reports.contains("`strip_prefix`"), "{reports}");
}

#[test]
fn values_that_are_nearly_right() {
    for (line, message, help) in [
        (
            "symlinks = true",
            "expected a string, found boolean",
            "one of `beneath`, `follow`",
        ),
        (
            "listing = \"on\"",
            "expected `true` or `false`, found string",
            "write true",
        ),
        (
            "listing = \"Off\"",
            "expected `true` or `false`, found string",
            "write false",
        ),
        (
            "listing = 1",
            "expected `true` or `false`, found integer",
            "write true",
        ),
        (
            "listing = \"maybe\"",
            "expected `true` or `false`, found string",
            "",
        ),
        (
            "compress = [\"gzip\"]",
            "expected `true` or `false`, found array",
            "write `compress = true` and `compress_codings = [\"gzip\"]`",
        ),
        (
            "compress = \"br\"",
            "expected `true` or `false`, found string",
            "write `compress = true` and `compress_codings = [\"br\"]`",
        ),
        (
            "compress = \"on\"",
            "expected `true` or `false`, found string",
            "write true",
        ),
        (
            "precompressed = true",
            "expected an array of strings, found boolean",
            "write [\"zstd\", \"br\", \"gzip\"], or [] for none",
        ),
        (
            "hosts = [\"_\"]",
            "`_` is not a host name",
            "leave `hosts` out to answer any host",
        ),
    ] {
        let (found, reports) = only(&format!("{SITE}{line}"));
        assert_eq!(
            (found.as_str(), reports.as_str()),
            (message, help),
            "{line}"
        );
    }
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
fn a_path_in_the_place_of_headers() {
    let (_, help) = only(&format!(
        "{UPSTREAM}{SITE}proxy = \"app\"\nrewrite = {{ to = \"/b\" }}"
    ));
    assert!(
        help.contains("`reroute` of a `[[site.route]]` without `proxy`"),
        "{help}"
    );
    let (_, help) = only(&format!(
        "{UPSTREAM}{SITE}proxy = \"app\"\nrewrite = {{ path = {{ \"/a\" = \"/b\" }} }}"
    ));
    assert!(help.contains("`cookie_path = {"), "{help}");
}

#[test]
fn words_of_other_servers() {
    for (key, word, help) in [
        ("protocol", "https", "`https://` before the backends"),
        ("protocol", "uwsgi", "--scgi-socket"),
        ("balance", "least_conn", "\"least-connections\""),
        ("balance", "ip_hash", "`sticky"),
    ] {
        let (message, reports) = only(&format!("{UPSTREAM}{key} = \"{word}\"\n{SITE}"));
        assert_eq!(message, format!("`{word}` is not a value of `{key}`"));
        assert!(reports.contains(help), "{word}: {reports}");
    }
}

/// Whoever does what the hint says has a configuration that is accepted.
#[test]
fn hints_that_are_followed() {
    let limit = |keys: &str| format!("{SITE}limit = [{{ {keys} }}]\n");
    let upload = |keys: &str| format!("{SITE}upload = {{ {keys} }}\n");
    let site = |line: &str| format!("{SITE}{line}\n");
    let top = |line: &str| format!("{line}\n{SITE}");
    let rate = "requests = \"10/s\"";
    let route = |line: &str| format!("{SITE}[[site.route]]\n{line}\nrespond = {{}}\n");
    for (wrong, help, right) in [
        (
            limit("rate = \"10/s\""),
            "`requests`, such as \"10/s\"",
            limit(rate),
        ),
        (
            limit("rate = \"1mb/s\""),
            "or `bytes`, such as \"1MiB/s\"",
            limit("bytes = \"1MiB/s\""),
        ),
        (
            limit("limit_req = 1"),
            "`requests`, such as \"10/s\"",
            limit(rate),
        ),
        (
            limit("limit_rate = 1"),
            "`bytes`, such as \"1MiB/s\"",
            limit("bytes = \"1MiB/s\""),
        ),
        (
            limit("limit_conn = 8"),
            "`connections`, such as 8",
            limit("connections = 8"),
        ),
        (
            limit(&format!("{rate}, burst = 20")),
            "`after`, which counts the first request too: 21",
            limit(&format!("{rate}, after = 21")),
        ),
        (
            route("match = \"/c\""),
            "`path`, such as",
            route("path = \"/c\""),
        ),
        (
            limit(&format!("{rate}, zone = \"a\"")),
            "leave it out: `per`",
            limit(rate),
        ),
        (
            limit(&format!("{rate}, nodelay = true")),
            "leave it out: requests",
            limit(rate),
        ),
        (
            limit(&format!("{rate}, dry_run = true")),
            "`report_only = true`",
            limit(&format!("{rate}, report_only = true")),
        ),
        (
            limit(&format!("{rate}, status = 503")),
            "leave it out: a refused request",
            limit(rate),
        ),
        (limit("requests = 10"), "write \"10/s\"", limit(rate)),
        (
            limit("bytes = 1000"),
            "write \"1000/s\"",
            limit("bytes = \"1000/s\""),
        ),
        (
            limit("requests = \"10\""),
            "did you mean \"10/s\"?",
            limit(rate),
        ),
        (
            limit("requests = \"10r/m\""),
            "did you mean \"10/m\"?",
            limit("requests = \"10/m\""),
        ),
        (
            limit("requests = \"1MiB/s\""),
            "a size is for `bytes`",
            limit("bytes = \"1MiB/s\""),
        ),
        (
            limit("bytes = \"1mb/s\""),
            "did you mean \"1MB/s\"?",
            limit("bytes = \"1MB/s\""),
        ),
        (
            limit("bytes = \"1m/10S\""),
            "did you mean \"1MiB/10s\"?",
            limit("bytes = \"1MiB/10s\""),
        ),
        (
            limit("bytes = \"1MiB/S\""),
            "did you mean \"1MiB/1s\"?",
            limit("bytes = \"1MiB/1s\""),
        ),
        (
            limit("bytes = \"1MiB\""),
            "did you mean \"1MiB/s\"?",
            limit("bytes = \"1MiB/s\""),
        ),
        (
            limit(&format!("{rate}, after = 0")),
            "write 1,",
            limit(&format!("{rate}, after = 1")),
        ),
        (
            limit("bytes = \"1MiB/s\", after = 0"),
            "or leave it out",
            limit("bytes = \"1MiB/s\""),
        ),
        (
            site("limit = \"5/s\""),
            "write `limit = [{ requests = \"5/s\" }]`",
            limit("requests = \"5/s\""),
        ),
        (
            top("[[limit]]\nrequests = \"10/s\""),
            "`[[site.limit]]`, behind its `[[site]]`",
            site("[[site.limit]]\nrequests = \"10/s\""),
        ),
        (
            top("[server]\nlimit = []"),
            "`[[site.limit]]`, behind its `[[site]]`",
            site("[[site.limit]]\nrequests = \"10/s\""),
        ),
        (
            upload("client_max_body_size = \"1m\""),
            "`max_file_bytes`, a size such as \"100MiB\"",
            upload("max_file_bytes = \"100MiB\""),
        ),
        (
            upload("create_full_put_path = true"),
            "`create_folders = true`",
            upload("create_folders = true"),
        ),
        (
            upload("dav_methods = \"PUT\""),
            "`methods = [\"PUT\", \"DELETE\", \"MKCOL\"]`",
            upload("methods = [\"PUT\", \"DELETE\", \"MKCOL\"]"),
        ),
        (
            upload("dav_access = \"user:rw\""),
            "leave it out: files",
            upload(""),
        ),
        (
            site("create_full_put_path = true"),
            "`upload = { create_folders = true }`",
            upload("create_folders = true"),
        ),
        (
            site("upload = true"),
            "write `upload = { methods = [\"PUT\"] }`",
            upload("methods = [\"PUT\"]"),
        ),
        (
            site("upload = \"DELETE\""),
            "write `upload = { methods = [\"DELETE\"] }`",
            upload("methods = [\"DELETE\"]"),
        ),
        (
            site("upload = [\"PUT\"]"),
            "write `upload = { methods = [\"PUT\"] }`",
            upload("methods = [\"PUT\"]"),
        ),
        (
            site("log = \"off\""),
            "write `log = { access = \"off\" }`",
            site("log = { access = \"off\" }"),
        ),
        (
            top("log = \"off\""),
            "write `log = { access = \"off\" }`",
            top("log = { access = \"off\" }"),
        ),
        (
            top("log = false"),
            "write `log = { access = \"off\" }`",
            top("log = { access = \"off\" }"),
        ),
        (
            site("log = true"),
            "or `log = { access = \"stdout\" }`",
            site("log = { access = \"off\" }"),
        ),
        (
            site("redirect = { to = \"https://a.example$uri\" }").replace("root = \"/srv\"\n", ""),
            "here it is `{path}`",
            site("redirect = { to = \"https://a.example{path}\" }")
                .replace("root = \"/srv\"\n", ""),
        ),
    ] {
        let (_, reports) = only(&wrong);
        assert!(reports.contains(help), "{wrong}: {reports}");
        let meant = reports
            .strip_prefix("write `")
            .and_then(|rest| rest.split('`').next());
        let meant = meant.or_else(|| reports.strip_prefix("did you mean \"")?.strip_suffix("\"?"));
        assert!(
            meant.is_none_or(|meant| right.contains(meant)),
            "{wrong}: {reports}"
        );
        assert!(parse(&right).is_ok(), "{right}");
    }
}

#[test]
fn all_fields_of_a_format_at_once() {
    let text = format!("[log]\nformat = \"{{remote_addr}} {{statsu}} $uri\"\n{SITE}");
    let problems = parse(&text).expect_err("three fields");
    let helps: Vec<_> = problems
        .iter()
        .filter_map(|problem| problem.help.as_deref())
        .collect();
    let expected = ["`{peer}`", "`{status}`", "`{path}`"].map(|own| format!("did you mean {own}?"));
    assert_eq!(helps, expected);
    assert!(
        problems
            .iter()
            .all(|problem| problem.position.as_ref().is_some_and(|at| at.line == 2))
    );
}

/// Words of other servers that keep messages.
#[test]
fn mailboxes_of_other_servers() {
    let set = "[[mailbox]]\nname = \"a\"\n";
    let resume = format!("{UPSTREAM}[[site]]\nproxy = \"app\"\n[site.resume]\n");
    for (before, line, help) in [
        (SITE, "nchan_publisher = true", "`mailbox = \"NAME\"`"),
        (SITE, "nchan_pubsub = \"websocket\"", "`mailbox = \"NAME\"`"),
        (SITE, "push_stream_subscriber = 1", "`mailbox = \"NAME\"`"),
        (SITE, "mercure = {}", "`mailbox = \"NAME\"`"),
        (SITE, "nchan_channel_id = \"$1\"", "behind `strip_prefix`"),
        (
            SITE,
            "nchan_message_buffer_length = 10",
            "`messages` of the `[[mailbox]]`",
        ),
        (
            SITE,
            "nchan_message_timeout = \"5m\"",
            "`lifetime` of the `[[mailbox]]`",
        ),
        (
            SITE,
            "nchan_authorize_request = \"/a\"",
            "`forward_auth` of a site",
        ),
        (SITE, "nchan_redis_url = \"a\"", "`store = \"redis\"`"),
        (
            SITE,
            "push_stream_shared_memory_size = 1",
            "`mailbox_memory` of `[limits]`",
        ),
        (SITE, "nchan_group_location = 1", "`[[mailbox]]` has the"),
        (
            SITE,
            "publisher_jwt = \"a\"",
            "`claim` of the `[[mailbox]]`",
        ),
        ("[server]\n", "mercure = 1", "`[[mailbox]]` has the"),
        (
            "[limits]\n",
            "nchan_max_reserved_memory = 1",
            "`mailbox_memory`",
        ),
        (set, "nchan_message_buffer_length = 1", "`messages`, a"),
        (set, "history_ttl = 1", "`lifetime`, a duration"),
        (set, "nchan_message_max_size = 1", "`message_bytes`, a"),
        (set, "nchan_channel_timeout = 1", "`idle`, a duration"),
        (set, "max_subscribers = 1", "`receivers`, a number"),
        (set, "ping_interval = 1", "`heartbeat`, a duration"),
        (set, "publisher_jwt = 1", "`claim`, and `jwt`"),
        (set, "publish_key = \"a\"", "`publish_key_file`, a file"),
        (set, "grip_key = \"a\"", "`grip_key_file`, a file"),
        (set, "allowed_origins = []", "`origins`, an array"),
        (set, "redis_url = \"a\"", "`url` of `[mailbox_store]`"),
        ("[mailbox_store]\n", "type = \"redis\"", "`store`, which"),
        ("[mailbox_store]\n", "path = \"/a\"", "`folder`, the path"),
        ("[mailbox_store]\n", "host = \"a\"", "`url`, such as"),
        (&resume, "ttl = \"5m\"", "`for`, a duration"),
        (&resume, "size = 1", "`bytes`, a size"),
        (&resume, "per_client = 1", "`streams_per_client`, a number"),
        ("", "[redis]", "`[mailbox_store]` with"),
    ] {
        let own = before.contains("[[site]]");
        let site = if own { "" } else { SITE };
        let (message, reports) = only(&format!("{before}{line}\n{site}"));
        assert!(message.starts_with("unknown key"), "{line}: {message}");
        assert!(reports.contains(help), "{line}: {reports}");
    }
    for (lines, help) in [
        (
            "[[mailbox]]\nname = \"a\"\nmode = \"queue\"",
            "did you mean \"inbox\"?",
        ),
        ("[mailbox_store]\nstore = \"journal\"", "write \"disk\""),
        ("[mailbox]\nname = \"a\"", "a `[[mailbox]]` has"),
    ] {
        let (_, reports) = only(&format!("{lines}\n{SITE}"));
        assert!(reports.contains(help), "{lines}: {reports}");
    }
}

#[test]
fn other_protocols_than_http_are_not_passed_on() {
    let (message, reports) = only(&format!("{SITE}[stream]\nserver = {{}}\n"));
    assert!(message.starts_with("unknown key `stream`"), "{message}");
    assert!(reports.contains("other protocols than HTTP"), "{reports}");
}
