//! The servers as proxies: their applications, and the configuration of each server.

use super::{Program, Row};
use crate::backend::Protocol;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};

const NGINX: &str = include_str!("../../peers/proxy/nginx.conf");
const HAPROXY: &str = include_str!("../../peers/proxy/haproxy.cfg");
const LIGHTTPD: &str = include_str!("../../peers/proxy/lighttpd.conf");
const CADDY: &str = include_str!("../../peers/proxy/caddy.conf");
const LEVITY: &str = include_str!("../../peers/proxy/levity.toml");

/// The peers as proxies, by their names on the command line.
pub const PROXIES: [&str; 3] = ["nginx", "haproxy", "lighttpd"];

/// FastCGI parameters for nginx, which has none by default.
const NGINX_VARIABLES: [(&str, &str); 8] = [
    ("REQUEST_METHOD", "$request_method"),
    ("REQUEST_URI", "$request_uri"),
    ("QUERY_STRING", "$query_string"),
    ("CONTENT_LENGTH", "$content_length"),
    ("SCRIPT_NAME", "$document_uri"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("REMOTE_ADDR", "$remote_addr"),
    ("HTTP_HOST", "$http_host"),
];

/// The path below which nginx finds temporary files.
const NGINX_FILES: &str = "/temporary/";

/// Files that an application may delegate to the server.
#[derive(Clone, Debug)]
pub enum Handover {
    /// None.
    Nothing,
    /// Files below this folder, which are kept.
    Files(PathBuf),
    /// Files below this folder, each of which is sent once.
    Temporary(PathBuf),
}

/// An application behind a proxy.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The protocol.
    pub protocol: Protocol,
    /// The sockets of its processes.
    pub sockets: Vec<PathBuf>,
    /// Connections to each of them.
    pub connections: usize,
    /// Files that it may delegate.
    pub handover: Handover,
}

/// How an application names a temporary file to a server.
pub struct Naming {
    /// The response header.
    pub field: &'static str,
    /// The text before the name of the file; None for the folder.
    pub prefix: Option<&'static str>,
    /// The server removes the file.
    pub removes: bool,
}

impl Row {
    /// A peer that can be a proxy, by its name. [`Row::before`] completes it.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn proxy(name: &str) -> Result<Self> {
        let program = match name {
            "nginx" => Program::Nginx,
            "haproxy" => Program::Haproxy,
            "lighttpd" => Program::Lighttpd,
            _ => {
                let known = PROXIES.join(", ");
                return Err(Failure::new(format!("unknown proxy {name}: {known}")));
            }
        };
        Ok(Self::new(name, program, ""))
    }

    /// The same as a proxy in front of this application.
    #[must_use]
    pub fn before(&self, upstream: &Upstream) -> Self {
        let template = match self.program {
            Program::Nginx => NGINX,
            Program::Haproxy => HAPROXY,
            Program::Lighttpd => LIGHTTPD,
            Program::Caddy => CADDY,
            Program::Levity { .. } => LEVITY,
            Program::CommandLine(_) | Program::H2o => self.template,
        };
        let mut blanks = self.blanks(upstream);
        // Of a row that was before another application, the newer values count: they come first.
        blanks.extend(self.blanks.iter().cloned());
        Self {
            template,
            blanks,
            ..self.clone()
        }
    }

    /// Whether it is a proxy in front of an application.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.blanks.iter().any(|(blank, _)| *blank == "{backends}")
    }

    /// The same under another name.
    #[must_use]
    pub fn named(&self, name: String) -> Self {
        Self {
            name,
            ..self.clone()
        }
    }

    /// The same server with the files as its own; None if it can only be a proxy.
    #[must_use]
    pub fn with_files(&self) -> Option<Self> {
        match &self.program {
            Program::Levity { binary, engine } => Some(Self::levity(binary, engine)),
            Program::Lighttpd => Self::peer("lighttpd").ok(),
            Program::Nginx => Self::peer("nginx-sendfile").ok(),
            Program::Caddy => Self::compressor("caddy").ok(),
            Program::Haproxy | Program::H2o | Program::CommandLine(_) => None,
        }
    }

    /// Whether it supports X-Sendfile or an equivalent.
    #[must_use]
    pub fn sends_files(&self) -> bool {
        !matches!(
            self.program,
            Program::Haproxy | Program::Caddy | Program::H2o | Program::CommandLine(_)
        )
    }

    /// How the application names temporary files to it.
    #[must_use]
    pub fn naming(&self) -> Naming {
        match self.program {
            Program::Levity { .. } => Naming {
                field: "X-Sendfile-Temporary",
                prefix: None,
                removes: true,
            },
            Program::Nginx => Naming {
                field: "X-Accel-Redirect",
                prefix: Some(NGINX_FILES),
                removes: false,
            },
            Program::Lighttpd
            | Program::Haproxy
            | Program::Caddy
            | Program::H2o
            | Program::CommandLine(_) => Naming {
                field: "X-Sendfile",
                prefix: None,
                removes: false,
            },
        }
    }

    fn blanks(&self, upstream: &Upstream) -> Vec<(&'static str, String)> {
        let mut backends: Vec<String> = Vec::new();
        for (number, socket) in upstream.sockets.iter().enumerate() {
            backends.push(self.backend(upstream, number, socket));
        }
        let separator = match self.program {
            Program::Levity { .. } => ", ",
            Program::Lighttpd => ",\n",
            Program::Caddy => " ",
            Program::Nginx | Program::Haproxy | Program::H2o | Program::CommandLine(_) => "\n",
        };
        let protocol = match upstream.protocol {
            Protocol::Http => "http",
            Protocol::Fastcgi => "fastcgi",
        };
        // The part of the name of the lighttpd module that differs.
        let module = match upstream.protocol {
            Protocol::Http => "proxy",
            Protocol::Fastcgi => "fastcgi",
        };
        vec![
            ("{backends}", backends.join(separator)),
            ("{connections}", upstream.connections.to_string()),
            ("{protocol}", protocol.into()),
            ("{module}", module.into()),
            ("{pass}", nginx_pass(upstream.protocol)),
            ("{files}", self.files(&upstream.handover)),
        ]
    }

    fn backend(&self, upstream: &Upstream, number: usize, socket: &Path) -> String {
        let (path, connections) = (socket.display(), upstream.connections);
        match self.program {
            Program::Levity { .. } => format!("\"unix:{path}\""),
            Program::Caddy => format!("unix/{path}"),
            // With max_fails both would be ejected for seconds once both have failed.
            Program::Nginx => format!("        server unix:{path} max_fails=0;"),
            Program::Haproxy | Program::H2o | Program::CommandLine(_) => format!(
                "    server app{number} unix@{path} maxconn {connections} pool-max-conn {connections} \
                 check inter 50ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
            ),
            Program::Lighttpd => {
                let allow = match &upstream.handover {
                    Handover::Nothing => String::new(),
                    Handover::Files(dir) | Handover::Temporary(dir) => format!(
                        ", \"x-sendfile\" => \"enable\", \"x-sendfile-docroot\" => ( \"{}\" )",
                        dir.display()
                    ),
                };
                format!("    ( \"socket\" => \"{path}\", \"check-local\" => \"disable\"{allow} )")
            }
        }
    }

    fn files(&self, handover: &Handover) -> String {
        match (&self.program, handover) {
            (Program::Levity { .. }, Handover::Files(dir)) => {
                format!("sendfile_roots = [\"{}\"]", dir.display())
            }
            (Program::Levity { .. }, Handover::Temporary(dir)) => {
                format!("temporary_roots = [\"{}\"]", dir.display())
            }
            (Program::Nginx, Handover::Files(dir) | Handover::Temporary(dir)) => format!(
                "        location {NGINX_FILES} {{\n            internal;\n            alias {}/;\n        }}",
                dir.display()
            ),
            _ => String::new(),
        }
    }
}

/// A buffer holds a small response with its header, and a large response passes in large pieces.
fn nginx_pass(protocol: Protocol) -> String {
    let (prefix, more) = match protocol {
        Protocol::Http => (
            "proxy",
            "proxy_pass http://app;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             proxy_set_header X-Forwarded-Proto $scheme;\n\
             proxy_set_header X-Forwarded-Host $host;\n"
                .to_owned(),
        ),
        Protocol::Fastcgi => {
            let variables = NGINX_VARIABLES
                .map(|(name, value)| format!("fastcgi_param {name} {value};\n"))
                .concat();
            (
                "fastcgi",
                format!("fastcgi_pass app;\nfastcgi_keep_conn on;\n{variables}"),
            )
        }
    };
    let buffers = "buffer_size 16k;\nPREFIX_buffers 16 64k;\nPREFIX_busy_buffers_size 256k;\nPREFIX_max_temp_file_size 0;";
    format!("{more}{prefix}_{}", buffers.replace("PREFIX", prefix))
}

#[cfg(test)]
mod tests {
    use super::super::fill_in;
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn upstream(protocol: Protocol) -> Upstream {
        Upstream {
            protocol,
            sockets: vec!["/s/app-0.sock".into(), "/s/app-1.sock".into()],
            connections: 5,
            handover: Handover::Temporary("/dev/shm/x".into()),
        }
    }

    #[test]
    fn every_proxy_is_configured_with_every_backend() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let peers = PROXIES.map(|name| Row::proxy(name).unwrap());
        for row in peers
            .into_iter()
            .chain([Row::levity(Path::new("/l"), "auto")])
        {
            for protocol in [Protocol::Http, Protocol::Fastcgi] {
                let row = row.before(&upstream(protocol));
                let text = fill_in(&row, Path::new("/d"), Path::new("/r"), address, address);
                assert!(text.contains("/s/app-0.sock") && text.contains("/s/app-1.sock"));
                assert_eq!(text.contains("/dev/shm/x"), row.sends_files(), "{text}");
                let blanks = ["{backends}", "{pass}", "{files}", "{module}", "{workers}"];
                assert!(blanks.iter().all(|blank| !text.contains(blank)), "{text}");
            }
        }
    }

    #[test]
    fn the_configuration_of_levity_is_documented() {
        let row = Row::levity(Path::new("/l"), "auto").before(&upstream(Protocol::Fastcgi));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let text = fill_in(&row, Path::new("/d"), Path::new("/r"), address, address);
        for line in [
            "protocol = \"fastcgi\"",
            "to = [\"unix:/s/app-0.sock\", \"unix:/s/app-1.sock\"]",
            "connections = 5",
            "keep_alive = 5",
            "temporary_roots = [\"/dev/shm/x\"]",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
