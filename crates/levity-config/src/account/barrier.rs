//! What keeps a user from using a path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Account;
use super::acl::{Permissions, READ, SEARCH, WRITE};
use crate::swap::folders_on_way;

/// How a server uses a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// It opens a file, or what is in a folder. What is absent is not used.
    Read,
    /// It makes and removes files in a folder, which is made if it is absent.
    Fill,
    /// It removes files from a folder. What is absent is not used.
    Empty,
    /// It writes to a file, which is made if it is absent.
    Append,
    /// It makes a socket at the path, and removes what is left there of another one.
    Bind,
}

/// A file or folder whose permissions forbid a use.
#[derive(Debug)]
pub struct Barrier {
    /// It, without links.
    pub(super) path: PathBuf,
    pub(super) permissions: Permissions,
    /// The permissions that the use needs.
    pub(super) needed: u32,
    pub(super) place: Place,
}

/// What the file or folder of a barrier is to the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The path itself.
    Path,
    /// A folder on the way to it.
    OnWay,
    /// The folder in which the file is made.
    Holder,
    /// The folder in which this one would have to be made first.
    Above(PathBuf),
}

impl Account {
    /// The first file or folder on the way to the absolute `path` whose permissions keep this user from using it so; `None`
    /// if nothing does. By owners, groups, modes and access control lists of Linux (acl(5)), not by those of NFS 4. Blocks.
    ///
    /// # Errors
    /// Where this process cannot look.
    pub fn barrier(&self, path: &Path, usage: Usage) -> io::Result<Option<Barrier>> {
        for folder in folders_on_way(path) {
            if let Some(barrier) = self.barrier_at(&folder, SEARCH, Place::OnWay)? {
                return Ok(Some(barrier));
            }
        }
        let holder = path.parent().unwrap_or(path);
        match usage {
            Usage::Read | Usage::Empty if is_absent(path) => Ok(None),
            Usage::Read => self.barrier_of_reading(path),
            Usage::Append if !is_absent(path) => self.barrier_at(path, WRITE, Place::Path),
            Usage::Fill | Usage::Empty => self.barrier_of_folder(path, Place::Path),
            Usage::Append | Usage::Bind => self.barrier_of_folder(holder, Place::Holder),
        }
    }

    fn barrier_of_reading(&self, path: &Path) -> io::Result<Option<Barrier>> {
        let needed = match path.is_dir() {
            true => SEARCH,
            false => READ,
        };
        self.barrier_at(path, needed, Place::Path)
    }

    /// What keeps it from making files in `folder`, or from making that.
    fn barrier_of_folder(&self, folder: &Path, place: Place) -> io::Result<Option<Barrier>> {
        match folder.ancestors().find(|path| !is_absent(path)) {
            Some(there) if there != folder => {
                self.barrier_at(there, WRITE | SEARCH, Place::Above(folder.to_owned()))
            }
            _ => self.barrier_at(folder, WRITE | SEARCH, place),
        }
    }

    fn barrier_at(&self, path: &Path, needed: u32, place: Place) -> io::Result<Option<Barrier>> {
        let path = fs::canonicalize(path)?;
        let permissions = Permissions::read(&path)?;
        let is_permitted = permissions.permit(self, needed);
        Ok((!is_permitted).then_some(Barrier {
            path,
            permissions,
            needed,
            place,
        }))
    }
}

fn is_absent(path: &Path) -> bool {
    let error = fs::metadata(path).err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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

        /// Path and place of the barrier for a user that has nothing here, and what it needs.
        fn barrier(&self, name: &str, usage: Usage, user: &str) -> Option<(String, Place, u32)> {
            let account = accounts().find(user).expect("a user");
            let barrier = account
                .barrier(&self.top.join(name), usage)
                .expect("a look")?;
            let path = barrier.path.strip_prefix(&self.top).expect("beneath");
            let path = path.display().to_string();
            Some((path, barrier.place, barrier.needed))
        }
    }

    #[test]
    fn the_first_barrier_on_the_way_is_found() {
        let tree = Tree::new();
        fs::create_dir_all(tree.top.join("live/a")).expect("folders");
        fs::create_dir(tree.top.join("archive")).expect("a folder");
        fs::write(tree.top.join("archive/key"), "").expect("a file");
        symlink("../../archive/key", tree.top.join("live/a/key")).expect("a link");
        for name in ["live", "live/a", "archive", "archive/key"] {
            tree.set(name, 0o755);
        }
        let found = |usage, user: &str| tree.barrier("live/a/key", usage, user);
        let at = |path: &str, place, needed| Some((path.to_owned(), place, needed));
        assert_eq!(found(Usage::Read, "ann"), None);
        // A link leads through folders of its own.
        tree.set("archive", 0o700);
        assert_eq!(
            found(Usage::Read, "ann"),
            at("archive", Place::OnWay, SEARCH)
        );
        assert_eq!(found(Usage::Read, "root"), None);
        tree.set("archive", 0o711);
        tree.set("archive/key", 0o600);
        let key = |needed| at("archive/key", Place::Path, needed);
        assert_eq!(found(Usage::Read, "ann"), key(READ));
        assert_eq!(found(Usage::Append, "ann"), key(WRITE));
        let folder = at("live/a", Place::Holder, WRITE | SEARCH);
        assert_eq!(found(Usage::Bind, "ann"), folder);
        let archive = tree.barrier("archive", Usage::Fill, "ann");
        assert_eq!(archive, at("archive", Place::Path, WRITE | SEARCH));
    }

    #[test]
    fn what_is_absent_is_made_and_not_read() {
        let tree = Tree::new();
        let found = |name: &str, usage| tree.barrier(name, usage, "ann");
        let above = |folder: &str| {
            let place = Place::Above(tree.top.join(folder));
            Some((String::new(), place, WRITE | SEARCH))
        };
        assert_eq!(found("a/b", Usage::Read), None);
        assert_eq!(found("a/b", Usage::Empty), None);
        assert_eq!(found("a/b", Usage::Fill), above("a/b"));
        assert_eq!(found("a/b", Usage::Append), above("a"));
        assert_eq!(found("a/b", Usage::Bind), above("a"));
        let holder = Some((String::new(), Place::Holder, WRITE | SEARCH));
        assert_eq!(found("b", Usage::Append), holder);
        tree.set("", 0o777);
        for usage in [Usage::Fill, Usage::Append, Usage::Bind] {
            assert_eq!(found("a/b", usage), None);
        }
    }

    /// A closed folder above one that is absent closes what would be made there as well.
    #[test]
    fn folders_above_an_absent_one_are_on_the_way() {
        let tree = Tree::new();
        fs::create_dir_all(tree.top.join("closed/open")).expect("folders");
        tree.set("closed", 0o700);
        tree.set("closed/open", 0o777);
        let found = tree.barrier("closed/open/a/b", Usage::Fill, "ann");
        assert_eq!(found, Some(("closed".to_owned(), Place::OnWay, SEARCH)));
    }
}
