//! One compressed variant of one file: whether it is needed, and how it is made.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_config::levels;
use levity_disk::{Kind, Meta};
use levity_wire::encoding::Coding;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::folder::Folder;
use super::temporary::Temporary;
use super::walk::Original;
use crate::files::codings::suffix;
use crate::filter::compress::{Encoder, Settings};

/// The least that a variant must save, in percent of the file.
const SAVED_PERCENT_MIN: u64 = 5;

/// The size of the pieces that are read, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// How far the clock of file systems may lag behind, in one tick of the slowest kernels.
const TICK: Duration = Duration::from_millis(10);

/// What a run does, apart from the codings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Shorter files get no variant.
    pub bytes_min: u64,
    /// Makes variants anew that are up to date.
    pub force: bool,
    /// Removes variants that are outdated or save too little, and cannot be replaced.
    pub prune: bool,
    /// Changes files; otherwise only finds out.
    pub writes: bool,
}

/// What became of a variant, or would if the run changed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The file is too short, or does not exist any more.
    Skipped,
    /// It is up to date.
    Kept,
    /// It would save too little.
    Useless,
    /// The same, and one that existed was removed.
    Removed,
    /// It was written. Lengths in bytes.
    Written {
        /// That of the file.
        before: u64,
        /// That of the variant.
        after: u64,
        /// Whether it replaces another one.
        replaces: bool,
    },
}

/// Why a variant cannot be made.
#[derive(Debug)]
pub(super) enum Failure {
    /// The file cannot be read.
    Read(io::Error),
    /// The file changed while it was read.
    Changed,
    /// The variant cannot be written.
    Write(io::Error),
    /// The name of the variant belongs to a folder, a link, or another thing that is no regular file.
    Occupied,
    /// The encoder failed.
    Defect(io::Error),
}

/// The length of the longest useful variant of a file, in bytes.
fn useful_bytes_max(original: u64) -> u64 {
    original - original.div_ceil(100 / SAVED_PERCENT_MIN)
}

/// A variant in one coding.
#[derive(Debug)]
pub(super) struct Variant {
    original: Original,
    coding: Coding,
    name: CString,
}

impl Variant {
    pub fn new(original: Original, coding: Coding) -> Self {
        let name = [original.name.as_bytes(), suffix(coding)].concat();
        Self {
            original,
            coding,
            name: CString::new(name).expect("a name has no NUL"),
        }
    }

    pub fn coding(&self) -> Coding {
        self.coding
    }

    pub fn path(&self) -> PathBuf {
        self.folder().path(&self.name)
    }

    pub fn original_path(&self) -> PathBuf {
        self.folder().path(&self.original.name)
    }

    fn folder(&self) -> &Folder {
        &self.original.folder
    }

    /// Writes the variant if `rules` and its file ask for it. Blocks, and computes for long.
    ///
    /// # Errors
    /// See [`Failure`]. The variant is then as it was.
    pub fn update(&self, rules: &Rules) -> Result<Outcome, Failure> {
        let original = self.meta(&self.original.name).map_err(Failure::Read)?;
        let Some(original) = original else {
            return Ok(Outcome::Skipped);
        };
        let existing = self.meta(&self.name).map_err(Failure::Read)?;
        if let Some(existing) = existing {
            if existing.kind != Kind::Regular {
                return Err(Failure::Occupied);
            }
            let is_useful = existing.size <= useful_bytes_max(original.size);
            let is_current = existing.may_stand_in_for(&original)
                && !self.grants_more().map_err(Failure::Read)?;
            if is_current && !rules.force && (is_useful || !rules.prune) {
                return Ok(Outcome::Kept);
            }
        }
        let is_short = original.size < rules.bytes_min;
        let made = match is_short {
            true => None,
            false => self.make(rules.writes)?,
        };
        match (made, existing) {
            (Some((before, after)), _) => Ok(Outcome::Written {
                before,
                after,
                replaces: existing.is_some(),
            }),
            (None, Some(_)) if rules.prune => {
                if rules.writes {
                    self.remove().map_err(Failure::Write)?;
                }
                Ok(Outcome::Removed)
            }
            (None, _) if is_short => Ok(Outcome::Skipped),
            (None, _) => Ok(Outcome::Useless),
        }
    }

    /// Whether the variant may be used by someone who may not use the original, whose permissions have changed: that
    /// changes no time of modification.
    fn grants_more(&self) -> io::Result<bool> {
        let of = |name: &CStr| self.folder().permissions(name);
        Ok(of(&self.name)? & !of(&self.original.name)? != 0)
    }

    fn meta(&self, name: &CStr) -> io::Result<Option<Meta>> {
        self.folder().meta(name)
    }

    fn remove(&self) -> io::Result<()> {
        match unlinkat(&self.folder().fd, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compresses the file, and gives the result its name if `writes`. Returns the lengths of both in bytes; `None` if
    /// the variant would save too little.
    fn make(&self, writes: bool) -> Result<Option<(u64, u64)>, Failure> {
        let (mut source, stat) = self.open(writes).map_err(Failure::Read)?;
        if !writes {
            let after = self.encode(&mut source, &mut |_| Ok(()))?;
            return Ok(after.map(|after| (source.meta.size, after)));
        }
        let mut target = Temporary::create(self.folder()).map_err(Failure::Write)?;
        let after = self.encode(&mut source, &mut |bytes| target.append(bytes))?;
        let Some(after) = after else {
            return Ok(None);
        };
        target
            .complete(&source.file, &stat)
            .map_err(Failure::Write)?;
        // Another file may have taken the name, which the open one does not show.
        let now = self.meta(&self.original.name).map_err(Failure::Read)?;
        if !now.is_some_and(|now| now.same_version(&source.meta)) {
            return Err(Failure::Changed);
        }
        target.rename(&self.name).map_err(Failure::Write)?;
        Ok(Some((source.meta.size, after)))
    }

    /// The file at a time from which on each change of it shows in its second of modification, if `settled`.
    fn open(&self, settled: bool) -> io::Result<(Source, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder().fd, &self.original.name, flags, Mode::empty())?;
        if settled {
            outlast(Meta::from(fstat(&file)?).mtime_s);
        }
        let stat = fstat(&file)?;
        let meta = Meta::from(stat);
        let file = File::from(file);
        Ok((Source { file, meta }, stat))
    }

    /// Compresses the content of `source` and passes it to `write`. Returns its length; `None` as soon as the variant
    /// saves too little.
    fn encode(
        &self,
        source: &mut Source,
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Option<u64>, Failure> {
        let length = source.meta.size;
        let settings = Settings {
            coding: self.coding,
            level: levels(self.coding).1,
            length: Some(length),
            ample: true,
        };
        let mut encoder = Encoder::new(settings).map_err(Failure::Defect)?;
        let (mut piece, mut out) = (vec![0; READ_BYTES], Vec::new());
        let (mut unread, mut written) = (length, 0);
        let mut pass_on = |out: &mut Vec<u8>| {
            written += out.len() as u64;
            if written <= useful_bytes_max(length) {
                write(out).map_err(Failure::Write)?;
            }
            out.clear();
            Ok(written)
        };
        loop {
            let bytes = source.read(&mut piece)?;
            // zstd has announced the length.
            unread = unread
                .checked_sub(bytes.len() as u64)
                .ok_or(Failure::Changed)?;
            if bytes.is_empty() {
                break;
            }
            encoder.push(bytes, &mut out).map_err(Failure::Defect)?;
            if pass_on(&mut out)? > useful_bytes_max(length) {
                return Ok(None);
            }
        }
        if unread > 0 {
            return Err(Failure::Changed);
        }
        encoder.finish(&[], &mut out).map_err(Failure::Defect)?;
        let written = pass_on(&mut out)?;
        Ok((written <= useful_bytes_max(length)).then_some(written))
    }
}

/// A file that is being read.
struct Source {
    file: File,
    /// As of the start.
    meta: Meta,
}

impl Source {
    /// Reads on; nothing is left when it returns nothing. A change is noticed at the next piece, because the levels
    /// are so slow that a file which is being written to would otherwise be compressed in vain for minutes.
    fn read<'p>(&mut self, piece: &'p mut [u8]) -> Result<&'p [u8], Failure> {
        let count = loop {
            match self.file.read(piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(Failure::Read)?,
            }
        };
        let now = fstat(&self.file).map_err(|error| Failure::Read(error.into()))?;
        match Meta::from(now).same_version(&self.meta) {
            true => Ok(&piece[..count]),
            false => Err(Failure::Changed),
        }
    }
}

/// Waits until the second `mtime_s` is over. A server compares seconds: the variant of a file that changes once more
/// within the second in which it was read would be sent in its place forever.
fn outlast(mtime_s: i64) {
    let Ok(mtime_s) = u64::try_from(mtime_s) else {
        return;
    };
    let start = UNIX_EPOCH + Duration::from_secs(mtime_s);
    let end = start + Duration::from_secs(1) + TICK;
    let now = SystemTime::now();
    if now >= start
        && let Ok(rest) = end.duration_since(now)
    {
        thread::sleep(rest);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    const RULES: Rules = Rules {
        bytes_min: 256,
        force: false,
        prune: false,
        writes: true,
    };

    fn update(folder: &Path, coding: Coding, rules: Rules) -> Result<Outcome, Failure> {
        let folder = Arc::new(Folder::open(folder).expect("open"));
        let name = c"a.txt".to_owned();
        Variant::new(Original { folder, name }, coding).update(&rules)
    }

    /// A file whose second of modification is over.
    fn write(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).expect("write");
        let file = File::options().write(true).open(path).expect("open");
        let past = SystemTime::now() - Duration::from_secs(100);
        file.set_modified(past).expect("utimes");
    }

    /// Bytes that do not compress.
    fn noise(length: usize) -> Vec<u8> {
        let mut seed = 1_u64;
        let next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn the_limit_of_usefulness() {
        assert_eq!(useful_bytes_max(0), 0);
        assert_eq!(useful_bytes_max(1), 0);
        assert_eq!(useful_bytes_max(100), 95);
        assert_eq!(useful_bytes_max(101), 95);
        assert_eq!(useful_bytes_max(u64::MAX - 15), u64::MAX / 20 * 19);
    }

    #[test]
    fn files_of_the_least_length_get_one() {
        for coding in Coding::ALL {
            for (length, is_written) in [(255, false), (256, true)] {
                let folder = tempfile::tempdir().expect("a folder");
                write(&folder.path().join("a.txt"), &vec![b'x'; length]);
                let outcome = update(folder.path(), coding, RULES).expect("no failure");
                match outcome {
                    Outcome::Written { before, .. } => assert_eq!(before, length as u64),
                    _ => assert_eq!(outcome, Outcome::Skipped),
                }
                let count = fs::read_dir(folder.path()).expect("a folder").count();
                assert_eq!(count, 1 + usize::from(is_written), "{coding:?} {length}");
            }
        }
    }

    /// Long and short: what is longer than the limit at the first piece, and only at the end.
    #[test]
    fn noise_gets_none_and_loses_none_unless_pruned() {
        for (coding, length) in Coding::ALL.into_iter().zip([1000, 1000, 3 * READ_BYTES]) {
            let folder = tempfile::tempdir().expect("a folder");
            let variant = Variant::new(
                Original {
                    folder: Arc::new(Folder::open(folder.path()).expect("open")),
                    name: c"a.txt".to_owned(),
                },
                coding,
            );
            write(&variant.original_path(), &noise(length));
            let dry = Rules {
                writes: false,
                ..RULES
            };
            let prune = Rules {
                prune: true,
                ..RULES
            };
            assert_eq!(variant.update(&RULES).expect("none"), Outcome::Useless);
            // Up to date, but as long as its file.
            fs::write(variant.path(), noise(length)).expect("write");
            assert_eq!(variant.update(&RULES).expect("none"), Outcome::Kept);
            let dry_prune = Rules { prune: true, ..dry };
            assert_eq!(variant.update(&dry_prune).expect("none"), Outcome::Removed);
            assert!(variant.path().exists());
            assert_eq!(variant.update(&prune).expect("none"), Outcome::Removed);
            assert!(!variant.path().exists());
            assert_eq!(variant.update(&prune).expect("none"), Outcome::Useless);
        }
    }

    /// Others could read the content in the variant.
    #[test]
    fn a_file_that_becomes_private_gets_a_private_variant() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a.txt", "a.txt.gz"].map(|name| folder.path().join(name));
        let mode = || fs::metadata(&paths[1]).expect("metadata").mode() & 0o777;
        let set_mode = |mode| fs::set_permissions(&paths[0], Permissions::from_mode(mode));
        write(&paths[0], &[b'x'; 1000]);
        set_mode(0o644).expect("chmod");
        update(folder.path(), Coding::Gzip, RULES).expect("no failure");
        assert_eq!(mode(), 0o644);
        set_mode(0o600).expect("chmod");
        let updated = update(folder.path(), Coding::Gzip, RULES).expect("no failure");
        assert!(matches!(updated, Outcome::Written { .. }), "{updated:?}");
        assert_eq!(mode(), 0o600);
        // More is granted when the file changes.
        set_mode(0o644).expect("chmod");
        let updated = update(folder.path(), Coding::Gzip, RULES).expect("no failure");
        assert_eq!((updated, mode()), (Outcome::Kept, 0o600));
    }

    #[test]
    fn what_has_the_name_and_is_no_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("a.txt"), &[b'x'; 1000]);
        write(&folder.path().join("other"), b"other");
        std::os::unix::fs::symlink("other", folder.path().join("a.txt.br")).expect("symlink");
        fs::create_dir(folder.path().join("a.txt.gz")).expect("mkdir");
        let force = Rules {
            force: true,
            prune: true,
            ..RULES
        };
        for coding in [Coding::Brotli, Coding::Gzip] {
            let updated = update(folder.path(), coding, force);
            assert!(matches!(updated, Err(Failure::Occupied)), "{updated:?}");
        }
        assert!(folder.path().join("a.txt.br").is_symlink());
    }

    #[test]
    fn a_file_of_this_second_is_read_in_a_later_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.txt");
        fs::write(&path, [b'x'; 1000]).expect("write");
        update(folder.path(), Coding::Gzip, RULES).expect("no failure");
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let since = modified.expect("a time").duration_since(UNIX_EPOCH);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        assert!(now.expect("now").as_secs() > since.expect("1970").as_secs());
    }

    #[test]
    fn a_file_that_went_away_is_skipped() {
        let folder = tempfile::tempdir().expect("a folder");
        let outcome = update(folder.path(), Coding::Gzip, RULES).expect("no failure");
        assert_eq!(outcome, Outcome::Skipped);
    }
}
