//! `[mailbox_store]`: where messages are kept.

use std::path::PathBuf;

use levity_wire::http1;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray, VariantNames};

use crate::section::{Section, Text};

/// `[mailbox_store]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxStore {
    /// What keeps messages.
    pub kind: StoreKind,
    /// The folder of the database; `None` with any other store.
    pub folder: Option<PathBuf>,
    /// The URL of the server; `None` with a store of this machine.
    pub url: Option<String>,
}

/// What keeps messages. The comments of the variants are their text in the reference.
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
pub enum StoreKind {
    /// the memory of the process, which loses them at its end
    Memory,
    /// a database in a folder of this machine
    Disk,
    /// a server of Redis or Valkey, with its streams, which several processes may share
    Redis,
}

impl StoreKind {
    /// The word in the configuration, and the label in metrics.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// The URL of its server on this machine; `None` for a store without one. The scheme is the label.
    fn example(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Disk => None,
            Self::Redis => Some("redis://127.0.0.1:6379"),
        }
    }
}

pub(crate) fn read(section: &Section<'_>) -> MailboxStore {
    let given: Option<StoreKind> = section.word("store");
    // A wrong word has been reported, and means any store but the default.
    let is_wrong = given.is_none() && section.has("store");
    let kind = match is_wrong {
        true => StoreKind::Disk,
        false => given.unwrap_or_else(|| section.default_word("store")),
    };
    let folder = section.folder("folder");
    if let Some(folder) = folder.as_ref().filter(|_| section.reads_files())
        && levity_disk::responds(folder).is_err()
    {
        let message = "the server does not start until the folder responds";
        section.report("folder", message, None);
    }
    let url = section.text("url");
    if !is_wrong {
        check_keys(section, kind);
    }
    if let (Some(given), Some(example)) = (&url, kind.example()) {
        check_url(given, kind.label(), example);
    }
    MailboxStore {
        kind,
        folder,
        url: url.map(|given| given.text.to_owned()),
    }
}

/// Reports keys that the store lacks, and those that do nothing with it.
fn check_keys(section: &Section<'_>, kind: StoreKind) {
    let is_remote = kind.example().is_some();
    for (key, is_used, users) in [
        ("folder", kind == StoreKind::Disk, "`store = \"disk\"`"),
        ("url", is_remote, "`store = \"redis\"`"),
    ] {
        if is_used {
            section.require(key);
        } else if section.has(key) {
            section.report(key, format_args!("it is of use with {users} only"), None);
        }
    }
}

/// Reports what is no URL with that scheme. The URL is not shown: it may have a password.
fn check_url(given: &Text<'_>, scheme: &str, example: &str) {
    let text = given.text;
    let message = format!("`url`: not that of a server of {scheme}");
    if ["rediss://", "valkeys://", "tls://"]
        .iter()
        .any(|tls| text.starts_with(tls))
    {
        return given.refuse_with(message, "there is no TLS to stores yet");
    }
    let rest = text.strip_prefix(scheme);
    let rest = rest.and_then(|rest| rest.strip_prefix("://"));
    let authority = rest.and_then(|rest| rest.split('/').next());
    let host = authority.and_then(|authority| authority.rsplit('@').next());
    let is_host = host
        .is_some_and(|host| http1::host_name(host.as_bytes()).is_ok_and(|name| !name.is_empty()));
    if !is_host || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        given.refuse_with(message, format!("such as \"{example}\""));
    }
}
