//! The configuration as the server uses it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_disk::{Changes, Direct};
use strum::{EnumString, VariantNames};

use crate::absent_roots::AbsentRoots;
use crate::acme::{Acme, Dns};
use crate::address::Address;
use crate::cors::Cors;
use crate::expression::Expression;
use crate::files::Files;
use crate::gates::Gates;
use crate::hidden::Hidden;
use crate::limits::Limits;
use crate::line::{Line, Note};
use crate::location_options::LocationOptions;
use crate::log_format::LogTemplate;
use crate::mailbox::{Mailbox, MailboxStore};
use crate::matcher::Matcher;
use crate::network::TrustedProxies;
use crate::own_names::OwnNames;
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::rate_limit::RateLimit;
use crate::reader::NamedFile;
use crate::resume::Resume;
use crate::template::{Part, Template};
use crate::tls::{SiteTls, Tls};
use crate::tries::Try;
use crate::upload::Upload;
use crate::upstream::{Proxying, Rewrite, Upstream};

/// A configuration. [`Config::default`] is that of an empty file: no site, listening on `127.0.0.1:8080`. `Debug` shows the names of
/// its files only: it has secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[disk]`
    pub disk: Disk,
    /// `[log]`
    pub log: Log,
    /// `[admin]`; `None` without an admin listener.
    pub admin: Option<Admin>,
    /// The path of the socket by which the server is controlled, if `[admin]` names one.
    pub control: Option<PathBuf>,
    /// `[limits]`
    pub limits: Limits,
    /// Where clients connect; never empty.
    pub listen: Vec<Listen>,
    /// `[tls]`
    pub tls: Tls,
    /// `[acme]`
    pub acme: Acme,
    /// Host names that requests over TCP must have, whatever the sites say; `None` allows any. Set by `levity
    /// serve` only.
    pub own_names: Option<OwnNames>,
    /// In the order of the files.
    pub sites: Vec<Site>,
    /// In the order of the files.
    pub upstreams: Vec<Upstream>,
    /// Where the messages of mailboxes are kept.
    pub mailbox_store: MailboxStore,
    /// Sets of mailboxes, in the order of the files.
    pub mailboxes: Vec<Mailbox>,
    /// Files, and folders with everything in them, that are sent to nobody, whatever path leads to them.
    pub secrets: Vec<PathBuf>,
    /// The paths in the files, with their lines, except those of credentials of the service and of sockets.
    pub paths: Vec<NamedFile>,
    /// Remarks for the operator that are not errors, such as a key under another server's name.
    pub notes: Vec<Note>,
    /// What texts for people show in place of values from variables.
    pub hidden: Hidden,
    /// The files that it was read from.
    pub files: Files,
    /// The roots that may be absent.
    pub absent_roots: AbsentRoots,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.files.names().collect();
        f.debug_struct("Config")
            .field("files", &names)
            .finish_non_exhaustive()
    }
}

/// `[server]`: the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Event loops; `None` is one per core.
    pub workers: Option<usize>,
    /// Proxies whose statements about the client are believed.
    pub trusted_proxies: TrustedProxies,
    /// Source of a file's ETag.
    pub etag: Etag,
    /// The header with the id of a request, in lower case; `None` where ids are neither taken nor passed on.
    pub request_id: Option<String>,
    /// Changes to the headers of responses, in every site that does not reset them.
    pub headers: Vec<Headers>,
}

/// Source of a file's ETag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Etag {
    /// Device, inode, size and all times: every version has another tag.
    File,
    /// Modification time and size: copies on several machines have the same tag, and so do two versions of equal
    /// time and size.
    MtimeSize,
    /// A hash of the content (SHA-256), once it is known: copies on several machines have the same tag, whatever their
    /// times. Before, and for files larger than `limits.digest_bytes`, as with `file`.
    Content,
}

/// `[admin]`: where `/metrics` and `/status` are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The address.
    pub listen: Address,
    /// The host names to which it answers over TCP.
    pub names: OwnNames,
}

/// `[[listen]]`: where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address; unique, except with port 0.
    pub address: Address,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Whether own processes may publish here without a key; on a Unix socket only.
    pub publish: bool,
}

impl From<Address> for Listen {
    /// Without the PROXY protocol, without TLS, and not for publishers.
    fn from(address: Address) -> Self {
        Self {
            address,
            proxy_protocol: false,
            tls: false,
            publish: false,
        }
    }
}

/// `[disk]`: how files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The settings of the disk crate: engine, threads, queues and memory.
    pub settings: levity_disk::Settings,
    /// Bytes per read, a multiple of 4096.
    pub chunk_bytes: Option<usize>,
    /// Whether reads go past the page cache.
    pub direct: Direct,
    /// How files change.
    pub changes: Changes,
    /// Memory for small bodies that are requested often; 0 is off.
    pub cache_bytes: usize,
    /// How long an open file and its metadata are trusted.
    pub entry_ttl: Duration,
    /// Notifications that end it earlier.
    pub watch: Watch,
    /// The folder for request bodies that do not fit into memory.
    pub spool: PathBuf,
    /// The folder for compressed forms of popular files, if they are kept.
    pub variants: Option<PathBuf>,
    /// The maximum size of those files in bytes.
    pub variants_bytes: usize,
}

/// How changes to files are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Watch {
    /// By checking files again.
    Off,
    /// By notifications of the kernel.
    Inotify,
}

impl Disk {
    /// How long the target of the path of a root is trusted: a watch covers what is beneath a root, not its path.
    #[must_use]
    pub fn root_ttl(&self) -> Duration {
        match self.watch {
            Watch::Off => self.entry_ttl,
            Watch::Inotify => self.entry_ttl.min(WATCHED_ROOT_TTL),
        }
    }
}

/// How long the path of a root is trusted under a watch, where files may be trusted for longer.
const WATCHED_ROOT_TTL: Duration = Duration::from_secs(1);

/// Reads with `O_DIRECT` start and end at multiples of the largest logical block in use.
pub(crate) const CHUNK_STEP_BYTES: usize = 4096;

/// `[log]`, or the log of a site or route: the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where lines go.
    pub access: AccessLog,
    /// The format of a line.
    pub format: LogFormat,
    /// Timings in a line; more than the totals only in JSON.
    pub timing: LogTiming,
}

impl Log {
    /// Whether lines contain the time of each step.
    #[must_use]
    pub fn logs_steps(&self) -> bool {
        self.timing != LogTiming::Off && self.access != AccessLog::Off
    }

    /// Whether lines contain the times of each chunk.
    #[must_use]
    pub fn logs_chunks(&self) -> bool {
        self.timing == LogTiming::Chunk && self.access != AccessLog::Off
    }
}

/// Where the lines of the access log go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file, opened for appending.
    File(PathBuf),
}

/// The format of a line of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFormat {
    /// The Combined Log Format of the Apache HTTP server.
    Combined,
    /// One JSON object per line.
    Json,
    /// Text with fields.
    Custom(LogTemplate),
}

/// Timings in a line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum LogTiming {
    /// The totals that every line has.
    Off,
    /// The time of each step.
    Request,
    /// The time of each step, and the times of each chunk.
    Chunk,
}

/// `[[site]]`: what is served under which names. The default has no folder and no upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Lower case, without port and final dot, each at most once in a file; `*.example.org` stands
    /// for every name beneath. Empty answers any host.
    pub hosts: Vec<String>,
    /// Serves this one file of the root, at `/` and under its own name, and nothing else. No key of the
    /// file sets it; `levity serve FILE` does.
    pub only: Option<std::ffi::OsString>,
    /// Where its table is.
    pub line: Line,
    /// Whether it answers for host names that no site has, and its certificate is for them.
    pub is_default: bool,
    /// How clients reach it over TLS, if they can.
    pub tls: Option<SiteTls>,
    /// What answers where no route matches.
    pub location: Location,
    /// The first that matches wins. A route within a route comes before it.
    pub routes: Vec<Route>,
}

/// `[[site.route]]`: other rules for some requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// All of them match: those of the routes around it, and then its own. Never empty.
    pub matchers: Vec<Matcher>,
    /// Where its path is.
    pub line: Option<Line>,
    /// The file of a static host that has this line; `None` for the configuration.
    pub host_file: Option<&'static str>,
    /// What answers there.
    pub location: Location,
}

/// The keys of a site or route, with those that it inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// The folder that is served; absolute when it comes from [`load`](crate::load()). A location with `proxy` or an
    /// answer may have none.
    pub root: Option<PathBuf>,
    /// Starts with a slash and does not end with one; whole segments at the start of the route's path. A path
    /// of which nothing is left is `/`.
    pub strip_prefix: Option<String>,
    /// Files without which nobody can be let in, and that do not respond.
    pub unread: Vec<PathBuf>,
    /// Keys with defaults.
    pub options: LocationOptions,
    /// Its access log; `None` stands for that of the server.
    pub log: Option<Log>,
    /// How requests are handed to an upstream.
    pub proxying: Proxying,
    /// The response to all requests.
    pub answer: Option<Answer>,
    /// Whether a file at the path goes before the answer. No key sets it, but the `_redirects` of a static host.
    pub files_first: bool,
    /// Who is let in.
    pub gates: Gates,
    /// How much is let through: those of the site, then those of the routes around it, and its own.
    pub rate_limits: Vec<RateLimit>,
    /// Whether it is reachable only through X-Accel-Redirect; clients get 404.
    pub internal: bool,
    /// What clients may write, where its files answer.
    pub upload: Option<Upload>,
    /// What pages of other origins may do.
    pub cors: Option<Cors>,
    /// The folder with the pages for its errors: that of the table which names them.
    pub error_pages_root: Option<PathBuf>,
    /// Changes to the headers of responses: first those of the server, last its own.
    pub headers: Vec<Headers>,
    /// Changes to the headers of responses to some paths, from the `_headers` of a static host; all that match apply.
    pub path_headers: Arc<[PathHeaders]>,
    /// Changes to the headers of requests on their way to an upstream.
    pub request_headers: Headers,
    /// Changes to URLs and cookies in an upstream's responses.
    pub rewrite: Rewrite,
    /// The set of mailboxes, by its number in [`Config::mailboxes`], that an upstream's responses use by their headers.
    pub mailbox_headers: Option<usize>,
    /// How event streams of an upstream are kept for clients that come back.
    pub resume: Option<Resume>,
}

impl Location {
    /// Whether files beneath a root may answer.
    #[must_use]
    pub fn asks_files(&self) -> bool {
        let proxying = &self.proxying;
        let mut tries = proxying.tries.iter().flatten();
        self.root.is_some() && (proxying.proxy.is_none() || tries.any(Try::asks_files))
    }

    /// What clients may write, where files may answer.
    #[must_use]
    pub fn uploads(&self) -> Option<&Upload> {
        let may_answer = self.answer.is_none() && self.asks_files();
        self.upload.as_ref().filter(|_| may_answer)
    }

    /// The steps of `try` that look for what the path of a request names.
    #[must_use]
    pub fn searches(&self) -> Vec<Try> {
        match &self.proxying.tries {
            None => vec![Try::File],
            Some(tries) => tries
                .iter()
                .filter(|one| one.looks_for_path())
                .cloned()
                .collect(),
        }
    }
}

impl Route {
    /// Its own matcher.
    #[must_use]
    pub fn matcher(&self) -> &Matcher {
        self.matchers.last().expect("a route has a matcher")
    }
}

impl Site {
    /// Its name in logs and metrics: its first host, or `default`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("default", String::as_str)
    }

    /// Its routes by the text with which their paths start.
    #[must_use]
    pub fn route_index(&self) -> PatternIndex {
        let mut index = PatternIndex::default();
        for (number, route) in self.routes.iter().enumerate() {
            index.push(route.matcher().path.start(), number);
        }
        index
    }

    /// The maximum weight of the expressions that a request may be compared with to find its route, and the headers of its
    /// path: of those whose paths start as its own. One with stars, or with names of a static host, has the weight 1.
    #[must_use]
    pub fn expressions(&self) -> usize {
        let of_route = |number: usize| {
            let matchers = self.routes[number].matchers.iter();
            matchers.map(Matcher::expressions).sum()
        };
        let headers = &self.location.path_headers;
        let mut of_headers = PatternIndex::default();
        for (number, of) in headers.iter().enumerate() {
            of_headers.push(of.path.start(), number);
        }
        let weight = |of: &PathHeaders| of.path.weight() + usize::from(of.host.is_some());
        self.route_index().heaviest(of_route)
            + of_headers.heaviest(|number| weight(&headers[number]))
    }

    /// What answers at its routes and elsewhere.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        let routes = self.routes.iter().map(|route| &route.location);
        routes.chain([&self.location])
    }
}

/// The response to every request of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Another URL.
    Redirect(Redirect),
    /// What the request would get if it were for this path.
    Reroute(Template),
    /// A fixed response.
    Fixed(Fixed),
    /// Boxes of the set of mailboxes with this number in [`Config::mailboxes`].
    Mailbox(usize),
}

/// `redirect`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The URL, or the path on this server.
    pub to: Template,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// `respond`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// 200 to 599.
    pub status: u16,
    /// The content; empty for a status that has none.
    pub body: String,
    /// Names and values, in the order of the file.
    pub headers: Vec<(String, String)>,
}

impl Answer {
    /// The key that gives it.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Redirect(_) => "redirect",
            Self::Reroute(_) => "reroute",
            Self::Fixed(_) => "respond",
            Self::Mailbox(_) => "mailbox",
        }
    }

    /// The status with which every request is refused, 400 or above; `None` if some get more than that. What says `None` by
    /// mistake is passed by under another name of a file.
    #[must_use]
    pub fn refusal(&self) -> Option<u16> {
        match self {
            Self::Fixed(fixed) => Some(fixed.status).filter(|status| *status >= 400),
            Self::Redirect(_) | Self::Reroute(_) | Self::Mailbox(_) => None,
        }
    }
}

/// Headers of responses to some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathHeaders {
    /// The hosts, with their ports; `None` for all.
    pub host: Option<Expression>,
    /// The paths.
    pub path: Pattern,
    /// Names and values to write, of texts and groups of the path; headers of the same name are replaced.
    pub set: Vec<(String, Vec<Part>)>,
    /// Names to leave out.
    pub remove: Vec<String>,
}

/// Changes to headers. Names are valid tokens and unique, without regard to case; none of them frames the
/// message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// Names and values to write, in the order of the file. Headers of the same name are replaced.
    pub set: Vec<(String, String)>,
    /// Names and values to write in addition to headers of the same name.
    pub add: Vec<(String, String)>,
    /// Names to leave out.
    pub remove: Vec<String>,
    /// Whether responses of errors are changed too; of no use in requests.
    pub always: bool,
}

impl Config {
    /// Whether a server with this configuration starts programs.
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        matches!(self.acme.dns, Some(Dns::Hook(_)))
    }

    /// The number of the site that answers for host names that no site has, if there is one.
    #[must_use]
    pub fn default_site(&self) -> Option<usize> {
        default_site(&self.sites)
    }

    /// The number of the site whose certificate clients get that ask for a name that no site with TLS has, or for none. `None` refuses
    /// their handshakes: the order of sites decides nothing.
    #[must_use]
    pub fn default_tls_site(&self) -> Option<usize> {
        default_tls_site(&self.sites)
    }

    /// The files without which nobody can be let in to `location`, and that do not respond: its own, and those of its mailboxes and
    /// of its upstream.
    pub fn unread<'c>(&'c self, location: &'c Location) -> impl Iterator<Item = &'c PathBuf> {
        let of_answer = match location.answer {
            Some(Answer::Mailbox(number)) => Some(number),
            _ => None,
        };
        let sets = of_answer.into_iter().chain(location.mailbox_headers);
        let of_sets = sets.flat_map(|number| &self.mailboxes[number].unread);
        let of_location =
            |upstream: &&Upstream| location.proxying.proxy.as_ref() == Some(&upstream.name);
        let upstream = self.upstreams.iter().filter(of_location);
        let of_upstream = upstream.flat_map(|upstream| &upstream.unread);
        location.unread.iter().chain(of_sets).chain(of_upstream)
    }

    /// Turns off the access logs of the server and of all sites and routes.
    pub fn turn_off_logs(&mut self) {
        self.log.access = AccessLog::Off;
        for site in &mut self.sites {
            site.location.log = None;
            for route in &mut site.routes {
                route.location.log = None;
            }
        }
    }

    /// Whether clients connect to `address`.
    #[must_use]
    pub fn listens_on(&self, address: &Address) -> bool {
        self.listen.iter().any(|listen| listen.address == *address)
    }

    /// Whether connections to `address`, as configured, begin with a PROXY header.
    #[must_use]
    pub fn has_proxy_header(&self, address: &Address) -> bool {
        let mut listen = self.listen.iter();
        listen.any(|listen| listen.proxy_protocol && listen.address == *address)
    }

    /// Whether connections to `address`, as configured, are encrypted.
    #[must_use]
    pub fn has_tls(&self, address: &Address) -> bool {
        let mut listen = self.listen.iter();
        listen.any(|listen| listen.tls && listen.address == *address)
    }

    /// Whether own processes that connect to `address`, as configured, may publish without a key.
    #[must_use]
    pub fn is_for_publishers(&self, address: &Address) -> bool {
        let mut listen = self.listen.iter();
        listen.any(|listen| listen.publish && listen.address == *address)
    }

    /// The engines that sites and routes name, each once.
    pub fn location_engines(&self) -> BTreeSet<&str> {
        let locations = self.sites.iter().flat_map(Site::locations);
        let named = locations.filter_map(|location| location.options.disk.engine.as_deref());
        named
            .filter(|name| *name != levity_disk::engine::AUTO)
            .collect()
    }
}

fn default_site(sites: &[Site]) -> Option<usize> {
    let position = |is_it: fn(&Site) -> bool| sites.iter().position(is_it);
    position(|site| site.is_default).or_else(|| position(|site| site.hosts.is_empty()))
}

/// As [`Config::default_tls_site`].
pub(crate) fn default_tls_site(sites: &[Site]) -> Option<usize> {
    let has_tls = |number: &usize| sites[*number].tls.is_some();
    let only = || {
        let mut with_tls = (0..sites.len()).filter(has_tls);
        let first = with_tls.next();
        first.filter(|_| with_tls.next().is_none())
    };
    default_site(sites).filter(has_tls).or_else(only)
}
