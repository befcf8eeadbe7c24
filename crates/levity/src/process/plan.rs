//! The plan of a server: its configuration, and flags that override it.

use std::path::PathBuf;

use levity_config::address::Address;
use levity_config::{AbsentRoots, Config, Errors, Files, Listen, Variables};

/// The configuration of a server, and how to read it again.
#[derive(Debug, Clone)]
pub struct Plan {
    /// With the overrides applied.
    pub config: Config,
    /// The main file to read again on SIGHUP; `None` when there is none.
    pub source: Option<PathBuf>,
    /// Flags, which override the file.
    pub overrides: Overrides,
    /// Trap file calls that may block on the threads of event loops. For tests.
    pub guard: bool,
    /// Whether this is `levity serve`, which prints its URLs on standard output.
    pub serve: bool,
    /// Whether to log at the start what reads files.
    pub verbose: bool,
}

impl Plan {
    /// The configuration of `files` as they were read, with the overrides; without a file the same one again. The `absent`
    /// roots may be absent still. May block.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it now.
    pub fn again(&self, files: &Files, absent: &[PathBuf]) -> Result<Config, Errors> {
        let absent = AbsentRoots::These(absent.to_vec());
        match &self.source {
            Some(_) => {
                let config = levity_config::load_again(files, &Variables::of_process(), absent)?;
                Ok(self.overrides.apply(config))
            }
            None => Ok(self.config.clone()),
        }
    }

    /// The configuration in its files at present, with the overrides; without a file the same one again. The `absent` roots
    /// may be absent still. May block.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the files.
    pub fn reload(&self, absent: &[PathBuf]) -> Result<Config, Errors> {
        let absent = AbsentRoots::These(absent.to_vec());
        match &self.source {
            Some(file) => {
                let variables = Variables::of_process();
                let config = levity_config::load_without_roots(file, &variables, absent)?;
                Ok(self.overrides.apply(config))
            }
            None => Ok(self.config.clone()),
        }
    }
}

/// Flags that override the configuration.
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
    /// `config` with these values in place of its own.
    pub fn apply(&self, mut config: Config) -> Config {
        if !self.listen.is_empty() {
            let has_tls = config.sites.iter().any(|site| site.tls.is_some());
            let as_in_file = |address: &Address| {
                let mut of_file = config.listen.iter();
                let same = of_file.find(|listen| listen.address == *address);
                same.cloned().unwrap_or_else(|| Listen {
                    tls: has_tls && levity_config::tls::is_usual_at(address),
                    ..Listen::from(address.clone())
                })
            };
            config.listen = self.listen.iter().map(as_in_file).collect();
        }
        if let Some(engine) = &self.engine {
            config.disk.settings.engine.clone_from(engine);
        }
        config.server.workers = self.workers.or(config.server.workers);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{Folder, levity};
    use std::path::Path;

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
            "auto",
            "--workers",
            "3",
        ];
        let plan = levity(&[&["run", "-c", &file, "--guard"], &flags[..]].concat()).plan();
        let beaten = |config: &Config| {
            let listen = ["127.0.0.1:0", "unix:s"].map(|text| text.parse::<Address>().unwrap());
            assert_eq!(config.listen, listen.map(Listen::from));
            assert_eq!(
                (config.disk.settings.engine.as_str(), config.server.workers),
                ("auto", Some(3))
            );
        };
        beaten(&plan.config);
        assert_eq!(plan.config.disk.settings.queue_max, 99);
        assert!(plan.guard && !plan.serve);
        folder.write("levity.toml", &text.replace("99", "100"));
        let reloaded = plan.reload(&[]).unwrap();
        beaten(&reloaded);
        assert_eq!(reloaded.disk.settings.queue_max, 100);
        folder.write("levity.toml", "nonsense");
        assert!(plan.reload(&[]).is_err());
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
            plan.config.sites[0].location.root.as_deref(),
            Some(Path::new(folder.path()))
        );
    }
}
