//! The servers over HTTP/2 without TLS.

use super::{Program, Row};
use crate::failure::{Failure, Result};
use crate::rig::Rig;

const LEVITY: &str = include_str!("../../peers/http2/levity.toml");
const NGINX: &str = include_str!("../../peers/http2/nginx.conf");
const H2O: &str = include_str!("../../peers/http2/h2o.conf");
const CADDY: &str = include_str!("../../peers/http2/caddy.conf");

/// The peers over HTTP/2, by their names on the command line.
pub const HTTP2_PEERS: [&str; 3] = ["nginx", "h2o", "caddy"];

impl Row {
    /// A peer that speaks HTTP/2, by its name.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn http2_peer(name: &str) -> Result<Self> {
        let (program, template) = match name {
            "nginx" => (Program::Nginx, NGINX),
            "h2o" => (Program::H2o, H2O),
            "caddy" => (Program::Caddy, CADDY),
            _ => {
                let known = HTTP2_PEERS.join(", ");
                let message = format!("unknown peer with HTTP/2 {name}: {known}");
                return Err(Failure::new(message));
            }
        };
        Ok(Self::new(name, program, template).requested_over_http2())
    }

    /// The bare server of HTTP/2 in this program, which has no files.
    ///
    /// # Errors
    /// This program has no path.
    pub fn bare_http2(rig: &Rig) -> Result<Self> {
        let row = Self::bare("hyper", &rig.own_program()?, &["bare-http2"]);
        Ok(row.requested_over_http2())
    }

    /// Levity for clients that begin with HTTP/2.
    #[must_use]
    pub fn over_http2(&self) -> Self {
        let row = self.requested_over_http2();
        Self {
            template: LEVITY,
            ..row
        }
    }

    /// The same with requests over HTTP/1.1.
    #[must_use]
    pub fn requested_over_http1(&self) -> Self {
        Self {
            streams: None,
            ..self.clone()
        }
    }

    /// The same with requests over HTTP/2, one on a connection at a time. nginx and Caddy have to be told.
    #[must_use]
    pub fn requested_over_http2(&self) -> Self {
        let mut row = Self {
            streams: Some(1),
            ..self.clone()
        };
        row.blanks.push(("{http2}", " http2".into()));
        row.blanks.push(("{h2}", " h2".into()));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::super::fill_in;
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;

    #[test]
    fn every_server_has_its_address_and_no_blank_left() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let peers = HTTP2_PEERS.map(|name| Row::http2_peer(name).unwrap());
        let levity = Row::levity(Path::new("/l"), "auto").over_http2();
        for row in peers.into_iter().chain([levity]) {
            let text = fill_in(&row, Path::new("/d"), Path::new("/r"), address, address);
            assert!(text.contains("8080") && text.contains("/r"), "{text}");
            let blanks = [
                "{root}",
                "{dir}",
                "{port}",
                "{host}",
                "{workers}",
                "{admin}",
            ];
            assert!(blanks.iter().all(|blank| !text.contains(blank)), "{text}");
        }
        assert!(Row::http2_peer("apache").is_err());
    }
}
