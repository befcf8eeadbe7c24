//! Route: from host and path to the location that answers. No system calls.
//!
//! `levity-config` resolves what routes inherit: each site and route is one
//! `levity_config::Location` with all values that apply, and a route within a route is a route with
//! two matchers that comes first. Compiling takes one such value and merges nothing; each file of
//! [`compile`](crate::compile) makes one part of it.

pub mod explain;
pub mod fingerprint;
mod hosts;
pub mod location;
pub mod matching;
pub mod rules;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use levity_config::{Config, Etag, Matcher, PatternIndex};
use levity_disk::{Disk, EngineId, Root};
use levity_telemetry::diagnostics;
use levity_wire::{Reject, http1, path};

use crate::credentials::guesses::Guesses;
use crate::files::root::LiveRoot;
use crate::message::request::Request;
use crate::stores::digests::store::DigestStore;
use crate::stores::preloads::PreloadStore;
use crate::stores::uploads::store::UploadStore;
use crate::tls::sites::TlsSites;
use crate::upstream::Upstream;

pub use self::explain::path_of;
pub use self::fingerprint::Sought;
pub use self::hosts::Hosts;
pub use self::location::{
    ErrorPages, FileDigests, FileVariants, Files, Location, NameRules, SpoolFolder,
};
pub use self::matching::{OwnedInput, RouteInput};
pub use self::rules::{OwnedRules, Rules, TooLong};

/// The maximum number of bytes that the expressions of a site look at for one request: of its target, once for each of
/// them. One byte takes 1 to 2 ns; of a regular expression it may take some 40 ns, so these count for more.
const MATCHED_BYTES_MAX: usize = 512 * 1024;

/// The maximum number of routes of a site that are looked at one by one.
pub const COMPARED_ROUTES_MAX: usize = 32;

/// The locations of a site.
pub struct Site {
    /// Its routes, in order.
    pub routes: Vec<Route>,
    /// Finds a route, where there are more than [`COMPARED_ROUTES_MAX`].
    pub index: Option<PatternIndex>,
    /// What no route matches.
    pub rest: Location,
}

/// A route of a site.
pub struct Route {
    /// What a request has to match.
    pub matchers: Vec<Matcher>,
    /// What handles a request that matches.
    pub location: Location,
}

/// A compiled configuration. Immutable: a reload makes a new one, and requests in progress keep theirs.
pub struct Service {
    /// The configuration as written.
    pub config: Arc<Config>,
    /// The certificates of sites, if a listener uses TLS.
    pub tls: Option<Arc<TlsSites>>,
    /// The folder for request bodies that exceed the memory limit.
    pub spool: Option<SpoolFolder>,
    /// That folder did not respond.
    pub has_silent_spool: bool,
    /// An engine that reads into memory, also where that of a location leaves bytes in the page cache.
    pub memory_engine: Option<EngineId>,
    /// The bounds on guessing passwords.
    pub guesses: Arc<Guesses>,
    /// Limits of the request parser.
    pub wire_limits: http1::Limits,
    /// The upstreams in the order of `config.upstreams`.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Every root, including those of delegated files; each once.
    pub live_roots: Vec<Arc<LiveRoot>>,
    /// The roots that could not be opened. What needs them is closed.
    pub absent_roots: Vec<PathBuf>,
    /// Content that applications have preloaded.
    pub preloads: Option<Arc<PreloadStore>>,
    /// Digests of files.
    pub digests: Option<Arc<DigestStore>>,
    /// The uploads beneath each root that takes some.
    pub uploads: Vec<Arc<UploadStore>>,
    /// Its sites, in the order of `config.sites`.
    pub sites: Vec<Site>,
    /// The hosts of sites.
    pub hosts: Hosts,
    /// The access logs that are not off, each once.
    pub logs: Vec<levity_config::Log>,
    /// That of requests without a location, in `logs`; `None` if it is off.
    pub log: Option<usize>,
    /// The maximum weight of the expressions that a site has for its routes.
    pub expressions_max: usize,
    /// Every request is timed step by step, because a log or Server-Timing may need it.
    pub times_each_step: bool,
    /// Every request keeps the times of its chunks, because a log may need them.
    pub keeps_chunks: bool,
}

impl Service {
    /// Whether something that the configuration names did not respond when this was made. Made again, it may be complete.
    pub fn is_incomplete(&self) -> bool {
        self.has_silent_spool
            || (self.sites.iter().flat_map(Site::locations)).any(|location| location.is_closed)
    }

    /// Removes what uploads have left in their roots before a crash. What `old` has as well is in use. Blocks.
    pub fn remove_stale_uploads(&self, old: Option<&Self>) {
        let is_new = |uploads: &&Arc<UploadStore>| {
            let mut before = old.iter().flat_map(|old| &old.uploads);
            !before.any(|before| Arc::ptr_eq(before, uploads))
        };
        let new = self.uploads.iter().filter(is_new);
        new.for_each(|uploads| uploads.remove_stale());
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
        Some(self.sites[self.hosts.site_of(host)?].location(path, input))
    }

    /// As [`route`](Self::route), as if there were no internal routes: what it finds gives a request for one of these the headers and
    /// the page of any other error 404, so that no client can tell which paths are internal. Returns the number of the route, too.
    pub fn public_route(
        &self,
        host: &[u8],
        path: &[u8],
        input: RouteInput<'_>,
    ) -> Option<(Option<usize>, &Location)> {
        let site = &self.sites[self.hosts.site_of(host)?];
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

    /// The locations of its routes, in order, and its own.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.routes
            .iter()
            .map(|route| &route.location)
            .chain(std::iter::once(&self.rest))
    }
}
