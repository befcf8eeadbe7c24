//! Runs other programs in the root of the workspace.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Errors are messages for the terminal.
pub type Result<T> = std::result::Result<T, String>;

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// The cargo that runs this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(arguments).current_dir(root());
    forget_package(&mut command);
    command
}

/// Removes what cargo tells this program about its own package from the environment of `command`. Build scripts read such
/// variables: `ring`, and with it the server and its tests, would be built again after each change between
/// `cargo xtask test` and `cargo test`.
pub fn forget_package(command: &mut Command) {
    forget(command, std::env::vars_os().map(|(name, _)| name));
}

fn forget(command: &mut Command, names: impl IntoIterator<Item = OsString>) {
    for name in names {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Prints the command, runs it and requires success.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .map_err(|error| format!("{line}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{line}: {status}"))
    }
}

/// Runs the command and returns its output.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = command_line(command);
    let output = command
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!(
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The output of `cargo metadata`.
pub fn metadata() -> Result<serde_json::Value> {
    let json = output(&mut cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    serde_json::from_slice(&json).map_err(|error| format!("cargo metadata: {error}"))
}

/// The command as one would type it, without the folder of the program.
pub fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cargo_knows_nothing_of_this_package() {
        let mut cargo = Command::new("cargo");
        let names = ["CARGO_PKG_NAME", "CARGO_HOME", "CARGO_MANIFEST_DIR"];
        forget(&mut cargo, names.map(OsString::from));
        let removed: Vec<_> = cargo.get_envs().collect();
        let expected = ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"];
        assert_eq!(removed, expected.map(|name| (name.as_ref(), None)));
    }
}
