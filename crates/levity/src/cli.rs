//! The command line: arguments in, the next [`Step`] out.

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde_json::json;

use crate::address::{Address, AddressError};
use crate::config::{self, Config, Errors, Listen, PlaceDisk, Site, Symlinks, keys};
use crate::timing;
use crate::top;

/// Exit status when something fails while running.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status for arguments that make no sense.
pub const EXIT_USAGE: u8 = 2;
/// Exit status for a configuration with errors: `EX_CONFIG` of sysexits(3).
pub const EXIT_CONFIG: u8 = 78;

/// Where `levity top` asks when nothing says otherwise: the address of the examples.
const ADMIN_USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

const EXAMPLES: &str = "\
levity serve                  serve this folder at http://127.0.0.1:8080
levity serve --listen 8080 ~/Public
                              serve a folder to everyone who can reach this machine
levity run -c levity.toml     serve what a configuration file says

levity --help says more.
";

/// What to do after the command line has been read.
#[derive(Debug)]
pub enum Step {
    /// Run a server.
    Serve(Box<Plan>),
    /// Show the figures of a running server.
    Top(top::Options),
    /// Nothing is left to do: exit with this status.
    Exit(u8),
}

/// What a server is to do, and how to look it up again.
#[derive(Debug, Clone)]
pub struct Plan {
    /// With the overrides applied.
    pub config: Config,
    /// The file to read again on SIGHUP; `None` when there is none.
    pub source: Option<PathBuf>,
    /// Flags, which beat the file.
    pub overrides: Overrides,
    /// Trap file calls that may block on the threads of event loops. For tests.
    pub guard: bool,
    /// This is `levity serve`: print the URL and what the disk engine is.
    pub serve: bool,
}

/// Flags that beat the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Instead of every address of the file, unless empty.
    pub listen: Vec<Address>,
    /// Instead of `disk.engine`.
    pub engine: Option<String>,
    /// Instead of `server.workers`.
    pub workers: Option<usize>,
}

impl Overrides {
    fn apply(&self, mut config: Config) -> Config {
        if !self.listen.is_empty() {
            config.listen = self.listen.iter().cloned().map(Listen::from).collect();
        }
        if let Some(engine) = &self.engine {
            config.disk.engine.clone_from(engine);
        }
        config.server.workers = self.workers.or(config.server.workers);
        config
    }
}

impl Plan {
    /// The configuration as its file says it now, with the overrides; without a file the same one
    /// again. May block.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the file.
    pub fn reload(&self) -> Result<Config, Errors> {
        match &self.source {
            Some(file) => Ok(self.overrides.apply(config::load(file)?)),
            None => Ok(self.config.clone()),
        }
    }
}

/// A web server whose event loop never waits for the disk.
#[derive(Parser)]
#[command(name = "levity", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a folder or a single file, without configuration
    Serve {
        /// What to serve
        #[arg(value_name = "DIR", default_value = ".")]
        what: PathBuf,
        #[command(flatten)]
        flags: Flags,
    },
    /// Serve what a configuration file says
    Run {
        /// The configuration file
        #[arg(short, long = "config", value_name = "FILE")]
        config: PathBuf,
        #[command(flatten)]
        flags: Flags,
    },
    /// Show everything that is wrong with a configuration file
    Check {
        /// The configuration file
        #[arg(short, long = "config", value_name = "FILE")]
        config: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a running server does, each second; q or Ctrl-C ends it
    Top {
        /// Its admin listener: ADDRESS:PORT or unix:PATH [default: 127.0.0.1:9180]
        #[arg(value_name = "ADDR", value_parser = admin_address)]
        address: Option<Address>,
        /// Take the address from this configuration file
        #[arg(
            short,
            long = "config",
            value_name = "FILE",
            conflicts_with = "address"
        )]
        config: Option<PathBuf>,
        /// Print one frame without colour and end; so it is when standard output is no terminal
        #[arg(long)]
        once: bool,
    },
    /// Tell from a JSON access log where the time of its requests went
    Timing {
        /// The log; - is standard input. `format = "json"` and `timing = "chunk"` under [log] make one
        #[arg(value_name = "LOG")]
        log: PathBuf,
        /// Draw every wait, read and write over time into a picture
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Flags {
    /// Where clients connect: PORT, :PORT, ADDRESS:PORT, [IPv6]:PORT or unix:PATH; may be repeated, and
    /// replaces what the configuration says [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// What reads files: auto, threads, io_uring, linux-aio, readahead, posix-aio or
    /// sendfile
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<String>,
    /// Number of event loops [default: one per core]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    #[arg(long, hide = true)]
    guard: bool,
}

impl Flags {
    fn overrides(&self) -> Overrides {
        let Flags {
            listen,
            engine,
            workers,
            ..
        } = self;
        Overrides {
            listen: listen.clone(),
            engine: engine.clone(),
            workers: *workers,
        }
    }

    /// The first address that is given twice; both would ask for the same port.
    fn duplicate(&self) -> Option<&Address> {
        let twice = |(at, address): (usize, &Address)| {
            !address.is_ephemeral() && self.listen[..at].contains(address)
        };
        self.listen
            .iter()
            .enumerate()
            .find(|&(at, address)| twice((at, address)))
            .map(|(_, address)| address)
    }
}

fn engine(name: &str) -> Result<String, String> {
    if let Some(name) = keys::engine_named(name) {
        return Ok(name.to_owned());
    }
    Err(match keys::nearest(name, keys::ENGINES.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("one of {}", keys::ENGINES.join(", ")),
    })
}

fn workers(text: &str) -> Result<usize, String> {
    let kind = keys::Kind::Count(keys::WORKERS);
    let number = kind
        .quantity(text)
        .map_err(|_| format!("expected {}", kind.expected()))?;
    let number = kind.check(number)?;
    usize::try_from(number).map_err(|error| error.to_string())
}

/// Where answers and messages go.
pub struct Streams<'s> {
    /// Data: what was asked for.
    pub out: &'s mut dyn Write,
    /// Messages for people.
    pub err: &'s mut dyn Write,
    /// Whether messages may be coloured.
    pub colour: bool,
}

/// Whether messages may be coloured: for people at a terminal who have not declined it. `no_color` and
/// `term` are the variables `NO_COLOR` (<https://no-color.org>) and `TERM`.
#[must_use]
pub fn colour(terminal: bool, no_color: Option<OsString>, term: Option<OsString>) -> bool {
    terminal
        && no_color.is_none_or(|value| value.is_empty())
        && term.is_none_or(|term| term != "dumb")
}

impl Streams<'_> {
    // A reader that has gone away is no reason to fail, and the exit status still says what was found.
    fn out(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes());
    }

    fn err(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
    }
}

/// Reads the command line (`args` begins with the name of the program) and does what needs no server:
/// help, examples, checks. May block on the file system.
pub fn step(args: impl IntoIterator<Item = OsString>, streams: &mut Streams<'_>) -> Step {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error, streams),
    };
    match arguments.command {
        Some(Command::Serve { what, flags }) => {
            with(&flags, streams, |streams| serve(&what, &flags, streams))
        }
        Some(Command::Run { config, flags }) => {
            with(&flags, streams, |streams| run(config, &flags, streams))
        }
        Some(Command::Check { config, json }) => Step::Exit(check(&config, json, streams)),
        Some(Command::Top {
            address,
            config,
            once,
        }) => top(address, config.as_deref(), once, streams),
        Some(Command::Timing { log, svg, json }) => {
            Step::Exit(timing::run(&timing::Options { log, svg, json }, streams))
        }
        None => {
            streams.err(EXAMPLES);
            Step::Exit(EXIT_USAGE)
        }
    }
}

/// Help and version are data; anything else is a message.
fn usage(error: &clap::Error, streams: &mut Streams<'_>) -> Step {
    let text = error.render();
    match (error.use_stderr(), streams.colour) {
        (false, _) => streams.out(&text.to_string()),
        (true, false) => streams.err(&text.to_string()),
        (true, true) => streams.err(&text.ansi().to_string()),
    }
    Step::Exit(if error.use_stderr() { EXIT_USAGE } else { 0 })
}

fn with(
    flags: &Flags,
    streams: &mut Streams<'_>,
    next: impl FnOnce(&mut Streams<'_>) -> Step,
) -> Step {
    if let Some(address) = flags.duplicate() {
        streams.err(&format!("error: --listen {address} is given twice\n"));
        return Step::Exit(EXIT_USAGE);
    }
    next(streams)
}

fn serve(what: &Path, flags: &Flags, streams: &mut Streams<'_>) -> Step {
    match site(what) {
        Ok(site) => {
            let mut config = Config {
                sites: vec![site],
                ..Config::default()
            };
            // A saved file is visible at once.
            config.disk.entry_ttl = Duration::ZERO;
            let overrides = flags.overrides();
            let config = overrides.apply(config);
            Step::Serve(Box::new(Plan {
                config,
                source: None,
                overrides,
                guard: flags.guard,
                serve: true,
            }))
        }
        Err(reason) => {
            streams.err(&format!(
                "error: cannot serve {}: {reason}\n",
                what.display()
            ));
            Step::Exit(EXIT_FAILURE)
        }
    }
}

fn site(what: &Path) -> Result<Site, String> {
    let path = std::path::absolute(what).map_err(|error| error.to_string())?;
    let meta = std::fs::metadata(&path).map_err(|error| error.to_string())?;
    let (root, only) = if meta.is_dir() {
        (path, None)
    } else if meta.is_file() {
        let name = path
            .file_name()
            .map(OsString::from)
            .ok_or("it has no name")?;
        (
            path.parent().unwrap_or(Path::new("/")).to_owned(),
            Some(name),
        )
    } else {
        return Err("it is neither a folder nor a file".to_owned());
    };
    Ok(Site {
        hosts: Vec::new(),
        root: Some(root),
        proxying: config::Proxying::default(),
        listing: only.is_none(),
        index: vec!["index.html".to_owned()],
        precompressed: Vec::new(),
        // One file was asked for by name, wherever a link of that name leads.
        symlinks: if only.is_some() {
            Symlinks::Follow
        } else {
            Symlinks::Beneath
        },
        server_timing: false,
        only,
        disk: PlaceDisk::default(),
        routes: Vec::new(),
    })
}

fn run(file: PathBuf, flags: &Flags, streams: &mut Streams<'_>) -> Step {
    match config::load(&file) {
        Ok(config) => {
            let overrides = flags.overrides();
            let config = overrides.apply(config);
            Step::Serve(Box::new(Plan {
                config,
                source: Some(file),
                overrides,
                guard: flags.guard,
                serve: false,
            }))
        }
        Err(errors) => {
            streams.err(&errors.render(streams.colour));
            Step::Exit(EXIT_CONFIG)
        }
    }
}

fn check(file: &Path, json: bool, streams: &mut Streams<'_>) -> u8 {
    let result = config::load(file);
    let status = if result.is_ok() { 0 } else { EXIT_CONFIG };
    match result {
        Ok(config) if json => {
            let file = file.to_string_lossy();
            let notes = config.notes;
            let answer = json!({ "file": file, "ok": true, "problems": [], "notes": notes });
            streams.out(&format!("{answer}\n"));
        }
        Ok(config) => {
            for note in config.notes {
                streams.err(&format!("note: {}: {note}\n", file.display()));
            }
            streams.out(&format!("{}: ok\n", file.display()));
        }
        Err(errors) if json => streams.out(&format!("{}\n", errors.to_json())),
        Err(errors) => streams.err(&errors.render(streams.colour)),
    }
    status
}

/// An address, also as the URL by which a server tells of its admin listener.
fn admin_address(text: &str) -> Result<Address, AddressError> {
    match text.strip_prefix("http://") {
        Some(rest) => rest.strip_suffix('/').unwrap_or(rest).parse(),
        None => text.parse(),
    }
}

fn top(
    address: Option<Address>,
    file: Option<&Path>,
    once: bool,
    streams: &mut Streams<'_>,
) -> Step {
    let address = match (address, file) {
        (Some(address), _) => address,
        (None, None) => Address::Tcp(ADMIN_USUAL),
        (None, Some(file)) => match admin(file, streams) {
            Ok(address) => address,
            Err(status) => return Step::Exit(status),
        },
    };
    Step::Top(top::Options { address, once })
}

/// The admin listener of a configuration; an exit status when there is none.
fn admin(file: &Path, streams: &mut Streams<'_>) -> Result<Address, u8> {
    let config = config::load(file).map_err(|errors| {
        streams.err(&errors.render(streams.colour));
        EXIT_CONFIG
    })?;
    config.admin.ok_or_else(|| {
        let file = file.display();
        streams.err(&format!(
            "error: {file} has no admin listener; add `[admin]` with `listen = \"{ADMIN_USUAL}\"` and \
             reload the server\n"
        ));
        EXIT_FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    struct Ran {
        step: Step,
        out: String,
        err: String,
    }

    impl Ran {
        fn plan(self) -> Plan {
            match self.step {
                Step::Serve(plan) => *plan,
                Step::Top(_) => panic!("no server"),
                Step::Exit(status) => panic!("exit {status}: {}", self.err),
            }
        }

        #[track_caller]
        fn exits(&self, status: u8) {
            assert!(
                matches!(self.step, Step::Exit(s) if s == status),
                "{:?} {}",
                self.step,
                self.err
            );
        }
    }

    fn levity(args: &[&str]) -> Ran {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("levity")
            .chain(args.iter().copied())
            .map(OsString::from);
        let step = step(
            args,
            &mut Streams {
                out: &mut out,
                err: &mut err,
                colour: false,
            },
        );
        Ran {
            step,
            out: String::from_utf8(out).unwrap(),
            err: String::from_utf8(err).unwrap(),
        }
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Folder(tempfile::tempdir().unwrap())
        }

        fn write(&self, name: &str, text: &str) -> String {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }

        fn path(&self) -> &str {
            self.0.path().to_str().unwrap()
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn bare_levity_shows_three_examples() {
        let ran = levity(&[]);
        ran.exits(EXIT_USAGE);
        assert_eq!(
            ran.err
                .lines()
                .filter(|line| line.starts_with("levity ") && !line.contains("--help"))
                .count(),
            3
        );
        assert!(ran.out.is_empty());
    }

    #[test]
    fn help_and_version_are_data() {
        let help = levity(&["serve", "--help"]);
        help.exits(0);
        assert!(
            help.out.contains("--listen <ADDR>")
                && !help.out.contains("--guard")
                && help.err.is_empty()
        );
        let version = levity(&["--version"]);
        version.exits(0);
        assert_eq!(
            version.out,
            format!("levity {}\n", env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn usage_errors() {
        for args in [
            &["serv"][..],
            &["run"],
            &["check"],
            &["serve", "--listen", "example.org:80"],
            &["serve", "--engine", "aio"],
            &["serve", "--workers", "0"],
            &["serve", "--workers", "x"],
            &["serve", "--listen", "8080", "--listen", ":8080"],
            &["serve", "a", "b"],
        ] {
            let ran = levity(args);
            ran.exits(EXIT_USAGE);
            assert!(
                ran.out.is_empty() && !ran.err.is_empty() && !ran.err.contains('\x1b'),
                "{args:?}"
            );
        }
        assert!(
            levity(&["serve", "--engine", "thread"])
                .err
                .contains("did you mean `threads`?")
        );
        assert!(
            levity(&["serve", "--listen", "a:80"])
                .err
                .contains("names are not looked up")
        );
    }

    #[test]
    fn messages_are_coloured_only_when_asked() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = ["levity", "serv"].map(OsString::from);
        step(
            args,
            &mut Streams {
                out: &mut out,
                err: &mut err,
                colour: true,
            },
        );
        assert!(String::from_utf8(err).unwrap().contains('\x1b'));
    }

    #[test]
    fn colour_is_for_people_who_want_it() {
        let some = |text: &str| Some(OsString::from(text));
        assert!(colour(true, None, some("xterm")) && colour(true, some(""), None));
        assert!(!colour(false, None, some("xterm")));
        assert!(!colour(true, some("1"), some("xterm")) && !colour(true, None, some("dumb")));
    }

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
            (site.root.as_deref().unwrap(), site.listing, &site.only),
            (Path::new(folder.path()), true, &None)
        );
        assert_eq!(plan.reload().unwrap(), plan.config);
    }

    #[test]
    fn serve_this_folder_by_default() {
        let plan = levity(&["serve"]).plan();
        assert_eq!(
            plan.config.sites[0].root.as_deref(),
            Some(std::env::current_dir().unwrap().as_ref())
        );
    }

    #[test]
    fn serve_one_file() {
        let folder = Folder::new();
        let file = folder.write("a b.txt", "x");
        let plan = levity(&["serve", &file]).plan();
        let site = &plan.config.sites[0];
        assert_eq!(site.root.as_deref(), Some(Path::new(folder.path())));
        assert_eq!(site.only.as_deref(), Some("a b.txt".as_ref()));
        assert!(!site.listing && site.symlinks == Symlinks::Follow);
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

    #[test]
    fn flags_beat_the_file_also_after_a_reload() {
        let folder = Folder::new();
        let text = "[server]\nworkers = 7\n[disk]\nengine = \"threads\"\nqueue = 99\n[[site]]\nroot = \".\"\n";
        let file = folder.write("levity.toml", text);
        let flags = [
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "unix:s",
            "--engine",
            "sendfile",
            "--workers",
            "3",
        ];
        let plan = levity(&[&["run", "-c", &file, "--guard"], &flags[..]].concat()).plan();
        let beaten = |config: &Config| {
            let listen = ["127.0.0.1:0", "unix:s"].map(|text| text.parse::<Address>().unwrap());
            assert_eq!(config.listen, listen.map(Listen::from));
            assert_eq!(
                (config.disk.engine.as_str(), config.server.workers),
                ("sendfile", Some(3))
            );
        };
        beaten(&plan.config);
        assert_eq!(plan.config.disk.queue, 99);
        assert!(plan.guard && !plan.serve);
        folder.write("levity.toml", &text.replace("99", "100"));
        let reloaded = plan.reload().unwrap();
        beaten(&reloaded);
        assert_eq!(reloaded.disk.queue, 100);
        folder.write("levity.toml", "nonsense");
        assert!(plan.reload().is_err());
    }

    #[test]
    fn the_file_holds_without_flags() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[server]\nworkers = 7\n[[site]]\nroot = \".\"\n",
        );
        let plan = levity(&["run", "--config", &file]).plan();
        assert_eq!(plan.config.server.workers, Some(7));
        assert_eq!(
            plan.config.sites[0].root.as_deref(),
            Some(Path::new(folder.path()))
        );
    }

    fn topped(args: &[&str]) -> top::Options {
        match levity(args).step {
            Step::Top(options) => options,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn top_asks_where_it_is_told() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[admin]\nlisten = \"unix:admin\"\n[[site]]\nroot = \".\"\n",
        );
        let beside = format!("unix:{}/admin", folder.path());
        for (args, address, once) in [
            (&["top"][..], "127.0.0.1:9180", false),
            (&["top", "--once"], "127.0.0.1:9180", true),
            (&["top", "[::1]:7"], "[::1]:7", false),
            (&["top", "unix:x"], "unix:x", false),
            (&["top", "http://127.0.0.1:7/"], "127.0.0.1:7", false),
            (&["top", "http://[::1]:7"], "[::1]:7", false),
            (&["top", "-c", &file], &beside, false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(topped(args), top::Options { address, once });
        }
    }

    #[test]
    fn top_says_what_it_lacks() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["top", "-c", &file]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.err.contains("no admin listener"), "{}", ran.err);
        folder.write("levity.toml", "nonsense");
        levity(&["top", "-c", &file]).exits(EXIT_CONFIG);
        levity(&["top", "-c", &file, "unix:x"]).exits(EXIT_USAGE);
        levity(&["top", "example.org:9180"]).exits(EXIT_USAGE);
        levity(&["top", "http://127.0.0.1:7/x"]).exits(EXIT_USAGE);
    }

    #[test]
    fn check_says_ok() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        assert_eq!((ran.out, ran.err), (format!("{file}: ok\n"), String::new()));
        let json = levity(&["check", "-c", &file, "--json"]);
        json.exits(0);
        let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(
            answer,
            json!({ "file": file, "ok": true, "problems": [], "notes": [] })
        );
    }

    #[test]
    fn check_shows_every_problem() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[disk]\nenigne = 1\n[[site]]\nroot = \"absent\"\n",
        );
        for command in ["check", "run"] {
            let ran = levity(&[command, "-c", &file]);
            ran.exits(EXIT_CONFIG);
            assert!(ran.out.is_empty());
            assert_eq!(ran.err.matches("error: ").count(), 2, "{}", ran.err);
            assert!(
                ran.err.contains(&format!("--> {file}:2:1\n")),
                "{}",
                ran.err
            );
        }
        let json = levity(&["check", "-c", &file, "--json"]);
        json.exits(EXIT_CONFIG);
        let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(answer["problems"].as_array().unwrap().len(), 2);
        assert_eq!(answer["problems"][1]["line"], 4);
        assert!(json.err.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_configuration_error() {
        let folder = Folder::new();
        let file = format!("{}/absent.toml", folder.path());
        let ran = levity(&["check", "-c", &file]);
        ran.exits(EXIT_CONFIG);
        assert!(
            ran.err.contains("cannot read the file") && ran.err.contains(&file),
            "{}",
            ran.err
        );
    }
}
