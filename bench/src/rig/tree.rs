//! The document tree: a few hot files, and sets of cold files of equal size.

use crate::corpus;
use crate::failure::{Context, Result};
use crate::random::Random;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The sizes of the hot files.
pub const HOT_BYTES: [usize; 3] = [1024, 4096, 16384];
/// The sizes of hot files that no server caches as a whole in its own memory.
pub const HOT_LARGE_BYTES: [usize; 3] = [65_536, 1 << 20, 4 << 20];
/// The sizes of hot files that take more than one write.
pub const HOT_STREAM_BYTES: [usize; 3] = [100_000, 1_000_000, 100_000_000];
/// The age of a hot file when it is written: a server may distrust a cached file that has changed just now.
const HOT_AGE: Duration = Duration::from_secs(3600);
/// Files per directory: few, so that a cold open also reads a directory and an inode.
const FILES_PER_DIRECTORY: usize = 32;

/// Files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// The number of files.
    pub files: usize,
    /// The size of each, in bytes.
    pub bytes: usize,
}

/// 100 KB, the size that the published comparisons use, and one byte more than that, because a
/// server that reads in blocks or with O_DIRECT must get odd tails right at the same speed.
pub const COLD_SETS: [FileSet; 2] = [
    FileSet {
        files: 12_000,
        bytes: 100_000,
    },
    FileSet {
        files: 4_000,
        bytes: 100_001,
    },
];

/// Enough files for a few seconds of a fast disk.
pub const FAST_SETS: [FileSet; 1] = [FileSet {
    files: 39_000,
    bytes: 102_400,
}];

/// Files whose metadata costs more than their content.
pub const TINY: FileSet = FileSet {
    files: 100_000,
    bytes: 1000,
};
/// One block each.
pub const BLOCKS: FileSet = FileSet {
    files: 20_000,
    bytes: 4096,
};
/// The size of an image.
pub const IMAGES: FileSet = FileSet {
    files: 12_000,
    bytes: 256 * 1024,
};
/// The largest files that a server reads as a whole: 3 GB, so that most of them find no free memory.
pub const LARGE: FileSet = FileSet {
    files: 3000,
    bytes: 1000 * 1024,
};
/// A few chunks each.
pub const MEGABYTES: FileSet = FileSet {
    files: 1000,
    bytes: 1_000_000,
};
/// Short streams.
pub const STREAMS: FileSet = FileSet {
    files: 200,
    bytes: 10_000_000,
};
/// Long streams: together larger than the server's memory.
pub const LONG_STREAMS: FileSet = FileSet {
    files: 10,
    bytes: 100_000_000,
};
/// The files of workloads that do not use [`COLD_SETS`]: 4.5 GB.
pub const MIXED_SETS: [FileSet; 5] = [TINY, BLOCKS, MEGABYTES, STREAMS, LONG_STREAMS];
/// From one block to a short stream, for a fast disk.
pub const SIZE_SETS: [FileSet; 5] = [BLOCKS, FAST_SETS[0], IMAGES, LARGE, STREAMS];

/// Text files that take long to compress: 100 MB.
pub const LARGE_TEXTS: FileSet = FileSet {
    files: 100,
    bytes: 1_000_000,
};
/// Many text files: 100 MB.
pub const TEXTS: FileSet = FileSet {
    files: 1000,
    bytes: 100_000,
};

/// Writes `hot/SIZE.bin` for each hot size, unless it exists.
///
/// # Errors
/// The directory cannot be written.
pub fn write_hot(docroot: &Path) -> Result<()> {
    let dir = docroot.join("hot");
    fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
    let sizes = [HOT_BYTES, HOT_LARGE_BYTES, HOT_STREAM_BYTES];
    for bytes in sizes.into_iter().flatten() {
        let path = dir.join(format!("{bytes}.bin"));
        let exists = fs::metadata(&path).is_ok_and(|file| file.len() == bytes as u64);
        if !exists {
            write_settled(&path, &noise(bytes)).context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes a file to the disk and gives it an old modification time.
fn write_settled(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.set_modified(SystemTime::now() - HOT_AGE)?;
    file.sync_all()
}

/// Reads a hot file into the page cache.
///
/// # Errors
/// The file cannot be read.
pub fn read_hot(docroot: &Path, bytes: usize) -> Result<()> {
    let path = docroot.join(format!("hot/{bytes}.bin"));
    File::open(&path)
        .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()))
        .context(|| format!("read {}", path.display()))
        .map(drop)
}

impl FileSet {
    /// Writes the set as incompressible files below `cold` unless it exists. Its directory is renamed last, so that an
    /// interrupted fill does not look complete.
    ///
    /// # Errors
    /// The disk is full or read-only.
    pub fn fill(&self, cold: &Path) -> Result<()> {
        let complete = cold.join(self.bytes.to_string());
        if complete.exists() {
            return Ok(());
        }
        let partial = cold.join(format!("{}.partial", self.bytes));
        if partial.exists() {
            fs::remove_dir_all(&partial).context(|| format!("remove {}", partial.display()))?;
        }
        self.write(&partial)
            .context(|| format!("fill {}", partial.display()))?;
        fs::rename(&partial, &complete).context(|| format!("rename {}", partial.display()))
    }

    fn write(&self, dir: &Path) -> std::io::Result<()> {
        let mut content = noise(self.bytes);
        for index in 0..self.files {
            if index % FILES_PER_DIRECTORY == 0 {
                fs::create_dir_all(dir.join(directory(index)))?;
            }
            content[..8].copy_from_slice(&(index as u64).to_le_bytes());
            fs::write(dir.join(file(index)), &content)?;
        }
        Ok(())
    }

    /// The URL path of one of its cold files.
    #[must_use]
    pub fn cold_path(&self, index: usize) -> String {
        format!("/cold/{}/{}", self.bytes, file(index).display())
    }

    /// The URL paths of `count` files in an order drawn from `seed`.
    #[must_use]
    pub fn shuffled(&self, seed: u64, count: usize) -> Vec<String> {
        let mut order: Vec<usize> = (0..self.files).collect();
        let mut random = Random::new(seed);
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last + 1));
        }
        order.truncate(count);
        order
            .into_iter()
            .map(|index| self.cold_path(index))
            .collect()
    }

    /// Writes the set as text below the document root unless it exists, and reads it into the page cache.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn prepare_texts(&self, docroot: &Path) -> Result<()> {
        let dir = docroot.join(format!("text/{}", self.bytes));
        fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        for index in 0..self.files {
            let path = docroot.join(self.text_path(index).trim_start_matches('/'));
            let exists = fs::read(&path).is_ok_and(|content| content.len() == self.bytes);
            if !exists {
                write_settled(&path, &corpus::text(self.bytes, index as u64))
                    .context(|| format!("write {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// The URL path of one of its texts.
    #[must_use]
    pub fn text_path(&self, index: usize) -> String {
        format!("/text/{}/{index:04}.txt", self.bytes)
    }
}

fn directory(index: usize) -> PathBuf {
    format!("{:04}", index / FILES_PER_DIRECTORY).into()
}

fn file(index: usize) -> PathBuf {
    directory(index).join(format!("{index:06}.bin"))
}

/// Incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(bytes as u64);
    (0..bytes).map(|_| random.next().to_le_bytes()[7]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SET: FileSet = FileSet {
        files: 70,
        bytes: 100,
    };

    #[test]
    fn every_listed_path_exists_once_with_its_size() {
        let docroot = tempfile::tempdir().unwrap();
        SET.fill(&docroot.path().join("cold")).unwrap();
        let paths = SET.shuffled(1, usize::MAX);
        assert_eq!(paths.iter().collect::<HashSet<_>>().len(), SET.files);
        for path in &paths {
            let file = docroot.path().join(path.trim_start_matches('/'));
            assert_eq!(fs::metadata(file).unwrap().len(), 100);
        }
    }

    #[test]
    fn texts_are_written_once() {
        let docroot = tempfile::tempdir().unwrap();
        let set = FileSet {
            files: 2,
            bytes: 1000,
        };
        set.prepare_texts(docroot.path()).unwrap();
        let file = docroot.path().join("text/1000/0001.txt");
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        set.prepare_texts(docroot.path()).unwrap();
        let file = fs::metadata(&file).unwrap();
        assert_eq!((file.len(), file.modified().unwrap()), (1000, written));
        assert_eq!(LARGE_TEXTS.files * LARGE_TEXTS.bytes, 100_000_000);
        assert_eq!(TEXTS.files * TEXTS.bytes, 100_000_000);
    }

    #[test]
    fn seeds_give_different_orders() {
        assert_eq!(SET.shuffled(1, 9), SET.shuffled(1, 9));
        assert_ne!(SET.shuffled(1, 9), SET.shuffled(2, 9));
    }

    #[test]
    fn an_interrupted_fill_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("100.partial/9999")).unwrap();
        SET.fill(dir.path()).unwrap();
        assert!(!dir.path().join("100/9999").exists());
    }
}
