//! The one table of configuration keys: the reader, the search for the nearest valid key and
//! `docs/configuration.md` all come from it.

use levity_disk::engine;
use strum::VariantNames as _;

use crate::gates::{jwt, read as gates, signed_url};
use crate::log;
use crate::mailbox::keys as mailbox;
use crate::model::{Etag, Watch};
use crate::schema::{
    Key, Kind, Schema, Table, array, documented, joined, key, table, without_defaults,
};
use crate::suggest::nearest;
use crate::upstream::keys as upstream;
use crate::{acme, limits, location_options, rate_limit, resume, tls, upload};

/// The number of workers, in the file and on the command line.
const WORKERS: Kind = Kind::Count("1", "1024");

const ADDRESS: Kind = Kind::Text("an address");
const PATH: Kind = Kind::Text("a path");
const CHUNK: Kind = Kind::Size("4KiB", "16MiB");

pub(crate) const SCHEMA: Schema = Schema(TABLES);

/// Every table, in the order of the reference.
pub(crate) const TABLES: &[Table] = documented! {
    /// The configuration itself.
    table("", documented! {
        /// Further files, in the main file only, above its first table.
        key("include", Kind::Names, Some("[]"));
    });
    /// The process.
    table("server", documented! {
        /// Event loops, each with its own thread. `"auto"` is one per core that the process may use, within its CPU quota.
        key("workers", WORKERS, Some("auto"));
        /// Networks such as `"10.0.0.0/8"` and addresses of proxies whose `Forwarded` and `X-Forwarded-*` are
        /// believed and passed on. `"unix"` stands for every client of a Unix socket.
        key("trusted_proxies", Kind::Names, Some("[]"));
        /// Source of the `ETag` of a file. `"file"` uses device, inode, modification time, change time and size:
        /// a new version always has a new tag, even with the size and the modification time of the old one
        /// (reproducible builds, `rsync -t`). `"mtime-size"` uses modification time and size only, so that
        /// several servers behind one balancer, each with a copy of the files, send the same tag. Use it only if
        /// no file is replaced by another one of the same size and modification time. `"content"` uses a hash of the content,
        /// once that is known, and before as `"file"` does. [How](tasks/etags.md) and when it is made.
        key("etag", Kind::Word(Etag::VARIANTS), Some("file"));
        /// Header with the id of a request, such as `"X-Request-Id"`: taken from trusted proxies, made for all other
        /// requests, and sent to upstreams. Without this key ids are only made, for the JSON log and for error pages.
        key("request_id", Kind::Text("the name of a header"), None);
    });
    /// Changes to the headers of responses in every site. Each name occurs in one of `set`, `add` and `remove`.
    table("server.headers", RESPONSE_HEADERS);
    /// How files are read.
    table("disk", documented! {
        ENGINE.with_default(Some("auto"));
        /// Maximum number of threads in the pool that waits for the disk. Threads are started when they are
        /// needed.
        key("threads", Kind::Count("1", "1024"), Some("auto"))
            .also(&[("max-read-threads", ", which counts `stat_threads` too")]);
        /// Threads of the pool that only open files and read their metadata; fewer than `threads`.
        key("stat_threads", Kind::Count("1", "1024"), Some("auto")).also(&[("max-stat-threads", "")]);
        /// Reads in flight per device; fewer than `threads` less `stat_threads`, so that one frozen device leaves
        /// threads to the others. `"auto"` measures which depth gives each device the highest throughput, up to
        /// 32, or up to half of the reading threads when `threads` is a number.
        key("depth", Kind::Count("1", "4096"), Some("auto"));
        /// Bytes per read, a multiple of 4KiB. `"auto"` starts with 128KiB, or with a whole file that is smaller than
        /// 1MiB, and grows to 512KiB for a client that keeps up, or to 1MiB on a disk that takes 2 ms for a read.
        key("chunk", CHUNK, Some("auto"));
        DIRECT.with_default(Some("auto"));
        CHANGES.with_default(Some("renamed"));
        /// Memory for the contents of small files that are requested often; 0 turns this cache off.
        key("cache_bytes", Kind::Size("0B", "1TiB"), Some("64MiB"));
        /// Memory for chunks between disk and client. When it is used up, new requests for files that are not in
        /// memory get 503, and later chunks wait.
        key("buffer_bytes", Kind::Size("1MiB", "1TiB"), Some("256MiB"));
        /// Jobs that may wait per device. When the queue is full, a new request gets 503.
        key("queue", Kind::Count("16", "1000000"), Some("4096"));
        /// Time without a completed read after which a device with reads in flight counts as dead. New and
        /// waiting requests that need the device then get 503 at once, until it completes a read; one request at
        /// a time still tries. Set it longer than the disk takes to spin up.
        key("dead_after", Kind::Duration("10ms", "1h"), Some("5s"));
        /// How long an open file, its size, its times and the target of the path of a root are used without being
        /// checked again. `0s` checks a file at every request, as `levity serve` does, and the path of a root
        /// every 0.1 s.
        key("entry_ttl", Kind::Duration("0s", "1h"), Some("1s"));
        /// Notifications that invalidate cached files. `"inotify"` watches the directories of open files: a file
        /// is used until something changes there, for 20 s at most, whatever `entry_ttl` is. Files on network
        /// file systems, files behind a symbolic link or with several names, and names that were not found stay
        /// on `entry_ttl`. So do all, with a line in the log, if the user has no instance of inotify left at the start.
        key("watch", Kind::Word(Watch::VARIANTS), Some("off"));
        /// Folder for request bodies that do not fit into memory; see `limits.body_memory`.
        key("spool", PATH, Some("/var/tmp"));
        /// Folder in which compressed forms of popular files are kept, where `compress` is on: made at the highest
        /// level while processors are idle. Without it, files are compressed anew for each client. With
        /// `compress_dictionaries` it also has copies of them. It must exist and belong to the server alone. It must
        /// neither lie in a `root` nor contain one: `check` compares the paths, without regard to links. Only a restart
        /// changes this key.
        key("variants", PATH, None);
        /// The size of all files in `variants`; those that were not used for the longest time give way. Only a restart
        /// changes this key.
        key("variants_bytes", Kind::Size("1MiB", "1024TiB"), Some("256MiB"));
    });
    /// The access log. Messages about the server itself go to stderr.
    table("log", log::KEYS);
    /// Read-only pages about the running server, `/status`, `/metrics` and `/health`, which are off unless `listen` is given; and
    /// the socket by which it is controlled.
    table("admin", documented! {
        /// Address of the pages: `unix:PATH`, or `ADDRESS:PORT` with an explicit address, because everyone who
        /// can connect may read them.
        key("listen", ADDRESS, None);
        /// Host names to which the pages answer over TCP, in addition to `localhost`, the names beneath it, and
        /// IP addresses; `*.example.org` stands for every name beneath. A request for another name gets 421: the
        /// name of a foreign web page could resolve to this machine, and the page could then read the answers.
        key("hosts", Kind::Names, Some("[]"));
        /// `unix:PATH` of a socket for `levity reload` and `levity health`. Only root and the user of the server can use it: the
        /// file has the mode 0600, and who connects is compared as well. `$RUNTIME_DIRECTORY/control` if that is set, as by
        /// systemd; otherwise there is none without this key.
        key("control", ADDRESS, None);
    });
    /// Bounds that protect the server from its clients and from its disks.
    table("limits", limits::KEYS);
    /// Where clients connect; `127.0.0.1:8080` when there is none, or ports 80 and 443 of every address if a site has `tls`.
    array("listen", documented! {
        /// `PORT` or `:PORT` for every address of the machine, IPv4 and IPv6; `ADDRESS:PORT`, `[IPv6]:PORT`,
        /// `localhost:PORT` (127.0.0.1), or `unix:PATH`. Port 0 lets the kernel choose. Required.
        key("address", ADDRESS, None);
        /// Whether connections begin with a PROXY header, version 1 or 2, which names the client. Every header is
        /// believed, so only proxies may be able to connect; a connection without a header is closed. The client
        /// that the header names counts as the peer: `server.trusted_proxies` decides whether its
        /// `X-Forwarded-For` counts. A reload changes this for new connections.
        key("proxy_protocol", Kind::Boolean, Some("false"));
        /// Whether connections are encrypted (TLS 1.3 and 1.2). Without this key, those to port 443 are. A reload changes this
        /// for new connections.
        key("tls", Kind::Boolean, None).also(&[("ssl", "")]);
        /// Whether processes that run as the user of the server, or as root, publish to [mailboxes](mailboxes.md) here without a
        /// key. On a Unix socket only. A proxy that runs as one of these users must use another listener: all its clients could
        /// publish. A set with `publish_key_file` needs its key here, too. A reload changes this for new connections.
        key("publish", Kind::Boolean, Some("false"));
    });
    /// What all sites with TLS have in common.
    table("tls", tls::KEYS);
    /// Certificates for sites with `tls = "acme"`, which authorities issue without a hand and without cost. Whoever uses one agrees to
    /// its terms. Without this table Let's Encrypt is asked.
    table("acme", acme::KEYS);
    /// An authority that is asked for certificates. Of several, the first one that issues a certificate is used.
    array("acme.authority", acme::AUTHORITY);
    /// How records in the DNS are made, for names with a star and for servers that authorities cannot reach: by a program, or by
    /// updates of the zone (RFC 2136).
    table("acme.dns", acme::DNS);
    /// What is served, under which names. At least one.
    array("site", joined!(documented! {
        /// Host names of the site, without port; `*.example.org` stands for every name beneath. An exact name
        /// takes precedence over a wildcard. An empty list matches every name that no other site has, and
        /// HTTP/1.0 requests without a host.
        key("hosts", Kind::Names, Some("[]"));
        /// Whether the site answers, besides for its `hosts`, for every name that no site has, as one without `hosts` does. With
        /// `tls`, clients that ask for such a name, or for none, get its certificate. At most one site, on all listeners.
        key("default", Kind::Boolean, Some("false"));
        /// Folder that is served. Nothing outside of it is served unless `symlinks` allows that. Names with a
        /// leading dot are not served, except `.well-known`. Required where there is no `proxy`.
        key("root", PATH, None);
        /// Whether `_redirects` and `_headers` in `root` are read, as Netlify and Cloudflare Pages have them, and not
        /// served. Routes go before these redirects, and files before those without `!`. A change needs a reload. Lines
        /// that cannot be used are left out with a note.
        key("static_host_files", Kind::Boolean, Some("false"));
    }, gates::KEYS, upstream::PROXYING, mailbox::LOCATION, location_options::KEYS));
    /// Answers all requests of the site above with another URL; those of a route with `root`, `proxy`, `try` or an answer
    /// of its own are left to that.
    table("site.redirect", REDIRECT);
    /// Answers all requests of the site above with a fixed response, as `redirect` does.
    table("site.respond", RESPOND);
    /// What web pages of other origins may do at the site above; routes inherit it as a whole. Preflight requests are
    /// answered here, before anything else is asked.
    table("site.cors", CORS);
    /// How clients reach the site above over TLS. `tls = "acme"` in its place gets certificates from the authorities of `[acme]`;
    /// `tls = "internal"` has the authority of this machine sign one, for development: it is made in the folder of `[tls]`, and a
    /// browser accepts its certificates once it trusts `local-ca.pem` there. Clients that ask for an unknown name, or for none, get
    /// the certificate of the site with `default` or without `hosts`. If that has no TLS or there is none, they get that of the only
    /// site with TLS; with several, their handshake is refused.
    table("site.tls", tls::SITE_KEYS);
    /// Lets clients write files beneath `root`, as `dav_methods` of nginx does. [How](tasks/uploads.md) it is used. Put it
    /// behind a gate: whoever gets here may write. A route inherits it unless it has a `root` of its own; `upload = false`
    /// turns it off there. Nothing is written where only an upstream answers, nor at `internal` routes, nor under names that
    /// are not served. The roots of uploads must not lie in each other.
    table("site.upload", upload::KEYS);
    /// Users with passwords (RFC 7617), to whom the site above is reserved. `basic_auth = false` of a route lets everyone in
    /// who passes the other gates. Use it over TLS only: the password is readable on the way.
    table("site.basic_auth", gates::BASIC_AUTH);
    /// An application that decides whether a request may pass, as an authentication portal does. It gets a GET request
    /// with the headers of the original one, but without a body, and with `X-Forwarded-Method`, `-Uri`, `-Host`, `-Proto`
    /// and `-For`. A status from 200 to 299 lets the request through. Every other response is sent to the client, such as a
    /// redirect to a login page; so is 502 or 504 if there is none.
    table("site.forward_auth", gates::FORWARD_AUTH);
    /// URLs with a signature, which let whoever has one in until it expires. All others get 403.
    table("site.signed_url", signed_url::KEYS);
    /// JSON Web Tokens (RFC 7519), which let in whoever has one that is signed and valid. All others get 401. The key
    /// decides about the algorithm: RS256, EdDSA or HS256. Tokens need an `exp`; clocks may differ by 30 s.
    table("site.jwt", jwt::KEYS);
    /// How much a client, a file or the site above may take; there may be several. They come before everything except
    /// `allow`, `deny` and preflight requests, so they also bound guesses of passwords. A request has to pass those of the site and
    /// those of its route. [How](tasks/rate-limits.md) they count.
    array("site.limit", rate_limit::KEYS);
    /// Keeps event streams of the application (`text/event-stream`) while a client is away. The application is asked once: when
    /// the connection of its client is lost, the rest of the response is read and kept, and the same client gets what it has
    /// missed when it comes back with `Last-Event-ID`. `resume = {}` does so with these defaults, `resume = false` of a route
    /// turns it off.
    table("site.resume", resume::KEYS);
    /// How the files of the site above are read, where that differs from `[disk]`.
    table("site.disk", LOCATION_DISK);
    /// The access log of the site above. Keys that it does not give are those of `[log]`; `log = false` turns it off. At most
    /// 64 logs of a file may differ in file or format.
    table("site.log", LOCATION_LOG);
    /// Changes to the headers of the site's responses, after those of `[server.headers]`.
    table("site.headers", RESPONSE_HEADERS);
    /// Changes to the headers of the site's requests on their way to the upstream. Each name occurs in one of the three
    /// keys; `Host` can only be set.
    table("site.request_headers", REQUEST_HEADERS);
    /// Changes to the URLs and cookies in the upstream's responses, each found = "replacement"; the first match in
    /// the order of the file is used.
    table("site.rewrite", REWRITE);
    /// Other rules for some requests to the site above. The first route that matches wins; a key that is absent is
    /// inherited from the site, unless the route has `false` in its place: `script_index = false`, `cache = false`. A route may
    /// have routes within it, `[[site.route.route]]`, with the same keys and tables: they inherit from it, need its conditions
    /// too, and go before it. Their paths are written in full.
    array("site.route", joined!(documented! {
        /// `/a` matches that path only; so does `/a/`, which is another path. `/a/*` matches everything beneath,
        /// `/a/` included but not `/a`; `/*` matches everything. Elsewhere `*` is any part of a name, `**` any text
        /// with slashes, and `{png,jpg}` one of these words; `*.png` is `/**/*.png`. Compared with the decoded path.
        /// Required where there is neither `regex` nor `when`.
        key("path", Kind::Text("a path such as `/a` or `/a/*`"), None);
        /// A regular expression in place of `path`, in the syntax of Rust's `regex`, without Unicode classes. It matches
        /// any part of the decoded path unless it has `^` and `$`. Its compiled form is bounded, so that no path takes
        /// more than 1 ms.
        key("regex", Kind::Text("a regular expression"), None);
        /// Another folder for this route. With neither `proxy` nor `try` beside it the route serves files only,
        /// whatever the site says.
        key("root", PATH, None);
        /// Whether the route is reachable only through `X-Accel-Redirect` of an upstream; clients get 404. With
        /// neither `proxy` nor `try` of its own it serves files only, where it or the site has a `root`.
        key("internal", Kind::Boolean, Some("false"));
        /// Another path, with placeholders as in `redirect`: the request is routed again as if it were for that path, and gets
        /// what is there. Its query is kept unless the path has one. At most ten times for a request; `check` reports
        /// loops that it can find. A route with `internal` can be reached so.
        key("reroute", Kind::Text("a path"), None);
        /// Removed from the start of the request path before the file is looked up or the upstream is asked;
        /// whole segments only.
        key("strip_prefix", Kind::Text("a path"), None);
    }, gates::KEYS, upstream::PROXYING, mailbox::LOCATION, &location_options::INHERITED_KEYS)).recursive();
    /// Answers all requests of the route above with another URL.
    table("site.route.redirect", REDIRECT);
    /// Answers all requests of the route above with a fixed response.
    table("site.route.respond", RESPOND);
    /// What web pages of other origins may do at the route above. An empty list of origins permits nothing.
    table("site.route.cors", CORS);
    /// Lets clients write files through the route above.
    table("site.route.upload", upload::KEYS);
    /// Users with passwords, to whom the route above is reserved, in place of those of its site.
    table("site.route.basic_auth", gates::BASIC_AUTH);
    /// An application that decides about the requests to the route above, in place of that of its site.
    /// `forward_auth = false` asks none.
    table("site.route.forward_auth", gates::FORWARD_AUTH);
    /// URLs with a signature, in place of those of the site. `signed_url = false` asks for none.
    table("site.route.signed_url", signed_url::KEYS);
    /// JSON Web Tokens, in place of those of the site. `jwt = false` asks for none.
    table("site.route.jwt", jwt::KEYS);
    /// The same for the route above, in addition to those of its site and of routes around it. `limit = false` drops these.
    array("site.route.limit", rate_limit::KEYS);
    /// Keeps event streams of the application of the route above, in place of what its site says.
    table("site.route.resume", resume::KEYS);
    /// How the files of the route above are read, where that differs from `[disk]` and its site.
    table("site.route.disk", LOCATION_DISK);
    /// The access log of the route above, in place of that of its site. `log = false` turns it off, as for `/health`.
    table("site.route.log", LOCATION_LOG);
    /// Conditions besides the path, all of which must hold. A route whose conditions do not hold is passed over.
    table("site.route.when", documented! {
        /// Methods, such as `["POST", "PUT"]`. GET stands for HEAD too.
        key("method", Kind::Names, None);
        /// Headers of the request, name = "value"; `*` in a value is any text. A header that occurs several times needs
        /// one such value.
        key("header", Kind::Pairs, None);
        /// Parameters of the query, name = "value", as for `header`. Both are decoded before they are compared.
        key("query", Kind::Pairs, None);
        /// Networks of the client, such as `["10.0.0.0/8"]`. See `server.trusted_proxies` for clients behind a proxy. A
        /// client on a Unix socket is in none.
        key("client", Kind::Names, None);
        /// Addresses of `[[listen]]` to which the client connected, as they are written there.
        key("listen", Kind::Names, None);
        /// Media types of a file with the name in the path, such as `["image/*"]`; it need not exist.
        key("type", Kind::Names, None);
    });
    /// Changes to the headers of the route's responses, after those of the site and of routes around it.
    table("site.route.headers", RESPONSE_HEADERS);
    /// Changes to the headers of the route's requests on their way to the upstream, after those of the site. Each name
    /// occurs in one of the three keys; `Host` can only be set.
    table("site.route.request_headers", REQUEST_HEADERS);
    /// Changes to the URLs and cookies in the upstream's responses, each found = "replacement"; the first match in
    /// the order of the file is used, and then one of the site.
    table("site.route.rewrite", REWRITE);
    /// An application that answers requests: a named set of backends with one protocol. `proxy` of a site or route
    /// names it.
    array("upstream", upstream::UPSTREAM);
    /// Health checks of the backends of the upstream above. Without this table the health of a backend is known from
    /// requests only.
    table("upstream.check", upstream::CHECK);
    /// The largest header of a response of the upstream above; a longer one is 502. Not with ajp13, whose headers fit in one
    /// packet.
    table("upstream.limits", upstream::LIMITS);
    /// When a request is tried again at the upstream above. Whatever these keys say, a request that a backend may have begun
    /// to answer is tried again only if its method is idempotent (GET, HEAD, OPTIONS, PUT and DELETE), and never after a
    /// time-out.
    table("upstream.retry", upstream::RETRY);
    /// TLS with the backends of the upstream above, which have `https://` in `to`. The files are looked at every 2 s, and read
    /// again when they change.
    table("upstream.tls", upstream::TLS);
    /// Where the messages of all mailboxes are kept. Only a restart changes this table.
    table("mailbox_store", mailbox::STORE);
    /// A set of mailboxes with the same settings. A mailbox is a log of messages with a name, which keeps what arrives while
    /// its receivers are away. `mailbox` of a site or route names the set.
    array("mailbox", mailbox::MAILBOX);
};

/// `[site.disk]` and `[site.route.disk]`
const LOCATION_DISK: &[Key] = documented! {
    ENGINE;
    /// Bytes per read, a multiple of 4KiB, at most `disk.buffer_bytes`.
    key("chunk", CHUNK, None);
    DIRECT;
    CHANGES;
};

/// `[site.log]` and `[site.route.log]`
const LOCATION_LOG: &[Key] = &without_defaults::<{ log::KEYS.len() }>(log::KEYS);

/// `[site.redirect]` and `[site.route.redirect]`
const REDIRECT: &[Key] = documented! {
    /// The URL, or a path on this server that begins with one `/`. `{scheme}`, `{host}` (without port), `{path}` and
    /// `{query}` stand for those of the request, `{rest}` for what `*` matches in the `path` of the route. The query of
    /// the request is kept unless the URL has one of its own. What follows the scheme up to the next `/` is text and
    /// `{host}`, so that no request leads to a foreign server. Required.
    key("to", Kind::Text("a URL or a path"), None);
    /// 301 and 308 are permanent: clients keep them. 302, 303 and 307 are not. 307 and 308 keep the method and the body
    /// of the request; after 303 a client sends GET.
    key("status", Kind::Count("301", "308"), Some("302"));
};

/// `[site.respond]` and `[site.route.respond]`
const RESPOND: &[Key] = documented! {
    /// The status. 503 has `Retry-After: 5` unless it is among the headers.
    key("status", Kind::Count("200", "599"), Some("200"));
    /// The content, up to 64 KiB. Without it the content is the status and its name, in one line, for 400 and above.
    key("body", Kind::Text("a text"), None);
    /// Headers, name = "value". `Content-Type` is `text/plain; charset=utf-8` unless it is among them.
    key("headers", Kind::Pairs, None);
};

/// `[site.cors]` and `[site.route.cors]`
const CORS: &[Key] = documented! {
    /// Origins of the pages, such as `"https://example.org"` or `"https://*.example.org"`; `["*"]` permits every page.
    /// Required.
    key("origins", Kind::Names, None);
    /// Methods besides GET, HEAD and POST of a form, which need no permission.
    key("methods", Kind::Names, Some("[\"GET\", \"HEAD\", \"POST\"]"));
    /// Headers that scripts may send; `"*"` is any.
    key("headers", Kind::Names, Some("[\"Range\", \"If-Range\", \"If-Match\", \"If-None-Match\", \"If-Modified-Since\", \"Content-Type\"]"));
    /// Headers that scripts may read.
    key("expose", Kind::Names, Some("[\"Accept-Ranges\", \"Content-Length\", \"Content-Range\", \"Content-Encoding\", \"ETag\", \"Last-Modified\", \"Date\"]"));
    /// Whether requests may carry cookies and passwords of the user.
    key("credentials", Kind::Boolean, Some("false"));
    /// How long a browser may keep a permission.
    key("max_age", Kind::Duration("0s", "1d"), Some("10m"));
};

/// `[site.rewrite]` and `[site.route.rewrite]`
const REWRITE: &[Key] = documented! {
    /// The start of `Location` and of the URL in `Refresh`, such as `"http://a.internal/app/" = "/"`, and of no other header.
    /// `"/"` is not the start of `//HOST/`. Where no pair matches, a URL with `http://` or `https://` and a backend as it is
    /// in `to`, its address, or the `Host` that the route sets becomes a path on this server, with `strip_prefix` put back:
    /// `"http://" = "http://"` leaves it as it is.
    key("location", Kind::Pairs, None);
    /// The start of the `Path` of each `Set-Cookie`.
    key("cookie_path", Kind::Pairs, None);
    /// The whole `Domain` of each `Set-Cookie`, compared without regard to case and a leading dot.
    key("cookie_domain", Kind::Pairs, None);
};

documented! {
    /// Headers to write, name = "value"; a header of the same name is replaced.
    const SET = key("set", Kind::Pairs, None);
    /// Headers to write in addition to those of the same name.
    const ADD = key("add", Kind::Pairs, None);
    /// Names of headers to leave out.
    const REMOVE = key("remove", Kind::Names, None);
    /// Whether the changes of the tables around are dropped. Without it, they are made first.
    const RESET = key("reset", Kind::Boolean, Some("false"));
}

/// `[server.headers]`, `[site.headers]` and `[site.route.headers]`
const RESPONSE_HEADERS: &[Key] = documented! {
    SET;
    ADD;
    REMOVE;
    /// Whether these changes are also made to errors, which have a status of 400 or above.
    key("always", Kind::Boolean, Some("false"));
    RESET;
};

/// `[site.request_headers]` and `[site.route.request_headers]`
const REQUEST_HEADERS: &[Key] = documented! {
    SET;
    ADD;
    REMOVE;
    RESET;
};

documented! {
    /// Engine that reads files; see [engines](engines.md). `"auto"` tests what works on this machine; `levity run -v`
    /// and `/status` show its choice and the reason. In a site or route `"auto"` is the value of `[disk]`.
    const ENGINE = key("engine", Kind::Word(engine::NAMES), None);
    /// Reads that bypass the page cache (`O_DIRECT`). `"auto"`: reads of large files that only one client requests, and
    /// the first read of any file while memory is short, so that they evict nothing. `"always"`: every read of the disk.
    /// `"never"`: none.
    const DIRECT = key("direct", Kind::Word(&["auto", "always", "never"]), None).also(&[("directio", "")]);
    /// How files change. `"renamed"`: a new version takes the place of the old one by a rename, or is written to a file
    /// that was emptied first; what has not changed for a minute is sent by reference to the page cache, without a copy.
    /// `"in-place"`: programs write over bytes of files that are being requested; files are sent by copy, whose version
    /// is checked before it leaves. Otherwise a response may have bytes of two versions. `"never"`: always by reference.
    const CHANGES = key("changes", Kind::Word(&["renamed", "in-place", "never"]), None);
}

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
    let number = WORKERS.quantity(text);
    let number = number.map_err(|_| format!("expected {}", WORKERS.expected()))?;
    let number = WORKERS.check(number)?;
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
            let Some((min, max)) = key.kind.bounds() else {
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
