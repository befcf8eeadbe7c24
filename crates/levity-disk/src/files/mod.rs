//! Files, directories and roots: opening and changing beneath a root, system calls that do not block, closing in threads.
//!
//! # Changes
//!
//! Each change is one trip: create, write, append, sync, link, rename, unlink, make and
//! remove a folder. They use the same queues as reads; the pool executes them under every engine.
//! No symbolic link on the way is followed, whatever the root allows.
//!
//! - Bytes to write belong to the operation. A writer has one piece in flight per file, which
//!   bounds the memory. A write succeeds as a whole or fails with its errno. An append takes its
//!   range from an atomic of the open file as it starts, and gives it back if it fails as the last
//!   one.
//! - Durable is what a sync has covered: `fdatasync` of a file, which includes the size, and
//!   `fsync` of the directory for names. A file that no crash may tear is created without a name,
//!   written, synced, linked or renamed, and then the directory is synced. A sync that failed is
//!   remembered in the open file, and all later ones fail too: the kernel takes the lost pages for
//!   clean.
//! - Files without a name that get one (`create.rs`) are `O_TMPFILE` and `linkat`. Where the file
//!   system has no such files, they have a name with a prefix of its own until they are linked; the
//!   closing threads remove it if they never are.
//! - Spool files (`spool.rs`) hold request bodies that do not fit into memory. They are not synced,
//!   since nobody reads them after a crash, and reads of them, as of all files that are open for
//!   writing, are never shared.
//! - Files that an application hands over are opened for one request, without symbolic links, never
//!   shared. A second operation removes the name, so that the first byte does not wait for the
//!   journal. On tmpfs one operation does both (`Lookup::Consume`).

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
pub use listing::{DirectoryReader, Entry, EntryStat, Listing, Room};
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
