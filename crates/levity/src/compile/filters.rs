//! The filters of a location. A filter that is new gets its line here.

use std::sync::Arc;

use levity_config::LocationOptions;
use levity_config::tls::SiteTls;

use crate::filter::cache_control::CacheControl;
use crate::filter::compress::Compress;
use crate::filter::cors::CorsHeaders;
use crate::filter::header_rules::HeaderRules;
use crate::filter::hsts::Hsts;
use crate::filter::path_headers::HeadersOfPaths;
use crate::filter::security_headers::SecurityHeaders;
use crate::filter::substitute::Substitute;
use crate::http::filter::Filter;

/// The filters of a location, in order.
pub fn filters(
    of: &levity_config::Location,
    tls: Option<&SiteTls>,
    compress: Option<Arc<Compress>>,
) -> Vec<Box<dyn Filter>> {
    let list = [
        tls.and_then(hsts),
        header_rules(of),
        path_headers(of),
        cache_control(&of.options),
        of.options
            .security_headers
            .then(|| Box::new(SecurityHeaders) as _),
        of.cors.clone().map(|cors| Box::new(CorsHeaders(cors)) as _),
        substitute(&of.options),
        compress.map(|compress| Box::new(compress) as _),
    ];
    list.into_iter().flatten().collect()
}

fn hsts(tls: &SiteTls) -> Option<Box<dyn Filter>> {
    Some(Box::new(Hsts::new(tls.hsts?)))
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

fn substitute(options: &LocationOptions) -> Option<Box<dyn Filter>> {
    let (pairs, types) = (&options.substitute, &options.substitute_types);
    let filter = || Substitute::new(pairs, types);
    (!pairs.is_empty()).then(|| Box::new(filter()) as _)
}
