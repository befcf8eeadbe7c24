//! The search for the script that handles a request.

use std::io;
use std::time::Instant;

use crate::disk_client::DiskClient;
use crate::http::request::Request;
use crate::resolve;
use crate::route::{Files, Location};
use crate::scripts::{PathKind, Script, Scripts};

/// A search for one request.
pub struct ScriptSearch<'a, 't> {
    files: &'a Files,
    /// The location's key in caches.
    key: [u8; 8],
    now: Instant,
    disk: &'a mut DiskClient<'t>,
}

impl<'a, 't> ScriptSearch<'a, 't> {
    /// A search below `files` of `location`, as of `now`.
    pub fn new(
        location: &Location,
        files: &'a Files,
        now: Instant,
        disk: &'a mut DiskClient<'t>,
    ) -> Self {
        disk.use_options_of(files);
        Self {
            files,
            key: location.key(),
            now,
            disk,
        }
    }

    /// The disk client of the request.
    pub fn disk(&mut self) -> &mut DiskClient<'t> {
        self.disk
    }

    /// The script for `request`; `None` when there is none. Waits for the disk only if a lookup needs a trip.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn locate(
        &mut self,
        scripts: &Scripts,
        request: &Request,
        kind: PathKind,
    ) -> io::Result<Option<Script>> {
        let path = self.files.beneath(&request.path);
        self.first(scripts.candidates(path, kind)).await
    }

    /// The script for the directory that `request` names, if it is among the index names that precede the
    /// first file.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn locate_before_files(
        &mut self,
        scripts: &Scripts,
        request: &Request,
    ) -> io::Result<Option<Script>> {
        let path = self.files.beneath(&request.path);
        self.first(scripts.before_files(path)).await
    }

    /// Whether the directory that `request` names without its slash has an index script.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn has_index(&mut self, scripts: &Scripts, request: &Request) -> io::Result<bool> {
        let path = [self.files.beneath(&request.path), b"/"].concat();
        let candidates = scripts.of_directory(&path).collect();
        Ok(self.first(candidates).await?.is_some())
    }

    async fn first(&mut self, candidates: Vec<Script>) -> io::Result<Option<Script>> {
        for script in candidates {
            if self.exists(&script.name).await? {
                return Ok(Some(script));
            }
        }
        Ok(None)
    }

    async fn exists(&mut self, name: &[u8]) -> io::Result<bool> {
        if name
            .split(|&byte| byte == b'/')
            .any(|name| self.files.names.hide(name))
        {
            return Ok(false);
        }
        // The cache key of a request for the file itself.
        let key = [&self.key[..], &self.files.strip_prefix, b"/", name].concat();
        let worker = self.disk.worker();
        resolve::is_file(worker, self.files, &key, name, self.now, self.disk).await
    }
}
