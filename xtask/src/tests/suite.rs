//! The programs with tests, and those of the documentation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::features;
use crate::run::{self, Result, cargo};

/// A program with tests.
pub struct Suite {
    /// The options of `cargo test` that choose it.
    pub name: String,
    pub program: OsString,
    /// What stands before the arguments of the test runner.
    pub before: Vec<String>,
    pub folder: PathBuf,
}

impl Suite {
    /// The command that runs it with `arguments` of the test runner.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.before).args(arguments);
        run::forget_package(&mut command);
        command.current_dir(&self.folder);
        command
    }
}

/// Builds all tests of the workspace. The tests of the documentation are built when they run.
pub fn build() -> Result<Vec<Suite>> {
    let mut arguments = vec!["test", "--workspace"];
    let mut suites = programs(&arguments)?;
    arguments.extend(["--doc", "--no-fail-fast", "--"]);
    let documentation = cargo(&arguments);
    suites.push(Suite {
        name: "--doc".to_owned(),
        program: documentation.get_program().to_owned(),
        before: arguments.into_iter().map(str::to_owned).collect(),
        folder: run::root(),
    });
    Ok(suites)
}

/// Builds the tests of the program without its features. They run the program itself, which takes the place of that with all
/// features: run those of [`build`] before.
pub fn build_without_features() -> Result<Vec<Suite>> {
    let arguments = [&["test"][..], &features::WITHOUT].concat();
    let suites = programs(&arguments)?.into_iter().map(|suite| Suite {
        name: format!("{} --no-default-features", suite.name),
        ..suite
    });
    Ok(suites.collect())
}

/// Builds the programs that `cargo` with `arguments` would run, in the order of their names.
fn programs(arguments: &[&str]) -> Result<Vec<Suite>> {
    let mut build = cargo(arguments);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let messages = run::output(build.stderr(Stdio::inherit()))?;
    let messages = String::from_utf8_lossy(&messages);
    let mut suites: Vec<_> = messages.lines().filter_map(built).collect();
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(suites)
}

/// The program that a message of cargo is about, if it has tests.
fn built(message: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let target = &message["target"];
    let target = match (target["kind"][0].as_str()?, target["name"].as_str()?) {
        (kind @ ("bin" | "test" | "bench" | "example"), name) => format!("--{kind} {name}"),
        _ => "--lib".to_owned(),
    };
    let package = package(message["package_id"].as_str()?)?;
    Some(Suite {
        name: format!("-p {package} {target}"),
        program: message["executable"].as_str()?.into(),
        before: Vec::new(),
        folder: Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_owned(),
    })
}

/// The name in the identifier of a package, which leaves it out if it is that of the folder.
fn package(id: &str) -> Option<&str> {
    let (url, version) = id.split_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, kind: &str, test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/crates/one/Cargo.toml",
            "target": { "kind": [kind], "name": "it" }, "profile": { "test": test },
            "executable": "/w/target/debug/deps/it-0123",
        })
        .to_string()
    }

    #[test]
    fn programs_with_tests_are_found() {
        let name = |id, kind| built(&message(id, kind, true)).map(|suite| suite.name);
        let id = "path+file:///w/crates/one#0.1.0";
        assert_eq!(name(id, "test").unwrap(), "-p one --test it");
        assert_eq!(name(id, "lib").unwrap(), "-p one --lib");
        let id = "path+file:///w/crates/one#levity-one@0.1.0";
        assert_eq!(name(id, "bin").unwrap(), "-p levity-one --bin it");
        let suite = built(&message(id, "test", true)).unwrap();
        assert_eq!(suite.folder, Path::new("/w/crates/one"));
        assert!(built(&message(id, "bin", false)).is_none());
        assert!(built("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
