//! What files say of the certificates of sites, without a server.

use std::path::Path;

use levity_acme::{Report, Stored};
use levity_config::tls::{CertificateFiles, Certificates};
use levity_config::{Config, Site};
use levity_tls::{Certificate, LocalCa, Validity};

use super::acme::has_acme;
use super::certificates::{CertificateReport, Origin};
use super::sites::{LOCAL_NAME, acme_names, bare_names, state_folder};

/// What files say of each certificate of `config`; for those of this machine, what the file of its authority says. Makes nothing.
/// Blocks.
pub fn reports(config: &Config) -> Vec<CertificateReport> {
    let folder = state_folder(config);
    let stored = Stored::new(&folder);
    let sites = config.sites.iter();
    let known = sites.flat_map(
        |site| match site.tls.as_ref().map(|tls| &tls.certificates) {
            None => Vec::new(),
            Some(Certificates::Files(pairs)) => {
                pairs.iter().map(|pair| of_pair(pair, site)).collect()
            }
            Some(Certificates::Internal) => vec![of_authority(&folder, site)],
            Some(Certificates::Acme) => {
                let names = acme_names(site, config);
                let reports = names.iter().map(|name| stored.report(name));
                reports
                    .map(|report| of_report(report, Origin::Acme))
                    .collect()
            }
        },
    );
    known.chain(on_demand(config, &stored)).collect()
}

/// The state of certificates by ACME. Does not block.
pub fn stored(config: &Config) -> Stored {
    Stored::new(&state_folder(config))
}

/// Whether a site of `config` has the certificate for `name` got by ACME, in advance or when a client asks for it.
pub fn is_by_acme(name: &str, config: &Config) -> bool {
    let mut sites = config.sites.iter().filter(|site| has_acme(site));
    let on_demand = config.acme.ask.is_some();
    sites.any(|site| {
        let known = acme_names(site, config);
        known.iter().any(|one| one == name) || on_demand && is_on_demand(name, site, config)
    })
}

fn of_pair(pair: &CertificateFiles, site: &Site) -> CertificateReport {
    match Certificate::read(&pair.certificate, &pair.key) {
        Ok(certificate) => CertificateReport::of(&certificate, Origin::Files),
        Err(reason) => CertificateReport {
            error: Some(reason),
            ..CertificateReport::missing(bare_names(&site.hosts), Origin::Files)
        },
    }
}

fn of_authority(folder: &Path, site: &Site) -> CertificateReport {
    let names = match site.hosts.is_empty() {
        true => vec![LOCAL_NAME.to_owned()],
        false => bare_names(&site.hosts),
    };
    let missing = CertificateReport::missing(names, Origin::Internal);
    match Validity::read(&LocalCa::path_in(folder)) {
        Ok(validity) => CertificateReport {
            issuer: Some(validity.issuer),
            not_after: Some(validity.not_after),
            ..missing
        },
        Err(reason) => CertificateReport {
            error: Some(reason),
            ..missing
        },
    }
}

/// Those that clients have asked for.
fn on_demand(config: &Config, stored: &Stored) -> Vec<CertificateReport> {
    let sites: Vec<_> = config.sites.iter().filter(|site| has_acme(site)).collect();
    let known: Vec<_> = sites
        .iter()
        .flat_map(|site| acme_names(site, config))
        .collect();
    let has_any = config.acme.ask.is_some() && sites.iter().any(|site| has_on_demand(site, config));
    if !has_any {
        return Vec::new();
    }
    let is_of_site = |name: &String| sites.iter().any(|site| is_on_demand(name, site, config));
    match stored.names() {
        Ok(names) => names
            .into_iter()
            .filter(|name| !known.contains(name) && is_of_site(name))
            .map(|name| of_report(stored.report(&name), Origin::OnDemand))
            .collect(),
        Err(reason) => vec![CertificateReport {
            error: Some(reason),
            ..CertificateReport::missing(Vec::new(), Origin::OnDemand)
        }],
    }
}

fn has_on_demand(site: &Site, config: &Config) -> bool {
    let mut hosts = site.hosts.iter();
    site.hosts.is_empty() || hosts.any(|host| config.acme.is_on_demand(host))
}

/// Whether `site` has the certificate for `name` got when a client asks for it.
fn is_on_demand(name: &str, site: &Site, config: &Config) -> bool {
    let mut hosts = site.hosts.iter();
    let is_beneath = |host: &str| {
        let suffix = host.strip_prefix('*');
        suffix.is_some_and(|suffix| name.ends_with(suffix))
    };
    site.hosts.is_empty() || hosts.any(|host| config.acme.is_on_demand(host) && is_beneath(host))
}

fn of_report(report: Report, origin: Origin) -> CertificateReport {
    CertificateReport {
        names: vec![report.name],
        origin,
        issuer: report.issuer,
        not_after: report.not_after,
        next: report.next,
        error: report.error,
        is_in_progress: report.is_in_progress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_demand_are_beneath_hosts_with_a_star() {
        let text = "[acme]\nask = \"http://127.0.0.1:9/\"\n[[listen]]\naddress = \"127.0.0.1:443\"\n\
                    [[site]]\nhosts = [\"a.example.org\", \"*.b.example.org\"]\nroot = \"/srv\"\ntls = \"acme\"\n";
        let config = levity_config::parse(text).expect("a configuration");
        let site = &config.sites[0];
        assert!(has_on_demand(site, &config));
        for (name, expected) in [
            ("x.b.example.org", true),
            ("y.x.b.example.org", true),
            ("b.example.org", false),
            ("a.example.org", false),
            ("xb.example.org", false),
        ] {
            assert_eq!(is_on_demand(name, site, &config), expected, "{name}");
        }
        for (name, expected) in [
            ("a.example.org", true),
            ("x.b.example.org", true),
            ("c.example.org", false),
        ] {
            assert_eq!(is_by_acme(name, &config), expected, "{name}");
        }
    }
}
