//! From a configuration to locations. A handler or filter that is new gets its line here.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use levity_config::upstream::{AmbiguousPaths, Protocol};
use levity_config::{
    AccessLog, AddressSet, Answer, CacheRule, Config, Etag, Gates, LocationDisk, LocationOptions,
    Matcher, Pattern, Symlinks, Template, Try,
};
use levity_disk::{Disk, ReadOptions, Root, Spool};
use levity_wire::encoding::Coding;
use levity_wire::http1;

use super::location::{
    Access, BasicAuth, Candidate, ErrorPages, FileDigests, FileStep, FileVariants, Files,
    ForwardAuth, Gate, Handler, Location, NameRules, Proxy, RedirectTo, SpoolFolder, TargetOf,
    Upload,
};
use super::{Route, Service, ServiceParts, Site};
use crate::compute::Compute;
use crate::compute::memory::Budget;
use crate::credentials::Users;
use crate::digest_store::store::DigestStore;
use crate::filter::cache_control::CacheControl;
use crate::filter::compress::Compress;
use crate::filter::cors::CorsHeaders;
use crate::filter::header_rules::HeaderRules;
use crate::filter::path_headers::HeadersOfPaths;
use crate::filter::security_headers::SecurityHeaders;
use crate::filter::substitute::Substitute;
use crate::http::filter::Filter;
use crate::rate_limit::limit::RateLimit;
use crate::rate_limit::registry::Registry;
use crate::root::{LiveRoot, SendfileRoot};
use crate::scripts::Scripts;
use crate::upload_store::store::UploadStore;
use crate::upstream::Upstream;
use crate::upstream::sendfile::store::PreloadStore;
use crate::variant_store::store::VariantStore;

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

/// Opens the spool folder if an upstream needs it. Upstreams that need the length of a body in advance can
/// use it too, but do without it if it cannot be opened.
pub(super) fn spool(config: &Config, disk: &Disk) -> io::Result<Option<SpoolFolder>> {
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

/// The store of preloaded content, if an upstream needs it. It holds at most `files_max` files. That of `old` is kept
/// with its content, also while no upstream needs it, so that there are never two stores.
pub(super) fn preloads(
    config: &Config,
    files_max: usize,
    old: Option<&Service>,
) -> Option<Arc<PreloadStore>> {
    let old = old.and_then(|old| old.preloads.clone());
    let mut upstreams = config.upstreams.iter();
    let is_needed = upstreams.any(|upstream| !upstream.temporary_roots.is_empty());
    old.or_else(|| is_needed.then(|| Arc::new(PreloadStore::new(files_max))))
}

/// The store of digests, if a location or the ETags of files need it. That of `old` is kept with its content.
pub(super) fn digests(config: &Config, old: Option<&Service>) -> Option<Arc<DigestStore>> {
    let mut locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let is_needed =
        config.server.etag == Etag::Content || locations.any(|location| location.options.digest);
    let old = old.and_then(|old| old.digests.clone());
    old.or_else(|| is_needed.then(Arc::default))
}

/// The uploads beneath each root that takes some. Those of `old` are kept. Blocks.
pub(super) fn uploads(config: &Config, old: Option<&Service>) -> Vec<Arc<UploadStore>> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let with_uploads = locations.filter(|location| location.upload.is_some());
    let mut stores: Vec<Arc<UploadStore>> = Vec::new();
    for root in with_uploads.filter_map(|location| resolved(location.root.as_ref()?)) {
        if !stores.iter().any(|store| store.root() == root) {
            let mut old = old.iter().flat_map(|old| &old.uploads);
            let kept = old.find(|store| store.root() == root).cloned();
            stores.push(kept.unwrap_or_else(|| UploadStore::new(&root)));
        }
    }
    stores
}

/// The path of a root without links; `None` if it cannot be resolved, which is an error when the root is opened. Blocks.
fn resolved(root: &Path) -> Option<PathBuf> {
    fs::canonicalize(root).ok()
}

/// The access logs that are not off, each once.
pub(super) fn logs(config: &Config) -> Vec<levity_config::Log> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let of_locations = locations.filter_map(|location| location.log.as_ref());
    let mut logs: Vec<levity_config::Log> = Vec::new();
    for log in [&config.log].into_iter().chain(of_locations) {
        if log.access != AccessLog::Off && !logs.contains(log) {
            logs.push(log.clone());
        }
    }
    logs
}

/// The place of `log` among `logs`; `None` if it is off.
pub(super) fn log_number(logs: &[levity_config::Log], log: &levity_config::Log) -> Option<usize> {
    logs.iter().position(|known| known == log)
}

/// Stores whose content stays at a reload.
pub(super) struct Stores<'a> {
    /// Content that applications have preloaded.
    pub preloads: Option<&'a Arc<PreloadStore>>,
    /// Digests of files.
    pub digests: Option<&'a Arc<DigestStore>>,
    /// Uploads.
    pub uploads: &'a [Arc<UploadStore>],
}

pub(super) fn wire_limits(limits: &levity_config::Limits) -> http1::Limits {
    http1::Limits {
        line_bytes_max: limits.request_line_bytes,
        header_bytes_max: limits.header_bytes,
        head_bytes_max: limits.head_bytes,
        headers_max: limits.headers,
    }
}

/// What the locations share.
struct Resources<'a> {
    compute: &'a Arc<Compute>,
    variants: Option<&'a Arc<VariantStore>>,
    upstreams: &'a [Arc<Upstream>],
    stores: &'a Stores<'a>,
    body_bytes: usize,
    kept_files_max: usize,
    rate_limits: &'a Registry,
    rate_limit_bytes: usize,
    disk: &'a Disk,
    whole: &'a levity_config::Disk,
    request_id: Option<String>,
    logs: Vec<levity_config::Log>,
    /// That of the server, in `logs`.
    log: Option<usize>,
    /// See [`all_scripts`].
    scripts: Vec<(PathBuf, Scripts)>,
    /// See [`reserved`].
    reserved: Vec<String>,
    roots: Roots,
    /// Locations with the same settings share their users, and so what is known about passwords.
    users: Vec<(levity_config::BasicAuth, Arc<BasicAuth>)>,
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

    fn upstream(&self, name: &str) -> Arc<Upstream> {
        upstream(self.upstreams, name).clone()
    }

    /// An upstream that gets delegated requests, without the headers in `remove`. It may delegate files itself, but not
    /// requests.
    fn delegation_target(&mut self, name: &str, remove: &[String]) -> io::Result<Arc<Proxy>> {
        let upstream = self.upstream(name);
        Ok(Arc::new(Proxy {
            files_first: false,
            strip_prefix: Vec::new(),
            passes_ambiguous: false,
            body_bytes_max: 0,
            request_id: self.request_id.clone(),
            request_headers: levity_config::Headers {
                remove: remove.to_vec(),
                ..levity_config::Headers::default()
            },
            rewrite: levity_config::Rewrite::default(),
            sendfile_roots: self.sendfile_roots(&upstream.settings.sendfile_roots)?,
            temporary_roots: self.sendfile_roots(&upstream.settings.temporary_roots)?,
            preloads: self.preloads(&upstream),
            document_root: None,
            reproxy: Vec::new(),
            upstream,
        }))
    }

    /// The uploads beneath the root at `path`, if there are any.
    fn uploads(&self, path: &Path) -> Option<Arc<UploadStore>> {
        if self.stores.uploads.is_empty() {
            return None;
        }
        let root = resolved(path)?;
        let mut uploads = self.stores.uploads.iter();
        uploads.find(|store| store.root() == root).cloned()
    }

    fn basic_auth(&mut self, settings: &levity_config::BasicAuth) -> io::Result<Arc<BasicAuth>> {
        let mut known = self.users.iter();
        if let Some((_, gate)) = known.find(|(known, _)| known == settings) {
            return Ok(gate.clone());
        }
        let gate = Arc::new(BasicAuth {
            users: Users::new(settings)?,
            challenge: format!("Basic realm=\"{}\", charset=\"UTF-8\"", settings.realm),
            pass_authorization: settings.pass_authorization,
            user_header: settings.user_header.clone(),
        });
        self.users.push((settings.clone(), gate.clone()));
        Ok(gate)
    }

    fn forward_auth(&mut self, of: &levity_config::ForwardAuth) -> io::Result<ForwardAuth> {
        // By these two the client may authenticate itself.
        let is_credential =
            |name: &String| http1::is_one_of(name.as_bytes(), &["authorization", "cookie"]);
        let mut remove = of.copy.clone();
        remove.retain(|name| !is_credential(name));
        Ok(ForwardAuth {
            proxy: self.delegation_target(&of.upstream, &remove)?,
            path: of.path.clone().into_bytes(),
            copy: of.copy.clone(),
            user: of.user.clone(),
        })
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

    fn preloads(&self, upstream: &Upstream) -> Option<Arc<PreloadStore>> {
        let may_fill = !upstream.settings.temporary_roots.is_empty();
        self.stores.preloads.filter(|_| may_fill).cloned()
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

/// The sites of `config`, and every root of their locations and upstreams, each once.
pub(super) fn sites(
    config: &Config,
    upstreams: &[Arc<Upstream>],
    stores: &Stores<'_>,
    parts: &ServiceParts,
) -> io::Result<(Vec<Site>, Vec<Arc<LiveRoot>>)> {
    let logs = logs(config);
    let mut resources = Resources {
        disk: &parts.disk,
        compute: &parts.compute,
        variants: parts.variants.as_ref(),
        upstreams,
        stores,
        body_bytes: config.limits.body_bytes,
        kept_files_max: parts.kept_files_max,
        rate_limits: &parts.rate_limits,
        rate_limit_bytes: config.limits.rate_limit_bytes,
        whole: &config.disk,
        scripts: all_scripts(config, upstreams),
        reserved: reserved(config),
        request_id: config.server.request_id.clone(),
        log: log_number(&logs, &config.log),
        logs,
        roots: Roots::default(),
        users: Vec::new(),
    };
    let sites = config.sites.iter().enumerate();
    let sites: io::Result<_> = sites
        .map(|(number, site)| compile(number, site, &mut resources))
        .collect();
    Ok((sites?, resources.roots.0.into_values().collect()))
}

fn upstream<'u>(upstreams: &'u [Arc<Upstream>], name: &str) -> &'u Arc<Upstream> {
    let mut upstreams = upstreams.iter();
    let upstream = upstreams.find(|upstream| upstream.settings.name == name);
    upstream.expect("the configuration was checked")
}

/// Whether a part of `site` is handled by an application that may be PHP. Its sources may then lie in other parts of the
/// site, too.
fn has_php(site: &levity_config::Site, upstreams: &[Arc<Upstream>]) -> bool {
    site.locations().any(|location| {
        let name = location.proxying.proxy.as_deref();
        let protocol = name.map(|name| upstream(upstreams, name).settings.protocol);
        protocol == Some(Protocol::Fastcgi)
    })
}

fn compile(
    number: usize,
    site: &levity_config::Site,
    resources: &mut Resources<'_>,
) -> io::Result<Site> {
    let parts = SiteParts {
        hosts: site.hosts.clone(),
        number,
        only: site.only.as_ref().map(|name| name.clone().into_vec()),
        has_php: has_php(site, resources.upstreams),
    };
    let routes = site.routes.iter().map(|route| {
        let location = location(&route.location, &route.matchers, &parts, resources)?;
        Ok(Route {
            matchers: route.matchers.clone(),
            location,
        })
    });
    let routes: Vec<Route> = routes.collect::<io::Result<_>>()?;
    let rest = location(&site.location, &[], &parts, resources)?;
    let mut of_routes = routes.iter().map(|route| &route.location);
    let has_gates = of_routes.any(Location::has_gates) || rest.has_gates();
    Ok(Site {
        has_gates,
        routes,
        rest,
    })
}

/// What the locations of a site share.
struct SiteParts {
    /// Its host names.
    hosts: Vec<String>,
    /// Its place in the configuration.
    number: usize,
    /// The name of the only file that is served.
    only: Option<Vec<u8>>,
    /// See [`has_php`].
    has_php: bool,
}

/// Headers by which applications know who is let in. A route or site that lets everyone in may lead to the same application
/// as one that does not, so clients may send them nowhere.
fn reserved(config: &Config) -> Vec<String> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let gates = locations.map(|location| &location.gates);
    gates.flat_map(Gates::told).cloned().collect()
}

/// Compiles a location; `matchers` are those of its route and of those around it, none for that of the site.
fn location(
    of: &levity_config::Location,
    matchers: &[Matcher],
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Location> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let options = &of.options;
    let path = matchers.last().map(|matcher| &matcher.path);
    let compress = Compress::new(options, resources.compute).map(Arc::new);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let files = files(of, site, compress.as_ref(), resources)?.map(Arc::new);
    let error_pages = error_pages(of, number, files.as_ref(), site, resources)?;
    let (files, proxy) = match of.answer {
        Some(_) => (files.filter(|_| of.files_first), None),
        None => {
            let proxy = proxy(of, files.as_deref(), resources)?;
            (files, proxy)
        }
    };
    let behind: Vec<Handler> = match &of.answer {
        Some(answer) => {
            let file = files.as_ref().filter(|_| of.files_first);
            let step = file.and_then(|files| file_step(files, &Try::File, &[]));
            let file = step.map(Handler::ExistingFile);
            let answer = self::answer(answer, path, of.files_first);
            file.into_iter().chain([answer]).collect()
        }
        None => {
            let tries = of.proxying.tries.as_deref();
            let upload = upload(of, files.as_ref(), proxy.is_some(), resources);
            let behind = handlers(tries, files.as_ref(), proxy.as_ref());
            upload.into_iter().chain(behind).collect()
        }
    };
    // A browser sends no credentials with a preflight.
    let preflight = of.cors.clone().map(Handler::Preflight).into_iter();
    let limits = rate_limits(of, site, matchers, resources);
    let gates = gates(&of.gates, limits, resources)?;
    Ok(Location {
        number,
        site: site.number,
        route: path.map_or_else(String::new, Pattern::to_string),
        log: match &of.log {
            Some(own) => log_number(&resources.logs, own),
            None => resources.log,
        },
        error_pages,
        handlers: preflight.chain(gates).chain(behind).collect(),
        proxy,
        files,
        internal: of.internal,
        filters: filters(of, compress, &resources.compute.decoders),
        compress: compressed_codings(options),
        server_timing: options.server_timing,
        has_logged_ambiguous: AtomicBool::new(false),
    })
}

/// The gates of a location, in order: those that cost least come first. `limits` come before passwords, whose guesses they
/// bound too.
fn gates(
    of: &levity_config::Gates,
    limits: Vec<Arc<RateLimit>>,
    resources: &mut Resources<'_>,
) -> io::Result<Vec<Handler>> {
    let access = Access {
        allow: of.allow.clone(),
        deny: of.deny.clone(),
    };
    let refuses = access.allow.is_some() || access.deny != AddressSet::default();
    let basic_auth = of.basic_auth.as_ref();
    let basic_auth = basic_auth
        .map(|settings| resources.basic_auth(settings))
        .transpose()?;
    let forward_auth = of.forward_auth.as_ref();
    let forward_auth = forward_auth
        .map(|settings| resources.forward_auth(settings))
        .transpose()?;
    let list = [
        refuses.then_some(Handler::Gate(Gate::Access(access))),
        (!limits.is_empty()).then_some(Handler::RateLimits(limits)),
        of.signed_url
            .clone()
            .map(Gate::SignedUrl)
            .map(Handler::Gate),
        of.jwt.clone().map(Gate::Jwt).map(Handler::Gate),
        basic_auth.map(Gate::BasicAuth).map(Handler::Gate),
        forward_auth.map(Gate::ForwardAuth).map(Handler::Gate),
    ];
    Ok(list.into_iter().flatten().collect())
}

/// The limits of a location in the routes that `matchers` select. Locations that inherit a limit share it: its scope is the site,
/// and as many of the routes as it stands in.
fn rate_limits(
    of: &levity_config::Location,
    site: &SiteParts,
    matchers: &[Matcher],
    resources: &Resources<'_>,
) -> Vec<Arc<RateLimit>> {
    let limit = |settings: &levity_config::RateLimit| {
        let scope = format!("{:?} {:?}", site.hosts, &matchers[..settings.depth]);
        let registry = resources.rate_limits;
        registry.limit(settings, &scope, resources.rate_limit_bytes)
    };
    of.rate_limits.iter().map(limit).collect()
}

/// The filters of a location, in order.
fn filters(
    of: &levity_config::Location,
    compress: Option<Arc<Compress>>,
    decoders: &Arc<Budget>,
) -> Vec<Box<dyn Filter>> {
    let list = [
        header_rules(of),
        path_headers(of),
        cache_control(&of.options),
        of.options
            .security_headers
            .then(|| Box::new(SecurityHeaders) as _),
        of.cors.clone().map(|cors| Box::new(CorsHeaders(cors)) as _),
        substitute(&of.options, decoders),
        compress.map(|compress| Box::new(compress) as _),
    ];
    list.into_iter().flatten().collect()
}

/// Headers that decide whether, or in which form, content is compressed. The store does not see those that a route
/// changes.
const HEADERS_OF_FORMS: &[&str] = &[
    "content-encoding",
    "content-type",
    "etag",
    "vary",
    "cache-control",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
];

/// The store for compressed forms of the location's files: not where a filter has to read them, or a route changes
/// headers of them.
fn variants(
    of: &levity_config::Location,
    compress: Option<&Arc<Compress>>,
    resources: &Resources<'_>,
) -> Option<FileVariants> {
    let forbids = |rule: &CacheRule| {
        let value = rule.value.as_deref().unwrap_or_default();
        value.to_ascii_lowercase().contains("no-transform")
    };
    let options = &of.options;
    if !options.substitute.is_empty()
        || of.headers.iter().any(changes_form)
        || options.cache.iter().any(forbids)
        || !of.path_headers.is_empty()
    {
        return None;
    }
    Some(FileVariants {
        store: resources.variants?.clone(),
        compress: compress?.clone(),
        with_dictionary: with_dictionary(&of.options),
    })
}

/// The digests of the location's files, if responses have them.
fn file_digests(
    options: &LocationOptions,
    compress: Option<&Arc<Compress>>,
    resources: &Resources<'_>,
) -> Option<FileDigests> {
    let store = resources.stores.digests.filter(|_| options.digest)?;
    Some(FileDigests {
        store: store.clone(),
        compress: compress.cloned(),
    })
}

fn changes_form(rules: &levity_config::Headers) -> bool {
    let mut written = rules.set.iter().chain(&rules.add);
    // Only this directive forbids the compression.
    let is_harmless = |name: &str, value: &str| {
        name.eq_ignore_ascii_case("cache-control")
            && !value.to_ascii_lowercase().contains("no-transform")
    };
    let is_one = |name: &str| http1::is_one_of(name.as_bytes(), HEADERS_OF_FORMS);
    written.any(|(name, value)| is_one(name) && !is_harmless(name, value))
        || rules.remove.iter().any(|name| is_one(name))
}

/// The codings that responses of the location may get.
fn compressed_codings(options: &LocationOptions) -> Vec<Coding> {
    let codings = options.compress_codings.iter();
    let codings = codings.filter(|_| options.compress);
    let codings = codings.map(|own| own.coding);
    codings.chain(with_dictionary(options)).collect()
}

fn error_pages(
    of: &levity_config::Location,
    location: u32,
    files: Option<&Arc<Files>>,
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Option<ErrorPages>> {
    let options = &of.options;
    if options.error_pages.is_empty() && options.replace_errors.is_empty() {
        return Ok(None);
    }
    let files = match of.error_pages_root == of.root {
        true => files.cloned(),
        false => files_of_pages(of, site, resources)?,
    };
    let prefix = files.as_ref().map_or(&[][..], |files| &files.strip_prefix);
    let pages = options.error_pages.iter();
    let pages = pages.map(|(statuses, path)| (*statuses, [prefix, path.as_bytes()].concat()));
    Ok(Some(ErrorPages {
        location,
        pages: pages.collect(),
        files,
        replaced: options.replace_errors.clone(),
        has_logged: AtomicBool::new(false),
    }))
}

/// The files among which the pages of a location are that has inherited them, and has another root.
fn files_of_pages(
    of: &levity_config::Location,
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Arc<Files>>> {
    let there = levity_config::Location {
        root: of.error_pages_root.clone(),
        strip_prefix: None,
        ..of.clone()
    };
    Ok(files(&there, site, None, resources)?.map(Arc::new))
}

fn with_dictionary(options: &LocationOptions) -> Vec<Coding> {
    let is_on = options.compress && options.compress_dictionaries;
    let codings = options.compress_codings.iter().filter(|_| is_on);
    codings
        .filter_map(|own| own.coding.with_dictionary())
        .collect()
}

fn header_rules(of: &levity_config::Location) -> Option<Box<dyn Filter>> {
    let rules = &of.headers;
    (!rules.is_empty()).then(|| Box::new(HeaderRules(rules.clone())) as _)
}

fn path_headers(of: &levity_config::Location) -> Option<Box<dyn Filter>> {
    let rules = &of.path_headers;
    (!rules.is_empty()).then(|| Box::new(HeadersOfPaths(rules.clone())) as _)
}

fn cache_control(options: &LocationOptions) -> Option<Box<dyn Filter>> {
    let rules = &options.cache;
    (!rules.is_empty()).then(|| Box::new(CacheControl(rules.clone())) as _)
}

fn substitute(options: &LocationOptions, decoders: &Arc<Budget>) -> Option<Box<dyn Filter>> {
    let (pairs, types) = (&options.substitute, &options.substitute_types);
    let filter = || Substitute::new(pairs, types, decoders.clone());
    (!pairs.is_empty()).then(|| Box::new(filter()) as _)
}

/// The handler of a location that is a redirect or a fixed response.
fn answer(answer: &Answer, path: Option<&Pattern>, is_once: bool) -> Handler {
    let target = |template: &Template| TargetOf {
        template: template.clone(),
        path: path.cloned(),
    };
    match answer {
        Answer::Redirect(redirect) => Handler::Redirect(RedirectTo {
            status: redirect.status,
            target: target(&redirect.to),
        }),
        Answer::Reroute(to) if is_once => Handler::RewriteOnce(target(to)),
        Answer::Reroute(to) => Handler::Rewrite(target(to)),
        Answer::Fixed(fixed) => Handler::Respond(fixed.clone()),
    }
}

/// The handler of uploads, where files may answer.
fn upload(
    of: &levity_config::Location,
    files: Option<&Arc<Files>>,
    has_proxy: bool,
    resources: &Resources<'_>,
) -> Option<Handler> {
    let mut settings = of.upload.clone().filter(|_| of.asks_files())?;
    settings.resume_parts = settings.resume_parts.min(resources.kept_files_max);
    let files = files?.clone();
    let store = files.uploads.clone()?;
    let root = of.root.as_deref()?;
    let scripts = resources.scripts.iter();
    let scripts = scripts.filter(|(other, _)| overlap(root, other));
    Some(Handler::Upload(Arc::new(Upload {
        scripts: scripts.map(|(_, scripts)| scripts.clone()).collect(),
        settings,
        files,
        store,
        has_proxy,
    })))
}

/// Whether two folders have files in common. Blocks.
fn overlap(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (one, other) = (resolved(one), resolved(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// The scripts of all locations, with their roots.
fn all_scripts(config: &Config, upstreams: &[Arc<Upstream>]) -> Vec<(PathBuf, Scripts)> {
    let mut all = Vec::new();
    for site in &config.sites {
        let has_php = has_php(site, upstreams);
        for of in site.locations() {
            let scripts = scripts(of).or_else(|| has_php.then(Scripts::guarded));
            all.extend(of.root.clone().zip(scripts));
        }
    }
    all
}

/// The handlers of a location, in order.
fn handlers(
    tries: Option<&[Try]>,
    files: Option<&Arc<Files>>,
    proxy: Option<&Arc<Proxy>>,
) -> Vec<Handler> {
    let scripts = |proxy: &Arc<Proxy>| proxy.scripts(files?);
    let runs_scripts = proxy.and_then(scripts).is_some();
    let to_proxy = || {
        let script = runs_scripts.then_some(Handler::Script);
        script.into_iter().chain(proxy.cloned().map(Handler::Proxy))
    };
    let tries = match (tries, files) {
        (Some([Try::File]) | None, Some(files)) if proxy.is_none() => {
            return vec![Handler::Files(files.clone())];
        }
        (None, _) => return to_proxy().collect(),
        (Some(tries), _) => tries,
    };
    let mut handlers = Vec::new();
    for one in tries {
        match one {
            Try::Proxy => handlers.extend(to_proxy()),
            Try::Status(status) => handlers.push(Handler::Refuse(*status)),
            of_files => {
                let is_named = matches!(of_files, Try::File);
                handlers.extend((is_named && runs_scripts).then_some(Handler::IndexScript));
                let step = files.and_then(|files| file_step(files, of_files, tries));
                handlers.extend(step.map(Handler::ExistingFile));
            }
        }
    }
    if !matches!(tries.last(), Some(Try::Proxy | Try::Status(_))) {
        handlers.push(Handler::Refuse(404));
    }
    handlers
}

/// The search of `one` among `tries`; `None` for what is no search of files.
fn file_step(files: &Arc<Files>, one: &Try, tries: &[Try]) -> Option<FileStep> {
    let candidate = match one {
        Try::File if tries.contains(&Try::Directory) => Candidate::File,
        Try::File => Candidate::FileOrIndex,
        Try::FileWith(suffix) => Candidate::WithSuffix(suffix.clone().into_bytes()),
        Try::Directory => Candidate::Folder,
        Try::Path(path) => Candidate::At([&files.strip_prefix, path.as_bytes()].concat()),
        Try::Proxy | Try::Status(_) => return None,
    };
    Some(FileStep {
        files: files.clone(),
        candidate,
    })
}

fn proxy(
    of: &levity_config::Location,
    files: Option<&Files>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Arc<Proxy>>> {
    let proxying = &of.proxying;
    let Some(name) = &proxying.proxy else {
        return Ok(None);
    };
    let tries = proxying.tries.as_deref().unwrap_or(&[Try::Proxy]);
    if !tries.contains(&Try::Proxy) {
        return Ok(None);
    }
    let upstream = resources.upstream(name);
    let body_bytes = proxying.body_bytes;
    let ambiguous = proxying.ambiguous_paths;
    let mut request_headers = of.request_headers.clone();
    request_headers
        .remove
        .extend(resources.reserved.iter().cloned());
    let reproxy = upstream.settings.reproxy.iter();
    let reserved = resources.reserved.clone();
    let reproxy = reproxy.map(|name| resources.delegation_target(name, &reserved));
    Ok(Some(Arc::new(Proxy {
        reproxy: reproxy.collect::<io::Result<_>>()?,
        sendfile_roots: resources.sendfile_roots(&upstream.settings.sendfile_roots)?,
        temporary_roots: resources.sendfile_roots(&upstream.settings.temporary_roots)?,
        preloads: resources.preloads(&upstream),
        upstream,
        files_first: tries.iter().any(Try::asks_files),
        strip_prefix: prefix(of).to_vec(),
        passes_ambiguous: ambiguous == Some(AmbiguousPaths::Pass),
        document_root: files.map(|files| files.root.clone()),
        body_bytes_max: body_bytes.unwrap_or(resources.body_bytes) as u64,
        request_id: resources.request_id.clone(),
        request_headers,
        rewrite: of.rewrite.clone(),
    })))
}

fn scripts(of: &levity_config::Location) -> Option<Scripts> {
    let proxying = &of.proxying;
    Scripts::new(
        proxying.script_suffix.as_deref(),
        proxying.script_index.as_deref(),
        &of.options.index,
    )
}

fn prefix(of: &levity_config::Location) -> &[u8] {
    of.strip_prefix.as_deref().unwrap_or_default().as_bytes()
}

fn files(
    of: &levity_config::Location,
    site: &SiteParts,
    compress: Option<&Arc<Compress>>,
    resources: &mut Resources<'_>,
) -> io::Result<Option<Files>> {
    let Some(root) = &of.root else {
        return Ok(None);
    };
    let options = &of.options;
    let scripts = scripts(of).or_else(|| site.has_php.then(Scripts::guarded));
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
        archives: options.listing_archive.clone(),
        names: Arc::new(NameRules {
            hidden: options.hide.clone(),
            shown: options.show.clone(),
        }),
        strip_prefix: prefix(of).to_vec(),
        only: site.only.clone(),
        read_options: resources.read_options(&reading)?,
        chunk_bytes: reading.chunk_bytes,
        variants: variants(of, compress, resources),
        digests: file_digests(options, compress, resources),
        uploads: resources.uploads(root),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_about_the_form_of_content_forbid_kept_forms() {
        let changes = |set: &[(&str, &str)], removed: &[&str]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            changes_form(&levity_config::Headers {
                set: set.iter().map(owned).collect(),
                remove: removed.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            })
        };
        assert!(!changes(
            &[("X-A", "1"), ("Cache-Control", "max-age=9")],
            &["Server"]
        ));
        assert!(changes(
            &[("cache-control", "max-age=9, No-Transform")],
            &[]
        ));
        assert!(changes(&[("Content-Encoding", "identity")], &[]));
        assert!(changes(&[], &["etag"]));
        assert!(changes(&[("Content-Digest", "x")], &[]));
    }
}
