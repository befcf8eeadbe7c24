//! The keys of `[[upstream]]`, and those by which sites and routes hand requests to one.

use crate::schema::{Key, Kind, bounds, key};

const SECONDS: Kind = Kind::Duration(bounds("10ms", "1d"));
const BRIEF: Kind = Kind::Duration(bounds("10ms", "1h"));
const IN_A_ROW: Kind = Kind::Count(bounds("1", "100"));

/// `[[upstream]]`
pub(crate) const UPSTREAM: &[Key] = &[
    key(
        "name",
        Kind::Text("a name"),
        None,
        "What `proxy` and `reproxy` call it: letters, digits, `-`, `_` and `.`. Required.",
    ),
    key(
        "protocol",
        Kind::Word(&["http", "fastcgi", "scgi", "ajp13"]),
        Some("http"),
        "What its backends speak: HTTP/1.1, FastCGI, SCGI or AJP13.",
    ),
    Key {
        also: &[("backends", ""), ("servers", "")],
        ..key(
            "to",
            Kind::Names,
            None,
            "The backends, each `\"ADDRESS\"` or `\"ADDRESS weight=N backup drain\"`. An address is `unix:PATH`, `IP:PORT`, \
             `[IPv6]:PORT`, `localhost:PORT` (127.0.0.1) or `NAME:PORT`, where each address of the name is a backend: one that cannot be looked up is complained of, has none, and is tried again. \
             `weight`, from 1 to 1000, is its share of requests; `backup` is asked only when all others are down; \
             `drain` gets no new clients, only those that `sticky` ties to it. At least one is neither. Required.",
        )
    },
    Key {
        also: &[("balancer", "")],
        ..key(
            "balance",
            Kind::Word(&[
                "round-robin",
                "least-connections",
                "carp",
                "static",
                "random-two",
            ]),
            Some("round-robin"),
            "How a backend is chosen: one after the other; the one with the fewest requests in hand for its weight \
             (`\"sqf\"` is taken too); by the path, so that each has its own part of the content; the first that is up; \
             the less busy of two picked at random.",
        )
    },
    key(
        "sticky",
        Kind::Text("`\"cookie:NAME\"` or `\"header:NAME\"`"),
        None,
        "What ties a client to a backend: a cookie that the server sets, or the value of a field of its requests.",
    ),
    Key {
        also: &[("max-pool-size", "")],
        ..key(
            "connections",
            Kind::Count(bounds("1", "65535")),
            Some("256"),
            "Connections to one backend at once, divided among the workers; each worker may have at least one.",
        )
    },
    Key {
        also: &[("keepalive", ", and is divided among the workers")],
        ..key(
            "keep_alive",
            Kind::Count(bounds("0", "65535")),
            Some("32"),
            "Idle connections that are kept to one backend, divided among the workers; at most `connections`. 0 closes \
             each after its request, which is the default with fastcgi: an idle connection keeps a process of php-fpm.",
        )
    },
    key(
        "keep_alive_timeout",
        SECONDS,
        Some("30s"),
        "How long an idle connection is kept. Less than the backend keeps it, or it closes one that is about to be used.",
    ),
    key(
        "connect_timeout",
        BRIEF,
        Some("5s"),
        "How long connecting may take.",
    ),
    key(
        "first_byte_timeout",
        SECONDS,
        Some("60s"),
        "From the last byte of a request to the first of its answer.",
    ),
    key(
        "idle_timeout",
        SECONDS,
        Some("60s"),
        "Between two parts of an answer, and between two parts of a request that the backend takes; \
         in a tunnel one of whose sides has ended, between two parts of the other.",
    ),
    key(
        "tunnel_timeout",
        SECONDS,
        Some("1h"),
        "How long nothing may pass either way once a connection has become a tunnel, as for WebSocket.",
    ),
    key(
        "queue",
        Kind::Count(bounds("0", "1000000")),
        Some("1024"),
        "Requests that may wait for a connection, divided among the workers. When it is full, a new one is answered 503.",
    ),
    key(
        "queue_timeout",
        BRIEF,
        Some("10s"),
        "How long a request may wait for a connection; then it is answered 503.",
    ),
    key(
        "retries",
        Kind::Count(bounds("0", "16")),
        Some("2"),
        "How often a request is tried again, at most: each time at another backend, or at the same one when a kept connection \
         turns out to have ended.",
    ),
    Key {
        also: &[("max_fails", "")],
        ..key(
            "fail_after",
            Kind::Count(bounds("1", "1000")),
            Some("1"),
            "Failures within `fail_for`, without a success between them, after which a backend is left alone for as long; \
             then one request tries it. The only one that new clients can get is never left alone.",
        )
    },
    Key {
        also: &[("fail_timeout", "")],
        ..key(
            "fail_for",
            Kind::Duration(bounds("0s", "1d")),
            Some("10s"),
            "See `fail_after`. `\"0s\"` leaves no backend alone.",
        )
    },
    key(
        "slow_start",
        Kind::Duration(bounds("0s", "1h")),
        Some("0s"),
        "How long a backend that comes back takes to get its full share; `\"0s\"` is at once.",
    ),
    key(
        "buffer_requests",
        Kind::Boolean,
        Some("false"),
        "Whether a request's body is taken in whole before a backend is asked, so that a slow client does not hold one: in \
         memory up to `limits.body_memory`, and in a file of `disk.spool` beyond.",
    ),
    key(
        "forwarded",
        Kind::Word(&["both", "forwarded", "x-forwarded", "off"]),
        Some("both"),
        "Which fields tell a backend who the client is: `Forwarded` (RFC 7239), `X-Forwarded-For`, `-Proto` and `-Host`, \
         or both; with the latter goes `X-Forwarded-Prefix`, the `strip_prefix` of the route. What a client that is not one of `server.trusted_proxies` sent in them is removed, whatever this says.",
    ),
    key(
        "proxy_protocol",
        Kind::Word(&["off", "v1", "v2"]),
        Some("off"),
        "Whether connections to a backend begin with a head of the PROXY protocol, as text or binary, that names the \
         client. Each then carries one request, whatever `keep_alive` says.",
    ),
    key(
        "secret",
        Kind::Text("a word"),
        None,
        "With ajp13: what the container demands of its peers (`secret` of Tomcat's connector).",
    ),
    key(
        "sendfile_roots",
        Kind::Names,
        Some("[]"),
        "Folders whose files the application may name in `X-Sendfile`, to have them sent in place of its answer.",
    ),
    key(
        "temporary_roots",
        Kind::Names,
        Some("[]"),
        "Folders whose files it may name in `X-LIGHTTPD-send-tempfile`: they are sent and then deleted.",
    ),
    key(
        "temporary_removal",
        Kind::Word(&["opened", "sent"]),
        Some("opened"),
        "When a file beneath `temporary_roots` is deleted: as soon as it is open, so that nothing of it stays whatever \
         happens then, or once a client has got all of it.",
    ),
    key(
        "reproxy",
        Kind::Names,
        Some("[]"),
        "Names of other upstreams, of protocol http, to which it may hand a request on by `X-Reproxy-URL`.",
    ),
    key(
        "resolve_interval",
        Kind::Duration(bounds("1s", "1d")),
        Some("30s"),
        "How often names in `to` are looked up again; one that has no address yet is sooner, after 1 s, 2 s, 4 s and so on. When a name cannot be looked up any more, its addresses stay what they were.",
    ),
];

/// `[upstream.check]`
pub(crate) const CHECK: &[Key] = &[
    key(
        "path",
        Kind::Text("a path"),
        None,
        "What is asked for with GET; a status from 200 to 399 is well. With fastcgi it is the name of the script, such as \
         `ping.path` of php-fpm. Without it a connection is enough; ajp13 has a question of its own, with and without.",
    ),
    key(
        "host",
        Kind::Text("a host, with or without a port"),
        None,
        "What the question says in `Host`, and with fastcgi and scgi in `SERVER_NAME` too, for an application that answers \
         only to its own name. By default the address of the backend, `localhost` for a Unix socket, and with fastcgi and scgi. Needs \
         `path`; ajp13 asks without.",
    ),
    key(
        "interval",
        BRIEF,
        Some("5s"),
        "From one question to the next.",
    ),
    key("timeout", BRIEF, Some("2s"), "How long an answer may take."),
    key(
        "fall",
        IN_A_ROW,
        Some("3"),
        "So many failures in a row take a backend out.",
    ),
    key(
        "rise",
        IN_A_ROW,
        Some("2"),
        "So many successes in a row bring it back.",
    ),
];

pub(crate) const PROXY: Key = key(
    "proxy",
    Kind::Text("a name"),
    None,
    "The `[[upstream]]` that answers.",
);
pub(crate) const TRY: Key = key(
    "try",
    Kind::Names,
    None,
    "Who answers, in this order: `\"file\"`, which leaves what it does not have to the next, and `\"proxy\"`. Without it the \
     upstream answers everything where there is one. `[\"file\"]` has files only, whatever `proxy` says.",
);
pub(crate) const SCRIPT_SUFFIX: Key = key(
    "script_suffix",
    Kind::Text("a suffix such as `.php`"),
    None,
    "What the name of a script ends in: the upstream is asked for such files, and what follows one in the path is its \
     `PATH_INFO`. Needs `root`, and an upstream of protocol fastcgi or scgi.",
);
pub(crate) const SCRIPT_INDEX: Key = key(
    "script_index",
    Kind::Text("a file such as `index.php`"),
    None,
    "The script, beneath `root`, that answers what is neither a file nor a script. Needs what `script_suffix` needs.",
);
pub(crate) const BODY_BYTES: Key = key(
    "body_bytes",
    Kind::Size(bounds("0B", "1TiB")),
    None,
    "A request's body, in place of `limits.body_bytes`.",
);
pub(crate) const AMBIGUOUS_PATHS: Key = key(
    "ambiguous_paths",
    Kind::Word(&["refuse", "pass"]),
    None,
    "What becomes of a request for the upstream whose path some applications read as one of another route: those that take \
     `%2F` or `%5C` for a slash, or cut off `;parameters`. `\"refuse\"`, the default, answers 400; `\"pass\"` passes it on. \
     A path whose readings all belong to one route is passed on in any case, and one with hidden dot segments such as \
     `..%2F` and `..;` in none. What is refused first in each site and route is said on standard error.",
);
