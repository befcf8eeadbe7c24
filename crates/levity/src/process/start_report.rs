//! The first log lines of a server: its addresses and what it serves; with `-v` also how files are read.
//!
//! The output does not grow with the configuration: some items of each kind are listed, the others counted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use levity_disk::{Disk, Root};

use crate::process::left_by_root;
use crate::process::plan::Plan;
use crate::route::Service;
use crate::tls::{folder, trust};
use crate::upstream;
use levity_config::address::Address;
use levity_config::{Location, Note, Site};
use levity_telemetry::diagnostics;

/// The maximum number of lines of one kind.
const LINES_MAX: usize = 16;

/// The content of the lines.
pub struct Introduction<'a> {
    /// The plan of the server.
    pub plan: &'a Plan,
    /// The compiled configuration.
    pub service: &'a Service,
    /// The addresses for clients, and whether they use TLS.
    pub listening: Vec<(&'a Address, bool)>,
    /// The address of the admin listener.
    pub admin: Option<&'a Address>,
    /// The disk.
    pub disk: &'a Disk,
}

impl Introduction<'_> {
    /// Writes the lines. The URLs of `levity serve` go to standard output, everything else to standard error;
    /// "serving" comes last.
    pub fn log(&self) {
        let own = own_addresses();
        let urls = self.listening.iter().flat_map(|(on, has_tls)| {
            let scheme = if *has_tls { "https" } else { "http" };
            on.urls(scheme, &own)
        });
        let urls: Vec<String> = urls.collect();
        if self.plan.serve {
            // In one write, so that a reader of the first line can read all.
            let lines: String = urls.iter().map(|url| format!("{url}\n")).collect();
            let mut out = std::io::stdout();
            // A closed standard output does not stop the server.
            let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
        }
        if !self.plan.serve || self.plan.verbose {
            let listening = urls.iter().map(|url| format!("listening on {url}"));
            log_some(listening, "addresses");
        }
        let admin = self.admin.iter().flat_map(|on| on.urls("http", &own));
        log_some(
            admin.map(|url| format!("status and metrics on {url}")),
            "addresses",
        );
        let config = &self.service.config;
        let notes = config.notes.iter().map(Note::to_string);
        let of_machine = folder::served(config)
            .into_iter()
            .chain(trust::note(config));
        log_notes(notes.chain(of_machine));
        if let Some(line) = left_by_root::line(config) {
            diagnostics::log(format_args!("{line}"));
        }
        let authority = self.service.tls.as_ref();
        if let Some(path) = authority.and_then(|tls| tls.local_authority()) {
            let path = path.display();
            diagnostics::log(format_args!(
                "clients have to trust {path}; on Debian: sudo cp {path} \
                 /usr/local/share/ca-certificates/levity.crt && sudo update-ca-certificates"
            ));
        }
        let upstreams = self.service.upstreams.iter();
        log_some(
            upstreams.map(|upstream| upstream::describe::line(upstream)),
            "upstreams",
        );
        if self.plan.verbose {
            self.log_file_access();
        }
        let end = if self.plan.serve {
            "; Ctrl-C ends it"
        } else {
            ""
        };
        let what = what_is_served(&self.service.config.sites);
        diagnostics::log(format_args!("serving {what}{end}"));
    }

    fn log_file_access(&self) {
        let engine = self.disk.engine();
        diagnostics::log(format_args!("disk engine {engine}: {}", self.disk.reason()));
        for engine in self.service.config.location_engines() {
            let note = self.disk.note(engine);
            let note = note.map(|note| format!("; {note}")).unwrap_or_default();
            diagnostics::log(format_args!(
                "disk engine {engine}: for the sites and routes that name it{note}"
            ));
        }
        log_some(file_systems(&self.service.roots()), "kinds of folders");
    }
}

/// Logs notes about a configuration.
pub fn log_notes(notes: impl IntoIterator<Item = impl Display>) {
    let notes = notes.into_iter();
    log_some(notes.map(|note| format!("configuration: {note}")), "notes");
}

/// Logs the first of `lines`, and the number of the `others` in one more line.
pub fn log_some(lines: impl IntoIterator<Item = impl Display>, others: &str) {
    let mut lines = lines.into_iter();
    for line in lines.by_ref().take(LINES_MAX) {
        diagnostics::log(format_args!("{line}"));
    }
    let more = lines.count();
    if more > 0 {
        diagnostics::log(format_args!("and {more} more {others}"));
    }
}

/// The folder or file of the only site, or the number of sites.
fn what_is_served(sites: &[Site]) -> String {
    match sites {
        [
            Site {
                location: Location {
                    root: Some(root), ..
                },
                only,
                ..
            },
        ] => {
            let path = only
                .as_ref()
                .map_or_else(|| root.clone(), |name| root.join(name));
            path.display().to_string()
        }
        [_] => "1 site".to_owned(),
        sites => format!("{} sites", sites.len()),
    }
}

/// A line per kind of file system and result of its trial, with the first folder there.
fn file_systems(roots: &[Arc<Root>]) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, &str), (&Root, usize)> = BTreeMap::new();
    for root in roots {
        let file_system = root.file_system();
        let kind = (file_system.name.as_ref(), file_system.reason.as_ref());
        kinds.entry(kind).or_insert((root, 0)).1 += 1;
    }
    let line = |((name, reason), (root, count)): ((&str, &str), (&Root, usize))| {
        let path = root.path().display();
        match count {
            1 => format!("{path} on {name}: {reason}"),
            _ => format!("{path} and {} more folders on {name}: {reason}", count - 1),
        }
    };
    kinds.into_iter().map(line).collect()
}

/// The addresses by which other machines know this one, IPv4 first; empty when the kernel does not report
/// them. Uses netlink, not the network.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = interfaces.iter().map(if_addrs::Interface::ip);
    let mut addresses: Vec<_> = addresses.filter(is_known_to_others).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    addresses
}

/// Link-local addresses are valid only with an interface, and browsers do not accept them in URLs.
fn is_known_to_others(ip: &IpAddr) -> bool {
    !ip.is_loopback()
        && match ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_use() {
        for (ip, expected) in [
            ("192.168.1.7", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.3.4", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_known_to_others(&ip.parse().unwrap()), expected, "{ip}");
        }
    }
}
