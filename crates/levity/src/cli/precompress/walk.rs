//! The walk of `levity precompress`: finds the files to compress.

use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_config::{MediaTypes, is_hidden};
use levity_disk::{Kind, Meta, Secrets};
use levity_wire::mime;

use super::folder::Folder;
use super::temporary;

/// The depth to which folders are walked: each level keeps a descriptor open.
const DEPTH_MAX: usize = 256;

/// Where a file to compress is.
#[derive(Debug, Clone)]
pub(super) struct Original {
    pub folder: Arc<Folder>,
    pub name: CString,
}

/// What a walk comes upon.
#[derive(Debug)]
pub(super) enum Found {
    /// A regular file of one of the media types.
    File(Original),
    /// A file that nobody gets from a server, in no coding either.
    Secret(PathBuf),
    /// What cannot be read, and why.
    Unreadable(PathBuf, io::Error),
}

/// A walk through folders.
pub(super) struct Walk<'w, F> {
    /// The media types to find.
    pub types: &'w [MediaTypes],
    /// The files that get no variants.
    pub secrets: &'w Arc<Secrets>,
    /// Whether temporary files that an earlier run left behind are removed.
    pub cleans: bool,
    /// Is called for each find.
    pub found: F,
}

impl<F: FnMut(Found)> Walk<'_, F> {
    /// Walks through the folder at `path` and all beneath. Blocks.
    pub fn run(&mut self, path: &Path) {
        match Folder::open(path) {
            Ok(folder) => self.folder(&Arc::new(folder), 0),
            Err(error) => (self.found)(Found::Unreadable(path.to_owned(), error)),
        }
    }

    fn folder(&mut self, folder: &Arc<Folder>, depth: usize) {
        match folder.names() {
            Ok(names) => names
                .into_iter()
                .for_each(|name| self.entry(folder, name, depth)),
            Err(error) => (self.found)(Found::Unreadable(folder.own_path().to_owned(), error)),
        }
    }

    fn entry(&mut self, folder: &Arc<Folder>, name: CString, depth: usize) {
        if self.cleans && temporary::is_temporary(&name) {
            temporary::remove_stale(folder, &name);
        }
        if is_hidden(name.as_bytes()) {
            return;
        }
        let path = folder.path(&name);
        match folder.meta(&name) {
            Ok(Some(meta)) => match meta.kind {
                Kind::Directory => self.child(folder, &name, depth + 1),
                Kind::Regular if self.includes(&name) => {
                    let found = self.file(folder, name, &meta);
                    (self.found)(found);
                }
                Kind::Regular | Kind::Other => {}
            },
            Ok(None) => {}
            Err(error) => (self.found)(Found::Unreadable(path, error)),
        }
    }

    fn file(&self, folder: &Arc<Folder>, name: CString, meta: &Meta) -> Found {
        let path = folder.path(&name);
        let folder = folder.clone();
        match self.secrets.has(meta) {
            Ok(false) => Found::File(Original { folder, name }),
            Ok(true) => Found::Secret(path),
            Err(error) => Found::Unreadable(path, error),
        }
    }

    fn child(&mut self, folder: &Folder, name: &CStr, depth: usize) {
        let child = match depth {
            0..=DEPTH_MAX => folder.child(name),
            _ => Err(io::Error::other(format!(
                "it is more than {DEPTH_MAX} folders deep"
            ))),
        };
        match child {
            Ok(child) => self.folder(&Arc::new(child), depth),
            Err(error) => (self.found)(Found::Unreadable(folder.path(name), error)),
        }
    }

    /// Compressed files have media types of their own, so a variant gets no variants.
    fn includes(&self, name: &CStr) -> bool {
        let content_type = mime::of(name.to_bytes()).as_bytes();
        MediaTypes::any_include(self.types, content_type)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use levity_config::LocationOptions;
    use levity_wire::encoding::Coding;

    use super::*;
    use crate::files::codings::suffix;

    fn walk(path: &Path) -> (Vec<String>, Vec<String>) {
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        let types = LocationOptions::default().compress_types;
        let relative = |file: &Path| {
            let file = file.strip_prefix(path).expect("it is beneath");
            file.to_str().expect("UTF-8").to_owned()
        };
        let found = |found| match found {
            Found::File(Original { folder, name }) => files.push(relative(&folder.path(&name))),
            Found::Secret(path) => errors.push(format!("{}: secret", relative(&path))),
            Found::Unreadable(path, error) => errors.push(format!("{}: {error}", relative(&path))),
        };
        let mut walk = Walk {
            types: &types,
            secrets: &Arc::default(),
            cleans: true,
            found,
        };
        walk.run(path);
        (files, errors)
    }

    #[test]
    fn finds_what_is_served_and_compresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["b", ".hidden", ".well-known", "b/empty"] {
            fs::create_dir(at(name)).expect("mkdir");
        }
        for name in [
            "a.js",
            "b/x.html",
            "b/photo.jpg",
            "b/archive.zip",
            ".hidden/a.js",
            ".a.js",
            ".well-known/a.json",
            "unknown",
            "C.CSS",
        ] {
            fs::write(at(name), "text").expect("write");
        }
        symlink("a.js", at("link.js")).expect("symlink");
        symlink("b", at("to-b")).expect("symlink");
        symlink("none", at("to-nothing.js")).expect("symlink");
        let found = [".well-known/a.json", "C.CSS", "a.js", "b/x.html"];
        assert_eq!(
            walk(folder.path()),
            (found.map(str::to_owned).to_vec(), vec![])
        );
    }

    #[test]
    fn variants_get_no_variants() {
        let types = LocationOptions::default().compress_types;
        let walk = Walk {
            types: &types,
            secrets: &Arc::default(),
            cleans: false,
            found: |_| {},
        };
        for coding in Coding::ALL {
            let name = [&b"a.js"[..], suffix(coding)].concat();
            assert!(!walk.includes(&CString::new(name).expect("no NUL")));
        }
        assert!(walk.includes(c"a.js"));
    }

    #[test]
    fn what_is_no_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.js");
        fs::write(&file, "text").expect("write");
        for path in [file, folder.path().join("none")] {
            let (files, errors) = walk(&path);
            assert_eq!((files.len(), errors.len()), (0, 1));
        }
    }

    #[test]
    fn folders_that_are_too_deep_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut path = folder.path().to_owned();
        for _ in 0..DEPTH_MAX {
            path.push("d");
        }
        fs::create_dir_all(path.join("e")).expect("mkdir");
        fs::write(path.join("a.js"), "text").expect("write");
        let (files, errors) = walk(folder.path());
        assert_eq!((files.len(), errors.len()), (1, 1));
        assert!(
            errors[0].ends_with("/d/e: it is more than 256 folders deep"),
            "{errors:?}"
        );
    }
}
