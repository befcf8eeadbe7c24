//! Hints for other servers' keys and words, and for likely guesses, whose values cannot be taken over. Names
//! whose values fit are in [`Key::also`](crate::schema::Key::also).

use crate::suggest::plain;

/// A key that does not exist here: its names as [`is_called`] compares them, the tables to which the hint applies,
/// our key in those tables or an empty string, and what to write instead.
struct Foreign(
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
    &'static str,
);

const TOP: &[&str] = &[""];
const SERVER: &[&str] = &["server"];
const LIMITS: &[&str] = &["limits"];
const LOG: &[&str] = &["log"];
const LISTEN: &[&str] = &["listen"];
const SITE: &[&str] = &["site"];
const ROUTE: &[&str] = &["site.route"];
const WHEN: &[&str] = &["site.route.when"];
const UPSTREAM: &[&str] = &["upstream"];
const CHECK: &[&str] = &["upstream.check"];
const LOCATIONS: &[&str] = &["site", "site.route"];
const LOCATIONS_AND_SERVER: &[&str] = &["server", "site", "site.route"];
const LOCATIONS_AND_TOP: &[&str] = &["", "site", "site.route"];
const RATES: &[&str] = &["site.limit", "site.route.limit"];
const JWTS: &[&str] = &["site.jwt", "site.route.jwt"];
const REWRITES: &[&str] = &["site.rewrite", "site.route.rewrite"];
const UPLOADS: &[&str] = &["site.upload", "site.route.upload"];
const RESUMES: &[&str] = &["site.resume", "site.route.resume"];
const MAILBOXES: &[&str] = &["mailbox"];
const STORE: &[&str] = &["mailbox_store"];
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
const BESIDE_LOCATIONS: &[&str] = &["", "server", "disk", "limits", "log", "listen", "upstream"];
/// All but the first.
const ANYWHERE_BUT_TOP: &[&str] = ANYWHERE.split_at(1).1;
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

#[rustfmt::skip]
const KEYS: &[Foreign] = &[
    Foreign(&["proxy_pass", "reverse_proxy", "upstream", "backend"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]`, whose `to` has the address"),
    Foreign(&["fastcgi_pass", "scgi_pass"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"fastcgi\"` or `\"scgi\"`, whose `to` has the address"),
    Foreign(&["grpc_pass", "grpc"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"h2\"`, whose `to` has the address"),
    Foreign(&["uwsgi_pass"], LOCATIONS, "proxy",
        "`proxy` takes the name of an `[[upstream]]` with `protocol = \"scgi\"`; uwsgi is started with --scgi-socket"),
    Foreign(&["fastcgi_param", "scgi_param", "fastcgi_params"], LOCATIONS, "params",
        "`params = { NAME = \"VALUE\" }`; the usual variables are sent without it"),
    Foreign(&["php", "php_fastcgi", "fastcgi", "fastcgi_index", "fastcgi_split_path_info"], LOCATIONS, "",
        "`proxy` names an `[[upstream]]` with `protocol = \"fastcgi\"`, and `script_suffix` selects the scripts"),
    Foreign(&["client_max_body_size", "max_body_size"], LOCATIONS, "body_bytes",
        "`body_bytes`, a size such as \"100MiB\"; 0 permits no body"),
    Foreign(&["client_max_body_size", "max_body_size"], WHOLE, "",
        "`body_bytes` of `[limits]`, or of a site or route"),
    Foreign(&["client_max_body_size", "max_body_size"], LIMITS, "body_bytes",
        "`body_bytes`, a size such as \"100MiB\"; 0 permits no body"),
    Foreign(&["server", "servers", "address", "addresses", "url", "target", "backend", "host", "port", "proxy_pass", "grpc_pass"], UPSTREAM, "to",
        "`to`, an array such as [\"127.0.0.1:3000\"]"),
    Foreign(&["max_conns"], UPSTREAM, "connections",
        "`connections`, which applies to each backend"),
    Foreign(&["lb_policy"], UPSTREAM, "balance",
        "`balance` selects backends, and `sticky` binds clients to one"),
    Foreign(&["least_conn", "ip_hash", "hash"], UPSTREAM, "",
        "`balance` selects backends, and `sticky` binds clients to one"),
    Foreign(&["timeout"], UPSTREAM, "",
        "`connect_timeout`, `first_byte_timeout` and `idle_timeout`"),
    Foreign(&["grpc", "http2", "h2", "h2c", "http_version"], UPSTREAM, "protocol",
        "`protocol = \"h2\"`, which gRPC needs"),
    Foreign(&["proxy_read_timeout", "grpc_read_timeout", "read_timeout"], UPSTREAM, "first_byte_timeout",
        "`first_byte_timeout` until the response begins, then `idle_timeout` between its parts"),
    Foreign(&["timeout"], LOCATIONS, "",
        "`first_byte_timeout` and `idle_timeout` of the `[[upstream]]`; time-outs for clients are in `[limits]`"),
    Foreign(&["read_timeout"], ANYWHERE, "",
        "for clients `header_timeout` and `body_timeout` of `[limits]`; for applications `first_byte_timeout` and `idle_timeout` of the `[[upstream]]`"),
    Foreign(&["resolver", "resolver_*"], ANYWHERE, "",
        "names in `to` are resolved by the system; `resolve_interval` of the `[[upstream]]` sets how often"),
    Foreign(&["set_real_ip_from", "real_ip_header", "real_ip_recursive"], SERVER, "trusted_proxies",
        "`trusted_proxies`, whose `Forwarded` or `X-Forwarded-For` has the client's address"),
    Foreign(&["set_real_ip_from", "real_ip_header", "real_ip_recursive"], ANYWHERE, "",
        "`trusted_proxies` of `[server]`, whose `Forwarded` or `X-Forwarded-For` has the client's address"),
    Foreign(&["proxy_read_timeout", "fastcgi_read_timeout", "grpc_read_timeout"], ANYWHERE, "",
        "`first_byte_timeout` and `idle_timeout` of the `[[upstream]]`"),
    Foreign(&["proxy_connect_timeout", "grpc_connect_timeout"], ANYWHERE, "",
        "`connect_timeout` of the `[[upstream]]`"),
    Foreign(&["proxy_send_timeout", "grpc_send_timeout"], ANYWHERE, "",
        "`idle_timeout` of the `[[upstream]]`"),
    Foreign(&["retries"], UPSTREAM, "",
        "it is `times` of `[upstream.retry]`"),
    Foreign(&["proxy_next_upstream*", "grpc_next_upstream*"], ANYWHERE, "",
        "`times` and `for` of `[upstream.retry]`"),
    Foreign(&["proxy_request_buffering"], ANYWHERE, "",
        "`buffer_requests` of the `[[upstream]]`"),
    Foreign(&["proxy_buffer_size", "fastcgi_buffer_size", "scgi_buffer_size", "grpc_buffer_size"], ANYWHERE, "",
        "`head_bytes` of `[upstream.limits]` is the largest header of a response; the rest is streamed"),
    Foreign(&["proxy_buffering", "proxy_buffer*", "grpc_buffer*"], ANYWHERE, "",
        "responses are streamed in bounded memory: there is nothing to set"),
    Foreign(&["proxy_http_version"], ANYWHERE, "",
        "`protocol` of the `[[upstream]]`: `\"http\"` is HTTP/1.1, and `\"h2\"` is HTTP/2"),
    Foreign(&["proxy_set_header", "grpc_set_header", "header_up"], ROUTE, "request_headers",
        "`request_headers = { set = { NAME = \"VALUE\" } }`"),
    Foreign(&["proxy_set_header", "grpc_set_header", "header_up"], ANYWHERE, "",
        "`request_headers` of a site or route"),
    Foreign(&["proxy_hide_header", "grpc_hide_header"], ANYWHERE, "",
        "`headers = { remove = [\"NAME\"] }` of a site or route"),
    Foreign(&["proxy_redirect"], ANYWHERE, "",
        "`rewrite = { location = { \"FOUND\" = \"PUT INSTEAD\" } }` of a `[[site.route]]`"),
    Foreign(&["proxy_cache*", "fastcgi_cache*", "caching", "cache_ttl", "cache_path"], ANYWHERE_BUT_DISK, "",
        "responses of applications are not cached yet; files are, in `cache_bytes` of `[disk]`"),
    Foreign(&["cache"], WHOLE, "",
        "responses of applications are not cached yet; files are, in `cache_bytes` of `[disk]`"),
    Foreign(&["websocket", "websockets", "ws"], ANYWHERE, "",
        "WebSocket works by default; `tunnel_timeout` of the `[[upstream]]` ends silent connections"),
    Foreign(&["health_uri"], UPSTREAM, "",
        "`path` of `[upstream.check]`"),
    Foreign(&["health_check", "healthcheck"], UPSTREAM, "check",
        "`check`, a table with `path` and `interval`"),
    Foreign(&["uri", "health_uri"], CHECK, "path",
        "`path`, such as \"/health\""),
    Foreign(&["port", "bind", "ip", "host", "listen"], LISTEN, "address",
        "`address` has the port too: \"127.0.0.1:8080\", or \"8080\" for every address of the machine"),
    Foreign(&["listen", "port", "bind", "address", "addresses"], LOCATIONS_AND_SERVER, "",
        "`address` of `[[listen]]`, a table beside the sites: each site is served at every address, and `hosts` selects the site"),
    Foreign(&["location", "locations"], TOP_AND_SITE, "",
        "it is `[[site.route]]`, with a `path`, beneath its `[[site]]`"),
    Foreign(&["port", "bind", "address", "addresses"], TOP, "",
        "`address` of `[[listen]]`, which has the port too: \"127.0.0.1:8080\", or \"8080\" for every address of the machine"),
    Foreign(&["reuseport", "reuse_port"], ANYWHERE, "",
        "workers share the sockets by default: there is nothing to set"),
    Foreign(&["handle", "handle_path"], LOCATIONS_AND_TOP, "",
        "it is `[[site.route]]`, with a `path`, beneath its `[[site]]`; `strip_prefix` removes the start of the path"),
    Foreign(&["servers"], TOP, "",
        "a server of nginx is a `[[site]]` here; the addresses of applications are `to` of an `[[upstream]]`"),
    Foreign(&["events"], TOP, "",
        "leave it out: `connections` of `[limits]` limits connections, and `workers` of `[server]` is the number of event loops"),
    Foreign(&["stream"], ANYWHERE, "",
        "connections of other protocols than HTTP are not passed on; nginx or HAProxy can do that beside this server"),
    Foreign(&["http"], TOP, "",
        "the content of this block is at the top level of the file here: `[[site]]`, `[[upstream]]`, `[limits]`"),
    Foreign(&["vhost", "virtualhost", "virtual_host"], TOP, "",
        "it is `[[site]]`, with `hosts`"),
    Foreign(&["server_name", "server_names", "server_alias", "host", "hostname", "domain", "domains", "name"], SITE, "hosts",
        "`hosts`, an array such as [\"example.org\"]"),
    Foreign(&["server_name", "server_names"], ANYWHERE, "",
        "`hosts` of a `[[site]]`, an array such as [\"example.org\"]"),
    Foreign(&["host", "hosts"], WHEN, "",
        "`hosts` of the `[[site]]`; `header = { host = \"NAME\" }` compares the header as it was sent"),
    Foreign(&["document_root", "docroot", "webroot", "public", "directory", "dir", "folder", "file_server"], LOCATIONS, "root",
        "`root`, the path of a folder"),
    Foreign(&["document_root", "docroot", "webroot"], ANYWHERE, "",
        "`root` of a `[[site]]`, the path of a folder"),
    Foreign(&["alias"], ROUTE, "root",
        "`root`, and `strip_prefix` for the start of the path"),
    Foreign(&["alias"], SITE, "",
        "`root` and `strip_prefix` of a `[[site.route]]`"),
    Foreign(&["sub_filter", "subs_filter", "replace"], LOCATIONS, "substitute",
        "`substitute = { \"FOUND\" = \"REPLACEMENT\" }`, which compares bytes: no regular expressions"),
    Foreign(&["sub_filter_types", "subs_filter_types"], LOCATIONS, "substitute_types",
        "`substitute_types`, an array such as [\"text/html\", \"text/css\"]"),
    Foreign(&["sub_filter_once"], ANYWHERE, "",
        "`substitute` replaces every occurrence: there is nothing to set"),
    Foreign(&["sub_filter_last_modified"], ANYWHERE, "",
        "`substitute` removes Last-Modified and keeps the ETag as a weak one: there is nothing to set"),
    Foreign(&["substitute_max_line_length"], ANYWHERE, "",
        "`substitute` knows no lines: there is nothing to set"),
    Foreign(&["sub_filter", "sub_filter_*", "subs_filter"], ANYWHERE, "",
        "`substitute` and `substitute_types` of a site or route"),
    Foreign(&["templates", "template"], ANYWHERE, "",
        "there are no templates: files are sent as they are"),
    Foreign(&["try_files"], LOCATIONS, "try",
        "`try = [\"file\", \"directory\", \"proxy\"]` is `$uri $uri/ @app`"),
    Foreign(&["spa", "single_page", "fallback"], LOCATIONS, "try",
        "`try = [\"file\", \"/index.html\"]`: the file if there is one, else that page"),
    Foreign(&["autoindex", "autoindex_*", "browse", "directory_listing", "dirlisting", "dir_listing", "list"], LOCATIONS, "listing",
        "`listing`, which is `true` or `false`"),
    Foreign(&["follow_symlinks", "disable_symlinks"], LOCATIONS, "symlinks",
        "`symlinks`, which is \"beneath\" or \"follow\""),
    Foreign(&["hidden", "dotfiles"], LOCATIONS, "",
        "names that begin with a dot are not served, except `.well-known`; `hide` names others, `show` lifts that"),
    Foreign(&["mime", "mimes", "mime_types", "mimetype", "types", "default_type", "charset", "content_type"], ANYWHERE, "",
        "there are no custom types; the type depends on the extension, and `headers = { set = { Content-Type = \"TYPE\" } }` of a `[[site.route]]` overrides it"),
    Foreign(&["add_header", "header"], ROUTE, "headers",
        "`headers = { set = { NAME = \"VALUE\" } }`"),
    Foreign(&["add_header", "header"], SITE, "",
        "`headers` of a site or route"),
    Foreign(&["hsts", "strict_transport_security"], ANYWHERE, "",
        "`hsts` of `[site.tls]`, a duration such as \"365d\""),
    Foreign(&["expires", "cache_control", "max_age"], LOCATIONS, "cache",
        "`cache = \"1h\"`, or by media type: `cache = { \"image/*\" = \"30d\" }`"),
    Foreign(&["expires", "cache_control", "max_age"], ANYWHERE, "",
        "`cache` of a site or route"),
    Foreign(&["cors_origin*", "cors_allow*", "allow_origin*"], LOCATIONS, "cors",
        "`cors = { origins = [\"https://example.org\"] }`"),
    Foreign(&["cors", "cors_*", "allow_origin*"], WHOLE, "",
        "`cors` of a site or route"),
    Foreign(&["create_full_put_path"], LOCATIONS, "upload",
        "`upload = { create_folders = true }`"),
    Foreign(&["client_max_body_size", "max_body_size", "body_bytes"], UPLOADS, "max_file_bytes",
        "`max_file_bytes`, a size such as \"100MiB\""),
    Foreign(&["create_full_put_path"], UPLOADS, "create_folders",
        "`create_folders = true`"),
    Foreign(&["dav_methods"], UPLOADS, "methods",
        "`methods = [\"PUT\", \"DELETE\", \"MKCOL\"]`"),
    Foreign(&["dav_access"], UPLOADS, "",
        "leave it out: files get the permissions that the umask of the server leaves, such as `UMask=` of its systemd unit"),
    Foreign(&["dav_methods", "webdav*", "uploads"], LOCATIONS, "upload",
        "`upload = { methods = [\"PUT\", \"DELETE\"] }`"),
    Foreign(&["server_tokens", "server_signature"], ANYWHERE, "",
        "`Server` never contains the version; `headers = { remove = [\"Server\"] }` of a `[[site.route]]` removes it"),
    Foreign(&["gzip_types", "brotli_types", "zstd_types", "compression_types"], LOCATIONS, "compress_types",
        "`compress_types = [\"text/*\"]`"),
    Foreign(&["gzip_min_length", "brotli_min_length", "zstd_min_length", "compress_min_length", "compress_min_size"], LOCATIONS, "compress_min_bytes",
        "`compress_min_bytes`"),
    Foreign(&["gzip_comp_level", "brotli_comp_level", "zstd_comp_level", "compress_level", "compression_level"], LOCATIONS, "compress_codings",
        "`compress_codings = [\"zstd:3\", \"br:4\", \"gzip:4\"]`, each with its level"),
    Foreign(&["gzip_static", "brotli_static", "zstd_static"], LOCATIONS, "precompressed",
        "`precompressed = [\"zstd\", \"br\", \"gzip\"]`"),
    Foreign(&["gzip", "gzip_*", "brotli", "brotli_*", "deflate", "zstd", "zstd_*", "compression", "encode"], LOCATIONS, "compress",
        "`compress = true`"),
    Foreign(&["gzip", "gzip_*", "brotli", "brotli_*", "deflate", "zstd", "zstd_*", "compression", "encode"], ANYWHERE, "",
        "`compress = true` of a `[[site]]` or `[[site.route]]`"),
    Foreign(&["return"], LOCATIONS, "",
        "`redirect = { to = \"https://{host}{path}\", status = 308 }`, or `respond = { status = 403 }`"),
    Foreign(&["redirects", "redir"], LOCATIONS, "redirect",
        "`redirect = { to = \"https://{host}{path}\", status = 308 }`"),
    Foreign(&["rewrites", "rewrite_to", "uri"], ROUTE, "reroute",
        "`reroute = \"/new/{rest}\"`"),
    Foreign(&["path", "proxy_cookie_path"], REWRITES, "cookie_path",
        "`cookie_path = { \"/FROM\" = \"/TO\" }`"),
    Foreign(&["to", "from", "uri"], REWRITES, "",
        "`rewrite` changes headers of an application; `strip_prefix` shortens the path that it gets, and `reroute` of a `[[site.route]]` without `proxy` goes on with another"),
    Foreign(&["match", "matches", "matcher", "prefix", "url", "location"], ROUTE, "path",
        "`path`, such as \"/api/*\"; other conditions are in `when`"),
    Foreign(&["error_page", "handle_errors", "error_document"], LOCATIONS, "error_pages",
        "`error_pages = { 404 = \"/404.html\" }`"),
    Foreign(&["proxy_intercept_errors", "fastcgi_intercept_errors", "grpc_intercept_errors"], LOCATIONS, "replace_errors",
        "`replace_errors = [\"5xx\"]`"),
    Foreign(&["allow_from", "deny_from", "ip_allow", "ip_deny", "require_ip", "remote_ip"], LOCATIONS, "allow",
        "`allow = [\"10.0.0.0/8\"]`; `deny` refuses networks out of those"),
    Foreign(&["allow", "deny"], BESIDE_LOCATIONS, "",
        "`allow` and `deny` of a site or route, arrays such as [\"10.0.0.0/8\"]"),
    Foreign(&["satisfy"], ANYWHERE, "",
        "a request has to pass every gate of its site or route; `when = { client = [\"10.0.0.0/8\"] }` of a route can let some clients in without the others"),
    Foreign(&["auth_basic_user_file", "auth_user_file", "htpasswd", "auth_basic"], LOCATIONS, "basic_auth",
        "`basic_auth = { realm = \"NAME\", users = \"FILE\" }`"),
    Foreign(&["basic_auth", "auth_basic", "auth_basic_user_file", "auth_user_file", "htpasswd"], BESIDE_LOCATIONS, "",
        "`basic_auth = { realm = \"NAME\", users = \"FILE\" }` of a site or route"),
    Foreign(&["secure_link", "secure_link_*", "signed_urls", "secure_token"], LOCATIONS, "signed_url",
        "`signed_url = { secret = \"SECRET\", md5 = \"{expires}{path}{client} {secret}\", signature = \"md5\" }`"),
    Foreign(&["secure_link", "secure_link_*", "signed_url"], BESIDE_LOCATIONS, "",
        "`signed_url = { secret_file = \"FILE\" }` of a site or route"),
    Foreign(&["auth_request", "auth_request_set", "authelia", "oauth2_proxy", "external_auth"], LOCATIONS, "forward_auth",
        "`forward_auth = { upstream = \"NAME\", path = \"/auth\", copy = [\"Remote-User\"] }`"),
    Foreign(&["auth_request", "auth_request_set", "forward_auth"], BESIDE_LOCATIONS, "",
        "`forward_auth = { upstream = \"NAME\", path = \"/auth\" }` of a site or route"),
    Foreign(&["auth_jwt", "auth_jwt_key_file", "jwt_auth", "jwtauth"], LOCATIONS, "jwt",
        "`jwt = { keys = \"FILE\" }`, a JSON Web Key Set"),
    Foreign(&["secret", "secrets", "secret_key", "key", "hs256"], JWTS, "keys",
        "`secret_file`, a file with the secret in its first line, in place of `keys`"),
    Foreign(&["auth_jwt", "auth_jwt_key_file", "auth", "auth_*"], ANYWHERE, "",
        "authentication is `basic_auth`, `forward_auth`, `jwt` or `signed_url` of a site or route"),
    Foreign(&["dry_run", "limit_req_dry_run", "limit_conn_dry_run"], RATES, "report_only",
        "`report_only = true`"),
    Foreign(&["status", "limit_req_status", "limit_conn_status"], RATES, "",
        "leave it out: a refused request gets 429"),
    Foreign(&["zone", "limit_req_zone", "limit_conn_zone"], RATES, "",
        "leave it out: `per` says what shares the limit, and routes have those of their site too"),
    Foreign(&["rate", "limit_req", "rate_limit"], RATES, "requests",
        "`requests`, such as \"10/s\", or `bytes`, such as \"1MiB/s\""),
    Foreign(&["limit_rate", "throttle"], RATES, "bytes",
        "`bytes`, such as \"1MiB/s\""),
    Foreign(&["limit_conn", "max_conns"], RATES, "connections",
        "`connections`, such as 8"),
    Foreign(&["burst"], RATES, "after",
        "`after`, which counts the first request too: 21 stands for a burst of 20"),
    Foreign(&["nodelay", "delay"], RATES, "",
        "leave it out: requests beyond the limit are refused, and none is delayed"),
    Foreign(&["limit"], BESIDE_LOCATIONS, "",
        "limits are tables of a site or route: `[[site.limit]]`, behind its `[[site]]`"),
    Foreign(&["limit_req", "limit_req_*"], LOCATIONS, "limit",
        "`limit = [{ requests = \"10/s\", after = 21 }]` of a site or route; `after` counts the first request too: 21 stands for a burst of 20"),
    Foreign(&["limit_rate", "limit_rate_*", "throttle"], LOCATIONS, "limit",
        "`limit = [{ bytes = \"1MiB/s\", after = \"10MiB\" }]` of a site or route"),
    Foreign(&["limit_conn", "limit_conn_*"], LOCATIONS, "limit",
        "`limit = [{ connections = 8 }]` of a site or route"),
    Foreign(&["rate_limit", "ratelimit", "limits"], LOCATIONS, "limit",
        "`limit = [{ requests = \"100/10s\" }]` of a site or route"),
    Foreign(&["limit_req", "limit_req_*", "limit_rate", "limit_rate_*", "limit_conn", "limit_conn_*", "rate_limit", "ratelimit", "throttle"], ANYWHERE, "",
        "limits are tables of a site or route: `[[site.limit]]`"),
    Foreign(&["nchan_publisher", "nchan_subscriber", "nchan_pubsub", "push_stream_publisher", "push_stream_subscriber", "mercure", "sse", "channel"], LOCATIONS, "mailbox",
        "`mailbox = \"NAME\"`, the name of a `[[mailbox]]`, whose boxes clients read and publish to there"),
    Foreign(&["nchan_publisher_upstream_request", "nchan_authorize_request"], ANYWHERE, "",
        "`forward_auth` of a site or route with `mailbox`"),
    Foreign(&["nchan_channel_id", "push_stream_channels_path"], ANYWHERE, "",
        "leave it out: the name of a box is the path of the request behind `strip_prefix`"),
    Foreign(&["nchan_message_buffer_length", "push_stream_max_messages_stored_per_channel", "history_size", "history", "max_messages"], MAILBOXES, "messages",
        "`messages`, a number"),
    Foreign(&["nchan_message_buffer_length", "push_stream_max_messages_stored_per_channel"], ANYWHERE, "",
        "`messages` of the `[[mailbox]]`"),
    Foreign(&["nchan_message_timeout", "push_stream_message_ttl", "history_ttl", "ttl"], MAILBOXES, "lifetime",
        "`lifetime`, a duration such as \"1h\""),
    Foreign(&["nchan_message_timeout", "push_stream_message_ttl"], ANYWHERE, "",
        "`lifetime` of the `[[mailbox]]`"),
    Foreign(&["nchan_message_max_size", "max_message_size"], MAILBOXES, "message_bytes",
        "`message_bytes`, a size such as \"64KiB\""),
    Foreign(&["nchan_channel_timeout", "push_stream_channel_inactivity_time"], MAILBOXES, "idle",
        "`idle`, a duration such as \"60s\""),
    Foreign(&["nchan_max_channel_subscribers", "push_stream_max_subscribers_per_channel", "max_subscribers", "subscribers"], MAILBOXES, "receivers",
        "`receivers`, a number"),
    Foreign(&["nchan_websocket_ping_interval", "nchan_eventsource_ping_interval", "push_stream_ping_message_interval", "ping_interval", "keepalive_interval"], MAILBOXES, "heartbeat",
        "`heartbeat`, a duration such as \"15s\""),
    Foreign(&["publisher_jwt", "subscriber_jwt", "publisher_jwt_key", "subscriber_jwt_key", "jwt"], MAILBOXES, "claim",
        "`claim`, and `jwt` of the site or route with `mailbox`, which verifies tokens"),
    Foreign(&["publisher_jwt", "subscriber_jwt", "publisher_jwt_key", "subscriber_jwt_key"], ANYWHERE, "",
        "`jwt` of a site or route with `mailbox` verifies tokens; `claim` of the `[[mailbox]]` says where they have the names of boxes"),
    Foreign(&["publish_key", "key", "secret", "api_key"], MAILBOXES, "publish_key_file",
        "`publish_key_file`, a file with the key in its first line"),
    Foreign(&["grip_key", "control_uri"], MAILBOXES, "grip_key_file",
        "`grip_key_file`, a file with the key in its first line"),
    Foreign(&["allowed_origins", "publish_origins", "cors_origins", "nchan_access_control_allow_origin"], MAILBOXES, "origins",
        "`origins`, an array such as [\"https://example.org\"], for WebSocket; `cors` of the site or route is for the rest"),
    Foreign(&["nchan_redis_url", "redis_url", "redis"], MAILBOXES, "",
        "`url` of `[mailbox_store]`, for all mailboxes"),
    Foreign(&["nchan_redis_*", "redis"], ANYWHERE, "",
        "`[mailbox_store]` with `store = \"redis\"` and its `url`"),
    Foreign(&["nchan_max_reserved_memory", "nchan_shared_memory_size", "push_stream_shared_memory_size"], LIMITS, "mailbox_memory",
        "`mailbox_memory`"),
    Foreign(&["nchan_max_reserved_memory", "nchan_shared_memory_size", "push_stream_shared_memory_size"], ANYWHERE, "",
        "`mailbox_memory` of `[limits]`"),
    Foreign(&["nchan_*", "push_stream_*", "mercure"], ANYWHERE, "",
        "a `[[mailbox]]` has the settings of boxes, and `mailbox` of a site or route names it"),
    Foreign(&["type", "kind", "engine", "transport"], STORE, "store",
        "`store`, which is \"memory\", \"disk\" or \"redis\""),
    Foreign(&["path", "dir", "directory"], STORE, "folder",
        "`folder`, the path of a folder"),
    Foreign(&["address", "addresses", "host", "server", "servers", "redis_url"], STORE, "url",
        "`url`, such as \"redis://127.0.0.1:6379\""),
    Foreign(&["timeout", "ttl", "time", "keep"], RESUMES, "for",
        "`for`, a duration such as \"5m\""),
    Foreign(&["size", "buffer", "memory"], RESUMES, "bytes",
        "`bytes`, a size such as \"4MiB\""),
    Foreign(&["per_client", "receivers_per_client", "connections_per_client"], RESUMES, "streams_per_client",
        "`streams_per_client`, a number such as 32"),
    Foreign(&["http2", "h2", "h2c"], ANYWHERE, "",
        "HTTP/2 needs no key: every listener has it"),
    Foreign(&["http3", "quic"], ANYWHERE, "",
        "there is no HTTP/3 yet: clients use HTTP/2 and HTTP/1.1"),
    Foreign(&["ssl_protocols", "ssl_ciphers", "ssl_prefer_server_ciphers", "ssl_dhparam", "ssl_ecdh_curve", "tls_protocols", "ciphers"], ANYWHERE, "",
        "leave it out: TLS 1.3 and 1.2, with forward secrecy, always"),
    Foreign(&["ssl", "ssl_*", "https", "cert", "certificate", "sni", "grpc_ssl_*"], UPSTREAM, "tls",
        "`https://` before the backends in `to`, and `[upstream.tls]`"),
    Foreign(&["proxy_ssl_*", "grpc_ssl_*"], ANYWHERE, "",
        "`https://` before the backends in `to` of the `[[upstream]]`, and `[upstream.tls]`"),
    Foreign(&["fastcgi_*"], ANYWHERE, "",
        "an `[[upstream]]` with `protocol = \"fastcgi\"` has the same keys as others"),
    Foreign(&["grpc*"], ANYWHERE, "",
        "an `[[upstream]]` with `protocol = \"h2\"` speaks gRPC, and has the same keys as others"),
    Foreign(&["letsencrypt", "auto_https", "autocert"], ANYWHERE, "",
        "`tls = \"acme\"` of a site gets certificates, and `[acme]` says how"),
    Foreign(&["ssl_*", "https", "cert", "cert_file", "key_file", "pemfile"], ANYWHERE, "",
        "`[site.tls]` has `certificates` and `keys`, and `tls = true` of `[[listen]]` has connections use them"),
    Foreign(&["user", "username", "group", "groupname", "chroot"], ANYWHERE, "",
        "the server keeps the user that starts it, such as `User=` of its systemd unit; a port below 1024 needs CAP_NET_BIND_SERVICE"),
    Foreign(&["daemon", "daemonize", "pid", "pid_file"], ANYWHERE, "",
        "the server stays in the foreground and writes no pid file: a service manager supervises it"),
    Foreign(&["include"], ANYWHERE_BUT_TOP, "",
        "`include` stands at the top of the main file, above its first table"),
    Foreign(&["includes", "import"], ANYWHERE, "",
        "`include = [\"sites.d/*.toml\"]` stands at the top of the main file, above its first table"),
    Foreign(&["default_server", "default_sni", "ssl_reject_handshake"], ANYWHERE, "",
        "`default = true` of a `[[site]]` makes it the one for all other names, also with its certificate"),
    Foreign(&["worker_processes"], SERVER, "workers",
        "`workers`, a number or \"auto\""),
    Foreign(&["worker_processes"], ANYWHERE, "",
        "`workers` of `[server]`, a number or \"auto\""),
    Foreign(&["worker_connections", "max_connections", "max_clients"], LIMITS, "connections",
        "`connections`, for the whole process"),
    Foreign(&["worker_connections", "max_connections", "max_clients"], ANYWHERE, "",
        "`connections` of `[limits]`, for the whole process"),
    Foreign(&["worker_rlimit_nofile"], ANYWHERE, "",
        "the server raises its limit on open files to the maximum: `LimitNOFILE=` of its systemd unit"),
    Foreign(&["sendfile", "aio"], WHOLE_AND_LOCATIONS, "",
        "`engine` of `[disk]`, `[site.disk]` or `[site.route.disk]` selects how files are read"),
    Foreign(&["tcp_nopush", "tcp_nodelay"], ANYWHERE, "",
        "socket options have suitable values: there is nothing to set"),
    Foreign(&["open_file_cache*"], ANYWHERE, "",
        "open files are cached by default; `entry_ttl` of `[disk]` sets for how long they are trusted"),
    Foreign(&["keepalive_timeout", "keep_alive_timeout"], LIMITS, "idle_timeout",
        "`idle_timeout`, for connections of clients"),
    Foreign(&["keepalive_timeout", "keep_alive_timeout", "keepalive", "keep_alive"], ANYWHERE_BUT_UPSTREAM, "",
        "`idle_timeout` of `[limits]`, for connections of clients"),
    Foreign(&["keepalive_requests"], ANYWHERE, "",
        "a connection is kept for any number of requests: there is nothing to set"),
    Foreign(&["client_header_timeout"], LIMITS, "header_timeout",
        "`header_timeout`"),
    Foreign(&["client_header_timeout"], ANYWHERE, "",
        "`header_timeout` of `[limits]`"),
    Foreign(&["client_body_timeout"], LIMITS, "body_timeout",
        "`body_timeout`"),
    Foreign(&["client_body_timeout"], ANYWHERE, "",
        "`body_timeout` of `[limits]`"),
    Foreign(&["client_header_buffer_size", "large_client_header_buffers"], LIMITS, "head_bytes",
        "`head_bytes`, `header_bytes` and `request_line_bytes`"),
    Foreign(&["client_header_buffer_size", "large_client_header_buffers"], ANYWHERE, "",
        "`head_bytes`, `header_bytes` and `request_line_bytes` of `[limits]`"),
    Foreign(&["client_body_buffer_size"], LIMITS, "body_memory",
        "`body_memory`"),
    Foreign(&["client_body_buffer_size"], ANYWHERE, "",
        "`body_memory` of `[limits]`"),
    Foreign(&["access_log", "accesslog", "log_file"], LOG, "access",
        "`access`: \"off\", \"stdout\" or the path of a file"),
    Foreign(&["access_log", "accesslog", "log_file"], ANYWHERE, "",
        "`access` of `[log]`, or of `[site.log]` for one site: \"off\", \"stdout\" or the path of a file"),
    Foreign(&["log"], &["server"], "",
        "`[log]` is at the top level of the file, and applies to all sites; `[site.log]` is that of one"),
    Foreign(&["error_log", "errorlog", "log_level", "loglevel"], ANYWHERE, "",
        "messages go to standard error, which the service manager stores; there are no levels"),
    Foreign(&["log_format"], LOG, "format",
        "`format`, which is \"combined\", \"json\" or fields in braces: \"{peer} {status}\""),
    Foreign(&["log_format"], ANYWHERE, "",
        "`format` of `[log]`, which is \"combined\", \"json\" or fields in braces: \"{peer} {status}\""),
    Foreign(&["stub_status", "metrics", "prometheus", "status"], ANYWHERE, "",
        "`listen` of `[admin]`: `/metrics` and `/status` are served there"),
];

/// Values that do not exist here: the key, the value, and what to write instead.
#[rustfmt::skip]
const WORDS: &[(&str, &str, &str)] = &[
    ("protocol", "https", "write \"http\", and `https://` before the backends in `to`"),
    ("protocol", "grpc", "\"h2\" is what gRPC needs"),
    ("protocol", "grpcs", "\"h2\" is what gRPC needs, and `https://` in `to` is TLS"),
    ("protocol", "http2", "\"h2\" is HTTP/2"),
    ("protocol", "http/2", "\"h2\" is HTTP/2"),
    ("protocol", "h2c", "\"h2\" is HTTP/2, without TLS unless `to` has `https://`"),
    ("protocol", "uwsgi", "\"scgi\", with uwsgi started with --scgi-socket"),
    ("balance", "least_conn", "did you mean \"least-connections\"?"),
    ("balance", "ip_hash", "`sticky = \"cookie:NAME\"` binds a client to a backend"),
    ("mode", "queue", "did you mean \"inbox\"?"),
    ("mode", "broadcast", "did you mean \"topic\"?"),
    ("store", "valkey", "write \"redis\": Valkey speaks its protocol"),
    ("store", "nats", "there is no store on NATS any more: \"redis\" is a server that several processes may share"),
    ("store", "file", "write \"disk\""),
    ("store", "sqlite", "write \"disk\""),
    ("store", "journal", "write \"disk\", with another folder: messages of a journal are not taken over"),
    ("protocol", "fcgi", "did you mean \"fastcgi\"?"),
    ("try", "$uri", "write \"file\""),
    ("try", "{path}", "write \"file\""),
    ("try", "$uri/", "write \"directory\""),
    ("try", "{path}/", "write \"directory\""),
    ("try", "$uri.html", "write \"file.html\""),
    ("try", "{path}.html", "write \"file.html\""),
    ("try", "folder", "write \"directory\""),
    ("try", "=*", "write the number, without quotes, such as 404"),
    ("try", "4*", "write the number, without quotes, such as 404"),
    ("try", "5*", "write the number, without quotes, such as 404"),
    ("try", "@*", "\"proxy\" is the upstream that `proxy` names"),
    ("try", "upstream", "\"proxy\" is the upstream that `proxy` names"),
    ("try", "index.html", "write \"/index.html\": a path beneath `root`"),
];

/// Values of another TOML type: the key, that type, and what to write instead, where `VALUE` stands for the value.
const TYPES: &[(&str, &str, &str)] = &[
    (
        "compress",
        "array",
        "write `compress = true` and `compress_codings = VALUE`",
    ),
    (
        "compress",
        "string",
        "write `compress = true` and `compress_codings = [VALUE]`",
    ),
    (
        "contact",
        "array",
        "write one address, such as \"admin@example.org\"",
    ),
    ("redirect", "string", "write `redirect = { to = VALUE }`"),
    ("respond", "integer", "write `respond = { status = VALUE }`"),
    ("respond", "string", "write `respond = { body = VALUE }`"),
    (
        "reroute",
        "table",
        "write the path alone: `reroute = \"/path\"`",
    ),
    (
        "rewrite",
        "string",
        "`rewrite` changes headers of an application; another path to go on with is `reroute = VALUE`",
    ),
    (
        "basic_auth",
        "string",
        "write `basic_auth = { users = VALUE }`",
    ),
    ("jwt", "string", "write `jwt = { keys = VALUE }`"),
    (
        "forward_auth",
        "string",
        "write `forward_auth = { upstream = \"NAME\", path = \"/auth\" }`",
    ),
    (
        "requests",
        "integer",
        "a rate has a time too: write \"VALUE/s\"",
    ),
    (
        "bytes",
        "integer",
        "a rate has a time too: write \"VALUE/s\"",
    ),
    (
        "limit",
        "string",
        "write `limit = [{ requests = VALUE }]`; for sizes it is `bytes` in place of `requests`",
    ),
    ("log", "string", "write `log = { access = VALUE }`"),
    (
        "log",
        "boolean",
        "write `log = { access = \"off\" }` or `log = { access = \"stdout\" }`",
    ),
    (
        "upload",
        "boolean",
        "write `upload = { methods = [\"PUT\"] }`",
    ),
    ("upload", "string", "write `upload = { methods = [VALUE] }`"),
    ("upload", "array", "write `upload = { methods = VALUE }`"),
    (
        "mailbox",
        "table",
        "a `[[mailbox]]` has the settings, and a site or route only its name: `mailbox = \"NAME\"`",
    ),
    ("resume", "boolean", "write `resume = {}`"),
    ("resume", "string", "write `resume = { for = VALUE }`"),
    ("cors", "boolean", "write `cors = { origins = [\"*\"] }`"),
    ("cors", "string", "write `cors = { origins = [VALUE] }`"),
    (
        "precompressed",
        "boolean",
        "write [\"zstd\", \"br\", \"gzip\"], or [] for none",
    ),
];

/// Values out of bounds: the key, the value as it is written, and what to write instead.
const BOUNDS: &[(&str, &str, &str)] = &[(
    "after",
    "0",
    "write 1, so that no more pass at once than the rate names, or leave it out",
)];

/// Our key for the foreign key `name` in the table `path`, empty when there is none, and what to write instead.
pub(crate) fn key(path: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let is_meant = |Foreign(theirs, tables, ..): &&Foreign| {
        tables.contains(&path) && theirs.iter().any(|theirs| is_called(name, theirs))
    };
    let Foreign(.., ours, help) = KEYS.iter().find(is_meant)?;
    Some((ours, help))
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

/// What to write in place of `value`, which has a wrong TOML type, as the value of `name`.
pub(crate) fn of_type(name: &str, toml_type: &str, value: &str) -> Option<String> {
    let mut types = TYPES.iter();
    let (.., help) = types.find(|(key, theirs, _)| *key == name && *theirs == toml_type)?;
    Some(help.replace("VALUE", value))
}

/// What to write in place of `value`, which is out of bounds, as the value of `name`.
pub(crate) fn out_of_bounds(name: &str, value: &str) -> Option<&'static str> {
    let mut bounds = BOUNDS.iter();
    let (.., help) = bounds.find(|(key, theirs, _)| *key == name && *theirs == value)?;
    Some(help)
}

/// What to write in place of an array of tables `path` that is none here.
pub(crate) fn array(path: &str) -> Option<&'static str> {
    let help = "`[server]` is the process; a server of nginx is a `[[site]]` here";
    (path == "server").then_some(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{SCHEMA, TABLES};
    use crate::schema::Table;

    /// A hint that names a key which is gone, or stands where nobody looks, helps nobody.
    #[test]
    fn hints_are_about_what_is_there() {
        for Foreign(theirs, tables, ours, _) in KEYS {
            for table in *tables {
                let names: Vec<&str> = SCHEMA.names(SCHEMA.table(table)).collect();
                assert!(ours.is_empty() || names.contains(ours), "{table} {ours}");
                for theirs in *theirs {
                    let shadowed = names.iter().find(|name| is_called(name, theirs));
                    assert_eq!(shadowed, None, "{table} {theirs}");
                }
            }
        }
        for (key, ..) in WORDS.iter().chain(TYPES).chain(BOUNDS) {
            let mut keys = TABLES.iter().flat_map(|table| table.keys);
            let is_table = |table: &Table| table.path.rsplit('.').next() == Some(*key);
            let is_known = keys.any(|known| known.name == *key) || TABLES.iter().any(is_table);
            assert!(is_known, "{key}");
        }
    }
}
