//! A folder of files that become an archive.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::files;
use crate::run::Result;

/// The mode of programs and folders.
const EXECUTABLE: u32 = 0o755;

/// Paths are relative to the folder. Modes are those that are asked for, whatever the umask.
pub struct Staged(pub PathBuf);

impl Staged {
    /// An empty folder.
    pub fn new(path: PathBuf) -> Result<Self> {
        let staged = Self(path);
        staged.folder("")?;
        Ok(staged)
    }

    /// Makes a folder that everyone may read, and those above it.
    pub fn folder(&self, path: &str) -> Result<()> {
        let whole = self.0.join(path);
        let missing = whole.ancestors().take_while(|folder| !folder.exists());
        let missing: Vec<_> = missing.collect();
        let made = missing.iter().rev().try_for_each(|folder| {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(EXECUTABLE))
        });
        made.map_err(|error| format!("{}: {error}", whole.display()))
    }

    /// Makes a folder for its owner alone.
    pub fn private_folder(&self, path: &str) -> Result<()> {
        self.folder(path)?;
        let whole = self.0.join(path);
        fs::set_permissions(&whole, Permissions::from_mode(0o700))
            .map_err(|error| format!("{}: {error}", whole.display()))
    }

    /// The paths of all files in a folder and in those of it, sorted.
    pub fn files(&self, folder: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for path in files::entries(&self.0.join(folder))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let inner = format!("{folder}/{name}");
            match path.is_dir() {
                true => found.extend(self.files(&inner)?),
                false => found.push(inner),
            }
        }
        Ok(found)
    }

    /// Writes a file that everyone may read.
    pub fn text(&self, path: &str, text: impl AsRef<[u8]>) -> Result<()> {
        self.file(path, 0o644, |whole| fs::write(whole, text))
    }

    /// Copies a file that everyone may read.
    pub fn copy(&self, path: &str, from: &Path) -> Result<()> {
        self.file(path, 0o644, |whole| fs::copy(from, whole).map(drop))
            .map_err(|error| format!("{} to {error}", from.display()))
    }

    /// Copies a program.
    pub fn program(&self, path: &str, from: &Path) -> Result<()> {
        self.file(path, EXECUTABLE, |whole| fs::copy(from, whole).map(drop))
            .map_err(|error| format!("{} to {error}", from.display()))
    }

    fn file(
        &self,
        path: &str,
        mode: u32,
        write: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<()> {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder)?;
        }
        let whole = self.0.join(path);
        let written =
            write(&whole).and_then(|()| fs::set_permissions(&whole, Permissions::from_mode(mode)));
        written.map_err(|error| format!("{}: {error}", whole.display()))
    }
}
