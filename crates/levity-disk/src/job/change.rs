//! The operations that change files and names.

use std::ffi::CString;
use std::sync::Arc;

use crate::files::{OpenFile, Root, Spool};

/// An operation that changes a file or a name. Threads of the pool perform it under every engine, also under
/// one that otherwise blocks the submitting thread: any of them may wait for a journal.
///
/// *Order.* Operations run concurrently and in any order, also those on one file. Where one has to follow
/// another, wait for the completion in between.
///
/// *Canceled jobs.* Like any job, a change is dropped without an answer when nobody waits for it as it would
/// start. Whoever stops waiting does not learn whether it was made. A change that has to be made whatever
/// becomes of its client needs a reply that is always awaited: that is true of `Link`, `Rename` and `Unlink`
/// as a rule, since a forgotten name stays in the folder, and of the `Sync` before them. A canceled `Create`
/// leaves nothing of a file without a name; a name may be there. After a canceled `Write` or `Append` the
/// file is to be given up, as after an error.
///
/// *Paths* are relative to the root, without a leading slash. No symbolic link on the way is followed, whatever
/// the root allows (ELOOP), and the root is not left (EXDEV). The last name is never followed either. An operation
/// is charged to the device of its file, or else to that of the mount that the path lies in.
///
/// *After a crash of the machine* content is as of the last [`Change::Sync`] of the file; what was written later
/// may be there, be missing, or be zeroes. Names are as of the last `Sync` of their directory; later changes of
/// names may be there or not, each for itself. A file that a crash must not tear is therefore created without a
/// name, written, synced, linked or renamed, and then its directory is synced.
/// [`engine::crash`](crate::engine::crash) lists the possible states in tests.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates a file, or opens one for appending; it is open for reading and writing. The outcome is
    /// [`Done::Created`](crate::Done::Created).
    ///
    /// ENOSPC and EDQUOT: no room for an inode or a name; EACCES and EROFS: the folder may not be written to.
    Create(NewFile),
    /// Writes all of `bytes` at `offset`, into the page cache. The outcome is
    /// [`Done::Written`](crate::Done::Written). The device may still fail when the kernel writes the pages back: only
    /// [`Change::Sync`] reports that.
    ///
    /// Writes bring their own memory: to have one in flight per file bounds it. Nobody who holds a
    /// [`Buffer`](crate::Buffer) may wait for a write: it may be queued behind a read that waits for memory.
    ///
    /// After an error (ENOSPC, EDQUOT, EFBIG, EIO) the content from `offset` on, over the length of `bytes`, is
    /// undefined.
    Write {
        /// A file of [`Change::Create`] (otherwise EBADF); the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// Held until the completion. As large as a chunk, 64 to 256 KiB: devices are shared by bytes, and
        /// a write is not interrupted.
        bytes: Arc<Vec<u8>>,
    },
    /// As `Write`, at the end of the file: behind all that was written to this open file, and behind all appends in
    /// flight. The outcome is [`Done::Appended`](crate::Done::Appended), with the offset.
    ///
    /// The operation takes its range as it starts, so concurrent ones get ranges that adjoin, in any order. The end
    /// belongs to the open file: appends through two opens of one file overwrite each other.
    ///
    /// After an error the range is given back if it still is the last one: the next append gets the same offset, and
    /// whatever the failed one has written stays behind the end until it is overwritten. If another append has
    /// followed, the range remains as a gap, and its content is undefined: zeroes, or a part of the bytes. So a
    /// reader of the file must be able to tell such a gap and such a tail from a record.
    Append {
        /// A file of [`Change::Create`] (otherwise EBADF); the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// As in `Write`.
        bytes: Arc<Vec<u8>>,
    },
    /// Reserves blocks for a range (`fallocate(FALLOC_FL_KEEP_SIZE)`), so that writes to it do not fail for lack of
    /// space. The size stays as it is: appends go on where the content ends, and a crash leaves no zeroes behind it.
    /// The outcome is [`Done::Changed`](crate::Done::Changed).
    ///
    /// ENOSPC: less is free, and some blocks may have been reserved; EOPNOTSUPP: the file system cannot; EINVAL: `len`
    /// is zero.
    Allocate {
        /// A file of [`Change::Create`] (otherwise EBADF).
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes.
        len: u64,
    },
    /// Makes durable what was written before: `fdatasync` of a file, `fsync` of a directory. The outcome is
    /// [`Done::Synced`](crate::Done::Synced).
    ///
    /// Of a file, content and size are then on the device: `fdatasync` leaves out only metadata that no read needs,
    /// that is, times. The number of links belongs to the names, and is durable with their directory.
    ///
    /// Covered is each write that was *completed* before the sync was submitted. Syncs of one open file are made in
    /// groups: while one is in flight, all others that arrive become one call, which starts when that one has ended.
    /// None joins a call that has started, since its writes may have come too late for it.
    ///
    /// After an error (EIO, ENOSPC, EDQUOT) the kernel takes the lost pages for clean and reports success from then on.
    /// So the error is kept in the open file, and every later sync of it fails with the same. Treat the file as
    /// lost, and write its content to a new one; to open it again would only hide the loss.
    Sync {
        /// A file of [`Change::Create`], or an open directory.
        file: Arc<OpenFile>,
    },
    /// Gives `file` the name `path` (`linkat`), in addition to other names that it may have. The outcome is
    /// [`Done::Changed`](crate::Done::Changed).
    ///
    /// EEXIST: the name is taken, by whatever; EXDEV: it would be on another file system; ENOENT: the file has been
    /// removed, or the folder does not exist; EMLINK; EPERM: the file system has no hard links; EISDIR or
    /// EINVAL: `file` is not a regular file.
    Link {
        /// A regular file, with or without a name; but not one of [`NewFile::Spooled`] (ENOENT).
        file: Arc<OpenFile>,
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The new name.
        path: CString,
    },
    /// Gives `from` the name `to` (`renameat2`), in one step: at any moment there is one of both files under the
    /// name `to`. A symbolic link is renamed itself. The outcome is [`Done::Changed`](crate::Done::Changed).
    ///
    /// EEXIST: the name is taken, without `replace`; EXDEV: the names are on two file systems; EISDIR, ENOTDIR,
    /// ENOTEMPTY: a directory is replaced only by a directory, and only if it is empty; EINVAL: the file system
    /// cannot rename without replacing (NFS).
    Rename {
        /// The directory that the paths may not leave.
        root: Arc<Root>,
        /// The present name.
        from: CString,
        /// The new name.
        to: CString,
        /// Whether a file that has the new name loses it. Otherwise that is an error.
        replace: bool,
    },
    /// Removes the name `path` beneath `root` if it is a name of `file`, or, without a `file`, if it is the name of
    /// any regular file. The outcome is [`Done::Changed`](crate::Done::Changed).
    ///
    /// ENOENT: there is no such name; ESTALE: it is another file; EISDIR or EINVAL: the file is not a regular one.
    ///
    /// A name that is given to another file between the check and the removal is removed all the same.
    /// Whoever can do that could have removed the name too: both need write access to the directory.
    Unlink {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The name.
        path: CString,
        /// The file that was opened there. While it is open, its inode number is not reused.
        file: Option<Arc<OpenFile>>,
    },
    /// Makes the folder `path` (`mkdirat`). The outcome is [`Done::Changed`](crate::Done::Changed).
    ///
    /// EEXIST: the name is taken, by whatever; ENOENT: the folder around it does not exist.
    MakeFolder {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The name, without a final slash.
        path: CString,
        /// Permissions, in bits such as 0o755, less the umask of the process.
        mode: u32,
    },
    /// Removes the empty folder `path` (`rmdir`). The outcome is [`Done::Changed`](crate::Done::Changed).
    ///
    /// ENOTEMPTY or EEXIST: it is not empty; ENOTDIR: it is no folder, but maybe a link to one; ENOENT: there is no such
    /// name; EBUSY: it is a mount point.
    RemoveFolder {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The name, without a final slash.
        path: CString,
    },
}

/// What [`Change::Create`] creates. The permissions are `mode`, in bits such as 0o600, less the umask of the
/// process.
#[derive(Debug, Clone)]
pub enum NewFile {
    /// A file that never gets a name. The kernel frees it when its last descriptor is closed, even if the
    /// process crashes. Only its owner may open it.
    Spooled {
        /// Where.
        spool: Arc<Spool>,
    },
    /// A file that gets a name by [`Change::Link`]; without that it is freed as a spooled one (`O_TMPFILE`).
    ///
    /// Where the file system cannot do that (NFS, FUSE), the file has a name of its own that begins with
    /// [`TEMPORARY_PREFIX`](crate::TEMPORARY_PREFIX), until it is linked or closed. A crash leaves it: who owns the
    /// folder removes such names at start.
    Nameless {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The folder whose file system takes the file; `.` for the root itself.
        folder: CString,
        /// Permissions.
        mode: u32,
    },
    /// A file with a name that nothing has yet; EEXIST otherwise, also for a symbolic link that leads nowhere.
    Named {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The name.
        path: CString,
        /// Permissions.
        mode: u32,
    },
    /// The file that has the name, or a new one. Its end is that of its content as it is opened. ELOOP: the name is
    /// a symbolic link; EISDIR: a directory; EINVAL or ENXIO: no regular file.
    Appended {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// The name.
        path: CString,
        /// Permissions of a new file.
        mode: u32,
    },
}

impl Change {
    /// Bytes that the device has to transfer. Those that a sync writes back are not known.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } | Change::Append { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// `st_dev` of the device that is charged.
    pub(super) fn device(&self) -> u64 {
        match self {
            Change::Create(new) => new.device(),
            Change::Rename { root, to, .. } => root.device_of(to),
            Change::Unlink {
                root,
                path,
                file: None,
            }
            | Change::MakeFolder { root, path, .. }
            | Change::RemoveFolder { root, path } => root.device_of(path),
            Change::Write { file, .. }
            | Change::Append { file, .. }
            | Change::Allocate { file, .. }
            | Change::Sync { file }
            | Change::Link { file, .. }
            | Change::Unlink {
                file: Some(file), ..
            } => file.meta.device,
        }
    }

    /// The open file that it is about, if any.
    pub(crate) fn file(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Change::Write { file, .. }
            | Change::Append { file, .. }
            | Change::Allocate { file, .. }
            | Change::Sync { file }
            | Change::Link { file, .. } => Some(file),
            Change::Unlink { file, .. } => file.as_ref(),
            Change::Create(_)
            | Change::Rename { .. }
            | Change::MakeFolder { .. }
            | Change::RemoveFolder { .. } => None,
        }
    }

    /// Whether it is about names only. All others may write data, which takes longer.
    pub(crate) fn is_of_names(&self) -> bool {
        matches!(
            self,
            Change::Create(_)
                | Change::Link { .. }
                | Change::Rename { .. }
                | Change::Unlink { .. }
                | Change::MakeFolder { .. }
                | Change::RemoveFolder { .. }
        )
    }
}

impl NewFile {
    fn device(&self) -> u64 {
        match self {
            NewFile::Spooled { spool } => spool.device(),
            NewFile::Nameless { root, folder, .. } => root.device_of(folder),
            NewFile::Named { root, path, .. } | NewFile::Appended { root, path, .. } => {
                root.device_of(path)
            }
        }
    }
}
