//! Which files the folder has. Event loops read it without a lock.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use levity_disk::TEMPORARY_PREFIX;

use super::name::{Kind, Name, Stored};

/// The maximum number of files. A change copies the index, which takes about 30 ns per file.
const FILES_MAX: usize = 4096;

/// The index.
pub struct Index {
    files: ArcSwap<Files>,
    bytes_max: u64,
    started: Instant,
}

#[derive(Clone, Default)]
struct Files {
    by_name: HashMap<Name, Arc<File>>,
    /// The names of dictionaries by that of their digest: several versions may have the same content.
    dictionaries: HashMap<Name, Vec<Name>>,
}

struct File {
    kind: Kind,
    /// `None` for what is hardly smaller than the original: it has no file.
    bytes: Option<u64>,
    /// The time of the last use, in seconds since the start of the index, and [`BEFORE_START`] more.
    used_s: AtomicU64,
}

impl File {
    fn is_dictionary(&self) -> bool {
        matches!(self.kind, Kind::Dictionary(_))
    }
}

/// Added to the times of use: those before the start are smaller.
const BEFORE_START: u64 = 1 << 40;

impl Files {
    fn insert(&mut self, name: Name, file: Arc<File>) {
        if let Kind::Dictionary(digest) = file.kind {
            let names = self.dictionaries.entry(digest).or_default();
            names.retain(|other| *other != name);
            names.push(name);
        }
        self.by_name.insert(name, file);
    }

    fn remove(&mut self, name: Name) -> Option<Arc<File>> {
        let file = self.by_name.remove(&name)?;
        if let Kind::Dictionary(digest) = file.kind
            && let Some(names) = self.dictionaries.get_mut(&digest)
        {
            names.retain(|other| *other != name);
            if names.is_empty() {
                self.dictionaries.remove(&digest);
            }
        }
        Some(file)
    }

    fn bytes(&self) -> u64 {
        let bytes = self.by_name.values().filter_map(|file| file.bytes);
        bytes.sum()
    }

    fn dictionary_bytes(&self) -> u64 {
        let files = self.by_name.values();
        let dictionaries = files.filter(|file| file.is_dictionary());
        dictionaries.filter_map(|file| file.bytes).sum()
    }
}

impl Index {
    /// Reads the folder; removes temporary files, and the files beyond the bounds that were made first. Blocks.
    pub fn read(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let index = Self {
            files: ArcSwap::default(),
            bytes_max,
            started: Instant::now(),
        };
        let mut files = Files::default();
        for file in fs::read_dir(folder)? {
            let file = file?;
            let file_name = file.file_name();
            let Some(file_name) = file_name.to_str() else {
                continue;
            };
            if file_name
                .as_bytes()
                .starts_with(TEMPORARY_PREFIX.as_bytes())
            {
                remove(&file.path())?;
            }
            let (Some(stored), Ok(meta)) = (Stored::parse(file_name), file.metadata()) else {
                continue;
            };
            let made = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH);
            let made = made.map_or(0, |since| since.as_secs());
            let file = File {
                kind: stored.kind,
                bytes: Some(meta.len()),
                used_s: AtomicU64::new(made.min(BEFORE_START)),
            };
            files.insert(stored.name, Arc::new(file));
        }
        for stored in index.displace(&mut files) {
            remove(&folder.join(stored.file_name()))?;
        }
        index.files.store(Arc::new(files));
        Ok(index)
    }

    /// Whether the folder has the file; records that it is used.
    pub fn touch(&self, name: Name) -> bool {
        let files = self.files.load();
        let file = files.by_name.get(&name).filter(|file| file.bytes.is_some());
        if let Some(file) = file {
            file.used_s.store(self.now_s(), Ordering::Relaxed);
        }
        file.is_some()
    }

    /// The dictionary with this [`Name::of_digest`]; records that it is used.
    pub fn dictionary(&self, digest: Name) -> Option<Stored> {
        let name = *self.files.load().dictionaries.get(&digest)?.last()?;
        self.touch(name).then_some(Stored {
            name,
            kind: Kind::Dictionary(digest),
        })
    }

    /// Whether the file exists, or is not worth to be made.
    pub fn knows(&self, name: Name) -> bool {
        self.files.load().by_name.contains_key(&name)
    }

    /// Adds a file of so many bytes, or the knowledge that there is none. Returns the files that are to be removed
    /// instead: those that were not used for the longest time.
    pub fn add(&self, stored: Stored, bytes: Option<u64>) -> Vec<Stored> {
        let file = Arc::new(File {
            kind: stored.kind,
            bytes,
            used_s: AtomicU64::new(self.now_s()),
        });
        let mut displaced = Vec::new();
        self.files.rcu(|files| {
            let mut files = Files::clone(files);
            files.insert(stored.name, file.clone());
            displaced = self.displace(&mut files);
            files
        });
        displaced
    }

    /// Removes a file that is gone.
    pub fn remove(&self, name: Name) {
        self.files.rcu(|files| {
            let mut files = Files::clone(files);
            files.remove(name);
            files
        });
    }

    /// The number of files, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let files = self.files.load();
        let exist = files.by_name.values().filter(|file| file.bytes.is_some());
        (exist.count(), files.bytes())
    }

    /// Makes files older than all others.
    #[cfg(test)]
    pub fn age(&self, names: &[Name]) {
        for name in names {
            self.files.load().by_name[name]
                .used_s
                .store(0, Ordering::Relaxed);
        }
    }

    /// Takes files out until the rest is within the bounds, of which dictionaries may fill a half: a copy takes more room
    /// than what is compressed. Returns those that exist.
    fn displace(&self, files: &mut Files) -> Vec<Stored> {
        let mut bytes = files.bytes();
        let mut dictionary_bytes = files.dictionary_bytes();
        let is_full =
            |bytes, files: &Files| bytes > self.bytes_max || files.by_name.len() > FILES_MAX;
        let has_too_many = |dictionary_bytes| dictionary_bytes > self.bytes_max / 2;
        if !is_full(bytes, files) && !has_too_many(dictionary_bytes) {
            return Vec::new();
        }
        let used_s = |file: &File| file.used_s.load(Ordering::Relaxed);
        let by_name = files.by_name.iter();
        let mut by_use: Vec<(u64, Name)> =
            by_name.map(|(name, file)| (used_s(file), *name)).collect();
        by_use.sort_unstable_by_key(|(used_s, _)| *used_s);
        let mut displaced = Vec::new();
        for (_, name) in by_use {
            let is_dictionary = files.by_name[&name].is_dictionary();
            let must_go =
                is_full(bytes, files) || (is_dictionary && has_too_many(dictionary_bytes));
            if !must_go {
                continue;
            }
            let file = files.remove(name).expect("it was listed");
            let Some(freed) = file.bytes else {
                continue;
            };
            bytes -= freed;
            if is_dictionary {
                dictionary_bytes -= freed;
            }
            let kind = file.kind;
            displaced.push(Stored { name, kind });
        }
        displaced
    }

    fn now_s(&self) -> u64 {
        BEFORE_START + self.started.elapsed().as_secs()
    }
}

/// Removes a file, unless another process has.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
