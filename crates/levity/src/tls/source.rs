//! Where the certificates of a site come from, and what was read there.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use levity_config::certificate_files::read_certificate;
use levity_config::tls::{Certificates, ClientAuthMode, SiteTls};
use levity_config::{Config, Site};
use levity_disk::patiently;
use levity_tls::{Certificate, ClientAuth, LocalCa, NamedKeys, SitePolicy};

use super::acme::{acme_names, bare_names};
use super::authorities::{Report, certificate_path};
use super::certificates::{CertificateReport, Origin};
use super::changes::{Changes, Otherwise, Part};
use super::folder;
use super::stamp::{Stamp, stamps};

/// When certificates of this machine are replaced: half of their life.
const INTERNAL_AGE_MAX: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// The names of a site without hosts in a certificate of this machine.
pub const LOCAL_NAME: &str = "localhost";

/// What sites have in common while their files are read.
pub struct Reading<'f> {
    folder: &'f Path,
    now: SystemTime,
    /// The versions of all files, looked at before any of them is read: what changes meanwhile is read again.
    stamps: HashMap<PathBuf, Stamp>,
    authority: OnceCell<Result<LocalCa, String>>,
}

impl<'f> Reading<'f> {
    /// With this folder of the state, for the files of `sources` and `others`. Blocks.
    pub fn new(folder: &'f Path, sources: &[Source], others: &[PathBuf]) -> Self {
        let of_sources = sources.iter().flat_map(|source| source.files(folder));
        let files: Vec<_> = of_sources.chain(others.iter().cloned()).collect();
        let stamps = stamps(&files);
        let stamps = files.into_iter().zip(stamps);
        Self {
            folder,
            now: SystemTime::now(),
            stamps: stamps
                .filter_map(|(file, stamp)| Some((file, stamp?)))
                .collect(),
            authority: OnceCell::new(),
        }
    }

    /// The version of a file; `None` if it cannot be found, or does not respond.
    pub fn stamp(&self, path: &Path) -> Option<Stamp> {
        self.stamps.get(path).cloned()
    }

    /// The authority of this machine.
    fn authority(&self) -> Result<&LocalCa, String> {
        let opened = self.authority.get_or_init(|| {
            let opened = in_time(self.folder, LocalCa::open);
            opened.map_err(|reason| match folder::is_writable(self.folder) {
                true => reason,
                false => format!("{reason}; {}", folder::OTHER_FOLDER),
            })
        });
        opened.as_ref().map_err(String::clone)
    }
}

/// A site with TLS.
pub struct Source {
    name: String,
    hosts: Vec<String>,
    /// Those with certificates by ACME that are known in advance.
    acme: Vec<String>,
    tls: SiteTls,
    /// Why its files are not used as they are now, if they are not.
    failure: ArcSwapOption<String>,
}

/// What was read for a site last.
#[derive(Clone)]
pub struct SeenSite {
    /// The versions of the operator's files with certificates and keys.
    given: Vec<Option<Stamp>>,
    /// Those of certificates by ACME.
    issued: Vec<Option<Stamp>>,
    at: SystemTime,
    certificates: Vec<Certificate>,
    /// `None` until they could be read.
    clients: Option<SeenClients>,
}

/// What was read of the authorities of clients last.
#[derive(Clone)]
struct SeenClients {
    file: Option<Stamp>,
    auth: Option<ClientAuth>,
}

impl SeenSite {
    /// Nothing was read: all is read at the next look.
    fn nothing() -> Self {
        Self {
            given: Vec::new(),
            issued: Vec::new(),
            at: SystemTime::UNIX_EPOCH,
            certificates: Vec::new(),
            clients: None,
        }
    }

    /// The names of its certificates that are not among `before`.
    fn new_names<'c>(&'c self, before: &[Certificate]) -> impl Iterator<Item = &'c String> {
        let known: Vec<_> = before.iter().map(Certificate::der).collect();
        let is_new = move |one: &&Certificate| !known.contains(&one.der());
        let new: Vec<_> = self.certificates.iter().filter(is_new).collect();
        new.into_iter().filter_map(|one| one.names.first())
    }
}

impl Source {
    /// That of `site`, if it has TLS.
    pub fn of(site: &Site, config: &Config) -> Option<Self> {
        Some(Self {
            name: site.name().to_owned(),
            hosts: site.hosts.clone(),
            acme: acme_names(site, config),
            tls: site.tls.clone()?,
            failure: ArcSwapOption::empty(),
        })
    }

    /// Whether its certificates are those of this machine.
    pub fn is_internal(&self) -> bool {
        self.tls.certificates == Certificates::Internal
    }

    /// Whether `other` has the same files for the same hosts.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.hosts, &self.acme, &self.tls) == (&other.hosts, &other.acme, &other.tls)
    }

    /// Why its files are not used as they are now, if they are not. Does not block.
    pub fn failure(&self) -> Option<Arc<String>> {
        self.failure.load_full()
    }

    /// Reads everything, or what has changed since `before`, which the same files had. What cannot be used is told to `changes`; of
    /// it, `before` stays in use. Without that, handshakes are refused until a [`refresh`](Self::refresh) can use it. Blocks.
    pub fn read(
        &self,
        before: Option<SeenSite>,
        reading: &Reading<'_>,
        changes: &mut Changes,
    ) -> SeenSite {
        let mut seen = before.unwrap_or_else(SeenSite::nothing);
        self.refresh(&mut seen, reading, changes);
        seen
    }

    /// Reads again what has changed, and tells `changes` what has come of it. What cannot be used leaves what was `seen` of it before in
    /// use, and is read again at the next call: certificates apart from the authorities of clients. Returns whether handshakes need
    /// other policies. Blocks.
    pub fn refresh(
        &self,
        seen: &mut SeenSite,
        reading: &Reading<'_>,
        changes: &mut Changes,
    ) -> bool {
        let certificates = self.refresh_certificates(seen, reading, changes);
        let clients = self.refresh_clients(seen, reading, changes);
        let is_changed = certificates == Ok(true) || clients == Ok(true);
        let part = |part, is_had| match is_had {
            true => (part, Otherwise::Before),
            false => (part, Otherwise::Nothing),
        };
        let failures = [
            (
                part(Part::Certificates, !seen.certificates.is_empty()),
                certificates.err(),
            ),
            (part(Part::Clients, seen.clients.is_some()), clients.err()),
        ];
        let failures = failures
            .into_iter()
            .filter_map(|(part, reason)| Some((part, reason?)));
        self.note(&failures.collect::<Vec<_>>(), is_changed, changes);
        is_changed
    }

    /// Keeps why files are not used, and tells `changes` what is new of it.
    fn note(
        &self,
        failures: &[((Part, Otherwise), String)],
        is_changed: bool,
        changes: &mut Changes,
    ) {
        let reasons: Vec<_> = failures.iter().map(|(_, reason)| &**reason).collect();
        let failure = (!reasons.is_empty()).then(|| Arc::new(reasons.join("; ")));
        let before = self.failure.swap(failure);
        if failures.is_empty() && before.is_some() && !is_changed {
            changes.restored.push(self.name.clone());
        }
        for (part, reason) in failures {
            if !before
                .as_ref()
                .is_some_and(|before| before.contains(reason))
            {
                changes.fails(&self.name, *part, reason);
            }
        }
    }

    /// Whether there are other certificates.
    fn refresh_certificates(
        &self,
        seen: &mut SeenSite,
        reading: &Reading<'_>,
        changes: &mut Changes,
    ) -> Result<bool, String> {
        let (given, issued) = (self.given(reading), self.issued(reading));
        let is_old = self.is_internal() && seen.at + INTERNAL_AGE_MAX <= reading.now;
        let is_given_anew = is_old || given != seen.given;
        if !is_given_anew && issued == seen.issued {
            return Ok(false);
        }
        // A certificate may be there before its key.
        let certificates = self.certificates(&seen.certificates, reading)?;
        let before = std::mem::replace(&mut seen.certificates, certificates);
        (seen.given, seen.issued, seen.at) = (given, issued, reading.now);
        match &self.tls.certificates {
            Certificates::Acme => changes.issued.extend(seen.new_names(&before).cloned()),
            Certificates::Files(_) | Certificates::Internal => {}
        }
        changes.is_given_anew |= is_given_anew;
        Ok(true)
    }

    /// Whether there are other authorities of clients.
    fn refresh_clients(
        &self,
        seen: &mut SeenSite,
        reading: &Reading<'_>,
        changes: &mut Changes,
    ) -> Result<bool, String> {
        let file = self.authorities().and_then(|path| reading.stamp(path));
        let is_read = seen.clients.as_ref().is_some_and(|seen| seen.file == file);
        if is_read {
            return Ok(false);
        }
        seen.clients = Some(self.clients(file)?);
        changes.is_given_anew = true;
        Ok(true)
    }

    /// All files that are looked at.
    fn files(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let given = self.given_files().into_iter().chain(self.authorities());
        let given: Vec<_> = given.map(Path::to_owned).collect();
        let names = self.acme.iter().map(|name| certificate_path(folder, name));
        given.into_iter().chain(names.collect::<Vec<_>>())
    }

    /// The operator's files with certificates and keys.
    fn given_files(&self) -> Vec<&Path> {
        let pairs: &[_] = match &self.tls.certificates {
            Certificates::Files(pairs) => pairs,
            Certificates::Internal | Certificates::Acme => &[],
        };
        let files = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        files.map(PathBuf::as_path).collect()
    }

    /// Their versions.
    fn given(&self, reading: &Reading<'_>) -> Vec<Option<Stamp>> {
        let files = self.given_files().into_iter();
        files.map(|path| reading.stamp(path)).collect()
    }

    /// The file with the authorities of clients.
    fn authorities(&self) -> Option<&Path> {
        Some(&self.tls.client_auth.as_ref()?.authorities)
    }

    /// The versions of certificates by ACME.
    fn issued(&self, reading: &Reading<'_>) -> Vec<Option<Stamp>> {
        let names = self.acme.iter();
        let files = names.map(|name| certificate_path(reading.folder, name));
        files.map(|path| reading.stamp(&path)).collect()
    }

    fn certificates(
        &self,
        before: &[Certificate],
        reading: &Reading<'_>,
    ) -> Result<Vec<Certificate>, String> {
        match &self.tls.certificates {
            Certificates::Files(pairs) => {
                let read = pairs.iter().map(read_certificate);
                read.collect()
            }
            Certificates::Internal => {
                let authority = reading.authority()?;
                let certificate = authority.issue(&self.internal_names(), reading.now);
                Ok(vec![certificate?])
            }
            Certificates::Acme => {
                let names = self.acme.iter();
                let read = names.filter_map(|name| by_name(name, before, reading.folder));
                Ok(read.collect())
            }
        }
    }

    /// Reads the authorities, whose file was looked at first.
    fn clients(&self, file: Option<Stamp>) -> Result<SeenClients, String> {
        let auth = self.tls.client_auth.as_ref().map(|auth| {
            Ok::<_, String>(ClientAuth {
                authorities: in_time(&auth.authorities, levity_tls::authorities)?,
                is_required: auth.mode == ClientAuthMode::Required,
            })
        });
        Ok(SeenClients {
            file,
            auth: auth.transpose()?,
        })
    }

    /// How handshakes are made with what was `seen`. `on_demand` are the certificates that clients have asked for.
    pub fn policy(&self, seen: &SeenSite, on_demand: Option<&Arc<NamedKeys>>) -> SitePolicy<'_> {
        let is_acme = self.tls.certificates == Certificates::Acme;
        let is_known = self.acme.len() == self.hosts.len() && !self.hosts.is_empty();
        let clients = seen.clients.as_ref();
        let is_unknown = || ClientAuth {
            authorities: Vec::new(),
            is_required: true,
        };
        SitePolicy {
            hosts: &self.hosts,
            certificates: seen.certificates.clone(),
            one_for_each: is_acme,
            on_demand: on_demand.filter(|_| is_acme && !is_known).cloned(),
            client_auth: clients.map_or_else(|| Some(is_unknown()), |seen| seen.auth.clone()),
            early_data: self.tls.early_data,
        }
    }

    /// What operators see of the certificates that are `served`. `issued` is what the thread that gets some says. Does not block.
    pub fn reports(&self, served: &[Certificate], issued: &[Report]) -> Vec<CertificateReport> {
        let failure = self.failure.load_full();
        let failure = failure.as_deref();
        let of = |one: &Certificate, origin| CertificateReport {
            error: failure.cloned(),
            ..CertificateReport::of(one, origin)
        };
        let missing = |origin| CertificateReport {
            error: failure.cloned(),
            ..CertificateReport::missing(bare_names(&self.hosts), origin)
        };
        match &self.tls.certificates {
            Certificates::Files(_) if served.is_empty() => vec![missing(Origin::Files)],
            Certificates::Internal if served.is_empty() => vec![missing(Origin::Internal)],
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
                let reports = names.map(|name| {
                    let report = by_acme(name, served, issued);
                    CertificateReport {
                        error: failure.cloned().or(report.error),
                        ..report
                    }
                });
                reports.collect()
            }
        }
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

/// The certificate by ACME for `name`, if there is one. That of `before` stays in use if the file cannot be used: the thread that
/// gets certificates says so, and gets another one.
fn by_name(name: &str, before: &[Certificate], folder: &Path) -> Option<Certificate> {
    let path: PathBuf = certificate_path(folder, name);
    let read = in_time(&path, |path| match path.exists() {
        true => Certificate::read(path, path).map(Some),
        false => Ok(None),
    });
    let before = |_| before.iter().find(|one| is_of_name(one, name)).cloned();
    read.unwrap_or_else(before)
}

/// What `call` on a path gives; a path that does not respond is an error in words. Blocks, for seconds at most.
fn in_time<T: Send + 'static>(
    path: &Path,
    call: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    patiently(path, call).unwrap_or_else(|error| Err(format!("{} {error}", path.display())))
}

fn is_of_name(certificate: &Certificate, name: &str) -> bool {
    certificate.names.iter().any(|of| of == name)
}

/// What operators see of the certificate for `name`: what clients get of it, and when the next attempt is.
fn by_acme(name: &str, served: &[Certificate], issued: &[Report]) -> CertificateReport {
    let served = served.iter().find(|one| is_of_name(one, name));
    let report = issued.iter().find(|one| one.name == name);
    CertificateReport {
        issuer: served.map(|one| one.issuer.clone()),
        not_after: served.map(|one| one.not_after),
        next: report.and_then(|one| one.next),
        error: report.and_then(|one| one.error.clone()),
        is_in_progress: report.is_some_and(|one| one.is_in_progress),
        ..CertificateReport::missing(vec![name.to_owned()], Origin::Acme)
    }
}

impl CertificateReport {
    /// That of `certificate`.
    pub fn of(certificate: &Certificate, origin: Origin) -> Self {
        Self {
            issuer: Some(certificate.issuer.clone()),
            not_after: Some(certificate.not_after),
            ..Self::missing(certificate.names.clone(), origin)
        }
    }
}
