//! Hints for other servers' keys and words, and for likely guesses, whose values cannot be taken over. Names
//! whose values fit are in [`Key::also`](crate::schema::Key::also).

use crate::suggest::plain;

/// A key that does not exist here.
struct Foreign {
    /// As [`is_called`] compares them.
    theirs: &'static [&'static str],
    /// The tables to which the hint applies.
    tables: &'static [&'static str],
    /// Our key in those tables; empty when there is none.
    ours: &'static str,
    /// What to write instead.
    help: &'static str,
}

const TOP: &[&str] = &[""];
const SERVER: &[&str] = &["server"];
const LIMITS: &[&str] = &["limits"];
const LOG: &[&str] = &["log"];
const LISTEN: &[&str] = &["listen"];
const SITE: &[&str] = &["site"];
const ROUTE: &[&str] = &["site.route"];
const UPSTREAM: &[&str] = &["upstream"];
const CHECK: &[&str] = &["upstream.check"];
const LOCATIONS: &[&str] = &["site", "site.route"];
const LOCATIONS_AND_SERVER: &[&str] = &["server", "site", "site.route"];
const LOCATIONS_AND_TOP: &[&str] = &["", "site", "site.route"];
const TOP_AND_SITE: &[&str] = &["", "site"];
/// Tables that are about the whole server.
const WHOLE: &[&str] = &["", "server"];
const WHOLE_AND_LOCATIONS: &[&str] = &["", "server", "site", "site.route"];
const ANYWHERE_BUT_UPSTREAM: &[&str] = &["", "server", "limits", "listen", "site", "site.route"];
const ANYWHERE_BUT_DISK: &[&str] = &[
    "",
    "server",
    "limits",
    "log",
    "listen",
    "site",
    "site.route",
    "upstream",
];
const ANYWHERE: &[&str] = &[
    "",
    "server",
    "disk",
    "limits",
    "log",
    "listen",
    "site",
    "site.route",
    "upstream",
];

const fn foreign(
    theirs: &'static [&'static str],
    tables: &'static [&'static str],
    ours: &'static str,
    help: &'static str,
) -> Foreign {
    Foreign {
        theirs,
        tables,
        ours,
        help,
    }
}

#[rustfmt::skip]
const KEYS: &[Foreign] = &[
    foreign(&["proxy_pass", "reverse_proxy", "upstream", "backend"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]`, whose `to` has the address"),
    foreign(&["fastcgi_pass", "scgi_pass"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"fastcgi\"` or `\"scgi\"`, whose `to` has the address"),
    foreign(&["uwsgi_pass"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"scgi\"`; uwsgi is started with --scgi-socket"),
    foreign(&["php", "php_fastcgi", "fastcgi", "fastcgi_*"], LOCATIONS, "",
        "`proxy` names an `[[upstream]]` with `protocol = \"fastcgi\"`, and `script_suffix` says which files are scripts"),
    foreign(&["client_max_body_size", "max_body_size"], LOCATIONS, "body_bytes",
        "`body_bytes`, a size such as \"100MiB\"; 0 takes no body at all"),
    foreign(&["client_max_body_size", "max_body_size"], WHOLE, "",
        "`body_bytes` of `[limits]`, or of a site or route"),
    foreign(&["client_max_body_size", "max_body_size"], LIMITS, "body_bytes",
        "`body_bytes`, a size such as \"100MiB\"; 0 takes no body at all"),
    foreign(&["server", "servers", "address", "addresses", "url", "target", "backend", "host", "port"], UPSTREAM, "to",
        "`to`, an array such as [\"127.0.0.1:3000\"]"),
    foreign(&["max_conns"], UPSTREAM, "connections",
        "`connections`, which holds for each backend"),
    foreign(&["lb_policy"], UPSTREAM, "balance",
        "`balance` says who is asked, `sticky` what ties a client to a backend"),
    foreign(&["least_conn", "ip_hash", "hash"], UPSTREAM, "",
        "`balance` says who is asked, `sticky` what ties a client to a backend"),
    foreign(&["timeout"], UPSTREAM, "",
        "`connect_timeout`, `first_byte_timeout` and `idle_timeout`"),
    foreign(&["proxy_read_timeout", "read_timeout"], UPSTREAM, "first_byte_timeout",
        "`first_byte_timeout` until the answer begins, then `idle_timeout` between its parts"),
    foreign(&["timeout"], LOCATIONS, "",
        "`first_byte_timeout` and `idle_timeout` of the `[[upstream]]`; waits for clients are bounded in `[limits]`"),
    foreign(&["read_timeout"], ANYWHERE, "",
        "for clients `header_timeout` and `body_timeout` of `[limits]`; for applications `first_byte_timeout` and `idle_timeout` of the `[[upstream]]`"),
    foreign(&["resolver", "resolver_*"], ANYWHERE, "",
        "names in `to` are looked up as the system does; `resolve_interval` of the `[[upstream]]` says how often"),
    foreign(&["set_real_ip_from", "real_ip_header", "real_ip_recursive"], SERVER, "trusted_proxies",
        "`trusted_proxies`, whose `Forwarded` or `X-Forwarded-For` tells the client's address"),
    foreign(&["set_real_ip_from", "real_ip_header", "real_ip_recursive"], ANYWHERE, "",
        "`trusted_proxies` of `[server]`, whose `Forwarded` or `X-Forwarded-For` tells the client's address"),
    foreign(&["proxy_read_timeout", "fastcgi_read_timeout"], ANYWHERE, "",
        "`first_byte_timeout` and `idle_timeout` of the `[[upstream]]`"),
    foreign(&["proxy_connect_timeout"], ANYWHERE, "",
        "`connect_timeout` of the `[[upstream]]`"),
    foreign(&["proxy_send_timeout"], ANYWHERE, "",
        "`idle_timeout` of the `[[upstream]]`"),
    foreign(&["proxy_next_upstream*"], ANYWHERE, "",
        "`retries` of the `[[upstream]]`"),
    foreign(&["proxy_request_buffering"], ANYWHERE, "",
        "`buffer_requests` of the `[[upstream]]`"),
    foreign(&["proxy_buffering", "proxy_buffer*"], ANYWHERE, "",
        "answers are passed on as they come, in bounded memory: there is nothing to set"),
    foreign(&["proxy_http_version"], ANYWHERE, "",
        "backends are spoken to in HTTP/1.1: there is nothing to set"),
    foreign(&["proxy_set_header", "header_up"], ROUTE, "request_headers",
        "`request_headers = { set = { NAME = \"VALUE\" } }`"),
    foreign(&["proxy_set_header", "header_up"], ANYWHERE, "",
        "`request_headers` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["proxy_hide_header"], ANYWHERE, "",
        "`headers = { remove = [\"NAME\"] }` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["proxy_redirect"], ANYWHERE, "",
        "`rewrite = { location = { \"FOUND\" = \"PUT INSTEAD\" } }` of a `[[site.route]]`"),
    foreign(&["proxy_cache*", "fastcgi_cache*", "cache", "caching", "cache_ttl", "cache_path"], ANYWHERE_BUT_DISK, "",
        "what applications answer is not cached yet; files are, in `cache_bytes` of `[disk]`"),
    foreign(&["websocket", "websockets", "ws"], ANYWHERE, "",
        "WebSocket goes through by itself; `tunnel_timeout` of the `[[upstream]]` ends a connection that is silent"),
    foreign(&["health_uri"], UPSTREAM, "",
        "`path` of `[upstream.check]`"),
    foreign(&["health_check", "healthcheck"], UPSTREAM, "check",
        "`check`, a table with `path` and `interval`"),
    foreign(&["uri", "health_uri"], CHECK, "path",
        "`path`, such as \"/health\""),
    foreign(&["port", "bind", "ip", "host", "listen"], LISTEN, "address",
        "`address` has the port too: \"127.0.0.1:8080\", or \"8080\" for every address of the machine"),
    foreign(&["listen", "port", "bind", "address", "addresses"], LOCATIONS_AND_SERVER, "",
        "`address` of `[[listen]]`, which stands beside the sites: each site answers at every address, and `hosts` tells them apart"),
    foreign(&["location", "locations"], TOP_AND_SITE, "",
        "it is `[[site.route]]`, with a `path`, beneath its `[[site]]`"),
    foreign(&["port", "bind", "address", "addresses"], TOP, "",
        "`address` of `[[listen]]`, which has the port too: \"127.0.0.1:8080\", or \"8080\" for every address of the machine"),
    foreign(&["reuseport", "reuse_port"], ANYWHERE, "",
        "sockets are shared among the workers as they should be: there is nothing to set"),
    foreign(&["handle", "handle_path"], LOCATIONS_AND_TOP, "",
        "it is `[[site.route]]`, with a `path`, beneath its `[[site]]`; `strip_prefix` takes off what `path` begins with"),
    foreign(&["servers"], TOP, "",
        "what nginx calls a server is a `[[site]]` here; the addresses of applications are `to` of an `[[upstream]]`"),
    foreign(&["events"], TOP, "",
        "leave it out: `connections` of `[limits]` bounds connections, and `workers` of `[server]` the event loops"),
    foreign(&["http", "stream"], TOP, "",
        "what stands in this block elsewhere stands at the top of the file here: `[[site]]`, `[[upstream]]`, `[limits]`"),
    foreign(&["vhost", "virtualhost", "virtual_host"], TOP, "",
        "it is `[[site]]`, with `hosts`"),
    foreign(&["server_name", "server_names", "server_alias", "host", "hostname", "domain", "domains", "name"], SITE, "hosts",
        "`hosts`, an array such as [\"example.org\"]"),
    foreign(&["server_name", "server_names"], ANYWHERE, "",
        "`hosts` of a `[[site]]`, an array such as [\"example.org\"]"),
    foreign(&["document_root", "docroot", "webroot", "public", "directory", "dir", "folder", "file_server"], LOCATIONS, "root",
        "`root`, the path of a folder"),
    foreign(&["document_root", "docroot", "webroot"], ANYWHERE, "",
        "`root` of a `[[site]]`, the path of a folder"),
    foreign(&["alias"], ROUTE, "root",
        "`root`, and `strip_prefix` for what `path` begins with"),
    foreign(&["alias"], SITE, "",
        "`root` and `strip_prefix` of a `[[site.route]]`"),
    foreign(&["sub_filter", "sub_filter_*", "subs_filter"], ANYWHERE, "",
        "nothing is replaced in files and answers"),
    foreign(&["templates", "template"], ANYWHERE, "",
        "there are no templates: files are sent as they are"),
    foreign(&["try_files"], LOCATIONS, "try",
        "`try = [\"file\", \"proxy\"]`: the file if there is one, else the upstream"),
    foreign(&["spa", "single_page", "fallback", "not_found"], LOCATIONS, "",
        "no page stands for every name without a file yet; an application can answer with it: `try = [\"file\", \"proxy\"]`"),
    foreign(&["autoindex", "autoindex_*", "browse", "directory_listing", "dirlisting", "dir_listing", "list"], LOCATIONS, "listing",
        "`listing`, which is `true` or `false`"),
    foreign(&["follow_symlinks", "disable_symlinks"], LOCATIONS, "symlinks",
        "`symlinks`, which is \"beneath\" or \"follow\""),
    foreign(&["hide", "hidden", "dotfiles"], LOCATIONS, "",
        "names with a leading dot are never served, but for `.well-known`"),
    foreign(&["mime", "mimes", "mime_types", "mimetype", "types", "default_type", "charset", "content_type"], ANYWHERE, "",
        "there are no types of one's own; the name's ending tells the type, and `headers = { set = { Content-Type = \"TYPE\" } }` of a `[[site.route]]` another"),
    foreign(&["add_header", "header"], ROUTE, "headers",
        "`headers = { set = { NAME = \"VALUE\" } }`"),
    foreign(&["add_header", "header"], SITE, "",
        "`headers` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["hsts"], ROUTE, "headers",
        "`headers = { set = { Strict-Transport-Security = \"max-age=31536000\" } }`"),
    foreign(&["hsts"], ANYWHERE, "",
        "`headers = { set = { Strict-Transport-Security = \"max-age=31536000\" } }` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["expires", "cache_control", "max_age"], ROUTE, "headers",
        "`headers = { set = { Cache-Control = \"max-age=3600\" } }`"),
    foreign(&["expires", "cache_control", "max_age"], ANYWHERE, "",
        "`headers = { set = { Cache-Control = \"max-age=3600\" } }` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["cors", "cors_*", "allow_origin"], ROUTE, "headers",
        "`headers = { set = { Access-Control-Allow-Origin = \"*\" } }`; questions in advance (OPTIONS) are for an application"),
    foreign(&["cors", "cors_*", "allow_origin"], ANYWHERE, "",
        "`headers = { set = { Access-Control-Allow-Origin = \"*\" } }` of a `[[site.route]]`; for a whole site of one with path `/*`, last"),
    foreign(&["server_tokens", "server_signature"], ANYWHERE, "",
        "`Server` never tells the version; `headers = { remove = [\"Server\"] }` of a `[[site.route]]` leaves it out"),
    foreign(&["gzip", "gzip_*", "brotli", "brotli_*", "deflate", "zstd", "compress", "compression", "encode"], ANYWHERE, "",
        "nothing is compressed on the fly; `precompressed` of a site sends files that were compressed before"),
    foreign(&["redirect", "redirects", "redir", "return", "rewrites", "respond"], LOCATIONS, "",
        "there are no redirects and fixed answers yet"),
    foreign(&["error_page", "error_pages", "handle_errors"], LOCATIONS, "",
        "there are no error pages of one's own yet"),
    foreign(&["allow", "deny"], ANYWHERE, "",
        "nobody is allowed or denied by address yet"),
    foreign(&["auth", "auth_*", "basic_auth", "basicauth"], ANYWHERE, "",
        "there is no authentication yet"),
    foreign(&["limit_req", "limit_req_*", "limit_rate", "limit_rate_*", "limit_conn", "limit_conn_*", "rate_limit", "ratelimit", "throttle"], ANYWHERE, "",
        "there is no limit on requests or bytes per client yet; `connections` of `[limits]` is for all clients together"),
    foreign(&["http2", "h2", "h2c", "http3", "quic"], ANYWHERE, "",
        "there is no HTTP/2 and no HTTP/3 yet: clients speak HTTP/1.1"),
    foreign(&["tls", "ssl", "ssl_*", "https", "cert", "certificate", "acme"], UPSTREAM, "",
        "there is no TLS to applications yet"),
    foreign(&["tls", "ssl", "ssl_*", "https", "cert", "certificate", "acme"], ANYWHERE, "",
        "there is no TLS yet: put a proxy that terminates it in front"),
    foreign(&["user", "username", "group", "groupname", "chroot"], ANYWHERE, "",
        "the server stays the user that starts it, such as `User=` of its systemd unit; a port below 1024 needs CAP_NET_BIND_SERVICE"),
    foreign(&["daemon", "daemonize", "pid", "pid_file"], ANYWHERE, "",
        "the server stays in the foreground and writes no pid file: a service manager minds it"),
    foreign(&["include", "includes", "import"], ANYWHERE, "",
        "a configuration is one file, and includes no other"),
    foreign(&["worker_processes"], SERVER, "workers",
        "`workers`, a number or \"auto\""),
    foreign(&["worker_processes"], ANYWHERE, "",
        "`workers` of `[server]`, a number or \"auto\""),
    foreign(&["worker_connections", "max_connections", "max_clients"], LIMITS, "connections",
        "`connections`, for the whole process"),
    foreign(&["worker_connections", "max_connections", "max_clients"], ANYWHERE, "",
        "`connections` of `[limits]`, for the whole process"),
    foreign(&["worker_rlimit_nofile"], ANYWHERE, "",
        "the server raises its limit on open files as far as it may: `LimitNOFILE=` of its systemd unit"),
    foreign(&["sendfile", "aio"], WHOLE_AND_LOCATIONS, "",
        "`engine` of `[disk]`, `[site.disk]` or `[site.route.disk]` says what reads files"),
    foreign(&["tcp_nopush", "tcp_nodelay"], ANYWHERE, "",
        "sockets are set as they should be: there is nothing to set"),
    foreign(&["open_file_cache*"], ANYWHERE, "",
        "files are kept open by themselves; `entry_ttl` of `[disk]` says how long they are trusted"),
    foreign(&["keepalive_timeout", "keep_alive_timeout"], LIMITS, "idle_timeout",
        "`idle_timeout`, for connections of clients"),
    foreign(&["keepalive_timeout", "keep_alive_timeout", "keepalive", "keep_alive"], ANYWHERE_BUT_UPSTREAM, "",
        "`idle_timeout` of `[limits]`, for connections of clients"),
    foreign(&["keepalive_requests"], ANYWHERE, "",
        "a connection is kept for any number of requests: there is nothing to set"),
    foreign(&["client_header_timeout"], LIMITS, "header_timeout",
        "`header_timeout`"),
    foreign(&["client_header_timeout"], ANYWHERE, "",
        "`header_timeout` of `[limits]`"),
    foreign(&["client_body_timeout"], LIMITS, "body_timeout",
        "`body_timeout`"),
    foreign(&["client_body_timeout"], ANYWHERE, "",
        "`body_timeout` of `[limits]`"),
    foreign(&["client_header_buffer_size", "large_client_header_buffers"], LIMITS, "head_bytes",
        "`head_bytes`, `header_bytes` and `request_line_bytes`"),
    foreign(&["client_header_buffer_size", "large_client_header_buffers"], ANYWHERE, "",
        "`head_bytes`, `header_bytes` and `request_line_bytes` of `[limits]`"),
    foreign(&["client_body_buffer_size"], LIMITS, "body_memory",
        "`body_memory`"),
    foreign(&["client_body_buffer_size"], ANYWHERE, "",
        "`body_memory` of `[limits]`"),
    foreign(&["access_log", "accesslog", "log_file"], LOG, "access",
        "`access`: \"off\", \"stdout\" or the path of a file"),
    foreign(&["access_log", "accesslog", "log_file"], ANYWHERE, "",
        "`access` of `[log]`: \"off\", \"stdout\" or the path of a file, for all sites"),
    foreign(&["log"], LOCATIONS_AND_SERVER, "",
        "`[log]` stands at the top of the file, and is for all sites"),
    foreign(&["error_log", "errorlog", "log_level", "loglevel"], ANYWHERE, "",
        "messages go to standard error, for the service manager to keep; there are no levels"),
    foreign(&["log_format"], LOG, "format",
        "`format`, which is \"combined\" or \"json\""),
    foreign(&["log_format"], ANYWHERE, "",
        "`format` of `[log]`, which is \"combined\" or \"json\""),
    foreign(&["stub_status", "metrics", "prometheus", "status"], ANYWHERE, "",
        "`listen` of `[admin]`: `/metrics` and `/status` are served there"),
];

/// Values that do not exist here: the key, the value, and what to write instead.
#[rustfmt::skip]
const WORDS: &[(&str, &str, &str)] = &[
    ("protocol", "https", "there is no TLS to applications yet, only \"http\""),
    ("protocol", "uwsgi", "\"scgi\", with uwsgi started with --scgi-socket"),
    ("balance", "least_conn", "did you mean \"least-connections\"?"),
    ("balance", "ip_hash", "`sticky = \"cookie:NAME\"` ties a client to a backend"),
    ("protocol", "fcgi", "did you mean \"fastcgi\"?"),
    ("try", "$uri*", "\"file\" is the file that the path names, or the index of the folder"),
    ("try", "=*", "leave it out: what nobody has is answered 404"),
    ("try", "@*", "\"proxy\" is the upstream that `proxy` names"),
    ("try", "/*", NO_FALLBACK),
    ("try", "index.html", NO_FALLBACK),
];

const NO_FALLBACK: &str = "no page stands for every name without a file yet; an application can answer with it: \
                           `try = [\"file\", \"proxy\"]`";

/// Tables that are arrays in other servers, and what to write instead.
const ARRAYS: &[(&str, &str)] = &[(
    "server",
    "`[server]` is the process; what nginx calls a server is a `[[site]]` here",
)];

/// Our key for the foreign key `name` in the table `path`, empty when there is none, and what to write instead.
pub(crate) fn key(path: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let is_meant = |one: &&Foreign| {
        let mut theirs = one.theirs.iter();
        one.tables.contains(&path) && theirs.any(|theirs| is_called(name, theirs))
    };
    let found = KEYS.iter().find(is_meant)?;
    Some((found.ours, found.help))
}

/// Whether `name` is `theirs`, however it is written; a star at its end stands for anything.
fn is_called(name: &str, theirs: &str) -> bool {
    let name = plain(name);
    match theirs.strip_suffix('*') {
        Some(start) => name.starts_with(&plain(start)),
        None => name == plain(theirs),
    }
}

/// What to write in place of `word` as the value of `name`.
pub(crate) fn word(name: &str, word: &str) -> Option<&'static str> {
    let mut words = WORDS.iter();
    let (.., help) = words.find(|(key, theirs, _)| *key == name && is_called(word, theirs))?;
    Some(help)
}

/// What to write in place of an array of tables `path`.
pub(crate) fn array(path: &str) -> Option<&'static str> {
    let mut arrays = ARRAYS.iter();
    Some(arrays.find(|(theirs, _)| *theirs == path)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{SCHEMA, TABLES};

    /// A hint that names a key which is gone, or stands where nobody looks, helps nobody.
    #[test]
    fn hints_are_about_what_is_there() {
        for Foreign {
            theirs,
            tables,
            ours,
            ..
        } in KEYS
        {
            for table in *tables {
                let names: Vec<&str> = SCHEMA.names(SCHEMA.table(table)).collect();
                assert!(ours.is_empty() || names.contains(ours), "{table} {ours}");
                for theirs in *theirs {
                    let shadowed = names.iter().find(|name| is_called(name, theirs));
                    assert_eq!(shadowed, None, "{table} {theirs}");
                }
            }
        }
        for (key, ..) in WORDS {
            let mut keys = TABLES.iter().flat_map(|table| table.keys);
            assert!(keys.any(|known| known.name == *key), "{key}");
        }
    }
}
