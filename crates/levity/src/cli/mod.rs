//! The command line: arguments in, the next [`Step`] out.

mod access;
#[cfg(feature = "tls")]
mod certs;
mod check;
mod control;
mod explain;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(all(test, feature = "default"))]
mod manual;
mod passwd;
#[cfg(feature = "compress")]
mod precompress;
mod serve;
mod streams;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use levity_config::{AdminPlaces, Errors, Feature, Variables};
use levity_disk::patiently;

use self::serve::Flags;
pub use self::streams::{Streams, colour};
pub use crate::process::explain::Question;
use crate::process::plan::{Overrides, Plan};
use crate::process::signals::EarlySignals;

/// The configuration of a server that is given none.
const USUAL_FILE: &str = "/etc/levity/levity.toml";

/// Exit status when something fails while running.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status for wrong arguments.
pub const EXIT_USAGE: u8 = 2;
/// Exit status for a configuration with errors: `EX_CONFIG` of sysexits(3).
pub const EXIT_CONFIG: u8 = 78;

/// The exit status for a configuration with `errors`. One that does not respond may have none: a service that is not restarted after
/// [`EXIT_CONFIG`] has to be tried again.
fn exit_of(errors: &Errors) -> u8 {
    match errors.is_silent {
        true => EXIT_FAILURE,
        false => EXIT_CONFIG,
    }
}

const EXAMPLES: &str = "\
levity serve                  serve this folder at http://127.0.0.1:8080
levity serve --listen 8080 ~/Public
                              serve a folder to everyone who can reach this machine
levity run levity.toml        serve what a configuration file says

levity --help says more.
";

/// The next step after the command line was read.
#[derive(Debug)]
pub enum Step {
    /// Run a server.
    Serve(Box<Plan>, EarlySignals),
    /// Show the figures of a running server.
    #[cfg(feature = "inspect")]
    Top(levity_inspect::top::Options),
    /// Explain a request.
    Explain(Box<Question>),
    /// Nothing is left to do: exit with this status.
    Exit(u8),
}

/// A web server whose event loop never waits for the disk.
#[derive(Parser)]
#[command(name = "levity", version, long_version = long_version())]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

/// The version, and the features of the build in a line of its own.
fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let built = Feature::ALL.iter().filter(|feature| feature.is_built());
        let names: Vec<_> = built.map(|feature| feature.name()).collect();
        let features = match &names[..] {
            [] => "none".to_owned(),
            names => names.join(" "),
        };
        format!("{}\nfeatures: {features}", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}

#[derive(Subcommand)]
enum Command {
    /// Serve a folder or a single file, without configuration
    Serve(serve::Options),
    /// Serve the sites of a configuration
    Run {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        flags: Flags,
    },
    /// Report every error in a configuration
    Check {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        environment: Environment,
        #[command(flatten)]
        options: check::Options,
        #[command(flatten)]
        patience: serve::Patience,
    },
    /// List the certificates of a configuration: names, source, end, and what has failed
    ///
    /// They are read from their files. The exit status is 1 if one has expired, is missing or cannot be read. Of
    /// certificates of the authority of this machine, which a server has in memory only, the end is that of the
    /// authority.
    ///
    /// `levity certs FILE --retry` has running servers try again at once to get certificates by ACME, whatever pause was left.
    #[cfg(feature = "tls")]
    Certs {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        environment: Environment,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Try again to get certificates for these names, or for all that have failed
        #[arg(long, value_name = "NAME", num_args = 0.., conflicts_with = "json")]
        retry: Option<Vec<String>>,
    },
    /// Say what decides about a request: site, route, gates, file, headers
    ///
    /// The request is answered by the files of the configuration, but nothing listens, no upstream is asked, and nothing is
    /// written.
    Explain(explain::Options),
    /// Write compressed variants beside the files of a folder, for `precompressed`
    ///
    /// Each file of a media type that `compress` handles by default, and of at least 256 bytes, gets NAME.zst, NAME.br
    /// and NAME.gz, each at the highest level, if that saves 5 % or more. A variant that is not older than its file is
    /// kept. Symbolic links are not followed, and names with a leading dot are left out. With the configuration of the
    /// server, so are the files that it sends to nobody.
    #[cfg(feature = "compress")]
    Precompress(precompress::Options),
    /// Have a running server read its configuration again
    ///
    /// The server is asked through the socket that `control` of `[admin]` names. The exit status is 1 if it cannot be asked, and with
    /// `--wait` also if it keeps its old configuration.
    Reload {
        #[command(flatten)]
        socket: control::Socket,
        /// Wait for the outcome, and print why the server keeps its old configuration
        #[arg(long)]
        wait: bool,
    },
    /// Ask a running server whether its event loops answer
    ///
    /// The server is asked through the socket that `control` of `[admin]` names, or else at its `listen`. The exit status is 1 if it
    /// cannot be asked, or if a loop does not answer: for health checks of containers, which need no other program.
    Health {
        #[command(flatten)]
        socket: control::Socket,
    },
    /// Print a line with a user and a hashed password, for the file that `basic_auth` names
    ///
    /// The password is read from the terminal, or from the first line of standard input. The hash is one of Argon2id.
    Passwd {
        /// The name of the user
        #[arg(value_name = "USER")]
        user: String,
    },
    #[cfg(feature = "inspect")]
    #[command(flatten)]
    Inspect(inspect::Command),
}

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
struct ConfigFile {
    /// The configuration file [default: /etc/levity/levity.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration file, as an option
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// The file for `usage`, a command with its arguments.
    ///
    /// # Errors
    /// The exit status when none is given, and there is none at the usual place. May block.
    fn path(self, usage: &str, streams: &mut Streams<'_>) -> Result<PathBuf, u8> {
        given_or_usual(self.file.or(self.config), usage, streams)
    }
}

/// As [`ConfigFile::path`].
fn given_or_usual(
    given: Option<PathBuf>,
    usage: &str,
    streams: &mut Streams<'_>,
) -> Result<PathBuf, u8> {
    given.or_else(usual_file).ok_or_else(|| {
        streams.err(&format!(
            "error: there is no {USUAL_FILE}; name another file: {usage}\n"
        ));
        EXIT_CONFIG
    })
}

/// The configuration at the usual place, unless there is none. May block.
fn usual_file() -> Option<PathBuf> {
    let usual = Path::new(USUAL_FILE);
    let is_absent = matches!(patiently(usual, Path::try_exists), Ok(Ok(false)));
    (!is_absent).then(|| usual.to_owned())
}

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
struct Environment {
    /// Take values of `${NAME}` from the lines NAME=VALUE of this file; others are those of the environment
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

impl Environment {
    /// Where the values of `${NAME}` come from. May block.
    ///
    /// # Errors
    /// The exit status when the file cannot be used, which has been told.
    fn variables(&self, streams: &mut Streams<'_>) -> Result<Variables, u8> {
        Variables::of_command("--env-file", self.env_file.as_deref()).map_err(|reason| {
            streams.err(&format!("error: {reason}\n"));
            EXIT_CONFIG
        })
    }
}

/// Where the server of a configuration is asked. May block.
///
/// # Errors
/// The exit status, after a message; see [`levity_config::load_admin`].
fn admin_places(
    file: &Path,
    environment: &Environment,
    is_enough: fn(&AdminPlaces) -> bool,
    streams: &mut Streams<'_>,
) -> Result<AdminPlaces, u8> {
    let variables = environment.variables(streams)?;
    levity_config::load_admin(file, &variables, is_enough).map_err(|errors| {
        streams.err(&errors.render(streams.colour));
        EXIT_CONFIG
    })
}

/// Reads the command line (`args` begins with the name of the program) and does what needs no server:
/// help, examples, checks. May block on the file system.
pub fn step(args: impl IntoIterator<Item = OsString>, streams: &mut Streams<'_>) -> Step {
    let args: Vec<OsString> = args.into_iter().collect();
    match Arguments::try_parse_from(&args) {
        Ok(arguments) => command(arguments.command, streams).unwrap_or_else(Step::Exit),
        Err(error) => usage(&error, args.get(1), streams),
    }
}

/// The step after a command; an exit status when a file that it needs cannot be used.
fn command(command: Option<Command>, streams: &mut Streams<'_>) -> Result<Step, u8> {
    Ok(match command {
        Some(Command::Serve(options)) => serve::serve(options, streams),
        Some(Command::Run { file, flags }) => {
            let file = file.path("levity run FILE", streams)?;
            serve::run(file, &flags, streams)
        }
        Some(Command::Check {
            file,
            environment,
            options,
            patience,
        }) => {
            patience.apply();
            let file = file.path("levity check FILE", streams)?;
            let variables = environment.variables(streams)?;
            Step::Exit(check::check(&file, &variables, &options, streams))
        }
        #[cfg(feature = "tls")]
        Some(Command::Certs {
            file,
            environment,
            json,
            retry,
        }) => {
            let file = file.path("levity certs FILE", streams)?;
            let variables = environment.variables(streams)?;
            let config = certs::configuration(&file, &variables, json, streams)?;
            Step::Exit(match retry {
                Some(names) => certs::retry(&file, &config, &names, streams),
                None => certs::certs(&file, &config, json, streams),
            })
        }
        Some(Command::Reload { socket, wait }) => {
            Step::Exit(control::reload(&socket, wait, streams))
        }
        Some(Command::Health { socket }) => Step::Exit(control::health(&socket, streams)),
        Some(Command::Explain(options)) => explain::explain(options, streams)?,
        Some(Command::Passwd { user }) => Step::Exit(passwd::run(&user, streams)),
        #[cfg(feature = "compress")]
        Some(Command::Precompress(options)) => Step::Exit(precompress::run(&options, streams)),
        #[cfg(feature = "inspect")]
        Some(Command::Inspect(command)) => inspect::step(command, streams)?,
        None => {
            streams.err(EXAMPLES);
            Step::Exit(EXIT_USAGE)
        }
    })
}

/// The commands of features, which a build may lack.
const OF_FEATURES: [(&str, Feature); 5] = [
    ("certs", Feature::Tls),
    ("mailbox", Feature::Inspect),
    ("precompress", Feature::Compress),
    ("timing", Feature::Inspect),
    ("top", Feature::Inspect),
];

/// Why `command` is none here, if only the feature is missing.
fn absent_command(command: &OsString) -> Option<String> {
    let mut absent = OF_FEATURES.iter().filter(|(_, of)| !of.is_built());
    let (name, feature) = absent.find(|(name, _)| command == name)?;
    let reason = feature.lacking(&format!("`{name}`"));
    Some(format!("error: {reason}\n"))
}

/// Help and version are data; anything else is a message. `command` is the first word of the command line.
fn usage(error: &clap::Error, command: Option<&OsString>, streams: &mut Streams<'_>) -> Step {
    if let Some(reason) = command.and_then(absent_command) {
        streams.err(&reason);
        return Step::Exit(EXIT_USAGE);
    }
    let text = error.render();
    match (error.use_stderr(), streams.colour) {
        (false, _) => streams.out(&text.to_string()),
        (true, false) => streams.err(&text.to_string()),
        (true, true) => streams.err(&text.ansi().to_string()),
    }
    Step::Exit(if error.use_stderr() { EXIT_USAGE } else { 0 })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::CommandFactory as _;

    pub struct Ran {
        pub step: Step,
        pub out: String,
        pub err: String,
    }

    impl Ran {
        pub fn plan(self) -> Plan {
            match self.step {
                Step::Serve(plan, _) => *plan,
                Step::Exit(status) => panic!("exit {status}: {}", self.err),
                _ => panic!("no server"),
            }
        }

        #[track_caller]
        pub fn exits(&self, status: u8) {
            assert!(
                matches!(self.step, Step::Exit(s) if s == status),
                "{:?} {}",
                self.step,
                self.err
            );
        }
    }

    pub fn levity(args: &[&str]) -> Ran {
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

    pub struct Folder(tempfile::TempDir);

    impl Folder {
        pub fn new() -> Self {
            Folder(tempfile::tempdir().unwrap())
        }

        pub fn write(&self, name: &str, text: &str) -> String {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }

        pub fn path(&self) -> &str {
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
        let number = format!("levity {}\n", env!("CARGO_PKG_VERSION"));
        let features = version.out.strip_prefix(&number);
        let features = features.and_then(|rest| rest.strip_prefix("features: "));
        let features: Vec<_> = features.expect("a line").split_whitespace().collect();
        let has = |feature: &Feature| features.contains(&feature.name());
        assert!(Feature::ALL.iter().all(|one| has(one) == one.is_built()));
        assert_eq!(levity(&["-V"]).out, number);
    }

    #[test]
    fn usage_errors() {
        for args in [
            &["serv"][..],
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
                .contains("names are not resolved")
        );
    }

    #[test]
    fn commands_of_features_are_there_or_name_the_feature() {
        let commands = <Arguments as clap::CommandFactory>::command();
        let names = commands.get_subcommands().map(clap::Command::get_name);
        let of_features = |name: &&str| OF_FEATURES.iter().any(|(of, _)| of == name);
        let in_each_build: Vec<_> = names.filter(|name| !of_features(name)).collect();
        let expected = [
            "serve", "run", "check", "explain", "reload", "health", "passwd",
        ];
        assert_eq!(in_each_build, expected);
        for (name, feature) in OF_FEATURES {
            let ran = levity(&[name, "--help"]);
            let message = format!(
                "error: `{name}` is not in this build: it needs the feature `{}`\n",
                feature.name()
            );
            match feature.is_built() {
                true => assert!(ran.out.contains("Usage: levity"), "{name}: {}", ran.err),
                false => assert_eq!(ran.err, message),
            }
        }
    }

    #[test]
    fn the_usual_file_is_named_if_it_is_missing() {
        if Path::new(USUAL_FILE).exists() {
            return;
        }
        for (args, usage) in [
            (&["run"][..], "levity run FILE"),
            (&["check"], "levity check FILE"),
            (&["certs"], "levity certs FILE"),
            (&["explain", "/"], "levity explain -c FILE URL"),
        ] {
            if args == ["certs"] && !Feature::Tls.is_built() {
                continue;
            }
            let ran = levity(args);
            ran.exits(EXIT_CONFIG);
            let error = format!("error: there is no {USUAL_FILE}; name another file: {usage}\n");
            assert_eq!(ran.err, error);
        }
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
}
