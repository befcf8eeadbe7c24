//! Files that a server of root leaves in folders of others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use levity_config::Config;
use levity_config::account::{Accounts, Usage};
use levity_disk::patiently;

use crate::process::confinement::written;

/// A line about the folders of other users in which this server makes files; `None` unless root runs it. Without a
/// command that gives these away: their owners could lead it to other files. Blocks.
pub fn line(config: &Config) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let of_others = of_others(config);
    if of_others.is_empty() {
        return None;
    }
    let accounts = Accounts::read();
    let of_others = of_others.iter().map(|(path, owner)| {
        let owner = accounts.user_name(*owner);
        format!("{} (of {owner})", path.display())
    });
    let line = format!(
        "root runs this server, and a server of their owner could not write to what it makes at {}",
        of_others.collect::<Vec<_>>().join(", ")
    );
    Some(config.hidden.hide(&line).into_owned())
}

/// What is made in folders that do not belong to root, with the owners of these.
fn of_others(config: &Config) -> BTreeSet<(PathBuf, u32)> {
    let written = written::by(config).into_iter().filter_map(|written| {
        let owner = match written.usage() {
            // The folder itself may have been made by root.
            Usage::Fill => owner(&written.path).or_else(|| owner(written.path.parent()?)),
            Usage::Append => owner(written.path.parent()?),
            _ => None,
        };
        Some((written.path, owner?))
    });
    written.collect()
}

/// The owner of a folder unless that is root.
fn owner(folder: &Path) -> Option<u32> {
    let owner = patiently(folder, |folder| fs::metadata(folder).map(|meta| meta.uid()));
    owner.ok()?.ok().filter(|owner| *owner != 0)
}
