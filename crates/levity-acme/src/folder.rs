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
/// The file that each running server has a shared lock of.
const SERVERS: &str = "servers";

/// The end of the names of files with certificates.
const PEM: &str = "pem";

/// The folder. Several servers may share it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    server: File,
}

impl Folder {
    /// Opens it, and makes what is not there. It is within `state`, the folder of all state of TLS.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn open(state: &Path) -> Result<Self, String> {
        let path = path_in(state);
        let opened = open(&path);
        let server = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, server })
    }

    /// Whether another server uses the folder now.
    pub fn is_shared(&self) -> bool {
        let is_alone = self.server.try_lock().is_ok();
        // To lock it otherwise has given the shared lock up.
        let _ = self.server.lock_shared();
        !is_alone
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

fn open(path: &Path) -> io::Result<File> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    for part in [ACCOUNTS, CERTIFICATES, CHALLENGES, LOCKS] {
        builder.create(path.join(part))?;
    }
    let server = File::create(path.join(SERVERS))?;
    server.lock_shared()?;
    Ok(server)
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
