//! Folders whose files an application may have sent, and paths beneath them.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{Lookup, OpenFile, Root, Variants};
use levity_wire::sendfile_header;
use rustix::io::Errno;

use super::first;
use crate::disk_client::{self, DiskClient, Opened};
use crate::root::{LiveRoot, SendfileRoot};
use crate::worker::Worker;

/// A path beneath a root.
#[derive(Clone)]
pub struct Beneath {
    /// What it may not leave.
    pub root: Arc<Root>,
    /// The root's path leads nowhere now: nothing is beneath it.
    pub is_gone: bool,
    /// Relative.
    pub path: Vec<u8>,
}

/// What becomes of the name of a file that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// It stays.
    Stays,
    /// It goes when all has been sent, by [`Beneath::remove`].
    GoesLater,
    /// It goes as the file is opened.
    Goes,
}

impl Beneath {
    /// The relative `path` beneath a root as it is now.
    pub fn new(root: &LiveRoot, path: Vec<u8>) -> Self {
        Self {
            is_gone: root.current().is_err(),
            root: root.last(),
            path,
        }
    }

    /// Opens it for this request alone: a lasting file inline if the kernel has it in memory, else by an
    /// engine. One whose name does not stay is opened without following links, and by an engine: in
    /// memory one trip opens it, removes the name and reads the start. Elsewhere the removal is a trip of
    /// its own, as it may wait for a journal, and the client would wait with it. The operator is told if
    /// the name could not be removed.
    ///
    /// # Errors
    /// Those of open, `fstat` and read.
    pub async fn open(
        &self,
        wants_body: bool,
        name: Name,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<Opened> {
        if self.is_gone {
            return Err(Errno::NOENT.into());
        }
        let path = self.c_path()?;
        let lookup = match name {
            Name::Stays => match self.root.open_cached(&path) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Lookup::Fresh,
                file => return file.map(Opened::unread),
            },
            Name::Goes if self.root.file_system().is_memory() => Lookup::Consume,
            Name::Goes | Name::GoesLater => Lookup::NoSymlinks,
        };
        if name != Name::Stays {
            disk.reads_what_was_just_written();
        }
        let none = Variants::default();
        let first = first(wants_body);
        let opened = disk.open(&self.root, path, none, first, lookup).await?;
        if name == Name::Goes && lookup == Lookup::NoSymlinks {
            self.remove(disk.worker(), opened.file.clone());
        }
        if let Some(error) = &opened.not_removed {
            disk_client::tell_not_removed(&String::from_utf8_lossy(&self.path), error);
        }
        Ok(opened)
    }

    /// Removes it, if it still is `file`. Does not wait; a failure is told to the operator.
    pub fn remove(&self, worker: &Worker, file: Arc<OpenFile>) {
        if let Ok(path) = self.c_path() {
            disk_client::remove(worker, self.root.clone(), path, file);
        }
    }

    /// What `error` means here, behind a name that the operator has been shown.
    pub fn explain(&self, error: &io::Error, shown: &[u8]) -> String {
        let root = self.root.path().display();
        if levity_disk::left_root(error) {
            return format!("a symbolic link leaves {root}");
        }
        let path = format!("{root}/{}", self.path.escape_ascii());
        match path == shown.escape_ascii().to_string() {
            true => error.to_string(),
            false => format!("{path}: {error}"),
        }
    }

    fn c_path(&self) -> io::Result<CString> {
        CString::new(self.path.clone()).map_err(|_| Errno::NOENT.into())
    }
}

/// Whether there is nothing of that name.
pub fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR))
}

/// Has a request that begins now wait until it is known what the roots are.
pub async fn attend(roots: &[SendfileRoot], disk: &mut DiskClient<'_>) {
    let now = Instant::now();
    for root in roots {
        disk.attend(&root.root, now).await;
    }
}

/// The roots that an absolute path is beneath, as the operator wrote them or as they really are, and the
/// rest of the path. A path in Latin-1 is tried in UTF-8 as well.
pub fn beneath(roots: &[SendfileRoot], path: &[u8]) -> Vec<Beneath> {
    let mut found = as_it_is(roots, path);
    if let Some(path) = sendfile_header::utf8_of_latin1(path) {
        found.extend(as_it_is(roots, &path));
    }
    found
}

fn as_it_is(roots: &[SendfileRoot], path: &[u8]) -> Vec<Beneath> {
    let path = plain(path);
    let rest = |folder: &Path| {
        let folder = folder.as_os_str().as_bytes();
        let rest = path.strip_prefix(folder.strip_suffix(b"/").unwrap_or(folder))?;
        rest.strip_prefix(b"/").map(<[u8]>::to_vec)
    };
    let found = |root: &SendfileRoot| {
        let path = rest(&root.named).or_else(|| rest(root.root.last().path()))?;
        Some(Beneath::new(&root.root, path))
    };
    roots.iter().filter_map(found).collect()
}

/// Without `.`, `..` and empty segments. Only to find the root: what is opened is held beneath it by the
/// kernel.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let mut plain = Vec::with_capacity(path.len());
    for name in kept {
        plain.push(b'/');
        plain.extend_from_slice(name);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_compared_without_its_detours() {
        for (path, expected) in [
            ("/a//b/./c", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../../a", "/a"),
            ("/a/b/..", "/a"),
            ("/", ""),
        ] {
            assert_eq!(plain(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_path_is_beneath_whole_segments_of_a_root() {
        let tree = tempfile::tempdir().expect("a folder");
        let named = tree.path().to_owned();
        let root = Root::open(&named, levity_disk::Symlinks::Beneath).expect("a root");
        let root = LiveRoot::new(root);
        let roots = [SendfileRoot { named, root }];
        let name = tree.path().as_os_str().as_bytes();
        let rest = |tail: &str| {
            let found = beneath(&roots, &[name, tail.as_bytes()].concat());
            found.into_iter().next().map(|beneath| beneath.path)
        };
        assert_eq!(rest("/a/b"), Some(b"a/b".to_vec()));
        assert_eq!(rest("/x/../a"), Some(b"a".to_vec()));
        assert_eq!(rest("x/a"), None);
        assert_eq!(rest("/../a"), None);
        assert_eq!(rest(""), None);
    }

    #[test]
    fn a_path_in_latin1_may_be_beneath_a_root_in_utf8() {
        let tree = tempfile::tempdir().expect("a folder");
        let named = tree.path().join("ü");
        std::fs::create_dir(&named).expect("a folder");
        let root = Root::open(&named, levity_disk::Symlinks::Beneath).expect("a root");
        let parent = tree.path().as_os_str().as_bytes();
        let root = LiveRoot::new(root);
        let roots = [SendfileRoot { named, root }];
        let found = beneath(&roots, &[parent, b"/\xfc/\xe4"].concat());
        let paths: Vec<_> = found.into_iter().map(|beneath| beneath.path).collect();
        assert_eq!(paths, ["ä".as_bytes()]);
    }
}
