//! The configuration: what the server reads, and how a TOML file becomes it.
//!
//! [`load`] reads a file and reports everything that is wrong with it in one run. [`keys`] is the one
//! table of what a file may hold.

mod foreign;
mod headers;
pub mod keys;
mod limits;
mod network;
mod own_names;
mod pattern;
mod problem;
mod proxying;
mod reader;
mod recognise;
#[cfg(test)]
mod reference;
mod site;
mod syntax;
#[cfg(test)]
mod tests;
pub mod upstream;
mod value;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

pub use keys::ENGINES;
pub use limits::Limits;
pub use network::{Network, TrustedProxies};
pub use own_names::OwnNames;
pub use pattern::Pattern;
pub use problem::{Errors, Place, Problem};
pub(crate) use site::host;
pub use upstream::{Proxying, Rewrite, Upstream};

use levity_disk::Direct;
use levity_wire::encoding::Coding;

use crate::address::{Address, AddressError, PORT_USUAL};
use problem::Source;
use reader::{Fields, Reader, Text};
use upstream::Upstreams;

/// A configuration file with more bytes is refused: it is most likely another file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Everything that a configuration file says. [`Config::default`] is what an empty file means: no
/// site, and `127.0.0.1:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[disk]`
    pub disk: Disk,
    /// `[log]`
    pub log: Log,
    /// `[admin]`; `None` is nowhere.
    pub admin: Option<Admin>,
    /// `[limits]`
    pub limits: Limits,
    /// Where clients connect; never empty.
    pub listen: Vec<Listen>,
    /// The host names to which requests over TCP are answered, whatever the sites say; `None` is any. No key
    /// of the file sets it; `levity serve` does.
    pub own_names: Option<OwnNames>,
    /// In the order of the file.
    pub sites: Vec<Site>,
    /// In the order of the file.
    pub upstreams: Vec<Upstream>,
    /// What is no mistake but worth a line, such as a key by another server's name.
    pub notes: Vec<String>,
}

/// `[server]`: the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Event loops; `None` is one per core.
    pub workers: Option<usize>,
    /// Whose word on who the client is counts.
    pub trusted_proxies: TrustedProxies,
    /// What the ETag of a file is made from.
    pub etag: Etag,
}

/// What the ETag of a file is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etag {
    /// The identity of the file on this machine and all its times: another version always has another
    /// tag.
    File,
    /// Modification time and size: copies on several machines have the same tag, and so have two
    /// versions of equal time and size.
    MtimeSize,
}

/// `[admin]`: where `/metrics` and `/status` are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The address.
    pub listen: Address,
    /// The host names to which it answers over TCP.
    pub names: OwnNames,
}

/// `[[listen]]`: where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address, each once, but for port 0.
    pub address: Address,
    /// Whether connections begin with a head of the PROXY protocol.
    pub proxy_protocol: bool,
}

impl From<Address> for Listen {
    /// Without the PROXY protocol.
    fn from(address: Address) -> Self {
        Self {
            address,
            proxy_protocol: false,
        }
    }
}

/// `[disk]`: how files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// One of [`ENGINES`], or [`keys::ENGINE_FOR_TESTS`].
    pub engine: String,
    /// Threads of the pool; `None` lets the server choose.
    pub threads: Option<usize>,
    /// Threads of the pool kept for opening files; fewer than `threads`.
    pub stat_threads: Option<usize>,
    /// Reads in flight per device; `None` lets the server choose.
    pub depth: Option<usize>,
    /// Bytes per read, a multiple of [`CHUNK_STEP_BYTES`].
    pub chunk_bytes: Option<usize>,
    /// Whether reads go past the page cache.
    pub direct: Direct,
    /// Memory for small bodies that are asked for often; 0 is off.
    pub cache_bytes: usize,
    /// Memory for chunks in flight; at least `chunk_bytes`.
    pub buffer_bytes: usize,
    /// Jobs that may wait per device.
    pub queue: usize,
    /// How long a device may finish nothing before new requests for it are refused.
    pub dead_after: Duration,
    /// How long an open file and its metadata are trusted.
    pub entry_ttl: Duration,
    /// What tells of changes before that.
    pub watch: Watch,
    /// The folder for request bodies that do not fit into memory.
    pub spool: PathBuf,
}

/// What tells of changes to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Nothing: files are looked at again.
    Off,
    /// The kernel.
    Inotify,
}

impl Disk {
    /// How long it is trusted that the path of a root leads where it led: a watch is on what is beneath a
    /// root, and tells nothing of its path.
    #[must_use]
    pub fn root_ttl(&self) -> Duration {
        match self.watch {
            Watch::Off => self.entry_ttl,
            Watch::Inotify => self.entry_ttl.min(WATCHED_ROOT_TTL),
        }
    }

    /// The same for the disk crate.
    #[must_use]
    pub fn settings(&self) -> levity_disk::Settings {
        levity_disk::Settings {
            engine: self.engine.clone(),
            threads: self.threads,
            stat_threads: self.stat_threads,
            depth: self.depth,
            queue_max: self.queue,
            buffer_bytes_max: self.buffer_bytes,
            dead_after: self.dead_after,
        }
    }
}

/// `[site.disk]` and `[site.route.disk]`: how files are read there. `None` is what is said above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceDisk {
    /// One of [`ENGINES`], or [`keys::ENGINE_FOR_TESTS`].
    pub engine: Option<String>,
    /// Bytes per read, a multiple of [`CHUNK_STEP_BYTES`].
    pub chunk_bytes: Option<usize>,
    /// Whether reads go past the page cache.
    pub direct: Option<Direct>,
}

/// How long the path of a root is trusted under a watch, where files may be trusted for longer.
const WATCHED_ROOT_TTL: Duration = Duration::from_secs(1);

/// Where bodies go when `disk.spool` is not given.
const SPOOL: &str = "/var/tmp";

/// Reads with `O_DIRECT` start and end at multiples of the largest logical block in use.
pub const CHUNK_STEP_BYTES: usize = 4096;

/// `[log]`: the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where lines go.
    pub access: AccessLog,
    /// What a line looks like.
    pub format: LogFormat,
    /// What a line says of where the time went; more than the totals only in JSON.
    pub timing: LogTiming,
}

impl Log {
    /// Whether lines tell of each chunk.
    #[must_use]
    pub fn tells_chunks(&self) -> bool {
        self.timing == LogTiming::Chunk && self.access != AccessLog::Off
    }
}

/// Where the lines of the access log go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file, opened for appending.
    File(PathBuf),
}

/// What a line of the access log looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// The Combined Log Format of the Apache HTTP server.
    Combined,
    /// One JSON object per line.
    Json,
}

/// What a line of the access log says of where the time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTiming {
    /// The totals that every line has.
    Off,
    /// The time of each step.
    Request,
    /// That, and what became of each chunk.
    Chunk,
}

/// `[[site]]`: what is served under which names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Lower case, without port and final dot, each at most once in a file; `*.example.org` stands
    /// for every name beneath. Empty answers any host.
    pub hosts: Vec<String>,
    /// The folder that is served; absolute when it comes from [`load`]. Only a site with `proxy` may have
    /// none.
    pub root: Option<PathBuf>,
    /// How requests are handed to an upstream.
    pub proxying: Proxying,
    /// Whether a folder without index file is listed.
    pub listing: bool,
    /// Names of index files, the first that exists is served.
    pub index: Vec<String>,
    /// The codings in which files may be kept beside themselves, the best first, each once.
    pub precompressed: Vec<Coding>,
    /// Which symbolic links are followed.
    pub symlinks: Symlinks,
    /// Whether responses have a `Server-Timing` field.
    pub server_timing: bool,
    /// Serves this one file of `root`, at `/` and under its own name, and nothing else. No key of the
    /// file sets it; `levity serve FILE` does.
    pub only: Option<std::ffi::OsString>,
    /// How files are read.
    pub disk: PlaceDisk,
    /// In the order of the file: the first that matches wins.
    pub routes: Vec<Route>,
}

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Those that stay beneath the root.
    Beneath,
    /// Every one.
    Follow,
}

/// `[[site.route]]`: other rules for some paths. `None` is what the site says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Which paths it takes.
    pub path: Pattern,
    /// The folder that is served; absolute when it comes from [`load`].
    pub root: Option<PathBuf>,
    /// Starts with a slash and does not end with one; whole segments at the start of `path`. A path
    /// of which nothing is left is `/`.
    pub strip_prefix: Option<String>,
    /// Whether a folder without index file is listed.
    pub listing: Option<bool>,
    /// Names of index files.
    pub index: Option<Vec<String>>,
    /// The codings in which files may be kept beside themselves.
    pub precompressed: Option<Vec<Coding>>,
    /// Which symbolic links are followed.
    pub symlinks: Option<Symlinks>,
    /// Whether responses have a `Server-Timing` field.
    pub server_timing: Option<bool>,
    /// How files are read.
    pub disk: PlaceDisk,
    /// How requests are handed to an upstream.
    pub proxying: Proxying,
    /// Whether clients get 404 here: only what an upstream's answer names comes from it.
    pub internal: bool,
    /// Changes to the header fields of responses.
    pub headers: Headers,
    /// Changes to the header fields of requests on their way to an upstream.
    pub request_headers: Headers,
    /// Changes to what an upstream's answers say of its own place.
    pub rewrite: Rewrite,
}

impl Route {
    /// Whether it is there for files alone, whatever its site does: it has a folder of its own, or only an
    /// upstream may name what is there, and it names nobody to ask.
    pub fn is_for_files_of_its_own(&self) -> bool {
        let asks_somebody = self.proxying.proxy.is_some() || self.proxying.tries.is_some();
        (self.root.is_some() || self.internal) && !asks_somebody
    }
}

/// Changes to header fields. Names are valid tokens and each occurs once, whatever
/// its case; none of them frames the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// Names and values to write, in the order of the file; whatever has that name is replaced.
    pub set: Vec<(String, String)>,
    /// Names and values to write besides what there is.
    pub add: Vec<(String, String)>,
    /// Names to leave out.
    pub remove: Vec<String>,
}

impl Config {
    /// Whether clients connect to `address`.
    #[must_use]
    pub fn listens_on(&self, address: &Address) -> bool {
        self.listen.iter().any(|listen| listen.address == *address)
    }

    /// Whether connections to `address`, as it is written, begin with a head of the PROXY protocol.
    #[must_use]
    pub fn has_proxy_head(&self, address: &Address) -> bool {
        let mut listen = self.listen.iter();
        listen.any(|listen| listen.proxy_protocol && listen.address == *address)
    }

    /// The engines that sites and routes name, each once.
    pub fn place_engines(&self) -> BTreeSet<&str> {
        fn of_site(site: &Site) -> Vec<&str> {
            let routes = site.routes.iter().map(|route| &route.disk);
            let named = routes.chain([&site.disk]);
            named.filter_map(|disk| disk.engine.as_deref()).collect()
        }
        let named = self.sites.iter().flat_map(of_site);
        named
            .filter(|name| *name != levity_disk::engine::AUTO)
            .collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        let reader = Reader::new("", None);
        config(&Fields::empty(&reader, ""))
    }
}

/// Reads the text of a configuration file. Touches no disk: relative paths stay relative and folders
/// need not exist.
///
/// # Errors
///
/// Everything that is wrong, in the order of the text.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    read(text, None)
}

/// Reads a configuration file. Relative paths are taken from its folder, and every root must exist.
/// May block.
///
/// # Errors
///
/// Everything that is wrong, in the order of the file; also when it cannot be read, is not UTF-8 or
/// has more than [`FILE_BYTES_MAX`] bytes.
pub fn load(path: &Path) -> Result<Config, Errors> {
    let errors = |problems| Errors {
        file: path.to_owned(),
        problems,
    };
    let unread = |message: String| errors(vec![Problem::without_place(message)]);
    let text = text(path).map_err(unread)?;
    let file =
        std::path::absolute(path).map_err(|error| unread(format!("no such path: {error}")))?;
    read(&text, Some(file.parent().unwrap_or(Path::new("/")))).map_err(errors)
}

fn text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read the file: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file has more than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

fn read(text: &str, base: Option<&Path>) -> Result<Config, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::new(text, base);
    reader.syntax(document.get_ref(), errors);
    let root = Fields::root(&reader, document.get_ref());
    let upstreams = Upstreams::read(&root);
    let sites = site::sites(&root, &upstreams);
    upstreams.note_unused(&reader);
    let mut config = Config {
        sites,
        upstreams: upstreams.into_list(),
        ..config(&root)
    };
    config.notes = reader.take_notes();
    let problems = reader.into_problems();
    if problems.is_empty() {
        return Ok(config);
    }
    Err(of_another_server(text).map_or(problems, |problem| vec![problem]))
}

/// What to say of the configuration of another server, in place of everything that is wrong with it here.
fn of_another_server(text: &str) -> Option<Problem> {
    let (server, line) = recognise::recognise(text)?;
    let help = "a file for Levity is TOML, and as little as `[[site]]` with `root = \"/srv/www\"` beneath it will do";
    Some(Problem {
        message: format!("this is a configuration of {server}, not one for Levity"),
        place: Some(Source::new(text).place(&line)),
        help: Some(help.to_owned()),
    })
}

/// Without sites and upstreams.
fn config(root: &Fields<'_>) -> Config {
    let listen = listen(root);
    Config {
        server: server(&root.child("server")),
        disk: disk(&root.child("disk")),
        log: log(&root.child("log")),
        admin: admin(&root.child("admin"), &listen),
        limits: limits::read(&root.child("limits")),
        listen,
        own_names: None,
        sites: Vec::new(),
        upstreams: Vec::new(),
        notes: Vec::new(),
    }
}

fn server(fields: &Fields<'_>) -> Server {
    Server {
        workers: fields.auto_count("workers"),
        trusted_proxies: trusted_proxies(fields),
        etag: match fields.word("etag") {
            Some("mtime-size") => Etag::MtimeSize,
            _ => Etag::File,
        },
    }
}

fn trusted_proxies(fields: &Fields<'_>) -> TrustedProxies {
    let mut trusted = TrustedProxies::default();
    for Text { text, span } in fields.names("trusted_proxies").unwrap_or_default() {
        if text == "unix" {
            trusted.unix = true;
            continue;
        }
        match text.parse() {
            Ok(network) => trusted.networks.push(network),
            Err(_) if text.starts_with("unix:") => {
                let message = format!("`{text}` is not a network");
                let help = "\"unix\" trusts whoever connects over a Unix socket".to_owned();
                fields.reader.report(&span, message, Some(help));
            }
            Err(help) => {
                let message = format!("`{text}` is not a network");
                fields.reader.report(&span, message, Some(help));
            }
        }
    }
    trusted
}

fn listen(root: &Fields<'_>) -> Vec<Listen> {
    let mut seen: Vec<(Listen, usize)> = Vec::new();
    for fields in root.children("listen") {
        site::required(&fields, "address");
        let proxy_protocol = fields.boolean("proxy_protocol").unwrap_or(false);
        let Some(address) = address(&fields, "address") else {
            continue;
        };
        let listen = Listen {
            address,
            proxy_protocol,
        };
        let same = |(other, _): &&(Listen, usize)| other.address == listen.address;
        if let Some((first, line)) = seen.iter().find(same) {
            repeated(&fields, &listen, first, *line);
        }
        let taken = |(other, _): &&(Listen, usize)| other.address.overlaps(&listen.address);
        if let Some((first, line)) = seen.iter().find(taken) {
            let help = format!("that is on line {line}");
            let message = overlap(&first.address, &listen.address);
            fields.report("address", message, Some(help));
        }
        seen.push((listen, fields.reader.line(&fields.span_of("address"))));
    }
    if seen.is_empty() {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_USUAL)));
        return vec![address.into()];
    }
    seen.into_iter().map(|(listen, _)| listen).collect()
}

/// Port 0 may be asked for often, but who accepts there is told by address what to expect.
fn repeated(fields: &Fields<'_>, listen: &Listen, first: &Listen, line: usize) {
    let address = &listen.address;
    let help = Some(format!("the first is on line {line}"));
    if !address.is_ephemeral() {
        fields.report("address", format_args!("{address} is given twice"), help);
    } else if listen.proxy_protocol != first.proxy_protocol {
        let message = format_args!("the other {address} has it the other way");
        fields.report("proxy_protocol", message, help);
    }
}

/// What to say of two addresses of which one has the other's port already.
fn overlap(first: &Address, second: &Address) -> String {
    format!("{second} cannot be had beside {first}: one of them is every address of the machine")
}

fn address(fields: &Fields<'_>, name: &str) -> Option<Address> {
    let Text { text, span } = fields.text(name)?;
    let address = text
        .parse()
        .and_then(|address: Address| match fields.reader.base() {
            Some(base) => address.beneath(base),
            None => Ok(address),
        });
    let refuse = |reason: AddressError| {
        fields.reader.report(
            &span,
            format!("`{text}` is not an address"),
            Some(reason.to_string()),
        );
    };
    let address = address.map_err(refuse).ok()?;
    if let Address::Unix(path) = &address {
        fields.must_have_folder(name, path);
    }
    Some(address)
}

fn admin(fields: &Fields<'_>, listen: &[Listen]) -> Option<Admin> {
    let added = fields.names("hosts").unwrap_or_default();
    let added = added.iter().filter_map(|name| {
        if !matches!(name.text, "*" | "_") {
            return site::host_or_report(fields, name);
        }
        let help = "write the names out; `*.example.org` is every name beneath".to_owned();
        fields
            .reader
            .report(&name.span, "any name would let any web page in", Some(help));
        None
    });
    let names = OwnNames {
        added: added.collect(),
    };
    let listen = admin_address(fields, listen)?;
    Some(Admin { listen, names })
}

fn admin_address(fields: &Fields<'_>, listen: &[Listen]) -> Option<Address> {
    let address = address(fields, "listen")?;
    let short = fields.text("listen").is_some_and(|given| {
        given
            .text
            .trim_start_matches(':')
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    });
    if short {
        let help = "write 127.0.0.1:PORT, or [::]:PORT for everyone".to_owned();
        fields.report("listen", "a port alone would let everyone in", Some(help));
    } else if listen.iter().any(|listen| listen.address == address) && !address.is_ephemeral() {
        fields.report("listen", format_args!("clients connect to {address}"), None);
    } else if let Some(other) = listen
        .iter()
        .find(|listen| listen.address.overlaps(&address))
    {
        fields.report("listen", overlap(&other.address, &address), None);
    }
    Some(address)
}

fn disk(fields: &Fields<'_>) -> Disk {
    fields.less_than("stat_threads", "threads");
    fields.at_most("chunk", "buffer_bytes");
    let PlaceDisk {
        engine,
        chunk_bytes,
        direct,
    } = place_disk(fields);
    let disk = Disk {
        engine: engine.unwrap_or_else(|| levity_disk::engine::AUTO.to_owned()),
        threads: fields.auto_count("threads"),
        stat_threads: fields.auto_count("stat_threads"),
        depth: fields.auto_count("depth"),
        chunk_bytes,
        direct: direct.unwrap_or_default(),
        cache_bytes: fields.size("cache_bytes"),
        buffer_bytes: fields.size("buffer_bytes"),
        queue: fields.count("queue"),
        dead_after: fields.duration("dead_after"),
        entry_ttl: fields.duration("entry_ttl"),
        watch: match fields.word("watch") {
            Some("inotify") => Watch::Inotify,
            _ => Watch::Off,
        },
        spool: fields.folder("spool").unwrap_or_else(|| SPOOL.into()),
    };
    let fits = disk.threads > disk.stat_threads || disk.stat_threads.is_none();
    if fits && let Err(error) = disk.settings().check() {
        let key = if fields.has("threads") {
            "threads"
        } else {
            "depth"
        };
        let is_derived = fields.has("threads") && !fields.has("stat_threads");
        let help = is_derived
            .then(|| "`stat_threads` is an eighth of `threads` unless it is given".to_owned());
        fields.report(key, error, help);
    }
    disk
}

/// What `[disk]`, `[site.disk]` and `[site.route.disk]` have in common.
fn place_disk(fields: &Fields<'_>) -> PlaceDisk {
    PlaceDisk {
        engine: fields
            .word_or("engine", keys::engine_named)
            .map(str::to_owned),
        chunk_bytes: chunk_bytes(fields),
        direct: fields.word("direct").map(|word| match word {
            "always" => Direct::Always,
            "never" => Direct::Never,
            _ => Direct::Auto,
        }),
    }
}

fn chunk_bytes(fields: &Fields<'_>) -> Option<usize> {
    let bytes = fields.auto_size("chunk")?;
    if !bytes.is_multiple_of(CHUNK_STEP_BYTES) {
        fields.report(
            "chunk",
            format_args!("{bytes} bytes are no multiple of {CHUNK_STEP_BYTES}"),
            None,
        );
    }
    Some(bytes)
}

fn log(fields: &Fields<'_>) -> Log {
    let format = fields.word("format");
    Log {
        access: access(fields),
        format: match format {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Combined,
        },
        timing: timing(fields, format),
    }
}

fn timing(fields: &Fields<'_>, format: Option<&str>) -> LogTiming {
    let timing = match fields.word("timing") {
        Some("request") => LogTiming::Request,
        Some("chunk") => LogTiming::Chunk,
        _ => LogTiming::Off,
    };
    let is_combined = format == Some("combined") || !fields.has("format");
    if timing != LogTiming::Off && is_combined {
        let help = "write `format = \"json\"` beside it".to_owned();
        fields.report("timing", "only lines in JSON have room for it", Some(help));
    }
    timing
}

fn access(fields: &Fields<'_>) -> AccessLog {
    match fields.text("access").map(|given| given.text) {
        None | Some("stdout") => AccessLog::Stdout,
        Some("off") => AccessLog::Off,
        Some(path) if path.contains('/') && !path.ends_with('/') => {
            let Some(file) = fields.path("access") else {
                return AccessLog::Off;
            };
            fields.must_have_folder("access", &file);
            AccessLog::File(file)
        }
        Some(word) => {
            let help = format!("for a file write \"./{word}\"");
            let help = if word.contains('/') || word.is_empty() {
                None
            } else {
                Some(help)
            };
            fields.report(
                "access",
                "expected \"off\", \"stdout\" or the path of a file",
                help,
            );
            AccessLog::Off
        }
    }
}
