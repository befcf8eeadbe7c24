//! The engines that exist.

use super::contract::{Description, StartError, Unavailable};
#[cfg(feature = "io-uring")]
use super::io_uring;
#[cfg(any(test, feature = "test-support"))]
use super::simulated;
use super::threads;
#[cfg(feature = "engines-all")]
use super::{linux_aio, posix_aio, readahead, sendfile};
use crate::job::EngineId;

/// All engines. Names, documentation and values of `disk.engine` come from this table. `auto` is not an
/// engine: it is a choice among these.
pub const ENGINES: &[Description] = &[
    Description {
        name: "threads",
        aliases: &["gthread-aio"],
        summary: "blocking reads in a pool of threads",
        hidden: false,
        blocks_on_loop: false,
        needs_sendfile: false,
        probe: runs_anywhere,
        start: threads::start,
    },
    #[cfg(feature = "io-uring")]
    Description {
        name: "io_uring",
        aliases: &["io-uring"],
        summary: "reads on a ring with a thread of its own, opens in a pool of threads",
        hidden: false,
        blocks_on_loop: false,
        needs_sendfile: false,
        probe: io_uring::probe,
        start: io_uring::start,
    },
    #[cfg(feature = "engines-all")]
    Description {
        name: "linux-aio",
        aliases: &["linux-aio-sendfile", "linux_aio"],
        summary: "reads past the page cache by io_submit and sendfile, the rest in a pool of threads",
        hidden: false,
        blocks_on_loop: false,
        // From the memory file that it reads into.
        needs_sendfile: true,
        probe: linux_aio::probe,
        start: linux_aio::start,
    },
    #[cfg(feature = "engines-all")]
    Description {
        name: "readahead",
        aliases: &[],
        summary: "a pool of threads fills the page cache, and the event loop sends from there",
        hidden: false,
        blocks_on_loop: false,
        needs_sendfile: true,
        probe: readahead::probe,
        start: readahead::start,
    },
    #[cfg(feature = "engines-all")]
    Description {
        name: "posix-aio",
        aliases: &["posix_aio"],
        summary: "reads by aio_read of the C library, opens in a pool of threads",
        hidden: false,
        blocks_on_loop: false,
        needs_sendfile: false,
        probe: posix_aio::probe,
        start: posix_aio::start,
    },
    #[cfg(feature = "engines-all")]
    Description {
        name: "sendfile",
        aliases: &["linux-sendfile"],
        summary: "open and sendfile on the event loop, which waits for the disk: the baseline",
        hidden: false,
        blocks_on_loop: true,
        needs_sendfile: true,
        probe: runs_anywhere,
        start: sendfile::start,
    },
    #[cfg(any(test, feature = "test-support"))]
    Description {
        name: "simulated",
        aliases: &[],
        summary: "for tests: late, out of order, in every form, with faults",
        hidden: true,
        blocks_on_loop: false,
        // From memory files.
        needs_sendfile: true,
        probe: runs_anywhere,
        start: simulated::start,
    },
];

fn runs_anywhere() -> Result<(), Unavailable> {
    Ok(())
}

/// The setting that lets Levity choose.
pub const AUTO: &str = "auto";

/// The values of `disk.engine` that are offered: `auto`, then every engine that is not hidden.
pub const NAMES: &[&str] = &names();

const fn shown() -> usize {
    let (mut at, mut shown) = (0, 0);
    while at < ENGINES.len() {
        shown += !ENGINES[at].hidden as usize;
        at += 1;
    }
    shown
}

const fn names() -> [&'static str; shown() + 1] {
    let mut names = [AUTO; shown() + 1];
    let (mut at, mut next) = (0, 1);
    while at < ENGINES.len() {
        if !ENGINES[at].hidden {
            names[next] = ENGINES[at].name;
            next += 1;
        }
        at += 1;
    }
    names
}

/// The engine with this name or alias.
pub fn find(name: &str) -> Option<&'static Description> {
    let named = |engine: &&Description| engine.name == name || engine.aliases.contains(&name);
    ENGINES.iter().find(named)
}

impl EngineId {
    /// The index of one of [`ENGINES`].
    pub(crate) fn of(description: &Description) -> EngineId {
        let same = |engine: &Description| engine.name == description.name;
        let index = ENGINES.iter().position(same).expect("it is in the table");
        EngineId(u8::try_from(index).expect("a handful of engines"))
    }

    /// The row of [`ENGINES`].
    pub fn description(self) -> &'static Description {
        &ENGINES[usize::from(self.0)]
    }

    /// The name in `disk.engine`.
    pub fn name(self) -> &'static str {
        self.description().name
    }
}

/// The engines that a setting stands for.
pub(crate) struct Choice<'a> {
    /// Opens, lists, and reads through the page cache.
    pub(crate) engine: &'static Description,
    /// Reads past the page cache, if that is another engine.
    pub(crate) for_direct: Option<&'static Description>,
    /// Why.
    pub(crate) reason: String,
    /// The text after a colon in the setting, which only engines of tests have.
    pub(crate) options: Option<&'a str>,
}

impl Choice<'_> {
    /// The choice for one of [`NAMES`] or an alias. Checks whether the engine can run here. May block.
    pub(crate) fn of(setting: &str) -> Result<Choice<'_>, StartError> {
        if setting == AUTO {
            return Ok(automatic());
        }
        let (name, options) = match setting.split_once(':') {
            Some((before, options)) => (before, Some(options)),
            None => (setting, None),
        };
        let engine = find(name)
            .filter(|engine| options.is_none() || engine.hidden)
            .ok_or_else(|| StartError::UnknownEngine {
                name: setting.to_owned(),
                known: NAMES,
            })?;
        (engine.probe)().map_err(|why| StartError::Unavailable {
            engine: engine.name,
            why,
        })?;
        Ok(Choice {
            engine,
            for_direct: None,
            reason: "chosen by name".to_owned(),
            options,
        })
    }
}

/// Finds out what `auto` stands for here, by trying.
fn automatic() -> Choice<'static> {
    let threads = find("threads").expect("it is in the table");
    let ring = find("io_uring");
    let probed = ring.map(|ring| (ring.probe)());
    let direct = match &probed {
        Some(Ok(())) => "io_uring, which needs less processor time for that".to_owned(),
        Some(Err(unavailable)) => {
            format!("threads too, as io_uring cannot run here ({unavailable})")
        }
        None => "threads too, as this build has no io_uring".to_owned(),
    };
    Choice {
        engine: threads,
        for_direct: ring.filter(|_| matches!(probed, Some(Ok(())))),
        reason: format!(
            "reads through the page cache: threads, which copy side by side; past it (O_DIRECT): {direct}"
        ),
        options: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        for description in ENGINES {
            assert_eq!(EngineId::of(description).name(), description.name);
        }
    }

    #[test]
    fn hidden_engines_are_not_offered() {
        assert_eq!((NAMES[0], NAMES.len()), (AUTO, ENGINES.len()));
        assert!(!NAMES.contains(&"simulated") && find("simulated").is_some());
        assert!(NAMES[1..].iter().all(|name| find(name).is_some()));
    }
}
