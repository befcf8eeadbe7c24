//! Files and folders that a configuration names. Each call ends in time, also on a mount that does not answer.

use std::cell::OnceCell;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use levity_disk::{patiently, read_patiently};

use crate::account::Accounts;
use crate::in_unit::remedy;

/// Why a path cannot be used.
pub(crate) enum Unusable {
    /// It does not respond.
    Silent,
    /// There is nothing, or this user may not look, in these words.
    Absent(String),
    /// For this reason.
    Wrong(String),
}

/// The text of a file. Blocks.
pub(crate) fn text_of(path: &Path, bytes_max: u64) -> Result<String, Unusable> {
    let bytes = read_patiently(path, bytes_max + 1);
    let bytes = bytes.map_err(|error| named(path, &error, "cannot be read"))?;
    if bytes.len() as u64 > bytes_max {
        return Err(Unusable::Wrong(format!("has more than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Unusable::Wrong("is not UTF-8".to_owned()))
}

/// Whether it is a folder, or why not. Blocks.
pub(crate) fn is_directory(path: &Path) -> Result<(), Unusable> {
    match found(patiently(path, |path| fs::metadata(path))) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(Unusable::Wrong("is not a folder".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let remedy = remedy(path, &error);
            Err(Unusable::Absent(format!("does not exist{remedy}")))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let remedy = remedy(path, &error);
            Err(Unusable::Absent(format!(
                "cannot be accessed: {error}{remedy}"
            )))
        }
        Err(error) => Err(named(path, &error, "cannot be accessed")),
    }
}

/// Whether there is something at the path. False if it does not respond. Blocks.
pub(crate) fn exists(path: &Path) -> bool {
    patiently(path, Path::exists).unwrap_or(false)
}

/// Tells who may write to the files of one configuration. Reads the accounts of this machine once, when the first group may write.
#[derive(Default)]
pub(crate) struct Writers {
    /// `None` if they do not respond.
    accounts: OnceCell<Option<Accounts>>,
}

impl Writers {
    /// Says that others than root and the user of this process may write to a file, or put files into a folder, if they may. Members
    /// of the group of root are no others, and nor is a group of the owner alone, with which a umask of 002 has files writable. Blocks.
    pub(crate) fn others(&self, meta: &Metadata) -> Option<String> {
        let own = rustix::process::geteuid().as_raw();
        let is_private = |group, user| {
            let accounts = self.accounts();
            accounts.is_some_and(|accounts| accounts.is_private(group, user))
        };
        let who = others(meta.mode(), meta.uid(), meta.gid(), own, is_private)?;
        Some(format!(
            "{who} may change it, and with it what this server does"
        ))
    }

    fn accounts(&self) -> Option<&Accounts> {
        let read = || patiently(Path::new("/etc/passwd"), |_| Accounts::read()).ok();
        self.accounts.get_or_init(read).as_ref()
    }
}

/// Who may write by this mode, owner and group, besides root and `user`. `is_private` is whether a group has this user alone.
fn others(
    mode: u32,
    owner: u32,
    group: u32,
    user: u32,
    is_private: impl Fn(u32, u32) -> bool,
) -> Option<String> {
    const ROOT: u32 = 0;
    match () {
        () if mode & 0o002 != 0 => Some("everyone".to_owned()),
        () if ![ROOT, user].contains(&owner) => Some(format!("the user {owner}")),
        () if mode & 0o020 != 0 && group != ROOT && !is_private(group, owner) => {
            Some(format!("the group {group}"))
        }
        () => None,
    }
}

/// Both errors are of the same kind.
pub(crate) fn found<T>(result: io::Result<io::Result<T>>) -> io::Result<T> {
    result.and_then(|result| result)
}

fn named(path: &Path, error: &io::Error, what: &str) -> Unusable {
    match error.kind() {
        io::ErrorKind::TimedOut => Unusable::Silent,
        _ => Unusable::Wrong(format!("{what}: {error}{}", remedy(path, error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_write_besides_root_and_the_user() {
        for (mode, owner, group, expected) in [
            (0o100644, 0, 0, None),
            (0o100664, 0, 0, None),
            (0o100644, 7, 7, None),
            (0o100600, 7, 9, None),
            (0o100664, 7, 6, Some("the group 6")),
            (0o100664, 7, 7, None),
            (0o100664, 0, 7, Some("the group 7")),
            (0o100666, 7, 7, Some("everyone")),
            (0o100664, 0, 9, Some("the group 9")),
            (0o100644, 8, 0, Some("the user 8")),
            (0o100444, 8, 0, Some("the user 8")),
            (0o100646, 0, 0, Some("everyone")),
            (0o041777, 0, 0, Some("everyone")),
        ] {
            let is_private = |group, user| (group, user) == (7, 7);
            let found = others(mode, owner, group, 7, is_private);
            assert_eq!(found.as_deref(), expected, "{mode:o} {owner} {group}");
        }
    }
}
