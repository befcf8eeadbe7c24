//! What the process gives up at its start: to write outside the folders that its configuration names, to start
//! programs, and to make [system calls](denied) that no server needs.
//!
//! The kernel holds it to that (Landlock, from Linux 5.19 on; seccomp), also where the process runs as root. Nothing of
//! it can be taken back, so a reload that needs more is refused. Reading is left to the permissions of the files. So are
//! modes, owners and times, for which the kernel has no rules, and truncation: with a rule for that the kernel would
//! walk up from each file that is opened, also to be read, and take references on folders that all processors share.

#[cfg(all(test, feature = "acme", feature = "upload"))]
mod tests;
pub mod written;

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _,
};
use levity_config::Config;
use levity_disk::{denied, end_patient_thread, landlock_version, patiently};
use levity_telemetry::diagnostics;
use rustix::io::Errno;

use self::written::{Folder, Id, Written};
use crate::tls::parts::make_state_folder;

/// The version that has a rule for renaming from one folder to another (Linux 5.19). Older ones refuse that everywhere.
const VERSION_MIN: u32 = 2;

/// What the process may still do.
#[derive(Debug)]
pub struct Confinement {
    /// `None` if where it may write is up to the permissions of files.
    rules: Option<Rules>,
    may_start_programs: bool,
}

#[derive(Debug)]
struct Rules {
    folders: Arc<Folders>,
    /// What the server was to write to from its start on, and has no rule: its folder was not there.
    missing: Vec<PathBuf>,
}

/// What may be done in folders and beneath them.
type Folders = HashMap<Id, BitFlags<AccessFs>>;

impl Confinement {
    /// Confines the calling thread, and those that it starts, to what `config` needs. For the main thread, before it
    /// starts others. Makes the folder that the server makes. Blocks, for seconds at most.
    ///
    /// What cannot be given up is named in the log. With a hook of `[acme.dns]` that is all: its program would have
    /// given up the same, and nobody knows what it writes to, and with the rights of which user (`sudo`).
    pub fn start(config: &Config) -> Self {
        if config.starts_programs() {
            report(&"`hook` of [acme.dns] is a program, which would be confined, too");
            return Self {
                rules: None,
                may_start_programs: true,
            };
        }
        let rules = Rules::start(config).inspect_err(|error| report(error)).ok();
        // A container or a unit may refuse what this needs.
        if let Err(error) = denied::deny() {
            diagnostics::log(format_args!("system calls are not given up: {error}"));
        }
        Self {
            rules,
            may_start_programs: false,
        }
    }

    /// Whether the process may do what another configuration needs. To be asked before anything is made of it. Blocks,
    /// for seconds at most.
    ///
    /// # Errors
    /// Why it may not, in words.
    pub fn permits(&self, config: &Config) -> io::Result<()> {
        let new = match &self.rules {
            _ if config.starts_programs() && !self.may_start_programs => {
                Some("`hook` of [acme.dns] is new".to_owned())
            }
            Some(rules) => rules.outside(config).map(|path| {
                let path = path.display();
                format!("{path} is a new place to write to")
            }),
            None => None,
        };
        match new {
            Some(what) => Err(io::Error::other(format!("{what}, which needs a restart"))),
            None => Ok(()),
        }
    }
}

fn report(reason: &dyn Display) {
    diagnostics::log(format_args!(
        "the process is not confined to the folders that it writes to: {reason}"
    ));
}

impl Rules {
    fn start(config: &Config) -> io::Result<Self> {
        let folders = Arc::new(confine(config)?);
        let missing: Vec<_> = outside(config, &folders).collect();
        for path in &missing {
            let path = path.display();
            diagnostics::log(format_args!(
                "{path} cannot be written to before a restart: its folder is not there"
            ));
        }
        Ok(Self { folders, missing })
    }

    /// Something that a server with `config` writes to and that has no rule.
    fn outside(&self, config: &Config) -> Option<PathBuf> {
        let mut outside = outside(config, &self.folders);
        outside.find(|path| !self.missing.contains(path))
    }
}

fn confine(config: &Config) -> io::Result<Folders> {
    check_kernel()?;
    // A rule is for what is there.
    make_state_folder(config);
    let mut folders = Folders::new();
    let mut ruleset = ruleset()?;
    for written in written::by(config)
        .into_iter()
        .chain(written::always(config))
    {
        let path = written.path.clone();
        let opened = patiently(&path, move |_| written.open());
        let opened = opened
            .map_err(|error| io::Error::new(error.kind(), format!("{} {error}", path.display())))?;
        for Folder { file, id, access } in opened {
            *folders.entry(id).or_default() |= access;
            let rule = PathBeneath::new(file, access);
            ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
        }
    }
    // It is older than the confinement, so it would not have it.
    end_patient_thread();
    ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(folders)
}

fn check_kernel() -> io::Result<()> {
    let lacking = match landlock_version() {
        Ok(version) if version >= VERSION_MIN => return Ok(()),
        Ok(_) => "Landlock of this kernel is older than Linux 5.19".to_owned(),
        Err(Errno::OPNOTSUPP) => {
            "Landlock is not among the security modules of this kernel (`lsm=`)".to_owned()
        }
        Err(Errno::NOSYS) => "this kernel has no Landlock (Linux 5.19)".to_owned(),
        Err(errno) => format!("Landlock: {}", io::Error::from(errno)),
    };
    Err(io::Error::other(lacking))
}

/// Without rules: nothing can be written to or executed.
fn ruleset() -> io::Result<RulesetCreated> {
    let refused = AccessFs::from_write(ABI::V2) | AccessFs::Execute;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(refused).and_then(Ruleset::create);
    ruleset.map_err(io::Error::other)
}

/// What a server with `config` writes to and that no rule for these folders permits. What does not respond is left out:
/// once it does, there is another reload. Blocks.
fn outside(config: &Config, folders: &Arc<Folders>) -> impl Iterator<Item = PathBuf> {
    written::by(config).into_iter().filter_map(move |written| {
        let (path, folders) = (written.path.clone(), folders.clone());
        let is_outside = patiently(&path, move |_| is_outside(&written, &folders));
        matches!(is_outside, Ok(true)).then_some(path)
    })
}

fn is_outside(written: &Written, folders: &Folders) -> bool {
    let is_permitted = |folder: Folder| {
        let mut permitted = BitFlags::empty();
        let mut above = folder.above();
        above.any(|id| {
            permitted |= folders.get(&id).copied().unwrap_or_default();
            permitted.contains(folder.access)
        })
    };
    !written.needed().into_iter().all(is_permitted)
}
