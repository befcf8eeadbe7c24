//! Files that a server of root leaves in folders of others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use levity_config::account::{Accounts, Usage, word};
use levity_config::{Config, Hidden};
use levity_disk::patiently;

use crate::process::confinement::written;

/// Paths that the server makes, or makes files in.
#[derive(Debug, Clone, Default)]
struct Paths {
    folders: Vec<PathBuf>,
    /// Logs alone, whose folders may have other files of root.
    files: Vec<PathBuf>,
}

/// A line about the folders of other users in which this server makes files, with the commands that hand these over;
/// `None` unless root runs it. Blocks.
pub fn line(config: &Config) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let line = hand_over(&of_others(config), &Accounts::read(), &config.hidden)?;
    Some(config.hidden.hide(&line).into_owned())
}

/// What is made in folders that do not belong to root, by the owners of these.
fn of_others(config: &Config) -> BTreeMap<u32, Paths> {
    let mut of_others = BTreeMap::<_, Paths>::new();
    for written in written::by(config) {
        let path = &written.path;
        let (folder, is_file) = match written.usage() {
            Usage::Fill => (path.as_path(), false),
            Usage::Append => (path.parent().unwrap_or(path), true),
            Usage::Read | Usage::Empty | Usage::Bind => continue,
        };
        let owner = patiently(folder, |folder| fs::metadata(folder).map(|meta| meta.uid()));
        let Ok(Ok(owner @ 1..)) = owner else {
            continue;
        };
        let of_owner = of_others.entry(owner).or_default();
        let known = match is_file {
            true => &mut of_owner.files,
            false => &mut of_owner.folders,
        };
        if !known.contains(path) {
            known.push(path.clone());
        }
    }
    of_others
}

fn hand_over(
    of_others: &BTreeMap<u32, Paths>,
    accounts: &Accounts,
    hidden: &Hidden,
) -> Option<String> {
    if of_others.is_empty() {
        return None;
    }
    let commands = of_others.iter().flat_map(|(owner, paths)| {
        let owner = accounts.user_name(*owner);
        let folders = paths.folders.iter().map(|path| give_folder(path, &owner));
        let files = paths.files.iter().map(|path| give_file(path, &owner));
        folders.chain(files).collect::<Vec<_>>()
    });
    let commands: Option<Vec<_>> = commands.collect();
    let commands = commands.map(|commands| commands.join(" && "));
    let commands = commands.filter(|commands| hidden.shows(commands));
    let end = commands.map_or_else(
        || "give them to their owners after its end".to_owned(),
        |commands| format!("after its end, `{commands}`"),
    );
    Some(format!(
        "root runs this server, and it makes files in folders of others, whose servers could not use them: {end}"
    ))
}

/// `None` where no command can show the path.
fn give_file(path: &Path, owner: &str) -> Option<String> {
    Some(format!("chown -h {owner} {}", word(path)?))
}

/// Only what root has made: others may have files there too. With `/.` a link leads to its folder.
fn give_folder(path: &Path, owner: &str) -> Option<String> {
    let path = word(&path.join("."))?;
    Some(format!(
        "find {path} -xdev -user root -exec chown -h {owner} {{}} +"
    ))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn what_is_made_in_the_folders_of_each_owner_is_handed_over() {
        let accounts = Accounts::read();
        let hidden = Hidden::default();
        assert_eq!(hand_over(&BTreeMap::new(), &accounts, &hidden), None);
        let nobody = 4_000_000_000;
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let of = |folders: &[&str], files: &[&str]| Paths {
            folders: paths(folders),
            files: paths(files),
        };
        let line = |of_others: &[(u32, Paths)]| {
            let of_others = of_others
                .iter()
                .map(|(owner, paths)| (*owner, paths.clone()));
            hand_over(&of_others.collect(), &accounts, &hidden).expect("a line")
        };
        let said = line(&[
            (nobody, of(&["/a"], &["/b/access.log"])),
            (nobody + 1, of(&["/c d"], &[])),
        ]);
        let commands = "`find /a/. -xdev -user root -exec chown -h 4000000000 {} + \
                        && chown -h 4000000000 /b/access.log \
                        && find '/c d/.' -xdev -user root -exec chown -h 4000000001 {} +`";
        assert!(said.ends_with(commands), "{said}");
        let unshown = OsStr::from_bytes(b"/\xff");
        let said = line(&[(
            nobody,
            Paths {
                files: vec![unshown.into()],
                ..Paths::default()
            },
        )]);
        assert!(!said.contains('`'), "{said}");
    }
}
