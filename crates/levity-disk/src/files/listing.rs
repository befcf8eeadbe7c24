//! Reading directories.
//!
//! A name may be the top of another mount, and a link may lead into one. Such a mount is not asked: it may
//! not answer, and the directory is on another device, to which the time would be charged.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::crossing::{KnownDevices, OtherDevice};
use super::meta::{Kind, Meta};
use super::names::{names, stat_name};
use super::open_file::{Location, OpenFile};

/// One name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name's bytes, not necessarily UTF-8; never `.` or `..`.
    pub name: &'a [u8],
    /// What it is; symbolic links are reported as what they lead to when that stays inside the root. A link
    /// into another mount counts as a file.
    pub kind: Kind,
    /// The same, in full. `None` where another mount begins, and for a link that leads into one: the
    /// mount may not answer, and is not asked.
    pub meta: Option<Meta>,
}

/// A directory's names, sorted: directories first, then by name.
///
/// There may be a million of them, and an event loop drops the listing. So the names lie in one piece of
/// memory: to free them one by one would hold up the loop.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// One behind the other.
    names: Vec<u8>,
    /// For each name its length in bytes and what it is.
    entries: Vec<(usize, Kind, Option<Meta>)>,
    /// There were more than asked for.
    pub truncated: bool,
}

impl Listing {
    /// Adds an entry behind the others.
    pub fn push(&mut self, entry: Entry<'_>) {
        let Entry { name, kind, meta } = entry;
        self.names.extend_from_slice(name);
        self.entries.push((name.len(), kind, meta));
    }

    /// In order of display.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let mut rest = self.names.as_slice();
        self.entries.iter().map(move |&(len, kind, meta)| {
            let (name, behind) = rest.split_at(len);
            rest = behind;
            Entry { name, kind, meta }
        })
    }

    /// Bytes of all names together.
    pub fn name_bytes(&self) -> usize {
        self.names.len()
    }
}

/// Reads a directory. Blocks: once for every few hundred names, and once for each entry's inode. Waits for
/// no device but the directory's.
///
/// # Errors
/// ENOTDIR for anything but a directory; the others are those of `openat` and `getdents64`. A name
/// that vanishes while the directory is read is left out.
pub(crate) fn list(directory: &OpenFile, entries_max: usize) -> io::Result<Listing> {
    let location = directory.location().ok_or(Errno::NOTDIR)?;
    let (names, truncated) = names(directory.as_fd(), entries_max)?;
    let mut entries: Vec<Entry<'_>> = names
        .iter()
        .filter_map(|(name, file_type)| entry(directory, location, name, *file_type))
        .collect();
    entries.sort_by(display_order);
    let mut listing = Listing::default();
    entries.into_iter().for_each(|entry| listing.push(entry));
    listing.truncated = truncated;
    Ok(listing)
}

fn entry<'a>(
    directory: &OpenFile,
    location: &Location,
    name: &'a CStr,
    file_type: FileType,
) -> Option<Entry<'a>> {
    let known = KnownDevices::only(directory.meta.device);
    let (kind, meta) = match stat_name(directory.as_fd(), name) {
        Ok(stat) => {
            let is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
            let own = Meta::from(stat);
            match is_link.then(|| location.target(name, known)) {
                None => (own.kind, Some(own)),
                Some(Ok(target)) => (target.kind, Some(target)),
                // A request for it finds out what it is.
                Some(Err(error)) if OtherDevice::of(&error).is_some() => (Kind::Regular, None),
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

impl Location {
    /// What a link in this directory leads to, by the rules of its root: as a request for it would
    /// see it. An error if it leads to a device that is not `known`, which is not asked.
    fn target(&self, name: &CStr, known: KnownDevices<'_>) -> io::Result<Meta> {
        let path = [self.path.to_bytes(), b"/", name.to_bytes()].concat();
        self.resolver.metadata(&CString::new(path)?, known)
    }
}

fn display_order(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let is_directory = |entry: &Entry<'_>| entry.kind == Kind::Directory;
    is_directory(b)
        .cmp(&is_directory(a))
        .then_with(|| a.name.cmp(b.name))
}
