//! The model of `[[mailbox]]` and `[mailbox_store]`.

pub(crate) mod keys;
pub(crate) mod read;
pub(crate) mod store;

use std::path::PathBuf;
use std::time::Duration;

use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray, VariantNames};

pub use self::store::{MailboxStore, StoreKind};
use crate::origins::Origins;
use crate::section::Secret;

/// `[[mailbox]]`: a named set of mailboxes with the same settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailbox {
    /// The name that sites and routes use; unique in a file. Letters, digits, `-` and `_`, at most 64 bytes.
    pub name: String,
    /// Who reads a box.
    pub mode: MailboxMode,
    /// The maximum size of a message in bytes; at most `bytes`.
    pub message_bytes: usize,
    /// The maximum number of messages that a box keeps.
    pub messages: usize,
    /// The maximum size of the messages that a box keeps, in bytes.
    pub bytes: usize,
    /// How long a message is kept unless its publisher says that; `None` as long as there is room.
    pub lifetime: Option<Duration>,
    /// How long a box is kept after its last receiver has left and its last message has come.
    pub idle: Duration,
    /// The maximum number of boxes in the process.
    pub boxes: usize,
    /// The maximum number of receivers of a box.
    pub receivers: usize,
    /// The maximum number of receivers of all boxes that one client may be.
    pub receivers_per_client: usize,
    /// The maximum number of messages that are published to all boxes in a second.
    pub publishes_per_second: usize,
    /// Whether a message is on stable storage before its publisher has an answer.
    pub durable: bool,
    /// The time without a message after which a receiver gets a sign of life.
    pub heartbeat: Duration,
    /// How long receivers wait before they connect again, on average.
    pub retry: Duration,
    /// How long a receiver stays connected, on average.
    pub rotate: Duration,
    /// The key that publishers send; `None` lets only own processes at a listener with `publish` do so. Has at least 32 bytes
    /// when the configuration was loaded from the disk, and otherwise none.
    pub publish_key: Option<Secret>,
    /// The key by which applications know `Grip-Sig`; as `publish_key`.
    pub grip_key: Option<Secret>,
    /// The files of these keys that do not respond. Nobody may use the set.
    pub unread: Vec<PathBuf>,
    /// Pages that may open a WebSocket; `None` for those of the host itself.
    pub origins: Option<Origins>,
    /// The claim of tokens that says which boxes its owner may use. Every location of the set then has a `jwt`.
    pub claim: Option<String>,
    /// What clients and publishers speak.
    pub protocol: MailboxProtocol,
}

/// Who reads a box. The comments of the variants are their text in the reference.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    VariantArray,
    VariantNames,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum MailboxMode {
    /// any number of receivers, which get what arrives from now on unless they name an earlier message
    Topic,
    /// one receiver, which gets everything that it has not read
    Inbox,
}

/// What clients and publishers speak. The comments of the variants are their text in the reference.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    VariantArray,
    VariantNames,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum MailboxProtocol {
    /// server-sent events, WebSocket, long polling and streams, by what the client asks for
    Mailbox,
    /// the protocol of that name, whose clients work as they are: each box is a stream
    DurableStreams,
}
