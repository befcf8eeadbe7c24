//! The folders that locations and upstreams serve, each opened and resolved once.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_config::{AbsentRoots, Symlinks};
use levity_disk::{Root, Secrets, patiently};

use crate::files::root::LiveRoot;

/// The roots of a configuration. Many locations have the same.
#[derive(Default)]
pub struct Roots {
    /// By path and symlink policy.
    open: HashMap<(PathBuf, bool), Arc<LiveRoot>>,
    resolved: HashMap<PathBuf, Option<Arc<Path>>>,
    /// Those of the configuration before: at a reload, one that does not respond stays as it was.
    before: Vec<Arc<LiveRoot>>,
    /// What is in none of them.
    secrets: Arc<Secrets>,
    /// Those that may come later.
    may_be_absent: AbsentRoots,
    /// Those that could not be opened, and may come later.
    absent: BTreeSet<PathBuf>,
}

impl Roots {
    /// None yet, after the roots `before` a reload. `secrets` will be in none of them.
    pub fn after(
        before: &[Arc<LiveRoot>],
        secrets: Arc<Secrets>,
        may_be_absent: AbsentRoots,
    ) -> Self {
        Self {
            before: before.to_vec(),
            secrets,
            may_be_absent,
            ..Self::default()
        }
    }

    /// Opens the root at `path` unless it is open. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When it cannot be opened; the error names it. `TimedOut` when it does not respond, or may come later.
    pub fn open(&mut self, path: &Path, symlinks: Symlinks) -> io::Result<Arc<LiveRoot>> {
        let follow = symlinks == Symlinks::Follow;
        if let Some(root) = self.open.get(&(path.to_owned(), follow)) {
            return Ok(root.clone());
        }
        let policy = match symlinks {
            Symlinks::Beneath => levity_disk::Symlinks::Beneath,
            Symlinks::Follow => levity_disk::Symlinks::Follow,
        };
        let secrets = self.secrets.clone();
        let open = move |path: &Path| Root::open_without(secrets, path, policy);
        let opened = patiently(path, open);
        let root = match opened.and_then(|opened| opened) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.kept(path, policy).ok_or(error)
            }
            opened => opened,
        };
        let root = root.map_err(|error| self.failed(path, &error))?;
        let root = LiveRoot::new(root);
        self.open.insert((path.to_owned(), follow), root.clone());
        Ok(root)
    }

    fn failed(&mut self, path: &Path, error: &io::Error) -> io::Error {
        use io::ErrorKind::{NotFound, PermissionDenied, TimedOut};
        let is_absent = matches!(error.kind(), NotFound | PermissionDenied);
        let kind = match is_absent && self.may_be_absent.permit(path) {
            true => {
                self.absent.insert(path.to_owned());
                TimedOut
            }
            false => error.kind(),
        };
        io::Error::new(kind, format!("{}: {error}", path.display()))
    }

    fn kept(&self, path: &Path, symlinks: levity_disk::Symlinks) -> Option<Arc<Root>> {
        let mut before = self.before.iter().map(|live| live.last());
        before.find(|root| root.named() == path && root.symlinks() == symlinks)
    }

    /// `path` without links; `None` if it cannot be resolved, which is an error when the root is opened. Blocks.
    pub fn resolved(&mut self, path: &Path) -> Option<Arc<Path>> {
        if let Some(known) = self.resolved.get(path) {
            return known.clone();
        }
        let resolved = patiently(path, |path| fs::canonicalize(path));
        let resolved = resolved.and_then(|resolved| resolved).ok().map(Arc::from);
        self.resolved.insert(path.to_owned(), resolved.clone());
        resolved
    }

    /// Every open root, each once, and the absent ones.
    pub fn into_parts(self) -> (Vec<Arc<LiveRoot>>, Vec<PathBuf>) {
        let open = self.open.into_values().collect();
        (open, self.absent.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_resolved_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["old", "new"] {
            fs::create_dir(path(name)).expect("a folder");
        }
        let link = path("link");
        symlink("old", &link).expect("a link");
        let mut roots = Roots::default();
        let first = roots.resolved(&link).expect("a folder");
        assert!(first.ends_with("old"));
        fs::remove_file(&link).expect("the link");
        assert_eq!(roots.resolved(&path("gone")), None);
        symlink("new", &link).expect("a link");
        assert_eq!(roots.resolved(&link), Some(first));
        fs::create_dir(path("gone")).expect("a folder");
        assert_eq!(roots.resolved(&path("gone")), None);
    }
}
