//! The X-Sendfile family: an application names what is to be sent in its place.
//!
//! The backend's connection is given back first. Files are opened beneath a root that the operator has
//! named, and past our caches: applications use names again, and what an earlier file of that name held
//! may have been another client's.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use levity_disk::{First, Kind, Root, Variants};
use levity_wire::date;
use levity_wire::http1::Method;
use levity_wire::sendfile_header::{self, Wish};
use rustix::io::Errno;

use super::answer::Answer;
use super::backend::Backend;
use super::head::{Head, Wished};
use crate::cache::{Cache, Content, Entry};
use crate::conn::Conn;
use crate::diagnostics;
use crate::request::Request;
use crate::resolve::{FIRST_BYTES, WHOLE_BYTES};
use crate::respond::{self, Response, file};
use crate::route::{Files, Proxy};
use crate::trip::{Opened, Trips};

/// What a backend wants to have sent in place of its answer.
pub struct InPlace {
    /// The head of its answer, with the wish in it.
    pub head: Head,
    wished: Wished,
    upstream: String,
    backend: Arc<Backend>,
    /// Part of the request has not been read.
    request_unread: bool,
}

impl InPlace {
    /// Of an answer that has such a wish; its body, if it has one, is of no use, and the backend is free
    /// once this is made.
    pub async fn of(
        mut head: Head,
        answer: Answer,
        backend: Arc<Backend>,
        conn: &mut Conn,
    ) -> Self {
        let wished = head.wishes.swap_remove(0);
        let upstream = answer.upstream().settings.name.clone();
        let request_unread = !answer.is_request_received();
        answer.drain(conn).await;
        Self {
            head,
            wished,
            upstream,
            backend,
            request_unread,
        }
    }

    /// A path of ours, if that is what is wished for: not decoded, with its query.
    pub fn internal_uri(&self) -> Option<&[u8]> {
        (self.wished.wish == Wish::InternalUri).then_some(&self.wished.value)
    }

    /// What went wrong, for the operator; the client learns no more than the status.
    pub fn refuse(&self, status: u16, reason: impl fmt::Display) -> Response {
        let Self {
            upstream,
            backend,
            wished,
            ..
        } = self;
        let (name, value) = (wished.name.escape_ascii(), wished.value.escape_ascii());
        diagnostics::say(format_args!(
            "upstream {upstream}, backend {}: {name}: {value}: {reason} ({status})",
            backend.name
        ));
        let mut response = respond::error(status, "");
        response.close = self.request_unread;
        response
    }

    /// Answers with the file at `path` beneath `files`, an internal place.
    pub async fn internal_file(
        self,
        files: &Files,
        path: &[u8],
        request: &Request,
        trips: &mut Trips<'_>,
    ) -> Response {
        trips.are_for(files);
        let relative = files.beneath(path);
        let beneath = [(files.root.clone(), relative.to_vec())];
        self.first_of(&beneath, request, trips).await
    }

    /// Answers with what is wished for, when that is files.
    pub async fn file(self, proxy: &Proxy, request: &Request, trips: &mut Trips<'_>) -> Response {
        if !self.head.wishes.is_empty() {
            return self.refuse(502, "the answer names something else to send, too");
        }
        trips.are_for_any();
        match self.wished.wish {
            Wish::File if proxy.sendfile_roots.is_empty() => {
                self.refuse(502, "the upstream has no `sendfile_roots`")
            }
            Wish::File => {
                let path = match sendfile_header::file_path(&self.wished.value) {
                    Ok(path) => path,
                    Err(reject) => return self.refuse(502, reject.reason),
                };
                let mut beneath = beneath(&proxy.sendfile_roots, path.raw);
                if let Some(decoded) = &path.decoded {
                    beneath.extend(self::beneath(&proxy.sendfile_roots, decoded));
                }
                if beneath.is_empty() {
                    return self.refuse(502, "not beneath any of `sendfile_roots`");
                }
                self.first_of(&beneath, request, trips).await
            }
            _ => self.refuse(502, "not supported"),
        }
    }

    /// Answers with the first of `candidates` that exists: a path beneath its root each.
    async fn first_of(
        self,
        candidates: &[(Arc<Root>, Vec<u8>)],
        request: &Request,
        trips: &mut Trips<'_>,
    ) -> Response {
        let first = (request.head.method != Method::Head).then_some(First {
            offset: 0,
            len: FIRST_BYTES,
            len_max: WHOLE_BYTES - 1,
        });
        let mut absent = None;
        for (root, path) in candidates {
            match open(root, path, first, trips).await {
                Ok(opened) if opened.file.meta().kind == Kind::Regular => {
                    return self.respond(root, path, opened, request);
                }
                Ok(_) => return self.refuse(502, "neither a file nor a link to one"),
                Err(error) if is_absent(&error) => absent = Some(error),
                Err(error) => {
                    let root = root.path().display();
                    let status = respond::error::of_io(&error).status;
                    let status = if status == 503 { 503 } else { 502 };
                    return self.refuse(status, format_args!("beneath {root}: {error}"));
                }
            }
        }
        match absent {
            Some(error) => self.refuse(404, error),
            None => self.refuse(502, "no path"),
        }
    }

    /// The application's fields and the file's content. Conditions and ranges are evaluated against the
    /// file, if the application meant an ordinary answer.
    fn respond(self, root: &Arc<Root>, path: &[u8], opened: Opened, request: &Request) -> Response {
        let entry = self.entry(path, &opened);
        let ready = opened.first.map(|ready| (0, ready));
        let hot = Cache::uncached(entry);
        let is_ordinary = matches!(request.head.method, Method::Get | Method::Head)
            && matches!(self.head.status, 200 | 206);
        let mut response = match is_ordinary {
            true => file::file(request, hot, ready, root.file_system()),
            false => file::whole(hot, ready, root.file_system()),
        };
        if !is_ordinary {
            response.status = self.head.status;
            response.reason = self.head.reason;
        }
        response.has_date = self.head.has_date;
        response.has_server = self.head.has_server;
        response.close |= self.request_unread;
        response
    }

    /// What the file is, as far as the application does not say otherwise.
    fn entry(&self, path: &[u8], opened: &Opened) -> Entry {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let form = file::Form {
            name,
            coding: None,
            varies: false,
        };
        let content = Content::File(opened.file.clone());
        let settled = opened.stable && file::is_settled(&opened.file.meta());
        let mut entry = file::entry(form, opened.file.meta(), settled, content);
        let mut fields = self.head.fields.clone();
        for name in ["Content-Range", "Accept-Ranges", "Content-Length"] {
            fields.remove(name);
        }
        if let Some(etag) = fields
            .value("etag")
            .and_then(|value| str::from_utf8(value).ok())
        {
            entry.etag = etag.to_owned();
        } else {
            fields.add("ETag", entry.etag.as_bytes());
        }
        match fields.value("last-modified").and_then(date::parse) {
            Some(modified) => entry.modified = Some(modified),
            None => {
                fields.remove("last-modified");
                if let Some(modified) = entry.modified {
                    fields.add("Last-Modified", &date::format(modified));
                }
            }
        }
        if fields.value("content-type").is_none() {
            fields.add("Content-Type", levity_wire::mime::of(name).as_bytes());
        }
        fields.add("Accept-Ranges", b"bytes");
        entry.fields = fields.as_bytes().to_vec();
        entry
    }
}

/// Inline what the kernel has in memory, else by an engine.
async fn open(
    root: &Arc<Root>,
    path: &[u8],
    first: Option<First>,
    trips: &mut Trips<'_>,
) -> io::Result<Opened> {
    let path = CString::new(path).map_err(|_| io::Error::from(Errno::NOENT))?;
    match root.open_cached(&path) {
        Ok(file) => Ok(Opened {
            file,
            variants: Vec::new(),
            first: None,
            stable: true,
        }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            trips.open(root, path, Variants::default(), first).await
        }
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR))
}

/// The roots that an absolute path is beneath, as the operator wrote them or as they really are, and the
/// rest of the path.
fn beneath(roots: &[SendfileRoot], path: &[u8]) -> Vec<(Arc<Root>, Vec<u8>)> {
    let path = plain(path);
    let rest = |folder: &std::path::Path| {
        let rest = path.strip_prefix(folder.as_os_str().as_bytes())?;
        rest.strip_prefix(b"/").map(<[u8]>::to_vec)
    };
    roots
        .iter()
        .filter_map(|root| {
            let found = rest(&root.named).or_else(|| rest(root.root.path()))?;
            Some((root.root.clone(), found))
        })
        .collect()
}

/// Without `.`, `..` and empty segments. Only to find the root: what is opened is held beneath it by the
/// kernel.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let mut plain = Vec::with_capacity(path.len());
    for name in kept {
        plain.push(b'/');
        plain.extend_from_slice(name);
    }
    plain
}

/// A folder whose files an application may have sent.
#[derive(Clone)]
pub struct SendfileRoot {
    /// As the operator wrote it, absolute.
    pub named: std::path::PathBuf,
    /// Open.
    pub root: Arc<Root>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_compared_without_its_detours() {
        for (path, expected) in [
            ("/a//b/./c", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../../a", "/a"),
            ("/a/b/..", "/a"),
            ("/", ""),
        ] {
            assert_eq!(plain(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
