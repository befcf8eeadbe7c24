//! `[[listen]]` and `[admin]`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;

use levity_wire::tls_names::stands_for;

use crate::acme::Ports;
use crate::address::{Address, AddressError, PORT_USUAL};
use crate::features::{Feature, lacking};
use crate::host::host_or_report;
use crate::line::Line;
use crate::model::{Admin, Listen, Site, default_tls_site};
use crate::own_names::OwnNames;
use crate::section::Section;
use crate::tls::{self, Certificates};

/// The key of a listener, and the table of a site.
const TLS: &str = "tls";

/// The key of a listener for publishers.
const PUBLISH: &str = "publish";

/// The table of what sites with `tls = "acme"` have in common.
const ACME: &str = "acme";

/// The port of `http`.
const PLAIN_PORT: u16 = 80;

pub(crate) fn listen(root: &Section<'_>) -> Vec<Listen> {
    let mut seen: Vec<(Listen, Line)> = Vec::new();
    let has_tls = root.glance("site", TLS).iter().any(|(_, has)| *has);
    for section in root.children("listen") {
        section.require("address");
        let proxy_protocol = section.boolean_or_default("proxy_protocol");
        let given_tls = section.boolean(TLS);
        let publish = section.boolean_or_default(PUBLISH);
        let Some(address) = address(&section, "address") else {
            continue;
        };
        let usual_tls = tls::is_usual_at(&address);
        if !section.has(TLS) && usual_tls && !Feature::Tls.is_built() {
            let (message, help) =
                lacking(&format!("TLS, which is usual at {address},"), Feature::Tls);
            section.report(
                "address",
                message,
                Some(format!("{help}; or write `tls = false`")),
            );
        }
        let listen = Listen {
            address,
            proxy_protocol,
            tls: given_tls.unwrap_or(usual_tls && Feature::Tls.is_built()),
            publish,
        };
        check_publish(&section, &listen);
        let same = |(other, _): &&(Listen, Line)| other.address == listen.address;
        if let Some((first, line)) = seen.iter().find(same) {
            repeated(&section, &listen, first, line);
        }
        let taken = |(other, _): &&(Listen, Line)| other.address.overlaps(&listen.address);
        if let Some((first, line)) = seen.iter().find(taken) {
            let help = format!("that is on {line}");
            let message = overlap(&first.address, &listen.address);
            section.report("address", message, Some(help));
        }
        seen.push((listen, section.reader.line(&section.span_of("address"))));
    }
    if seen.is_empty() && has_tls && !root.has("listen") {
        return usual_listeners();
    }
    if seen.is_empty() {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_USUAL)));
        return vec![address.into()];
    }
    seen.into_iter().map(|(listen, _)| listen).collect()
}

/// Reports a listener for publishers that cannot tell who they are.
fn check_publish(section: &Section<'_>, listen: &Listen) {
    if listen.publish && matches!(listen.address, Address::Tcp(_)) {
        let help = "write `address = \"unix:/run/levity/publish.sock\"`, or give the set a `publish_key_file`";
        let message = "only a Unix socket tells the user of a client";
        section.report(PUBLISH, message, Some(help.to_owned()));
    } else if listen.publish && listen.proxy_protocol {
        let help = "give the proxy a `[[listen]]` of its own".to_owned();
        let message = "with `proxy_protocol`, all clients of the proxy could publish";
        section.report(PUBLISH, message, Some(help));
    }
}

/// Port 0 may be given several times. The other keys are looked up by address, so all of them must agree.
fn repeated(section: &Section<'_>, listen: &Listen, first: &Listen, line: &Line) {
    let address = &listen.address;
    let help = Some(format!("the first is on {line}"));
    if !address.is_ephemeral() {
        section.report("address", format_args!("{address} is given twice"), help);
        return;
    }
    let keys = [
        (
            "proxy_protocol",
            listen.proxy_protocol,
            first.proxy_protocol,
        ),
        (TLS, listen.tls, first.tls),
    ];
    for (key, one, other) in keys {
        if one != other {
            let message = format_args!("it differs from that of the other {address}");
            section.report(key, message, help.clone());
        }
    }
}

/// The message for two addresses that overlap.
fn overlap(first: &Address, second: &Address) -> String {
    format!("{second} conflicts with {first}: one of them is every address of the machine")
}

fn address(section: &Section<'_>, name: &str) -> Option<Address> {
    let given = section.text(name)?;
    let refuse = |reason: AddressError| {
        let message = format!("`{}` is not an address", given.text);
        given.refuse_with(message, reason.to_string());
    };
    let address = given.address().map_err(refuse).ok()?;
    if let Address::Unix(path) = &address {
        section.must_have_folder(name, path, true);
    }
    Some(address)
}

pub(crate) fn admin(section: &Section<'_>, listen: &[Listen]) -> Option<Admin> {
    let added = section.names("hosts").unwrap_or_default();
    let added = added.iter().filter_map(|name| {
        if !matches!(name.text, "*" | "_") {
            return host_or_report(name);
        }
        let help = "write the names out; `*.example.org` is every name beneath";
        name.refuse_with("any name would give any web page access", help);
        None
    });
    let names = OwnNames {
        added: added.collect(),
    };
    let listen = admin_address(section, listen)?;
    Some(Admin { listen, names })
}

/// The path of the socket by which the server is controlled.
pub(crate) fn control(section: &Section<'_>, listen: &[Listen]) -> Option<PathBuf> {
    let address = address(section, "control")?;
    let pages = section.text("listen");
    let pages = pages.and_then(|given| given.address().ok());
    let is_taken = listen.iter().any(|listen| listen.address == address)
        || pages.is_some_and(|pages| pages == address);
    match address {
        Address::Unix(path) if !is_taken => return Some(path),
        Address::Unix(_) => section.report("control", "it is the socket of other clients", None),
        Address::Tcp(_) => {
            let help = "write unix:PATH".to_owned();
            section.report("control", "it has to be a Unix socket", Some(help));
        }
    }
    None
}

fn admin_address(section: &Section<'_>, listen: &[Listen]) -> Option<Address> {
    let address = address(section, "listen")?;
    let is_digit = |c: char| c.is_ascii_digit();
    let given = section.text("listen")?;
    if given.text.trim_start_matches(':').chars().all(is_digit) {
        let help = "write 127.0.0.1:PORT, or [::]:PORT for everyone".to_owned();
        section.report(
            "listen",
            "a port alone would give everyone access",
            Some(help),
        );
    } else if listen.iter().any(|listen| listen.address == address) && !address.is_ephemeral() {
        section.report("listen", format_args!("clients connect to {address}"), None);
    } else if let Some(other) = listen
        .iter()
        .find(|listen| listen.address.overlaps(&address))
    {
        section.report("listen", overlap(&other.address, &address), None);
    }
    Some(address)
}

/// The listeners of a file that names none.
fn usual_listeners() -> Vec<Listen> {
    let all = |port| Address::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let encrypted = Listen {
        tls: true,
        ..Listen::from(all(tls::PORT))
    };
    vec![all(PLAIN_PORT).into(), encrypted]
}

/// The ports of all; 0 for a Unix socket.
pub(crate) fn ports(listen: &[Listen]) -> Ports {
    let of = |tls: bool| {
        let those = listen.iter().filter(|listen| listen.tls == tls);
        let ports = those.map(|listen| match &listen.address {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => 0,
        });
        ports.collect()
    };
    Ports {
        tls: of(true),
        plain: of(false),
    }
}

/// The port to which plain requests are redirected; `None` for the usual one.
#[must_use]
pub fn redirect_port(listen: &[Listen]) -> Option<u16> {
    let tls = listen.iter().filter(|listen| listen.tls);
    let ports = tls.filter_map(|listen| match &listen.address {
        Address::Tcp(address) => Some(address.port()).filter(|port| *port != 0),
        Address::Unix(_) => None,
    });
    // The order of files decides nothing: clients know the usual one, and of others the smallest counts.
    let port = ports.min_by_key(|port| (*port != tls::PORT, *port))?;
    (port != tls::PORT).then_some(port)
}

/// Reports TLS that nothing can use.
pub(crate) fn check_tls(root: &Section<'_>, listen: &[Listen], sites: &[Site]) {
    let of_listen = root.glance("listen", TLS);
    let of_sites = root.glance("site", TLS);
    let has_listener = listen.iter().any(|listen| listen.tls);
    // One with errors is no site with TLS.
    let is_named = of_sites.iter().any(|(_, has)| *has);
    let report = |span: Option<&(Range<usize>, bool)>, message: &str, help: &str| {
        let span = span.map_or(root.span.clone(), |(span, _)| span.clone());
        root.reader
            .report_absent(Some(&span), message.to_owned(), Some(help.to_owned()));
    };
    if has_listener && !is_named {
        let usual = of_listen.first();
        let span = of_listen.iter().find(|(_, has)| *has).or(usual);
        let help = "add `tls = \"acme\"` or `tls = \"internal\"` to a site, or `[site.tls]` with `certificates`; for no \
                    TLS, write `tls = false`";
        report(
            span,
            "a listener uses TLS, and no site has a certificate",
            help,
        );
    }
    if has_listener {
        note_without_tls(root, sites);
    }
    let is_acme = |site: &Site| {
        let tls = site.tls.as_ref();
        tls.is_some_and(|tls| tls.certificates == Certificates::Acme)
    };
    if root.has_table(ACME) && !sites.iter().any(is_acme) {
        let note = "no site has `tls = \"acme\"`, which would use `[acme]`";
        root.reader.note(&root.span_of(ACME), note.to_owned());
    }
    if !has_listener && sites.iter().any(|site| site.tls.is_some()) {
        let span = of_sites.iter().find(|(_, has)| *has);
        let help =
            "add `[[listen]]` with `address = \"443\"`, or with another one and `tls = true`";
        report(
            span,
            "a site has certificates, and no listener uses TLS",
            help,
        );
    }
}

/// Notes sites that clients cannot reach over TLS: they would get the certificate of another one, or none.
fn note_without_tls(root: &Section<'_>, sites: &[Site]) {
    let with_tls = || sites.iter().filter(|site| site.tls.is_some());
    let is_beneath = |host: &String| {
        let mut hosts = with_tls().flat_map(|site| &site.hosts);
        hosts.any(|of| stands_for(of, host))
    };
    if with_tls().next().is_none() {
        return;
    }
    let outcome = match default_tls_site(sites) {
        Some(_) => "get the certificate of another site, and refuse it",
        None => "are refused",
    };
    for site in sites.iter().filter(|site| site.tls.is_none()) {
        // A site for all names has none that a client could verify.
        if let Some(host) = site.hosts.iter().find(|host| !is_beneath(host)) {
            let note =
                format!("the site has no `tls`: over TLS, clients that ask for `{host}` {outcome}");
            root.reader.note_at(Some(&site.line), &note);
        }
    }
}
