//! What a location is made of: its handlers, files, proxy and filters.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use levity_acme::challenges::Challenges;
use levity_config::{
    AddressSet, ArchiveForm, Cors, Fixed, Jwt, NamePattern, Pattern, SignedUrl, Statuses, Template,
    UploadMethod, hides,
};
use levity_disk::{ReadOptions, Spool};
use levity_telemetry::diagnostics;
use levity_wire::encoding::Coding;
use levity_wire::path;

use super::fingerprint::{Asked, Fingerprint};
use crate::credentials::Users;
use crate::files::codings;
use crate::files::root::LiveRoot;
use crate::files::scripts::{self, Scripts};
use crate::filter::compress::Compress;
use crate::http::filter::Filters;
use crate::mailboxes::set::MailboxSet;
use crate::rate_limit::limit::RateLimit;
use crate::stores::digests::store::DigestStore;
use crate::stores::uploads::related::RelatedUploads;
use crate::stores::uploads::store::UploadStore;
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
    /// Its handlers, in order.
    pub handlers: Vec<Handler>,
    /// Its files; `None` where all requests go to an upstream.
    pub files: Option<Arc<Files>>,
    /// Its upstream, in place of files or as their fallback.
    pub proxy: Option<Arc<Proxy>>,
    /// Reachable only through X-Accel-Redirect.
    pub internal: bool,
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
    /// Its limits.
    pub fn limits(&self) -> &[Arc<RateLimit>] {
        let mut handlers = self.handlers.iter();
        let limits = handlers.find_map(|handler| match handler {
            Handler::RateLimits(limits) => Some(&limits[..]),
            _ => None,
        });
        limits.unwrap_or_default()
    }

    /// What clients may write there; `None` where they may write nothing.
    pub fn upload(&self) -> Option<&Arc<Upload>> {
        let mut handlers = self.handlers.iter();
        handlers.find_map(|handler| match handler {
            Handler::Upload(upload) => Some(upload),
            _ => None,
        })
    }

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

    /// Whether files that it needs do not respond.
    pub fn is_closed(&self) -> bool {
        let mut handlers = self.handlers.iter();
        handlers.any(|handler| matches!(handler, Handler::Gate(Gate::Closed)))
    }

    /// Whether an application decides about each path.
    pub fn asks_about_paths(&self) -> bool {
        let mut handlers = self.handlers.iter();
        handlers.any(|handler| matches!(handler, Handler::Gate(Gate::ForwardAuth(_))))
    }

    /// Whether gates decide about each path by itself, so that whoever may have a folder need not have what is in it.
    pub fn has_gates_of_paths(&self) -> bool {
        let mut handlers = self.handlers.iter();
        handlers.any(|handler| {
            matches!(
                handler,
                Handler::Gate(Gate::ForwardAuth(_) | Gate::SignedUrl(_))
            )
        })
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
    /// Statuses and paths, as [`Candidate::At`] has them.
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

/// The header in which an application gets the certificate of a client (RFC 9440, 2.2).
pub const CLIENT_CERT: &str = "Client-Cert";

/// The one for what it was signed with, which is not sent (RFC 9440, 2.3).
pub const CLIENT_CERT_CHAIN: &str = "Client-Cert-Chain";

/// What a site with TLS asks of connections.
pub struct HttpsRules {
    /// The number of the site among those with TLS, if its clients show certificates in the handshake.
    pub client_auth: Option<usize>,
    /// Where plain requests are redirected to, if they are.
    pub redirect: Option<HttpsRedirect>,
}

/// Where plain requests of a site with TLS are redirected to.
pub struct HttpsRedirect {
    /// At the port of the listener with TLS.
    pub own_port: RedirectTo,
    /// At the usual port: something in front of the server has passed the usual port of plain requests on to another one here, and so
    /// the one of TLS (containers).
    pub usual_port: RedirectTo,
}

/// A handler of a location; [`handler`](crate::handler) implements it.
pub enum Handler {
    /// Answers authorities that look whether the name of the site leads here.
    Acme(Arc<Challenges>),
    /// Has requests come over TLS, as the site wants them.
    Https(HttpsRules),
    /// Answers the preflight requests of other origins.
    Preflight(Cors),
    /// Lets the request through, or refuses it. Gates come first.
    Gate(Gate),
    /// Writes files.
    Upload(Arc<Upload>),
    /// Refuses the request if there are too many, and limits the bytes of the response. It says nothing about who may have a
    /// file, so it is no gate. Never empty.
    RateLimits(Vec<Arc<RateLimit>>),
    /// Serves files; the last handler.
    Files(Arc<Files>),
    /// Redirects every request; the last handler.
    Redirect(RedirectTo),
    /// Has every request routed again, for another target; the last handler.
    Rewrite(TargetOf),
    /// The same, but refuses a request that was rewritten already: a rule for everything would match its own target.
    RewriteOnce(TargetOf),
    /// Gives every request the same response; the last handler.
    Respond(Fixed),
    /// Sends to mailboxes and receives from them; the last handler.
    Mailbox(MailboxEndpoint),
    /// Finds the script of a directory whose index names list scripts before files.
    IndexScript,
    /// Serves a file or folder if it exists.
    ExistingFile(FileStep),
    /// Finds the script for the upstream; without one the response is 404.
    Script,
    /// Proxies to the upstream; the last handler.
    Proxy(Arc<Proxy>),
    /// Refuses with an error of this status what no file answers; the last handler.
    Refuse(u16),
}

/// Decides whether a request reaches the handlers behind it.
pub enum Gate {
    /// Lets nobody in: files that the location needs do not respond.
    Closed,
    /// By the address of the client.
    Access(Access),
    /// By a signature in the URL.
    SignedUrl(SignedUrl),
    /// By a JSON Web Token.
    Jwt(Jwt),
    /// By name and password.
    BasicAuth(Arc<BasicAuth>),
    /// By the response of an application.
    ForwardAuth(ForwardAuth),
}

/// What clients may write beneath the root of a location.
pub struct Upload {
    /// As configured.
    pub settings: levity_config::Upload,
    /// The files.
    pub files: Arc<Files>,
    /// What is known of the uploads beneath the root.
    pub store: Arc<UploadStore>,
    /// Other methods, and OPTIONS, are left to an upstream.
    pub has_proxy: bool,
    /// The scripts among these files at any location: whoever may write one could have it run.
    pub scripts: Vec<Scripts>,
}

impl Upload {
    /// Whether `method` is permitted.
    pub fn permits(&self, method: UploadMethod) -> bool {
        self.settings.methods.contains(&method)
    }

    /// Whether `path`, relative to the root, may be that of an uploaded file: it is neither hidden nor a script anywhere, nor
    /// would it be sent in place of a file that must not be replaced.
    pub fn accepts(&self, path: &[u8]) -> bool {
        let is_form = !self.settings.overwrite
            && !self.files.precompressed.is_empty()
            && scripts::without_coding(path) != path;
        self.files.shows(path)
            && !is_form
            && !self.scripts.iter().any(|scripts| scripts.is_source(path))
    }
}

/// An application that decides about requests.
pub struct ForwardAuth {
    /// The application.
    pub proxy: Arc<Proxy>,
    /// Path and query of the request to it.
    pub path: Vec<u8>,
    /// Headers of its responses that the application of the location gets.
    pub copy: Vec<String>,
    /// The header with the name of the user.
    pub user: Option<String>,
}

/// The users with passwords that a location lets in.
pub struct BasicAuth {
    /// The users.
    pub users: Users,
    /// The value of WWW-Authenticate in refusals.
    pub challenge: String,
    /// Whether applications get the Authorization header.
    pub pass_authorization: bool,
    /// The header with the name of the user, for applications.
    pub user_header: Option<String>,
}

/// The clients that a location lets in.
pub struct Access {
    /// All of them; `None` stands for everyone.
    pub allow: Option<AddressSet>,
    /// Those that are refused nevertheless.
    pub deny: AddressSet,
}

/// One step of a search for a file.
pub struct FileStep {
    /// Where it searches.
    pub files: Arc<Files>,
    /// What it searches for.
    pub candidate: Candidate,
}

/// What may lie beneath the root for a path.
pub enum Candidate {
    /// The file that the path names, or the index file of the folder.
    FileOrIndex,
    /// The file that the path names.
    File,
    /// The file whose name is the path with this suffix.
    WithSuffix(Vec<u8>),
    /// The folder that the path names, with its index file or as a list.
    Folder,
    /// The file of this path, whatever is requested. It begins with the prefix that is stripped from paths.
    At(Vec<u8>),
}

impl Candidate {
    /// The path of the candidate for the requested `path`; `None` if there can be none.
    pub fn path<'a>(&'a self, path: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let names_folder = path.ends_with(b"/");
        match self {
            Self::FileOrIndex => Some(path.into()),
            Self::File => (!names_folder).then_some(path.into()),
            Self::WithSuffix(suffix) => (!names_folder).then(|| [path, suffix].concat().into()),
            Self::Folder if names_folder => Some(path.into()),
            Self::Folder => Some([path, b"/"].concat().into()),
            Self::At(path) => Some(path.into()),
        }
    }
}

/// How a location redirects requests.
pub struct RedirectTo {
    /// The status.
    pub status: u16,
    /// The target.
    pub target: TargetOf,
}

/// A target that is made from a request.
pub struct TargetOf {
    /// Its text, with placeholders.
    pub template: Template,
    /// The path of the route, if it is one.
    pub path: Option<Pattern>,
}

/// Where clients use a set of mailboxes.
pub struct MailboxEndpoint {
    /// The set.
    pub set: Arc<MailboxSet>,
    /// What precedes the name of a box in paths.
    pub prefix: Vec<u8>,
}

impl MailboxEndpoint {
    /// The part of `path` that names a box.
    pub fn beneath<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let name = path.strip_prefix(&self.prefix[..]).unwrap_or(path);
        name.strip_prefix(b"/").unwrap_or(name)
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
