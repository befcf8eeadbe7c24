//! The certificates of sites: read at the start, and again when their files change.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use levity_acme::folder::certificate_path;
use levity_acme::{Acme, Report};
use levity_config::tls::{Certificates, ClientAuthMode, SiteTls};
use levity_config::{Config, Site};
use levity_telemetry::diagnostics;
use levity_telemetry::stats::CertificateFigures;
use levity_tls::{Certificate, ClientAuth, LocalCa, NamedKeys, Server, SitePolicy, TicketKeys};

use super::acme::has_acme;
use super::certificates::{CertificateReport, Origin, by_name};
use super::staple::Staples;

/// How often the files are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// When certificates of this machine are replaced: half of their life.
const INTERNAL_AGE_MAX: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// The names of a site without hosts in a certificate of this machine.
pub const LOCAL_NAME: &str = "localhost";

/// What handshakes use. An event loop reads it without a lock.
pub struct TlsSites {
    sources: Sources,
    staples: Arc<Staples>,
    server: ArcSwap<Server>,
    /// What gets certificates, if a site has its from there.
    pub acme: Option<Arc<Acme>>,
    seen: Mutex<Seen>,
    /// Why files that have changed are not used, if they are not. Beside the lock, which whoever waits for a disk may have.
    failure: ArcSwapOption<String>,
}

/// Where everything comes from.
struct Sources {
    sites: Vec<Source>,
    folder: Option<PathBuf>,
    ticket_keys: Vec<PathBuf>,
    /// Keys that no file gives.
    tickets: Arc<TicketKeys>,
    /// Certificates that clients ask for.
    on_demand: Option<Arc<NamedKeys>>,
}

struct Source {
    hosts: Vec<String>,
    /// Those with certificates by ACME that are known in advance.
    acme: Vec<String>,
    tls: SiteTls,
}

/// What was read last.
struct Seen {
    files: Vec<Option<Stamp>>,
    at: SystemTime,
}

/// What tells versions of a file apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

impl TlsSites {
    /// The certificates of the sites in `config`; `None` if no listener uses TLS. `tickets` are the keys without files,
    /// and `staples` is what is known of revocations. Blocks.
    ///
    /// # Errors
    /// When a file cannot be used; the error names it.
    pub fn new(
        config: &Config,
        tickets: &Arc<TicketKeys>,
        staples: &Arc<Staples>,
        acme: Option<Arc<Acme>>,
    ) -> io::Result<Option<Arc<Self>>> {
        if !config.listen.iter().any(|listen| listen.tls) {
            return Ok(None);
        }
        let sites = config.sites.iter().filter_map(|site| {
            Some(Source {
                hosts: site.hosts.clone(),
                acme: acme_names(site, config),
                tls: site.tls.clone()?,
            })
        });
        let sources = Sources {
            sites: sites.collect(),
            folder: config.tls.folder.clone(),
            ticket_keys: config.tls.ticket_keys.clone(),
            tickets: tickets.clone(),
            on_demand: acme.as_ref().map(|acme| acme.on_demand.clone()),
        };
        let (files, at) = (sources.stamps(), SystemTime::now());
        let server = sources.read(at).map_err(io::Error::other)?;
        let server = staples.apply(Arc::new(server), &sources.folder(), at);
        Ok(Some(Arc::new(Self {
            sources,
            staples: staples.clone(),
            server: ArcSwap::new(server),
            acme,
            seen: Mutex::new(Seen { files, at }),
            failure: ArcSwapOption::empty(),
        })))
    }

    /// The file with the certificate of the authority of this machine, if sites have certificates of it.
    pub fn local_authority(&self) -> Option<PathBuf> {
        let folder = self.sources.has_internal().then(|| self.sources.folder())?;
        Some(LocalCa::path_in(&folder))
    }

    /// The folder of the state.
    pub fn folder(&self) -> PathBuf {
        self.sources.folder()
    }

    /// What handshakes use now. Does not block.
    pub fn server(&self) -> Arc<Server> {
        self.server.load_full()
    }

    /// Reads the files again if they have changed, and takes what responders of OCSP have said meanwhile. What cannot be used is
    /// logged, and what was read before stays. Blocks.
    pub fn refresh(&self) {
        self.read_changes();
        let server = self.server();
        let stapled = self.stapled(server.clone());
        if !Arc::ptr_eq(&server, &stapled) {
            self.server.store(stapled);
        }
    }

    fn stapled(&self, server: Arc<Server>) -> Arc<Server> {
        let (folder, now) = (self.sources.folder(), SystemTime::now());
        self.staples.apply(server, &folder, now)
    }

    fn read_changes(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (files, now) = (self.sources.stamps(), SystemTime::now());
        let is_old = self.sources.has_internal() && seen.at + INTERNAL_AGE_MAX <= now;
        if files == seen.files && !is_old {
            return;
        }
        match self.sources.read(now) {
            Ok(server) => {
                self.server.store(self.stapled(Arc::new(server)));
                diagnostics::log(format_args!("certificates were read again"));
                *seen = Seen { files, at: now };
                self.failure.store(None);
            }
            // A certificate may be there before its key.
            Err(reason) if self.failure.load().as_deref() != Some(&reason) => {
                diagnostics::log(format_args!(
                    "changed certificates are not used: {reason}; those from before stay"
                ));
                self.failure.store(Some(Arc::new(reason)));
            }
            Err(_) => {}
        }
    }

    /// What operators see of each certificate that is known in advance. Does not block.
    pub fn reports(&self) -> Vec<CertificateReport> {
        let (server, failure) = (self.server(), self.failure.load_full());
        let issued = self.acme.as_ref().map(|acme| acme.reports());
        let issued = issued.unwrap_or_default();
        let sites = self.sources.sites.iter().enumerate();
        sites
            .flat_map(|(number, site)| {
                let served = server.certificates(number);
                site.reports(served, &issued, failure.as_deref())
            })
            .collect()
    }

    /// The figures for a scrape. Does not block.
    pub fn figures(&self, now: SystemTime) -> CertificateFigures {
        CertificateFigures {
            certificates: by_name(&self.reports(), now),
            on_demand: self.on_demand_count().map(|count| count as u64),
        }
    }

    /// The number of certificates that clients have asked for; `None` if no site has any by ACME. Does not block.
    pub fn on_demand_count(&self) -> Option<usize> {
        self.acme.as_ref().map(|acme| acme.on_demand.len())
    }
}

impl Sources {
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.sites
            .iter()
            .flat_map(|site| {
                let pairs: &[_] = match &site.tls.certificates {
                    Certificates::Files(pairs) => pairs,
                    Certificates::Internal | Certificates::Acme => &[],
                };
                let authorities = site.tls.client_auth.iter().map(|auth| &auth.authorities);
                let pairs = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
                let issued = site.acme.iter();
                let issued = issued.map(|name| certificate_path(&self.folder(), name));
                pairs.chain(authorities).cloned().chain(issued)
            })
            .chain(self.ticket_keys.iter().cloned())
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.files().map(|path| Stamp::of(&path)).collect()
    }

    fn has_internal(&self) -> bool {
        let mut sites = self.sites.iter();
        sites.any(|site| site.tls.certificates == Certificates::Internal)
    }

    fn read(&self, now: SystemTime) -> Result<Server, String> {
        let tickets = match self.ticket_keys.is_empty() {
            true => self.tickets.clone(),
            false => Arc::new(TicketKeys::read(&self.ticket_keys)?),
        };
        let ca = match self.has_internal() {
            true => Some(LocalCa::open(&self.folder())?),
            false => None,
        };
        let sites = self.sites.iter();
        let policies = sites.map(|site| {
            let certificates = match site.tls.certificates {
                Certificates::Acme => self.issued(site),
                _ => site.certificates(ca.as_ref(), now)?,
            };
            let is_known = site.acme.len() == site.hosts.len() && !site.hosts.is_empty();
            let is_asked_for = site.tls.certificates == Certificates::Acme && !is_known;
            let on_demand = self.on_demand.clone().filter(|_| is_asked_for);
            site.policy(certificates, on_demand)
        });
        let policies: Result<Vec<_>, _> = policies.collect();
        Server::new(&policies?, &tickets)
    }

    /// The certificates that a site has got so far. The thread that gets them replaces what cannot be used.
    fn issued(&self, site: &Source) -> Vec<Certificate> {
        let names = site.acme.iter();
        let files = names.map(|name| certificate_path(&self.folder(), name));
        let there = files.filter(|path| path.exists());
        there
            .filter_map(|path| Certificate::read(&path, &path).ok())
            .collect()
    }

    fn folder(&self) -> PathBuf {
        folder_or_usual(self.folder.as_deref())
    }
}

impl Source {
    /// Certificates that nobody has to be asked for.
    fn certificates(
        &self,
        ca: Option<&LocalCa>,
        now: SystemTime,
    ) -> Result<Vec<Certificate>, String> {
        match (&self.tls.certificates, ca) {
            (Certificates::Files(pairs), _) => {
                let read = pairs.iter();
                let read = read.map(|pair| Certificate::read(&pair.certificate, &pair.key));
                read.collect()
            }
            (Certificates::Internal, Some(ca)) => Ok(vec![ca.issue(&self.internal_names(), now)?]),
            (Certificates::Internal | Certificates::Acme, _) => Ok(Vec::new()),
        }
    }

    /// What operators see of the certificates that are `served`. `issued` is what the thread that gets some says, and `failure`
    /// why files are not used.
    fn reports(
        &self,
        served: &[Certificate],
        issued: &[Report],
        failure: Option<&String>,
    ) -> Vec<CertificateReport> {
        let of = |one: &Certificate, origin| CertificateReport {
            error: failure.cloned(),
            ..CertificateReport::of(one, origin)
        };
        match &self.tls.certificates {
            Certificates::Files(_) => served.iter().map(|one| of(one, Origin::Files)).collect(),
            Certificates::Internal => {
                let reports = served.iter().map(|one| CertificateReport {
                    next: Some(one.not_after - INTERNAL_AGE_MAX),
                    ..of(one, Origin::Internal)
                });
                reports.collect()
            }
            Certificates::Acme => {
                let names = self.acme.iter();
                names.map(|name| by_acme(name, served, issued)).collect()
            }
        }
    }

    fn policy(
        &self,
        certificates: Vec<Certificate>,
        on_demand: Option<Arc<NamedKeys>>,
    ) -> Result<SitePolicy<'_>, String> {
        let client_auth = self.tls.client_auth.as_ref().map(|auth| {
            Ok::<_, String>(ClientAuth {
                authorities: levity_tls::authorities(&auth.authorities)?,
                is_required: auth.mode == ClientAuthMode::Required,
            })
        });
        Ok(SitePolicy {
            hosts: &self.hosts,
            certificates,
            on_demand,
            client_auth: client_auth.transpose()?,
            early_data: self.tls.early_data,
        })
    }

    fn internal_names(&self) -> Vec<String> {
        if !self.hosts.is_empty() {
            return bare_names(&self.hosts);
        }
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let addresses = interfaces.iter().map(|one| one.ip().to_string());
        std::iter::once(LOCAL_NAME.to_owned())
            .chain(addresses)
            .chain(self.tls.names.iter().cloned())
            .collect()
    }
}

/// What operators see of the certificate for `name`: what clients get of it, and when the next attempt is.
fn by_acme(name: &str, served: &[Certificate], issued: &[Report]) -> CertificateReport {
    let is_of_name = |one: &&Certificate| one.names.iter().any(|of| of == name);
    let served = served.iter().find(is_of_name);
    let report = issued.iter().find(|one| one.name == name);
    CertificateReport {
        issuer: served.map(|one| one.issuer.clone()),
        not_after: served.map(|one| one.not_after),
        next: report.and_then(|one| one.next),
        error: report.and_then(|one| one.error.clone()),
        ..CertificateReport::missing(vec![name.to_owned()], Origin::Acme)
    }
}

/// The hosts of `site` with certificates by ACME that are known in advance.
pub fn acme_names(site: &Site, config: &Config) -> Vec<String> {
    let hosts = site.hosts.iter().filter(|_| has_acme(site));
    let known = hosts.filter(|host| !config.acme.is_on_demand(host));
    known
        .map(|host| levity_tls::bare(host).to_owned())
        .collect()
}

/// `hosts` as certificates have them.
pub fn bare_names(hosts: &[String]) -> Vec<String> {
    let hosts = hosts.iter().map(|host| levity_tls::bare(host));
    hosts.map(str::to_owned).collect()
}

/// The folder of the state of TLS with `config`.
pub fn state_folder(config: &Config) -> PathBuf {
    folder_or_usual(config.tls.folder.as_deref())
}

fn folder_or_usual(given: Option<&Path>) -> PathBuf {
    given.map_or_else(usual_folder, Path::to_owned)
}

/// Where state is kept that has to outlive a restart.
fn usual_folder() -> PathBuf {
    let of_user = || {
        let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || env::home_dir().map(|home| home.join(".local/state"));
        state.filter(|path| path.is_absolute()).or_else(home)
    };
    let given = env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty());
    let is_root = rustix::process::geteuid().is_root();
    match (given, is_root) {
        // Of several, separated by colons, the first one (systemd.exec(5)).
        (Some(given), _) => {
            let given = given.to_string_lossy().into_owned();
            PathBuf::from(given.split(':').next().unwrap_or_default()).join("tls")
        }
        (None, false) => of_user().unwrap_or_default().join("levity/tls"),
        (None, true) => PathBuf::from("/var/lib/levity/tls"),
    }
}
