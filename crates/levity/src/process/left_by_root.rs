//! Files that a server of root leaves in folders of others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use levity_config::Config;
use levity_config::account::{Accounts, quoted};
use levity_disk::patiently;

use crate::process::confinement::written;

/// A line about the folders of other users in which this server makes files, with the command that hands these over;
/// `None` unless root runs it. Blocks.
pub fn line(config: &Config) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let line = hand_over(&of_others(config), &Accounts::read())?;
    Some(config.hidden.hide(&line).into_owned())
}

/// The folders that do not belong to root, by their owners.
fn of_others(config: &Config) -> BTreeMap<u32, Vec<PathBuf>> {
    let mut of_others = BTreeMap::<_, Vec<_>>::new();
    for written in written::by(config) {
        let Some(folder) = written.kept_in() else {
            continue;
        };
        let owner = patiently(folder, |folder| fs::metadata(folder).map(|meta| meta.uid()));
        let Ok(Ok(owner @ 1..)) = owner else {
            continue;
        };
        let folders = of_others.entry(owner).or_default();
        if !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    of_others
}

fn hand_over(of_others: &BTreeMap<u32, Vec<PathBuf>>, accounts: &Accounts) -> Option<String> {
    let command = |(owner, folders): (&u32, &Vec<PathBuf>)| {
        let owner = accounts.user_name(*owner);
        let folders = folders.iter().map(|folder| quoted(folder));
        format!("chown -R {owner} {}", folders.collect::<Vec<_>>().join(" "))
    };
    let commands: Vec<_> = of_others.iter().map(command).collect();
    (!commands.is_empty()).then(|| {
        format!(
            "root runs this server, and it makes files in folders of others, whose servers could not use them: after its end, `{}`",
            commands.join(" && ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_each_owner_are_handed_over() {
        let accounts = Accounts::read();
        assert_eq!(hand_over(&BTreeMap::new(), &accounts), None);
        let nobody = 4_000_000_000;
        let folders = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let of_others = [
            (nobody, folders(&["/a", "/b"])),
            (nobody + 1, folders(&["/c"])),
        ];
        let line = hand_over(&BTreeMap::from(of_others), &accounts).expect("a line");
        let commands = "`chown -R 4000000000 /a /b && chown -R 4000000001 /c`";
        assert!(line.ends_with(commands), "{line}");
    }
}
