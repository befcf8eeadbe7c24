//! What a location is made of: its handlers, files, proxy and filters.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use levity_config::{ArchiveForm, NamePattern, Statuses, hides};
use levity_disk::{ReadOptions, Spool};
use levity_telemetry::diagnostics;
use levity_wire::encoding::Coding;
use levity_wire::path;

use super::fingerprint::{Asked, Fingerprint};
use crate::files::codings;
use crate::files::root::LiveRoot;
use crate::files::scripts::Scripts;
use crate::filter::compress::Compress;
use crate::http::filter::Filters;
use crate::rate_limit::limit::RateLimit;
use crate::stores::digests::store::DigestStore;
use crate::stores::uploads::related::RelatedUploads;
use crate::stores::variants::store::VariantStore;
use crate::upstream::proxy::Proxy;

/// The part of a site that handles a request.
pub struct Location {
    /// Unique in the process, so that a cache never confuses locations of two configurations.
    pub number: u32,
    /// The number of its site.
    pub site: usize,
    /// Its position among the locations of the site: that of its route, and behind them that of the site itself.
    pub position: usize,
    /// The path of its route; empty for that of a site itself.
    pub route: String,
    /// The number of its access log, in [`Service::logs`](super::Service::logs); `None` if it is off.
    pub log: Option<usize>,
    /// Its [handlers](crate::handler::chain::Handlers), in order. Opaque, because they are made of what is above the routes:
    /// `compile/` puts them here, and [`Chain`](crate::handler::chain::Chain) takes them from here.
    pub handlers: Box<dyn Any + Send + Sync>,
    /// Its files; `None` where all requests go to an upstream.
    pub files: Option<Arc<Files>>,
    /// Its upstream, in place of files or as their fallback.
    pub proxy: Option<Arc<Proxy>>,
    /// Reachable only through X-Accel-Redirect.
    pub internal: bool,
    /// Files that it needs do not respond, so nobody is let in.
    pub is_closed: bool,
    /// How many requests are let in.
    pub limits: Vec<Arc<RateLimit>>,
    /// An application decides about each path.
    pub asks_about_paths: bool,
    /// Gates decide about each path by itself, so that whoever may have a folder need not have what is in it.
    pub has_gates_of_paths: bool,
    /// The filters of its responses, in order.
    pub filters: Filters,
    /// The codings that its responses may get on their way.
    pub compress: Vec<Coding>,
    /// Pages for its errors.
    pub error_pages: Option<ErrorPages>,
    /// Whether responses have a Server-Timing header.
    pub server_timing: bool,
    /// Whether requests are answered before the handshake of their connection is complete.
    pub early_data: bool,
    /// The codings in which files with names of this location may lie beside themselves.
    pub forms: Vec<Coding>,
    /// Its rules.
    pub fingerprint: Fingerprint,
    /// When the site has to be asked whether a name that was found has the same rules.
    pub asked: Asked,
    /// A refusal of an ambiguous path has been logged.
    pub has_logged_ambiguous: AtomicBool,
}

impl Location {
    /// The prefix of the cache keys of its files. It changes with the root.
    pub fn key(&self) -> [u8; 8] {
        let root = self.files.as_ref().map(|files| &files.root);
        key(self.number, root.map_or(0, |root| root.generation()))
    }
}

impl Location {
    /// Where it is in the configuration, for people.
    pub fn place(&self) -> String {
        match self.route.as_str() {
            "" => "the site".to_owned(),
            route => format!("`{route}`"),
        }
    }

    /// Whether the rules for another file may count for `path`, because a compressed form of that has such a name.
    pub fn may_be_form(&self, path: &[u8]) -> bool {
        let may_have_forms = self.asked != Asked::Never || !self.forms.is_empty();
        may_have_forms && codings::originals(path).next().is_some()
    }

    /// Whether a file of this location may be sent in a form that lies beside it, compressed by `coding`.
    pub fn has_form(&self, coding: Coding) -> bool {
        self.forms.contains(&coding)
    }
}

/// The prefix of the cache keys of a location and a generation of its root.
fn key(location: u32, generation: u32) -> [u8; 8] {
    let key = u64::from(location) << 32 | u64::from(generation);
    key.to_le_bytes()
}

/// How errors of a location are shown.
pub struct ErrorPages {
    /// The number in the keys of the pages in caches: that of the location, if they lie among its files.
    pub location: u32,
    /// The files among which the pages are; `None` if there are none.
    pub files: Option<Arc<Files>>,
    /// Statuses, and paths that begin with the prefix that is stripped.
    pub pages: Vec<(Statuses, Vec<u8>)>,
    /// Errors of an upstream that are replaced.
    pub replaced: Vec<Statuses>,
    /// The failure to send a page has been logged.
    pub has_logged: AtomicBool,
}

impl ErrorPages {
    /// The page for `status`: its path, and the files that contain it.
    pub fn page(&self, status: u16) -> Option<(&Files, &[u8])> {
        let mut pages = self.pages.iter();
        let (_, path) = pages.find(|(statuses, _)| statuses.include(status))?;
        Some((self.files.as_deref()?, path))
    }

    /// Logs why a page is not sent, once: a site may have many errors.
    pub fn log_once(&self, path: &[u8], reason: &io::Error) {
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            let path = String::from_utf8_lossy(path);
            diagnostics::log(format_args!(
                "cannot send the error page {path}: {reason}; the built-in page is sent (logged once)"
            ));
        }
    }
}

/// The files of a location.
pub struct Files {
    /// The directory that is served.
    pub root: Arc<LiveRoot>,
    /// Index names of directories.
    pub index: Vec<Vec<u8>>,
    /// The codings of precompressed variants, best first.
    pub precompressed: Vec<Coding>,
    /// Whether directories without an index are listed.
    pub listing: bool,
    /// The forms in which a listed directory is sent as one file.
    pub archives: Vec<ArchiveForm>,
    /// The names that are neither listed nor served.
    pub names: Arc<NameRules>,
    /// The prefix that is stripped from the path, with its leading slash.
    pub strip_prefix: Vec<u8>,
    /// The name of the only file that is served, for a site of a single file.
    pub only: Option<Vec<u8>>,
    /// The scripts among the files, including those that no application runs.
    pub scripts: Option<Scripts>,
    /// The engine and mode by which its files are read.
    pub read_options: ReadOptions,
    /// The size of a read in bytes, if configured.
    pub chunk_bytes: Option<usize>,
    /// The store of compressed forms of its files, if they are kept.
    pub variants: Option<FileVariants>,
    /// The digests of its files, if responses have them.
    pub digests: Option<FileDigests>,
    /// Uploads that change files beneath the root, also by way of other locations.
    pub uploads: Vec<RelatedUploads>,
}

/// How responses with files get digests.
pub struct FileDigests {
    /// The store.
    pub store: Arc<DigestStore>,
    /// The compression of the location. What it compresses has no digest.
    pub compress: Option<Arc<Compress>>,
}

/// How compressed forms of the files of a location are kept.
pub struct FileVariants {
    /// The store.
    pub store: Arc<VariantStore>,
    /// The compression of the location.
    pub compress: Arc<Compress>,
    /// The codings with a dictionary that its files may get, best first.
    pub with_dictionary: Vec<Coding>,
}

impl Files {
    /// The scripts that the upstream of `proxy` runs, if any.
    pub fn scripts_of(&self, proxy: &Proxy) -> Option<&Scripts> {
        let runs_scripts = proxy.upstream.settings.protocol.is_cgi();
        let scripts = self.scripts.as_ref().filter(|_| runs_scripts);
        scripts.filter(|scripts| scripts.are_run)
    }

    /// The path relative to the root.
    pub fn beneath<'a>(&'a self, path: &'a [u8]) -> &'a [u8] {
        let path = path::beneath(path, &self.strip_prefix).unwrap_or(path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        match &self.only {
            Some(name) if path.is_empty() => name,
            _ => path,
        }
    }

    /// The path of a request for `name`, which is relative to the root, written as `asked`, the path of another one.
    pub fn path_of(&self, asked: &[u8], name: &[u8]) -> Vec<u8> {
        match path::beneath(asked, &self.strip_prefix) {
            Some(_) => [&self.strip_prefix, &b"/"[..], name].concat(),
            None => [b"/", name].concat(),
        }
    }

    /// When an upload last changed something in the folder of `path`, which is relative to the root. What was looked up until
    /// then may be outdated.
    pub fn changed(&self, path: &[u8]) -> Option<Instant> {
        let times = self.uploads.iter();
        times.filter_map(|uploads| uploads.changed(path)).max()
    }

    /// The cache key of `path` at the location of that number.
    pub fn key_of(&self, location: u32, path: &[u8]) -> Vec<u8> {
        let key = key(location, self.root.generation());
        [&key[..], path].concat()
    }

    /// Whether a path relative to the root may be served: it has no hidden name and is no script.
    pub fn shows(&self, path: &[u8]) -> bool {
        let only = self.only.as_deref().is_none_or(|name| name == path);
        let is_source = |scripts: &Scripts| scripts.is_source(path);
        only && !self.scripts.as_ref().is_some_and(is_source) && self.hidden_name(path).is_none()
    }

    /// The first name in a path relative to the root that is hidden.
    pub fn hidden_name<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let mut names = path.split(|&byte| byte == b'/');
        names.find(|name| self.only.is_none() && self.names.hide(name))
    }
}

/// Which names of a location are hidden.
#[derive(Debug, Default)]
pub struct NameRules {
    /// These.
    pub hidden: Vec<NamePattern>,
    /// Of the names with a leading dot, all but these.
    pub shown: Vec<NamePattern>,
}

impl NameRules {
    /// Whether `name`, of a file or a folder, is neither listed nor served.
    pub fn hide(&self, name: &[u8]) -> bool {
        hides(&self.hidden, &self.shown, name)
    }
}

/// The folder for spooled bodies.
pub struct SpoolFolder {
    /// The folder.
    pub spool: Arc<Spool>,
    /// An engine that reads into memory: the bytes are encoded again before they are sent.
    pub read_options: ReadOptions,
}
