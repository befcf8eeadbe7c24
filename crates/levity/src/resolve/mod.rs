//! Resolve: from a path to a file, a directory, or an error. What is in memory is found on the
//! loop, everything else in one trip to the disk.
//!
//! The first success ends the search:
//!
//! 1. The worker's own cache, then the shared one ([`known`]). A fresh hit costs no system call, or
//!    one `fstat` of a file that is kept open.
//! 2. `openat2(RESOLVE_CACHED)` and `fstat` on the loop, which the kernel answers from memory or
//!    refuses. Only on local file systems: not on remote, stacked (overlayfs) or unknown ones, and
//!    not across a mount. An expired entry with a strong ETag is renewed if the version is the
//!    same: its file stays open, and the path is looked up with `O_PATH`, whose descriptor is
//!    closed at once (`Root::open_cached_again` of `levity-disk`). If that is so for all variants,
//!    only the time of the check changes in the worker's cache, and in the shared one every 10 ms.
//!    While the disk is busy and the kernel knows nothing of what is asked for, most requests go on
//!    to the next step at once (`files/inline_opens.rs`).
//! 3. One trip to the engine: open, `fstat` and the first 128 KiB from the start of the range. A
//!    file below 1 MiB comes whole, if the request has no conditions and memory is ample.
//!
//! Only `servable/` makes of what was found something that may be sent or run.

pub mod script_search;
pub mod servable;

use std::ffi::{CStr, CString};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{
    Class, First, Kind, Lookup, Meta, OpenFile, Opened, Ready, Root, Variants, accept_variant,
};
use levity_wire::encoding::Coding;
use levity_wire::http1::Method;
use levity_wire::range::{self, Range};
use rustix::io::Errno;

use crate::files::cache::{
    CacheSlot, Check, EntryRef, EntryVariants, Missing, Recency, Selection, Watched,
};
use crate::files::codings::Codings;
use crate::files::disk_client::{DiskClient, FIRST_BYTES, WHOLE_BYTES};
use crate::files::entry::{self, BODY_BYTES_MAX, Bytes, Content, Entry, Form, Original};
use crate::files::proof::{Led, Proof};
use crate::message::request::Request;
use crate::resolve::servable::in_folder;
use crate::route::{Files, Rules, Sought};
use crate::worker::Worker;

/// The result for a path.
pub enum Found {
    /// A regular file, with bytes that were read already and their offset.
    File(Rc<EntryRef>, Option<(u64, Ready)>),
    /// A directory without an index.
    Directory(Arc<OpenFile>),
}

/// A path in the files of a location.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// Its key in the cache.
    pub key: &'a [u8],
    /// As in a request for it.
    pub asked: &'a [u8],
    /// Relative to the root.
    pub path: &'a [u8],
}

/// What the cache has of the file or directory that `request` gets for `named`; `None` if a search is needed.
pub fn known(
    worker: &Worker,
    files: &Files,
    request: &Request,
    named: Named<'_>,
    now: Instant,
) -> Option<io::Result<Found>> {
    let codings = Codings::of(&files.precompressed, request);
    let selection = Selection {
        choices: codings.choices(),
        body: request.head.method == Method::Get,
    };
    let recency = recency(worker, now, files.changed(named.path));
    cached(worker, named.key, selection, recency)
}

/// Searches what [`known`] does not know, at a location with these rules.
///
/// # Errors
/// As open, `fstat` and read; `TimedOut` when the disk does not respond; `ECANCELED` when its queue is full.
pub async fn search(
    worker: &Worker,
    files: &Files,
    request: &Request,
    named: Named<'_>,
    (rules, now): (Rules<'_, '_>, Instant),
    disk: &mut DiskClient<'_>,
) -> io::Result<Found> {
    let codings = Codings::of(&files.precompressed, request);
    let recency = recency(worker, now, files.changed(named.path));
    let is_conditional = has_conditions(request);
    if is_conditional {
        disk.take_no_pipes();
    }
    let first = first_bytes(files, request, is_conditional);
    let search = Search {
        worker,
        index: &files.index,
        root: files.root.current()?,
        key: named.key,
        is_for_content: first.is_some() && !is_conditional,
        asked: Some((named.asked, rules, Sought::File)),
        recency,
        check: Check::begin(now),
        codings,
        original: None,
        watched: None,
        first,
    };
    search.run(named.path, disk).await
}

/// What is known of the rules of the script at `named` below the root of `files`; `None` if there is none. Its content is not
/// read.
///
/// # Errors
/// As [`search`], except that a missing file is no error.
pub async fn is_file(
    worker: &Worker,
    files: &Files,
    named: Named<'_>,
    rules: Rules<'_, '_>,
    now: Instant,
    disk: &mut DiskClient<'_>,
) -> io::Result<Option<Proof>> {
    let selection = Selection {
        choices: &[],
        body: false,
    };
    let recency = recency(worker, now, files.changed(named.path));
    let found = match cached(worker, named.key, selection, recency) {
        Some(cached) => cached,
        None => {
            let search = Search {
                worker,
                index: &files.index,
                root: files.root.current()?,
                key: named.key,
                is_for_content: false,
                asked: Some((named.asked, rules, Sought::Script)),
                recency,
                check: Check::begin(now),
                codings: Codings::default(),
                original: None,
                watched: None,
                first: None,
            };
            Box::pin(search.run(named.path, disk)).await
        }
    };
    match found {
        Ok(Found::File(cached, _)) => Ok(Some(cached.led.proof)),
        Ok(Found::Directory(_)) => Ok(None),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the variant of `original` at `path` beneath `root`. The result is cached under `key`.
///
/// # Errors
/// As [`search`].
pub async fn variant(
    worker: &Worker,
    root: &Arc<Root>,
    key: &[u8],
    path: &[u8],
    original: Original<'_>,
    disk: &mut DiskClient<'_>,
) -> io::Result<Found> {
    let recency = recency(worker, disk.trace.step_began(), None);
    let selection = Selection {
        choices: &[],
        body: true,
    };
    if let Some(cached) = cached(worker, key, selection, recency) {
        return cached;
    }
    let first = First {
        offset: 0,
        len: FIRST_BYTES,
        len_max: WHOLE_BYTES - 1,
    };
    let search = Search {
        worker,
        index: &[],
        root: root.clone(),
        key,
        is_for_content: false,
        asked: None,
        recency,
        check: Check::begin(recency.now),
        codings: Codings::default(),
        original: Some(original),
        watched: None,
        first: Some(first),
    };
    Box::pin(search.run(path, disk)).await
}

/// How old a cached result may be at `now`, if something is known to have `changed`.
fn recency(worker: &Worker, now: Instant, changed: Option<Instant>) -> Recency {
    let ttl = worker.service().config.disk.entry_ttl;
    Recency { now, ttl, changed }
}

/// The cached result for `key`, if it is fresh.
fn cached(
    worker: &Worker,
    key: &[u8],
    selection: Selection<'_>,
    recency: Recency,
) -> Option<io::Result<Found>> {
    if let Some(cached) = worker.cache.fresh(key, selection, recency)
        && is_current(&cached)
    {
        let with_body = selection.body.then(|| kept_body(worker, key, &cached));
        return Some(Ok(Found::File(with_body.flatten().unwrap_or(cached), None)));
    }
    match worker.cache.missing(key, recency)? {
        Missing::Name => Some(Err(Errno::NOENT.into())),
        Missing::Index(directory) => Some(Ok(Found::Directory(directory))),
    }
}

/// Reads the body of a file that is requested often into the cache, if it is in memory and has the version of its
/// entry. Returns the new entry.
fn kept_body(worker: &Worker, key: &[u8], cached: &EntryRef) -> Option<Rc<EntryRef>> {
    let Content::File(file) = &cached.entry.content else {
        return None;
    };
    let size = worker.cache.claim_body(cached)?;
    let mut bytes = Vec::with_capacity(size);
    let (count, now) = file.inline()?.read_cached(&mut bytes, size, 0).ok()?;
    if count < size || !now.same_version(&cached.entry.meta) {
        return None;
    }
    worker.core.stats.copied_bytes.add(size as u64);
    worker.cache.keep_body(key, cached, Bytes::copy_of(&bytes))
}

/// Whether an open file still has the version of its entry. A body in memory always has; a file may have been
/// written to since. If `fstat` might block, the entry is trusted: the first read detects a change.
fn is_current(cached: &EntryRef) -> bool {
    let Content::File(file) = &cached.entry.content else {
        return true;
    };
    let same = |meta: Meta| meta.same_version(&cached.entry.meta);
    file.inline()
        .is_none_or(|file| file.refresh().is_ok_and(same))
}

/// Whether the file became shorter while it was read: a second attempt may succeed.
fn is_torn(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// The read to combine with a cold open for `request`.
fn first_bytes(files: &Files, request: &Request, is_conditional: bool) -> Option<First> {
    if request.head.method != Method::Get {
        return None;
    }
    let len_max = match is_conditional {
        true => FIRST_BYTES,
        false => files
            .chunk_bytes
            .map_or(WHOLE_BYTES - 1, |bytes| bytes.min(WHOLE_BYTES - 1)),
    };
    Some(First {
        offset: likely_offset(request),
        len: FIRST_BYTES,
        len_max,
    })
}

/// Whether the response may be without a file, or with a part of it.
fn has_conditions(request: &Request) -> bool {
    let names = ["range", "if-none-match", "if-modified-since"];
    names.iter().any(|name| request.header(name).is_some())
}

/// The likely start of the response body, where a cold open reads. The start of a suffix range is unknown
/// before the open.
fn likely_offset(request: &Request) -> u64 {
    let any_size = u64::MAX;
    let range = request.header("range");
    let first = match range.map(|value| range::parse(value, any_size)) {
        Some(Range::Part(part)) => part.first,
        Some(Range::Several(parts)) => parts.first().map_or(0, |part| part.first),
        _ => 0,
    };
    if i64::try_from(first).is_ok() {
        first
    } else {
        0
    }
}

/// One search in the file system.
struct Search<'a> {
    worker: &'a Worker,
    /// Index names of directories.
    index: &'a [Vec<u8>],
    /// The root of the files at present.
    root: Arc<Root>,
    key: &'a [u8],
    /// The response is without use until the content is there.
    is_for_content: bool,
    /// The path as in a request, the rules of the location, and what is to be there; `None` for what no path names.
    asked: Option<(&'a [u8], Rules<'a, 'a>, Sought)>,
    recency: Recency,
    /// Began before any of the files was opened.
    check: Check,
    codings: Codings,
    /// What the file is a variant of, in a store.
    original: Option<Original<'a>>,
    /// The watch on the files, with its state before any of them was opened.
    watched: Option<Watched>,
    /// The read to combine with the open; `None` when the response has no body.
    first: Option<First>,
}

/// An open file or variant, from which an entry is made.
struct VariantFile {
    /// `None` for the file itself.
    coding: Option<Coding>,
    file: Arc<OpenFile>,
    /// Its entry in the cache, if that is still valid.
    cached: Option<Arc<Entry>>,
}

/// The entry to send.
struct Chosen {
    entry: Arc<Entry>,
    /// Bytes that were read already, with their offset.
    ready: Option<(u64, Ready)>,
    may_cache: bool,
}

impl Search<'_> {
    /// Finds `path`; tries once more if a file became shorter while it was read. Caches a missing name.
    async fn run(mut self, path: &[u8], disk: &mut DiskClient<'_>) -> io::Result<Found> {
        let trips_before = disk.trace.disk_trips();
        self.read_watch();
        let mut found = self.find(path, disk).await;
        if found.as_ref().is_err_and(is_torn) {
            self.read_watch();
            found = self.find(path, disk).await;
        }
        if found.is_err() {
            self.worker.cache.forget(self.key);
        }
        if disk.trace.disk_trips() > trips_before {
            self.cache_missing(&found, disk);
        }
        found
    }

    /// Reads the state of the watch. Call it before the files are opened, so that later changes are detected.
    fn read_watch(&mut self) {
        if self.worker.watcher.is_none() {
            return;
        }
        let stale = self.worker.cache.stale(self.key).next();
        let watched = stale.and_then(|variants| variants.watched.clone());
        let watched = watched.filter(|watched| !watched.watch.is_over());
        self.watched = watched.map(|Watched { watch, .. }| Watched {
            generation: watch.generation(),
            watch,
        });
    }

    /// The watch on the file called `name` and its variants.
    fn watched(&self, name: &[u8]) -> Option<Watched> {
        let watcher = self.worker.watcher.as_ref()?;
        if !self.root.can_be_watched() {
            return None;
        }
        Some(self.watched.clone().unwrap_or_else(|| {
            let slash = name.iter().rposition(|&byte| byte == b'/');
            let directory = &name[..slash.unwrap_or(0)];
            Watched {
                watch: watcher.watch(&self.root, directory),
                generation: None,
            }
        }))
    }

    /// Caches a missing file only after a trip: the kernel's own cache holds the other missing names.
    fn cache_missing(&self, found: &io::Result<Found>, disk: &mut DiskClient<'_>) {
        let missing = match found {
            Ok(Found::Directory(directory)) => Missing::Index(directory.clone()),
            Err(error) if is_missing(error) => {
                disk.note_failed_lookup();
                Missing::Name
            }
            _ => return,
        };
        if !self.worker.service().config.disk.entry_ttl.is_zero() {
            let cache = &self.worker.cache;
            cache.keep_missing(self.key, missing, self.recency.now);
        }
    }

    async fn find(&self, path: &[u8], disk: &mut DiskClient<'_>) -> io::Result<Found> {
        let (index, opened) = self.open_named(path, disk).await?;
        let name = match index {
            Some(number) => [path, &self.index[number]].concat(),
            None => path.to_vec(),
        };
        match opened.file.meta().kind {
            Kind::Regular => self.regular((&name, self.led(index)), opened, disk).await,
            Kind::Directory => Ok(Found::Directory(opened.file)),
            Kind::Other => Err(Errno::ACCESS.into()),
        }
    }

    /// How the path leads to the file that was found, which is the index of that number of a folder if there is one.
    fn led(&self, index: Option<usize>) -> Led {
        let Some((asked, rules, sought)) = self.asked else {
            return Led::NOWHERE;
        };
        let name = index.map(|number| in_folder(asked, &self.index[number]));
        Led {
            index,
            proof: rules.proof(name.as_deref().unwrap_or(asked), sought),
        }
    }

    /// Opens `path`. For the path of a directory, opens the first index that exists and returns its number, otherwise the
    /// directory.
    async fn open_named(
        &self,
        path: &[u8],
        disk: &mut DiskClient<'_>,
    ) -> io::Result<(Option<usize>, Opened)> {
        if !path.is_empty() && !path.ends_with(b"/") {
            let variants = self.codings.variants(path);
            let opened = self.open(path, variants, self.first, disk).await?;
            return Ok((None, opened));
        }
        for (number, index) in self.index.iter().enumerate() {
            let name = [path, index.as_slice()].concat();
            let variants = self.codings.variants(&name);
            match self.open(&name, variants, self.first, disk).await {
                Ok(opened) if opened.file.meta().kind != Kind::Directory => {
                    return Ok((Some(number), opened));
                }
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        let directory = path.strip_suffix(b"/").unwrap_or(b".");
        let none = Variants::default();
        let opened = self.open(directory, none, None, disk).await?;
        if opened.file.meta().kind != Kind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok((None, opened))
    }

    /// Opens the file and its variants inline if the kernel has all of them in memory, otherwise in an
    /// engine.
    async fn open(
        &self,
        path: &[u8],
        variants: Variants,
        first: Option<First>,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<Opened> {
        let path = CString::new(path).map_err(|_| io::Error::from(Errno::NOENT))?;
        let opened = match disk.may_open_inline() {
            true => self.open_inline(&path, &variants, disk),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        match opened {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                disk.open(&self.root, path, variants, first, self.lookup())
                    .await
            }
            result => result,
        }
    }

    /// An open may join one that began up to the time to live ago: before a change that the client knows of.
    fn lookup(&self) -> Lookup {
        let Recency { now, ttl, changed } = self.recency;
        let age = changed.map(|changed| now.saturating_duration_since(changed));
        match age.is_some_and(|age| age <= ttl) {
            true => Lookup::Fresh,
            false => Lookup::Shared,
        }
    }

    /// `WouldBlock` if the kernel does not have all of them in memory, or is not asked.
    fn open_inline(
        &self,
        path: &CStr,
        variants: &Variants,
        disk: &DiskClient<'_>,
    ) -> io::Result<Opened> {
        let stale = self.worker.cache.stale(self.key).next();
        let inline_opens = &self.worker.cache.inline_opens;
        let may_wait = self.is_for_content
            && stale.is_none()
            && !self.worker.core.disk.has_room(self.root.device())
            // Names that the kernel knows to be absent do not count as lookups.
            && !disk.has_missed_lately(self.recency.now);
        if may_wait && !inline_opens.may_try() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let is_renewed = stale.is_some();
        let opened = self.open_cached(path, variants, stale);
        if !is_renewed {
            let error = opened.as_ref().err().map(io::Error::kind);
            inline_opens.ended(error != Some(io::ErrorKind::WouldBlock));
        }
        opened
    }

    fn open_cached(
        &self,
        path: &CStr,
        variants: &Variants,
        stale: Option<Arc<EntryVariants>>,
    ) -> io::Result<Opened> {
        let known = |coding: Option<Coding>| match (&stale, coding) {
            (Some(stale), None) => Some(&stale.file),
            (stale, coding) => stale.as_ref()?.entry(coding),
        };
        let open = |path: &CStr, coding| match known(coding).filter(|entry| entry.strong) {
            Some(entry) => self.root.open_cached_again(path, entry.content.file()),
            None => self.root.open_cached(path),
        };
        let file = open(path, None)?;
        let meta = file.meta();
        let all = variants.paths.iter().zip(&self.codings.all);
        let all = all.filter(|_| meta.kind == Kind::Regular);
        let opened = all.map(|(path, &coding)| accept_variant(open(path, Some(coding)), &meta));
        Ok(Opened {
            variants: opened.collect::<io::Result<_>>()?,
            ..Opened::unread(file)
        })
    }

    /// Makes the entries of an open file and its variants, and reads the selected one if it is small.
    async fn regular(
        &self,
        (name, led): (&[u8], Led),
        opened: Opened,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<Found> {
        let Opened {
            file,
            variants,
            first,
            stable,
            ..
        } = opened;
        let preferred = variants.iter().take(self.codings.preferred);
        let selected = preferred.zip(&self.codings.all).find(|(v, _)| v.is_some());
        let selected = selected.map(|(_, &coding)| coding);
        let varies = self.original.is_some() || variants.iter().any(Option::is_some);
        let form = |coding| self.form(name, coding, varies);
        let mut entries = Vec::with_capacity(1);
        let mut chosen = None;
        let mut read = Some((first, stable));
        let files = self.variant_files(file, variants, varies);
        let can_be_watched = |variant: &VariantFile| variant.file.can_be_watched();
        let can_be_watched = files.iter().all(can_be_watched);
        for variant in files {
            let form = form(variant.coding);
            if variant.coding == selected
                && let Some((first, stable)) = read.take()
            {
                let made = self.chosen(form, variant, first, stable, disk).await?;
                entries.push(made.entry.clone());
                chosen = Some(made);
            } else {
                entries.push(unread(form, variant));
            }
        }
        let chosen = chosen.expect("the selected variant exists");
        let variants = Arc::new(EntryVariants {
            file: entries.remove(0),
            variants: entries,
            watched: match chosen.may_cache && can_be_watched {
                true => self.watched(name),
                false => None,
            },
            led,
        });
        let slot = match chosen.may_cache {
            true => self.worker.cache.keep(self.key, variants, self.check),
            false => CacheSlot::new(variants, self.check),
        };
        Ok(Found::File(
            slot.chosen(self.codings.choices()),
            chosen.ready,
        ))
    }

    fn form<'f>(&'f self, name: &'f [u8], coding: Option<Coding>, varies: bool) -> Form<'f> {
        Form {
            name,
            coding: self
                .original
                .map_or(coding, |original| Some(original.coding)),
            varies,
            etag: self.worker.service().config.server.etag,
            original: self.original,
        }
    }

    /// The file first, then its variants that exist.
    fn variant_files(
        &self,
        file: Arc<OpenFile>,
        variants: Vec<Option<Arc<OpenFile>>>,
        varies: bool,
    ) -> Vec<VariantFile> {
        let variant_file = |coding, file: Arc<OpenFile>| VariantFile {
            coding,
            cached: self.cached_version(coding, &file.meta(), varies),
            file,
        };
        let mut files = vec![variant_file(None, file)];
        let variants = self.codings.all.iter().zip(variants);
        let existing = variants.filter_map(|(&coding, file)| Some((coding, file?)));
        files.extend(existing.map(|(coding, file)| variant_file(Some(coding), file)));
        files
    }

    /// The entry of a file or variant that is still valid. Another worker may have found this version before, or have read it
    /// into memory.
    fn cached_version(
        &self,
        coding: Option<Coding>,
        meta: &Meta,
        varies: bool,
    ) -> Option<Arc<Entry>> {
        let valid = |variants: Arc<EntryVariants>| {
            let entry = variants.entry(coding)?;
            let is_valid = entry.strong && entry.varies == varies && entry.meta.same_version(meta);
            is_valid.then(|| entry.clone())
        };
        let mut valid = self.worker.cache.stale(self.key).filter_map(valid);
        let first = valid.next()?;
        match first.is_in_memory() {
            true => Some(first),
            false => Some(valid.find(|entry| entry.is_in_memory()).unwrap_or(first)),
        }
    }

    /// Makes the selected entry. `first` holds bytes of it; `stable` is whether the file stayed the same
    /// during that read.
    async fn chosen(
        &self,
        form: Form<'_>,
        variant: VariantFile,
        first: Option<Ready>,
        stable: bool,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<Chosen> {
        let VariantFile { file, cached, .. } = variant;
        let meta = file.meta();
        let needs_body = self.first.is_some();
        let offset = self.first.map(|first| first.offset);
        if let Some(entry) = cached.filter(|entry| entry.suffices(needs_body)) {
            // The bytes are of the entry's version. They are not needed if the entry has its content in memory.
            let of_entry = stable && matches!(entry.content, Content::File(_));
            return Ok(Chosen {
                entry,
                ready: offset.zip(first.filter(|_| of_entry)),
                may_cache: true,
            });
        }
        if needs_body && meta.size <= BODY_BYTES_MAX {
            return self.small(form, file, first, stable, disk).await;
        }
        let settled = stable && entry::is_settled(&meta);
        let content = Content::File(file);
        Ok(Chosen {
            entry: Arc::new(entry::entry(form, meta, settled, content)),
            ready: offset.zip(first),
            may_cache: true,
        })
    }

    /// Reads all of a small file, and caches it if it is settled.
    async fn small(
        &self,
        form: Form<'_>,
        file: Arc<OpenFile>,
        first: Option<Ready>,
        stable: bool,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<Chosen> {
        let meta = file.meta();
        let (ready, stable) = match first {
            Some(ready) if self.first.is_some_and(|first| first.offset == 0) => (ready, stable),
            _ => self.read_whole(&file, disk).await?,
        };
        if (ready.len() as u64) < meta.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let settled = stable && entry::is_settled(&meta);
        if !settled || matches!(ready, Ready::PageCache { .. }) {
            let entry = entry::entry(form, meta, settled, Content::File(file));
            return Ok(Chosen {
                entry: Arc::new(entry),
                ready: stable.then_some((0, ready)),
                may_cache: false,
            });
        }
        let bytes = ready.into_bytes(self.worker.core.disk.budget())?;
        self.worker.core.stats.copied_bytes.add(bytes.len() as u64);
        let content = Content::Memory(Bytes::copy_of(&bytes), file);
        Ok(Chosen {
            entry: Arc::new(entry::entry(form, meta, true, content)),
            ready: None,
            may_cache: true,
        })
    }

    /// Reads the file from the page cache if that cannot block, otherwise by an engine. Also returns whether
    /// the file was the same before and after.
    async fn read_whole(
        &self,
        file: &Arc<OpenFile>,
        disk: &mut DiskClient<'_>,
    ) -> io::Result<(Ready, bool)> {
        let meta = file.meta();
        let size = usize::try_from(meta.size).expect("small");
        let mut bytes = Vec::with_capacity(size);
        if let Some(inline) = file.inline()
            && (size == 0 || self.worker.core.disk.has_room(meta.device))
            && let Ok((count, now)) = inline.read_cached(&mut bytes, size, 0)
            && count == size
        {
            return Ok((Ready::Bytes(bytes.into()), now.same_version(&meta)));
        }
        let _held = disk.hold(file);
        // At least one byte, because the read also returns the metadata.
        let read = disk.read(file, 0, size.max(1), Class::First).await?;
        Ok((read.ready, read.now.same_version(&meta)))
    }
}

/// The entry of a file or variant that is not selected.
fn unread(form: Form<'_>, variant: VariantFile) -> Arc<Entry> {
    let VariantFile { file, cached, .. } = variant;
    cached.unwrap_or_else(|| {
        let meta = file.meta();
        let content = Content::File(file);
        Arc::new(entry::entry(form, meta, entry::is_settled(&meta), content))
    })
}

fn is_not_found(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

/// Whether the name cannot lead to a file: these errors become 404.
fn is_missing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        matches!(
            errno,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP
        )
    })
}
