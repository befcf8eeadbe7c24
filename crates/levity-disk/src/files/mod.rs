//! Files, directories and roots: opening and changing beneath a root, system calls that do not block, closing in threads.

mod atime;
pub(crate) mod closer;
pub(crate) mod create;
mod crossing;
mod direct;
pub(crate) mod folder;
mod inline;
pub(crate) mod link;
mod listing;
mod meta;
mod mounts;
mod names;
mod open_file;
mod patience;
mod probe;
pub(crate) mod read;
mod resolver;
mod root;
mod secrets;
mod spool;
mod temporary;
mod unclosed;
pub(crate) mod unlink;
mod variant;
mod watch;
pub(crate) mod write;

pub use closer::set_unclosed_max;
pub(crate) use crossing::{KnownDevices, OtherDevice};
pub use direct::set_direct_files_max;
pub use folder::check_writable;
pub use inline::Inline;
pub use listing::{DirectoryReader, Entry, EntryStat, Listing};
pub use meta::{Kind, Meta};
pub use mounts::MountPoint;
pub use open_file::{Clients, OpenFile};
pub use patience::{
    end_patient_thread, late_returns, on_late, patiently, patiently_for_each, patiently_with,
    read_patiently, responds, set_patience,
};
pub use probe::FileSystem;
pub use resolver::{Symlinks, left_root};
pub use root::Root;
pub use secrets::Secrets;
pub use spool::Spool;
pub use temporary::TEMPORARY_PREFIX;
pub use variant::accept_variant;
pub use watch::{Watch, WatchStats, Watcher};
