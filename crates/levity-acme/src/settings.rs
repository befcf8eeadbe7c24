//! What the operator says.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How certificates are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder of the state.
    pub folder: PathBuf,
    /// An address of mail at which an authority may reach the operator.
    pub contact: Option<String>,
    /// At least one. The first that issues a certificate is used.
    pub authorities: Vec<Authority>,
    /// How names are proved, the preferred way first.
    pub methods: Vec<Method>,
    /// How records in the DNS are made.
    pub dns: Option<DnsSettings>,
    /// The URL that says which names may get certificates on demand.
    pub ask: Option<String>,
}

/// An authority that issues certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The URL of its directory (RFC 8555, 7.1.1).
    pub directory: String,
    /// The file with the certificates of those who have signed that of its own server; `None` for the machine's.
    pub roots: Option<PathBuf>,
    /// What kind of certificate is wanted, where it has several.
    pub profile: Option<String>,
    /// The account at the authority's site to which the one here belongs.
    pub external_account: Option<ExternalAccount>,
}

impl Authority {
    /// The host of its directory, with the port if there is one.
    pub(crate) fn host(&self) -> &str {
        let rest = self.directory.trim_start_matches("https://");
        rest.split('/').next().unwrap_or_default()
    }
}

/// An account that was made by other means (RFC 8555, 7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its identifier.
    pub id: String,
    /// The file with its key in base64url.
    pub key: PathBuf,
}

/// How records in the DNS are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsSettings {
    /// By a program, with its first arguments.
    Hook(Vec<String>),
    /// By updates (RFC 2136).
    Update {
        /// The primary server of the zone.
        server: SocketAddr,
        /// The zone; `None` if the server is to be asked for it.
        zone: Option<String>,
        /// The file with the key that signs them (TSIG).
        key: Option<PathBuf>,
    },
}

/// How a name is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By a handshake at port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// By a file at port 80 (RFC 8555, 8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// By a record in the DNS (RFC 8555, 8.4).
    #[serde(rename = "dns-01")]
    Dns01,
}

impl Method {
    /// Its name in messages and in the configuration.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
        }
    }

    /// Whether it can prove `name`: a name with a star is proved in the DNS only, and an address never.
    #[must_use]
    pub fn can_prove(self, name: &str) -> bool {
        match self {
            Self::Dns01 => name.parse::<std::net::IpAddr>().is_err(),
            Self::TlsAlpn01 | Self::Http01 => !name.starts_with('*'),
        }
    }
}
