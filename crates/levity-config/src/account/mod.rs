//! Users and groups of this machine, and what files permit them.

mod acl;
mod barrier;

use std::fs::File;
use std::io::{self, Read as _};

pub use self::acl::{ACCESS_LIST, access_list};
pub use self::barrier::{Barrier, Usage};

/// The maximum length of each of the two files in bytes. The rest of a longer one is not read.
const BYTES_MAX: u64 = 4 << 20;

const ROOT: u32 = 0;

/// The users and groups in passwd(5) and group(5). Those of directory services are unknown.
#[derive(Debug)]
pub struct Accounts {
    passwd: String,
    group: String,
    /// Whether both files have been read to their end.
    is_whole: bool,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub user: u32,
    /// The number of its own group.
    pub group: u32,
    /// The numbers of all its groups.
    groups: Vec<u32>,
}

impl Accounts {
    /// Reads both files. One that cannot be read is empty. Blocks.
    #[must_use]
    pub fn read() -> Self {
        let texts = ["/etc/passwd", "/etc/group"].map(start_of);
        let is_whole = |text: &io::Result<Vec<u8>>| {
            let text = text.as_ref();
            text.is_ok_and(|text| (text.len() as u64) < BYTES_MAX)
        };
        let is_whole = texts.iter().all(is_whole);
        let [passwd, group] = texts.map(|text| {
            let bytes = text.unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self {
            passwd,
            group,
            is_whole,
        }
    }

    /// The user of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Account> {
        let (_, user, group) = self.users().find(|(known, ..)| *known == name)?;
        let further = self.groups().filter(|(_, _, members)| {
            let mut members = members.split(',');
            members.any(|member| member == name)
        });
        let groups = further.map(|(_, group, _)| group).chain([group]).collect();
        Some(Account {
            name: name.to_owned(),
            user,
            group,
            groups,
        })
    }

    /// The name of a user, or else its number.
    #[must_use]
    pub fn user_name(&self, user: u32) -> String {
        let found = self.users().find(|(_, known, _)| *known == user);
        found.map_or_else(|| user.to_string(), |(name, ..)| name.to_owned())
    }

    /// The name of a group, or else its number.
    #[must_use]
    pub fn group_name(&self, group: u32) -> String {
        let found = self.groups().find(|(_, known, _)| *known == group);
        found.map_or_else(|| group.to_string(), |(name, ..)| name.to_owned())
    }

    /// Whether `user` is the only member of `group`, as where each user has a group (`USERGROUPS` of adduser.conf(5)).
    /// sshd of Debian asks the same about its files. False if a member may be unknown.
    pub(crate) fn is_private(&self, group: u32, user: u32) -> bool {
        let of_users = self.users().filter(|(_, _, own)| *own == group);
        let of_users = of_users.map(|(_, member, _)| Some(member));
        let members = self.groups().filter(|(_, known, _)| *known == group);
        let members = members.flat_map(|(_, _, members)| members.split(','));
        let members = members.filter(|name| !name.is_empty());
        let number = |name| Some(self.users().find(|(known, ..)| *known == name)?.1);
        let mut all = of_users.chain(members.map(number)).peekable();
        self.is_whole && all.peek().is_some() && all.all(|member| member == Some(user))
    }

    /// Name, number and own group of each user.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let user = fields.nth(1)?.parse().ok()?;
            let group = fields.next()?.parse().ok()?;
            Some((name, user, group))
        })
    }

    /// Name, number and members of each group, these separated by commas and without the users whose own group it is.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let group = fields.nth(1)?.parse().ok()?;
            Some((name, group, fields.next()?))
        })
    }
}

fn start_of(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nann:x:7:7::/home/ann:\nbob:x:8:8::/:\nweb:x:9:9::/:\n\
                     nobody:x:13:13::/:\nother:x:14:13::/:\nbroken\n"
                .to_owned(),
            group: "root:x:0:\nann:x:7:\nbob:x:8:ann\nweb:x:9:web\nstaff:x:10:ann,bob\nempty:x:11:\n\
                    files:x:12:web\nnogroup:x:13:\n"
                .to_owned(),
            is_whole: true,
        }
    }

    #[test]
    fn users_have_the_groups_that_name_them() {
        let accounts = accounts();
        let ann = accounts.find("ann").expect("a user");
        assert_eq!((ann.user, ann.group), (7, 7));
        assert_eq!(ann.groups, [8, 10, 7]);
        assert_eq!(accounts.find("an"), None);
        assert_eq!(
            (accounts.user_name(8), accounts.user_name(99)),
            ("bob".into(), "99".into())
        );
        assert_eq!(
            (accounts.group_name(10), accounts.group_name(99)),
            ("staff".into(), "99".into())
        );
    }

    #[test]
    fn a_private_group_has_its_owner_alone() {
        let accounts = accounts();
        for (group, user, expected) in [
            (7, 7, true),
            (9, 9, true),
            (7, 8, false),
            // Also of another user.
            (8, 8, false),
            (12, 9, true),
            (10, 7, false),
            (11, 7, false),
            (99, 7, false),
            (13, 13, false),
        ] {
            assert_eq!(accounts.is_private(group, user), expected, "{group} {user}");
        }
        let cut = Accounts {
            is_whole: false,
            ..accounts
        };
        assert!(!cut.is_private(7, 7), "a member may be unknown");
    }
}
