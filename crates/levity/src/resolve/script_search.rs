//! The search for the script that handles a request.

use std::io;
use std::time::Instant;

use crate::files::disk_client::DiskClient;
use crate::files::proof::Proof;
use crate::files::scripts::{PathKind, Script, Scripts};
use crate::message::request::Request;
use crate::resolve::servable::object::RunnableScript;
use crate::resolve::servable::{self, Elsewhere, MovedScript};
use crate::resolve::{self, Named};
use crate::route::{Files, Location, Rules};
use crate::worker::Worker;

/// What a search has found: a script, or the location at which the request goes on.
pub type Located = Result<RunnableScript, Elsewhere>;

/// A search for one request.
pub struct ScriptSearch<'a, 't> {
    worker: &'a Worker,
    files: &'a Files,
    request: &'a Request,
    /// The location's key in caches.
    key: [u8; 8],
    now: Instant,
    /// The rules of the location.
    rules: Rules<'a, 'a>,
    /// What has moved the request to the path of a script, if something has.
    moved: Option<&'a MovedScript>,
    disk: &'a mut DiskClient<'t>,
}

impl<'a, 't> ScriptSearch<'a, 't> {
    /// A search for `request` below `files` of `location`, which has these `rules`, as of `now`.
    pub fn new(
        worker: &'a Worker,
        (location, files): (&Location, &'a Files),
        request: &'a Request,
        (rules, moved): (Rules<'a, 'a>, Option<&'a MovedScript>),
        now: Instant,
        disk: &'a mut DiskClient<'t>,
    ) -> Self {
        disk.use_options(files.read_options, files.chunk_bytes);
        Self {
            worker,
            files,
            request,
            key: location.key(),
            now,
            rules,
            moved,
            disk,
        }
    }

    /// The script for the request; `None` when there is none. Waits for the disk only if a lookup needs a trip.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn locate(
        &mut self,
        scripts: &Scripts,
        kind: PathKind,
    ) -> io::Result<Option<Located>> {
        let path = self.files.beneath(&self.request.path);
        self.located(scripts.candidates(path, kind)).await
    }

    /// The script for the directory that the request names, if it is among the index names that precede the
    /// first file.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn locate_before_files(&mut self, scripts: &Scripts) -> io::Result<Option<Located>> {
        let path = self.files.beneath(&self.request.path);
        self.located(scripts.before_files(path)).await
    }

    /// Whether the directory that the request names without its slash has an index script.
    ///
    /// # Errors
    /// As [`resolve::is_file`].
    pub async fn has_index(&mut self, scripts: &Scripts) -> io::Result<bool> {
        let path = [self.files.beneath(&self.request.path), b"/"].concat();
        let candidates = scripts.of_directory(&path).collect();
        Ok(self.first(candidates).await?.is_some())
    }

    async fn located(&mut self, candidates: Vec<Script>) -> io::Result<Option<Located>> {
        let Some((script, proof)) = self.first(candidates).await? else {
            return Ok(None);
        };
        let (request, known) = (self.request, (proof, self.moved));
        let located = servable::runnable(script, request, self.files, known, self.rules);
        Ok(Some(located))
    }

    /// The first that exists, with what is known of its rules.
    async fn first(&mut self, candidates: Vec<Script>) -> io::Result<Option<(Script, Proof)>> {
        for script in candidates {
            if let Some(proof) = self.proof(&script.name).await? {
                return Ok(Some((script, proof)));
            }
        }
        Ok(None)
    }

    /// What is known of the rules of a script; `None` if it does not exist.
    async fn proof(&mut self, name: &[u8]) -> io::Result<Option<Proof>> {
        if self.files.hidden_name(name).is_some() {
            return Ok(None);
        }
        let asked = self.files.path_of(&self.request.path, name);
        // The cache key of a request for the file itself.
        let key = [&self.key[..], &asked].concat();
        let named = Named {
            key: &key,
            asked: &asked,
            path: name,
        };
        let (rules, now) = (self.rules, self.now);
        resolve::is_file(self.worker, self.files, named, rules, now, self.disk).await
    }
}
