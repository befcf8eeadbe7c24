//! Keys whose values are paths, and what is at these paths.

use std::path::{Path, PathBuf};

use super::{Section, Text};
use crate::on_disk::{Unusable, is_directory, text_of};
use crate::reader::NamedFile;

/// Begins the path of a credential of the service.
const CREDENTIAL: &str = "credential:";

impl Section<'_> {
    /// A path, taken from the folder of the file in which it stands; `None` when the key is absent or wrong.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.joined(name, &self.text(name)?)
    }

    /// The path of a folder, which must exist when the file was loaded from the disk; `None` when the
    /// key is absent or no path. May block.
    pub(crate) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.existing(name, &self.text(name)?, |_| false)
    }

    /// The same for a root, which [may be absent](Reader::absent_roots).
    pub(crate) fn root_folder(&self, name: &str) -> Option<PathBuf> {
        self.existing(name, &self.text(name)?, |path| {
            self.reader.absent_roots.permit(path)
        })
    }

    /// Paths of folders as for [`Self::folder`]; empty when the key is absent or wrong. May block.
    pub(crate) fn folders(&self, name: &str) -> Vec<PathBuf> {
        let given = self.names(name).unwrap_or_default();
        given
            .iter()
            .filter_map(|text| self.existing(name, text, |_| false))
            .collect()
    }

    fn existing(
        &self,
        name: &str,
        given: &Text<'_>,
        may_be_absent: impl Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let path = self.joined(name, given)?;
        if !self.reader.is_loaded {
            return Some(path);
        }
        let shown = path.display();
        match is_directory(&path) {
            Ok(()) => {}
            Err(Unusable::Silent) => {
                let note = format!(
                    "`{name}`: {shown} does not respond; what needs it gets 503 until it does"
                );
                self.reader.note(&given.span, note);
            }
            Err(Unusable::Absent(reason)) if may_be_absent(&path) => {
                let note = format!(
                    "`{name}`: {shown} {reason}; what needs it gets 503 until that changes"
                );
                self.reader.note(&given.span, note);
            }
            Err(Unusable::Absent(reason) | Unusable::Wrong(reason)) => {
                let message = format!("`{name}`: {shown} {reason}");
                let of_home = given.text == "~" || given.text.starts_with("~/");
                let help =
                    of_home.then(|| "`~` is not expanded: write the path in full".to_owned());
                self.reader.report(&given.span, message, help);
            }
        }
        Some(path)
    }

    /// Whether the configuration was loaded from the disk, and so files that it names are read.
    pub(crate) fn reads_files(&self) -> bool {
        self.reader.is_loaded
    }

    /// The text of a file; none when the configuration was not loaded from the disk, or the file does not respond, which is noted: it
    /// is [unread](Reader::unread). `None` when the key is absent or wrong, and when the file cannot be read or is longer than
    /// `bytes_max`, which is reported. Blocks.
    pub(crate) fn file_text(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Option<(PathBuf, Option<String>)> {
        let given = self.text(name)?;
        let path = self.joined(name, &given)?;
        if !self.reader.is_loaded {
            return Some((path, None));
        }
        match text_of(&path, bytes_max) {
            Ok(text) => Some((path, Some(text))),
            Err(Unusable::Silent) => {
                self.reader.leave_unread(&given.span, name, &path);
                Some((path, None))
            }
            Err(Unusable::Absent(reason) | Unusable::Wrong(reason)) => {
                let credential = given.text.strip_prefix(CREDENTIAL);
                if credential.is_none_or(|credential| self.is_first_unusable(credential)) {
                    given.refuse(format!("`{name}`: {} {reason}", path.display()));
                }
                None
            }
        }
    }

    /// Has the file at `path`, a value of `name`, sent to nobody. Values of secret keys need no call.
    pub(crate) fn withhold(&self, name: &str, path: &Path) {
        let file = self.named_file(name, path);
        self.reader.secrets.borrow_mut().push(file);
    }

    /// `path` as a value of `name`.
    pub(crate) fn named_file(&self, name: &str, path: &Path) -> NamedFile {
        NamedFile {
            line: Some(self.reader.line(&self.span_of(name))),
            path: path.to_owned(),
        }
    }

    /// Reports that the folder of `path`, the value of `name`, does not exist, and if the server does not start without it, that it does
    /// not respond. Checks only when the file was loaded from the disk. May block.
    pub(crate) fn must_have_folder(&self, name: &str, path: &Path, is_needed: bool) {
        let folder = path.parent().filter(|_| self.reader.is_loaded);
        match folder.map(|folder| (folder.display(), is_directory(folder))) {
            Some((folder, Err(Unusable::Silent))) if !is_needed => {
                self.note(name, format!("{folder} does not respond"));
            }
            Some((folder, Err(Unusable::Silent))) => {
                self.report(name, format_args!("{folder} does not respond"), None);
            }
            Some((folder, Err(Unusable::Absent(reason) | Unusable::Wrong(reason)))) => {
                self.report(name, format_args!("{folder} {reason}"), None);
            }
            Some((_, Ok(()))) | None => {}
        }
    }

    /// The path of a text of `name`. That of a secret key is sent to nobody.
    pub(crate) fn joined(&self, name: &str, given: &Text<'_>) -> Option<PathBuf> {
        if given.text.is_empty() || given.text.contains('\0') {
            given.refuse(format!("`{name}`: not a path"));
            return None;
        }
        let folder = self.reader.folder(&given.span);
        let path = match given.text.strip_prefix(CREDENTIAL) {
            Some(credential) => self.credential(name, credential, given)?,
            None => {
                let path = folder.unwrap_or(Path::new("")).join(given.text);
                let named = self.named_file(name, &path);
                self.reader.paths.borrow_mut().push(named);
                path
            }
        };
        if self.table.key(name).is_secret {
            self.withhold(name, &path);
        }
        Some(path)
    }

    /// Whether nothing was said so far about a credential that cannot be used. What helps once helps wherever it is named.
    fn is_first_unusable(&self, credential: &str) -> bool {
        let mut unusable = self.reader.unusable_credentials.borrow_mut();
        unusable.insert(credential.to_owned())
    }

    /// The path of a credential of the service (systemd.exec(5)). A text without a file has none: its path stays.
    fn credential(&self, name: &str, credential: &str, given: &Text<'_>) -> Option<PathBuf> {
        if credential.is_empty() || credential.contains('/') || credential.starts_with('.') {
            let message =
                format!("`{name}`: what follows `{CREDENTIAL}` is not the name of a credential");
            given.refuse(message);
            return None;
        }
        match &self.reader.credentials {
            _ if !self.reader.is_loaded => Some(PathBuf::from(given.text)),
            Some(folder) => Some(folder.join(credential)),
            None if !self.is_first_unusable(credential) => None,
            None => {
                let message = format!(
                    "`{name}`: there are no credentials: `$CREDENTIALS_DIRECTORY` is not set"
                );
                let help = format!(
                    "outside of the service, set it to a folder with a file `{credential}`, or use `--env-file` of `check`, `explain` or \
                     `certs` with `CREDENTIALS_DIRECTORY=FOLDER`; in the unit, `LoadCredential={credential}:PATH` beneath [Service] sets it"
                );
                given.refuse_with(message, help);
                None
            }
        }
    }
}
