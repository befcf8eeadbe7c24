//! Programs that tests and benchmarks start, and the Debian packages that they come from.

use crate::run::{self, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program, or a file of a library, and its Debian package.
#[derive(Clone, Copy)]
pub struct Tool {
    /// The name of a program, or the whole path of one of a library's files; `*` at its end stands
    /// for a version.
    pub program: &'static str,
    pub package: &'static str,
}

/// Installs what is missing, when root; says what to install otherwise.
pub fn install(tools: &[Tool]) -> Result<()> {
    let mut packages: Vec<&str> = tools
        .iter()
        .filter(|tool| !is_there(tool.program))
        .map(|tool| tool.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root() || !is_there("apt-get") {
        let names = packages.join(" ");
        return Err(format!(
            "missing programs; as root: apt-get install --no-install-recommends {names}"
        ));
    }
    run::run(&mut apt(&["update", "-qq"]))?;
    run::run(apt(&["install", "-qq", "--no-install-recommends"]).args(packages))
}

/// Whether this process may mount, limit and drop caches.
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uid.and_then(|line| line.split_whitespace().nth(1)) == Some("0")
}

/// Debian keeps servers and file system tools outside of a user's path.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).to_owned());
    // A whole path replaces the folder.
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(program))
        .any(|path| path.is_file() || is_there_with_version(&path))
}

/// Whether a path that ends in `*` names anything.
fn is_there_with_version(path: &Path) -> bool {
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
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program"));
    }

    #[test]
    fn finds_versions_and_files_of_libraries() {
        assert!(is_there("env*"));
        assert!(!is_there("no-such-program*"));
        assert!(is_there("/etc/passwd"));
        assert!(is_there("/etc/passw*"));
        assert!(!is_there("/etc/no-such-file"));
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
