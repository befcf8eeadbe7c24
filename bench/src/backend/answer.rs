//! Responses: a body of a given length, through the socket or in a temporary file.

use super::command::Backend;
use super::{Protocol, fastcgi, http};
use crate::corpus;
use crate::failure::{Context, Failure, Result};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

/// The bytes of a response.
pub(super) type Bytes = Rc<[u8]>;

/// The folder of temporary files, and the header that names one.
struct Files {
    dir: PathBuf,
    field: String,
    prefix: String,
    /// The number of files that are kept before the oldest is removed; 0 if the proxy removes them.
    kept: usize,
    made: VecDeque<PathBuf>,
    count: u64,
}

/// Responses that have been made.
pub(super) struct Answers {
    protocol: Protocol,
    known: HashMap<String, Bytes>,
    bodies: HashMap<(usize, bool), Rc<Vec<u8>>>,
    files: Option<Files>,
}

/// A parsed query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    bytes: usize,
    is_json: bool,
    is_chunked: bool,
    is_file: bool,
}

impl Form {
    fn of(target: &str) -> Result<Self> {
        let (_, query) = target.split_once('?').unwrap_or_default();
        let mut form = Self {
            bytes: 0,
            is_json: false,
            is_chunked: false,
            is_file: false,
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').unwrap_or((part, "")) {
                ("bytes", number) => form.bytes = number.parse().context(|| target.into())?,
                ("json", _) => form.is_json = true,
                ("chunked", _) => form.is_chunked = true,
                ("file", _) => form.is_file = true,
                _ => return Err(Failure::new(format!("{target}: what is {part}?"))),
            }
        }
        Ok(form)
    }
}

impl Answers {
    pub(super) fn new(options: &Backend) -> Self {
        let files = options.files.as_ref().map(|dir| Files {
            dir: dir.clone(),
            field: options.field.clone(),
            prefix: options
                .prefix
                .clone()
                .unwrap_or_else(|| format!("{}/", dir.display())),
            kept: options.kept,
            made: VecDeque::new(),
            count: 0,
        });
        Self {
            protocol: options.protocol,
            known: HashMap::new(),
            bodies: HashMap::new(),
            files,
        }
    }

    /// The response to this path and query, and the ID of the request.
    ///
    /// # Errors
    /// The query is invalid, or a temporary file cannot be made.
    pub(super) fn to(&mut self, target: &str) -> Result<(Bytes, Option<String>)> {
        let (form, id) = match target.split_once("&id=") {
            Some((form, id)) => (form, Some(id.to_owned())),
            None => (target, None),
        };
        if let Some(known) = self.known.get(form) {
            return Ok((Rc::clone(known), id));
        }
        let asked = Form::of(form)?;
        let body = self.body(asked);
        if asked.is_file {
            return Ok((self.in_a_file(&body)?, id));
        }
        let media_type = if asked.is_json { JSON } else { TYPE };
        let answer: Bytes = match self.protocol {
            Protocol::Http => http::answer(media_type, &body, asked.is_chunked),
            Protocol::Fastcgi => {
                let length = format!("{media_type}Content-Length: {}\r\n", body.len());
                fastcgi::answer(&length, &body)
            }
        }
        .into();
        self.known.insert(form.to_owned(), Rc::clone(&answer));
        Ok((answer, id))
    }

    /// Not zeros: the pages of a new allocation are one shared zero page, which is always in the
    /// processor's cache.
    fn body(&mut self, form: Form) -> Rc<Vec<u8>> {
        let body = self.bodies.entry((form.bytes, form.is_json));
        Rc::clone(body.or_insert_with(|| {
            Rc::new(match form.is_json {
                true => corpus::json(form.bytes),
                false => vec![b'x'; form.bytes],
            })
        }))
    }

    fn in_a_file(&mut self, body: &[u8]) -> Result<Bytes> {
        let files = self.files.as_mut();
        let files = files.ok_or_else(|| Failure::new("no folder for temporary files"))?;
        let fields = format!("{TYPE}{}", files.hand_over(body)?);
        Ok(match self.protocol {
            Protocol::Http => http::answer(&fields, b"", false),
            Protocol::Fastcgi => fastcgi::answer(&fields, b""),
        }
        .into())
    }
}

const TYPE: &str = "Content-Type: application/octet-stream\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

impl Files {
    /// Writes the file and returns the header that names it. Each file has a name of its own, because one
    /// that a proxy still sends must not change.
    fn hand_over(&mut self, body: &[u8]) -> Result<String> {
        self.count += 1;
        let name = self.count.to_string();
        let path = self.dir.join(&name);
        fs::write(&path, body).context(|| format!("write {}", path.display()))?;
        if self.kept > 0 {
            self.made.push_back(path);
        }
        if self.made.len() > self.kept
            && let Some(oldest) = self.made.pop_front()
        {
            fs::remove_file(&oldest).context(|| format!("remove {}", oldest.display()))?;
        }
        Ok(format!("{}: {}{name}\r\n", self.field, self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn queries_are_parsed_or_refused() {
        let form = Form::of("/?bytes=4096&chunked").unwrap();
        assert!(form.bytes == 4096 && form.is_chunked && !form.is_file);
        assert!(Form::of("/?bytes=many").is_err() && Form::of("/?what").is_err());
    }

    #[test]
    fn a_response_is_made_once_for_all_ids() {
        let mut answers = Answers::new(&Backend::new(Path::new("/s"), Protocol::Http));
        let (first, id) = answers.to("/?bytes=5&id=g1").unwrap();
        assert_eq!(id.as_deref(), Some("g1"));
        assert!(first.ends_with(b"Content-Length: 5\r\n\r\nxxxxx"));
        assert!(Rc::ptr_eq(&first, &answers.to("/?bytes=5").unwrap().0));
        let (json, _) = answers.to("/?bytes=5&json").unwrap();
        assert!(json.ends_with(b"\r\n\r\n[{\"id"));
    }

    #[test]
    fn the_oldest_file_is_removed_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Backend::new(Path::new("/s"), Protocol::Http);
        options.files = Some(dir.path().into());
        options.kept = 2;
        let mut answers = Answers::new(&options);
        for _ in 0..3 {
            let (answer, _) = answers.to("/?bytes=9&file").unwrap();
            assert!(answer.ends_with(b"Content-Length: 0\r\n\r\n"));
        }
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert!(left == 2 && !dir.path().join("1").exists());
    }
}
