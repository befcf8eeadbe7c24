//! The text of a file on its way to a configuration. Every problem is collected, none ends the reading, so that one
//! run reports all of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::problem::{Problem, Source};
use crate::schema::Schema;
use crate::syntax;

/// The text of a file, and what has been reported about it so far.
pub(crate) struct Reader<'t> {
    pub(crate) source: Source<'t>,
    pub(crate) schema: Schema,
    /// The folder of relative paths. `None` means that paths are not checked on the disk.
    pub(crate) base: Option<&'t Path>,
    /// Whether the certificates of sites are read from their files.
    pub(crate) reads_certificates: bool,
    /// Lines with a syntax error. Further errors there are only its consequences.
    broken: BTreeSet<usize>,
    problems: RefCell<Vec<Problem>>,
    /// Remarks that are not errors, each with its line.
    notes: RefCell<Vec<(usize, String)>>,
    /// What is sent to nobody, in the order in which it is read.
    pub(crate) secrets: RefCell<Vec<NamedFile>>,
    /// The files of access logs.
    pub(crate) logs: RefCell<Vec<NamedFile>>,
    /// Files that do not respond, and that no table has taken yet, each with the place of its name.
    unread: RefCell<Vec<PathBuf>>,
}

/// A file, or a folder with everything in it, that is not for clients.
pub(crate) struct NamedFile {
    /// The line of its key; `None` for the configuration itself.
    pub(crate) line: Option<usize>,
    pub(crate) path: PathBuf,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str, base: Option<&'t Path>, schema: Schema) -> Self {
        Reader {
            source: Source::new(text),
            schema,
            base,
            reads_certificates: base.is_some(),
            broken: BTreeSet::new(),
            problems: RefCell::default(),
            notes: RefCell::default(),
            secrets: RefCell::default(),
            logs: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    /// Reports the errors of the TOML parser, the first of each line.
    pub(crate) fn syntax(&mut self, document: &DeTable<'_>, mut errors: Vec<toml::de::Error>) {
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        if let Some(opening) = syntax::opening(document, &errors) {
            errors.retain(|error| error.span().is_some_and(|span| span.start < opening));
            self.broken.extend(self.source.lines_from(opening));
            let help = "nothing below closes it".to_owned();
            self.report(&(opening..opening + 1), "unclosed bracket", Some(help));
        }
        for error in errors {
            let span = error.span().unwrap_or_default();
            if self.broken.insert(self.source.line(span.start)) {
                let (message, help) = syntax::explain(&error, self.source.slice(&span));
                self.report(&span, message, help);
            }
        }
    }

    /// The notes in the order of the file.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        let mut notes = self.notes.take();
        notes.sort_by_key(|(line, _)| *line);
        let shown = |(line, message)| format!("line {line}: {message}");
        notes.into_iter().map(shown).collect()
    }

    /// The paths of what is sent to nobody, each once.
    pub(crate) fn take_secrets(&self) -> Vec<PathBuf> {
        let secrets = self.secrets.take().into_iter();
        let paths: BTreeSet<_> = secrets.map(|secret| secret.path).collect();
        paths.into_iter().collect()
    }

    pub(crate) fn note(&self, span: &Range<usize>, message: String) {
        self.note_at(self.line(span), message);
    }

    /// Notes something about the table on a line, counted from 1.
    pub(crate) fn note_at(&self, line: usize, message: String) {
        self.notes.borrow_mut().push((line, message));
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

    /// The problems in the order of the file.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| {
            let position = problem.position.as_ref()?;
            Some((position.line, position.column))
        });
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

    fn push(&self, span: Option<&Range<usize>>, message: String, help: Option<String>) {
        self.problems.borrow_mut().push(Problem {
            message,
            position: span.map(|span| self.source.position(span)),
            help,
        });
    }

    /// Reports that something is absent, unless the file has a syntax error, which may have hidden it.
    pub(crate) fn report_absent(
        &self,
        span: Option<&Range<usize>>,
        message: String,
        help: Option<String>,
    ) {
        if self.broken.is_empty() {
            self.push(span, message, help);
        }
    }

    /// The line of a span, counted from 1.
    pub(crate) fn line(&self, span: &Range<usize>) -> usize {
        self.source.line(span.start) + 1
    }

    /// Whether `span` touches a line with a syntax error.
    pub(crate) fn is_broken(&self, span: &Range<usize>) -> bool {
        let first = self.source.line(span.start);
        let last = self.source.line(span.end.max(span.start + 1) - 1);
        self.broken.range(first..=last).next().is_some()
    }
}
