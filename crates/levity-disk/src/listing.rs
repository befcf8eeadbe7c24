//! Reading directories.
//!
//! A name may be the top of another mount, and a link may lead into one. Such a mount is not asked: it may
//! not answer, and the directory is on another device, to which the time would be charged.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::crossing::Devices;
use crate::engine::{Elsewhere, Entry, Listing};
use crate::open::{Kind, Meta, OpenFile, Place};
use crate::syscall;

/// In bytes per `getdents64`: what glibc's `readdir` uses.
const NAMES_BYTES: usize = 32 * 1024;

/// Reads a directory. Blocks: once for every few hundred names, and once for each entry's inode. Waits for
/// no device but the directory's.
///
/// # Errors
/// ENOTDIR for anything but a directory; the others are those of `openat` and `getdents64`. A name
/// that vanishes while the directory is read is left out.
pub(crate) fn list(directory: &OpenFile, entries_max: usize) -> io::Result<Listing> {
    let place = directory.place().ok_or(Errno::NOTDIR)?;
    let (names, truncated) = names(directory.as_fd(), entries_max)?;
    let mut entries: Vec<Entry<'_>> = names
        .iter()
        .filter_map(|(name, file_type)| entry(directory, place, name, *file_type))
        .collect();
    entries.sort_by(display_order);
    let mut listing = Listing::default();
    entries.into_iter().for_each(|entry| listing.push(entry));
    listing.truncated = truncated;
    Ok(listing)
}

/// Up to `names_max` names in a directory, in the order of the file system, without `.` and `..`;
/// and whether there are more. With each comes what the directory says that it is, which may be nothing.
/// Opens the directory anew: the position belongs to the open file, which others use.
pub(crate) fn names(
    directory: BorrowedFd<'_>,
    names_max: usize,
) -> io::Result<(Vec<(CString, FileType)>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let anew = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    let mut memory = vec![MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(&anew, &mut memory);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() == names_max {
            return Ok((names, true));
        }
        names.push((name.to_owned(), entry.file_type()));
    }
    Ok((names, false))
}

/// What `name` in `directory` is: itself, not what a link leads to. Waits for no device but the directory's.
///
/// # Errors
/// EXDEV where another mount begins.
pub(crate) fn look(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || syscall::openat2(directory, name, flags, ResolveFlags::NO_XDEV);
    rustix::fs::fstat(retry_on_intr(open)?)
}

fn entry<'a>(
    directory: &OpenFile,
    place: &Place,
    name: &'a CStr,
    file_type: FileType,
) -> Option<Entry<'a>> {
    let known = Devices::only(directory.meta.device);
    let (kind, meta) = match look(directory.as_fd(), name) {
        Ok(stat) => {
            let is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
            let own = Meta::from(stat);
            match is_link.then(|| place.target(name, known)) {
                None => (own.kind, Some(own)),
                Some(Ok(target)) => (target.kind, Some(target)),
                // A request for it finds out what it is.
                Some(Err(error)) if Elsewhere::of(&error).is_some() => (Kind::Regular, None),
                Some(Err(_)) => (own.kind, Some(own)),
            }
        }
        Err(Errno::XDEV) if file_type == FileType::RegularFile => (Kind::Regular, None),
        Err(Errno::XDEV) => (Kind::Directory, None),
        Err(_) => return None,
    };
    Some(Entry {
        name: name.to_bytes(),
        kind,
        meta,
    })
}

impl Place {
    /// What a link in this directory leads to, by the rules of its root: as a request for it would
    /// see it. An error if it leads to a device that is not `known`, which is not asked.
    fn target(&self, name: &CStr, known: Devices<'_>) -> io::Result<Meta> {
        let path = [self.path.to_bytes(), b"/", name.to_bytes()].concat();
        self.root.metadata(&CString::new(path)?, known)
    }
}

fn display_order(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let is_directory = |entry: &Entry<'_>| entry.kind == Kind::Directory;
    is_directory(b)
        .cmp(&is_directory(a))
        .then_with(|| a.name.cmp(b.name))
}
