//! Serves listings of directories.

use std::ffi::CString;
use std::io;
use std::sync::Arc;

use levity_config::ArchiveForm;
use levity_disk::{DirectoryReader, First, Kind, Lookup, OpenFile, Ready, Variants};
use levity_wire::http1::Method;

use super::Handling;
use super::files::failed;
use crate::files::cache::Recency;
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::request::Request;
use crate::resolve::servable::in_folder;
use crate::respond::archive::{self, Archive};
use crate::respond::listing::html::Readme;
use crate::respond::listing::snapshot::{Failure, Key, SharedSnapshot, Snapshot};
use crate::respond::listing::{self, Entries, Form, Reading, Subject};
use crate::route::{Files, Location, Sought};
use crate::shares::{Portion, Resource};

/// The maximum number of bytes of a README that are shown. They are written in one turn.
const README_BYTES_MAX: usize = 32 * 1024;

/// A directory of more than this many bytes is taken for one of many names before it is read, so that each of many clients
/// need not find out. Most file systems count about the bytes of the names.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

impl<'a> Handling<'a> {
    /// Serves the listing of `directory`.
    pub(super) async fn listing(
        &mut self,
        request: &Request,
        at: (&'a Location, &Files),
        directory: Arc<OpenFile>,
    ) -> Response {
        let (location, files) = at;
        if !files.archives.is_empty()
            && let Some(form) = archive::asked(request.query())
        {
            return self.archive(request, at, directory, form).await;
        }
        let subject = Subject {
            form: Form::of(request),
            path: request.path.to_vec(),
            names: files.names.clone(),
            rules: self
                .rules(request, location)
                .to_owned_unless_alike(self.service),
            archives: files.archives.clone(),
            readme: None,
        };
        let is_head = request.head.method == Method::Head;
        let key = self.key(files, &directory);
        let recency = Recency {
            now: self.disk.trace.step_began(),
            ttl: self.service.config.disk.entry_ttl,
            changed: files.changed(files.beneath(&request.path)),
        };
        let is_large = directory.meta().size > SMALL_BYTES_MAX;
        if subject.form.is_sorted() && (is_large || SharedSnapshot::find(key, recency).is_some()) {
            if is_head {
                return listing::header(subject);
            }
            let reader = DirectoryReader::new(directory.clone());
            let disk = self.disk.detached(&self.worker.core);
            let claims = self.claims();
            let shared = SharedSnapshot::find_or_make(&disk, &claims, key, recency, reader, None);
            return self
                .shared_listing(request, at, subject, directory, shared)
                .await;
        }
        let (reader, piece, hold) = match self.begin(directory).await {
            Ok(reading) => reading,
            Err(failure) => return self.not_listed(request, files, &failure),
        };
        let disk = self.disk.detached(&self.worker.core);
        if piece.is_last {
            self.small_listing(request, at, subject, (reader, piece, hold))
                .await
        } else if is_head {
            listing::header(subject)
        } else if subject.form.is_sorted() {
            drop(hold);
            let (claims, directory) = (self.claims(), reader.directory().clone());
            let shared =
                SharedSnapshot::find_or_make(&disk, &claims, key, recency, reader, Some(piece));
            self.shared_listing(request, at, subject, directory, shared)
                .await
        } else {
            listing::of_reader(subject, disk, (reader, piece, hold), key.entries_max)
        }
    }

    /// The archive of `directory` in `form`.
    async fn archive(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        directory: Arc<OpenFile>,
        form: Result<ArchiveForm, ()>,
    ) -> Response {
        let Some(form) = form.ok().filter(|form| files.archives.contains(form)) else {
            return error(400, "no such form of an archive here");
        };
        let own = location.files.clone();
        let own = own.expect("the location has listed its files");
        if location.has_gates_of_paths {
            return error(
                403,
                "there are no archives where each path is decided about",
            );
        }
        let root = match files.root.current() {
            Ok(root) => root,
            Err(error) => return failed(self.worker, files, request, &error),
        };
        // Bytes that stay in the page cache cannot be encoded.
        self.disk.read_into_memory();
        let archive = Archive {
            form,
            rules: self.rules(request, location).to_owned(self.service),
            files: own,
            path: request.path.to_vec(),
            root,
            disk: self.disk.detached(&self.worker.core),
        };
        let response = archive.response(directory, self.claims()).await;
        response.unwrap_or_else(|_| listing::refused())
    }

    /// What a snapshot of `directory` depends on.
    fn key(&self, files: &Files, directory: &OpenFile) -> Key {
        let meta = directory.meta();
        Key {
            directory: (meta.device, meta.inode),
            root: Arc::as_ptr(&files.root).addr(),
            entries_max: self.service.config.limits.listing_entries,
        }
    }

    /// Reads the first entries of `directory`.
    async fn begin(&mut self, directory: Arc<OpenFile>) -> Result<Reading, Failure> {
        // Before the read: each of any number of clients may wait for it.
        let hold = listing::admit_reader(&self.claims()).await?;
        let reader = DirectoryReader::new(directory);
        let piece = self.disk.first_entries(&reader).await?;
        Ok((reader, piece, hold))
    }

    fn not_listed(&self, request: &Request, files: &Files, failure: &Failure) -> Response {
        match failure {
            Failure::NoMemory => listing::refused(),
            Failure::Unreadable(error) => failed(self.worker, files, request, error),
        }
    }

    /// The listing of a directory whose entries are all in one piece.
    async fn small_listing(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        mut subject: Subject,
        (reader, piece, hold): Reading,
    ) -> Response {
        let (claims, disk) = (self.claims(), self.disk.detached(&self.worker.core));
        let entries_max = self.service.config.limits.listing_entries;
        let memory = subject.form.is_sorted().then(|| {
            // Without a wait: whoever waits here has what other readers wait for.
            claims.try_take(Resource::Listings, piece.bytes(), Portion::Whole)
        });
        let entries = if let Some(Ok(memory)) = memory {
            match Snapshot::of_one_piece(&disk, piece, entries_max, memory).await {
                Ok(snapshot) => {
                    subject.readme = self
                        .readme(request, (location, files), subject.form, &snapshot)
                        .await;
                    Entries::Sorted(Arc::new(snapshot))
                }
                Err(failure) => return self.not_listed(request, files, &failure),
            }
        } else {
            Entries::Piece(piece, entries_max)
        };
        listing::of_one_piece(subject, &claims, disk, (reader, hold), entries).await
    }

    /// The listing of a directory in order, or else as it is read.
    async fn shared_listing(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        mut subject: Subject,
        directory: Arc<OpenFile>,
        shared: Arc<SharedSnapshot>,
    ) -> Response {
        let failure = match shared.snapshot().await {
            Ok(snapshot) => {
                subject.readme = self
                    .readme(request, (location, files), subject.form, &snapshot)
                    .await;
                return listing::of_snapshot(subject, &self.claims(), snapshot, shared).await;
            }
            Err(failure) => failure,
        };
        drop(shared);
        if let Failure::Unreadable(error) = &failure {
            return failed(self.worker, files, request, error);
        }
        let entries_max = self.service.config.limits.listing_entries;
        match self.begin(directory).await {
            Ok(reading) => {
                let disk = self.disk.detached(&self.worker.core);
                listing::of_reader(subject, disk, reading, entries_max)
            }
            Err(failure) => self.not_listed(request, files, &failure),
        }
    }

    /// The text that explains the directory of `request`, if the page shows one. A file that cannot be read is left out:
    /// its link in the listing gives the reason.
    async fn readme(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        form: Form,
        snapshot: &Snapshot,
    ) -> Option<Readme> {
        let name = snapshot.readme.as_ref().filter(|_| form == Form::Html)?;
        let path = [files.beneath(&request.path), name].concat();
        let asked = in_folder(&request.path, name);
        if !files.shows(&path)
            || location.has_gates_of_paths
            || !self
                .rules(request, location)
                .suffice_for(&asked, Sought::File)
        {
            return None;
        }
        self.text_of(files, path)
            .await
            .ok()
            .flatten()
            .map(|(text, is_cut)| Readme {
                name: name.clone(),
                text,
                is_cut,
            })
    }

    /// The start of the regular file at `path`, and whether it is longer; `None` for a file that is empty or no text.
    async fn text_of(
        &mut self,
        files: &Files,
        path: Vec<u8>,
    ) -> io::Result<Option<(Vec<u8>, bool)>> {
        let root = files.root.current()?;
        let first = First {
            offset: 0,
            len: README_BYTES_MAX,
            len_max: 0,
        };
        // The text is needed in memory.
        self.disk.read_into_memory();
        let (path, variants) = (CString::new(path)?, Variants::default());
        let opened = {
            self.disk
                .open(&root, path, variants, Some(first), Lookup::Shared)
        }
        .await?;
        let meta = opened.file.meta();
        let Some(Ready::Bytes(bytes)) = opened.first.filter(|_| meta.kind == Kind::Regular) else {
            return Ok(None);
        };
        let text = bytes.to_vec();
        let is_cut = meta.size > text.len() as u64;
        Ok((!text.is_empty() && !text.contains(&0)).then_some((text, is_cut)))
    }
}
