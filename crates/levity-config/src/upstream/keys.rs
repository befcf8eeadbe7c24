//! The keys of `[[upstream]]`, and those by which sites and routes hand requests to one.

use strum::VariantNames as _;

use super::{AmbiguousPaths, Balance, Forwarded, Protocol};
use crate::schema::{Key, Kind, documented, key, meanings};

const SECONDS: Kind = Kind::Duration("10ms", "1d");
const BRIEF: Kind = Kind::Duration("10ms", "1h");
const IN_A_ROW: Kind = Kind::Count("1", "100");

/// `[[upstream]]`
pub(crate) const UPSTREAM: &[Key] = documented! {
    /// Name for `proxy` and `reproxy`: letters, digits, `-`, `_` and `.`. Required.
    key("name", Kind::Text("a name"), None);
    /// Protocol of the backends: HTTP/1.1, HTTP/2, FastCGI, SCGI or AJP13. With h2 requests share connections, and gRPC
    /// passes: over TLS where `to` has `https://` (ALPN), otherwise at once (prior knowledge).
    key("protocol", Kind::Word(Protocol::VARIANTS), Some("http"));
    /// The backends, each `"ADDRESS"` or `"ADDRESS weight=N backup drain"`. An address is `unix:PATH`, `IP:PORT`,
    /// `[IPv6]:PORT`, `localhost:PORT` (127.0.0.1, or ::1 if that refuses) or `NAME:PORT`, where every address of the name is a
    /// backend. A name that cannot be resolved is reported, has no backend meanwhile, and is tried again. `weight`, from 1 to
    /// 1000, is the share of requests; `backup` gets requests only when all others are down; `drain` gets no new
    /// clients, only those that `sticky` ties to it. At least one backend is neither. Required.
    /// `https://HOST` or `https://HOST:PORT` is one over TLS, as all are then: it has to prove by its certificate that it is HOST.
    key("to", Kind::Names, None).also(&[("backends", ""), ("servers", "")]);
    /// How a backend is chosen. `"sqf"` is accepted for `"least-connections"`.
    key("balance", Kind::Word(Balance::VARIANTS), Some("round-robin"))
        .also(&[("balancer", "")]).with_meanings(meanings::<Balance>);
    /// What ties a client to a backend: a cookie that the server sets, or the value of a request header.
    key("sticky", Kind::Text("`\"cookie:NAME\"` or `\"header:NAME\"`"), None);
    /// Simultaneous connections to one backend, divided among the workers; each worker may have at least one. With h2
    /// each carries as many requests as the backend allows, at most 100; those that the backend ends do not count.
    key("connections", Kind::Count("1", "65535"), Some("256")).also(&[("max-pool-size", "")]);
    /// Idle connections to one backend that are kept, divided among the workers; at most `connections`. 0 closes each
    /// connection after its request, which is the default with fastcgi, because an idle connection occupies a process
    /// of php-fpm.
    key("keep_alive", Kind::Count("0", "65535"), Some("32"))
        .also(&[("keepalive", ", and is divided among the workers")]);
    /// How long an idle connection is kept. Must be shorter than the limit of the backend, or the backend may close a
    /// connection that is about to be used. A backend that announces its limit with `Keep-Alive: timeout=SECONDS`, as
    /// Node.js does, gets no request in the last second of it.
    key("keep_alive_timeout", SECONDS, Some("30s"));
    /// How long connecting may take.
    key("connect_timeout", BRIEF, Some("5s"));
    /// From the last byte of a request to the first byte of its response.
    key("first_byte_timeout", SECONDS, Some("60s"));
    /// Between two parts of a response, and between two parts of a request that the backend accepts; in a tunnel that
    /// has ended in one direction, between two parts in the other.
    key("idle_timeout", SECONDS, Some("60s"));
    /// How long a tunnel, such as a WebSocket connection, may be silent in both directions.
    key("tunnel_timeout", SECONDS, Some("1h"));
    /// Requests that may wait for a connection, divided among the workers. When the queue is full, a new request gets
    /// 503.
    key("queue", Kind::Count("0", "1000000"), Some("1024"));
    /// How long a request may wait for a connection; then it gets 503.
    key("queue_timeout", BRIEF, Some("10s"));
    /// Failures within `fail_for`, without a success between them, after which a backend gets no requests for that
    /// time; then one request tries it. The only backend that new clients can get is never left out.
    key("fail_after", Kind::Count("1", "1000"), Some("1")).also(&[("max_fails", "")]);
    /// See `fail_after`. `"0s"` leaves no backend out.
    key("fail_for", Kind::Duration("0s", "1d"), Some("10s")).also(&[("fail_timeout", "")]);
    /// How long a backend that comes back takes to reach its full share; `"0s"` is at once.
    key("slow_start", Kind::Duration("0s", "1h"), Some("0s"));
    /// Whether the whole body of a request is received before a backend is asked, so that a slow client does not
    /// occupy a backend: in memory up to `limits.body_memory`, and beyond that in a file in `disk.spool`.
    key("buffer_requests", Kind::Boolean, Some("false"));
    /// How long a stream of server-sent events (`text/event-stream`) may be silent before its client gets a comment (`:`), so
    /// that no proxy before it ends the connection. Only between two events, and before the first one; not where the
    /// application has encoded the content. `idle_timeout` counts the silence of the application all the same. Without this
    /// key there are none.
    key("event_stream_heartbeat", Kind::Duration("100ms", "1h"), None);
    /// Headers that name the client to a backend: `Forwarded` (RFC 7239), `X-Forwarded-For`, `-Proto` and `-Host`, or
    /// both; the latter include `X-Forwarded-Prefix`, the `strip_prefix` of the route, and others that trusted proxies send, such
    /// as `X-Forwarded-Port` and `-User`, unless a gate writes them. Such headers are always removed from requests of
    /// clients that are not among `server.trusted_proxies`.
    key("forwarded", Kind::Word(Forwarded::VARIANTS), Some("both"));
    /// Whether connections to a backend begin with a PROXY header, as text or binary, that names the client. Each
    /// connection then carries one request, whatever `keep_alive` says. Not with h2.
    key("proxy_protocol", Kind::Word(&["off", "v1", "v2"]), Some("off"));
    /// With ajp13: the secret that the container requires (`secret` of Tomcat's connector).
    key("secret", Kind::Text("a word"), None).or_file();
    /// A file with `secret` in its first line.
    key("secret_file", Kind::Text("a path"), None).secret();
    /// Folders whose files the application may name in `X-Sendfile` to have them sent in place of its response.
    key("sendfile_roots", Kind::Names, Some("[]"));
    /// Folders whose files the application may name in `X-LIGHTTPD-send-tempfile`: they are sent, then deleted.
    key("temporary_roots", Kind::Names, Some("[]"));
    /// When a file beneath `temporary_roots` is deleted: as soon as it is open, so that nothing remains whatever
    /// happens, or when a client has received all of it.
    key("temporary_removal", Kind::Word(&["opened", "sent"]), Some("opened"));
    /// Names of other upstreams, of protocol http or h2, to which the application may hand a request on with
    /// `X-Reproxy-URL`.
    key("reproxy", Kind::Names, Some("[]"));
    /// How often names in `to` are resolved again: also at once when no connection can be made or a check fails, at most
    /// once per second. A name without an address is retried sooner, after 1 s, 2 s, 4 s and so on. When a name cannot be
    /// resolved any more, its last addresses stay in use.
    key("resolve_interval", Kind::Duration("1s", "1d"), Some("30s"));
};

/// `[upstream.retry]`
pub(crate) const RETRY: &[Key] = documented! {
    /// Maximum number of retries of a request: each at another backend, or at the same one when a kept connection
    /// turns out to be closed. 0 is none, also for `for`.
    key("times", Kind::Count("0", "16"), Some("2"));
    /// How long a request waits for a backend, from its first failure of a kind in `on`: when none is left to try, all are
    /// tried again, 0.1 s later at the soonest. `times` then counts anew, but for what a backend may have begun to answer.
    /// `"0s"` tries each backend once.
    key("for", Kind::Duration("0s", "1m"), Some("2s"));
    /// Failures after which a request waits: `"connect"` is the only one. The backend refuses the connection or cannot
    /// be reached, or the connection ends before anything of the request is sent. A time-out is none of these.
    key("on", Kind::Names, Some("[\"connect\"]"));
};

/// `[upstream.tls]`
pub(crate) const TLS: &[Key] = documented! {
    /// File with the certificates of the authorities that sign those of the backends, in place of those that this machine
    /// trusts.
    key("authorities", Kind::Text("a path"), None).also(&[("ca", ""), ("proxy_ssl_trusted_certificate", ""), ("grpc_ssl_trusted_certificate", "")]);
    /// Whether backends have to prove who they are. Without that, the connection is encrypted, but anyone who can redirect it
    /// reads it and answers.
    key("verify", Kind::Boolean, Some("true")).also(&[("proxy_ssl_verify", ""), ("grpc_ssl_verify", "")]);
    /// Name that a backend has to prove, and that it is asked for (SNI), in place of the host in `to`.
    key("name", Kind::Text("a host name"), None).also(&[("server_name", ""), ("proxy_ssl_name", ""), ("grpc_ssl_name", "")]);
    /// File with a certificate and its chain that Levity shows to backends, as PEM.
    key("certificate", Kind::Text("a path"), None).also(&[("proxy_ssl_certificate", ""), ("grpc_ssl_certificate", "")]);
    /// File with the key of `certificate`. Without it the key is in the file of the certificate.
    key("key", Kind::Text("a path"), None).secret().also(&[("proxy_ssl_certificate_key", ""), ("grpc_ssl_certificate_key", "")]);
};

/// `[upstream.check]`
pub(crate) const CHECK: &[Key] = documented! {
    /// Path of the request (GET); a status from 200 to 399 means healthy. With fastcgi it is the name of the script,
    /// such as `ping.path` of php-fpm. Without `path` a connection is enough; with h2 the backend has to send its
    /// settings, and ajp13 always sends a CPing.
    key("path", Kind::Text("a path"), None);
    /// `Host` of the request, and with fastcgi and scgi also `SERVER_NAME`, for an application that answers to its
    /// own name only. By default the address of the backend, and `localhost` for a Unix socket and with fastcgi and
    /// scgi. Needs `path`; not for ajp13.
    key("host", Kind::Text("a host, with or without a port"), None);
    /// From one check to the next.
    key("interval", BRIEF, Some("5s"));
    /// How long a response may take.
    key("timeout", BRIEF, Some("2s"));
    /// Consecutive failures that take a backend out.
    key("fall", IN_A_ROW, Some("3"));
    /// Consecutive successes that bring it back.
    key("rise", IN_A_ROW, Some("2"));
};

/// `[upstream.limits]`
pub(crate) const LIMITS: &[Key] = documented! {
    /// Length of one header line, such as a long cookie or policy, without its end. Over HTTP/2 a name, its value and 2 bytes
    /// count as a line. A response with a longer one is "header line too long" in the log.
    key("line_bytes", Kind::Size("1KiB", "256KiB"), Some("16KiB"));
    /// Length of the whole header with the status line. Over HTTP/2 each name and value counts with 32 bytes more.
    key("head_bytes", Kind::Size("1KiB", "256KiB"), Some("64KiB"));
    /// Number of header lines.
    key("headers", Kind::Count("10", "1000"), Some("200"));
};

/// Of sites and routes.
pub(crate) const PROXYING: &[Key] = documented! {
    /// Name of the `[[upstream]]` that answers.
    key("proxy", Kind::Text("a name"), None);
    /// What answers: the first of these that can. `"file"` is the file that the path names, or the index file of a
    /// folder; `"file.html"` the file with this or another suffix behind the path; `"directory"` a folder, with its index
    /// file or as a list where `listing` is on (`"file"` then leaves folders to it); `"/index.html"` this or another file
    /// of `root`, whatever the path; `"proxy"` the upstream; a number from 400 to 599 an error of that status. All but
    /// `"proxy"` and numbers are for GET and HEAD, and pass on what does not exist. At the end there is a 404. Without
    /// `try` the upstream answers everything, where there is one, and files otherwise. A list without `"proxy"` leaves
    /// the upstream out. [How](tasks/try.md) it is used.
    key("try", Kind::NamesAndNumbers, None);
    /// Suffix of the names of scripts: the upstream answers requests for such files, and the rest of the path after
    /// the script is its `PATH_INFO`. Needs `root`, and an upstream of protocol fastcgi or scgi.
    key("script_suffix", Kind::Text("a suffix such as `.php`"), None);
    /// Script beneath `root` that answers requests that match neither a file nor a script. Needs what `script_suffix`
    /// needs.
    key("script_index", Kind::Text("a file such as `index.php`"), None);
    /// Path of `root` where the application runs, if it sees the folder elsewhere, as php-fpm in a container does: for
    /// `SCRIPT_FILENAME`, `DOCUMENT_ROOT` and `PATH_TRANSLATED`. Scripts are looked up beneath `root` all the same. A route with
    /// a `root` of its own does not inherit it. Needs what `script_suffix` needs.
    key("script_root", Kind::Text("an absolute path"), None);
    /// Variables of requests to an upstream of protocol fastcgi or scgi, NAME = "value": in addition to those of the
    /// server, or in place of one of the same name. A route has those of its site too, unless it gives other values. Names and
    /// values have at most 16 KiB together. [How](tasks/php.md) they are used.
    key("params", Kind::Pairs, None);
    /// Length of a request body that an application gets, in place of `limits.body_bytes`. Where files answer, that one counts.
    key("body_bytes", Kind::Size("0B", "1TiB"), None);
    /// What happens to a request for the upstream whose path some applications read as a path of another route:
    /// applications that decode `%2F` or `%5C` to a slash, or drop `;parameters`. `"refuse"`, the default, answers
    /// 400; `"pass"` forwards the request. A path is always forwarded if all its readings belong to one route, and
    /// never if it hides dot segments, as `..%2F` and `..;` do. The first refusal in each site and route is reported
    /// on standard error.
    key("ambiguous_paths", Kind::Word(AmbiguousPaths::VARIANTS), None);
};
