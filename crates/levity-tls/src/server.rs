//! The configuration of handshakes with clients: one policy for each site, chosen by the name that the client asks for.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, RootCertStore, ServerConfig};

use crate::certificate::Certificate;
use crate::sessions::Sessions;
use crate::tickets::TicketKeys;

/// The maximum of early data in bytes. Of clients that still send some to a site that has it no longer, rustls ignores 16 KiB with
/// the overhead of records, and refuses those that send more.
pub const EARLY_DATA_BYTES_MAX: u32 = 14 * 1024;

/// What a site says about handshakes.
pub struct SitePolicy<'s> {
    /// The names under which clients ask for it; `*.example.org` is every name beneath. Empty for a site of all other names.
    pub hosts: &'s [String],
    /// At least one.
    pub certificates: Vec<Certificate>,
    /// Which clients have to prove who they are.
    pub client_auth: Option<ClientAuth>,
    /// Whether clients may send requests before the handshake is complete. Not those that prove who they are.
    pub early_data: bool,
}

/// Clients prove who they are by certificates.
pub struct ClientAuth {
    /// Who signs them.
    pub authorities: RootCertStore,
    /// Whether those without one are refused.
    pub is_required: bool,
}

/// Stands for the rules by which clients prove who they are: other rules have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAuthId([u8; 32]);

impl ClientAuth {
    fn id(&self, hosts: &[String]) -> ClientAuthId {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&bytes.len().to_be_bytes());
            context.update(bytes);
        };
        add(&[u8::from(self.is_required)]);
        hosts.iter().for_each(|host| add(host.as_bytes()));
        for root in &self.authorities.roots {
            add(&root.subject);
            add(&root.subject_public_key_info);
        }
        let id = context.finish();
        ClientAuthId(id.as_ref().try_into().expect("its length"))
    }
}

/// The policies of all sites.
#[derive(Debug)]
pub struct Server {
    policies: Vec<Policy>,
    by_host: HashMap<String, usize>,
    /// By the end of a name, with its leading dot.
    by_suffix: HashMap<String, usize>,
    default: usize,
}

/// How handshakes for a site are made.
#[derive(Debug)]
pub struct Policy {
    /// Stands for the rules by which clients prove who they are; `None` without.
    pub client_auth: Option<ClientAuthId>,
    /// What rustls is given.
    pub config: Arc<ServerConfig>,
    keys: Arc<Keys>,
}

/// The certificates of a site. The first that fits the client is used.
#[derive(Debug)]
struct Keys(Vec<Arc<CertifiedKey>>);

impl Keys {
    /// Those that are quick to sign with come first.
    fn new(certificates: &[Certificate]) -> Self {
        let mut keys: Vec<_> = certificates.iter().map(|one| one.key.clone()).collect();
        keys.sort_by_key(|key| Certificate::is_slow(key));
        Self(keys)
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<&Arc<CertifiedKey>> {
        let offered = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(offered).is_some();
        self.0.iter().find(fits)
    }
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Without any, rustls would say that access is denied, and not that the two ends have nothing in common.
        self.choose(&hello).or(self.0.first()).cloned()
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
        let provider = crate::provider();
        let keys = Arc::new(Keys::new(&site.certificates));
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?;
        let builder = match &site.client_auth {
            None => builder.with_no_client_auth(),
            Some(auth) => {
                let authorities = Arc::new(auth.authorities.clone());
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
                let verifier = match auth.is_required {
                    true => verifier,
                    false => verifier.allow_unauthenticated(),
                };
                builder
                    .with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_cert_resolver(keys.clone());
        config.alpn_protocols = crate::alpn_protocols();
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

    /// Whether the server's part of the handshake takes milliseconds to compute.
    #[must_use]
    pub fn is_slow(&self, hello: &ClientHello<'_>) -> bool {
        let chosen = self.keys.choose(hello);
        // With TLS 1.2 the cipher suites decide too.
        let may_change = !hello.cipher_suites().iter().any(is_of_tls13);
        let any = may_change && self.keys.0.iter().any(|key| Certificate::is_slow(key));
        any || chosen.is_some_and(|key| Certificate::is_slow(key))
    }
}

impl Server {
    /// The policies of `sites`, of which there is at least one. A client that asks for no name, or for an unknown one, gets the
    /// site without hosts, or else the first one. Sessions of sites with early data end with these policies.
    ///
    /// # Errors
    /// In words.
    pub fn new(sites: &[SitePolicy<'_>], tickets: &Arc<TicketKeys>) -> Result<Self, String> {
        let mut server = Self {
            policies: Vec::with_capacity(sites.len()),
            by_host: HashMap::new(),
            by_suffix: HashMap::new(),
            default: sites
                .iter()
                .position(|site| site.hosts.is_empty())
                .unwrap_or(0),
        };
        let sessions = Arc::new(Sessions::new());
        for (number, site) in sites.iter().enumerate() {
            let policy = Policy::new(site, tickets, &sessions)?;
            server.policies.push(policy);
            for host in site.hosts {
                match host.strip_prefix('*') {
                    Some(suffix) => server.by_suffix.insert(suffix.to_owned(), number),
                    None => server.by_host.insert(host.clone(), number),
                };
            }
        }
        Ok(server)
    }

    /// The rules of the site of that number, in the order of [`new`](Self::new), by which clients prove who they are.
    #[must_use]
    pub fn client_auth(&self, number: usize) -> Option<ClientAuthId> {
        self.policies.get(number)?.client_auth
    }

    /// The policy for a client that asks for `name`.
    #[must_use]
    pub fn policy(&self, name: Option<&str>) -> &Policy {
        let name = name.map(str::to_ascii_lowercase);
        let number = name.as_deref().and_then(|name| self.number(name));
        &self.policies[number.unwrap_or(self.default)]
    }

    fn number(&self, name: &str) -> Option<usize> {
        let exact = self.by_host.get(name);
        let dots = name.match_indices('.').map(|(at, _)| at);
        let beneath = || {
            dots.map(|at| &name[at..])
                .find_map(|suffix| self.by_suffix.get(suffix))
        };
        exact.or_else(beneath).copied()
    }
}
