//! The servers over TLS 1.3, all with the same certificates.

use super::{Program, Row};
use crate::failure::{Failure, Result};
use crate::rig::certificates::ECDSA_HOST;
use std::path::Path;

const LEVITY: &str = include_str!("../../peers/tls/levity.toml");
const NGINX: &str = include_str!("../../peers/tls/nginx.conf");
const H2O: &str = include_str!("../../peers/tls/h2o.conf");
const CADDY: &str = include_str!("../../peers/tls/caddy.conf");

/// The peers over TLS, by their names on the command line.
pub const TLS_PEERS: [&str; 3] = ["nginx", "h2o", "caddy"];

impl Row {
    /// The name of [`Row::bare_tls`].
    pub const BARE: &str = "rustls";

    /// A peer that speaks TLS, by its name. [`Row::over_tls`] completes it.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn tls_peer(name: &str) -> Result<Self> {
        let program = match name {
            "nginx" => Program::Nginx,
            "h2o" => Program::H2o,
            "caddy" => Program::Caddy,
            _ => {
                let known = TLS_PEERS.join(", ");
                let message = format!("unknown peer with TLS {name}: {known}");
                return Err(Failure::new(message));
            }
        };
        Ok(Self::new(name, program, ""))
    }

    /// The bare server of TLS in this program, which has no files. [`Row::over_tls`] completes it.
    #[must_use]
    pub fn bare_tls(program: &Path) -> Self {
        let words = [
            "bare-tls",
            "--certificate={tls}/ecdsa.pem",
            "--key={tls}/ecdsa.key",
        ];
        Self::bare(Self::BARE, program, &words)
    }

    /// The same over TLS, with the certificates in this folder.
    #[must_use]
    pub fn over_tls(&self, certificates: &Path) -> Self {
        let template = match self.program {
            Program::Levity { .. } => LEVITY,
            Program::Nginx => NGINX,
            Program::H2o => H2O,
            Program::Caddy => CADDY,
            Program::Haproxy | Program::Lighttpd | Program::CommandLine(_) => self.template,
        };
        let mut row = Self {
            template,
            host: Some(ECDSA_HOST),
            ..self.clone()
        };
        let certificates = certificates.display().to_string();
        row.blanks.push(("{tls}", certificates));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::super::fill_in;
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn every_server_has_both_sites_and_no_blank_left() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8443));
        let folder = Path::new("/c");
        let peers = TLS_PEERS.map(|name| Row::tls_peer(name).unwrap());
        let levity = Row::levity(Path::new("/l"), "auto");
        for row in peers.into_iter().chain([levity]) {
            let row = row.over_tls(folder);
            let text = fill_in(&row, Path::new("/d"), Path::new("/r"), address, address);
            for needed in [
                "ecdsa.test",
                "rsa.test",
                "/c/ecdsa.key",
                "/c/rsa.pem",
                "8443",
            ] {
                assert!(text.contains(needed), "{text}");
            }
            let blanks = ["{tls}", "{root}", "{dir}", "{port}", "{workers}", "{admin}"];
            assert!(blanks.iter().all(|blank| !text.contains(blank)), "{text}");
        }
        assert!(Row::tls_peer("apache").is_err());
    }
}
