//! `levity serve` and `levity run`: from flags to a [`Plan`].

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{EXIT_FAILURE, EXIT_USAGE, Overrides, Plan, Step, Streams, exit_of};
use levity_config::address::{self, Address, AddressError, PORT_USUAL};
use levity_config::tls::SiteTls;
use levity_config::{AbsentRoots, Config, Feature, OwnNames, Variables};
use levity_disk::engine::NAMES;
use levity_disk::patiently;

use crate::process::signals::EarlySignals;
use crate::process::system_limits::with_help;

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub(super) struct Options {
    /// The folder or file
    #[arg(value_name = "DIR", default_value = ".")]
    what: PathBuf,
    /// Serve a single-page application: paths that name no file get /index.html, and folders are not listed. A name with an extension gets it
    /// only if the client wants HTML
    #[arg(long)]
    spa: bool,
    /// Encrypt connections, with a certificate of this machine that browsers accept once they trust its authority
    #[arg(long, hide = !Feature::Tls.is_built())]
    tls: bool,
    /// A further host name to answer to, besides localhost and IP addresses; may be repeated. Without it,
    /// every name is answered if other machines can connect
    #[arg(long, value_name = "NAME", value_parser = levity_config::host)]
    host: Vec<String>,
    /// The port of each `--listen` without one; without `--listen`, the port of 127.0.0.1
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Args)]
pub(super) struct Flags {
    /// The address for clients: PORT, :PORT, ADDRESS, ADDRESS:PORT, [IPv6]:PORT or unix:PATH; may be repeated.
    /// Default: 127.0.0.1:8080, or the listeners in the file of `levity run`
    #[arg(long, value_name = "ADDR", value_parser = listen_on)]
    listen: Vec<ListenOn>,
    #[arg(long, value_name = "NAME", value_parser = levity_config::engine, help = engine_help())]
    engine: Option<&'static str>,
    /// The number of event loops. Default: one per core, or the number in the file of `levity run`
    #[arg(long, value_name = "N", value_parser = levity_config::workers)]
    workers: Option<usize>,
    /// Report the disk engines and the abilities of each file system at the start
    #[arg(short, long)]
    verbose: bool,
    #[arg(long, hide = true)]
    guard: bool,
    #[command(flatten)]
    patience: Patience,
}

/// For tests, in which mounts do not respond.
#[derive(Args)]
pub(super) struct Patience {
    /// How long a call on files is waited for
    #[arg(long, hide = true, value_name = "MS")]
    patience: Option<u64>,
}

impl Patience {
    /// Has calls waited for as long as it says.
    pub(super) fn apply(&self) {
        if let Some(millis) = self.patience {
            levity_disk::set_patience(Duration::from_millis(millis));
        }
    }
}

fn engine_help() -> String {
    format!("The disk engine: {}", NAMES.join(", "))
}

/// A value of `--listen`.
#[derive(Debug, Clone)]
enum ListenOn {
    Address(Address),
    /// The port is that of `-p`, or the usual one.
    WithoutPort(IpAddr),
}

fn listen_on(text: &str) -> Result<ListenOn, AddressError> {
    match address::without_port(text) {
        Some(ip) => Ok(ListenOn::WithoutPort(ip)),
        None => text.parse().map(ListenOn::Address),
    }
}

impl Flags {
    /// The addresses to listen on; empty when no flag names one. `port` is that of `-p`.
    ///
    /// An address that is given twice would ask for the same port twice, and a port that no address can take
    /// would be forgotten: both are errors.
    fn listen(&self, port: Option<u16>) -> Result<Vec<Address>, String> {
        let on = |ip: IpAddr| Address::Tcp((ip, port.unwrap_or(PORT_USUAL)).into());
        let addresses = self.listen.iter().map(|given| match given {
            ListenOn::Address(address) => address.clone(),
            ListenOn::WithoutPort(ip) => on(*ip),
        });
        let addresses: Vec<Address> = match port {
            Some(_) if self.listen.is_empty() => vec![on(Ipv4Addr::LOCALHOST.into())],
            _ => addresses.collect(),
        };
        let takes_port = |given: &ListenOn| matches!(given, ListenOn::WithoutPort(_));
        if let Some(port) = port
            && !self.listen.is_empty()
            && !self.listen.iter().any(takes_port)
        {
            return Err(format!(
                "--port {port} is for no address: --listen has a port already"
            ));
        }
        match duplicate(&addresses) {
            Some(address) => Err(format!("--listen {address} is given twice")),
            None => Ok(addresses),
        }
    }

    /// For the time before the event loop: reading the configuration may take minutes where a folder does not respond.
    fn begin(&self, streams: &mut Streams<'_>) -> Result<EarlySignals, u8> {
        self.patience.apply();
        EarlySignals::handle().map_err(|error| {
            streams.err(&format!("error: no handlers of signals: {error}\n"));
            EXIT_FAILURE
        })
    }

    /// The plan for `config`, which was read from the file `source`.
    fn plan(&self, config: Config, source: Option<PathBuf>, listen: Vec<Address>) -> Plan {
        let overrides = Overrides {
            listen,
            engine: self.engine.map(str::to_owned),
            workers: self.workers,
        };
        Plan {
            config: overrides.apply(config),
            serve: source.is_none(),
            source,
            overrides,
            verbose: self.verbose,
            guard: self.guard,
        }
    }
}

/// The first address that is given twice.
fn duplicate(addresses: &[Address]) -> Option<&Address> {
    let mut seen = addresses.iter().enumerate();
    let twice = |(at, address): &(usize, &Address)| {
        !address.is_ephemeral() && addresses[..*at].contains(address)
    };
    Some(seen.find(twice)?.1)
}

/// A plan for a folder or a single file, without configuration.
pub(super) fn serve(options: Options, streams: &mut Streams<'_>) -> Step {
    let Options {
        what,
        spa,
        tls,
        host,
        port,
        flags,
    } = options;
    let early = match flags.begin(streams) {
        Ok(early) => early,
        Err(status) => return Step::Exit(status),
    };
    let listen = match flags.listen(port) {
        Ok(listen) => listen,
        Err(reason) => return misused(&reason, streams),
    };
    if tls && !Feature::Tls.is_built() {
        return misused(&Feature::Tls.lacking("--tls"), streams);
    }
    match content(&what, spa) {
        Ok(mut config) => {
            // A saved file is visible at once.
            config.disk.entry_ttl = Duration::ZERO;
            let mut plan = flags.plan(config, None, listen);
            if tls {
                encrypt(&mut plan.config, &host);
            }
            plan.config.own_names = own_names(&plan.config, host);
            Step::Serve(Box::new(plan), early)
        }
        Err(reason) => {
            let error = format!("cannot serve {}: {reason}", what.display());
            streams.err(&format!("error: {}\n", with_help(&error)));
            Step::Exit(EXIT_FAILURE)
        }
    }
}

/// Has all listeners use TLS.
fn encrypt(config: &mut Config, hosts: &[String]) {
    config
        .listen
        .iter_mut()
        .for_each(|listen| listen.tls = true);
    for site in &mut config.sites {
        site.tls = Some(SiteTls {
            names: hosts.to_vec(),
            ..SiteTls::internal()
        });
    }
}

/// The host names to answer to; `None` is any. Where only this machine can connect, any other name could be that of a
/// web page that reads the folder (DNS rebinding). Other machines may know this one by names that it does not know.
fn own_names(config: &Config, added: Vec<String>) -> Option<OwnNames> {
    let mut listen = config.listen.iter();
    let is_private = listen.all(|listen| listen.address.is_of_this_machine_only());
    (is_private || !added.is_empty()).then_some(OwnNames { added })
}

/// A plan for what a configuration file says.
pub(super) fn run(file: PathBuf, flags: &Flags, streams: &mut Streams<'_>) -> Step {
    let listen = match flags.listen(None) {
        Ok(listen) => listen,
        Err(reason) => return misused(&reason, streams),
    };
    let early = match flags.begin(streams) {
        Ok(early) => early,
        Err(status) => return Step::Exit(status),
    };
    match levity_config::load_without_roots(&file, &Variables::of_process(), AbsentRoots::Any) {
        Ok(config) => Step::Serve(Box::new(flags.plan(config, Some(file), listen)), early),
        Err(errors) => {
            streams.err(&errors.render(streams.colour));
            Step::Exit(exit_of(&errors))
        }
    }
}

fn misused(reason: &str, streams: &mut Streams<'_>) -> Step {
    streams.err(&format!("error: {reason}\n"));
    Step::Exit(EXIT_USAGE)
}

const SITE: &str = "[[site]]\nroot = \".\"\n";

const COMPRESSED: &str = "compress = true\n";

/// For content that may be edited at any time.
const CONTENT: &str = "cache = \"no-cache\"\n";

/// A file that is named on the command line is served wherever its link leads.
const FILE: &str = "symlinks = \"follow\"\n";

const FOLDER: &str = "listing = true\n";

/// A folder that a site generator may have written.
const BUILT: &str = "static_host_files = true\ntry = [\"file\", \"file.html\", \"directory\"]\n";

const LOST: &str = "error_pages = { 404 = \"/404.html\" }\n";

/// A script or an image that is missing is no page, but a client that follows a link may be at a path with a dot.
const SINGLE_PAGE: &str = r#"cache = { hashed = "immutable", "*/*" = "no-cache" }
static_host_files = true
try = ["file", "/index.html"]

[[site.route]]
regex = '\.[^./]+$'
when = { header = { Accept = "*text/html*" } }

[[site.route]]
regex = '\.[^./]+$'
try = ["file"]
"#;

/// What serves the folder or file `what`. May block.
fn content(what: &Path, is_single_page: bool) -> Result<Config, String> {
    const PAGE: &str = "index.html";
    let path = std::path::absolute(what).map_err(|error| error.to_string())?;
    let meta = patiently(&path, |path| std::fs::metadata(path)).and_then(|meta| meta);
    let meta = meta.map_err(|error| error.to_string())?;
    if meta.is_file() {
        if is_single_page {
            return Err("`--spa` is for a folder".to_owned());
        }
        let name = path.file_name().ok_or("it has no name")?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut config = parsed(folder, &[CONTENT, FILE].concat())?;
        config.sites[0].only = Some(name.to_owned());
        return Ok(config);
    }
    if !meta.is_dir() {
        return Err("it is neither a folder nor a file".to_owned());
    }
    let is_built = path.join(PAGE).is_file();
    let lost = match path.join("404.html").is_file() {
        true => LOST,
        false => "",
    };
    let text = match (is_single_page, is_built) {
        (true, false) => return Err(format!("it has no {PAGE}, which `--spa` serves")),
        (true, true) => SINGLE_PAGE.to_owned(),
        (false, true) => [CONTENT, FOLDER, BUILT, lost].concat(),
        (false, false) => [CONTENT, FOLDER].concat(),
    };
    let mut config = parsed(&path, &text)?;
    if is_single_page {
        // A redirect of the site's author goes before what is missing.
        config.sites[0].routes.rotate_left(2);
    }
    Ok(config)
}

/// The configuration of a site with the keys and routes in `text`, and with `folder` as root.
fn parsed(folder: &Path, text: &str) -> Result<Config, String> {
    let compressed = match Feature::Compress.is_built() {
        true => COMPRESSED,
        false => "",
    };
    let text = [SITE, compressed, text].concat();
    let config = levity_config::parse_beneath(folder, &text);
    let mut config = config.map_err(|problems| problems[0].message.clone())?;
    for site in &mut config.sites {
        let routes = site.routes.iter_mut().map(|route| &mut route.location);
        // The name for people has no dot at its end.
        for location in routes.chain([&mut site.location]) {
            location.root = Some(folder.to_owned());
        }
    }
    // Nobody knows the lines of that text.
    config.notes.iter_mut().for_each(|note| note.line = None);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use levity_config::{Symlinks, Try};

    use super::super::tests::{Folder, levity};
    use super::*;

    #[test]
    fn serve_a_folder() {
        let folder = Folder::new();
        let plan = levity(&["serve", folder.path()]).plan();
        assert!(plan.serve && !plan.guard && plan.source.is_none());
        assert_eq!(
            plan.config.listen,
            ["127.0.0.1:8080".parse::<Address>().unwrap().into()]
        );
        assert_eq!(plan.config.disk.entry_ttl, Duration::ZERO);
        let [site] = &plan.config.sites[..] else {
            panic!("one site")
        };
        assert_eq!(
            (
                site.location.root.as_deref().unwrap(),
                site.location.options.listing,
                &site.only
            ),
            (Path::new(folder.path()), true, &None)
        );
        assert_eq!(plan.reload(&[]).unwrap(), plan.config);
    }

    #[test]
    fn serve_this_folder_by_default() {
        let plan = levity(&["serve"]).plan();
        assert_eq!(
            plan.config.sites[0].location.root.as_deref(),
            Some(std::env::current_dir().unwrap().as_ref())
        );
    }

    #[test]
    fn serve_one_file() {
        let folder = Folder::new();
        let file = folder.write("a b.txt", "x");
        let plan = levity(&["serve", &file]).plan();
        let site = &plan.config.sites[0];
        assert_eq!(
            site.location.root.as_deref(),
            Some(Path::new(folder.path()))
        );
        assert_eq!(site.only.as_deref(), Some("a b.txt".as_ref()));
        assert!(
            !site.location.options.listing && site.location.options.symlinks == Symlinks::Follow
        );
    }

    #[test]
    fn serve_a_single_page_application() {
        let folder = Folder::new();
        levity(&["serve", "--spa", folder.path()]).exits(EXIT_FAILURE);
        let page = folder.write("index.html", "x");
        let plan = levity(&["serve", "--spa", folder.path()]).plan();
        let site = &plan.config.sites[0];
        assert_eq!(
            site.location.root.as_deref(),
            Some(Path::new(folder.path()))
        );
        let steps = [Try::File, Try::Path("/index.html".to_owned())];
        assert_eq!(site.location.proxying.tries.as_deref(), Some(&steps[..]));
        assert!(!site.location.options.listing);
        levity(&["serve", "--spa", &page]).exits(EXIT_FAILURE);
    }

    #[test]
    fn where_serve_listens() {
        let listen = |flags: &[&str]| {
            let plan = levity(&[&["serve"], flags].concat()).plan();
            let listen = plan.config.listen.iter();
            listen
                .map(|one| one.address.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(listen(&["-p", "3000"]), ["127.0.0.1:3000"]);
        assert_eq!(listen(&["--port", "0"]), ["127.0.0.1:0"]);
        assert_eq!(listen(&["--listen", "localhost"]), ["127.0.0.1:8080"]);
        assert_eq!(listen(&["--listen", "[::1]", "-p", "3000"]), ["[::1]:3000"]);
        let both = [
            "--listen",
            "192.0.2.7",
            "--listen",
            "[::1]:80",
            "-p",
            "3000",
        ];
        assert_eq!(listen(&both), ["192.0.2.7:3000", "[::1]:80"]);
        for flags in [
            &["-p", "65536"][..],
            &["-p", "http"],
            &["-p", "3000", "--listen", "8080"],
            &[
                "-p",
                "80",
                "--listen",
                "localhost",
                "--listen",
                "127.0.0.1:80",
            ],
        ] {
            levity(&[&["serve"], flags].concat()).exits(EXIT_USAGE);
        }
    }

    #[test]
    fn names_that_serve_answers_to() {
        let names = |flags: &[&str]| {
            let plan = levity(&[&["serve"], flags].concat()).plan();
            plan.config.own_names.map(|names| names.added)
        };
        let none = Some(Vec::new());
        assert_eq!(names(&[]), none);
        assert_eq!(names(&["--listen", "[::1]:0", "--listen", "unix:s"]), none);
        assert_eq!(names(&["--listen", "127.9.9.9:1"]), none);
        assert_eq!(names(&["--listen", "8080"]), None);
        assert_eq!(
            names(&["--listen", "127.0.0.1:1", "--listen", "0.0.0.0:2"]),
            None
        );
        let added = Some(vec!["a.example".to_owned()]);
        assert_eq!(names(&["--host", "A.example"]), added);
        assert_eq!(names(&["--host", "a.example", "--listen", "8080"]), added);
        levity(&["serve", "--host", "http://a"]).exits(EXIT_USAGE);
    }

    #[test]
    fn serve_has_no_file() {
        let help = levity(&["serve", "--help"]).out;
        assert!(help.contains("Default: one per core, or the number in the file of `levity run`"));
        assert!(!help.contains("<FILE>"), "{help}");
    }

    #[test]
    fn serve_nothing() {
        let folder = Folder::new();
        for what in [&format!("{}/absent", folder.path()), "/dev/null"] {
            let ran = levity(&["serve", what]);
            ran.exits(EXIT_FAILURE);
            assert!(
                ran.err
                    .starts_with(&format!("error: cannot serve {what}: ")),
                "{}",
                ran.err
            );
        }
    }
}
