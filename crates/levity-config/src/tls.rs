//! `[tls]` and `[site.tls]`: certificates, and what handshakes with clients ask for.

use std::path::PathBuf;
use std::time::Duration;

use strum::{EnumString, VariantNames};

use crate::acme::{self, Acme};
use crate::address::Address;
use crate::certificate_files;
pub use crate::certificate_pair::CertificateFiles;
use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;

const TABLE: &str = "tls";

/// What to write as `tls` of a site.
const HELP: &str = "write \"acme\" for certificates that browsers trust, \"internal\" for one of this machine, or `[site.tls]` with \
                    `certificates`";

/// The port of `https` (RFC 9110, 4.2.2).
pub(crate) const PORT: u16 = 443;

/// `[tls]`: what all sites have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The folder of the state; `None` for the usual one.
    pub folder: Option<PathBuf>,
    /// Files with keys of session tickets, the one first that makes them; without any, each process has keys of its own.
    pub ticket_keys: Vec<PathBuf>,
}

/// `[site.tls]`: how clients reach a site over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteTls {
    /// Where its certificates come from.
    pub certificates: Certificates,
    /// Further names in a certificate of this machine. No key of the file sets them; `levity serve --host` does.
    pub names: Vec<String>,
    /// Which clients have to show certificates.
    pub client_auth: Option<ClientAuth>,
    /// Whether requests over plain HTTP are redirected.
    pub redirect: bool,
    /// How long browsers are told to use TLS only (RFC 6797).
    pub hsts: Option<Duration>,
    /// Whether requests are answered that come before the handshake is complete (RFC 8470).
    pub early_data: bool,
}

/// Where the certificates of a site come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificates {
    /// From files.
    Files(Vec<CertificateFiles>),
    /// From the authority of this machine.
    Internal,
    /// From authorities of `[acme]`, one for each host.
    Acme,
}

/// Who issues certificates that are in no files of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
enum Issuer {
    /// Authorities that speak ACME.
    Acme,
    /// The authority of this machine.
    Internal,
}

/// Clients show certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuth {
    /// The file with the certificates of the authorities that sign them.
    pub authorities: PathBuf,
    /// Which clients have to.
    pub mode: ClientAuthMode,
}

/// Which clients have to show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum ClientAuthMode {
    /// All.
    Required,
    /// Those that have one.
    Optional,
}

/// `[tls]`
pub(crate) const KEYS: &[Key] = documented! {
    /// Folder for what has to outlive a restart: in `acme` accounts, keys and certificates of `[acme]`, in `ocsp` what responders have
    /// said of certificates, and `local-ca.pem` and `local-ca.key` of the authority of this machine. Folders are made with mode 0700
    /// and keys with 0600, so that only the user of the server can read them. `$STATE_DIRECTORY/tls` if that is set, as by systemd, or
    /// else `/var/lib/levity/tls` for root and `~/.local/state/levity/tls` for others; without a home there is none. Nothing in it is
    /// sent to clients.
    key("folder", Kind::Text("a path"), None).secret();
    /// Files with secret bytes, such as `openssl rand -out FILE 80` writes, for servers whose clients are to resume sessions at
    /// any of them. The first one makes tickets, all read them. Without files each process makes keys, and new ones every
    /// 6 hours.
    key("ticket_keys", Kind::Names, Some("[]")).secret();
};

/// `[site.tls]`
pub(crate) const SITE_KEYS: &[Key] = documented! {
    /// Who issues the certificates: `"acme"` has those of `[acme]` issue one for each host, and renews it; `"internal"` has the
    /// authority of this machine sign one, for development. `tls = "acme"` in place of the table says this alone. Instead, there may
    /// be `certificates`.
    key("issuer", Kind::Word(Issuer::VARIANTS), None);
    /// Files with a certificate and then its chain, as PEM. Of several, such as one with an elliptic curve and one with RSA, a
    /// client gets the first that it can verify, one that is quick to sign with before others. They are read again when they
    /// change.
    key("certificates", Kind::Names, None).also(&[("ssl_certificate", ""), ("certificate", "")]);
    /// Files with the keys of `certificates`, in the same order. Without them each key is in the file of its certificate.
    key("keys", Kind::Names, None).secret().also(&[("ssl_certificate_key", ""), ("key", "")]);
    /// File with the certificates of the authorities that sign those of clients. Such clients are named in the log, and in
    /// `Client-Cert` (RFC 9440) to upstreams. Their sessions are not resumed.
    key("client_authorities", Kind::Text("a path"), None).also(&[("ssl_client_certificate", "")]);
    /// Whether clients without a certificate of these are refused in the handshake.
    key("client_certificates", Kind::Word(ClientAuthMode::VARIANTS), Some("required"))
        .also(&[("ssl_verify_client", "")]);
    /// Whether requests over plain HTTP get 308 and the same URL with `https`.
    key("redirect", Kind::Boolean, Some("true"));
    /// How long browsers are told to reach the site over TLS only, such as `"365d"`. It cannot be taken back before.
    key("hsts", Kind::Duration("0s", "3650d"), None);
    /// Whether a client that comes again may send requests along with its first message (0-RTT, RFC 8446 and 8470), which saves
    /// it a round trip. GET and HEAD without a body are answered at once, and have `Early-Data: 1` to upstreams; others get 425,
    /// and the client sends them again. An attacker may hold such a request back until the client has sent it again, so that it
    /// is answered twice. Sessions are in the memory of one process, so `ticket_keys` are not used. Not with
    /// `client_authorities`.
    key("early_data", Kind::Boolean, Some("false")).also(&[("ssl_early_data", "")]);
};

/// Reads `[tls]`.
pub(crate) fn read(section: &Section<'_>) -> Tls {
    let tickets = paths(section, "ticket_keys");
    certificate_files::note_ticket_keys(section, &tickets);
    Tls {
        folder: section.path("folder"),
        ticket_keys: tickets,
    }
}

/// Reads `tls` of a site with these hosts.
pub(crate) fn site(section: &Section<'_>, hosts: &[String], acme: &Acme) -> Option<SiteTls> {
    if !section.has(TABLE) {
        return None;
    }
    certificate_files::note_hosts(section, hosts);
    let is_for_all = !section.has("hosts") || section.is_empty_array("hosts");
    let named = (!is_for_all).then_some(hosts);
    if let Some(text) = section.text_for_table(TABLE) {
        let Ok(issuer) = text.text.parse() else {
            text.refuse_with(format!("`{}` is not a value of `tls`", text.text), HELP);
            return None;
        };
        let certificates = issued(section, TABLE, issuer, named, acme);
        return Some(SiteTls::of(certificates));
    }
    if !section.has_table(TABLE) {
        section.refuse_type(TABLE, "\"acme\", \"internal\" or a table", HELP);
        return None;
    }
    let section = section.child(TABLE);
    let certificates = match section.word("issuer") {
        Some(issuer) => {
            if section.has("certificates") || section.has("keys") {
                section.report("issuer", "there are files, too; one of them is used", None);
            }
            issued(&section, "issuer", issuer, named, acme)
        }
        None => {
            if !section.has("issuer") {
                section.require("certificates");
            }
            let files = files(&section);
            certificate_files::note(&section, &files, hosts);
            Certificates::Files(files)
        }
    };
    Some(SiteTls {
        client_auth: client_auth(&section),
        redirect: section.boolean_or_default("redirect"),
        hsts: section.has("hsts").then(|| section.duration("hsts")),
        early_data: early_data(&section),
        ..SiteTls::of(certificates)
    })
}

/// Certificates that are in no files of the operator, if there can be such.
fn issued(
    section: &Section<'_>,
    key: &str,
    issuer: Issuer,
    hosts: Option<&[String]>,
    acme: &Acme,
) -> Certificates {
    match issuer {
        Issuer::Internal => Certificates::Internal,
        Issuer::Acme => {
            acme::check(section, key, acme, hosts);
            Certificates::Acme
        }
    }
}

impl SiteTls {
    /// With a certificate of the authority of this machine.
    #[must_use]
    pub fn internal() -> Self {
        Self::of(Certificates::Internal)
    }

    /// With these certificates, and defaults.
    fn of(certificates: Certificates) -> Self {
        Self {
            certificates,
            names: Vec::new(),
            client_auth: None,
            redirect: true,
            hsts: None,
            early_data: false,
        }
    }
}

fn paths(section: &Section<'_>, key: &str) -> Vec<PathBuf> {
    let given = section.names(key).unwrap_or_default();
    let paths = given.iter().filter_map(|one| section.joined(key, one));
    paths.collect()
}

fn files(section: &Section<'_>) -> Vec<CertificateFiles> {
    let (certificates, keys) = (paths(section, "certificates"), paths(section, "keys"));
    // Values of another type have been reported.
    let are_arrays = ["certificates", "keys"]
        .iter()
        .all(|key| section.is_array(key));
    if are_arrays && keys.len() != certificates.len() {
        let message = format!(
            "{} keys for {} certificates",
            keys.len(),
            certificates.len()
        );
        section.report("keys", message, None);
    }
    if section.is_empty_array("certificates") {
        section.report("certificates", "there is none", None);
    }
    // The keys are in these files.
    if !section.has("keys") {
        for certificate in &certificates {
            section.withhold("certificates", certificate);
        }
    }
    let keys = keys.iter().map(Some).chain(std::iter::repeat(None));
    let pairs = certificates.iter().zip(keys);
    let pairs = pairs.map(|(certificate, key)| CertificateFiles {
        certificate: certificate.clone(),
        key: key.unwrap_or(certificate).clone(),
    });
    pairs.collect()
}

fn client_auth(section: &Section<'_>) -> Option<ClientAuth> {
    if section.has("client_certificates") {
        section.require("client_authorities");
    }
    let mode = section.word_or_default("client_certificates");
    let authorities = section.path("client_authorities")?;
    certificate_files::note_client_authorities(section, &authorities);
    Some(ClientAuth { authorities, mode })
}

fn early_data(section: &Section<'_>) -> bool {
    let is_wanted = section.boolean_or_default("early_data");
    if is_wanted && section.has("client_authorities") {
        let message =
            "clients that show certificates have no early data: their sessions are not resumed";
        section.report("early_data", message.to_owned(), None);
    }
    is_wanted
}

/// Whether connections to `address` use TLS unless the file says something else.
#[must_use]
pub fn is_usual_at(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == PORT)
}
