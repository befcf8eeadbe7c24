//! Folders whose files applications may delegate, and paths below them.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{Lookup, OpenFile, Opened, Root, Variants};
use levity_wire::sendfile_header;
use rustix::io::Errno;

use super::first;
use crate::files::disk_client::{self, DiskClient};
use crate::files::root::{LiveRoot, SendfileRoot};
use crate::loop_core::LoopCore;

/// A path below a root.
#[derive(Clone)]
pub struct Beneath {
    /// The folder that contains it.
    pub root: Arc<Root>,
    /// The root's path does not exist at present, so nothing is below it.
    pub is_gone: bool,
    /// Relative.
    pub path: Vec<u8>,
}

/// What happens to the name of a file that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The name is kept.
    Keep,
    /// [`Beneath::remove`] removes the name after the file has been sent.
    RemoveLater,
    /// The open removes the name.
    Remove,
}

impl Beneath {
    /// A relative `path` below the current folder of a root.
    pub fn new(root: &LiveRoot, path: Vec<u8>) -> Self {
        Self {
            is_gone: root.current().is_err(),
            root: root.last(),
            path,
        }
    }

    /// Opens the file, bypassing the caches. A file whose name is kept is opened inline if the kernel has it
    /// in memory, otherwise by an engine. A file whose name is removed is opened by an engine without
    /// following links; on a file system in memory one trip opens it, removes the name and reads the start.
    /// On others the removal is a trip of its own, because it may wait for a journal, and the client would
    /// wait too. A name that cannot be removed is logged.
    ///
    /// # Errors
    /// As open, `fstat` and read.
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
            Name::Keep if !disk.may_open_inline() => Lookup::Fresh,
            Name::Keep => match self.root.open_cached(&path) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Lookup::Fresh,
                file => return file.map(Opened::unread),
            },
            Name::Remove if self.root.file_system().is_memory() => Lookup::Consume,
            Name::Remove | Name::RemoveLater => Lookup::NoSymlinks,
        };
        if name != Name::Keep {
            disk.use_page_cache();
        }
        let none = Variants::default();
        let first = first(wants_body);
        let opened = disk.open(&self.root, path, none, first, lookup).await?;
        if name == Name::Remove && lookup == Lookup::NoSymlinks {
            self.remove(disk.core(), opened.file.clone());
        }
        if let Some(error) = &opened.not_removed {
            disk_client::log_not_removed(&String::from_utf8_lossy(&self.path), error);
        }
        Ok(opened)
    }

    /// Removes the name, if it still belongs to `file`. Does not wait; a failure is logged.
    pub fn remove(&self, core: &LoopCore, file: Arc<OpenFile>) {
        if let Ok(path) = self.c_path() {
            disk_client::remove(core, self.root.clone(), path, file);
        }
    }

    /// Describes `error` in a log line that contains the path `shown` already.
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

/// Whether the file does not exist.
pub fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR))
}

/// Waits until the current folders of the roots are known.
pub async fn ensure_checked(roots: &[SendfileRoot], disk: &mut DiskClient<'_>) {
    let now = Instant::now();
    for root in roots {
        disk.ensure_checked(&root.root, now).await;
    }
}

/// The roots that contain an absolute path, in their configured or in their real spelling, with the rest of
/// the path. A path in Latin-1 is tried as UTF-8 too.
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

/// Removes `.`, `..` and empty segments. This only selects the root: the kernel enforces that an open stays
/// below it.
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
