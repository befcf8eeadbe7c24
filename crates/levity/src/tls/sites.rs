//! The certificates of sites: read at the start, and again when their files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use levity_config::certificate_files::read_ticket_keys;
use levity_config::{Config, Site};
use levity_disk::patiently;
use levity_net::ClientAuthId;
use levity_telemetry::diagnostics;
use levity_telemetry::stats::CertificateFigures;
use levity_tls::{LocalCa, NamedKeys, Server, TicketKeys};

use super::authorities::Acme;
use super::certificates::{CertificateReport, by_name};
use super::changes::Changes;
use super::folder::state_folder;
use super::source::{Reading, SeenSite, Source};
use super::stamp::Stamp;
use super::staple::Staples;

/// What handshakes use. An event loop reads it without a lock.
pub struct TlsSites {
    sources: Vec<Source>,
    /// The number of the source for all other names.
    default: Option<usize>,
    folder: PathBuf,
    tickets: Tickets,
    staples: Arc<Staples>,
    server: ArcSwap<Server>,
    /// What gets certificates, if a site has its from there.
    pub acme: Option<Arc<Acme>>,
    seen: Mutex<Seen>,
}

/// What was read last.
#[derive(Clone)]
struct Seen {
    /// In the order of the sources.
    sites: Vec<SeenSite>,
    tickets: SeenTickets,
}

/// Where the keys of session tickets come from.
struct Tickets {
    files: Vec<PathBuf>,
    /// Keys that no file gives.
    own: Arc<TicketKeys>,
}

/// What was read there last.
#[derive(Clone)]
struct SeenTickets {
    /// Empty until they could be read.
    files: Vec<Option<Stamp>>,
    keys: Arc<TicketKeys>,
    /// Why the files are not used as they are now, if they are not.
    failure: Option<String>,
}

impl TlsSites {
    /// The certificates of the sites in `config`; `None` if no listener uses TLS. `tickets` are the keys without files,
    /// and `staples` is what is known of revocations. What cannot be used is logged. At a start, the handshakes of its sites are
    /// refused until it can. At a reload, after `old`, sites that are as before keep what they had. Blocks.
    ///
    /// # Errors
    /// At a reload, when a file cannot be used of a site that is not as before; the error names it.
    pub fn new(
        config: &Config,
        tickets: &Arc<TicketKeys>,
        staples: &Arc<Staples>,
        acme: Option<Arc<Acme>>,
        old: Option<&Self>,
    ) -> io::Result<Option<Arc<Self>>> {
        if !config.listen.iter().any(|listen| listen.tls) {
            return Ok(None);
        }
        let sites = config.sites.iter();
        let sources: Vec<_> = sites.filter_map(|site| Source::of(site, config)).collect();
        let folder = state_folder(config).map_err(io::Error::other)?;
        let tickets = Tickets {
            files: config.tls.ticket_keys.clone(),
            own: tickets.clone(),
        };
        let seen = read(&sources, &tickets, &folder, old).map_err(io::Error::other)?;
        let on_demand = acme.as_ref().map(|acme| &acme.on_demand);
        let default = config.default_tls_site();
        let default = default.map(|site| with_tls(&config.sites[..site]));
        let server = server(&sources, default, &seen, on_demand).map_err(io::Error::other)?;
        let server = staples.apply(Arc::new(server), &folder, SystemTime::now());
        Ok(Some(Arc::new(Self {
            sources,
            default,
            folder,
            tickets,
            staples: staples.clone(),
            server: ArcSwap::new(server),
            acme,
            seen: Mutex::new(seen),
        })))
    }

    /// The file with the certificate of the authority of this machine, if sites have certificates of it and it could be made. Blocks.
    pub fn local_authority(&self) -> Option<PathBuf> {
        let is_used = self.sources.iter().any(Source::is_internal);
        let path = is_used.then(|| LocalCa::path_in(&self.folder))?;
        matches!(patiently(&path, Path::exists), Ok(true)).then_some(path)
    }

    /// The folder of the state.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The rules of the site of that number, among those with TLS, by which clients prove who they are. Takes no lock.
    pub fn client_auth(&self, number: usize) -> Option<ClientAuthId> {
        self.server.load().client_auth(number)
    }

    /// What handshakes use now. Does not block.
    pub fn server(&self) -> Arc<Server> {
        self.server.load_full()
    }

    /// Reads files again that have changed, and takes what responders of OCSP have said meanwhile. What cannot be used is logged, and
    /// what was read before for the same site stays. Blocks.
    pub fn refresh(&self) {
        self.read_changes();
        let server = self.server();
        let stapled = self.stapled(server.clone());
        if !Arc::ptr_eq(&server, &stapled) {
            self.server.store(stapled);
        }
    }

    fn stapled(&self, server: Arc<Server>) -> Arc<Server> {
        self.staples.apply(server, &self.folder, SystemTime::now())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_changes(&self) {
        let mut seen = self.seen();
        let reading = Reading::new(&self.folder, &self.sources, &self.tickets.files);
        let mut changes = Changes::default();
        let mut is_changed = self
            .tickets
            .refresh(&mut seen.tickets, &reading, &mut changes);
        for (source, seen) in self.sources.iter().zip(&mut seen.sites) {
            is_changed |= source.refresh(seen, &reading, &mut changes);
        }
        if is_changed {
            let on_demand = self.acme.as_ref().map(|acme| &acme.on_demand);
            match server(&self.sources, self.default, &seen, on_demand) {
                Ok(server) => self.server.store(self.stapled(Arc::new(server))),
                Err(reason) => diagnostics::log(format_args!(
                    "changed certificates are not used: {reason}; those from before stay"
                )),
            }
        }
        changes.log();
    }

    /// What operators see of each certificate that is known in advance. Does not block.
    pub fn reports(&self) -> Vec<CertificateReport> {
        let server = self.server();
        let issued = self.acme.as_ref().map(|acme| acme.reports());
        let issued = issued.unwrap_or_default();
        let sources = self.sources.iter().enumerate();
        sources
            .flat_map(|(number, source)| source.reports(server.certificates(number), &issued))
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

fn read(
    sources: &[Source],
    tickets: &Tickets,
    folder: &Path,
    old: Option<&TlsSites>,
) -> Result<Seen, String> {
    let before = old.map(|old| (old, old.seen().clone()));
    let reading = Reading::new(folder, sources, &tickets.files);
    let mut changes = Changes::default();
    let mut sites = Vec::with_capacity(sources.len());
    for source in sources {
        let before = before.as_ref().and_then(|(old, seen)| {
            let mut known = old.sources.iter().zip(&seen.sites);
            let (_, seen) = known.find(|(of, _)| of.is_same(source))?;
            Some(seen.clone())
        });
        let is_new = old.is_some() && before.is_none();
        sites.push(source.read(before, &reading, &mut changes));
        if let Some(reason) = source.failure().filter(|_| is_new) {
            return Err(reason.to_string());
        }
    }
    let before = before.filter(|(old, _)| old.tickets.files == tickets.files);
    let mut keys = match before {
        Some((_, seen)) => seen.tickets,
        None => tickets.unread(),
    };
    tickets.refresh(&mut keys, &reading, &mut changes);
    changes.log_failed();
    Ok(Seen {
        sites,
        tickets: keys,
    })
}

/// The number of sites with TLS.
fn with_tls(sites: &[Site]) -> usize {
    sites.iter().filter(|site| site.tls.is_some()).count()
}

fn server(
    sources: &[Source],
    default: Option<usize>,
    seen: &Seen,
    on_demand: Option<&Arc<NamedKeys>>,
) -> Result<Server, String> {
    let sites = sources.iter().zip(&seen.sites);
    let policies = sites.map(|(source, seen)| source.policy(seen, on_demand));
    let policies: Vec<_> = policies.collect();
    Server::new(&policies, default, &seen.tickets.keys)
}

impl Tickets {
    fn stamps(&self, reading: &Reading<'_>) -> Vec<Option<Stamp>> {
        self.files.iter().map(|path| reading.stamp(path)).collect()
    }

    /// Those of this process, until the files are read.
    fn unread(&self) -> SeenTickets {
        SeenTickets {
            files: Vec::new(),
            keys: self.own.clone(),
            failure: None,
        }
    }

    fn read(&self, reading: &Reading<'_>) -> Result<SeenTickets, String> {
        Ok(SeenTickets {
            files: self.stamps(reading),
            keys: Arc::new(read_ticket_keys(&self.files)?),
            failure: None,
        })
    }

    /// Reads the files again if they have changed. Returns whether there are other keys. What cannot be used is logged.
    fn refresh(
        &self,
        seen: &mut SeenTickets,
        reading: &Reading<'_>,
        changes: &mut Changes,
    ) -> bool {
        if self.stamps(reading) == seen.files {
            seen.failure = None;
            return false;
        }
        match self.read(reading) {
            Ok(read) => {
                *seen = read;
                changes.is_given_anew = true;
                true
            }
            Err(reason) => {
                if seen.failure.as_ref() != Some(&reason) {
                    let otherwise = match seen.files.is_empty() {
                        true => "this process has keys of its own until they can be used",
                        false => "those from before stay",
                    };
                    diagnostics::log(format_args!(
                        "keys of session tickets are not used as they are in their files: {reason}; {otherwise}"
                    ));
                    seen.failure = Some(reason);
                }
                false
            }
        }
    }
}

// Their configuration has a site with ACME.
#[cfg(all(test, feature = "acme"))]
mod tests {
    use std::fs;

    use super::super::authorities::certificate_path;
    use tempfile::TempDir;

    use super::*;

    /// Puts a new certificate for `name`, with its key, in place of the file.
    fn put(path: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let pem = made.signing_key.serialize_pem() + &made.cert.pem();
        let new = path.with_extension("new");
        fs::write(&new, pem).expect("written");
        fs::rename(new, path).expect("renamed");
    }

    /// Two sites with files of the operator, and one by ACME that has its certificate.
    struct World {
        folder: TempDir,
        sites: Arc<TlsSites>,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            for name in ["a.test", "b.test"] {
                put(&folder.path().join(name), name);
            }
            let issued = certificate_path(folder.path(), "c.example.org");
            fs::create_dir_all(issued.parent().expect("a folder")).expect("made");
            put(&issued, "c.example.org");
            let root = folder.path().display();
            let site = |host: &str, tls: &str| {
                format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"/srv\"\n{tls}\n")
            };
            let given = |host: &str| {
                let table = format!("[site.tls]\ncertificates = [\"{root}/{host}\"]");
                site(host, &table)
            };
            let text = format!(
                "[tls]\nfolder = \"{root}\"\n{}{}{}",
                given("a.test"),
                given("b.test"),
                site("c.example.org", "tls = \"acme\"")
            );
            let config = levity_config::parse(&text).expect("a configuration");
            let tickets = Arc::new(TicketKeys::random());
            let sites = TlsSites::new(&config, &tickets, &Arc::default(), None, None);
            let sites = sites.expect("certificates").expect("TLS");
            Self { folder, sites }
        }

        fn file(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// The certificates in use, in the order of the sites.
        fn in_use(&self) -> [Vec<u8>; 3] {
            let server = self.sites.server();
            [0, 1, 2].map(|number| server.certificates(number)[0].der().to_vec())
        }

        /// Which sites report an error.
        fn failures(&self) -> [Option<String>; 3] {
            let reports = self.sites.reports().into_iter();
            let errors: Vec<_> = reports.map(|report| report.error).collect();
            errors.try_into().expect("a report for each site")
        }

        /// Which sites have another certificate in use after the files were looked at.
        fn changed(&self) -> [bool; 3] {
            let before = self.in_use();
            self.sites.refresh();
            let now = self.in_use();
            [0, 1, 2].map(|number| before[number] != now[number])
        }
    }

    #[test]
    fn an_unusable_file_keeps_no_other_site_from_its_new_certificate() {
        let world = World::new();
        assert_eq!(world.changed(), [false; 3]);
        fs::write(world.file("a.test"), "damaged").expect("written");
        put(&world.file("b.test"), "b.test");
        put(
            &certificate_path(world.folder.path(), "c.example.org"),
            "c.example.org",
        );
        assert_eq!(world.changed(), [false, true, true]);
        let [a, b, c] = world.failures();
        let reason = a.expect("a failure");
        assert!(reason.contains("/a.test: "), "{reason}");
        assert_eq!((b, c), (None, None));
        // Nor later ones.
        put(&world.file("b.test"), "b.test");
        assert_eq!(world.changed(), [false, true, false]);
        put(&world.file("a.test"), "a.test");
        assert_eq!(world.changed(), [true, false, false]);
        assert_eq!(world.failures(), [const { None }; 3]);
    }

    #[test]
    fn broken_authorities_of_clients_keep_no_certificate_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, clients) = (folder.path().join("a.test"), folder.path().join("ca"));
        put(&file, "a.test");
        put(&clients, "ca.test");
        let root = folder.path().display();
        let text = format!(
            "[[site]]\nhosts = [\"a.test\"]\nroot = \"/srv\"\n[site.tls]\ncertificates = [\"{root}/a.test\"]\n\
             client_authorities = \"{root}/ca\"\n"
        );
        let config = levity_config::parse(&text).expect("a configuration");
        let sites = TlsSites::new(
            &config,
            &Arc::new(TicketKeys::random()),
            &Arc::default(),
            None,
            None,
        );
        let sites = sites.expect("certificates").expect("TLS");
        let in_use = || sites.server().certificates(0)[0].der().to_vec();
        let failure = || sites.reports()[0].error.clone();
        let before = in_use();
        fs::write(&clients, "damaged").expect("written");
        put(&file, "a.test");
        for _ in 0..2 {
            sites.refresh();
            let reason = failure().expect("a failure");
            assert!(reason.contains("/ca: "), "{reason}");
        }
        assert_ne!(in_use(), before);
        // And the other way round.
        let before = in_use();
        put(&clients, "other.test");
        fs::write(&file, "damaged").expect("written");
        sites.refresh();
        let reason = failure().expect("a failure");
        assert!(
            reason.contains("/a.test: ") && !reason.contains("/ca: "),
            "{reason}"
        );
        assert_eq!(in_use(), before);
        put(&file, "a.test");
        sites.refresh();
        assert_eq!(failure(), None);
    }

    #[test]
    fn a_file_that_is_moved_back_is_no_failure() {
        let world = World::new();
        let (file, aside) = (world.file("a.test"), world.file("aside"));
        fs::rename(&file, &aside).expect("renamed");
        assert_eq!(world.changed(), [false; 3]);
        assert!(world.failures()[0].is_some());
        fs::rename(&aside, &file).expect("renamed");
        assert_eq!(world.changed(), [false; 3]);
        assert_eq!(world.failures(), [const { None }; 3]);
    }

    #[test]
    fn a_certificate_by_acme_that_cannot_be_read_stays_in_use() {
        let world = World::new();
        let file = certificate_path(world.folder.path(), "c.example.org");
        fs::write(&file, "damaged").expect("written");
        assert_eq!(world.changed(), [false; 3]);
        fs::remove_file(file).expect("removed");
        world.sites.refresh();
        assert!(world.sites.server().certificates(2).is_empty());
    }
}
