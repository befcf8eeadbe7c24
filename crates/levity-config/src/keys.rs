//! The one table of configuration keys: the reader, the search for the nearest valid key and
//! `docs/configuration.md` all come from it.

use levity_disk::engine;

use crate::limits;
use crate::schema::{Bounds, Key, Kind, Schema, Table, bounds, key};
use crate::suggest::nearest;
use crate::upstream::keys as upstream;

/// The number of workers, in the file and on the command line.
const WORKERS: Bounds = bounds("1", "1024");

const ADDRESS: Kind = Kind::Text("an address");
const PATH: Kind = Kind::Text("a path");

/// Where bodies go when `disk.spool` is not given.
pub(crate) const SPOOL: &str = "/var/tmp";

pub(crate) const SCHEMA: Schema = Schema(TABLES);

/// Every table, in the order of the reference.
pub(crate) const TABLES: &[Table] = &[
    Table {
        path: "",
        repeated: false,
        doc: "The file itself.",
        keys: &[],
    },
    Table {
        path: "server",
        repeated: false,
        doc: "The process.",
        keys: &[
            key(
                "workers",
                Kind::Count(WORKERS),
                Some("auto"),
                "Event loops, each with its own thread. `\"auto\"` is one per core that the process may use.",
            ),
            key(
                "trusted_proxies",
                Kind::Names,
                Some("[]"),
                "Networks such as `\"10.0.0.0/8\"`, and addresses, whose word on who the client is counts: what they \
                 say in `Forwarded` and `X-Forwarded-*` is taken and passed on. `\"unix\"` is whoever connects over a \
                 Unix socket.",
            ),
            key(
                "etag",
                Kind::Word(&["file", "mtime-size"]),
                Some("file"),
                "What the `ETag` of a file is made from. `\"file\"` uses device, inode, modification time, change time and \
                 size, so that a new version always has a new tag, even if it has the size and the modification time \
                 of the old one (reproducible builds, `rsync -t`). `\"mtime-size\"` uses modification time and size only: \
                 several servers behind one balancer, each with a copy of the files, then send the same tag. Use it \
                 only if no file is replaced by another one of the same size and modification time.",
            ),
        ],
    },
    Table {
        path: "disk",
        repeated: false,
        doc: "How files are read.",
        keys: &[
            Key {
                default: Some("auto"),
                ..ENGINE
            },
            Key {
                also: &[("max-read-threads", ", which counts `stat_threads` too")],
                ..key(
                    "threads",
                    Kind::Count(bounds("1", "1024")),
                    Some("auto"),
                    "Threads of the pool that waits for the disk, at most: they are started as they are needed.",
                )
            },
            Key {
                also: &[("max-stat-threads", "")],
                ..key(
                    "stat_threads",
                    Kind::Count(bounds("1", "1024")),
                    Some("auto"),
                    "Threads of the pool that are kept for opening files and asking for their metadata; fewer than \
                     `threads`.",
                )
            },
            key(
                "depth",
                Kind::Count(bounds("1", "4096")),
                Some("auto"),
                "Reads in flight per device; fewer than `threads` less `stat_threads`, so that one frozen device leaves \
                 threads to the others. `\"auto\"` finds out what makes each device do most, up to 32, or up to half of the \
                 threads that read when `threads` is a number.",
            ),
            CHUNK,
            Key {
                default: Some("auto"),
                ..DIRECT
            },
            key(
                "cache_bytes",
                Kind::Size(bounds("0B", "1TiB")),
                Some("64MiB"),
                "Memory for the bodies of small files that are asked for often; 0 turns that cache off.",
            ),
            key(
                "buffer_bytes",
                Kind::Size(bounds("1MiB", "1TiB")),
                Some("256MiB"),
                "Memory for chunks on their way from the disk to a client. When it is used up, new requests for cold files are answered 503 and later chunks wait.",
            ),
            key(
                "queue",
                Kind::Count(bounds("16", "1000000")),
                Some("4096"),
                "Jobs that may wait per device. When it is full, a new request is answered 503.",
            ),
            key(
                "dead_after",
                Kind::Duration(bounds("10ms", "1h")),
                Some("5s"),
                "When a device has reads in flight and finishes none for so long, new requests that need it are answered \
                 503 at once, and so are those that wait, until it finishes something. One request at a time still tries. \
                 Longer than the disk takes to spin up.",
            ),
            key(
                "entry_ttl",
                Kind::Duration(bounds("0s", "1h")),
                Some("1s"),
                "How long an open file, its size and its times are trusted before they are looked at again, and where the \
                 path of a root leads. `0s` looks every time, as `levity serve` does, and every 0.1 s at the path of a root.",
            ),
            key(
                "watch",
                Kind::Word(&["off", "inotify"]),
                Some("off"),
                "What tells of changes. `\"inotify\"` watches the directories of files that are kept open: such a file is \
                 trusted until something changes there, for 20 s at most, whatever `entry_ttl` is. Not on network file \
                 systems, nor for files behind a symbolic link or with a second name: these stay on `entry_ttl`, and so does \
                 what was not found.",
            ),
            key(
                "spool",
                PATH,
                Some(SPOOL),
                "The folder for request bodies that do not fit into memory; see `limits.body_memory`.",
            ),
        ],
    },
    Table {
        path: "log",
        repeated: false,
        doc: "The access log. Messages about the server itself go to stderr.",
        keys: &[
            key(
                "access",
                Kind::Text("`\"off\"`, `\"stdout\"` or a path with a `/`"),
                Some("stdout"),
                "Where one line per request goes. A path is opened for appending, and again on SIGUSR1.",
            ),
            key(
                "format",
                Kind::Word(&["combined", "json"]),
                Some("combined"),
                "The form of a line: the Combined Log Format, or one JSON object; [log.md](log.md) has every key of it.",
            ),
            key(
                "timing",
                Kind::Word(&["off", "request", "chunk"]),
                Some("off"),
                "What a JSON line says besides the totals: the time of each step (`\"request\"`), and when each chunk was \
                 queued, read and written (`\"chunk\"`). `levity timing` makes a table and a picture of it.",
            ),
        ],
    },
    Table {
        path: "admin",
        repeated: false,
        doc: "Read-only pages about the running server: `/status`, `/metrics` and `/health`. Off unless `listen` is given.",
        keys: &[
            key(
                "listen",
                ADDRESS,
                None,
                "Where they are served: `unix:PATH`, or `ADDRESS:PORT` with the address written out, since anyone who \
                 reaches it may read them.",
            ),
            key(
                "hosts",
                Kind::Names,
                Some("[]"),
                "Host names to which the pages answer over TCP, besides `localhost`, the names beneath it, and IP addresses; \
                 `*.example.org` stands for every name beneath. A request for another name is answered 421: a web page \
                 could have its own name resolve to this machine and read along.",
            ),
        ],
    },
    Table {
        path: "limits",
        repeated: false,
        doc: "Bounds that protect the server from its clients and from its disks.",
        keys: limits::KEYS,
    },
    Table {
        path: "listen",
        repeated: true,
        doc: "Where clients connect; `127.0.0.1:8080` when there is none.",
        keys: &[
            key(
                "address",
                ADDRESS,
                None,
                "`PORT` or `:PORT` for every address of the machine, IPv4 and IPv6; `ADDRESS:PORT`, `[IPv6]:PORT`, \
                 `localhost:PORT` (127.0.0.1), or `unix:PATH`. Port 0 lets the kernel choose. Required.",
            ),
            key(
                "proxy_protocol",
                Kind::Boolean,
                Some("false"),
                "Whether connections begin with a head of the PROXY protocol, version 1 or 2, which tells who the client is. \
                 Whoever connects is believed, so only proxies may be able to; a connection without such a head is \
                 closed. The client that it names counts as a peer: `server.trusted_proxies` says whether its \
                 `X-Forwarded-For` counts. A reload changes it for new connections.",
            ),
        ],
    },
    Table {
        path: "site",
        repeated: true,
        doc: "What is served, under which names. At least one.",
        keys: &[
            key(
                "hosts",
                Kind::Names,
                Some("[]"),
                "Host names that the site answers, without port; `*.example.org` stands for every name beneath. An \
                 exact name goes before a wildcard. An empty list answers every name that no other site does, and requests \
                 of HTTP/1.0 that name no host.",
            ),
            key(
                "root",
                PATH,
                None,
                "The folder that is served, and nothing outside of it unless `symlinks` says so. Names with a leading dot \
                 are not served, but for `.well-known`. Required where there is no `proxy`.",
            ),
            upstream::PROXY,
            upstream::TRY,
            upstream::SCRIPT_SUFFIX,
            upstream::SCRIPT_INDEX,
            upstream::BODY_BYTES,
            upstream::AMBIGUOUS_PATHS,
            LISTING,
            INDEX,
            PRECOMPRESSED,
            SYMLINKS,
            SERVER_TIMING,
        ],
    },
    Table {
        path: "site.disk",
        repeated: false,
        doc: "How the files of the site above are read, where that differs from `[disk]`.",
        keys: &[ENGINE, CHUNK_HERE, DIRECT],
    },
    Table {
        path: "site.route",
        repeated: true,
        doc: "Other rules for some paths of the site above it. The first route that matches wins; a key that is absent \
              is taken from the site.",
        keys: &[
            key(
                "path",
                Kind::Text("a path such as `/a` or `/a/*`"),
                None,
                "`/a` is that path alone; `/a/` is that path alone too, another one; everything beneath it is `/a/*`, which takes `/a/` \
                 but not `/a`. `/*` is \
                 everything: last, it is the place for `headers` of a whole site, which requests of the routes before it do \
                 not get. Compared with the decoded path. Required.",
            ),
            key(
                "root",
                PATH,
                None,
                "Another folder for this route. With neither `proxy` nor `try` beside it the route has files only, whatever \
                 the site says.",
            ),
            upstream::PROXY,
            upstream::TRY,
            upstream::SCRIPT_SUFFIX,
            upstream::SCRIPT_INDEX,
            upstream::BODY_BYTES,
            upstream::AMBIGUOUS_PATHS,
            key(
                "internal",
                Kind::Boolean,
                Some("false"),
                "Whether clients get 404 here: only what an upstream's answer names comes from it. With neither `proxy` nor `try` of \
                 its own it has files only, where it or the site has a `root`.",
            ),
            key(
                "strip_prefix",
                Kind::Text("a path"),
                None,
                "What is taken off the start of the request's path before the file is looked up or the upstream is asked, \
                 whole segments only.",
            ),
            Key {
                default: None,
                ..LISTING
            },
            Key {
                default: None,
                ..INDEX
            },
            Key {
                default: None,
                ..PRECOMPRESSED
            },
            Key {
                default: None,
                ..SYMLINKS
            },
            Key {
                default: None,
                ..SERVER_TIMING
            },
        ],
    },
    Table {
        path: "site.route.disk",
        repeated: false,
        doc: "How the files of the route above are read, where that differs from `[disk]` and its site.",
        keys: &[ENGINE, CHUNK_HERE, DIRECT],
    },
    Table {
        path: "site.route.headers",
        repeated: false,
        doc: "Changes to the header fields of the responses of the route above it, those of an upstream too, but not of errors \
              (400 and above). Each name stands in one of the three.",
        keys: &[HEADERS_SET, HEADERS_ADD, HEADERS_REMOVE],
    },
    Table {
        path: "site.route.request_headers",
        repeated: false,
        doc: "Changes to the header fields of requests of the route above it, on their way to its upstream. Each name \
              stands in one of the three; `Host` can only be set.",
        keys: &[HEADERS_SET, HEADERS_ADD, HEADERS_REMOVE],
    },
    Table {
        path: "site.route.rewrite",
        repeated: false,
        doc: "Changes to what the upstream's answers say of its own place, each found = \"put instead\"; the first in the \
              order of the file that fits is taken.",
        keys: &[
            key(
                "location",
                Kind::Pairs,
                None,
                "The start of `Location`, such as `\"http://a.internal/app/\" = \"/\"`; of no other field. Where no pair fits, a URL \
                 that begins with the address of a backend, or with the `Host` that the route sets, becomes a path here, \
                 with `strip_prefix` put back: `\"http://\" = \"http://\"` leaves it as it is.",
            ),
            key(
                "cookie_path",
                Kind::Pairs,
                None,
                "The start of the `Path` of each `Set-Cookie`.",
            ),
            key(
                "cookie_domain",
                Kind::Pairs,
                None,
                "The whole `Domain` of each `Set-Cookie`, without regard to case and a dot before it.",
            ),
        ],
    },
    Table {
        path: "upstream",
        repeated: true,
        doc: "Applications that answer requests: a named set of backends that speak one protocol. `proxy` of a site or \
              route names it.",
        keys: upstream::UPSTREAM,
    },
    Table {
        path: "upstream.check",
        repeated: false,
        doc: "Asks the backends of the upstream above whether they are well. Without this table nothing is asked, and only \
              requests find out.",
        keys: upstream::CHECK,
    },
];

const HEADERS_SET: Key = key(
    "set",
    Kind::Pairs,
    None,
    "Fields to write, name = \"value\"; one of the same name is replaced.",
);
const HEADERS_ADD: Key = key(
    "add",
    Kind::Pairs,
    None,
    "Fields to write besides those of the same name.",
);
const HEADERS_REMOVE: Key = key(
    "remove",
    Kind::Names,
    None,
    "Names of fields that are left out.",
);
const ENGINE: Key = key(
    "engine",
    Kind::Word(engine::NAMES),
    None,
    "What reads files; see [engines](engines.md). `\"auto\"` tries what works here; `levity run -v` and `/status` \
     say what it chose and why; in a site or route it is what `[disk]` says.",
);
const CHUNK: Key = key(
    "chunk",
    Kind::Size(bounds("4KiB", "16MiB")),
    Some("auto"),
    "Bytes per read, a multiple of 4KiB. `\"auto\"` begins with 128KiB, or all of a file of less than 1MiB, and goes up to 512KiB for a client that keeps up, or 1MiB from a disk that takes 2 ms for a read.",
);
const CHUNK_HERE: Key = Key {
    doc: "Bytes per read, a multiple of 4KiB, at most `disk.buffer_bytes`.",
    default: None,
    ..CHUNK
};
const DIRECT: Key = Key {
    also: &[("directio", "")],
    ..key(
        "direct",
        Kind::Word(&["auto", "always", "never"]),
        None,
        "Which reads go past the page cache (`O_DIRECT`). `\"auto\"`: those of large files that only one client asks for, so \
         that they push nothing out. `\"always\"`: all that the disk is asked for. `\"never\"`: none.",
    )
};
const LISTING: Key = key(
    "listing",
    Kind::Boolean,
    Some("false"),
    "Whether a folder without an index file is answered with the list of what it holds.",
);
const INDEX: Key = key(
    "index",
    Kind::Names,
    Some("[\"index.html\"]"),
    "Names of the file that stands for its folder; the first that exists is served. An empty list turns that off.",
);
const PRECOMPRESSED: Key = key(
    "precompressed",
    Kind::Names,
    Some("[]"),
    "Codings in which a file may be kept beside itself, the one preferred first: `\"zstd\"` is NAME.zst, `\"br\"` NAME.br, \
     `\"gzip\"` NAME.gz. Such a variant is sent to clients that accept the coding, unless it is older than the file by \
     a second. The file itself must exist.",
);
const SYMLINKS: Key = key(
    "symlinks",
    Kind::Word(&["beneath", "follow"]),
    Some("beneath"),
    "Which symbolic links are followed: those that stay beneath the root, or every one.",
);

const SERVER_TIMING: Key = key(
    "server_timing",
    Kind::Boolean,
    Some("false"),
    "Whether responses say in a `Server-Timing` field how long their making took, which browsers show. Everyone who \
     asks may then know what was in memory.",
);

/// Reads the name of an engine given on the command line, in any form that `disk.engine` takes.
///
/// # Errors
///
/// A phrase that says what to write.
pub fn engine(name: &str) -> Result<&'static str, String> {
    engine_named(name).ok_or_else(|| match nearest(name, engine::NAMES.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("one of {}", engine::NAMES.join(", ")),
    })
}

/// Reads the number of workers given on the command line, within the bounds of `server.workers`.
///
/// # Errors
///
/// A phrase that names what is expected.
pub fn workers(text: &str) -> Result<usize, String> {
    let kind = Kind::Count(WORKERS);
    let number = kind
        .quantity(text)
        .map_err(|_| format!("expected {}", kind.expected()))?;
    let number = kind.check(number)?;
    usize::try_from(number).map_err(|error| error.to_string())
}

/// The value of `disk.engine` for `name`, which may be another name of an engine.
pub(crate) fn engine_named(name: &str) -> Option<&'static str> {
    match engine::find(name) {
        Some(engine) => Some(engine.name),
        None => (name == engine::AUTO).then_some(engine::AUTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_bounds_are_in_their_own_form() {
        for key in TABLES.iter().flat_map(|table| table.keys) {
            let Some(Bounds { min, max }) = key.kind.bounds() else {
                continue;
            };
            let (min, max) = (
                key.kind.quantity(min).unwrap(),
                key.kind.quantity(max).unwrap(),
            );
            assert!(min < max, "{}", key.name);
            if let Some(default) = key.default.filter(|_| !key.is_auto()) {
                let default = key.kind.quantity(default).unwrap();
                assert!((min..=max).contains(&default), "{}", key.name);
            }
        }
    }
}
