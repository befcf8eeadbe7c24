//! What files say of the certificates of sites, without a server.

use std::path::Path;

use levity_config::certificate_files::read_certificate;
use levity_config::tls::{CertificateFiles, Certificates};
use levity_config::{Config, Site};
use levity_tls::{LocalCa, Validity};
use levity_wire::tls_names::stands_for;

use super::acme::{acme_names, bare_names, has_acme};
use super::authorities::{Report, Stored};
use super::certificates::{CertificateReport, Origin};
use super::folder::state_folder;
use super::source::LOCAL_NAME;

/// What files say of each certificate of `config`; for those of this machine, what the file of its authority says. Errors have no values
/// of variables. Makes nothing. Blocks.
///
/// # Errors
/// When there is no folder for their state.
pub fn reports(config: &Config) -> Result<Vec<CertificateReport>, &'static str> {
    let folder = state_folder(config)?;
    let stored = Stored::new(&folder);
    let sites = config.sites.iter();
    let known = sites.flat_map(|site| of_site(site, config, &stored, &folder));
    let all = known.chain(on_demand(config, &stored));
    let hide = |error: String| config.hidden.hide(&error).into_owned();
    let all = all.map(|report| CertificateReport {
        error: report.error.map(hide),
        ..report
    });
    Ok(all.collect())
}

/// The state of certificates by ACME. Does not block.
///
/// # Errors
/// As those of [`reports`].
pub fn stored(config: &Config) -> Result<Stored, &'static str> {
    Ok(Stored::new(&state_folder(config)?))
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

/// What files say of the certificate that a client gets that asks for `name`, in lower case; `None` if no site has TLS, or there is no folder for its state. If there is none
/// for the name, it is another one of the site. Makes nothing. Blocks.
pub fn report_for(name: &str, config: &Config) -> Option<CertificateReport> {
    let folder = state_folder(config).ok()?;
    let stored = Stored::new(&folder);
    let site = site_for(name, config)?;
    let reports = of_site(site, config, &stored, &folder).into_iter();
    let on_demand = on_demand(config, &stored).into_iter();
    let on_demand = on_demand.filter(|_| is_on_demand(name, site, config));
    let mut reports: Vec<_> = reports.chain(on_demand).collect();
    let own = reports.iter().position(|report| report.is_for(name));
    match own {
        Some(own) => Some(reports.swap_remove(own)),
        None if is_on_demand(name, site, config) => {
            let names = vec![name.to_owned()];
            Some(CertificateReport::missing(names, Origin::OnDemand))
        }
        None => reports.into_iter().next(),
    }
}

/// The site whose certificate a client gets that asks for `name`, as handshakes choose it.
fn site_for<'c>(name: &str, config: &'c Config) -> Option<&'c Site> {
    let sites = || config.sites.iter().filter(|site| site.tls.is_some());
    let has_name = |site: &&Site| site.hosts.iter().any(|host| host == name);
    let longest = |site: &Site| {
        let above = site.hosts.iter();
        let above = above.filter(|host| stands_for(host, name));
        above.map(String::len).max()
    };
    let starred = || {
        let beneath = sites().filter(|site| longest(site).is_some());
        beneath.max_by_key(|site| longest(site))
    };
    let default = || {
        config
            .default_tls_site()
            .map(|number| &config.sites[number])
    };
    sites().find(has_name).or_else(starred).or_else(default)
}

fn of_site(site: &Site, config: &Config, stored: &Stored, folder: &Path) -> Vec<CertificateReport> {
    match site.tls.as_ref().map(|tls| &tls.certificates) {
        None => Vec::new(),
        Some(Certificates::Files(pairs)) => pairs.iter().map(|pair| of_pair(pair, site)).collect(),
        Some(Certificates::Internal) => vec![of_authority(folder, site)],
        Some(Certificates::Acme) => {
            let names = acme_names(site, config);
            let reports = names.iter().map(|name| stored.report(name));
            reports
                .map(|report| of_report(report, Origin::Acme))
                .collect()
        }
    }
}

fn of_pair(pair: &CertificateFiles, site: &Site) -> CertificateReport {
    match read_certificate(pair) {
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
    let is_of = |host: &String| config.acme.is_on_demand(host) && stands_for(host, name);
    site.hosts.is_empty() || hosts.any(is_of)
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

    #[cfg(feature = "acme")]
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

    #[test]
    fn names_get_the_certificate_of_their_site() {
        let site = |hosts: &str| {
            format!("[[site]]\nhosts = [{hosts}]\nroot = \"/srv\"\ntls = \"internal\"\n")
        };
        let hosts = ["\"a.test\"", "\"*.test\"", "\"*.b.test\"", ""];
        let all = hosts.map(site).concat();
        let named = hosts[..3]
            .iter()
            .map(|hosts| site(hosts))
            .collect::<String>();
        for (text, name, expected) in [
            (&all, "a.test", Some(0)),
            (&all, "b.test", Some(1)),
            (&all, "x.b.test", Some(2)),
            (&all, "other.example", Some(3)),
            (&named, "other.example", None),
            (&"[[site]]\nroot = \"/srv\"\n".to_owned(), "a.test", None),
        ] {
            let config = levity_config::parse(text).expect("a configuration");
            let expected = expected.map(|number: usize| config.sites[number].line.number);
            let found = site_for(name, &config).map(|site| site.line.number);
            assert_eq!(found, expected, "{name}");
        }
    }
}
