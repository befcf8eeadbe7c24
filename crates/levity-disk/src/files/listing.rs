//! Directory listings.
//!
//! A name may be a mount point, and a link may lead into a mount. Such a mount is not accessed: it may not
//! answer, and the time would be charged to the device of the directory.

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::crossing::{KnownDevices, OtherDevice};
use super::meta::{Kind, Meta};
use super::names::{names, stat_name};
use super::open_file::{Location, OpenFile};

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name, not necessarily UTF-8; never `.` or `..`.
    pub name: &'a [u8],
    /// The kind. A symbolic link has the kind of its target if that is inside the root. A link into another
    /// mount counts as a file.
    pub kind: Kind,
    /// The metadata. `None` for a mount point and for a link into another mount, which is not accessed,
    /// because it may not answer.
    pub meta: Option<Meta>,
}

/// The entries of a directory: directories first, then by name.
///
/// There may be a million of them, and an event loop drops the listing. So all names are in one allocation:
/// freeing each would delay the loop.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// All names, concatenated.
    names: Vec<u8>,
    /// Length in bytes, kind and metadata of each name.
    entries: Vec<(usize, Kind, Option<Meta>)>,
    /// The directory has more entries than were requested.
    pub truncated: bool,
}

impl Listing {
    /// Appends an entry.
    pub fn push(&mut self, entry: Entry<'_>) {
        let Entry { name, kind, meta } = entry;
        self.names.extend_from_slice(name);
        self.entries.push((name.len(), kind, meta));
    }

    /// The entries, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let mut rest = self.names.as_slice();
        self.entries.iter().map(move |&(len, kind, meta)| {
            let (name, behind) = rest.split_at(len);
            rest = behind;
            Entry { name, kind, meta }
        })
    }

    /// Length of all names together, in bytes.
    pub fn name_bytes(&self) -> usize {
        self.names.len()
    }
}

/// Reads a directory. Blocks once for every few hundred names and once for each entry's inode, on no device
/// but the directory's.
///
/// # Errors
/// ENOTDIR for anything but a directory; otherwise the errors of `openat` and `getdents64`. A name that is removed
/// while the directory is read is left out.
pub(crate) fn list(directory: &OpenFile, entries_max: usize) -> io::Result<Listing> {
    let location = directory.location.as_ref().ok_or(Errno::NOTDIR)?;
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
                // Its kind is found when it is requested.
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
    /// The metadata of the target of a link in this directory, by the rules of its root, as a request for the
    /// link would see it. Fails if the link leads to a device that is not among `known`, which is not
    /// accessed.
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
