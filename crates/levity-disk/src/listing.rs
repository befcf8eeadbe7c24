//! Reading directories.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::engine::{Entry, Listing};
use crate::open::{Kind, Meta, OpenFile, Place};

/// In bytes per `getdents64`: what glibc's `readdir` uses.
const NAMES_BYTES: usize = 32 * 1024;

/// Reads a directory. Blocks: once for every few hundred names, and once for each entry's inode.
///
/// # Errors
/// ENOTDIR for anything but a directory; the others are those of `openat` and `getdents64`. A name
/// that vanishes while the directory is read is left out.
pub(crate) fn list(directory: &OpenFile, entries_max: usize) -> io::Result<Listing> {
    let place = directory.place().ok_or(Errno::NOTDIR)?;
    let (names, truncated) = names(directory.as_fd(), entries_max)?;
    let mut entries: Vec<Entry<'_>> = names
        .iter()
        .filter_map(|name| entry(directory, place, name))
        .collect();
    entries.sort_by(display_order);
    let mut listing = Listing::default();
    entries.into_iter().for_each(|entry| listing.push(entry));
    listing.truncated = truncated;
    Ok(listing)
}

/// Up to `names_max` names in a directory, in the order of the file system, without `.` and `..`;
/// and whether there are more. Opens it anew: the position belongs to the open file, which others use.
pub(crate) fn names(
    directory: BorrowedFd<'_>,
    names_max: usize,
) -> io::Result<(Vec<CString>, bool)> {
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
        names.push(name.to_owned());
    }
    Ok((names, false))
}

fn entry<'a>(directory: &OpenFile, place: &Place, name: &'a CStr) -> Option<Entry<'a>> {
    let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_link = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink();
    let own = Meta::from(stat);
    let meta = match is_link {
        true => place.target(name).unwrap_or(own),
        false => own,
    };
    Some(Entry {
        name: name.to_bytes(),
        meta,
    })
}

impl Place {
    /// What a link in this directory leads to, by the rules of its root: as a request for it would
    /// see it.
    fn target(&self, name: &CStr) -> Option<Meta> {
        let path = [self.path.to_bytes(), b"/", name.to_bytes()].concat();
        self.root.metadata(&CString::new(path).ok()?).ok()
    }
}

fn display_order(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let is_directory = |entry: &Entry<'_>| entry.meta.kind == Kind::Directory;
    is_directory(b)
        .cmp(&is_directory(a))
        .then_with(|| a.name.cmp(b.name))
}
