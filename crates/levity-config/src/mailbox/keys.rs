//! The keys of `[[mailbox]]`, and those by which sites and routes use one.

use strum::VariantNames as _;

use super::{MailboxMode, MailboxProtocol, StoreKind};
use crate::schema::{Key, Kind, documented, key, meanings};

/// `[[mailbox]]`
pub(crate) const MAILBOX: &[Key] = documented! {
    /// Name for `mailbox` and `mailbox_headers`, also in logs: at most 64 letters, digits, `-` and `_`. Required.
    key("name", Kind::Text("a name"), None);
    /// Who reads a box.
    key("mode", Kind::Word(MailboxMode::VARIANTS), Some("topic"))
        .with_meanings(meanings::<MailboxMode>);
    /// Size of one message, at most `bytes` and `limits.mailbox_memory`; a larger one gets 413.
    key("message_bytes", Kind::Size("1B", "64MiB"), Some("64KiB"));
    /// Number of messages that a box keeps for receivers that are away. Older ones give way, and a receiver that has missed
    /// some is told so.
    key("messages", Kind::Count("1", "10000"), Some("64"));
    /// Size of these messages together, 160 bytes for each beside what it says; the older ones give way.
    key("bytes", Kind::Size("1B", "1GiB"), Some("256KiB"));
    /// How long a message is kept, unless its publisher says that (`Mailbox-TTL`). Without the key it is kept as long as
    /// there is room.
    key("lifetime", Kind::Duration("1s", "365d"), None);
    /// How long a box is kept after its last receiver has left and its last message has come, also on a disk.
    key("idle", Kind::Duration("1s", "365d"), Some("60s"));
    /// Boxes of the process that exist at the same time. Whoever would open another one gets 507.
    key("boxes", Kind::Count("1", "100000000"), Some("10000"));
    /// Receivers of one box at the same time. Others get 503.
    key("receivers", Kind::Count("1", "10000000"), Some("100000"));
    /// Receivers that one client may be at the same time, at all boxes. It is told from others by its IPv4 address, or by the
    /// first 64 bits of its IPv6 address; see `server.trusted_proxies` for clients behind a proxy. Others get 429.
    key("receivers_per_client", Kind::Count("1", "10000000"), Some("100"));
    /// Messages that may be published in a second, to all boxes; one for several boxes counts for each of them. Others get 429.
    key("publishes_per_second", Kind::Count("1", "10000000"), Some("1000"));
    /// Whether a message is safe before its publisher has an answer: with `"disk"` it is there then, and with `"redis"`
    /// as safe as the configuration of that server makes it. Not with `store = "memory"`.
    key("durable", Kind::Boolean, Some("false"));
    /// Time without a message after which a receiver gets a sign of life, so that neither it nor a proxy between takes the
    /// connection for dead.
    key("heartbeat", Kind::Duration("1s", "1h"), Some("15s"));
    /// How long a receiver that has lost its connection waits before it connects again (`retry:` of server-sent events), on
    /// average: the times differ, so that not all of them come at once.
    key("retry", Kind::Duration("10ms", "1h"), Some("3s"));
    /// How long a receiver stays connected, on average. It then connects again, and misses nothing.
    key("rotate", Kind::Duration("1s", "30d"), Some("1h"));
    /// A file with a key of at least 32 bytes in its first line, such as `openssl rand -hex 32` prints. Whoever sends it as a
    /// bearer token may publish and remove boxes. Without the key, only processes of the user of the server and of root may, at a
    /// `[[listen]]` with `publish = true`, and tokens with `claim`. With the key, these processes need it, too. It is of no use
    /// beside `claim`: the `jwt` of the route refuses it.
    key("publish_key_file", Kind::Text("a path"), None).secret();
    /// A file with the key, at least 32 bytes in its first line, by which applications that speak GRIP know that a request comes
    /// from this server: requests to them then have a `Grip-Sig`, a token with HS256.
    key("grip_key_file", Kind::Text("a path"), None).secret();
    /// Origins of pages that may open a WebSocket, or publish with a token in a cookie, written as in `cors`. Without the key
    /// only pages of the host to which the request goes may. Clients that are not browsers need none.
    key("origins", Kind::Names, None);
    /// Claim of the tokens of `jwt` that says which boxes their owner may use:
    /// `{"subscribe": ["room-*"], "publish": ["room-1"]}`. `*` stands for any text, also for none and for one with slashes:
    /// `user/7*` is `user/70`, too. Each site or route of the set then needs a `jwt`, which refuses the key of
    /// `publish_key_file`: a backend publishes with a token that has `{"publish": ["*"]}`. Without the key everyone who passes the
    /// gates there, and knows the name of a box, may receive its messages.
    key("claim", Kind::Text("a name"), None);
    /// What clients and publishers speak. A stream keeps everything until it is removed, or its own time is over: what would
    /// make it larger than `bytes` gets 413. `lifetime` is the time without a read or an append after which a stream is removed
    /// whose maker has said nothing, and `heartbeat` also the time after which a long poll without news is answered. `mode`,
    /// `messages`, `idle`, `retry` and `origins` count for nothing. Streams are kept where messages are.
    key("protocol", Kind::Word(MailboxProtocol::VARIANTS), Some("mailbox"))
        .with_meanings(meanings::<MailboxProtocol>);
};

/// `[mailbox_store]`
pub(crate) const STORE: &[Key] = documented! {
    /// What keeps messages.
    key("store", Kind::Word(StoreKind::VARIANTS), Some("memory"))
        .with_meanings(meanings::<StoreKind>);
    /// Folder of the database, which must exist and belong to the server alone. It must neither lie in a `root` nor contain
    /// one: `check` compares the paths, without regard to links. Required with `store = "disk"`.
    key("folder", Kind::Text("a path"), None);
    /// URL of the server, such as `"redis://127.0.0.1:6379"`, with user and password if it asks for them:
    /// `"redis://USER:PASSWORD@HOST:PORT"`. There is no TLS. Required with `store = "redis"`.
    key("url", Kind::Text("a URL"), None).or_file();
    /// A file with `url` in its first line.
    key("url_file", Kind::Text("a path"), None).secret();
};

/// Of sites and routes.
pub(crate) const LOCATION: &[Key] = documented! {
    /// Name of a `[[mailbox]]`: clients receive the messages of its boxes here, and publish to them. The name of the box is the
    /// part of the path behind that of the route, or behind `strip_prefix`. Routes inherit it unless they have a `root`, `proxy`,
    /// `try` or an answer of their own.
    key("mailbox", Kind::Text("a name"), None);
    /// Name of a `[[mailbox]]`: responses of the application may hold their client there as a receiver, and publish
    /// messages, by `Mailbox-*` and `Grip-*` headers. Without the key these headers do nothing. Clients never get them.
    key("mailbox_headers", Kind::Text("a name"), None);
};
