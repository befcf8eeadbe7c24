//! Which variants the folder has. Event loops read it without a lock.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use levity_disk::TEMPORARY_PREFIX;
use levity_wire::encoding::Coding;

use super::name::Name;

/// The maximum number of variants. A change copies the index, which takes about 30 ns per variant.
const VARIANTS_MAX: usize = 4096;

type Variants = HashMap<Name, Arc<Variant>>;

/// The index.
pub struct Index {
    variants: ArcSwap<Variants>,
    bytes_max: u64,
    started: Instant,
}

struct Variant {
    coding: Coding,
    /// `None` for an original that is hardly smaller when compressed: it has no file.
    bytes: Option<u64>,
    /// The time of the last use, in seconds since the start of the index, and [`BEFORE_START`] more.
    used_s: AtomicU64,
}

/// Added to the times of use: those before the start are smaller.
const BEFORE_START: u64 = 1 << 40;

impl Index {
    /// Reads the folder; removes temporary files, and the variants beyond the bounds that were made first. Blocks.
    pub fn read(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let index = Self {
            variants: ArcSwap::default(),
            bytes_max,
            started: Instant::now(),
        };
        let mut variants = Variants::new();
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
            let (Some((name, coding)), Ok(meta)) = (Name::parse(file_name), file.metadata()) else {
                continue;
            };
            let made = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH);
            let made = made.map_or(0, |since| since.as_secs());
            let variant = Variant {
                coding,
                bytes: Some(meta.len()),
                used_s: AtomicU64::new(made.min(BEFORE_START)),
            };
            variants.insert(name, Arc::new(variant));
        }
        for (name, coding) in index.displace(&mut variants) {
            remove(&folder.join(name.file_name(coding)))?;
        }
        index.variants.store(Arc::new(variants));
        Ok(index)
    }

    /// Whether the folder has the variant; records that it is used.
    pub fn touch(&self, name: Name) -> bool {
        let variants = self.variants.load();
        let variant = variants
            .get(&name)
            .filter(|variant| variant.bytes.is_some());
        if let Some(variant) = variant {
            variant.used_s.store(self.now_s(), Ordering::Relaxed);
        }
        variant.is_some()
    }

    /// Whether the variant exists, or is not worth to be made.
    pub fn knows(&self, name: Name) -> bool {
        self.variants.load().contains_key(&name)
    }

    /// Adds a variant of so many bytes, or the knowledge that there is none. Returns the variants whose files are to be
    /// removed instead: those that were not used for the longest time.
    pub fn add(&self, name: Name, coding: Coding, bytes: Option<u64>) -> Vec<(Name, Coding)> {
        let variant = Arc::new(Variant {
            coding,
            bytes,
            used_s: AtomicU64::new(self.now_s()),
        });
        let mut displaced = Vec::new();
        self.variants.rcu(|variants| {
            let mut variants = Variants::clone(variants);
            variants.insert(name, variant.clone());
            displaced = self.displace(&mut variants);
            variants
        });
        displaced
    }

    /// Removes a variant whose file is gone.
    pub fn remove(&self, name: Name) {
        self.variants.rcu(|variants| {
            let mut variants = Variants::clone(variants);
            variants.remove(&name);
            variants
        });
    }

    /// The number of variants, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let variants = self.variants.load();
        let bytes = variants.values().filter_map(|variant| variant.bytes);
        (bytes.clone().count(), bytes.sum())
    }

    /// Makes variants older than all others.
    #[cfg(test)]
    pub fn age(&self, names: &[Name]) {
        for name in names {
            self.variants.load()[name]
                .used_s
                .store(0, Ordering::Relaxed);
        }
    }

    /// Takes variants out until the rest is within the bounds. Returns those that have files.
    fn displace(&self, variants: &mut Variants) -> Vec<(Name, Coding)> {
        let bytes = variants.values().filter_map(|variant| variant.bytes);
        let mut bytes: u64 = bytes.sum();
        if bytes <= self.bytes_max && variants.len() <= VARIANTS_MAX {
            return Vec::new();
        }
        let mut by_use: Vec<(u64, Name)> = variants
            .iter()
            .map(|(name, variant)| (variant.used_s.load(Ordering::Relaxed), *name))
            .collect();
        by_use.sort_unstable_by_key(|(used_s, _)| *used_s);
        let mut displaced = Vec::new();
        for (_, name) in by_use {
            if bytes <= self.bytes_max && variants.len() <= VARIANTS_MAX {
                break;
            }
            let variant = variants.remove(&name).expect("it was listed");
            if let Some(freed) = variant.bytes {
                bytes -= freed;
                displaced.push((name, variant.coding));
            }
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
