//! What a unit of systemd hides from its process or keeps it from writing to, and the line that opens it.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// What `ProtectHome=` hides.
const HOMES: &[&str] = &["/home", "/root", "/run/user"];

/// What `PrivateTmp=` replaces.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp"];

/// What helps if the unit of this process is why `folder`, or something in it, could not be used: an end for a message about `error`.
/// Empty for processes that are not in a unit, and for other errors. Does not block.
pub fn remedy(folder: &Path, error: &Error) -> String {
    match is_in_unit() {
        true => remedy_in_unit(folder, error.kind()),
        false => String::new(),
    }
}

/// systemd 248 and later set the variable to the process that they start. Others inherit it.
fn is_in_unit() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID");
    started.is_ok_and(|id| id == std::process::id().to_string())
}

fn remedy_in_unit(folder: &Path, error: ErrorKind) -> String {
    let is_beneath = |folders: &[&str]| folders.iter().any(|one| folder.starts_with(one));
    let is_hidden = matches!(error, ErrorKind::NotFound | ErrorKind::PermissionDenied);
    let line = if error == ErrorKind::ReadOnlyFilesystem {
        format!("ReadWritePaths={}", folder.display())
    } else if is_hidden && is_beneath(HOMES) {
        "ProtectHome=read-only".to_owned()
    } else if is_hidden && is_beneath(TEMPORARY) {
        return "; with `PrivateTmp=yes` the unit has /tmp and /var/tmp of its own".to_owned();
    } else {
        return String::new();
    };
    format!("; if the unit is why, `{line}` beneath [Service] in `systemctl edit levity` opens it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_unit_is_the_reason_for_has_a_line() {
        let said = |folder: &str, error| remedy_in_unit(Path::new(folder), error);
        assert!(said("/srv/a", ErrorKind::ReadOnlyFilesystem).contains("`ReadWritePaths=/srv/a`"));
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
}
