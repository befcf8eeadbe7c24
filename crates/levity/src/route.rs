//! Route: from host and path to the location that handles the request.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use levity_disk::{Disk, ReadOptions, Root, Spool};
use levity_wire::encoding::Coding;
use levity_wire::{Reject, http1, path};

use crate::filter::header_rules::HeaderRules;
use crate::http::filter::Filter;
use crate::http::request::Request;
use crate::root::{LiveRoot, SendfileRoot};
use crate::scripts::Scripts;
use crate::upstream::{self, Upstream};
use levity_config::upstream::{AmbiguousPaths, Protocol, Try};
use levity_config::{Config, LocationDisk, LocationOptions, Pattern, Symlinks};
use levity_telemetry::diagnostics;

/// The part of a site that handles a request.
pub struct Location {
    /// Unique in the process, so that a cache never confuses locations of two configurations.
    pub number: u32,
    /// Its handlers, in order.
    pub handlers: Vec<Handler>,
    /// Its files; `None` where all requests go to an upstream.
    pub files: Option<Arc<Files>>,
    /// Its upstream, in place of files or as their fallback.
    pub proxy: Option<Arc<Proxy>>,
    /// Reachable only through X-Accel-Redirect.
    pub internal: bool,
    /// The filters of its responses, in order.
    pub filters: Vec<Box<dyn Filter>>,
    /// Whether responses have a Server-Timing header.
    pub server_timing: bool,
    /// A refusal of an ambiguous path has been logged.
    has_logged_ambiguous: AtomicBool,
}

impl Location {
    /// The prefix of the cache keys of its files. It changes with the root.
    pub fn key(&self) -> [u8; 8] {
        let root = self.files.as_ref().map(|files| &files.root);
        let generation = root.map_or(0, |root| root.generation());
        let key = u64::from(self.number) << 32 | u64::from(generation);
        key.to_le_bytes()
    }
}

/// A handler of a location; [`handler`](crate::handler) implements it.
pub enum Handler {
    /// Serves files; the last handler.
    Files(Arc<Files>),
    /// Finds the script of a directory whose index names list scripts before files.
    IndexScript,
    /// Serves a file if it exists.
    ExistingFile,
    /// Finds the script for the upstream; without one the response is 404.
    Script,
    /// Proxies to the upstream; the last handler.
    Proxy(Arc<Proxy>),
}

/// How a location proxies requests.
#[derive(Clone)]
pub struct Proxy {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Existing files are served first.
    pub files_first: bool,
    /// The prefix that is stripped from the path, with its leading slash.
    pub strip_prefix: Vec<u8>,
    /// Forwards paths that an application may read as paths of another location.
    pub passes_ambiguous: bool,
    /// The root of the location's files; `None` when it has none.
    pub document_root: Option<Arc<LiveRoot>>,
    /// The maximum size of a request body in bytes.
    pub body_bytes_max: u64,
    /// Request headers to set, add and remove.
    pub request_headers: levity_config::Headers,
    /// Rewriting of Location and Set-Cookie.
    pub rewrite: levity_config::Rewrite,
    /// Folders whose files the application may delegate.
    pub sendfile_roots: Vec<SendfileRoot>,
    /// Folders whose files the application may delegate to be sent and removed.
    pub temporary_roots: Vec<SendfileRoot>,
    /// Upstreams that the application may delegate a request to.
    pub reproxy: Vec<Arc<Proxy>>,
}

impl Proxy {
    /// The present folder of the location's files; empty when it has none.
    pub fn document_root(&self) -> Vec<u8> {
        let root = self.document_root.as_ref().map(|root| root.last());
        root.map_or_else(Vec::new, |root| root.path().as_os_str().as_bytes().to_vec())
    }

    /// The scripts in `files` that this upstream runs, if any.
    pub fn scripts<'a>(&self, files: &'a Files) -> Option<&'a Scripts> {
        let runs_scripts = self.upstream.settings.protocol.is_cgi();
        let scripts = files.scripts.as_ref().filter(|_| runs_scripts);
        scripts.filter(|scripts| scripts.are_run)
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
}

impl Files {
    /// The path relative to the root.
    pub fn beneath<'a>(&'a self, path: &'a [u8]) -> &'a [u8] {
        let path = path
            .strip_prefix(self.strip_prefix.as_slice())
            .unwrap_or(path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        match &self.only {
            Some(name) if path.is_empty() => name,
            _ => path,
        }
    }

    /// Whether a path relative to the root may be served: it has no hidden name and is no script.
    pub fn shows(&self, path: &[u8]) -> bool {
        let only = self.only.as_deref().is_none_or(|name| name == path);
        let is_source = |scripts: &Scripts| scripts.is_source(path);
        only && !self.scripts.as_ref().is_some_and(is_source)
            && (self.only.is_some() || !path.split(|&byte| byte == b'/').any(is_hidden))
    }
}

/// Names with a leading dot are hidden, except the one that RFC 8615 reserves.
pub fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != b".well-known"
}

struct Site {
    routes: Vec<(Pattern, Location)>,
    rest: Location,
}

/// A compiled configuration. Immutable: a reload makes a new one, and requests in progress keep theirs.
pub struct Service {
    /// The configuration as written.
    pub config: Config,
    /// The folder for request bodies that exceed the memory limit.
    pub spool: Option<SpoolFolder>,
    /// Limits of the request parser.
    pub wire_limits: http1::Limits,
    /// The upstreams in the order of `config.upstreams`.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Every root, including those of delegated files; each once.
    pub live_roots: Vec<Arc<LiveRoot>>,
    sites: Vec<Site>,
    by_host: HashMap<String, usize>,
    /// Suffixes of host names with their leading dot.
    by_suffix: Vec<(String, usize)>,
    default_site: Option<usize>,
}

/// The folder for spooled bodies.
pub struct SpoolFolder {
    /// The folder.
    pub spool: Arc<Spool>,
    /// An engine that reads into memory: the bytes are encoded again before they are sent.
    pub read_options: ReadOptions,
}

/// Open roots by path and symlink policy.
#[derive(Default)]
struct Roots(HashMap<(PathBuf, bool), Arc<LiveRoot>>);

impl Roots {
    fn open(&mut self, path: &Path, symlinks: Symlinks) -> io::Result<Arc<LiveRoot>> {
        let follow = symlinks == Symlinks::Follow;
        if let Some(root) = self.0.get(&(path.to_owned(), follow)) {
            return Ok(root.clone());
        }
        let policy = match symlinks {
            Symlinks::Beneath => levity_disk::Symlinks::Beneath,
            Symlinks::Follow => levity_disk::Symlinks::Follow,
        };
        let root = Root::open(path, policy).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let root = LiveRoot::new(root);
        self.0.insert((path.to_owned(), follow), root.clone());
        Ok(root)
    }
}

impl Service {
    /// Opens every root, starts the engines of sites and routes in `disk`, and resolves the names of
    /// backends. Upstreams keep the health that they have in `old`. Blocks.
    ///
    /// # Errors
    /// When a root cannot be opened or an engine cannot run here; the error names it.
    pub fn new(config: Config, disk: &Disk, old: &[Arc<Upstream>]) -> io::Result<Self> {
        let whole = config.disk.clone();
        let upstreams = upstream::make(&config.upstreams, old)?;
        let mut resources = Resources {
            upstreams: upstreams.clone(),
            body_bytes: config.limits.body_bytes,
            disk,
            whole: &whole,
            roots: Roots::default(),
        };
        let mut service = Self {
            wire_limits: wire_limits(&config.limits),
            spool: spool(&config, disk)?,
            upstreams,
            live_roots: Vec::new(),
            sites: Vec::new(),
            by_host: HashMap::new(),
            by_suffix: Vec::new(),
            default_site: None,
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
            if site.hosts.is_empty() {
                service.default_site.get_or_insert(number);
            }
            service.sites.push(compile(site, &mut resources)?);
        }
        service.live_roots = resources.roots.0.into_values().collect();
        Ok(service)
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

    /// The first location that matches; `None` when no site matches `host`.
    pub fn route(&self, host: &[u8], path: &[u8]) -> Option<&Location> {
        let site = &self.sites[self.site_of(host)?];
        let location = site
            .routes
            .iter()
            .find(|(pattern, _)| pattern.matches(path));
        Some(location.map_or(&site.rest, |(_, location)| location))
    }

    /// Checks that an application at `location`, which was found for `request`, cannot read the path as one
    /// of another location: it would bypass the rules of that location.
    ///
    /// # Errors
    /// 400 for a path that some applications read as one of another location, unless `location` allows such
    /// paths; also for paths that [`path::forwarded`] refuses.
    pub fn check_readings(&self, request: &Request, location: &Location) -> Result<(), Reject> {
        let Some(proxy) = &location.proxy else {
            return Ok(());
        };
        let path = path::forwarded(request.raw_path())?;
        if proxy.passes_ambiguous {
            return Ok(());
        }
        let is_here = |path: &Vec<u8>| {
            let found = self.route(request.host(), path);
            found.is_some_and(|found| std::ptr::eq(found, location))
        };
        if path::other_readings(&path).iter().all(is_here) {
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
        let route = routes.find(|(_, at)| std::ptr::eq(at, location));
        let here = route.map_or_else(
            || "its site".to_owned(),
            |(pattern, _)| format!("its route `{pattern}`"),
        );
        diagnostics::log(format_args!(
            "refused {path} of {host}: applications may read the path as one of another route; \
             `ambiguous_paths = \"pass\"` of {here} allows that (said once)"
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

/// Whether `host` is a name below `suffix`. Other characters that a host may contain are excluded:
/// `a,b.example` would be two hosts in X-Forwarded-Host, the first of which is arbitrary.
fn is_beneath(host: &str, suffix: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    host.strip_suffix(suffix)
        .is_some_and(|name| name.bytes().all(is_plain))
}

impl Site {
    fn locations(&self) -> impl Iterator<Item = &Location> {
        self.routes
            .iter()
            .map(|(_, location)| location)
            .chain(std::iter::once(&self.rest))
    }
}

/// Opens the spool folder if an upstream needs it. Upstreams that need the length of a body in advance can
/// use it too, but do without it if it cannot be opened.
fn spool(config: &Config, disk: &Disk) -> io::Result<Option<SpoolFolder>> {
    let upstreams = &config.upstreams;
    let is_needed = upstreams.iter().any(|upstream| upstream.buffer_requests);
    let is_useful = upstreams.iter().any(|upstream| upstream.protocol.is_cgi());
    if !is_needed && !is_useful {
        return Ok(None);
    }
    let path = &config.disk.spool;
    let spool = match Spool::open(path) {
        Err(_) if !is_needed => return Ok(None),
        opened => opened.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("disk.spool {}: {error}", path.display()),
            )
        })?,
    };
    let engine = disk.engine_for("threads").map_err(io::Error::other)?;
    let read_options = ReadOptions {
        engine,
        ..ReadOptions::default()
    };
    Ok(Some(SpoolFolder {
        spool,
        read_options,
    }))
}

fn wire_limits(limits: &levity_config::Limits) -> http1::Limits {
    http1::Limits {
        line_bytes_max: limits.request_line_bytes,
        header_bytes_max: limits.header_bytes,
        head_bytes_max: limits.head_bytes,
        headers_max: limits.headers,
    }
}

/// What the locations share.
struct Resources<'a> {
    upstreams: Vec<Arc<Upstream>>,
    body_bytes: usize,
    disk: &'a Disk,
    whole: &'a levity_config::Disk,
    roots: Roots,
}

impl Resources<'_> {
    /// The read options of a location; those of `[disk]` are the default.
    fn reading(&self, options: &LocationOptions) -> LocationDisk {
        let own = options.disk.clone();
        LocationDisk {
            chunk_bytes: own.chunk_bytes.or(self.whole.chunk_bytes),
            direct: own.direct.or(Some(self.whole.direct)),
            ..own
        }
    }

    /// Whether a part of `site` is handled by an application that may be PHP. Its sources may then lie in
    /// other parts of the site, too.
    fn has_php(&self, site: &levity_config::Site) -> bool {
        let of_routes = site.routes.iter().map(|route| &route.proxying);
        let mut named = of_routes.chain([&site.proxying]);
        named.any(|proxying| {
            let name = proxying.proxy.as_deref();
            let protocol = name.map(|name| self.upstream(name).settings.protocol);
            protocol == Some(Protocol::Fastcgi)
        })
    }

    fn upstream(&self, name: &str) -> Arc<Upstream> {
        let mut upstreams = self.upstreams.iter();
        let upstream = upstreams.find(|upstream| upstream.settings.name == name);
        upstream.expect("the configuration was checked").clone()
    }

    /// An upstream that gets delegated requests. It may delegate files itself, but not requests.
    fn delegation_target(&mut self, name: &str) -> io::Result<Arc<Proxy>> {
        let upstream = self.upstream(name);
        Ok(Arc::new(Proxy {
            files_first: false,
            strip_prefix: Vec::new(),
            passes_ambiguous: false,
            body_bytes_max: 0,
            request_headers: levity_config::Headers::default(),
            rewrite: levity_config::Rewrite::default(),
            sendfile_roots: self.sendfile_roots(&upstream.settings.sendfile_roots)?,
            temporary_roots: self.sendfile_roots(&upstream.settings.temporary_roots)?,
            document_root: None,
            reproxy: Vec::new(),
            upstream,
        }))
    }

    fn sendfile_roots(&mut self, folders: &[PathBuf]) -> io::Result<Vec<SendfileRoot>> {
        let open = |folder: &PathBuf| {
            Ok(SendfileRoot {
                root: self.roots.open(folder, Symlinks::Beneath)?,
                named: folder.clone(),
            })
        };
        folders.iter().map(open).collect()
    }

    fn read_options(&self, reading: &LocationDisk) -> io::Result<ReadOptions> {
        let engine = reading.engine.as_deref();
        let started = engine.map(|name| self.disk.engine_for(name)).transpose();
        Ok(ReadOptions {
            engine: started.map_err(io::Error::other)?.flatten(),
            direct: reading.direct.unwrap_or_default(),
        })
    }
}

fn compile(site: &levity_config::Site, resources: &mut Resources<'_>) -> io::Result<Site> {
    let routes = site.routes.iter().map(|route| {
        let location = location(site, Some(route), resources)?;
        Ok((route.path.clone(), location))
    });
    Ok(Site {
        routes: routes.collect::<io::Result<_>>()?,
        rest: location(site, None, resources)?,
    })
}

/// The location of a route; options that the route does not set are those of its site.
fn location(
    site: &levity_config::Site,
    route: Option<&levity_config::Route>,
    resources: &mut Resources<'_>,
) -> io::Result<Location> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let files = files(site, route, resources)?.map(Arc::new);
    let proxy = proxy(site, route, files.as_deref(), resources)?;
    Ok(Location {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        handlers: handlers(files.as_ref(), proxy.as_ref()),
        proxy,
        files,
        internal: route.is_some_and(|route| route.internal),
        filters: filters(route),
        server_timing: options(site, route).server_timing,
        has_logged_ambiguous: AtomicBool::new(false),
    })
}

fn options<'c>(
    site: &'c levity_config::Site,
    route: Option<&'c levity_config::Route>,
) -> &'c LocationOptions {
    route.map_or(&site.options, |route| &route.options)
}

fn filters(route: Option<&levity_config::Route>) -> Vec<Box<dyn Filter>> {
    let rules = route.map(|route| route.headers.clone());
    let rules = rules.filter(|rules| *rules != levity_config::Headers::default());
    let rules = rules.map(|rules| Box::new(HeaderRules(rules)) as _);
    rules.into_iter().collect()
}

fn handlers(files: Option<&Arc<Files>>, proxy: Option<&Arc<Proxy>>) -> Vec<Handler> {
    let Some(proxy) = proxy else {
        return files.cloned().map(Handler::Files).into_iter().collect();
    };
    let runs_scripts = files.is_some_and(|files| proxy.scripts(files).is_some());
    let all = [
        (proxy.files_first && runs_scripts, Handler::IndexScript),
        (proxy.files_first, Handler::ExistingFile),
        (runs_scripts, Handler::Script),
        (true, Handler::Proxy(proxy.clone())),
    ];
    let wanted = all.into_iter().filter(|(is_wanted, _)| *is_wanted);
    wanted.map(|(_, handler)| handler).collect()
}

fn proxy(
    site: &levity_config::Site,
    route: Option<&levity_config::Route>,
    files: Option<&Files>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Arc<Proxy>>> {
    let of_route = route.map(|route| &route.proxying);
    let (above, here) = (&site.proxying, of_route.unwrap_or(&site.proxying));
    let Some(name) = here.proxy.as_ref().or(above.proxy.as_ref()) else {
        return Ok(None);
    };
    let tries = here.tries.as_ref().or(above.tries.as_ref());
    let tries = tries.map_or(&[Try::Proxy][..], Vec::as_slice);
    let upstream = resources.upstream(name);
    let body_bytes = here.body_bytes.or(above.body_bytes);
    let ambiguous = here.ambiguous_paths.or(above.ambiguous_paths);
    let is_for_files = route.is_some_and(levity_config::Route::serves_only_its_own_files);
    if !tries.contains(&Try::Proxy) || (is_for_files && files.is_some()) {
        return Ok(None);
    }
    let reproxy = upstream.settings.reproxy.iter();
    let reproxy = reproxy.map(|name| resources.delegation_target(name));
    Ok(Some(Arc::new(Proxy {
        reproxy: reproxy.collect::<io::Result<_>>()?,
        sendfile_roots: resources.sendfile_roots(&upstream.settings.sendfile_roots)?,
        temporary_roots: resources.sendfile_roots(&upstream.settings.temporary_roots)?,
        upstream,
        files_first: tries.contains(&Try::File),
        strip_prefix: prefix(route).to_vec(),
        passes_ambiguous: ambiguous == Some(AmbiguousPaths::Pass),
        document_root: files.map(|files| files.root.clone()),
        body_bytes_max: body_bytes.unwrap_or(resources.body_bytes) as u64,
        request_headers: route
            .map(|route| route.request_headers.clone())
            .unwrap_or_default(),
        rewrite: route.map(|route| route.rewrite.clone()).unwrap_or_default(),
    })))
}

fn scripts(
    site: &levity_config::Site,
    route: Option<&levity_config::Route>,
    index: &[String],
) -> Option<Scripts> {
    let of_route = route.map(|route| &route.proxying);
    let (above, here) = (&site.proxying, of_route.unwrap_or(&site.proxying));
    let suffix = here.script_suffix.as_ref().or(above.script_suffix.as_ref());
    let script_index = here.script_index.as_ref().or(above.script_index.as_ref());
    Scripts::new(
        suffix.map(String::as_str),
        script_index.map(String::as_str),
        index,
    )
}

fn prefix(route: Option<&levity_config::Route>) -> &[u8] {
    let prefix = route.and_then(|route| route.strip_prefix.as_deref());
    prefix.unwrap_or_default().as_bytes()
}

fn files(
    site: &levity_config::Site,
    route: Option<&levity_config::Route>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Files>> {
    let root = route.and_then(|route| route.root.as_ref());
    let Some(root) = root.or(site.root.as_ref()) else {
        return Ok(None);
    };
    let options = options(site, route);
    let scripts = scripts(site, route, &options.index);
    let scripts = scripts.or_else(|| resources.has_php(site).then(Scripts::guarded));
    let is_source = |name: &[u8]| {
        let scripts = scripts.as_ref();
        scripts.is_some_and(|scripts| scripts.is_source(name))
    };
    let reading = resources.reading(options);
    Ok(Some(Files {
        root: resources.roots.open(root, options.symlinks)?,
        index: options
            .index
            .iter()
            .map(|name| name.clone().into_bytes())
            .filter(|name| !is_source(name))
            .collect(),
        scripts,
        precompressed: options.precompressed.clone(),
        listing: options.listing,
        strip_prefix: prefix(route).to_vec(),
        only: site.only.as_ref().map(|name| name.clone().into_vec()),
        read_options: resources.read_options(&reading)?,
        chunk_bytes: reading.chunk_bytes,
    }))
}
