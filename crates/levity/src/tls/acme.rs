//! Sites with `tls = "acme"`, and their names.

use levity_config::tls::Certificates;
use levity_config::{Config, Site};
use levity_wire::tls_names;

/// Whether a site gets certificates by ACME.
pub fn has_acme(site: &Site) -> bool {
    let tls = site.tls.as_ref();
    tls.is_some_and(|tls| tls.certificates == Certificates::Acme)
}

/// The names of `site` with certificates by ACME that are known in advance.
pub fn acme_names(site: &Site, config: &Config) -> Vec<String> {
    let hosts = site.hosts.iter().filter(|_| has_acme(site));
    let known = hosts.filter(|host| !config.acme.is_on_demand(host));
    bare_names(known)
}

/// `hosts` as certificates have them.
pub fn bare_names<'h>(hosts: impl IntoIterator<Item = &'h String>) -> Vec<String> {
    let hosts = hosts.into_iter().map(|host| tls_names::bare(host));
    hosts.map(str::to_owned).collect()
}
