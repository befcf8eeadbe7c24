//! Files, directories and roots: opening beneath a root, system calls that do not block, closing in threads.

mod atime;
pub(crate) mod closer;
mod crossing;
mod direct;
mod inline;
pub(crate) mod listing;
mod meta;
mod mounts;
mod names;
mod open_file;
mod probe;
pub(crate) mod read;
mod resolver;
mod root;
mod spool;
pub(crate) mod unlink;
mod variant;
mod watch;

pub use closer::unclosed;
pub(crate) use crossing::{KnownDevices, OtherDevice};
pub use direct::set_direct_files_max;
pub use inline::Inline;
pub use listing::{Entry, Listing};
pub use meta::{Kind, Meta};
pub use mounts::MountPoint;
pub use open_file::OpenFile;
pub use probe::FileSystem;
pub use resolver::{Symlinks, left_root};
pub use root::Root;
pub use spool::Spool;
pub use variant::accept_variant;
pub use watch::{Watch, WatchStats, Watcher};
