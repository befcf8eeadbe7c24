//! The command after which a user may use a path. Root is asked to run it, so it takes nothing from anybody: what belongs
//! to root is given, and what belongs to others is shared.

use std::path::Path;

use super::acl::{READ, SEARCH, WRITE};
use super::barrier::{Barrier, Place};
use super::{Account, Accounts, ROOT};
use crate::hidden::Hidden;
use crate::swap::{is_in_system, is_shared};

/// What has a user use a file or folder.
#[derive(Debug, PartialEq, Eq)]
enum Remedy {
    /// This command.
    Command(String),
    /// Permission by a command that cannot be shown.
    Permission,
    /// A folder of its own for the file that is made.
    Folder,
    /// Another place: many programs depend on the owner and the mode of this folder.
    Place,
}

impl Barrier {
    /// What it is, and what has `account` use it. Has no command that `hidden` would change: that would be another one.
    #[must_use]
    pub fn describe(&self, account: &Account, accounts: &Accounts, hidden: &Hidden) -> String {
        let absent = match &self.place {
            Place::Above(folder) => format!("there is no {}, and ", folder.display()),
            Place::Path | Place::OnWay | Place::Holder => String::new(),
        };
        let list = match self.permissions.has_list {
            true => " and an access control list",
            false => "",
        };
        let remedy = match self.remedy(account, accounts) {
            Remedy::Command(command) if !hidden.shows(&command) => "permit it".to_owned(),
            Remedy::Command(command) if command.starts_with("setfacl") => {
                format!("`{command}` (of the package acl) permits it")
            }
            Remedy::Command(command) => format!("`{command}` permits it"),
            Remedy::Permission => "permit it".to_owned(),
            Remedy::Folder => "have a folder of its own for it".to_owned(),
            Remedy::Place => "choose another place".to_owned(),
        };
        format!(
            "{absent}{} is of {}:{} with the mode {:04o}{list}; {remedy}",
            self.path.display(),
            accounts.user_name(self.permissions.owner),
            accounts.group_name(self.permissions.group),
            self.permissions.mode,
        )
    }

    fn remedy(&self, account: &Account, accounts: &Accounts) -> Remedy {
        match self.place {
            // A log may lie in a folder with files of others.
            Place::Holder => Remedy::Folder,
            Place::Path | Place::OnWay if self.is_of_system() => Remedy::Place,
            Place::Path | Place::OnWay | Place::Above(_) => {
                let command = self.command(account, accounts);
                command.map_or(Remedy::Permission, Remedy::Command)
            }
        }
    }

    fn is_of_system(&self) -> bool {
        let is_in_system = self.writes() && is_in_system(&self.path);
        self.permissions.is_folder && (is_in_system || is_shared(&self.path))
    }

    fn writes(&self) -> bool {
        self.needed & WRITE != 0
    }

    /// `None` where a path is not UTF-8.
    fn command(&self, account: &Account, accounts: &Accounts) -> Option<String> {
        let (name, path, found) = (&account.name, word(&self.path)?, &self.permissions);
        if let Place::Above(folder) = &self.place {
            return Some(format!("install -d -o {name} {}", word(folder)?));
        }
        let letters = self.letters();
        let is_of_root = found.owner == ROOT && !found.is_special;
        let is_closed = is_of_root && found.group == ROOT;
        Some(match () {
            () if found.owner == account.user => format!("chmod u+{letters} {path}"),
            () if is_of_root && self.writes() => {
                format!("chown {name} {path} && chmod u+{letters} {path}")
            }
            // In place of the group of root: nobody loses anything, and nobody else is let in.
            () if is_closed && accounts.is_private(account.group, account.user) => {
                let own = accounts.group_name(account.group);
                format!("chgrp {own} {path} && chmod g={letters} {path}")
            }
            () => format!("setfacl --modify user:{name}:{letters} {path}"),
        })
    }

    /// What is needed, as chmod(1) has it.
    fn letters(&self) -> String {
        let letters = [(READ, 'r'), (WRITE, 'w'), (SEARCH, 'x')];
        let letters = letters.iter().filter(|(bit, _)| self.needed & bit != 0);
        letters.map(|(_, letter)| letter).collect()
    }
}

/// A path as a word of a shell; `None` if it is not UTF-8, which a message cannot show.
#[must_use]
pub fn word(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    Some(match text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::super::acl::Permissions;
    use super::super::tests::accounts;
    use super::*;

    fn remedy(path: &str, owner: [u32; 2], needed: u32, place: Place, user: &str) -> Remedy {
        let barrier = Barrier {
            path: path.into(),
            permissions: Permissions::closed(owner, needed & SEARCH != 0),
            needed,
            place,
        };
        let accounts = accounts();
        let account = accounts.find(user).expect("a user");
        barrier.remedy(&account, &accounts)
    }

    #[test]
    fn what_belongs_to_root_is_given_and_what_belongs_to_others_is_shared() {
        let all = READ | WRITE | SEARCH;
        let key = "chgrp ann /etc/ssl/private/a.key && chmod g=r /etc/ssl/private/a.key";
        for (path, owner, needed, user, expected) in [
            ("/x/a", [7, 7], WRITE, "ann", "chmod u+w /x/a"),
            (
                "/x/a",
                [0, 10],
                WRITE,
                "ann",
                "chown ann /x/a && chmod u+w /x/a",
            ),
            (
                "/x/a",
                [0, 0],
                READ,
                "ann",
                "chgrp ann /x/a && chmod g=r /x/a",
            ),
            (
                "/x/a",
                [0, 0],
                SEARCH,
                "ann",
                "chgrp ann /x/a && chmod g=x /x/a",
            ),
            // The group of the user has others too.
            (
                "/x/a",
                [0, 0],
                READ,
                "nobody",
                "setfacl --modify user:nobody:r /x/a",
            ),
            (
                "/x/a",
                [8, 8],
                all,
                "ann",
                "setfacl --modify user:ann:rwx /x/a",
            ),
            (
                "/x/a",
                [0, 10],
                READ,
                "ann",
                "setfacl --modify user:ann:r /x/a",
            ),
            (
                "/home/bob",
                [8, 8],
                SEARCH,
                "ann",
                "setfacl --modify user:ann:x /home/bob",
            ),
            (
                "/opt/x/up",
                [0, 0],
                WRITE,
                "ann",
                "chown ann /opt/x/up && chmod u+w /opt/x/up",
            ),
            // A key of a package, and a folder on the way to it.
            ("/etc/ssl/private/a.key", [0, 0], READ, "ann", key),
            (
                "/etc/ssl/private",
                [0, 10],
                SEARCH,
                "ann",
                "setfacl --modify user:ann:x /etc/ssl/private",
            ),
        ] {
            let found = remedy(path, owner, needed, Place::Path, user);
            let expected = Remedy::Command(expected.to_owned());
            assert_eq!(found, expected, "{path} {owner:?} {needed} {user}");
        }
    }

    #[test]
    fn no_command_changes_a_folder_that_many_programs_use() {
        for path in [
            "/", "/etc", "/srv", "/mnt", "/media", "/opt", "/root", "/var/www", "/tmp",
        ] {
            for needed in [SEARCH, WRITE | SEARCH] {
                let found = remedy(path, [0, 0], needed, Place::OnWay, "ann");
                assert_eq!(found, Remedy::Place, "{path} {needed}");
            }
        }
        for path in ["/run/php", "/etc/x", "/usr/share/x"] {
            let found = remedy(path, [0, 0], WRITE | SEARCH, Place::Path, "ann");
            assert_eq!(found, Remedy::Place, "{path}");
        }
    }

    #[test]
    fn a_folder_that_is_absent_is_made() {
        let needed = WRITE | SEARCH;
        let found = remedy(
            "/srv",
            [0, 0],
            needed,
            Place::Above("/srv/up".into()),
            "ann",
        );
        let command = "install -d -o ann /srv/up".to_owned();
        assert_eq!(found, Remedy::Command(command));
        let log = remedy("/data", [0, 0], needed, Place::Holder, "ann");
        assert_eq!(log, Remedy::Folder);
    }

    #[test]
    fn paths_are_words_of_a_shell() {
        for (path, expected) in [
            ("/srv/a-1_b.c", "/srv/a-1_b.c"),
            ("/srv/a b", "'/srv/a b'"),
            ("/srv/it's;$x", r"'/srv/it'\''s;$x'"),
        ] {
            assert_eq!(word(Path::new(path)).as_deref(), Some(expected));
        }
        let bytes = OsStr::from_bytes(b"/srv/\xff");
        assert_eq!(word(Path::new(bytes)), None);
    }
}
