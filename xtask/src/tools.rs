//! Programs that tests and benchmarks start, and the Debian packages that contain them.

use crate::run::{self, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program, or a file of a library, and its Debian package.
#[derive(Clone, Copy)]
pub struct Tool {
    /// The name of a program, or the absolute path of a file of a library. `*` at the end stands for a version.
    pub program: &'static str,
    pub package: &'static str,
}

/// Installs missing packages as root; otherwise fails with the command to run.
pub fn install(tools: &[Tool]) -> Result<()> {
    let mut packages: Vec<&str> = tools
        .iter()
        .filter(|tool| !is_installed(tool.program))
        .map(|tool| tool.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root() || !is_installed("apt-get") {
        let names = packages.join(" ");
        return Err(format!(
            "missing programs; as root: apt-get install --no-install-recommends {names}"
        ));
    }
    run::run(&mut apt(&["update", "-qq"]))?;
    run::run(apt(&["install", "-qq", "--no-install-recommends"]).args(packages))
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uid.and_then(|line| line.split_whitespace().nth(1)) == Some("0")
}

/// Whether a program is installed. Also searches `/usr/sbin` and `/sbin`, which may not be in the path of a user.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).to_owned());
    // Joining an absolute path replaces the folder.
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(program))
        .any(|path| path.is_file() || is_installed_with_version(&path))
}

/// Whether a file matches a path that ends in `*`.
fn is_installed_with_version(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let (Some(folder), Some(start)) = (path.parent(), name.strip_suffix(b"*")) else {
        return false;
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .any(|name| name.as_encoded_bytes().starts_with(start))
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(arguments)
        .arg("--yes")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_programs_in_the_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }

    #[test]
    fn finds_versions_and_files_of_libraries() {
        assert!(is_installed("env*"));
        assert!(!is_installed("no-such-program*"));
        assert!(is_installed("/etc/passwd"));
        assert!(is_installed("/etc/passw*"));
        assert!(!is_installed("/etc/no-such-file"));
    }

    #[test]
    fn nothing_is_installed_when_nothing_is_missing() {
        install(&[Tool {
            program: "sh",
            package: "no-such-package",
        }])
        .unwrap();
    }
}
