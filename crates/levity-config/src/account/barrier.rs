//! What keeps a user from using a path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::acl::{Permissions, READ, SEARCH, WRITE};
use super::{Account, Accounts};
use crate::swap::{folders_on_way, names_of};

/// How a server uses a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// It opens a file, or what is in a folder. What is absent is not used.
    Read,
    /// It lists a folder. What is absent is not used.
    List,
    /// It makes, removes and lists files in a folder, which is made if it is absent.
    Fill,
    /// It removes files from a folder. What is absent is not used.
    Empty,
    /// It writes to a file, which is made if it is absent.
    Append,
    /// It makes a socket at the path, and removes what is left there of another one.
    Bind,
    /// It connects to a socket. What is absent is not used.
    Connect,
}

/// A file or folder whose permissions forbid a use.
#[derive(Debug)]
pub struct Barrier {
    /// It, without links.
    path: PathBuf,
    permissions: Permissions,
    /// The permissions that the use needs.
    needed: u32,
    /// The folder in it that is absent, and would have to be made first.
    absent: Option<PathBuf>,
}

impl Account {
    /// The first file or folder on the way to the absolute `path` whose permissions keep this user from using it so; `None`
    /// if nothing does. By owners, groups, modes and access control lists of Linux (acl(5)), not by those of NFS 4. Blocks.
    ///
    /// # Errors
    /// Where this process cannot look.
    pub fn barrier(&self, path: &Path, usage: Usage) -> io::Result<Option<Barrier>> {
        let names = names_of(path);
        // What a process has as `/dev/stdout` is its own.
        if names.iter().any(|name| name.starts_with("/proc")) {
            return Ok(None);
        }
        for folder in folders_on_way(path) {
            if let Some(barrier) = self.barrier_at(&folder, SEARCH)? {
                return Ok(Some(barrier));
            }
        }
        match usage {
            Usage::Fill => self.barrier_of_folder(path, READ | WRITE | SEARCH),
            Usage::Bind => self.barrier_of_holder(path),
            Usage::Append if is_absent(path) => {
                self.barrier_of_holder(names.last().map_or(path, PathBuf::as_path))
            }
            Usage::Append => self.barrier_at(path, WRITE),
            _ if is_absent(path) => Ok(None),
            Usage::Connect => self.barrier_at(path, WRITE),
            Usage::Read if !path.is_dir() => self.barrier_at(path, READ),
            Usage::Read => self.barrier_at(path, SEARCH),
            Usage::List => self.barrier_at(path, READ | SEARCH),
            Usage::Empty => self.barrier_at(path, WRITE | SEARCH),
        }
    }

    /// What keeps it from making `path` in its folder.
    fn barrier_of_holder(&self, path: &Path) -> io::Result<Option<Barrier>> {
        let holder = path.parent().unwrap_or(path);
        self.barrier_of_folder(holder, WRITE | SEARCH)
    }

    /// What keeps it from using `folder`, or from making that.
    fn barrier_of_folder(&self, folder: &Path, needed: u32) -> io::Result<Option<Barrier>> {
        match folder.ancestors().find(|path| !is_absent(path)) {
            Some(there) if there != folder => {
                let barrier = self.barrier_at(there, WRITE | SEARCH)?;
                let absent = Some(folder.to_owned());
                Ok(barrier.map(|barrier| Barrier { absent, ..barrier }))
            }
            _ => self.barrier_at(folder, needed),
        }
    }

    fn barrier_at(&self, path: &Path, needed: u32) -> io::Result<Option<Barrier>> {
        let path = fs::canonicalize(path)?;
        let permissions = Permissions::read(&path)?;
        let is_permitted = permissions.permit(self, needed);
        Ok((!is_permitted).then_some(Barrier {
            path,
            permissions,
            needed,
            absent: None,
        }))
    }
}

fn is_absent(path: &Path) -> bool {
    let error = fs::metadata(path).err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Barrier {
    /// What it is, and what is needed there. Not how that is permitted: which owner, group or list is right, only an
    /// administrator knows, and a command for root that is wrong opens a key or takes a folder from others.
    #[must_use]
    pub fn describe(&self, accounts: &Accounts) -> String {
        let absent = self.absent.as_ref();
        let absent = absent.map(|folder| format!("there is no {}, and ", folder.display()));
        let list = match self.permissions.has_list {
            true => " and an access control list",
            false => "",
        };
        let letters = [(READ, 'r'), (WRITE, 'w'), (SEARCH, 'x')];
        let letters = letters.iter().filter(|(bit, _)| self.needed & bit != 0);
        let letters: String = letters.map(|(_, letter)| letter).collect();
        format!(
            "{}{} is of {}:{} with the mode {:04o}{list}, and `{letters}` is needed there",
            absent.unwrap_or_default(),
            self.path.display(),
            accounts.user_name(self.permissions.owner),
            accounts.group_name(self.permissions.group),
            self.permissions.mode,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::super::tests::accounts;
    use super::*;

    struct Tree {
        folder: tempfile::TempDir,
        top: PathBuf,
    }

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let top = fs::canonicalize(folder.path()).expect("a path");
            let tree = Self { folder, top };
            tree.set("", 0o755);
            tree
        }

        fn set(&self, name: &str, mode: u32) {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(self.folder.path().join(name), mode).expect("a mode");
        }

        /// What is said of the barrier for a user that has nothing here.
        fn said(&self, name: &str, usage: Usage, user: &str) -> String {
            let accounts = accounts();
            let account = accounts.find(user).expect("a user");
            let barrier = account.barrier(&self.top.join(name), usage);
            let barrier = barrier.expect("a look");
            let said = barrier.map(|barrier| barrier.describe(&accounts));
            let meta = fs::metadata(&self.top).expect("a folder");
            let owner = accounts.user_name(meta.uid());
            let owner = format!("{owner}:{}", accounts.group_name(meta.gid()));
            let said = said.unwrap_or_default();
            let top = self.top.display().to_string();
            said.replace(&top, "").replace(&owner, "OWNER")
        }
    }

    #[test]
    fn the_first_barrier_on_the_way_is_described() {
        let tree = Tree::new();
        fs::create_dir_all(tree.top.join("live/a")).expect("folders");
        fs::create_dir(tree.top.join("archive")).expect("a folder");
        fs::write(tree.top.join("archive/key"), "").expect("a file");
        symlink("../../archive/key", tree.top.join("live/a/key")).expect("a link");
        for name in ["live", "live/a", "archive", "archive/key"] {
            tree.set(name, 0o755);
        }
        let said = |usage, user: &str| tree.said("live/a/key", usage, user);
        assert_eq!(said(Usage::Read, "ann"), "");
        // A link leads through folders of its own.
        tree.set("archive", 0o700);
        let barrier = "/archive is of OWNER with the mode 0700, and `x` is needed there";
        assert_eq!(said(Usage::Read, "ann"), barrier);
        assert_eq!(said(Usage::Read, "root"), "");
        tree.set("archive", 0o711);
        tree.set("archive/key", 0o600);
        let key = |needed: &str| {
            format!("/archive/key is of OWNER with the mode 0600, and `{needed}` is needed there")
        };
        assert_eq!(said(Usage::Read, "ann"), key("r"));
        assert_eq!(said(Usage::Append, "ann"), key("w"));
        assert_eq!(said(Usage::Connect, "ann"), key("w"));
        let folder = "/live/a is of OWNER with the mode 0755, and `wx` is needed there";
        assert_eq!(said(Usage::Bind, "ann"), folder);
        for (usage, needed) in [
            (Usage::List, "rx"),
            (Usage::Fill, "rwx"),
            (Usage::Empty, "wx"),
        ] {
            let expected =
                format!("/archive is of OWNER with the mode 0711, and `{needed}` is needed there");
            assert_eq!(tree.said("archive", usage, "ann"), expected);
        }
    }

    #[test]
    fn what_is_absent_is_made_and_not_read() {
        let tree = Tree::new();
        let said = |name: &str, usage| tree.said(name, usage, "ann");
        let top = " is of OWNER with the mode 0755, and `wx` is needed there";
        for usage in [Usage::Read, Usage::List, Usage::Empty, Usage::Connect] {
            assert_eq!(said("a/b", usage), "");
        }
        let above = |folder: &str| format!("there is no {folder}, and {top}");
        assert_eq!(said("a/b", Usage::Fill), above("/a/b"));
        assert_eq!(said("a/b", Usage::Append), above("/a"));
        assert_eq!(said("a/b", Usage::Bind), above("/a"));
        assert_eq!(said("b", Usage::Append), top);
        tree.set("", 0o777);
        for usage in [Usage::Fill, Usage::Append, Usage::Bind] {
            assert_eq!(said("a/b", usage), "");
        }
    }

    /// A closed folder above one that is absent closes what would be made there as well.
    #[test]
    fn folders_above_an_absent_one_are_on_the_way() {
        let tree = Tree::new();
        fs::create_dir_all(tree.top.join("closed/open")).expect("folders");
        tree.set("closed", 0o700);
        tree.set("closed/open", 0o777);
        let said = tree.said("closed/open/a/b", Usage::Fill, "ann");
        assert!(said.starts_with("/closed is of "), "{said}");
    }

    #[test]
    fn a_log_is_made_where_a_link_leads() {
        let tree = Tree::new();
        for name in ["links", "logs"] {
            fs::create_dir(tree.top.join(name)).expect("a folder");
        }
        symlink("../logs/a", tree.top.join("links/a")).expect("a link");
        symlink("/dev/stdout", tree.top.join("links/out")).expect("a link");
        tree.set("links", 0o755);
        tree.set("logs", 0o777);
        assert_eq!(tree.said("links/a", Usage::Append, "ann"), "");
        assert_eq!(tree.said("links/out", Usage::Append, "ann"), "");
        tree.set("links", 0o777);
        tree.set("logs", 0o755);
        let said = tree.said("links/a", Usage::Append, "ann");
        assert!(said.starts_with("/logs is of "), "{said}");
    }
}
