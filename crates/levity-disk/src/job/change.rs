//! The operations that change files and names. What holds for all of them is said in [`op`](super::op).

use std::ffi::CString;
use std::sync::Arc;

use crate::files::{OpenFile, Root, Spool};

/// Creates a file, or opens one for appending; it is open for reading and writing. The permissions are `mode`, in bits such
/// as 0o600, less the umask of the process. The `meta` of the file is from the open: of a new file, that of an empty one.
///
/// ENOSPC and EDQUOT: no room for an inode or a name; EACCES and EROFS: the folder may not be written to.
#[derive(Debug, Clone)]
pub enum Create {
    /// A file that never gets a name. The kernel frees it when its last descriptor is closed, even if the
    /// process crashes. Only its owner may open it.
    Spooled {
        /// Where.
        spool: Arc<Spool>,
    },
    /// A file that gets a name by [`Link`]; without that it is freed as a spooled one (`O_TMPFILE`).
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

/// Writes all of `bytes` at `offset`, into the page cache. The output is their number. The device may still fail when the
/// kernel writes the pages back: only [`Sync`] reports that.
///
/// Writes bring their own memory: to have one in flight per file bounds it. Nobody who holds a
/// [`Buffer`](crate::Buffer) may wait for a write: it may be queued behind a read that waits for memory.
///
/// After an error (ENOSPC, EDQUOT, EFBIG, EIO) the content from `offset` on, over the length of `bytes`, is
/// undefined.
#[derive(Debug, Clone)]
pub struct Write {
    /// A file of [`Create`] (otherwise EBADF); the operation holds it until its completion.
    pub file: Arc<OpenFile>,
    /// In bytes from the start of the file.
    pub offset: u64,
    /// Held until the completion. As large as a chunk, 64 to 256 KiB: devices are shared by bytes, and
    /// a write is not interrupted.
    pub bytes: Arc<Vec<u8>>,
}

/// As [`Write`], at the end of the file: behind all that was written to this open file, and behind all appends in
/// flight.
///
/// The operation takes its range as it starts, so concurrent ones get ranges that adjoin, in any order. The end
/// belongs to the open file: appends through two opens of one file overwrite each other.
///
/// After an error the range is given back if it still is the last one: the next append gets the same offset, and
/// whatever the failed one has written stays behind the end until it is overwritten. If another append has
/// followed, the range remains as a gap, and its content is undefined: zeroes, or a part of the bytes. So a
/// reader of the file must be able to tell such a gap and such a tail from a record.
#[derive(Debug, Clone)]
pub struct Append {
    /// A file of [`Create`] (otherwise EBADF); the operation holds it until its completion.
    pub file: Arc<OpenFile>,
    /// As in [`Write`].
    pub bytes: Arc<Vec<u8>>,
}

/// The output of an [`Append`].
#[derive(Debug)]
pub struct Appended {
    /// Where the bytes are, in bytes from the start of the file.
    pub offset: u64,
    /// The number of bytes, always all of them.
    pub len: usize,
}

/// Makes durable what was written before: `fdatasync` of a file, `fsync` of a directory.
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
#[derive(Debug, Clone)]
pub struct Sync {
    /// A file of [`Create`], or an open directory.
    pub file: Arc<OpenFile>,
}

/// Gives `file` the name `path` (`linkat`), in addition to other names that it may have.
///
/// EEXIST: the name is taken, by whatever; EXDEV: it would be on another file system; ENOENT: the file has been
/// removed, or the folder does not exist; EMLINK; EPERM: the file system has no hard links; EISDIR or
/// EINVAL: `file` is not a regular file.
#[derive(Debug, Clone)]
pub struct Link {
    /// A regular file, with or without a name; but not one of [`Create::Spooled`] (ENOENT).
    pub file: Arc<OpenFile>,
    /// The directory that the path may not leave.
    pub root: Arc<Root>,
    /// The new name.
    pub path: CString,
}

/// Gives `from` the name `to` (`renameat2`), in one step: at any moment there is one of both files under the
/// name `to`. A symbolic link is renamed itself.
///
/// EEXIST: the name is taken, without `replace`; EXDEV: the names are on two file systems; EISDIR, ENOTDIR,
/// ENOTEMPTY: a directory is replaced only by a directory, and only if it is empty; EINVAL: the file system
/// cannot rename without replacing (NFS).
#[derive(Debug, Clone)]
pub struct Rename {
    /// The directory that the paths may not leave.
    pub root: Arc<Root>,
    /// The present name.
    pub from: CString,
    /// The new name.
    pub to: CString,
    /// Whether a file that has the new name loses it. Otherwise that is an error.
    pub replace: bool,
}

/// Removes the name `path` beneath `root` if it is a name of `file`, or, without a `file`, if it is the name of
/// any regular file.
///
/// ENOENT: there is no such name; ESTALE: it is another file; EISDIR or EINVAL: the file is not a regular one.
///
/// A name that is given to another file between the check and the removal is removed all the same.
/// Whoever can do that could have removed the name too: both need write access to the directory.
#[derive(Debug, Clone)]
pub struct Unlink {
    /// The directory that the path may not leave.
    pub root: Arc<Root>,
    /// The name.
    pub path: CString,
    /// The file that was opened there. While it is open, its inode number is not reused.
    pub file: Option<Arc<OpenFile>>,
}

/// Makes the folder `path` (`mkdirat`).
///
/// EEXIST: the name is taken, by whatever; ENOENT: the folder around it does not exist.
#[derive(Debug, Clone)]
pub struct MakeFolder {
    /// The directory that the path may not leave.
    pub root: Arc<Root>,
    /// The name, without a final slash.
    pub path: CString,
    /// Permissions, in bits such as 0o755, less the umask of the process.
    pub mode: u32,
}

/// Removes the empty folder `path` (`rmdir`).
///
/// ENOTEMPTY or EEXIST: it is not empty; ENOTDIR: it is no folder, but maybe a link to one; ENOENT: there is no such
/// name; EBUSY: it is a mount point.
#[derive(Debug, Clone)]
pub struct RemoveFolder {
    /// The directory that the path may not leave.
    pub root: Arc<Root>,
    /// The name, without a final slash.
    pub path: CString,
}
