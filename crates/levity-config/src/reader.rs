//! The texts of files on their way to a configuration. Every problem is collected, none ends the reading, so that one
//! run reports all of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::absent_roots::AbsentRoots;
use crate::line::{Line, Note};
use crate::problem::Problem;
use crate::schema::Schema;
use crate::source::Source;
use crate::strings::Strings;
use crate::syntax;

/// The texts of files, and what has been reported about them so far.
pub(crate) struct Reader<'t> {
    pub(crate) source: Source<'t>,
    pub(crate) schema: Schema,
    /// The strings with values from variables.
    pub(crate) strings: Strings,
    /// Whether paths are checked on the disk, and files that are named are read.
    pub(crate) is_loaded: bool,
    /// The folder of the credentials of the service, if there is one.
    pub(crate) credentials: Option<PathBuf>,
    /// The credentials that cannot be used, and of which that was said.
    pub(crate) unusable_credentials: RefCell<BTreeSet<String>>,
    /// Whether the certificates of sites are read from their files.
    pub(crate) reads_certificates: bool,
    /// Roots whose absence is no error.
    pub(crate) absent_roots: AbsentRoots,
    /// Whether files that are included could not be read.
    pub(crate) is_incomplete: bool,
    /// Lines with a syntax error, or with what is not in this build. Further errors there are only its consequences.
    broken: BTreeSet<usize>,
    /// Each with its first byte.
    problems: RefCell<Vec<(Option<usize>, Problem)>>,
    /// Remarks that are not errors.
    notes: RefCell<Vec<Note>>,
    /// What is sent to nobody, in the order in which it is read.
    pub(crate) secrets: RefCell<Vec<NamedFile>>,
    /// What the configuration names, except credentials of the service.
    pub(crate) paths: RefCell<Vec<NamedFile>>,
    /// The files of access logs.
    pub(crate) logs: RefCell<Vec<NamedFile>>,
    /// Files that do not respond, and that no table has taken yet, each with the place of its name.
    unread: RefCell<Vec<PathBuf>>,
}

/// A file or a folder that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// That of its key; `None` for the configuration itself.
    pub line: Option<Line>,
    /// Absolute when it comes from [`load`](crate::load()).
    pub path: PathBuf,
}

impl<'t> Reader<'t> {
    /// For texts alone: nothing is looked for on the disk.
    pub(crate) fn new(source: Source<'t>, schema: Schema) -> Self {
        Reader {
            source,
            schema,
            strings: Strings::default(),
            is_loaded: false,
            absent_roots: AbsentRoots::None,
            credentials: None,
            unusable_credentials: RefCell::default(),
            reads_certificates: false,
            is_incomplete: false,
            broken: BTreeSet::new(),
            problems: RefCell::default(),
            notes: RefCell::default(),
            secrets: RefCell::default(),
            paths: RefCell::default(),
            logs: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    /// Reports the errors of the TOML parser in the file that begins with the byte `start`, the first of each line.
    pub(crate) fn syntax(
        &mut self,
        start: usize,
        document: &DeTable<'_>,
        mut errors: Vec<toml::de::Error>,
    ) {
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        if let Some(opening) = syntax::opening(document, &errors) {
            errors.retain(|error| error.span().is_some_and(|span| span.start < opening));
            let opening = start + opening;
            self.broken.extend(self.source.lines_from(opening));
            let help = "nothing below closes it".to_owned();
            self.report(&(opening..opening + 1), "unclosed bracket", Some(help));
        }
        for error in errors {
            let span = error.span().unwrap_or_default();
            let span = start + span.start..start + span.end;
            if self.broken.insert(self.source.row(span.start)) {
                let (message, help) = syntax::explain(&error, self.source.slice(&span));
                self.report(&span, message, help);
            }
        }
    }

    /// Has nothing else said of the line of `span`, which has been reported.
    pub(crate) fn set_aside(&mut self, span: &Range<usize>) {
        self.broken.insert(self.source.row(span.start));
    }

    /// The folder of relative paths at `span`; `None` where they stay relative.
    pub(crate) fn folder(&self, span: &Range<usize>) -> Option<&'t Path> {
        self.source.folder(span.start)
    }

    /// The notes in the order of the files.
    pub(crate) fn take_notes(&self) -> Vec<Note> {
        let mut notes = self.notes.take();
        notes.sort_by_key(|note| note.line.as_ref().map(|line| line.order));
        notes
    }

    /// The paths of what is sent to nobody, each once.
    pub(crate) fn take_secrets(&self) -> Vec<PathBuf> {
        let secrets = self.secrets.take().into_iter();
        let paths: BTreeSet<_> = secrets.map(|secret| secret.path).collect();
        paths.into_iter().collect()
    }

    pub(crate) fn note(&self, span: &Range<usize>, message: String) {
        let (message, _) = self.strings.hide(Some(span), &message, None);
        self.push_note(Some(self.line(span)), message);
    }

    /// Notes something about the table on a line; `None` is the main file.
    pub(crate) fn note_at(&self, line: Option<&Line>, message: &str) {
        let (message, _) = self.strings.hide(None, message, None);
        self.push_note(line.cloned(), message);
    }

    fn push_note(&self, line: Option<Line>, text: String) {
        self.notes.borrow_mut().push(Note { line, text });
    }

    /// Notes that a file, the value of `name`, does not respond.
    pub(crate) fn leave_unread(&self, span: &Range<usize>, name: &str, path: &Path) {
        let shown = path.display();
        let note = format!(
            "`{name}`: {shown} does not respond; requests that need it get 503 until it does"
        );
        self.note(span, note);
        self.unread.borrow_mut().push(path.to_owned());
    }

    /// What does not respond of the files that were named since the last call. Whoever takes them has to do without.
    pub(crate) fn take_unread(&self) -> Vec<PathBuf> {
        self.unread.take()
    }

    /// The problems in the order of the files, each with its first byte.
    pub(crate) fn take_problems(&self) -> Vec<(Option<usize>, Problem)> {
        let mut problems = self.problems.take();
        problems.sort_by_key(|(start, _)| *start);
        problems
    }

    pub(crate) fn report(
        &self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.push(Some(span), message.into(), help);
    }

    /// Reports a problem of a file that is missing from the texts, and that the string at `span` names.
    pub(crate) fn report_file(&self, span: &Range<usize>, problem: Problem) {
        self.problems.borrow_mut().push((Some(span.start), problem));
    }

    fn push(&self, span: Option<&Range<usize>>, message: String, help: Option<String>) {
        let (message, help) = self.strings.hide(span, &message, help);
        let problem = Problem {
            message,
            file: span.and_then(|span| self.line(span).file),
            position: span.map(|span| self.source.position(span)),
            help,
        };
        let start = span.map(|span| span.start);
        self.problems.borrow_mut().push((start, problem));
    }

    /// Reports that something is absent, unless a file has a syntax error, which may have hidden it, or could not be read.
    pub(crate) fn report_absent(
        &self,
        span: Option<&Range<usize>>,
        message: String,
        help: Option<String>,
    ) {
        if self.broken.is_empty() && !self.is_incomplete {
            self.push(span, message, help);
        }
    }

    /// The line of a span.
    pub(crate) fn line(&self, span: &Range<usize>) -> Line {
        self.source.line(span.start)
    }

    /// Whether `span` touches a line with a syntax error.
    pub(crate) fn is_broken(&self, span: &Range<usize>) -> bool {
        let first = self.source.row(span.start);
        let last = self.source.row(span.end.max(span.start + 1) - 1);
        self.broken.range(first..=last).next().is_some()
    }
}
