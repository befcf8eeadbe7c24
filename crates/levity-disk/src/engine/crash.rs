//! For tests: what a crash of the machine may leave of the changes that the engine `simulated` has made.
//!
//! A [`Recording`] keeps the changes of all such disks of this process in one folder, in the order in which they are
//! made. [`Recording::each_crash`] then goes through the crashes after each of them, and through the states in which
//! each may leave the folder:
//!
//! - *Content* that was written after the last sync of its file is there, is missing with the growth of the file, or is
//!   missing without it: then zeroes are in its place (ext4 with delayed allocation). Either for all such writes at
//!   once, or for a single one; or the bytes end in the middle of a write. Bytes over those that were synced are there
//!   or not.
//! - *Names* that were changed after the last sync of their directory are as before or as after, each change for
//!   itself. A renaming is one change; it is durable when both directories are synced. Of more than
//!   [`EACH_FOR_ITSELF_MAX`] such changes, not every choice is made: only the first ones, all but one, and a single
//!   one.
//!
//! That is less than file systems promise: ext4, XFS and Btrfs keep changes of names in order, and mostly write the name
//! of a new file with its content. What holds here, holds there.
//!
//! Not recorded: folders, which are as the test has made them; changes that the test makes without the disk; changes that
//! fail, which have done nothing (a sync that fails has made nothing durable); temporary names; reserved blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::files::{Kind, Root};
use crate::job::op::{self, Create, Done, Lookup, Op, Open, Opened};
use crate::thread::lock;

/// Up to this number of changes of names that are not durable, every choice of them is tried.
pub const EACH_FOR_ITSELF_MAX: usize = 6;

/// The regular files in a folder: content by path, relative to the folder.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Files by path, relative to the folder.
type Names = BTreeMap<PathBuf, FileId>;

/// An index of `Log::contents`. Unlike an inode number it is not used again.
type FileId = usize;

static RECORDED: Mutex<Vec<Arc<Recorded>>> = Mutex::new(Vec::new());

/// A recording of changes in a folder. The drop ends it.
pub struct Recording(Arc<Recorded>);

struct Recorded {
    /// Absolute, without symbolic links.
    folder: PathBuf,
    log: Mutex<Log>,
}

impl Recording {
    /// Records from now on. What `folder` contains counts as durable. Blocks.
    ///
    /// # Errors
    /// Those of reading the folder and its files.
    pub fn start(folder: &Path) -> io::Result<Recording> {
        let folder = fs::canonicalize(folder)?;
        let log = Mutex::new(Log::of_folder(&folder)?);
        let recorded = Arc::new(Recorded { folder, log });
        lock(&RECORDED).push(Arc::clone(&recorded));
        Ok(Recording(recorded))
    }

    /// The number of changes so far.
    pub fn steps(&self) -> usize {
        lock(&self.0.log).steps.len()
    }

    /// Calls `check` with each state in which a crash may leave the folder, and the number of changes made before that
    /// crash: from none to all. A state may come more than once.
    pub fn each_crash(&self, mut check: impl FnMut(usize, &Files)) {
        let log = lock(&self.0.log);
        for made in 0..=log.steps.len() {
            for names in log.possible_names(made) {
                log.each_content(&names, made, |files| check(made, files));
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        lock(&RECORDED).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

/// Performs `op`, which is about the file at `path`, and records it if it changes a folder that is recorded.
pub(super) fn record(
    op: Op,
    path: &[u8],
    perform: impl FnOnce(Op) -> io::Result<Done>,
) -> io::Result<Done> {
    let path = Path::new(OsStr::from_bytes(path));
    let recorded = lock(&RECORDED)
        .iter()
        .find(|recorded| path.starts_with(&recorded.folder))
        .cloned();
    let Some(Recorded { folder, log }) = recorded.as_deref() else {
        return perform(op);
    };
    if let Some(file) = op.synced().cloned() {
        // Others go on meanwhile, and it need not cover what they do.
        let through = lock(log).steps.len();
        let done = perform(op)?;
        let name = (file.meta.kind == Kind::Directory).then(|| relative(folder, path));
        lock(log).synced(file.meta.inode, name, through);
        return Ok(done);
    }
    // One after the other, so that the order is that in which they are made.
    let mut log = lock(log);
    let done = perform(op.clone())?;
    log.changed(folder, &op, &done);
    Ok(done)
}

fn relative(folder: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(folder).unwrap_or(path).to_owned()
}

/// The content at the start, and what has changed since.
#[derive(Default)]
struct Log {
    /// At the start of the recording; empty for files created since.
    contents: Vec<Vec<u8>>,
    /// At the start of the recording.
    names: Names,
    names_now: Names,
    /// By inode number, for the files that exist now.
    files_now: HashMap<u64, FileId>,
    steps: Vec<Step>,
}

enum Step {
    Written {
        file: FileId,
        offset: u64,
        bytes: Arc<Vec<u8>>,
    },
    Named(NameChange),
    /// The first `through` steps are durable, as far as they wrote to `file`.
    FileSynced {
        file: FileId,
        through: usize,
    },
    /// The first `through` steps are durable, as far as they changed names in `folder`.
    FolderSynced {
        folder: PathBuf,
        through: usize,
    },
}

#[derive(Clone)]
enum NameChange {
    Set { name: PathBuf, file: FileId },
    Moved { from: PathBuf, to: PathBuf },
    Removed { name: PathBuf },
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Set { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Moved { from, to } => {
                // Not there if what gave it its name was lost.
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            NameChange::Removed { name } => {
                names.remove(name);
            }
        }
    }

    fn folders(&self) -> impl Iterator<Item = &Path> {
        let (name, other) = match self {
            NameChange::Set { name, .. } | NameChange::Removed { name } => (name, None),
            NameChange::Moved { from, to } => (from, Some(to)),
        };
        [Some(name), other]
            .into_iter()
            .flatten()
            .filter_map(|name| name.parent())
    }
}

impl Log {
    fn of_folder(folder: &Path) -> io::Result<Log> {
        let mut log = Log::default();
        log.add_folder(folder, Path::new(""))?;
        log.names_now = log.names.clone();
        Ok(log)
    }

    fn add_folder(&mut self, folder: &Path, beneath: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder.join(beneath))? {
            let entry = entry?;
            let (meta, name) = (entry.metadata()?, beneath.join(entry.file_name()));
            if meta.is_dir() {
                self.add_folder(folder, &name)?;
            } else if meta.is_file() {
                let known = self.files_now.get(&meta.ino()).copied();
                let file = known.unwrap_or_else(|| self.new_file(meta.ino()));
                self.contents[file] = fs::read(entry.path())?;
                self.names.insert(name, file);
            }
        }
        Ok(())
    }

    fn new_file(&mut self, inode: u64) -> FileId {
        self.contents.push(Vec::new());
        let file = self.contents.len() - 1;
        self.files_now.insert(inode, file);
        file
    }

    fn synced(&mut self, inode: u64, folder: Option<PathBuf>, through: usize) {
        let file = self.files_now.get(&inode).copied();
        let step = match (folder, file) {
            (Some(folder), _) => Some(Step::FolderSynced { folder, through }),
            (None, file) => file.map(|file| Step::FileSynced { file, through }),
        };
        self.steps.extend(step);
    }

    /// Adds what `op` has changed in `folder`.
    fn changed(&mut self, folder: &Path, op: &Op, done: &Done) {
        let name = |root: &Root, path: &CStr| {
            let path = root.path().join(OsStr::from_bytes(path.to_bytes()));
            relative(folder, &path)
        };
        match (op, done) {
            (Op::Create(create), Done::Create(file)) => {
                let name = match create {
                    Create::Spooled { .. } | Create::Nameless { .. } => None,
                    Create::Named { root, path, .. } | Create::Appended { root, path, .. } => {
                        Some(name(root, path))
                    }
                };
                self.created(file.meta.inode, name);
            }
            (Op::Write(op), _) => self.written(op.file.meta.inode, op.offset, &op.bytes),
            (Op::Append(op), Done::Append(appended)) => {
                self.written(op.file.meta.inode, appended.offset, &op.bytes);
            }
            (Op::Link(op::Link { file, root, path }), _) => {
                if let Some(file) = self.files_now.get(&file.meta.inode).copied() {
                    let name = name(root, path);
                    self.renamed(NameChange::Set { name, file });
                }
            }
            (Op::Rename(op::Rename { root, from, to, .. }), _) => {
                let (from, to) = (name(root, from), name(root, to));
                self.renamed(NameChange::Moved { from, to });
            }
            (Op::Unlink(op::Unlink { root, path, .. }), _)
            | (
                Op::Open(Open {
                    root,
                    path,
                    lookup: Lookup::Consume,
                    ..
                }),
                Done::Open(Opened {
                    not_removed: None, ..
                }),
            ) => self.renamed(NameChange::Removed {
                name: name(root, path),
            }),
            _ => {}
        }
    }

    fn created(&mut self, inode: u64, name: Option<PathBuf>) {
        if name
            .as_ref()
            .is_some_and(|name| self.names_now.contains_key(name))
        {
            // Opened to append to it.
            return;
        }
        let file = self.new_file(inode);
        if let Some(name) = name {
            self.renamed(NameChange::Set { name, file });
        }
    }

    fn written(&mut self, inode: u64, offset: u64, bytes: &Arc<Vec<u8>>) {
        if let Some(file) = self.files_now.get(&inode).copied() {
            let bytes = Arc::clone(bytes);
            self.steps.push(Step::Written {
                file,
                offset,
                bytes,
            });
        }
    }

    fn renamed(&mut self, change: NameChange) {
        change.apply(&mut self.names_now);
        self.steps.push(Step::Named(change));
    }

    /// The names that there may be when the machine crashes after `made` steps.
    fn possible_names(&self, made: usize) -> Vec<Names> {
        let changes = || {
            let steps = self.steps[..made].iter().enumerate();
            steps.filter_map(|(at, step)| match step {
                Step::Named(change) => Some((at, change)),
                _ => None,
            })
        };
        let pending: Vec<_> = changes()
            .filter(|(at, change)| {
                let mut folders = change.folders();
                !folders.all(|folder| *at < self.folder_synced(folder, made))
            })
            .map(|(at, _)| at)
            .collect();
        let names = |lost: BTreeSet<usize>| {
            let mut names = self.names.clone();
            let kept = changes().filter(|(at, _)| !lost.contains(at));
            kept.for_each(|(_, change)| change.apply(&mut names));
            names
        };
        choices(&pending).into_iter().map(names).collect()
    }

    /// How many steps are durable as far as they changed names in `folder`.
    fn folder_synced(&self, folder: &Path, made: usize) -> usize {
        self.durable(made, |step| match step {
            Step::FolderSynced {
                folder: synced,
                through,
            } if synced == folder => Some(*through),
            _ => None,
        })
    }

    /// How many steps are durable as far as they wrote to `file`.
    fn file_synced(&self, file: FileId, made: usize) -> usize {
        self.durable(made, |step| match step {
            Step::FileSynced {
                file: synced,
                through,
            } if *synced == file => Some(*through),
            _ => None,
        })
    }

    /// The most steps that one of the first `made` steps has made durable. `through` tells how many a step has.
    fn durable(&self, made: usize, through: impl Fn(&Step) -> Option<usize>) -> usize {
        let durable = self.steps[..made].iter().filter_map(through);
        durable.max().unwrap_or(0)
    }

    /// Calls `check` with the contents that the files called `names` may have.
    fn each_content(&self, names: &Names, made: usize, mut check: impl FnMut(&Files)) {
        let mut state = |loss_of: &dyn Fn(FileId) -> Loss| {
            let content = |file| self.content(file, made, loss_of(file));
            let files = names
                .iter()
                .map(|(name, file)| (name.clone(), content(*file)));
            check(&files.collect());
        };
        for loss in [Loss::Nothing, Loss::All, Loss::Zeroes] {
            state(&|_| loss);
        }
        let files: BTreeSet<_> = names.values().copied().collect();
        for file in files {
            let pending = self
                .writes(file, made)
                .filter(|write| !write.is_durable)
                .count();
            let single = (0..pending).flat_map(|write| [Loss::One(write), Loss::From(write)]);
            for loss in [Loss::All, Loss::Zeroes].into_iter().chain(single) {
                state(&|other| if other == file { loss } else { Loss::Nothing });
            }
        }
    }

    fn writes(&self, file: FileId, made: usize) -> impl Iterator<Item = Write<'_>> {
        let durable = self.file_synced(file, made);
        let steps = self.steps[..made].iter().enumerate();
        steps.filter_map(move |(at, step)| match step {
            Step::Written {
                file: written,
                offset,
                bytes,
            } if *written == file => Some(Write {
                offset: usize::try_from(*offset).expect("tests write less"),
                bytes,
                is_durable: at < durable,
            }),
            _ => None,
        })
    }

    /// The content of a file when the machine crashes after `made` steps, and what was not durable suffers `loss`.
    fn content(&self, file: FileId, made: usize, loss: Loss) -> Vec<u8> {
        let mut content = self.contents[file].clone();
        let (durable, pending): (Vec<_>, Vec<_>) =
            self.writes(file, made).partition(|write| write.is_durable);
        for write in durable {
            write.apply(&mut content);
        }
        for (number, write) in pending.into_iter().enumerate() {
            match loss {
                Loss::All => {}
                Loss::Zeroes => write.grow(&mut content),
                Loss::One(lost) if lost == number => write.grow(&mut content),
                Loss::From(lost) if lost == number => write.half().apply(&mut content),
                Loss::From(lost) if lost < number => {}
                Loss::Nothing | Loss::One(_) | Loss::From(_) => write.apply(&mut content),
            }
        }
        content
    }
}

/// What is lost of the writes to a file that were not durable.
#[derive(Clone, Copy)]
enum Loss {
    Nothing,
    All,
    /// Their bytes, but not the size that they led to.
    Zeroes,
    /// The bytes of one of them, by number.
    One(usize),
    /// The second half of one of them, and all later ones.
    From(usize),
}

#[derive(Clone, Copy)]
struct Write<'a> {
    offset: usize,
    bytes: &'a [u8],
    is_durable: bool,
}

impl Write<'_> {
    fn half(self) -> Self {
        let bytes = &self.bytes[..self.bytes.len() / 2];
        Write { bytes, ..self }
    }

    /// The size as after the write.
    fn grow(&self, content: &mut Vec<u8>) {
        let end = self.offset + self.bytes.len();
        content.resize(content.len().max(end), 0);
    }

    fn apply(&self, content: &mut Vec<u8>) {
        self.grow(content);
        content[self.offset..][..self.bytes.len()].copy_from_slice(self.bytes);
    }
}

/// Which of `pending` are lost.
fn choices(pending: &[usize]) -> Vec<BTreeSet<usize>> {
    let all = pending.iter().copied();
    if pending.len() <= EACH_FOR_ITSELF_MAX {
        let is_in = |choice: usize, bit: usize| choice >> bit & 1 == 1;
        let choice = |choice| {
            let lost = all
                .clone()
                .enumerate()
                .filter(|(bit, _)| is_in(choice, *bit));
            lost.map(|(_, at)| at).collect()
        };
        return (0..1 << pending.len()).map(choice).collect();
    }
    let after_the_first = (0..=pending.len()).map(|kept| all.clone().skip(kept).collect());
    let one = pending.iter().map(|lost| BTreeSet::from([*lost]));
    let all_but_one = pending
        .iter()
        .map(|kept| all.clone().filter(|at| at != kept).collect());
    after_the_first.chain(one).chain(all_but_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_a_few_and_some_of_many() {
        assert_eq!(choices(&[]), [BTreeSet::new()]);
        assert_eq!(choices(&[3, 5]).len(), 4);
        let most: Vec<_> = (0..EACH_FOR_ITSELF_MAX).collect();
        assert_eq!(choices(&most).len(), 1 << EACH_FOR_ITSELF_MAX);
        let many: Vec<_> = (0..=EACH_FOR_ITSELF_MAX).collect();
        let found = choices(&many);
        assert_eq!(found.len(), 3 * many.len() + 1);
        assert!(
            found.contains(&BTreeSet::new()) && found.contains(&many.iter().copied().collect())
        );
    }

    fn log_of(steps: Vec<Step>) -> Log {
        Log {
            contents: vec![b"old!".to_vec()],
            names: [("name".into(), 0)].into(),
            steps,
            ..Log::default()
        }
    }

    fn written(offset: u64, bytes: &str) -> Step {
        let bytes = Arc::new(bytes.as_bytes().to_vec());
        Step::Written {
            file: 0,
            offset,
            bytes,
        }
    }

    fn contents(log: &Log, made: usize) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for names in log.possible_names(made) {
            log.each_content(&names, made, |files| {
                let text = |content: &Vec<u8>| String::from_utf8(content.clone()).unwrap();
                found.extend(files.values().map(text));
            });
        }
        found
    }

    #[test]
    fn bytes_that_were_not_synced_are_there_or_missing_or_zeroes() {
        let log = log_of(vec![
            written(4, "ab"),
            written(2, "cd"),
            Step::FileSynced {
                file: 0,
                through: 1,
            },
        ]);
        assert_eq!(contents(&log, 0), ["old!".to_owned()].into());
        let expected = ["old!", "old!a", "old!\0\0", "old!ab"];
        assert_eq!(contents(&log, 1), expected.map(str::to_owned).into());
        let after = contents(&log, 2);
        assert!(
            after.contains("olcd") || after.contains("olcd\0\0"),
            "{after:?}"
        );
        // The sync began before the second write.
        let expected = ["old!ab", "olc!ab", "olcdab"];
        assert_eq!(contents(&log, 3), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_renaming_is_durable_with_both_folders() {
        let change = NameChange::Moved {
            from: "name".into(),
            to: "folder/name".into(),
        };
        let synced = |folder: &str, through| Step::FolderSynced {
            folder: folder.into(),
            through,
        };
        let log = log_of(vec![
            Step::Named(change),
            synced("", 1),
            synced("folder", 0),
            synced("folder", 1),
        ]);
        let counts = [0, 1, 2, 3, 4].map(|made| log.possible_names(made).len());
        assert_eq!(counts, [1, 2, 2, 2, 1]);
        assert!(log.possible_names(4)[0].contains_key(Path::new("folder/name")));
    }
}
