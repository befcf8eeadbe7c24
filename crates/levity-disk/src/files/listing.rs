//! Directory listings.
//!
//! A directory is read in pieces: it may have millions of names, and each costs a look at its inode.
//!
//! A name may be a mount point, and a link may lead into a mount. Such a mount is not accessed: it may not
//! answer, and the time would be charged to the device of the directory.
//!
//! Secrets are not listed.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::closer::DeferredFd;
use super::crossing::{KnownDevices, OtherDevice};
use super::meta::{Kind, Meta};
use super::names::{Enough, NAMES_BYTES, next_names, reopen, stat_name};
use super::open_file::{Location, OpenFile};
use crate::thread::lock;

/// A piece has at least this many names, or names of so many bytes, unless they are the last. Smaller numbers would cost
/// more trips, larger ones memory, and delay the first name on a slow disk.
const PIECE_MIN: (usize, usize) = (512, 16 * 1024);

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, not necessarily UTF-8; never `.` or `..`.
    pub name: &'a [u8],
    /// The kind. A symbolic link has the kind of its target if that is inside the root. A link into another
    /// mount counts as a file.
    pub kind: Kind,
    /// It is a symbolic link.
    pub is_link: bool,
    /// Size and time. `None` for a mount point and for a link into another mount, which is not accessed,
    /// because it may not answer.
    pub stat: Option<EntryStat>,
}

/// The metadata of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryStat {
    /// In bytes.
    pub size: u64,
    /// Last change of the content: seconds since 1970, negative before.
    pub mtime_s: i64,
}

impl From<Meta> for EntryStat {
    fn from(meta: Meta) -> EntryStat {
        EntryStat {
            size: meta.size,
            mtime_s: meta.mtime_s,
        }
    }
}

/// The usual size of the names of a piece, in bytes, and the usual number of its entries.
const PIECE_USUAL: (usize, usize) = (NAMES_BYTES, 1024);

/// Some entries of a directory, in the order of the file system.
///
/// There may be thousands, and an event loop drops them. So all names are in one allocation: freeing each would delay
/// the loop.
#[derive(Debug, Default)]
pub struct Listing {
    /// All names, concatenated.
    names: Vec<u8>,
    records: Vec<Record>,
    /// No further entries follow.
    pub is_last: bool,
}

/// An entry without its name, which begins where that of the record before ends.
#[derive(Debug, Clone, Copy)]
struct Record {
    name_end: u32,
    kind: Kind,
    is_link: bool,
    has_stat: bool,
    stat: EntryStat,
}

impl Listing {
    /// Appends an entry.
    ///
    /// # Panics
    /// When all names together exceed 4 GiB.
    pub fn push(&mut self, entry: Entry<'_>) {
        let Entry {
            name,
            kind,
            is_link,
            stat,
        } = entry;
        self.names.extend_from_slice(name);
        let none = EntryStat {
            size: 0,
            mtime_s: 0,
        };
        self.records.push(Record {
            name_end: u32::try_from(self.names.len()).expect("names of less than 4 GiB"),
            kind,
            is_link,
            has_stat: stat.is_some(),
            stat: stat.unwrap_or(none),
        });
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The entry with this index.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn entry(&self, index: usize) -> Entry<'_> {
        let record = &self.records[index];
        let before = index.checked_sub(1).map(|before| &self.records[before]);
        let start = before.map_or(0, |before| before.name_end);
        Entry {
            name: &self.names[start as usize..record.name_end as usize],
            kind: record.kind,
            is_link: record.is_link,
            stat: record.has_stat.then_some(record.stat),
        }
    }

    /// The entries.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        (0..self.len()).map(|index| self.entry(index))
    }

    /// An empty listing with room for a usual piece of a directory, about 64 KiB.
    pub fn with_room_of_a_piece() -> Listing {
        let (name_bytes, entries) = PIECE_USUAL;
        Listing {
            names: Vec::with_capacity(name_bytes),
            records: Vec::with_capacity(entries),
            is_last: false,
        }
    }

    /// An empty listing with room for the entries of `other`.
    pub fn with_room_of(other: &Listing) -> Listing {
        Listing {
            names: Vec::with_capacity(other.names.len()),
            records: Vec::with_capacity(other.records.len()),
            is_last: false,
        }
    }

    /// Removes all entries after the first `entries`.
    pub fn truncate(&mut self, entries: usize) {
        self.records.truncate(entries);
        let end = self.records.last().map_or(0, |record| record.name_end);
        self.names.truncate(end as usize);
    }

    /// The size of all entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.names.len() + self.records.len() * size_of::<Record>()
    }
}

/// The memory of a listing, for the entries that are read next; one that is new should have
/// [room](Listing::with_room_of_a_piece). Memory that each of many disk threads allocates costs megabytes, because the
/// allocator keeps some of it per thread.
///
/// Clones are the same memory: a job is kept for another attempt while the disk has it.
#[derive(Debug, Clone)]
pub struct Room(Arc<Mutex<Listing>>);

impl Room {
    /// The listing without entries. The second time it has no memory.
    pub(crate) fn take(&self) -> Listing {
        mem::take(&mut *lock(&self.0))
    }
}

impl From<Listing> for Room {
    fn from(mut listing: Listing) -> Self {
        listing.truncate(0);
        Self(Arc::new(Mutex::new(listing)))
    }
}

/// A directory that is read from its first name to its last, in pieces.
#[derive(Debug)]
pub struct DirectoryReader {
    directory: Arc<OpenFile>,
    /// A descriptor with a read position of its own; opened by the first read. Only threads that may block take the lock.
    position: Mutex<Option<DeferredFd>>,
}

impl DirectoryReader {
    /// A reader at the first name. Makes no system call; for anything but a directory, reads fail.
    pub fn new(directory: Arc<OpenFile>) -> Arc<DirectoryReader> {
        Arc::new(DirectoryReader {
            directory,
            position: Mutex::default(),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Arc<OpenFile> {
        &self.directory
    }

    /// Reads the next entries into `listing`. Blocks once for each few hundred names and once for each entry's inode, on no device but
    /// the directory's.
    ///
    /// # Errors
    /// ENOTDIR for anything but a directory; otherwise the errors of `openat` and `getdents64`. A name that is removed
    /// meanwhile is left out.
    pub(crate) fn read(&self, mut listing: Listing) -> io::Result<Listing> {
        let directory = &*self.directory;
        let location = directory.location.as_ref().ok_or(Errno::NOTDIR)?;
        let mut position = lock(&self.position);
        let position = match &mut *position {
            Some(position) => position,
            none => {
                let fd = reopen(directory.as_fd())?;
                directory.wait_for_room();
                none.insert(directory.another(fd))
            }
        };
        listing.is_last = next_names(position.as_fd(), |name, file_type| {
            if let Some(entry) = entry(directory, location, name, file_type) {
                listing.push(entry);
            }
            Enough(listing.len() >= PIECE_MIN.0 || listing.names.len() >= PIECE_MIN.1)
        })?;
        Ok(listing)
    }
}

fn entry<'a>(
    directory: &OpenFile,
    location: &Location,
    name: &'a CStr,
    file_type: FileType,
) -> Option<Entry<'a>> {
    let known = KnownDevices::only(directory.meta.device);
    let mut is_link = false;
    let (kind, meta): (_, Option<Meta>) = match stat_name(directory.as_fd(), name) {
        Ok(stat) => {
            is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
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
    let secrets = &location.resolver.secrets;
    let is_shown = meta.is_none_or(|meta| secrets.has(&meta).is_ok_and(|has| !has));
    is_shown.then(|| Entry {
        name: name.to_bytes(),
        kind,
        is_link,
        stat: meta.map(EntryStat::from),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A job is cloned on its way to a thread.
    #[test]
    fn entries_are_read_into_the_memory_of_those_before() {
        let mut before = Listing::with_room_of_a_piece();
        before.names.extend_from_slice(b"name");
        let memory = before.names.as_ptr();
        let room = Room::from(before);
        let taken = room.clone().take();
        assert_eq!((taken.names.as_ptr(), taken.names.len()), (memory, 0));
        assert_eq!(room.take().names.capacity(), 0);
    }
}
