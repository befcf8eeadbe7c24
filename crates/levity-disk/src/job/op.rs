//! The operations, and what each has as its output.
//!
//! # Changes
//!
//! A change is an operation on content or names that others see: all but [`Open`], [`Read`], [`List`], [`FreeSpace`]
//! and [`CheckRoot`]. Threads of the pool perform it under every engine, also under one that otherwise blocks the
//! submitting thread: any of them may wait for a journal.
//!
//! *Order.* Operations run concurrently and in any order, also those on one file. Where one has to follow
//! another, wait for the completion in between.
//!
//! *Canceled jobs.* Like any job, a change is dropped without an answer when nobody waits for it as it would
//! start. Whoever stops waiting does not learn whether it was made. A change that has to be made whatever
//! becomes of its client needs a reply that is always awaited: that is true of [`Link`], [`Rename`] and [`Unlink`]
//! as a rule, since a forgotten name stays in the folder, and of the [`Sync`] before them. A canceled [`Create`]
//! leaves nothing of a file without a name; a name may be there. After a canceled [`Write`] or [`Append`] the
//! file is to be given up, as after an error.
//!
//! *Paths* are relative to the root, without a leading slash. No symbolic link on the way is followed, whatever
//! the root allows (ELOOP), and the root is not left (EXDEV). The last name is never followed either. An operation
//! is charged to the device of its file, or else to that of the mount that the path lies in.
//!
//! *After a crash of the machine* content is as of the last [`Sync`] of the file; what was written later
//! may be there, be missing, or be zeroes. Names are as of the last `Sync` of their directory; later changes of
//! names may be there or not, each for itself. A file that a crash must not tear is therefore created without a
//! name, written, synced, linked or renamed, and then its directory is synced. `engine/crash.rs` lists the possible
//! states in tests.

use std::ffi::CStr;
use std::sync::Arc;

pub use super::change::{
    Append, Appended, Create, Link, MakeFolder, RemoveFolder, Rename, Sync, Unlink, Write,
};
pub use super::open::{First, Lookup, Open, Opened, Variants};
use super::ready::Ready;
use crate::files::{DirectoryReader, Listing, Meta, OpenFile, Room, Root, Spool};
use crate::memory::span;

/// An operation: one trip to the disk.
pub trait Operation: Clone + Into<Op> {
    /// What it returns.
    type Output;

    /// The output, once the operation is done.
    ///
    /// # Panics
    /// If `done` is that of an operation of another type.
    fn output(done: Done) -> Self::Output;
}

/// Makes [`Op`], [`Done`] and each [`Operation`] of one list. An operation has one name in both: an engine that takes a
/// variant of `Op` answers with that of `Done`.
macro_rules! operations {
    ($($name:ident -> $output:ty;)*) => {
        /// Any operation, as the scheduler and the engines have it.
        #[derive(Debug, Clone)]
        pub enum Op {
            $(#[doc = concat!("See [`op::", stringify!($name), "`](crate::op::", stringify!($name), ").")]
            $name($name),)*
        }

        /// The output of any operation.
        #[derive(Debug)]
        pub enum Done {
            $(#[doc = concat!("Of an [`op::", stringify!($name), "`](crate::op::", stringify!($name), ").")]
            $name($output),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        }

        impl Operation for $name {
            type Output = $output;

            fn output(done: Done) -> $output {
                match done {
                    Done::$name(output) => output,
                    other => panic!(concat!(stringify!($name), " is answered with {:?}"), other),
                }
            }
        })*
    };
}

operations! {
    Open -> Opened;
    Read -> (Ready, Meta);
    List -> Listing;
    FreeSpace -> u64;
    CheckRoot -> Option<Arc<Root>>;
    Create -> Arc<OpenFile>;
    Write -> usize;
    Append -> Appended;
    Sync -> ();
    Link -> ();
    Rename -> ();
    Unlink -> ();
    MakeFolder -> ();
    RemoveFolder -> ();
}

/// Reads `len` bytes from `offset`. Fewer bytes than requested mean that the file ends there,
/// or ended there after the read: bytes that a truncation has cut off are never handed over as the
/// zeroes that the kernel puts in their place. Only [`Ready::PageCache`], which has not been read yet,
/// cannot promise that.
///
/// The metadata is from an `fstat` after the read: the bytes are of that version or of an earlier one.
/// Bytes of [`Ready::PageCache`] may be of a later one; an engine that does not block on the loop
/// hands over fewer than [`COPIED_BYTES`](crate::engine::COPIED_BYTES) bytes only as a copy.
#[derive(Debug, Clone)]
pub struct Read {
    /// The file; the operation holds it until its completion.
    pub file: Arc<OpenFile>,
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes; more than zero.
    pub len: usize,
}

/// Reads the next names in a directory, with the metadata of each: about a thousand. One operation per reader may be
/// in flight; a second one waits in its thread for the first.
#[derive(Debug, Clone)]
pub struct List {
    /// The directory, and where the last read has ended.
    pub reader: Arc<DirectoryReader>,
    /// The memory for the entries.
    pub into: Room,
}

/// Asks how many bytes this user can still write to the file system of a root (`fstatvfs`: `f_bavail`, without the
/// blocks that are reserved for the superuser). Performed in the pool under every engine.
#[derive(Debug, Clone)]
pub struct FreeSpace {
    /// The root.
    pub root: Arc<Root>,
}

/// Resolves again the path by which `root` was opened, and opens the root anew if the path leads elsewhere now: a
/// symbolic link was switched, or a directory replaced. The output is the new root, if there is one. Charged to the
/// root's device.
#[derive(Debug, Clone)]
pub struct CheckRoot {
    /// The root as it was opened last.
    pub root: Arc<Root>,
}

/// What an operation is charged for.
pub(crate) enum Place<'a> {
    File(&'a OpenFile),
    Name(&'a Root, &'a CStr),
    Root(&'a Root),
    Spool(&'a Spool),
}

impl Op {
    /// Bytes of memory to reserve: the bytes to read, with the whole blocks around them. An open that may
    /// read more reserves the rest once the size of the file is known. A write brings its own memory.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Op::Open(open) => open.first.map_or(0, |first| span(first.offset, first.len)),
            Op::Read(read) => span(read.offset, read.len),
            _ => 0,
        }
    }

    /// Bytes that the device has to transfer. Those that a sync writes back are not known.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Write(Write { bytes, .. }) | Op::Append(Append { bytes, .. }) => bytes.len(),
            _ => self.memory(),
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        match self {
            Op::Read(Read { file, .. })
            | Op::Write(Write { file, .. })
            | Op::Append(Append { file, .. })
            | Op::Sync(Sync { file })
            | Op::Link(Link { file, .. })
            | Op::Unlink(Unlink {
                file: Some(file), ..
            }) => Place::File(file),
            Op::List(list) => Place::File(list.reader.directory()),
            Op::Open(Open { root, path, .. })
            | Op::Create(
                Create::Nameless {
                    root, folder: path, ..
                }
                | Create::Named { root, path, .. }
                | Create::Appended { root, path, .. },
            )
            | Op::Rename(Rename { root, to: path, .. })
            | Op::Unlink(Unlink { root, path, .. })
            | Op::MakeFolder(MakeFolder { root, path, .. })
            | Op::RemoveFolder(RemoveFolder { root, path }) => Place::Name(root, path),
            Op::FreeSpace(FreeSpace { root }) | Op::CheckRoot(CheckRoot { root }) => {
                Place::Root(root)
            }
            Op::Create(Create::Spooled { spool }) => Place::Spool(spool),
        }
    }

    /// `st_dev` of the device that is charged first.
    pub(crate) fn device(&self) -> u64 {
        match self.place() {
            Place::File(file) => file.meta.device,
            Place::Name(root, path) => root.device_of(path),
            Place::Root(root) => root.device(),
            Place::Spool(spool) => spool.device(),
        }
    }

    /// The same as far as it is known without a lock: `None` for a path where another device is mounted beneath the
    /// root.
    pub(crate) fn device_at_hand(&self) -> Option<u64> {
        match self.place() {
            Place::Name(root, _) => root.only_device(),
            _ => Some(self.device()),
        }
    }

    /// Whether the pool performs it under every engine: a change, or a question for free space.
    pub(crate) fn is_for_the_pool(&self) -> bool {
        !matches!(
            self,
            Op::Open(_) | Op::Read(_) | Op::List(_) | Op::CheckRoot(_)
        )
    }

    /// The file of an [`op::Sync`](Sync).
    pub(crate) fn synced(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Op::Sync(sync) => Some(&sync.file),
            _ => None,
        }
    }
}
