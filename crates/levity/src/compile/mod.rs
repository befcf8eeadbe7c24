//! From a configuration to locations.

mod files;
mod filters;
mod fingerprints;
mod forms;
mod gates;
mod handlers;
mod logs;
mod proxy;
mod resources;
mod roots;
mod scripts;
mod service;
mod stores;
mod uploads;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use levity_config::{Config, Matcher, Pattern};
use levity_wire::http1;

use self::handlers::LocationParts;
use self::resources::{Resources, SiteParts};
use self::roots::Roots;
pub use self::service::{ServiceParts, follow_certificates, service};
use self::stores::Stores;
use crate::filter::compress::Compress;
use crate::http::filter::Filters;
use crate::mailboxes::set::MailboxSet;
use crate::route::fingerprint::{Asked, Fingerprint};
use crate::route::location::Location;
use crate::route::{Route, Site};
use crate::tls::authorities::Acme;
use crate::upstream::Upstream;

/// The sites of `config`, and the roots of their locations and upstreams.
fn sites(
    config: &Config,
    upstreams: &[Arc<Upstream>],
    stores: &Stores<'_>,
    mut roots: Roots,
    parts: &ServiceParts,
    acme: Option<&Arc<Acme>>,
) -> io::Result<(Vec<Site>, Roots)> {
    let logs = logs::logs(config);
    let scripts = match stores.uploads {
        [] => Vec::new(),
        _ => scripts::all_scripts(config, upstreams, &mut roots),
    };
    let mut resources = Resources {
        config,
        disk: &parts.disk,
        compute: &parts.compute,
        variants: parts.variants.as_ref(),
        upstreams,
        stores,
        body_bytes: config.limits.body_bytes,
        kept_files_max: parts.kept_files_max,
        rate_limits: &parts.rate_limits,
        rate_limit_bytes: config.limits.rate_limit_bytes,
        mailboxes: mailbox_sets(config, parts),
        shared_resume: &parts.resume,
        whole: &config.disk,
        scripts,
        reserved: gates::reserved(config),
        request_id: config.server.request_id.clone(),
        log: logs::log_number(&logs, &config.log),
        logs,
        https_port: levity_config::redirect_port(&config.listen),
        challenges: acme.map(|acme| acme.challenges.clone()),
        tls_sites: 0,
        roots,
        users: Vec::new(),
        silent: BTreeSet::new(),
    };
    let sites = config.sites.iter().enumerate();
    let sites: io::Result<_> = sites
        .map(|(number, site)| compile(number, site, &mut resources))
        .collect();
    Ok((sites?, resources.roots))
}

/// The sets of mailboxes, in the order of the configuration.
fn mailbox_sets(config: &Config, parts: &ServiceParts) -> Vec<Arc<MailboxSet>> {
    let sets = config.mailboxes.iter();
    sets.map(|of| MailboxSet::new(of, &parts.mailboxes))
        .collect()
}

fn compile(
    number: usize,
    site: &levity_config::Site,
    resources: &mut Resources<'_>,
) -> io::Result<Site> {
    let parts = SiteParts {
        hosts: site.hosts.clone(),
        number,
        tls_number: resources.tls_sites,
        tls: site.tls.clone(),
        only: site.only.as_ref().map(|name| name.clone().into_vec()),
        has_php: scripts::has_php(site, resources.upstreams),
    };
    resources.tls_sites += usize::from(site.tls.is_some());
    let routes = site.routes.iter().map(|route| {
        let location = location(&route.location, &route.matchers, &parts, resources)?;
        Ok(Route {
            matchers: route.matchers.clone(),
            location,
        })
    });
    let mut routes: Vec<Route> = routes.collect::<io::Result<_>>()?;
    let mut rest = location(&site.location, &[], &parts, resources)?;
    let of_routes = routes.iter_mut().map(|route| &mut route.location);
    let mut locations: Vec<_> = of_routes.chain([&mut rest]).collect();
    let of: Vec<_> = site.locations().collect();
    let matchers = site.routes.iter().flat_map(|route| &route.matchers);
    fingerprints::mark(&mut locations, &of, matchers);
    let has_many = routes.len() > crate::route::COMPARED_ROUTES_MAX;
    Ok(Site {
        routes,
        index: has_many.then(|| site.route_index()),
        rest,
    })
}

/// Compiles a location; `matchers` are those of its route and of those around it, none for that of the site. One of which a file or
/// folder does not respond is closed.
fn location(
    of: &levity_config::Location,
    matchers: &[Matcher],
    site: &SiteParts,
    resources: &mut Resources<'_>,
) -> io::Result<Location> {
    let of = match resources.config.unread(of).next() {
        None => match open_location(of, matchers, site, resources, false) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                resources.is_silent(&error);
                closed(of)
            }
            opened => return opened,
        },
        Some(_) => closed(of),
    };
    open_location(&of, matchers, site, resources, true)
}

/// The location without all that needs files.
fn closed(of: &levity_config::Location) -> levity_config::Location {
    levity_config::Location {
        options: of.options.clone(),
        log: of.log.clone(),
        headers: of.headers.clone(),
        internal: of.internal,
        ..levity_config::Location::default()
    }
}

/// A number for the keys of files in caches, which nothing else in the process has.
fn number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn open_location(
    of: &levity_config::Location,
    matchers: &[Matcher],
    site: &SiteParts,
    resources: &mut Resources<'_>,
    is_closed: bool,
) -> io::Result<Location> {
    let options = &of.options;
    let path = matchers.last().map(|matcher| &matcher.path);
    let compress = Compress::new(options, resources.compute).map(Arc::new);
    let number = number();
    let files = files::files(of, site, compress.as_ref(), resources)?.map(Arc::new);
    let error_pages = files::error_pages(of, number, files.as_ref(), site, resources)?;
    let (files, proxy) = match of.answer {
        Some(_) => (files.filter(|_| of.files_first), None),
        None => {
            let proxy = proxy::proxy(of, files.as_deref(), resources)?;
            (files, proxy)
        }
    };
    let limits = gates::rate_limits(of, site, matchers, resources);
    let parts = LocationParts {
        path,
        files: files.as_ref(),
        proxy: proxy.as_ref(),
        limits: &limits,
        is_closed,
    };
    let handlers = handlers::handlers(of, &parts, site, resources)?;
    Ok(Location {
        number,
        site: site.number,
        position: 0,
        route: path.map_or_else(String::new, Pattern::to_string),
        log: match &of.log {
            Some(own) => logs::log_number(&resources.logs, own),
            None => resources.log,
        },
        error_pages,
        handlers: Box::new(handlers),
        proxy,
        files,
        internal: of.internal,
        is_closed,
        limits,
        asks_about_paths: of.gates.forward_auth.is_some(),
        has_gates_of_paths: of.gates.forward_auth.is_some() || of.gates.signed_url.is_some(),
        filters: Filters::new(filters::filters(of, site.tls.as_ref(), compress)),
        compress: forms::compressed_codings(options),
        server_timing: options.server_timing,
        early_data: site.tls.as_ref().is_some_and(|tls| tls.early_data),
        forms: forms::precompressed_codings(of),
        fingerprint: Fingerprint::default(),
        asked: Asked::Never,
        has_logged_ambiguous: AtomicBool::new(false),
    })
}

fn wire_limits(limits: &levity_config::Limits) -> http1::Limits {
    http1::Limits {
        line_bytes_max: limits.request_line_bytes,
        header_bytes_max: limits.header_bytes,
        head_bytes_max: limits.head_bytes,
        headers_max: limits.headers,
    }
}
