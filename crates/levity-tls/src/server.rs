//! The configuration of handshakes with clients: one policy for each site, chosen by the name that the client asks for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use levity_wire::tls_names::stands_for;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ServerConfig};

use crate::authority::{Authority, ClientVerifier};
use crate::certificate::Certificate;
use crate::sessions::Sessions;
use crate::tickets::TicketKeys;

/// The maximum of early data in bytes. Of clients that still send some to a site that has it no longer, rustls ignores 16 KiB with
/// the overhead of records, and refuses those that send more.
pub const EARLY_DATA_BYTES_MAX: u32 = 14 * 1024;

/// What the names beneath `host` of a site end with: `.example.org` for `*.example.org`; `None` for a single name.
fn suffix(host: &str) -> Option<&str> {
    host.strip_prefix('*')
}

/// What a site says about handshakes.
pub struct SitePolicy<'s> {
    /// The names under which clients ask for it; `*.example.org` is every name beneath. Empty for a site of all other names.
    pub hosts: &'s [String],
    /// Without any, only those of `on_demand` are there.
    pub certificates: Vec<Certificate>,
    /// Whether each of `hosts` gets a certificate of its own. Until it has one, clients that ask for it are refused: that of another
    /// name would not be valid for it.
    pub one_for_each: bool,
    /// Certificates of names that nobody knows in advance.
    pub on_demand: Option<Arc<NamedKeys>>,
    /// Which clients have to prove who they are.
    pub client_auth: Option<ClientAuth>,
    /// Whether clients may send requests before the handshake is complete. Not those that prove who they are.
    pub early_data: bool,
}

impl<'s> SitePolicy<'s> {
    /// One that refuses all handshakes.
    #[must_use]
    pub fn without_certificates(hosts: &'s [String]) -> Self {
        Self {
            hosts,
            certificates: Vec::new(),
            one_for_each: false,
            on_demand: None,
            client_auth: None,
            early_data: false,
        }
    }

    /// Whether nobody is let in, since nobody could prove who it is.
    fn is_closed(&self) -> bool {
        let auth = self.client_auth.as_ref();
        auth.is_some_and(|auth| auth.authorities.is_empty())
    }
}

/// Clients prove who they are by certificates.
#[derive(Debug, Clone)]
pub struct ClientAuth {
    /// Who signs them. While it is not known who does, there is none, and all handshakes are refused.
    pub authorities: Vec<Authority>,
    /// Whether those without one are refused.
    pub is_required: bool,
}

impl ClientAuth {
    /// Stands for these rules: others have another one.
    fn id(&self, hosts: &[String]) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&bytes.len().to_be_bytes());
            context.update(bytes);
        };
        add(&[u8::from(self.is_required)]);
        hosts.iter().for_each(|host| add(host.as_bytes()));
        for Authority { anchor, .. } in &self.authorities {
            add(&anchor.subject);
            add(&anchor.subject_public_key_info);
        }
        let id = context.finish();
        id.as_ref().try_into().expect("its length")
    }
}

/// The policies of all sites.
#[derive(Debug, Clone)]
pub struct Server {
    policies: Vec<Policy>,
    by_host: HashMap<String, usize>,
    /// By the end of a name, with its leading dot.
    by_suffix: HashMap<String, usize>,
    /// The policy for all other names; without one, their handshakes are refused.
    default: Option<usize>,
    /// Whether the default is a site for all names.
    has_all: bool,
    refusal: Policy,
}

/// How handshakes for a site are made.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Stands for the rules by which clients prove who they are; `None` without.
    pub client_auth: Option<[u8; 32]>,
    /// What rustls is given.
    pub config: Arc<ServerConfig>,
    keys: Arc<Keys>,
}

/// The certificates of a site. Of those for the name that the client asks for, or else of all, the first that fits is used.
#[derive(Debug)]
struct Keys {
    certificates: Vec<Certificate>,
    /// Hosts for which no certificate of another name is used.
    own_only: Vec<String>,
    on_demand: Option<Arc<NamedKeys>>,
}

impl Keys {
    /// Those that are quick to sign with come first.
    fn new(site: &SitePolicy<'_>) -> Self {
        let mut certificates = match site.is_closed() {
            true => Vec::new(),
            false => site.certificates.clone(),
        };
        certificates.sort_by_key(|one| Certificate::is_slow(&one.key));
        Self {
            certificates,
            own_only: match site.one_for_each {
                true => site.hosts.to_vec(),
                false => Vec::new(),
            },
            on_demand: site.on_demand.clone().filter(|_| !site.is_closed()),
        }
    }

    /// Whether `name`, in lower case, has to have a certificate of its own, and has none.
    fn is_awaited(&self, name: &str) -> bool {
        let mut hosts = self.own_only.iter();
        let has_own = || self.certificates.iter().any(|one| one.is_for(name));
        let is_got = || self.on_demand.as_ref().is_some_and(|keys| keys.has(name));
        hosts.any(|host| stands_for(host, name)) && !has_own() && !is_got()
    }

    /// The same with these OCSP responses.
    fn stapled(&self, staple: &impl Fn(&[CertificateDer<'static>]) -> Option<Vec<u8>>) -> Self {
        let certificates = self.certificates.iter().map(|one| {
            let key = CertifiedKey {
                ocsp: staple(&one.key.cert),
                ..CertifiedKey::clone(&one.key)
            };
            Certificate {
                key: Arc::new(key),
                ..one.clone()
            }
        });
        Self {
            certificates: certificates.collect(),
            own_only: self.own_only.clone(),
            on_demand: self.on_demand.clone(),
        }
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.signature_schemes();
        let fits = |one: &&Certificate| one.key.key.choose_scheme(offered).is_some();
        let all = || self.certificates.iter();
        let named = hello.server_name().and_then(|name| {
            let name = name.to_ascii_lowercase();
            let own = all().filter(|one| one.is_for(&name)).find(fits);
            own.map(|one| one.key.clone())
                .or_else(|| self.on_demand.as_ref()?.get(&name))
        });
        // A client that asks for no name has connected to an address.
        let of_address =
            |one: &&Certificate| one.names.iter().any(|name| name.parse::<IpAddr>().is_ok());
        let is_unnamed = hello.server_name().is_none();
        let unnamed = || all().filter(of_address).find(fits).filter(|_| is_unnamed);
        named.or_else(|| {
            unnamed()
                .or_else(|| all().find(fits))
                .map(|one| one.key.clone())
        })
    }
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().map(str::to_ascii_lowercase);
        if asked.is_some_and(|name| self.is_awaited(&name)) {
            return None;
        }
        // Without any, rustls would say that access is denied, and not that the two ends have nothing in common.
        let first = || self.certificates.first().map(|one| one.key.clone());
        self.choose(&hello).or_else(first)
    }
}

/// Certificates by the name that clients ask for. Event loops read them without a lock.
#[derive(Debug, Default)]
pub struct NamedKeys(ArcSwap<HashMap<String, Arc<CertifiedKey>>>);

impl NamedKeys {
    /// The number of certificates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.load().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is one for `name`, in lower case.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.load().contains_key(name)
    }

    /// Puts the certificate for `name`, in lower case, in place of the one before. Copies the whole table.
    pub fn insert(&self, name: &str, certificate: &Certificate) {
        if self
            .get(name)
            .is_some_and(|key| key.cert == certificate.key.cert)
        {
            return;
        }
        self.0.rcu(|keys| {
            let mut keys = HashMap::clone(keys);
            keys.insert(name.to_owned(), certificate.key.clone());
            keys
        });
    }

    /// Takes all certificates away.
    pub fn clear(&self) {
        self.0.store(Arc::default());
    }

    /// Takes the certificate for `name` away. Copies the whole table.
    pub fn remove(&self, name: &str) {
        self.0.rcu(|keys| {
            let mut keys = HashMap::clone(keys);
            keys.remove(name);
            keys
        });
    }

    fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.load().get(name).cloned()
    }
}

/// Whether a cipher suite is one of TLS 1.3 (RFC 8446, B.4).
fn is_of_tls13(suite: &CipherSuite) -> bool {
    u16::from(*suite) >> 8 == 0x13
}

impl Policy {
    fn new(
        site: &SitePolicy<'_>,
        tickets: &Arc<TicketKeys>,
        sessions: &Arc<Sessions>,
    ) -> Result<Self, String> {
        let keys = Arc::new(Keys::new(site));
        let builder = ServerConfig::builder_with_provider(crate::provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?;
        let builder = match &site.client_auth {
            None => builder.with_no_client_auth(),
            // It has no certificate, either.
            Some(_) if site.is_closed() => builder.with_no_client_auth(),
            Some(auth) => {
                let verifier = ClientVerifier::new(&auth.authorities, auth.is_required)?;
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        let mut config = builder.with_cert_resolver(keys.clone());
        let http2 = cfg!(feature = "http2").then_some(crate::ALPN_HTTP2);
        let offered = http2
            .into_iter()
            .chain([crate::ALPN_HTTP1, crate::ALPN_HTTP10]);
        config.alpn_protocols = offered.map(<[u8]>::to_vec).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match (&site.client_auth, site.early_data) {
            (None, false) => config.ticketer = tickets.clone(),
            (None, true) => {
                config.session_storage = sessions.clone();
                config.max_early_data_size = EARLY_DATA_BYTES_MAX;
                // Early requests are answered early.
                config.send_half_rtt_data = true;
            }
            // A ticket would let a client in that the authority has disowned since, or another authority has let in.
            (Some(_), _) => config.send_tls13_tickets = 0,
        }
        Ok(Self {
            client_auth: site.client_auth.as_ref().map(|auth| auth.id(site.hosts)),
            config: Arc::new(config),
            keys,
        })
    }

    /// Whether `name`, in lower case, lacks a certificate that is to be got on demand.
    fn lacks(&self, name: &str) -> bool {
        let (own, on_demand) = (&self.keys.certificates, &self.keys.on_demand);
        let is_missing = |keys: &Arc<NamedKeys>| !keys.has(name);
        on_demand.as_ref().is_some_and(is_missing) && !own.iter().any(|one| one.is_for(name))
    }

    /// The same with these OCSP responses.
    fn stapled(&self, staple: &impl Fn(&[CertificateDer<'static>]) -> Option<Vec<u8>>) -> Self {
        let keys = Arc::new(self.keys.stapled(staple));
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = keys.clone();
        Self {
            client_auth: self.client_auth,
            config: Arc::new(config),
            keys,
        }
    }

    /// Whether the server's part of the handshake takes milliseconds to compute.
    #[must_use]
    pub fn is_slow(&self, hello: &ClientHello<'_>) -> bool {
        let chosen = self.keys.choose(hello);
        let certificates = &self.keys.certificates;
        // With TLS 1.2 the cipher suites decide too.
        let may_change = !hello.cipher_suites().iter().any(is_of_tls13);
        let any = may_change
            && certificates
                .iter()
                .any(|one| Certificate::is_slow(&one.key));
        any || chosen.is_some_and(|key| Certificate::is_slow(&key))
    }
}

impl Server {
    /// The policies of `sites`. A client that asks for no name, or for an unknown one, gets that of the number `default`; if there is
    /// none, its handshake is refused. Sessions of sites with early data end with these policies.
    ///
    /// # Errors
    /// In words.
    pub fn new(
        sites: &[SitePolicy<'_>],
        default: Option<usize>,
        tickets: &Arc<TicketKeys>,
    ) -> Result<Self, String> {
        let sessions = Arc::new(Sessions::new());
        let nobody = SitePolicy::without_certificates(&[]);
        let mut server = Self {
            policies: Vec::with_capacity(sites.len()),
            by_host: HashMap::new(),
            by_suffix: HashMap::new(),
            default,
            has_all: default.is_some_and(|number| sites[number].hosts.is_empty()),
            refusal: Policy::new(&nobody, tickets, &sessions)?,
        };
        for (number, site) in sites.iter().enumerate() {
            let policy = Policy::new(site, tickets, &sessions)?;
            server.policies.push(policy);
            for host in site.hosts {
                match suffix(host) {
                    Some(suffix) => server.by_suffix.insert(suffix.to_owned(), number),
                    None => server.by_host.insert(host.clone(), number),
                };
            }
        }
        Ok(server)
    }

    /// Each certificate with its chain, and the OCSP response that goes with it.
    pub fn chains(&self) -> impl Iterator<Item = (&[CertificateDer<'static>], Option<&[u8]>)> {
        let policies = self.policies.iter();
        let certificates = policies.flat_map(|policy| &policy.keys.certificates);
        certificates.map(|one| (&one.key.cert[..], one.key.ocsp.as_deref()))
    }

    /// The same policies, with the OCSP response that `staple` gives for each chain, DER.
    #[must_use]
    pub fn stapled(&self, staple: impl Fn(&[CertificateDer<'static>]) -> Option<Vec<u8>>) -> Self {
        let policies = self.policies.iter().map(|policy| policy.stapled(&staple));
        Self {
            policies: policies.collect(),
            ..self.clone()
        }
    }

    /// The rules of the site of that number, in the order of [`new`](Self::new), by which clients prove who they are.
    #[must_use]
    pub fn client_auth(&self, number: usize) -> Option<[u8; 32]> {
        self.policies.get(number)?.client_auth
    }

    /// The certificates of the site of that number, in the order of [`new`](Self::new), without those on demand.
    #[must_use]
    pub fn certificates(&self, number: usize) -> &[Certificate] {
        let policy = self.policies.get(number);
        policy.map_or(&[], |policy| &policy.keys.certificates)
    }

    /// The policy for a client that asks for `name`.
    #[must_use]
    pub fn policy(&self, name: Option<&str>) -> &Policy {
        let name = name.map(str::to_ascii_lowercase);
        let number = name.as_deref().and_then(|name| self.number(name));
        let number = number.or(self.default);
        number.map_or(&self.refusal, |number| &self.policies[number])
    }

    fn number(&self, name: &str) -> Option<usize> {
        let exact = self.by_host.get(name).copied();
        exact.or_else(|| self.beneath(name))
    }

    fn beneath(&self, name: &str) -> Option<usize> {
        let mut ends = name.match_indices('.').map(|(at, _)| &name[at..]);
        ends.find_map(|end| self.by_suffix.get(end)).copied()
    }

    /// Whether a certificate for `name` has to be got before the handshake can be answered. Only names that nobody has written down
    /// get theirs on demand, and only where a site is for them.
    #[must_use]
    pub fn is_to_be_asked_for(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        if self.by_host.contains_key(&name) {
            return false;
        }
        let number = self.beneath(&name);
        let number = number.or(self.default.filter(|_| self.has_all));
        number.is_some_and(|number| self.policies[number].lacks(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site<'s>(hosts: &'s [String], on_demand: Option<&Arc<NamedKeys>>) -> SitePolicy<'s> {
        SitePolicy {
            on_demand: on_demand.cloned(),
            ..SitePolicy::without_certificates(hosts)
        }
    }

    #[test]
    fn a_name_waits_for_its_own_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = crate::LocalCa::open(folder.path()).expect("an authority");
        let issue = |name: &str| {
            let now = std::time::SystemTime::now();
            ca.issue(&[name.to_owned()], now).expect("a certificate")
        };
        let hosts = ["a.test", "b.test", "*.c.test"].map(str::to_owned);
        let on_demand = Arc::<NamedKeys>::default();
        on_demand.insert("got.c.test", &issue("got.c.test"));
        let awaited = |one_for_each| {
            let keys = Keys::new(&SitePolicy {
                certificates: vec![issue("a.test")],
                one_for_each,
                ..site(&hosts, Some(&on_demand))
            });
            let names = ["a.test", "b.test", "got.c.test", "x.c.test", "other.test"];
            names.map(|name| keys.is_awaited(name))
        };
        assert_eq!(awaited(true), [false, true, false, true, false]);
        assert_eq!(awaited(false), [false; 5]);
    }

    #[test]
    fn other_names_get_the_default_or_nothing() {
        let hosts = ["a.test", "b.test"].map(str::to_owned);
        let sites = [site(&hosts[..1], None), site(&hosts[1..], None)];
        let tickets = Arc::new(TicketKeys::random());
        let chosen = |default: Option<usize>, name: Option<&str>| {
            let server = Server::new(&sites, default, &tickets).expect("policies");
            let policy = server.policy(name);
            let mut policies = server.policies.iter();
            policies.position(|one| std::ptr::eq(one, policy))
        };
        for default in [None, Some(1)] {
            assert_eq!(chosen(default, Some("A.test")), Some(0));
            assert_eq!(chosen(default, Some("c.test")), default);
            assert_eq!(chosen(default, None), default);
        }
    }

    #[test]
    fn only_names_that_nobody_has_written_down_are_got_on_demand() {
        let keys = Arc::<NamedKeys>::default();
        let tickets = Arc::new(TicketKeys::random());
        let hosts = ["*.a.test", "fixed.a.test", "b.test"].map(str::to_owned);
        let [starred, fixed] = [&hosts[..2], &hosts[2..]];
        let sites = [site(starred, Some(&keys)), site(fixed, None)];
        let server = Server::new(&sites, Some(0), &tickets).expect("policies");
        let asked = |server: &Server| {
            let names = ["x.A.test", "fixed.a.test", "b.test", "other.test"];
            names.map(|name| server.is_to_be_asked_for(name))
        };
        assert_eq!(asked(&server), [true, false, false, false]);
        let sites = [site(fixed, None), site(&[], Some(&keys))];
        let server = Server::new(&sites, Some(1), &tickets).expect("policies");
        assert_eq!(asked(&server), [true, true, false, true]);
        let folder = tempfile::tempdir().expect("a folder");
        let ca = crate::LocalCa::open(folder.path()).expect("an authority");
        let names = ["x.a.test".to_owned()];
        let now = std::time::SystemTime::now();
        keys.insert("x.a.test", &ca.issue(&names, now).expect("a certificate"));
        assert_eq!(asked(&server), [false, true, false, true]);
        keys.clear();
        assert_eq!(asked(&server), [true, true, false, true]);
    }
}
