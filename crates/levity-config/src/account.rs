//! Users and groups of this machine, and what file modes permit them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::swap::{folders_on_way, is_shared};

/// The maximum length of each of the two files in bytes. The rest of a longer one is not read.
const BYTES_MAX: u64 = 4 << 20;

const ROOT: u32 = 0;

/// Permissions of one class, as in the last digit of a mode.
const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// The users and groups in passwd(5) and group(5). Those of directory services are unknown.
#[derive(Debug)]
pub struct Accounts {
    passwd: String,
    group: String,
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

/// How a server uses a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// It opens a file, or what is in a folder. What is absent is not used.
    Read,
    /// It writes to a file, or makes files in a folder. What is absent is made.
    Write,
}

/// A file or folder whose mode forbids a use.
#[derive(Debug)]
pub struct Barrier {
    /// It, without links.
    pub path: PathBuf,
    meta: Metadata,
    /// The permissions that the use needs.
    needed: u32,
}

impl Accounts {
    /// Reads both files. One that cannot be read is empty. Blocks.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| {
            let bytes = start_of(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Self {
            passwd: text("/etc/passwd"),
            group: text("/etc/group"),
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
    /// sshd of Debian asks the same about its files.
    pub(crate) fn is_private(&self, group: u32, user: u32) -> bool {
        let of_users = self.users().filter(|(_, _, own)| *own == group);
        let of_users = of_users.map(|(_, member, _)| Some(member));
        let members = self.groups().filter(|(_, known, _)| *known == group);
        let members = members.flat_map(|(_, _, members)| members.split(','));
        let members = members.filter(|name| !name.is_empty());
        let number = |name| Some(self.users().find(|(known, ..)| *known == name)?.1);
        let mut all = of_users.chain(members.map(number)).peekable();
        all.peek().is_some() && all.all(|member| member == Some(user))
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

/// Not by way of the thread for calls that may hang: it is that thread which asks about files of a configuration.
fn start_of(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Account {
    /// The first file or folder on the way to the absolute `path` whose mode keeps this user from using it so; `None` if
    /// nothing does. By owners, groups and modes alone: access control lists (acl(5)) are not looked at. Blocks.
    ///
    /// # Errors
    /// Where this process cannot look.
    pub fn barrier(&self, path: &Path, usage: Usage) -> io::Result<Option<Barrier>> {
        for folder in folders_on_way(path) {
            if let Some(barrier) = self.barrier_at(folder, SEARCH)? {
                return Ok(Some(barrier));
            }
        }
        let is_absent = |path: &Path| {
            let error = fs::metadata(path).err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let there = match usage {
            Usage::Read if is_absent(path) => return Ok(None),
            Usage::Read => Some(path),
            Usage::Write => path.ancestors().find(|path| !is_absent(path)),
        };
        let there = fs::canonicalize(there.unwrap_or(path))?;
        let needed = match (usage, there.is_dir()) {
            (Usage::Read, false) => READ,
            (Usage::Read, true) => SEARCH,
            (Usage::Write, false) => WRITE,
            (Usage::Write, true) => WRITE | SEARCH,
        };
        self.barrier_at(there, needed)
    }

    fn barrier_at(&self, path: PathBuf, needed: u32) -> io::Result<Option<Barrier>> {
        let meta = fs::metadata(&path)?;
        let is_permitted = self.permissions(&meta) & needed == needed;
        Ok((!is_permitted).then_some(Barrier { path, meta, needed }))
    }

    /// What the mode permits: by the first class that applies, whatever the others permit (path_resolution(7)).
    fn permissions(&self, meta: &Metadata) -> u32 {
        match self.user {
            ROOT => READ | WRITE | SEARCH,
            user if user == meta.uid() => meta.mode() >> 6,
            _ if self.groups.contains(&meta.gid()) => meta.mode() >> 3,
            _ => meta.mode(),
        }
    }
}

impl Barrier {
    /// What it is, and what has `account` use it.
    #[must_use]
    pub fn describe(&self, account: &Account, accounts: &Accounts) -> String {
        let (owner, group) = (self.meta.uid(), self.meta.gid());
        format!(
            "{} is of {}:{} with the mode {:04o}; {}",
            self.path.display(),
            accounts.user_name(owner),
            accounts.group_name(group),
            self.meta.mode() & 0o7777,
            self.remedy(account, accounts)
        )
    }

    fn remedy(&self, account: &Account, accounts: &Accounts) -> String {
        if is_shared(&self.path) {
            return "choose another place".to_owned();
        }
        let command = self.command(account, accounts);
        format!("`{command}` permits it")
    }

    /// The command after which `account` may use it.
    fn command(&self, account: &Account, accounts: &Accounts) -> String {
        let (path, name) = (quoted(&self.path), &account.name);
        let letters = [(READ, 'r'), (WRITE, 'w'), (SEARCH, 'x')];
        let letters = letters.iter().filter(|(bit, _)| self.needed & bit != 0);
        let letters: String = letters.map(|(_, letter)| letter).collect();
        let group = self.meta.gid();
        let opens_group = self.meta.mode() >> 3 & self.needed == self.needed;
        match () {
            () if self.meta.uid() == account.user => format!("chmod u+{letters} {path}"),
            () if account.groups.contains(&group) => format!("chmod g+{letters} {path}"),
            // Not into that of root: its files are not for servers.
            () if opens_group && group != ROOT => {
                let group = accounts.group_name(group);
                format!("usermod --append --groups {group} {name}")
            }
            () if self.needed & WRITE != 0 => format!("chown {name} {path}"),
            () => {
                let own = accounts.group_name(account.group);
                format!("chgrp {own} {path} && chmod g+{letters} {path}")
            }
        }
    }
}

/// A path as a word of a shell.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const PASSWD: &str = "own:x:USER:GROUP::/:\nroot:x:0:0:root:/root:/bin/sh\nann:x:7:7::/home/ann:\nbob:x:8:8::/:\n\
                          web:x:9:9::/:\nbroken\n";
    const GROUP: &str = "own:x:GROUP:\nroot:x:0:\nann:x:7:\nbob:x:8:ann\nweb:x:9:web\nstaff:x:10:ann,bob\nempty:x:11:\n\
                         files:x:12:web\n";

    /// With a user `own` that runs the tests.
    fn accounts(folder: &Path) -> Accounts {
        let meta = fs::metadata(folder).expect("a folder");
        let (user, group) = (meta.uid().to_string(), meta.gid().to_string());
        let text = |text: &str| text.replace("USER", &user).replace("GROUP", &group);
        Accounts {
            passwd: text(PASSWD),
            group: text(GROUP),
        }
    }

    #[test]
    fn users_have_the_groups_that_name_them() {
        let accounts = accounts(Path::new("/"));
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
        let accounts = accounts(Path::new("/"));
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
        ] {
            assert_eq!(accounts.is_private(group, user), expected, "{group} {user}");
        }
    }

    /// The first barrier for a user that has nothing here, with the path in `folder`, and the command.
    fn found(folder: &Path, name: &str, usage: Usage, user: &str) -> Option<String> {
        let accounts = accounts(folder);
        let account = accounts.find(user).expect("a user");
        let barrier = account.barrier(&folder.join(name), usage);
        let barrier = barrier.expect("a look")?;
        let top = folder.display().to_string();
        Some(barrier.describe(&account, &accounts).replace(&top, ""))
    }

    #[test]
    fn the_first_barrier_on_the_way_is_named_with_what_opens_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        let set = |name: &str, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(top.join(name), mode).expect("a mode");
        };
        set("", 0o755);
        fs::create_dir_all(top.join("live/a")).expect("folders");
        fs::create_dir(top.join("archive")).expect("a folder");
        fs::write(top.join("archive/key"), "").expect("a file");
        symlink("../../archive/key", top.join("live/a/key")).expect("a link");
        for name in ["live", "live/a", "archive", "archive/key"] {
            set(name, 0o755);
        }
        let said = |usage, user: &str| found(&top, "live/a/key", usage, user);
        assert_eq!(said(Usage::Read, "ann"), None);
        // A link leads through folders of its own.
        set("archive", 0o700);
        let barrier = "/archive is of own:own with the mode 0700; `chgrp ann /archive && chmod g+x /archive` permits it";
        assert_eq!(said(Usage::Read, "ann").as_deref(), Some(barrier));
        assert_eq!(said(Usage::Read, "root"), None);
        set("archive", 0o711);
        set("archive/key", 0o600);
        let barrier = "/archive/key is of own:own with the mode 0600; \
                       `chgrp ann /archive/key && chmod g+r /archive/key` permits it";
        assert_eq!(said(Usage::Read, "ann").as_deref(), Some(barrier));
        let barrier =
            "/archive/key is of own:own with the mode 0600; `chown ann /archive/key` permits it";
        assert_eq!(said(Usage::Write, "ann").as_deref(), Some(barrier));
        set("archive/key", 0o400);
        if !rustix::process::geteuid().is_root() {
            let barrier = "/archive/key is of own:own with the mode 0400; `chmod u+w /archive/key` permits it";
            assert_eq!(said(Usage::Write, "own").as_deref(), Some(barrier));
        }
    }

    #[test]
    fn paths_are_words_of_a_shell() {
        for (path, word) in [
            ("/srv/a-1_b.c", "/srv/a-1_b.c"),
            ("/srv/a b", "'/srv/a b'"),
            ("/srv/it's;$x", r"'/srv/it'\''s;$x'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }

    #[test]
    fn what_is_absent_is_made_and_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&top, mode).expect("a mode");
        assert!(found(&top, "a/b", Usage::Read, "ann").is_none());
        let barrier = found(&top, "a/b", Usage::Write, "ann").expect("a barrier");
        assert!(barrier.ends_with("`chown ann ` permits it"), "{barrier}");
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&top, mode).expect("a mode");
        assert!(found(&top, "a/b", Usage::Write, "ann").is_none());
    }
}
