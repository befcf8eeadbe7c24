//! What a unit of systemd hides from its process or keeps it from writing to, and the line that opens it.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use levity_disk::patiently;

use crate::swap::holders;

/// What `ProtectHome=` hides.
const HOMES: &[&str] = &["/home", "/root", "/run/user"];

/// What `PrivateTmp=` replaces.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp"];

/// What helps if the unit of this process is why `folder`, or something in it, could not be used: an end for a message about `error`.
/// Empty for processes that are not in a unit, and for other errors. Blocks, for seconds at most.
pub fn remedy(folder: &Path, error: &Error) -> String {
    match is_in_unit() {
        true => remedy_in_unit(folder, error.kind(), opened(folder)),
        false => String::new(),
    }
}

/// The same for a log or a socket at `path`. Its folder is not replaced while the server runs, so the folders above, which
/// may hold web roots, stay closed.
pub fn remedy_for_file(path: &Path, error: &Error) -> String {
    let folder = path.parent().unwrap_or(path);
    match is_in_unit() {
        true => remedy_in_unit(folder, error.kind(), vec![folder.to_owned()]),
        false => String::new(),
    }
}

/// systemd 248 and later set the variable to the process that they start. Others inherit it.
fn is_in_unit() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID");
    started.is_ok_and(|id| id == std::process::id().to_string())
}

fn remedy_in_unit(folder: &Path, error: ErrorKind, opened: Vec<PathBuf>) -> String {
    let is_beneath = |folders: &[&str]| folders.iter().any(|one| folder.starts_with(one));
    let is_hidden = matches!(error, ErrorKind::NotFound | ErrorKind::PermissionDenied);
    let line = if error == ErrorKind::ReadOnlyFilesystem {
        read_write_paths(opened)
    } else if is_hidden && is_beneath(HOMES) {
        "ProtectHome=read-only".to_owned()
    } else if is_hidden && is_beneath(TEMPORARY) {
        return "; with `PrivateTmp=yes` the unit has /tmp and /var/tmp of its own".to_owned();
    } else {
        return String::new();
    };
    format!("; if the unit is why, `{line}` beneath [Service] in `systemctl edit levity` opens it")
}

/// What has to be open for `folder`, and for another one in its place. systemd opens the folder that has the name at the
/// start, and not the one that has it later, so the folders that hold the names are opened.
fn opened(folder: &Path) -> Vec<PathBuf> {
    let mut opened = patiently(folder, holders).unwrap_or_default();
    opened.push(folder.to_owned());
    opened
}

fn read_write_paths(opened: Vec<PathBuf>) -> String {
    let is_in_another = |path: &&PathBuf| {
        let mut others = opened.iter().filter(|other| other != path);
        others.any(|other| path.starts_with(other))
    };
    let outer = opened.iter().filter(|path| !is_in_another(path));
    let outer: Vec<_> = outer.map(|path| path.display().to_string()).collect();
    format!("ReadWritePaths={}", outer.join(" "))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_unit_is_the_reason_for_has_a_line() {
        let said =
            |folder: &str, error| remedy_in_unit(Path::new(folder), error, opened(folder.as_ref()));
        assert!(said("/srv/a", ErrorKind::ReadOnlyFilesystem).contains("`ReadWritePaths=/srv`"));
        for error in [ErrorKind::NotFound, ErrorKind::PermissionDenied] {
            assert!(said("/home/a", error).contains("`ProtectHome=read-only`"));
            assert!(said("/tmp/a", error).contains("`PrivateTmp=yes`"));
            assert_eq!(said("/srv/a", error), "");
        }
        assert_eq!(said("/home/a", ErrorKind::NotADirectory), "");
        assert_eq!(
            remedy(Path::new("/srv/a"), &ErrorKind::ReadOnlyFilesystem.into()),
            ""
        );
    }
    #[test]
    fn a_line_opens_a_folder_and_another_one_in_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        fs::create_dir_all(top.join("data/releases/1/up")).expect("folders");
        fs::create_dir(top.join("site")).expect("a folder");
        symlink(top.join("data/releases/1"), top.join("site/current")).expect("a link");
        let line = |name: &str| {
            read_write_paths(opened(&top.join(name))).replace(&format!("{}", top.display()), "")
        };
        assert_eq!(line("data/releases/1"), "ReadWritePaths=/data/releases");
        assert_eq!(
            line("site/current/up"),
            "ReadWritePaths=/data/releases /site"
        );
        // Folders that many programs share stay closed.
        for path in ["/srv", "/var/log/mine"] {
            assert_eq!(
                read_write_paths(opened(path.as_ref())),
                format!("ReadWritePaths={path}")
            );
        }
    }
}
