//! Folders in whose place a deployment puts others while the server runs, by renaming or by a link.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

/// The maximum number of symbolic links on the way to a name: that of the kernel.
pub const LINKS_MAX: usize = 40;

/// Folders of the system (hier(7)), with those in them: no swap of a folder has them opened.
const SYSTEM_TREES: [&str; 11] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr",
];

/// Folders that many programs share, without those in them.
const SHARED_FOLDERS: [&str; 11] = [
    "/",
    "/home",
    "/root",
    "/run",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/spool",
    "/var/tmp",
];

/// The folders that hold the names on the way to the folder `path`: its own, and for each link that of the link and that
/// of its target. Without links, and without folders of the system, as far as they are there. Blocks.
#[must_use]
pub fn holders(path: &Path) -> Vec<PathBuf> {
    let mut names = Names::default();
    names.find(path);
    let names = names.folders.iter();
    let found = names.filter_map(|path| fs::canonicalize(path).ok());
    let mut found: Vec<_> = found.filter(|path| !is_of_system(path)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The folders through which the kernel goes on the way to `path`, the outer ones first, also those on the way to targets of
/// links. Without links, as far as they are there: the nearest one above what is not. Blocks.
pub(crate) fn folders_on_way(path: &Path) -> Vec<PathBuf> {
    let mut names = Names::default();
    names.find(path);
    let nearest = |path: &PathBuf| {
        let mut above = path.ancestors();
        above.find_map(|path| fs::canonicalize(path).ok())
    };
    let found = names.folders.iter().filter_map(nearest);
    let all = found.flat_map(|path| path.ancestors().map(Path::to_owned).collect::<Vec<_>>());
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// `path`, and the names to which the links lead that it is itself, one after the other. Under the last one a file is made if
/// there is none. At most [`LINKS_MAX`] of them. Blocks.
#[must_use]
pub fn names_of(path: &Path) -> Vec<PathBuf> {
    let next = |name: &PathBuf| Some(name.parent()?.join(fs::read_link(name).ok()?));
    let names = iter::successors(Some(path.to_owned()), next);
    names.take(LINKS_MAX).collect()
}

#[derive(Default)]
struct Names {
    folders: Vec<PathBuf>,
    links: usize,
}

impl Names {
    fn find(&mut self, path: &Path) {
        self.folders.extend(path.parent().map(Path::to_owned));
        for name in path.ancestors() {
            let (Some(folder), Ok(target)) = (name.parent(), fs::read_link(name)) else {
                continue;
            };
            self.links += 1;
            if self.links > LINKS_MAX {
                return;
            }
            self.folders.push(folder.to_owned());
            self.find(&folder.join(target));
        }
    }
}

/// Whether a path without links is that of a folder of the system, or of the home of a user.
fn is_of_system(path: &Path) -> bool {
    let mut shared = SHARED_FOLDERS.iter();
    SYSTEM_TREES.iter().any(|tree| path.starts_with(tree))
        || shared.any(|folder| path == Path::new(folder))
        || path.parent() == Some("/home".as_ref())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_of_the_system_are_not_opened_for_a_swap() {
        for path in [
            "/",
            "/etc",
            "/etc/levity",
            "/usr/local/www",
            "/home",
            "/home/ann",
            "/var/lib",
            "/tmp",
        ] {
            assert!(is_of_system(path.as_ref()), "{path}");
        }
        for path in [
            "/srv",
            "/srv/www",
            "/home/ann/www",
            "/var/lib/levity",
            "/var/www",
            "/mnt",
            "/tmp/x",
        ] {
            assert!(!is_of_system(path.as_ref()), "{path}");
        }
    }

    #[test]
    fn the_folders_of_all_names_on_the_way_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        fs::create_dir_all(top.join("data/releases/1/files")).expect("folders");
        fs::create_dir(top.join("site")).expect("a folder");
        symlink(top.join("data/releases/1"), top.join("site/current")).expect("a link");
        let names = ["data/releases", "data/releases/1", "site"];
        let found = holders(&top.join("site/current/files"));
        assert_eq!(found, names.map(|name| top.join(name)));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        symlink("round", top.join("round")).expect("a link");
        assert_eq!(holders(&top.join("round")), [top]);
    }
}
