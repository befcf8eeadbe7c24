//! The files of a configuration: the main one, and those that its `include` names.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use levity_disk::patiently_for_each;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::INCLUDE;
use crate::include::{Matched, expand};
use crate::on_disk::Writers;
use crate::problem::{Errors, Problem};
use crate::source::{Part, Source};
use crate::variables::{Variables, substitute};

/// The maximum length of a configuration file in bytes. A longer one is most likely another file.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of files that are included.
pub(crate) const FILES_MAX: usize = 4096;

/// The maximum length of all files together in bytes.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// So many files are read before their length is added up: a bound on the memory for those that are too many.
const BATCH: usize = 16;

/// The texts of all files of a configuration. Files that could not be read are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The main one first; empty for a configuration without a file.
    texts: Vec<FileText>,
    /// Remarks about them, each with the string of `include` that names the file, in bytes of the main file; without it they are about
    /// that one.
    pub(crate) notes: Vec<(Option<Range<usize>>, String)>,
    /// The folders in which files are looked for.
    listed: Vec<PathBuf>,
    /// Files of a folder that no string of `include` names, but whose names have only another end than what one names, each folder
    /// with that string.
    passed_over: Vec<(Range<usize>, Vec<PathBuf>)>,
    /// What is wrong with those that are missing, each with the string of `include` that names them.
    pub(crate) problems: Vec<(Range<usize>, Wrong)>,
    /// Whether each of the problems is that a file does not respond.
    pub(crate) is_silent: bool,
    /// Whether files may be missing that are not among the problems: `include` does not say which.
    is_unnamed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It names no file.
    Name(String),
    /// There is a file, which cannot be used.
    File(Problem),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileText {
    /// As messages name it.
    name: Arc<Path>,
    /// Absolute.
    path: PathBuf,
    text: Arc<str>,
}

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity(u64, u64);

/// A file that was read.
struct Read {
    /// Absolute.
    path: PathBuf,
    bytes: Vec<u8>,
    meta: Metadata,
}

impl Read {
    fn identity(&self) -> Identity {
        Identity(self.meta.dev(), self.meta.ino())
    }

    /// Says that others may write to it, if they may. Whoever gives a pipe or a device has chosen it.
    fn writable(&self, writers: &Writers) -> Option<String> {
        writers.others(&self.meta).filter(|_| self.meta.is_file())
    }
}

impl Files {
    /// Reads the files. `variables` are for references in `include`. May block.
    ///
    /// # Errors
    /// When the main file cannot be read, is not UTF-8 or has more than 1 MiB. What is wrong with others is in
    /// [`Self::problems`].
    pub(crate) fn read(main: &Path, variables: &Variables) -> Result<Self, Errors> {
        let failed = |problem, is_silent| Errors {
            file: main.to_owned(),
            problems: vec![problem],
            is_silent,
        };
        let read = patiently_for_each(&[main.to_owned()], read);
        let read = read.into_iter().next().expect("there is one path");
        let read = read.and_then(|read| read).map_err(|error| {
            let (problem, is_silent) = unreadable(&error);
            failed(problem, is_silent)
        })?;
        let mut reading = Reading::new(main, &read);
        if let Some(others) = read.writable(&reading.writers) {
            reading.files.note(None, others);
        }
        let text = text(read.bytes).map_err(|problem| failed(problem, false))?;
        let included = included(&text, variables);
        reading.files.is_unnamed = included.is_none();
        reading.files.texts.push(FileText {
            name: main.into(),
            path: read.path,
            text: text.into(),
        });
        reading.include(&included.unwrap_or_default());
        Ok(reading.files)
    }

    /// Whether files are missing, so that what is not in the others may be in them.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_unnamed || !self.problems.is_empty()
    }

    /// The names of all, the main file first, as messages name them.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.texts.iter().map(|file| &*file.name)
    }

    /// The absolute paths of all.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.texts.iter().map(|file| file.path.as_path())
    }

    /// The folders in which `include` looks for files, as messages name them.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.listed.iter().map(PathBuf::as_path)
    }

    /// The name of the main file.
    pub(crate) fn main(&self) -> PathBuf {
        let main = self.names().next();
        main.map(Path::to_owned).unwrap_or_default()
    }

    /// The texts. A file that is alone has no name.
    pub(crate) fn parts(&self) -> Vec<Part<'_>> {
        let is_alone = self.texts.len() == 1;
        let parts = self.texts.iter().map(|file| Part {
            name: (!is_alone).then(|| file.name.clone()),
            folder: Some(file.path.parent().unwrap_or(Path::new("/"))),
            text: &file.text,
        });
        parts.collect()
    }

    /// Remarks about files that seem to be meant for `include`, except those for which `is_named` is true, each with the string of
    /// `include`.
    pub(crate) fn notes_about_passed_over(
        &self,
        is_named: impl Fn(&Path) -> bool,
    ) -> Vec<(Range<usize>, String)> {
        let passed_over = self.passed_over.iter();
        let notes = passed_over.filter_map(|(span, paths)| {
            let mut paths = paths.iter().filter(|path| !is_named(path));
            let shown = paths.next()?.display();
            let note = match paths.count() {
                0 => format!("{shown} is not included: its name does not end in `.toml`"),
                more => format!(
                    "{shown} and {more} more there are not included: their names do not end in `.toml`"
                ),
            };
            Some((span.clone(), note))
        });
        notes.collect()
    }

    fn note(&mut self, span: Option<&Range<usize>>, text: String) {
        self.notes.push((span.cloned(), text));
    }

    /// `is_silent` is whether that is only that a file does not respond.
    fn report(&mut self, span: &Range<usize>, wrong: Wrong, is_silent: bool) {
        self.is_silent = is_silent && (self.problems.is_empty() || self.is_silent);
        self.problems.push((span.clone(), wrong));
    }
}

/// A string of `include` with its position.
type Included = (Range<usize>, String);

/// The strings of `include` in the text of the main file; `None` if something is wrong with one of them, which is reported when the
/// text is read.
fn included(text: &str, variables: &Variables) -> Option<Vec<Included>> {
    let (document, _) = DeTable::parse_recoverable(text);
    let Some(include) = document.get_ref().get(INCLUDE) else {
        return Some(Vec::new());
    };
    let string = |element: &Spanned<DeValue<'_>>| {
        let given = element.get_ref().as_str()?;
        let substituted = substitute(given, variables).ok()?;
        let text = substituted.map_or_else(|| given.to_owned(), |one| one.value);
        Some((element.span(), text))
    };
    include.get_ref().as_array()?.iter().map(string).collect()
}

/// Files that are being read.
struct Reading {
    files: Files,
    /// The folder of the main file, as messages name it.
    folder: PathBuf,
    /// The first name of each file.
    known: HashMap<Identity, PathBuf>,
    bytes: usize,
    writers: Writers,
}

impl Reading {
    fn new(main: &Path, read: &Read) -> Self {
        Self {
            files: Files::default(),
            folder: main.parent().unwrap_or(Path::new("")).to_owned(),
            known: HashMap::from([(read.identity(), main.to_owned())]),
            bytes: read.bytes.len(),
            writers: Writers::default(),
        }
    }

    /// Reads the files that are named so.
    fn include(&mut self, included: &[Included]) {
        let mut paths = Vec::new();
        let mut seen = HashSet::new();
        for (span, given) in included {
            let named = match expand(&self.folder, given, FILES_MAX, &self.writers) {
                Ok(matched) => self.matched(span, given, matched),
                Err((reason, is_silent)) => {
                    self.files.report(span, Wrong::Name(reason), is_silent);
                    continue;
                }
            };
            let new = named.into_iter().filter(|path| seen.insert(path.clone()));
            paths.extend(new.map(|path| (span.clone(), path)));
            if paths.len() > FILES_MAX {
                let message = format!("more than {FILES_MAX} files are included");
                return self.files.report(span, Wrong::Name(message), false);
            }
        }
        for batch in paths.chunks(BATCH) {
            if !self.read(batch) {
                return;
            }
        }
    }

    /// The files that a string names; says what is remarkable about them.
    fn matched(&mut self, span: &Range<usize>, given: &str, matched: Matched) -> Vec<PathBuf> {
        if let Some(absent) = matched.absent.filter(|_| matched.paths.is_empty()) {
            let note = format!(
                "no file matches `{given}`: there is no {}",
                absent.display()
            );
            self.files.note(Some(span), note);
        }
        self.files.listed.extend(matched.listed);
        let passed_over = matched.passed_over.into_iter();
        let passed_over = passed_over.map(|paths| (span.clone(), paths));
        self.files.passed_over.extend(passed_over);
        for (folder, others) in matched.writable {
            let note = format!("{}: {others}", folder.display());
            self.files.note(Some(span), note);
        }
        matched.paths
    }

    /// Reads some files, each with the string that names it. False if they are too long for what is left.
    fn read(&mut self, batch: &[(Range<usize>, PathBuf)]) -> bool {
        let paths: Vec<_> = batch.iter().map(|(_, path)| path.clone()).collect();
        let results = patiently_for_each(&paths, read_regular);
        for ((span, path), result) in batch.iter().zip(results) {
            let read = match result.and_then(|result| result) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let message = format!("cannot read {}: {error}", path.display());
                    self.files.report(span, Wrong::Name(message), false);
                    continue;
                }
                Err(error) => {
                    let (problem, is_silent) = unreadable(&error);
                    self.refuse(span, path, problem, is_silent);
                    continue;
                }
            };
            self.bytes += read.bytes.len();
            if self.bytes > BYTES_MAX {
                let message = format!("the files have more than {BYTES_MAX} bytes together");
                self.files.report(span, Wrong::Name(message), false);
                return false;
            }
            self.add(span, path, read);
        }
        true
    }

    fn add(&mut self, span: &Range<usize>, path: &Path, read: Read) {
        let shown = path.display();
        let identity = read.identity();
        if let Some(first) = self.known.get(&identity) {
            if first != path {
                let note = format!("{shown} is {}, which counts once", first.display());
                self.files.note(Some(span), note);
            }
            return;
        }
        self.known.insert(identity, path.to_owned());
        if let Some(others) = read.writable(&self.writers) {
            self.files.note(Some(span), format!("{shown}: {others}"));
        }
        match text(read.bytes) {
            Ok(text) => self.files.texts.push(FileText {
                name: path.into(),
                path: read.path,
                text: text.into(),
            }),
            Err(problem) => self.refuse(span, path, problem, false),
        }
    }

    /// Reports a problem of the file at `path`.
    fn refuse(&mut self, span: &Range<usize>, path: &Path, problem: Problem, is_silent: bool) {
        let problem = Problem {
            file: Some(path.into()),
            ..problem
        };
        self.files.report(span, Wrong::File(problem), is_silent);
    }
}

/// The problem of a file that cannot be read, and whether that is only that it does not respond.
fn unreadable(error: &io::Error) -> (Problem, bool) {
    let is_silent = error.kind() == io::ErrorKind::TimedOut;
    let message = format!("cannot read the file: {error}");
    (Problem::without_position(message), is_silent)
}

/// Reads a file that has to be one: a pipe, or a device, may never end.
fn read_regular(path: &Path) -> io::Result<Read> {
    // Before it is opened, which waits for whoever writes to a pipe.
    match fs::metadata(path)?.is_file() {
        true => read(path),
        false => Err(io::Error::other("it is no regular file")),
    }
}

fn read(path: &Path) -> io::Result<Read> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    file.by_ref()
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(Read {
        path: absolute(path)?,
        bytes,
        meta,
    })
}

/// The absolute path without `..`, so that a folder has one name. Links behind the last `..` stay: what is beside a link belongs to it.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let components: Vec<_> = path.components().collect();
    let last = components
        .iter()
        .rposition(|one| *one == Component::ParentDir);
    let (above, rest) = components.split_at(last.map_or(0, |last| last + 1));
    match above {
        [] => Ok(path),
        _ => Ok(fs::canonicalize(above.iter().collect::<PathBuf>())?
            .join(rest.iter().collect::<PathBuf>())),
    }
}

/// The text of a file; otherwise what is wrong with it.
fn text(bytes: Vec<u8>) -> Result<String, Problem> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the file has more than {FILE_BYTES_MAX} bytes");
        return Err(Problem::without_position(message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let shown = String::from_utf8_lossy(error.as_bytes());
        let wrong = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
        Problem {
            position: Some(Source::new(&shown, None).position(&wrong)),
            ..Problem::without_position("the file is not UTF-8".to_owned())
        }
    })
}
