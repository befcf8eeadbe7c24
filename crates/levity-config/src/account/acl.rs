//! What a file permits to users and groups: by its access control list (acl(5)), or by its mode, which is a short list.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

use super::{Account, ROOT};

/// Permissions of one class, as in the last digit of a mode.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

/// The extended attribute with the list, as Linux has it: a version of 4 bytes, then entries of 8 bytes, all numbers with
/// the low byte first (`linux/posix_acl_xattr.h`). The group bits of the mode of a file that has one are its mask.
pub const ACCESS_LIST: &str = "system.posix_acl_access";
const VERSION: [u8; 4] = [2, 0, 0, 0];

/// The maximum size of an extended attribute in bytes (`XATTR_SIZE_MAX`).
const ACCESS_LIST_BYTES_MAX: usize = 64 << 10;

/// To whom an entry applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Owner,
    User(u32),
    Group(u32),
    /// The most that users and groups with entries of their own get, and the group of the file.
    Mask,
    Others,
}

/// A file or folder with its permissions.
#[derive(Debug)]
pub(super) struct Permissions {
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
    pub(super) has_list: bool,
    entries: Vec<(Class, u32)>,
}

impl Permissions {
    /// Those of the file at `path`; links are followed. Blocks.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let (owner, group, mode) = (meta.uid(), meta.gid(), meta.mode());
        // The kernel asks no list whose mask, which is in place of the mode of the group, permits nothing.
        let list = match mode & 0o070 {
            0 => None,
            _ => access_list(|name, bytes| getxattr(path, name, bytes))?
                .and_then(|bytes| parse(&bytes, group)),
        };
        Ok(Self {
            owner,
            group,
            mode: mode & 0o7777,
            has_list: list.is_some(),
            entries: list.unwrap_or_else(|| of_mode(mode, group)),
        })
    }

    /// Whether `account` has all permissions of `needed`: by the first class that applies, whatever the others permit
    /// (acl(5), "ACCESS CHECK ALGORITHM").
    pub(super) fn permit(&self, account: &Account, needed: u32) -> bool {
        let has = |permitted: u32| permitted & needed == needed;
        let of = |class| {
            let mut entries = self.entries.iter();
            entries.find_map(|(known, permitted)| (*known == class).then_some(*permitted))
        };
        let masked = |permitted| has(permitted & of(Class::Mask).unwrap_or(permitted));
        let groups = self.entries.iter().filter_map(|(class, permitted)| {
            let Class::Group(group) = class else {
                return None;
            };
            account.groups.contains(group).then_some(*permitted)
        });
        let mut groups = groups.peekable();
        match of(Class::User(account.user)) {
            _ if account.user == ROOT => true,
            _ if account.user == self.owner => of(Class::Owner).is_some_and(has),
            Some(own) => masked(own),
            None if groups.peek().is_some() => groups.any(masked),
            None => of(Class::Others).is_some_and(has),
        }
    }
}

fn of_mode(mode: u32, group: u32) -> Vec<(Class, u32)> {
    let classes = [Class::Owner, Class::Group(group), Class::Others];
    let digits = [6, 3, 0].map(|shift| mode >> shift & 7);
    classes.into_iter().zip(digits).collect()
}

/// The access control list of a file in the form of the kernel; `None` if the file has none, or its file system has no lists.
/// `read` reads the attribute with this name into these bytes, and gives its length. Blocks as that does.
///
/// # Errors
/// Those of `read`.
pub fn access_list(
    read: impl FnOnce(&str, &mut [u8]) -> Result<usize, Errno>,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; ACCESS_LIST_BYTES_MAX];
    match read(ACCESS_LIST, &mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Some(bytes))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The entries of a list; `None` if it has another form. `own` is the group of the file.
fn parse(bytes: &[u8], own: u32) -> Option<Vec<(Class, u32)>> {
    let (entries, []) = bytes.strip_prefix(&VERSION)?.as_chunks::<8>() else {
        return None;
    };
    let entry = |&[tag, _, permitted, _, id @ ..]: &[u8; 8]| {
        let id = u32::from_le_bytes(id);
        let class = match tag {
            0x01 => Class::Owner,
            0x02 => Class::User(id),
            0x04 => Class::Group(own),
            0x08 => Class::Group(id),
            0x10 => Class::Mask,
            0x20 => Class::Others,
            _ => return None,
        };
        Some((class, u32::from(permitted)))
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::super::tests::accounts;
    use super::*;

    /// As the kernel gives it: (tag, permissions, user or group).
    fn attribute(entries: &[(u8, u8, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_vec();
        for (tag, permitted, id) in entries {
            bytes.extend([*tag, 0, *permitted, 0]);
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn permissions(owner: u32, group: u32, entries: Vec<(Class, u32)>) -> Permissions {
        Permissions {
            owner,
            group,
            mode: 0,
            has_list: false,
            entries,
        }
    }

    #[test]
    fn the_first_class_of_a_mode_that_applies_decides() {
        let accounts = accounts();
        let permits = |owner, group, mode, user: &str, needed| {
            let user = accounts.find(user).expect("a user");
            permissions(owner, group, of_mode(mode, group)).permit(&user, needed)
        };
        for (owner, group, mode, user, needed, expected) in [
            (7, 9, 0o600, "ann", READ | WRITE, true),
            (7, 9, 0o077, "ann", READ, false),
            (0, 10, 0o740, "ann", READ, true),
            (0, 10, 0o707, "ann", READ, false),
            (0, 10, 0o740, "ann", READ | SEARCH, false),
            (0, 0, 0o705, "ann", READ | SEARCH, true),
            (0, 0, 0o700, "ann", READ, false),
            (7, 7, 0, "root", WRITE, true),
        ] {
            let found = permits(owner, group, mode, user, needed);
            assert_eq!(found, expected, "{owner} {group} {mode:o} {user} {needed}");
        }
    }

    #[test]
    fn a_list_names_further_users_and_groups() {
        let accounts = accounts();
        let permits = |entries: &[(u8, u8, u32)], user: &str, needed| {
            let user = accounts.find(user).expect("a user");
            let entries = parse(&attribute(entries), 0).expect("a list");
            permissions(0, 0, entries).permit(&user, needed)
        };
        let with = |mask| {
            [
                (0x01, 7, 0),
                (0x02, 6, 7),
                (0x04, 4, 0),
                (0x08, 4, 10),
                (0x08, 2, 8),
                (0x10, mask, 0),
                (0x20, 1, 0),
            ]
        };
        for (mask, user, needed, expected) in [
            (7, "ann", READ | WRITE, true),
            (4, "ann", WRITE, false),
            (4, "ann", READ, true),
            // By one of the two groups, and by none of them.
            (7, "bob", READ, true),
            (7, "bob", WRITE, true),
            (7, "bob", READ | WRITE, false),
            (7, "bob", SEARCH, false),
            // The mask is not for all others.
            (0, "web", SEARCH, true),
            (7, "web", READ, false),
        ] {
            let found = permits(&with(mask), user, needed);
            assert_eq!(found, expected, "{mask} {user} {needed}");
        }
    }

    #[test]
    fn the_list_of_a_file_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = || Permissions::read(file.path()).expect("permissions");
        let accounts = accounts();
        let ann = accounts.find("ann").expect("a user");
        assert!(!read().has_list && !read().permit(&ann, READ));
        let entries = [
            (0x01, 6, u32::MAX),
            (0x02, 4, ann.user),
            (0x04, 0, u32::MAX),
            (0x10, 4, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let list = attribute(&entries);
        let set = setxattr(file.path(), ACCESS_LIST, &list, XattrFlags::empty());
        set.expect("lists on the file system of temporary files");
        let read = read();
        assert!(read.has_list && read.permit(&ann, READ) && !read.permit(&ann, WRITE));
    }

    #[test]
    fn other_bytes_are_no_list() {
        let list = attribute(&[(0x01, 7, 0), (0x20, 0, 0)]);
        assert_eq!(
            parse(&list, 0),
            Some(vec![(Class::Owner, 7), (Class::Others, 0)])
        );
        for cut in 0..list.len() {
            let is_list = parse(&list[..cut], 0).is_some();
            // With fewer entries it is one.
            assert_eq!(is_list, cut >= 4 && cut % 8 == 4, "{cut}");
        }
        assert_eq!(parse(&attribute(&[(0x40, 7, 0)]), 0), None);
        assert_eq!(parse(&[1, 0, 0, 0], 0), None);
    }
}
