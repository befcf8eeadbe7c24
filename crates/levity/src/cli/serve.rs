//! `levity serve` and `levity run`: from flags to a [`Plan`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{EXIT_CONFIG, EXIT_FAILURE, EXIT_USAGE, Overrides, Plan, Step, Streams};
use crate::address::Address;
use crate::config::{self, Config, OwnNames, PlaceDisk, Site, Symlinks, keys};

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub(super) struct Flags {
    /// Where clients connect: PORT, :PORT, ADDRESS:PORT, [IPv6]:PORT or unix:PATH; may be repeated.
    /// Without it what the configuration file says, or 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// What reads files: auto, threads, io_uring, linux-aio, readahead, posix-aio or
    /// sendfile
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<String>,
    /// Number of event loops. Without it what the configuration file says, or one per core
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    #[arg(long, hide = true)]
    guard: bool,
}

impl Flags {
    /// What to do with `config`, which is that of the file `source`.
    fn plan(&self, config: Config, source: Option<PathBuf>) -> Plan {
        let overrides = Overrides {
            listen: self.listen.clone(),
            engine: self.engine.clone(),
            workers: self.workers,
        };
        Plan {
            config: overrides.apply(config),
            serve: source.is_none(),
            source,
            overrides,
            guard: self.guard,
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

/// A plan for a folder or a single file, which needs no configuration. `hosts` are names to answer to.
pub(super) fn serve(
    what: &Path,
    hosts: Vec<String>,
    flags: &Flags,
    streams: &mut Streams<'_>,
) -> Step {
    if let Some(address) = flags.duplicate() {
        return twice(address, streams);
    }
    match site(what) {
        Ok(site) => {
            let mut config = Config {
                sites: vec![site],
                ..Config::default()
            };
            // A saved file is visible at once.
            config.disk.entry_ttl = Duration::ZERO;
            let mut plan = flags.plan(config, None);
            plan.config.own_names = own_names(&plan.config, hosts);
            Step::Serve(Box::new(plan))
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

/// Where only this machine can connect, only its own names are meant for it: else any web page that is open
/// in a browser here could read the folder. Others know this machine by names that it does not know.
fn own_names(config: &Config, added: Vec<String>) -> Option<OwnNames> {
    let mut listen = config.listen.iter();
    let is_private = listen.all(|listen| listen.address.is_of_this_machine_only());
    (is_private || !added.is_empty()).then_some(OwnNames { added })
}

/// A plan for what a configuration file says.
pub(super) fn run(file: PathBuf, flags: &Flags, streams: &mut Streams<'_>) -> Step {
    if let Some(address) = flags.duplicate() {
        return twice(address, streams);
    }
    match config::load(&file) {
        Ok(config) => Step::Serve(Box::new(flags.plan(config, Some(file)))),
        Err(errors) => {
            streams.err(&errors.render(streams.colour));
            Step::Exit(EXIT_CONFIG)
        }
    }
}

fn twice(address: &Address, streams: &mut Streams<'_>) -> Step {
    streams.err(&format!("error: --listen {address} is given twice\n"));
    Step::Exit(EXIT_USAGE)
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

#[cfg(test)]
mod tests {
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
