//! The folder with accounts, certificates and what is about to become one. Everything here blocks.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use levity_tls::files;

/// Only the user of the server may read what is written.
const MODE: u32 = 0o600;

/// Accounts at authorities, and what was ordered there.
const ACCOUNTS: &str = "accounts";
/// Keys, each with its certificate and the chain.
const CERTIFICATES: &str = "certificates";
/// Answers for authorities that are about to look at a name.
const CHALLENGES: &str = "challenges";
/// Files that whoever works on something has locked.
const LOCKS: &str = "locks";
/// A file of each running server, which it has locked.
const RUNNING: &str = "running";
/// A file for each name for which an operator wants another attempt.
const RETRIES: &str = "retries";

/// Begins the names of files of servers that have not locked them yet.
const UNLOCKED: &str = ",";

/// The end of the names of files with certificates.
const PEM: &str = "pem";

/// The folder. Several servers may share it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The file that says that this server runs.
    running: PathBuf,
    /// It is locked as long as it is open.
    _lock: File,
}

impl Folder {
    /// Opens it, and makes what is not there. It is within `state`, the folder of all state of TLS.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn open(state: &Path) -> Result<Self, String> {
        let path = path_in(state);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        make(&path).map_err(failed)?;
        let (running, lock) = run(&path.join(RUNNING)).map_err(failed)?;
        Ok(Self {
            path,
            running,
            _lock: lock,
        })
    }

    /// Whether another server uses the folder now. Files of servers that have died are removed.
    pub fn is_shared(&self) -> bool {
        let entries = fs::read_dir(self.path.join(RUNNING));
        let others = entries.into_iter().flatten().flatten();
        let others = others.map(|entry| entry.path());
        // Each is looked at, so that all that are stale go.
        let alive = others.filter(|path| *path != self.running && is_locked(path));
        alive.count() > 0
    }

    /// The lock `name`; `None` if another server, or another task, has it.
    ///
    /// # Errors
    /// When the file system has none to give.
    pub fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = File::create(self.path.join(LOCKS).join(file_name(name)))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The lock `name` of an authority, likewise. No host has such a name.
    ///
    /// # Errors
    /// When the file system has none to give.
    pub fn lock_of_authority(&self, name: &str, directory: &str) -> io::Result<Option<File>> {
        self.lock(&format!(",{name}-{}", of_url(directory)))
    }

    /// Whether an operator wants another attempt for `name`.
    pub fn wants_retry(&self, name: &str) -> bool {
        self.retry(name).exists()
    }

    /// Notes that the attempt that an operator wants is about to be made. False if that is not possible: it would be wanted for ever.
    pub fn end_retry(&self, name: &str) -> bool {
        fs::remove_file(self.retry(name)).is_ok()
    }

    /// The names for which an operator wants another attempt.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn retries(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.path.join(RETRIES))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names
            .filter_map(|name| Some(name_of_file(name.to_str()?)))
            .collect())
    }

    fn retry(&self, name: &str) -> PathBuf {
        self.path.join(RETRIES).join(file_name(name))
    }

    /// The file with the key and the certificate of `name`.
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        certificate_in(&self.path, name)
    }

    /// The file with the state of `name`.
    #[must_use]
    pub fn state(&self, name: &str) -> PathBuf {
        state_in(&self.path, name)
    }

    /// Whether there is a certificate for `name`, or was about to be one.
    pub fn is_known(&self, name: &str) -> bool {
        self.certificate(name).exists() || self.state(name).exists()
    }

    /// The file with the account at the authority with this directory.
    #[must_use]
    pub fn account(&self, directory: &str) -> PathBuf {
        self.path.join(ACCOUNTS).join(of_url(directory) + ".json")
    }

    /// The file with what was ordered there.
    #[must_use]
    pub fn ledger(&self, directory: &str) -> PathBuf {
        self.path
            .join(ACCOUNTS)
            .join(of_url(directory) + ".orders.json")
    }

    /// The file of the challenge `name`.
    #[must_use]
    pub fn challenge(&self, name: &str) -> PathBuf {
        self.challenges().join(file_name(name))
    }

    /// The folder of challenges.
    #[must_use]
    pub fn challenges(&self) -> PathBuf {
        self.path.join(CHALLENGES)
    }

    /// The names that have certificates or are about to get one.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.path)
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), String> {
        let written = files::write(path, content, MODE);
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.running);
    }
}

/// Asks running servers for another attempt for `name`, by a file: one with other rights than theirs may ask, and theirs stay as they
/// are. `state` is the folder of all state of TLS. Blocks.
///
/// # Errors
/// In words, with the path.
pub(crate) fn want_retry(state: &Path, name: &str) -> Result<(), String> {
    let path = path_in(state).join(RETRIES).join(file_name(name));
    let made = File::create(&path);
    made.map(drop)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Whether somebody works on `name`. `state` is likewise. Makes nothing, and has the lock for a moment. Blocks.
pub(crate) fn is_worked_on(state: &Path, name: &str) -> bool {
    let lock = File::open(path_in(state).join(LOCKS).join(file_name(name)));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The file with the key and the certificate of `name`, for whoever knows the folder of all state of TLS only.
#[must_use]
pub fn certificate_path(state: &Path, name: &str) -> PathBuf {
    certificate_in(&path_in(state), name)
}

/// The file with the state of `name`, likewise.
pub(crate) fn state_path(state: &Path, name: &str) -> PathBuf {
    state_in(&path_in(state), name)
}

/// The names that have certificates, likewise. Makes nothing. Blocks.
///
/// # Errors
/// With the path, when the folder is there and cannot be read.
pub(crate) fn names(state: &Path) -> Result<Vec<String>, String> {
    let path = path_in(state);
    match names_in(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| format!("{} cannot be read: {error}", path.display())),
    }
}

/// Where the folder is.
fn path_in(state: &Path) -> PathBuf {
    state.join("acme")
}

fn certificate_in(path: &Path, name: &str) -> PathBuf {
    path.join(CERTIFICATES)
        .join(format!("{}.{PEM}", file_name(name)))
}

fn state_in(path: &Path, name: &str) -> PathBuf {
    path.join(CERTIFICATES).join(file_name(name) + ".json")
}

fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path.join(CERTIFICATES))? {
        let path = PathBuf::from(entry?.file_name());
        let is_certificate = path.extension().is_some_and(|end| end == PEM);
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        names.extend(stem.filter(|_| is_certificate).map(name_of_file));
    }
    names.sort();
    Ok(names)
}

fn make(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    for part in [ACCOUNTS, CERTIFICATES, CHALLENGES, LOCKS, RUNNING, RETRIES] {
        builder.create(path.join(part))?;
    }
    for part in [ACCOUNTS, CERTIFICATES, CHALLENGES] {
        // Whoever cannot write there is told so as soon as something is written.
        let _ = files::remove_leftovers(&path.join(part));
    }
    Ok(())
}

/// Makes the file that says that a server runs. It gets its name once it is locked: until then, it would pass for one of a server
/// that has died.
fn run(folder: &Path) -> io::Result<(PathBuf, File)> {
    let name = files::unique()?;
    let (unlocked, path) = (folder.join(format!("{UNLOCKED}{name}")), folder.join(name));
    let file = File::create_new(&unlocked)?;
    file.lock()?;
    fs::rename(unlocked, &path)?;
    Ok((path, file))
}

/// Whether the server with this file runs. If not, the file is removed.
fn is_locked(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    if name.is_none_or(|name| name.starts_with(UNLOCKED)) {
        return false;
    }
    let Ok(file) = File::open(path) else {
        return false;
    };
    match file.try_lock() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            false
        }
        Err(_) => true,
    }
}

/// A star is not liked by shells.
fn file_name(name: &str) -> String {
    name.replace('*', "_")
}

fn name_of_file(stem: &str) -> String {
    stem.replacen("_.", "*.", usize::from(stem.starts_with("_.")))
}

/// A URL as the name of a file.
fn of_url(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let fits = |char: char| char.is_ascii_alphanumeric() || ".-".contains(char);
    rest.chars()
        .map(|char| if fits(char) { char } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_shared_while_another_server_runs() {
        let state = tempfile::tempdir().expect("a folder");
        let one = Folder::open(state.path()).expect("a folder");
        assert!(!one.is_shared());
        let two = Folder::open(state.path()).expect("the same folder");
        // However often one looks, the other keeps its lock.
        for _ in 0..3 {
            assert!(one.is_shared() && two.is_shared());
        }
        drop(two);
        assert!(!one.is_shared());
    }

    #[test]
    fn files_of_servers_that_have_died_are_removed() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let stale = path_in(state.path()).join(RUNNING).join("stale");
        File::create(&stale).expect("a file");
        assert!(!folder.is_shared() && !stale.exists());
        assert!(folder.running.exists());
    }

    #[test]
    fn an_operator_asks_for_an_attempt() {
        let state = tempfile::tempdir().expect("a folder");
        assert!(want_retry(state.path(), "a.test").is_err());
        let folder = Folder::open(state.path()).expect("a folder");
        want_retry(state.path(), "*.a.test").expect("written");
        assert_eq!(folder.retries().expect("read"), ["*.a.test"]);
        assert!(folder.wants_retry("*.a.test") && !folder.wants_retry("a.test"));
        assert!(folder.end_retry("*.a.test") && !folder.end_retry("*.a.test"));
        assert!(folder.retries().expect("read").is_empty());
    }

    #[test]
    fn work_on_a_name_is_seen() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        assert!(!is_worked_on(state.path(), "a.test"));
        let lock = folder.lock("a.test").expect("a lock");
        assert!(lock.is_some() && is_worked_on(state.path(), "a.test"));
        drop(lock);
        assert!(!is_worked_on(state.path(), "a.test"));
    }
}
