//! Route: from host and path to the location that answers.

mod compile;
mod explain;
mod fingerprint;
mod location;
mod matching;
mod rules;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use levity_acme::Acme;
use levity_config::{Config, Etag, Matcher, PatternIndex};
use levity_disk::{Disk, EngineId, Root};
use levity_telemetry::diagnostics;
use levity_tls::TicketKeys;
use levity_wire::{Reject, http1, path};

use crate::compute::Compute;
use crate::credentials::guesses::Guesses;
use crate::digest_store::store::DigestStore;
use crate::http::request::Request;
use crate::mailboxes::set::SharedMailboxes;
use crate::rate_limit::registry::Registry;
use crate::root::LiveRoot;
use crate::shares::Shares;
use crate::tls::acme::AcmeThread;
use crate::tls::folder;
use crate::tls::sites::TlsSites;
use crate::tls::staple::Staples;
use crate::upload_store::store::UploadStore;
use crate::upstream::sendfile::store::PreloadStore;
use crate::upstream::{self, Upstream};
use crate::variant_store::store::VariantStore;

use self::compile::roots::Roots;
use self::compile::stores::Stores;
use self::compile::{logs, stores};
pub use self::explain::path_of;
pub use self::fingerprint::Sought;
pub use self::location::{
    Access, BasicAuth, CLIENT_CERT, Candidate, ErrorPages, FileDigests, FileStep, FileVariants,
    Files, ForwardAuth, Gate, Handler, HttpsRedirect, HttpsRules, Location, MailboxEndpoint,
    NameRules, Proxy, RedirectTo, Resume, SpoolFolder, TargetOf, Upload,
};
pub use self::matching::{OwnedInput, RouteInput};
pub use self::rules::{OwnedRules, Rules, TooLong};

/// The maximum of bytes that the expressions of a site look at for one request: of its target, once for each of them. One
/// byte takes 1 to 2 ns; of a regular expression it may take some 40 ns, so these count for more.
const MATCHED_BYTES_MAX: usize = 512 * 1024;

/// The maximum of routes of a site that are looked at one by one.
const COMPARED_ROUTES_MAX: usize = 32;

struct Site {
    routes: Vec<Route>,
    /// Finds a route, where there are more than [`COMPARED_ROUTES_MAX`].
    index: Option<PatternIndex>,
    rest: Location,
}

struct Route {
    matchers: Vec<Matcher>,
    location: Location,
}

/// What a configuration is compiled with. A reload does not change it.
#[derive(Clone)]
pub struct ServiceParts {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What computes off the loop.
    pub compute: Arc<Compute>,
    /// What clients share.
    pub shares: Arc<Shares>,
    /// The bounds on guessing passwords.
    pub guesses: Arc<Guesses>,
    /// The limits of sites and routes.
    pub rate_limits: Arc<Registry>,
    /// What all sets of mailboxes have in common.
    pub mailboxes: Arc<SharedMailboxes>,
    /// The same for the event streams that `resume` keeps.
    pub resume: Arc<SharedMailboxes>,
    /// The store of compressed forms of popular files, if they are kept.
    pub variants: Option<Arc<VariantStore>>,
    /// The maximum of files that handlers keep open between requests.
    pub kept_files_max: usize,
    /// Whether clients connect. Without any, certificates are not read: whoever explains a request need not be able to read keys.
    pub has_clients: bool,
    /// Keys of session tickets that no file gives.
    pub ticket_keys: Arc<TicketKeys>,
    /// What gets certificates.
    pub acme: AcmeThread,
    /// What responders of OCSP have said of certificates.
    pub staples: Arc<Staples>,
}

/// A compiled configuration. Immutable: a reload makes a new one, and requests in progress keep theirs.
pub struct Service {
    /// The configuration as written.
    pub config: Config,
    /// The certificates of sites, if a listener uses TLS.
    pub tls: Option<Arc<TlsSites>>,
    /// The folder for request bodies that exceed the memory limit.
    pub spool: Option<SpoolFolder>,
    /// That folder did not respond.
    has_silent_spool: bool,
    /// An engine that reads into memory, also where that of a location leaves bytes in the page cache.
    pub memory_engine: Option<EngineId>,
    /// The bounds on guessing passwords.
    pub guesses: Arc<Guesses>,
    /// Limits of the request parser.
    pub wire_limits: http1::Limits,
    /// The upstreams in the order of `config.upstreams`.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Every root, including those of delegated files; each once.
    live_roots: Vec<Arc<LiveRoot>>,
    absent_roots: Vec<PathBuf>,
    /// Content that applications have preloaded.
    preloads: Option<Arc<PreloadStore>>,
    /// Digests of files.
    digests: Option<Arc<DigestStore>>,
    /// The uploads beneath each root that takes some.
    uploads: Vec<Arc<UploadStore>>,
    sites: Vec<Site>,
    by_host: HashMap<String, usize>,
    /// Suffixes of host names with their leading dot.
    by_suffix: Vec<(String, usize)>,
    default_site: Option<usize>,
    /// The access logs that are not off, each once.
    pub logs: Vec<levity_config::Log>,
    /// That of requests without a location, in `logs`; `None` if it is off.
    pub log: Option<usize>,
    /// The maximum weight of the expressions that a site has for its routes.
    expressions_max: usize,
    /// Every request is timed step by step, because a log or Server-Timing may need it.
    pub times_each_step: bool,
    /// Every request keeps the times of its chunks, because a log may need them.
    pub keeps_chunks: bool,
}

impl Service {
    /// Has the certificates of sites got and renewed as this configuration says.
    pub fn follow_certificates(&self, parts: &ServiceParts) {
        let folder = self.tls.as_ref().map(|tls| tls.folder());
        parts.acme.follow(&self.config, folder);
    }

    /// Opens every root, starts the engines of sites and routes in the disk of `parts`, and resolves the names of
    /// backends. Upstreams keep the health that they have in `old`, the configuration before this one; preloaded
    /// content and incomplete uploads stay too. Blocks.
    ///
    /// # Errors
    /// When a root cannot be opened or an engine cannot run here; the error names it.
    pub fn new(config: Config, parts: &ServiceParts, old: Option<&Self>) -> io::Result<Self> {
        let disk = &*parts.disk;
        let old_upstreams = old.map(|old| &*old.upstreams);
        let upstreams = upstream::make(&config.upstreams, old_upstreams)?;
        let acme = parts.acme.start(&config)?;
        let preloads = stores::preloads(&config, parts.kept_files_max, old);
        let digests = stores::digests(&config, old);
        check_unread(&config, old)?;
        let before = old.map_or(&[][..], |old| &old.live_roots);
        // While something is missing already, there is nothing to keep.
        let may_be_absent = old.is_none_or(Self::is_incomplete);
        let mut roots = Roots::after(before, folder::secrets(&config), may_be_absent);
        let uploads = stores::uploads(&config, &mut roots, old);
        let kept = Stores {
            preloads: preloads.as_ref(),
            digests: digests.as_ref(),
            uploads: &uploads,
        };
        let (sites, roots) =
            compile::sites(&config, &upstreams, &kept, roots, parts, acme.as_ref())?;
        let (live_roots, absent_roots) = roots.into_parts();
        let expressions = config.sites.iter().map(levity_config::Site::expressions);
        let expressions_max = expressions.max().unwrap_or_default();
        let logs = logs::logs(&config);
        let times_each_step = logs.iter().any(levity_config::Log::logs_steps)
            || (sites.iter().flat_map(Site::locations)).any(|location| location.server_timing);
        let spool = stores::spool(&config, disk)?;
        let mut service = Self {
            wire_limits: compile::wire_limits(&config.limits),
            has_silent_spool: spool.is_silent(),
            spool: spool.opened(),
            memory_engine: disk.engine_for("threads").map_err(io::Error::other)?,
            guesses: parts.guesses.clone(),
            upstreams,
            live_roots,
            absent_roots,
            preloads,
            digests,
            uploads,
            sites,
            by_host: HashMap::new(),
            by_suffix: Vec::new(),
            default_site: config.default_site(),
            log: logs::log_number(&logs, &config.log),
            tls: tls_sites(&config, parts, acme, old)?,
            keeps_chunks: logs.iter().any(levity_config::Log::logs_chunks),
            logs,
            expressions_max,
            times_each_step,
            config,
        };
        for (number, site) in service.config.sites.iter().enumerate() {
            for host in &site.hosts {
                match host.strip_prefix('*') {
                    Some(suffix) => service.by_suffix.push((suffix.to_owned(), number)),
                    None => {
                        service.by_host.insert(host.clone(), number);
                    }
                }
            }
        }
        Ok(service)
    }

    /// Whether something that the configuration names did not respond when this was made. Made again, it may be complete.
    pub fn is_incomplete(&self) -> bool {
        self.has_silent_spool
            || (self.sites.iter().flat_map(Site::locations)).any(Location::is_closed)
    }

    /// The roots that could not be opened. What needs them is closed.
    pub fn absent_roots(&self) -> &[PathBuf] {
        &self.absent_roots
    }

    /// Removes what uploads have left in their roots before a crash. Blocks.
    pub fn remove_stale_uploads(&self) {
        self.uploads
            .iter()
            .for_each(|uploads| uploads.remove_stale());
    }

    /// Checks the roots that are due, and drops content whose time is over. Does not wait. Each event loop
    /// calls it every [`SWEEP_INTERVAL`](levity_net::SWEEP_INTERVAL).
    pub fn sweep(&self, disk: &Disk, now: Instant) {
        for root in &self.live_roots {
            root.check_if_due(disk, now, self.config.disk.root_ttl());
        }
        if let Some(preloads) = &self.preloads {
            preloads.sweep(now);
        }
        for uploads in &self.uploads {
            uploads.sweep(now);
        }
    }

    /// The store of digests, if they are the ETags of files (`server.etag`).
    pub fn content_etags(&self) -> Option<&Arc<DigestStore>> {
        let digests = self.digests.as_ref();
        digests.filter(|_| self.config.server.etag == Etag::Content)
    }

    /// Every distinct root of a location, as of the last check.
    pub fn roots(&self) -> Vec<Arc<Root>> {
        let mut roots: Vec<Arc<Root>> = Vec::new();
        let locations = self.sites.iter().flat_map(Site::locations);
        for files in locations.filter_map(|location| location.files.as_ref()) {
            let root = files.root.last();
            if !roots.iter().any(|known| Arc::ptr_eq(known, &root)) {
                roots.push(root);
            }
        }
        roots
    }

    /// The first location that matches `input` if it is for `path`; `None` when no site matches `host`.
    pub fn route(&self, host: &[u8], path: &[u8], input: RouteInput<'_>) -> Option<&Location> {
        Some(self.sites[self.site_of(host)?].location(path, input))
    }

    /// As [`route`](Self::route), as if there were no internal routes: what it finds gives a request for one of these the headers and
    /// the page of any other error 404, so that no client can tell which paths are internal. Returns the number of the route, too.
    pub fn public_route(
        &self,
        host: &[u8],
        path: &[u8],
        input: RouteInput<'_>,
    ) -> Option<(Option<usize>, &Location)> {
        let site = &self.sites[self.site_of(host)?];
        let route = site.first_route(path, |number| {
            let route = &site.routes[number];
            !route.location.internal && input.matches(&route.matchers, path)
        });
        let location = route.map_or(&site.rest, |route| &site.routes[route].location);
        Some((route, location))
    }

    /// Checks that the routes can be compared with the target of `request` without holding up the loop.
    ///
    /// # Errors
    /// 414 for a target that is too long for so many expressions.
    pub fn check_length(&self, request: &Request) -> Result<(), Reject> {
        self.check_matched(request.target().len())
    }

    /// Checks that paths of so many bytes together may be compared with the routes.
    fn check_matched(&self, bytes: usize) -> Result<(), Reject> {
        if bytes * self.expressions_max <= MATCHED_BYTES_MAX {
            return Ok(());
        }
        Err(Reject {
            status: 414,
            reason: "the target is too long for the number of routes",
        })
    }

    /// Checks that an application at `location`, which was found for `input`, cannot read the path as one
    /// of another location: it would bypass the rules of that location.
    ///
    /// # Errors
    /// 400 for a path that some applications read as one of another location, unless `location` allows such
    /// paths; also for paths that [`path::forwarded`] refuses. 414 as for [`check_length`](Self::check_length).
    pub fn check_readings(&self, input: RouteInput<'_>, location: &Location) -> Result<(), Reject> {
        let request = input.request;
        let Some(proxy) = &location.proxy else {
            return Ok(());
        };
        let path = path::forwarded(request.raw_path())?;
        if proxy.passes_ambiguous {
            return Ok(());
        }
        let is_here = |path: &Vec<u8>| {
            let found = self.route(request.host(), path, input);
            found.is_some_and(|found| std::ptr::eq(found, location))
        };
        let readings = path::other_readings(&path);
        self.check_matched(readings.iter().map(Vec::len).sum())?;
        if readings.iter().all(is_here) {
            return Ok(());
        }
        self.log_ambiguous(request, location);
        Err(Reject {
            status: 400,
            reason: "applications may read the path as one of another route",
        })
    }

    /// Logs the refusal, because only the operator knows how the application reads paths. Once per location
    /// and configuration: an attacker may send many such paths.
    fn log_ambiguous(&self, request: &Request, location: &Location) {
        if location.has_logged_ambiguous.swap(true, Ordering::Relaxed) {
            return;
        }
        let path = String::from_utf8_lossy(request.raw_path());
        let host = String::from_utf8_lossy(request.host());
        let mut routes = self.sites.iter().flat_map(|site| &site.routes);
        let route = routes.find(|route| std::ptr::eq(&route.location, location));
        let matcher = route.and_then(|route| route.matchers.last());
        let here = matcher.map_or_else(
            || "its site".to_owned(),
            |matcher| format!("its route `{}`", matcher.path),
        );
        diagnostics::log(format_args!(
            "refused {path} of {host}: applications may read the path as one of another route; \
             `ambiguous_paths = \"pass\"` of {here} allows that (logged once)"
        ));
    }

    fn site_of(&self, host: &[u8]) -> Option<usize> {
        // Host is optional in HTTP/1.0 (RFC 9112, 3.2 and 3.3).
        if host.is_empty() || (self.by_host.is_empty() && self.by_suffix.is_empty()) {
            return self.default_site;
        }
        let host = http1::host_name(host).ok()?;
        let exact = || self.by_host.get(host.as_ref()).copied();
        let suffix = || {
            let ends = |(suffix, _): &&(String, usize)| is_beneath(&host, suffix);
            let found = self.by_suffix.iter().filter(ends);
            found
                .max_by_key(|(suffix, _)| suffix.len())
                .map(|&(_, site)| site)
        };
        exact().or_else(suffix).or(self.default_site)
    }
}

/// Refuses, at a reload, a file without which nobody can be let in, and that does not respond. While the configuration of before has
/// such files too, there is nothing to keep.
fn check_unread(config: &Config, old: Option<&Service>) -> io::Result<()> {
    let is_kept = old.is_some_and(|old| !old.is_incomplete());
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let mut unread = locations.flat_map(|location| config.unread(location));
    match unread.next().filter(|_| is_kept) {
        Some(path) => Err(io::Error::other(format!(
            "{} does not respond",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The certificates of sites, if clients are to come.
fn tls_sites(
    config: &Config,
    parts: &ServiceParts,
    acme: Option<Arc<Acme>>,
    old: Option<&Service>,
) -> io::Result<Option<Arc<TlsSites>>> {
    if !parts.has_clients {
        return Ok(None);
    }
    let old = old.and_then(|old| old.tls.as_deref());
    TlsSites::new(config, &parts.ticket_keys, &parts.staples, acme, old)
}

/// Whether `host` is a name below `suffix`. Other characters that a host may contain are excluded:
/// `a,b.example` would be two hosts in X-Forwarded-Host, the first of which is arbitrary.
fn is_beneath(host: &str, suffix: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    host.strip_suffix(suffix)
        .is_some_and(|name| name.bytes().all(is_plain))
}

impl Site {
    /// The first location that matches `input` if it is for `path`.
    fn location(&self, path: &[u8], input: RouteInput<'_>) -> &Location {
        let route = self.first_route(path, |number| {
            input.matches(&self.routes[number].matchers, path)
        });
        route.map_or(&self.rest, |route| &self.routes[route].location)
    }

    /// The number of the first route whose paths may be `path` and for which `is_it` holds.
    fn first_route(&self, path: &[u8], is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if let Some(index) = &self.index {
            return index.first_matching(path, is_it);
        }
        let may_be = |route: &Route| {
            let mut matchers = route.matchers.iter().rev();
            let start = matchers.next().map_or("", |matcher| matcher.path.start());
            path.starts_with(start.as_bytes())
        };
        let mut routes = self.routes.iter().enumerate();
        let route = routes.find(|(number, route)| may_be(route) && is_it(*number));
        route.map(|(number, _)| number)
    }

    /// The location at that position among those of the site.
    fn at(&self, position: usize) -> &Location {
        let route = self.routes.get(position);
        route.map_or(&self.rest, |route| &route.location)
    }

    fn locations(&self) -> impl Iterator<Item = &Location> {
        self.routes
            .iter()
            .map(|route| &route.location)
            .chain(std::iter::once(&self.rest))
    }
}
