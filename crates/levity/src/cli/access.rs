//! What the user of a server may not do with the paths of its configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf, absolute};

use levity_config::account::{Account, Accounts, Usage};
use levity_config::address::Address;
use levity_config::{Config, Line, NamedFile, Note};
use levity_disk::patiently;

use super::USUAL_FILE;
use crate::process::confinement::written;
use crate::tls::folder::state_folder;

/// The user of the unit in the packages.
const UNIT_USER: &str = "levity";

/// What systemd makes for that user: `RuntimeDirectory=`, `StateDirectory=` and `CacheDirectory=`.
const UNIT_FOLDERS: [&str; 3] = ["/run/levity", "/var/lib/levity", "/var/cache/levity"];

/// The user whose access is checked: `given`, or that of the unit where `is_root` checks the file that the unit names.
/// `None` if it is not known.
///
/// # Errors
/// When there is no user with the name `given`.
pub(super) fn server_user(
    given: Option<&str>,
    file: &Path,
    is_root: bool,
    accounts: &Accounts,
) -> Result<Option<Account>, String> {
    match given {
        Some(name) => accounts
            .find(name)
            .map(Some)
            .ok_or_else(|| format!("--user: there is no user `{name}` in /etc/passwd")),
        None if is_root && file == Path::new(USUAL_FILE) => Ok(accounts.find(UNIT_USER)),
        None => Ok(None),
    }
}

/// What keeps the user from a path.
struct Found {
    line: Option<Line>,
    path: PathBuf,
    usage: Usage,
    /// A barrier, described.
    reason: String,
    /// The number of further paths that it is in the way of.
    more: usize,
}

/// Remarks about the paths that `account` cannot use as a server with `config` does. One for each barrier. Blocks.
pub(super) fn notes(config: &Config, account: &Account, accounts: &Accounts) -> Vec<Note> {
    let (mut found, mut notes) = (Vec::<Found>::new(), Vec::new());
    let mut known = HashMap::new();
    for (NamedFile { line, path }, usage) in used(config) {
        if account.name == UNIT_USER && UNIT_FOLDERS.iter().any(|made| path.starts_with(made)) {
            continue;
        }
        let user = account.clone();
        match patiently(&path, move |path| user.barrier(path, usage)) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(barrier))) => {
                let reason = barrier.describe(accounts);
                let at = *known.entry(reason.clone()).or_insert(found.len());
                match found.get_mut(at) {
                    Some(first) => first.more += 1,
                    None => found.push(Found {
                        line,
                        path,
                        usage,
                        reason,
                        more: 0,
                    }),
                }
            }
            Ok(Err(error)) | Err(error) => {
                let (shown, name) = (path.display(), &account.name);
                let text = format!("whether `{name}` can use {shown} is unknown: {error}");
                notes.push(Note { line, text });
            }
        }
    }
    notes.extend(found.into_iter().map(|one| one.note(account)));
    for note in &mut notes {
        note.text = config.hidden.hide(&note.text).into_owned();
    }
    notes
}

impl Found {
    fn note(self, account: &Account) -> Note {
        let (name, path, reason) = (&account.name, self.path.display(), &self.reason);
        let action = match self.usage {
            Usage::Read | Usage::List => "read",
            Usage::Fill | Usage::Empty | Usage::Append | Usage::Bind => "write to",
            Usage::Connect => "connect to",
        };
        let more = match self.more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("the user `{name}` cannot {action} {path}{more}: {reason}");
        Note {
            line: self.line,
            text,
        }
    }
}

/// The paths that a server with `config` uses, each once.
fn used(config: &Config) -> Vec<(NamedFile, Usage)> {
    // Where the configuration names none, it is a folder of whoever asks.
    let asker = state_folder(config)
        .ok()
        .filter(|_| config.tls.folder.is_none());
    let written = written::by(config).into_iter();
    let written = written.filter(|written| Some(&written.path) != asker.as_ref());
    let written: BTreeMap<_, _> = written
        .map(|written| (written.path.clone(), written.usage()))
        .collect();
    // A spool that no upstream needs is not opened.
    let is_used =
        |named: &&NamedFile| named.path != config.disk.spool || written.contains_key(&named.path);
    let without_line = |path: &Path| NamedFile {
        line: None,
        path: path.to_owned(),
    };
    let own = config.files.paths().map(without_line);
    let named = own.chain(config.paths.iter().filter(is_used).cloned());
    let named = named.map(|named| (named, Usage::Read));
    let folders = config.files.folders().map(without_line);
    let folders = folders.map(|folder| (folder, Usage::List));
    let made = written
        .iter()
        .map(|(path, usage)| (without_line(path), *usage));
    let backends = config.upstreams.iter().flat_map(|upstream| &upstream.to);
    let sockets = backends.filter_map(|backend| match backend.at.address() {
        Some(Address::Unix(path)) => Some((without_line(&path), Usage::Connect)),
        Some(Address::Tcp(_)) | None => None,
    });
    let mut seen = BTreeSet::new();
    let used = named.chain(folders).chain(made).chain(sockets);
    let used = used.filter_map(|(NamedFile { line, path }, usage)| {
        let path = absolute(path).ok()?;
        let usage = written.get(&path).copied().unwrap_or(usage);
        let is_new = seen.insert(path.clone());
        is_new.then_some((NamedFile { line, path }, usage))
    });
    used.collect()
}

#[cfg(all(test, feature = "upload"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::{Folder, levity};
    use super::super::{EXIT_CONFIG, EXIT_USAGE};
    use super::*;

    /// On every machine, and without files.
    const OTHER: &str = "nobody";

    fn set(path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn what_another_user_cannot_use_is_named_with_what_opens_it() {
        let (folder, root, logs) = (Folder::new(), Folder::new(), Folder::new());
        let log = logs.write("access.log", "");
        let uploads = format!("{}/up", root.path());
        fs::create_dir(&uploads).expect("made");
        let text = format!(
            "[log]\naccess = \"{log}\"\n[[site]]\nroot = \"{}\"\n[[site.route]]\npath = \"/up/*\"\n\
             root = \"{uploads}\"\nupload = {{ methods = [\"PUT\"] }}\n[[site.route]]\npath = \"/a/*\"\n\
             root = \"{uploads}\"\n",
            root.path()
        );
        let file = folder.write("levity.toml", &text);
        for path in [folder.path(), root.path(), logs.path()] {
            set(path, 0o755);
        }
        set(&file, 0o644);
        set(&log, 0o602);
        set(&uploads, 0o757);
        let check =
            |options: &[&str]| levity(&[&["check", &file, "--user", OTHER], options].concat());
        let notes = |ran: &str| ran.lines().filter(|line| line.contains("the user")).count();
        let open = check(&[]);
        open.exits(0);
        assert_eq!(notes(&open.err), 0, "{}", open.err);
        set(&log, 0o640);
        set(root.path(), 0o700);
        let closed = check(&[]);
        closed.exits(0);
        let lines = [
            format!("line 2: the user `{OTHER}` cannot write to {log}: {log} is of "),
            format!(
                "line 4: the user `{OTHER}` cannot read {} and 1 more: ",
                root.path()
            ),
        ];
        assert_eq!(notes(&closed.err), 2, "{}", closed.err);
        for line in lines {
            assert!(closed.err.contains(&line), "{line}\n{}", closed.err);
        }
        assert!(
            closed.err.contains(", and `w` is needed there"),
            "{}",
            closed.err
        );
        check(&["--strict"]).exits(EXIT_CONFIG);
        let without = levity(&["check", &file]);
        assert_eq!(notes(&without.err), 0, "{}", without.err);
        levity(&["check", &file, "--user", "no such user"]).exits(EXIT_USAGE);
    }

    #[test]
    fn a_user_is_known_from_the_option_or_from_the_unit() {
        let accounts = Accounts::read();
        let usual = Path::new(USUAL_FILE);
        let user = |given, file, is_root| {
            let user = server_user(given, file, is_root, &accounts).expect("a user");
            user.map(|user| user.name)
        };
        assert_eq!(user(Some("root"), usual, true).as_deref(), Some("root"));
        assert_eq!(user(None, usual, false), None);
        assert_eq!(user(None, Path::new("levity.toml"), true), None);
        let of_unit = accounts.find(UNIT_USER).map(|user| user.name);
        assert_eq!(user(None, usual, true), of_unit);
    }
}
