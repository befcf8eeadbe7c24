//! `[acme]`: certificates that authorities issue without a hand.

use std::env;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use levity_disk::patiently;
use levity_wire::tls_names;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::certificate_files;
use crate::on_disk::found;
use crate::schema::{Key, Kind, documented, key};
use crate::section::{Section, Text};
use crate::suggest::listed;

/// An authority that a word stands for.
struct Known {
    name: &'static str,
    directory: &'static str,
    /// It wants an account that was made at its site.
    wants_account: bool,
}

const KNOWN: &[Known] = &[
    Known {
        name: "letsencrypt",
        directory: "https://acme-v02.api.letsencrypt.org/directory",
        wants_account: false,
    },
    Known {
        name: "letsencrypt-staging",
        directory: "https://acme-staging-v02.api.letsencrypt.org/directory",
        wants_account: false,
    },
    Known {
        name: "zerossl",
        directory: "https://acme.zerossl.com/v2/DV90",
        wants_account: true,
    },
    Known {
        name: "google",
        directory: "https://dv.acme-v02.api.pki.goog/directory",
        wants_account: true,
    },
];

/// The authorities among these that issue certificates for addresses, and the profile that this needs.
const ADDRESSES: (&str, &str) = ("letsencrypt", "shortlived");

/// Ends of names that nobody can register (RFC 2606, 6761, 6762, 7686, 8375, 9476; `.internal` by ICANN in 2024).
const UNREGISTERED: &[&str] = &[
    "alt",
    "example",
    "home.arpa",
    "internal",
    "invalid",
    "local",
    "localhost",
    "onion",
    "test",
];

/// `[acme]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acme {
    /// An address of mail for the authorities.
    pub contact: Option<String>,
    /// How names are proved, the preferred way first: those of the file that are possible with its listeners.
    pub challenges: Vec<Challenge>,
    /// Whether authorities find one of these where they look.
    is_direct: bool,
    /// The URL that is asked which names may get certificates on demand.
    pub ask: Option<String>,
    /// Who is asked for certificates, in this order. At least one.
    pub authorities: Vec<Authority>,
    /// How records in the DNS are made.
    pub dns: Option<Dns>,
}

/// `[[acme.authority]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The URL of its directory.
    pub directory: String,
    /// The file with the certificates by which its own is verified.
    pub roots: Option<PathBuf>,
    /// The kind of certificate.
    pub profile: Option<String>,
    /// The identifier of the account that it knows already, and the file with the key of that.
    pub account: Option<(String, PathBuf)>,
}

/// How a name is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
pub enum Challenge {
    /// By a handshake.
    #[strum(serialize = "tls-alpn-01")]
    TlsAlpn01,
    /// By a file.
    #[strum(serialize = "http-01")]
    Http01,
    /// By a record in the DNS.
    #[strum(serialize = "dns-01")]
    Dns01,
}

/// `[acme.dns]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dns {
    /// A program and its first arguments.
    Hook(Vec<String>),
    /// Updates (RFC 2136).
    Update {
        /// The primary server of the zone.
        server: SocketAddr,
        /// The zone; `None` if the server is asked for it.
        zone: Option<String>,
        /// The file with the key that signs updates.
        key: Option<PathBuf>,
    },
}

/// The ports of listeners.
pub(crate) struct Ports {
    /// With TLS.
    pub(crate) tls: Vec<u16>,
    /// Without.
    pub(crate) plain: Vec<u16>,
}

/// `[acme]`
pub(crate) const KEYS: &[Key] = documented! {
    /// Address of mail that authorities may write to. Some want one.
    key("contact", Kind::Text("an address of mail"), None).also(&[("email", "")]);
    /// How names are proved, the preferred way first: `"tls-alpn-01"` by a handshake at port 443, `"http-01"` by a request to port
    /// 80, `"dns-01"` by a record, for which `[acme.dns]` is needed. What fails gives way to the next one. Only `"dns-01"` can prove
    /// `*.example.org`.
    key("challenges", Kind::Names, Some("[\"tls-alpn-01\", \"http-01\", \"dns-01\"]")).also(&[("challenge", "")]);
    /// URL that is asked, as `URL?domain=NAME`, whether a name may get a certificate on demand: a status of 2xx allows it. Needed by
    /// sites without `hosts`, whose names nobody knows in advance.
    key("ask", Kind::Text("a URL"), None);
};

/// `[[acme.authority]]`
pub(crate) const AUTHORITY: &[Key] = documented! {
    /// URL of its directory, or one of `"letsencrypt"`, `"letsencrypt-staging"` (for tests; browsers do not trust it), `"zerossl"`
    /// and `"google"`. Required.
    key("directory", Kind::Text("a URL"), None).also(&[("server", ""), ("ca", "")]);
    /// File with the certificates by which that of the authority's own server is verified; those that the machine trusts if it is
    /// absent.
    key("roots", Kind::Text("a path"), None);
    /// Kind of certificate, of those that the authority has, such as `"shortlived"`: Let's Encrypt's lives for six days and may be for
    /// an address.
    key("profile", Kind::Text("a name"), None);
    /// Identifier of an account that was made at the authority's site, where it wants one (external account binding).
    key("account", Kind::Text("an identifier"), None);
    /// File with the key of `account`, in base64url.
    key("account_key", Kind::Text("a path"), None).secret();
};

/// `[acme.dns]`
pub(crate) const DNS: &[Key] = documented! {
    /// Program with its first arguments. It is called with `set` or `remove`, the name of the record and its value, and ends with 0
    /// when the record is there, or gone.
    key("hook", Kind::Names, None);
    /// Address of the zone's primary server, which takes updates (RFC 2136), such as `"192.0.2.53:53"`.
    key("server", Kind::Text("an address"), None);
    /// Zone that is updated. Without it the server is asked which one has the record.
    key("zone", Kind::Text("a name"), None);
    /// File with the key that signs updates (TSIG), as `tsig-keygen` and `keymgr -t` write it.
    key("key", Kind::Text("a path"), None).secret();
};

/// Reads `[acme]` of a file with listeners at `ports`.
pub(crate) fn read(section: &Section<'_>, ports: &Ports) -> Acme {
    let mut authorities = Vec::<Authority>::new();
    for authority in section.children("authority") {
        let Some(one) = self::authority(&authority) else {
            continue;
        };
        if authorities
            .iter()
            .any(|other| other.directory == one.directory)
        {
            authority.report("directory", "it is given twice", None);
        }
        authorities.push(one);
    }
    if authorities.is_empty() {
        authorities.push(Authority {
            directory: KNOWN[0].directory.to_owned(),
            roots: None,
            profile: None,
            account: None,
        });
    }
    let dns = dns(section);
    let is_possible = |challenge: &Challenge| match challenge {
        Challenge::TlsAlpn01 => !ports.tls.is_empty(),
        Challenge::Http01 => !ports.plain.is_empty(),
        // One with errors counts, too.
        Challenge::Dns01 => section.has_table("dns"),
    };
    let mut challenges = challenges(section);
    challenges.retain(is_possible);
    let is_direct = challenges.iter().any(|challenge| match challenge {
        Challenge::TlsAlpn01 => ports.tls.contains(&443),
        Challenge::Http01 => ports.plain.contains(&80),
        Challenge::Dns01 => true,
    });
    Acme {
        contact: contact(section),
        challenges,
        is_direct,
        ask: url(section, "ask"),
        authorities,
        dns,
    }
}

fn contact(section: &Section<'_>) -> Option<String> {
    let given = section.text("contact")?;
    let address = given.text.strip_prefix("mailto:").unwrap_or(given.text);
    let is_address = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && host.contains('.') && !address.contains([' ', ',', '?'])
    });
    if !is_address {
        given.refuse(format!("`{address}` is not an address of mail"));
    }
    is_address.then(|| address.to_owned())
}

fn challenges(section: &Section<'_>) -> Vec<Challenge> {
    let given = section.names("challenges");
    if given.as_ref().is_some_and(Vec::is_empty) {
        section.report("challenges", "there is none", None);
    }
    let words = given.iter().flatten();
    let words = words.filter_map(|text| text.word("challenges", Challenge::VARIANTS));
    let challenges: Vec<_> = words.collect();
    match challenges.is_empty() {
        true => vec![Challenge::TlsAlpn01, Challenge::Http01, Challenge::Dns01],
        false => challenges,
    }
}

fn is_url(text: &str, schemes: &[&str]) -> bool {
    let mut schemes = schemes.iter();
    let rest = schemes.find_map(|scheme| text.strip_prefix(scheme));
    let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    has_host && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn url(section: &Section<'_>, key: &str) -> Option<String> {
    let given = section.text(key)?;
    let is_url = is_url(given.text, &["https://", "http://"]);
    if !is_url {
        given.refuse(format!(
            "`{}` is not a URL with `http://` or `https://`",
            given.text
        ));
    }
    is_url.then(|| given.text.to_owned())
}

fn authority(section: &Section<'_>) -> Option<Authority> {
    section.require("directory");
    let roots = section.path("roots");
    if let Some(path) = &roots {
        let what = "the authority signs nothing until it can be used";
        certificate_files::note_trusted(section, "roots", path, what);
    }
    let account = section.text("account").map(|text| text.text.to_owned());
    let account_key = section.path("account_key");
    match (&account, &account_key) {
        (Some(_), None) => section.require("account_key"),
        (None, Some(_)) => section.require("account"),
        _ => {}
    }
    let has_account = section.has("account") || section.has("account_key");
    let profile = section.text("profile").map(|text| text.text.to_owned());
    let given = section.text("directory")?;
    let known = |known: &&Known| [known.name, known.directory].contains(&given.text);
    let known = KNOWN.iter().find(known);
    if known.is_some_and(|known| known.wants_account) && !has_account {
        let help = "make one there, for \"external account binding\" (EAB), and write its identifier as `account`, and the file with its \
                    key as `account_key`";
        let message = format!(
            "`{}` wants an account that was made at its site",
            given.text
        );
        given.refuse_with(message, help);
    }
    let directory = match known {
        Some(known) => known.directory.to_owned(),
        None => directory(&given)?,
    };
    Some(Authority {
        directory,
        roots,
        profile,
        account: account.zip(account_key),
    })
}

/// The URL of a directory (RFC 8555, 7.1.1), which has to be one of HTTPS (6.1).
fn directory(given: &Text<'_>) -> Option<String> {
    if is_url(given.text, &["https://"]) {
        return Some(given.text.to_owned());
    }
    let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
    let names = listed(names.iter().copied());
    let help = format!(
        "write one of {names}, or the URL of a directory, such as \"https://ca.lan/acme/directory\""
    );
    let message = format!("`{}` is not a URL with `https://`", given.text);
    given.refuse_with(message, help);
    None
}

fn dns(section: &Section<'_>) -> Option<Dns> {
    if !section.has_table("dns") {
        return None;
    }
    let section = section.child("dns");
    let hook = section.names("hook");
    let server = section.text("server");
    let zone = section.text("zone").map(|text| text.text.to_owned());
    let key = section.path("key");
    match (hook, server) {
        (Some(hook), None) => {
            check_hook(&section, &hook);
            let words = hook.iter().map(|text| text.text.to_owned());
            Some(Dns::Hook(words.collect()))
        }
        (None, Some(server)) => match server.text.parse() {
            Ok(server) => Some(Dns::Update { server, zone, key }),
            Err(_) => {
                let help = "write an IP address and a port, such as \"192.0.2.53:53\"";
                server.refuse_with(format!("`{}` is not an address", server.text), help);
                None
            }
        },
        (None, None) => {
            if !section.has("hook") {
                section.require("server");
            }
            None
        }
        (Some(_), Some(_)) => {
            section.report("hook", "`server` is given too; one of them is used", None);
            None
        }
    }
}

/// Reports a hook without a program, or with one that cannot be started.
fn check_hook(section: &Section<'_>, hook: &[Text<'_>]) {
    let Some(program) = hook.first() else {
        return section.report("hook", "there is no program", None);
    };
    let path = Path::new(program.text);
    if !section.reads_files() {
        return;
    }
    if path.is_absolute() {
        if let Err(reason) = is_program(path) {
            program.refuse(format!("`hook`: {} {reason}", path.display()));
        }
        return;
    }
    // The server may have another `PATH`, or another working directory.
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| is_program(&folder.join(path)).is_ok();
    let is_name = !program.text.contains('/');
    if !(is_name && env::split_paths(&folders).any(is_there)) {
        let note = format!("`{}` is not found here; write the whole path", program.text);
        section.reader.note(&program.span, note);
    }
}

/// Whether a file can be started, or why not.
fn is_program(path: &Path) -> Result<(), String> {
    let meta = found(patiently(path, |path| fs::metadata(path)));
    let meta = meta.map_err(|error| format!("cannot be started: {error}"))?;
    match meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err("is not executable".to_owned()),
    }
}

impl Acme {
    /// Whether `host` of a site gets its certificates on demand, a name at a time.
    #[must_use]
    pub fn is_on_demand(&self, host: &str) -> bool {
        host.starts_with('*') && !self.challenges.contains(&Challenge::Dns01)
    }

    /// Whether all authorities are among the known ones, whose rules are those for the public.
    fn is_public(&self) -> bool {
        let is_known = |one: &Authority| KNOWN.iter().any(|known| known.directory == one.directory);
        self.authorities.iter().all(is_known)
    }

    /// Why no authority issues a certificate for `host`, so that none is asked.
    fn refusal(&self, host: &str) -> Option<String> {
        let bare = tls_names::bare(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return self.refusal_of_address(ip);
        }
        let name = bare.strip_prefix("*.").unwrap_or(bare);
        if let Some(reason) = self.is_public().then(|| unregistered(name)).flatten() {
            return Some(reason);
        }
        if self.is_on_demand(host) && self.ask.is_none() {
            return Some("it is proved by a record in the DNS: `[acme.dns]` says how to make one; or `ask` in `[acme]` allows \
                         certificates for single names beneath".to_owned());
        }
        let nowhere = "`challenges` in `[acme]` has none that is possible here";
        self.challenges.is_empty().then(|| nowhere.to_owned())
    }

    fn refusal_of_address(&self, ip: IpAddr) -> Option<String> {
        let mut challenges = self.challenges.iter();
        if challenges.all(|challenge| *challenge == Challenge::Dns01) {
            return Some("an address is proved by \"tls-alpn-01\" or \"http-01\" only".to_owned());
        }
        if !self.is_public() {
            return None;
        }
        if !is_public(ip) {
            return Some("nobody outside can reach this address".to_owned());
        }
        let (known, profile) = ADDRESSES;
        let known = KNOWN.iter().find(|one| one.name == known);
        let issues = |one: &Authority| {
            known.is_some_and(|known| known.directory == one.directory)
                && one.profile.as_deref() == Some(profile)
        };
        let help = "of the known authorities, \"letsencrypt\" with `profile = \"shortlived\"` issues them for addresses";
        (!self.authorities.iter().any(issues)).then(|| help.to_owned())
    }
}

/// Why nobody can have registered `name`.
fn unregistered(name: &str) -> Option<String> {
    let end = UNREGISTERED.iter().find(|end| {
        let before = name.strip_suffix(*end);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    });
    if let Some(end) = end {
        return Some(format!(
            "nobody can register names of `{end}`; `tls = \"internal\"` is for them"
        ));
    }
    let fits = |part: &str| {
        let inner = part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && !part.starts_with('-') && !part.ends_with('-')
    };
    match () {
        () if !name.contains('.') => Some("a name with one part is registered nowhere".to_owned()),
        () if !name.split('.').all(fits) => {
            Some("authorities do not take it for the name of a host".to_owned())
        }
        () => None,
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 is shared by the customers of a provider (RFC 6598).
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            !(ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_documentation()
                || ip.is_multicast()
                || ip.is_broadcast()
                || is_shared)
        }
        IpAddr::V6(ip) => {
            let is_documentation = ip.segments()[..2] == [0x2001, 0xdb8];
            !(ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ip.is_multicast()
                || is_documentation)
        }
    }
}

/// Reports names of a site for which no authority would issue a certificate; `None` is a site for all names. `key` is where the site
/// asks for them.
pub(crate) fn check(section: &Section<'_>, key: &str, acme: &Acme, hosts: Option<&[String]>) {
    if hosts.is_none() && acme.ask.is_none() {
        let help = "write the names, or `ask` in `[acme]`, which allows certificates on demand";
        let message = "the site has no `hosts` for which to get certificates";
        section.report(key, message, Some(help.to_owned()));
    }
    for host in hosts.unwrap_or_default() {
        if let Some(reason) = acme.refusal(host) {
            let message = format_args!("there can be no certificate for `{host}`");
            section.report(key, message, Some(reason));
        }
    }
    if acme.is_public() && !acme.is_direct && !acme.challenges.is_empty() {
        let note = "authorities come to ports 80 and 443, which no listener has: something has to forward them here";
        let span = section.span_of(key);
        section.reader.note(&span, note.to_owned());
    }
}
