//! `[mailbox_store]`: where messages are kept.

use std::path::PathBuf;

use levity_wire::http1;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray, VariantNames};

use crate::section::Section;

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
    let url = url(section);
    if !is_wrong {
        check_keys(section, kind);
    }
    if let (Some((text, key)), Some(example)) = (&url, kind.example()) {
        check_url(section, key, text, (kind.label(), example));
    }
    MailboxStore {
        kind,
        folder,
        url: url.map(|(text, _)| text),
    }
}

/// The URL, and the key that gives it. That of a file that was not read is empty.
fn url(section: &Section<'_>) -> Option<(String, String)> {
    let given = section.secret("url")?;
    if !section.reader.take_unread().is_empty() {
        let message = "the server does not start until the file responds";
        section.report(&given.key, message, None);
        return None;
    }
    Some((given.text?, given.key))
}

/// Reports keys that the store lacks, and those that do nothing with it.
fn check_keys(section: &Section<'_>, kind: StoreKind) {
    let (is_disk, is_remote) = (kind == StoreKind::Disk, kind.example().is_some());
    let (disk, redis) = ("`store = \"disk\"`", "`store = \"redis\"`");
    for (key, is_used, users) in [
        ("folder", is_disk, disk),
        ("url", is_remote, redis),
        ("url_file", is_remote, redis),
    ] {
        if section.has(key) && !is_used {
            section.report(key, format_args!("it is of use with {users} only"), None);
        }
    }
    if is_disk {
        section.require("folder");
    }
    if is_remote && !section.has("url_file") {
        section.require("url");
    }
}

/// Reports what is no URL with that scheme. The URL is not shown: it may have a password.
fn check_url(section: &Section<'_>, key: &str, text: &str, (scheme, example): (&str, &str)) {
    let report = |help: String| {
        let message = format!("not that of a server of {scheme}");
        section.report(key, message, Some(help));
    };
    if ["rediss://", "valkeys://", "tls://"]
        .iter()
        .any(|tls| text.starts_with(tls))
    {
        return report("there is no TLS to stores yet".to_owned());
    }
    let rest = text.strip_prefix(scheme);
    let rest = rest.and_then(|rest| rest.strip_prefix("://"));
    let authority = rest.and_then(|rest| rest.split('/').next());
    let host = authority.and_then(|authority| authority.rsplit('@').next());
    let is_host = host
        .is_some_and(|host| http1::host_name(host.as_bytes()).is_ok_and(|name| !name.is_empty()));
    if !is_host || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        report(format!("such as \"{example}\""));
    }
}
