//! Secrets, which stand in the configuration or in a file.

use std::fmt;

use super::Section;

/// The maximum length of the file of a secret in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// Bytes that belong in no output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A secret, which stands in the configuration or in a file.
pub(crate) struct GivenSecret {
    /// The value, or the first line of the file; `None` for a file that was not read, since the configuration was not loaded from the
    /// disk or the file does not respond, which is noted.
    pub(crate) text: Option<String>,
    /// The key that gives it.
    pub(crate) key: String,
}

impl Section<'_> {
    /// The secret of the key `name`, or of the file that the key with `_file` behind it names. `None` if neither is given, or they are
    /// wrong, which is reported. A file that does not respond is [unread](Reader::unread). May block.
    pub(crate) fn secret(&self, name: &str) -> Option<GivenSecret> {
        let file_key = format!("{name}_file");
        let may_be_here = self
            .table
            .keys
            .iter()
            .any(|key| key.name == name && key.has_file);
        if !may_be_here || !self.has(name) {
            let (_, text) = self.file_text(&file_key, SECRET_BYTES_MAX)?;
            let line = |text: String| text.lines().next().unwrap_or_default().to_owned();
            return Some(GivenSecret {
                text: text.map(line),
                key: file_key,
            });
        }
        let given = self.text(name)?;
        if self.has(&file_key) {
            self.report(name, format_args!("`{file_key}` is given too"), None);
            return None;
        }
        Some(GivenSecret {
            text: Some(given.text.to_owned()),
            key: name.to_owned(),
        })
    }

    /// The bytes of [a secret](Self::secret), which are at least `bytes_min`; less is reported. None of a file that was not read.
    /// May block.
    pub(crate) fn secret_of(&self, name: &str, bytes_min: usize) -> Option<Secret> {
        let given = self.secret(name)?;
        let Some(text) = given.text else {
            return Some(Secret(Vec::new()));
        };
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default();
        if lines.next().is_some() {
            self.report(&given.key, "a secret is one line", None);
        }
        if line.len() < bytes_min {
            let message = format_args!("a secret has at least {bytes_min} bytes");
            let help = "`openssl rand -hex 32` makes one".to_owned();
            self.report(&given.key, message, Some(help));
        }
        Some(Secret(line.as_bytes().to_vec()))
    }
}
