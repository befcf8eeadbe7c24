//! Programs that make files of a release, without what the environment of this one has them do.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::Command;

/// What they are told: where programs, caches and temporary files are. Others change bytes: `GZIP`, `TAR_OPTIONS`,
/// `XZ_OPT`, `DPKG_DEB_*`, `DH_*`, `CFLAGS`, `CARGO_PROFILE_*` and many more.
const KEPT: [&str; 9] = [
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "HOME",
    "LOGNAME",
    "PATH",
    "RUSTC",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "TMPDIR",
];

/// A program.
pub fn tool(program: impl AsRef<OsStr>) -> Command {
    alone(Command::new(program))
}

/// A command that has nothing in its environment but what is kept, and `LC_ALL=C`.
pub fn alone(mut command: Command) -> Command {
    command
        .env_clear()
        .envs(kept(env::vars_os()))
        .env("LC_ALL", "C");
    command
}

fn kept(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    let variables = variables.into_iter();
    variables.filter(|(name, _)| KEPT.iter().any(|kept| name == kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_bytes_is_not_told() {
        let names = [
            "CARGO_PROFILE_RELEASE_LTO",
            "LIBSQLITE3_FLAGS",
            "GZIP",
            "PATH",
        ];
        let variables = names.map(|name| (name.into(), "value".into()));
        let kept: Vec<_> = kept(variables).map(|(name, _)| name).collect();
        assert_eq!(kept, ["PATH"]);
    }
}
