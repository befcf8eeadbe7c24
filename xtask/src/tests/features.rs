//! The program without some of its features.

use serde_json::Value;

use crate::run::{self, Result, cargo};

/// What every build without features is told.
pub const WITHOUT: [&str; 3] = ["-p", "levity", "--no-default-features"];

/// Checks the program and its tests without each of the features alone.
pub fn check_without_each() -> Result<()> {
    let features = features()?;
    for absent in &features {
        let others = features.iter().filter(|feature| *feature != absent);
        let others: Vec<_> = others.map(String::as_str).collect();
        let mut check = cargo(&["clippy", "--tests", "--locked"]);
        check.args(WITHOUT).args(["--features", &others.join(",")]);
        run::run(check.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// The features of the program that are built by default.
fn features() -> Result<Vec<String>> {
    let metadata = run::output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_slice(&metadata).map_err(|error| error.to_string())?;
    default_of("levity", &metadata).ok_or_else(|| "levity has no features".to_owned())
}

fn default_of(package: &str, metadata: &Value) -> Option<Vec<String>> {
    let mut packages = metadata["packages"].as_array()?.iter();
    let package = packages.find(|one| one["name"] == package)?;
    let default = package["features"]["default"].as_array()?.iter();
    Some(
        default
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_all_features() {
        let features = features().expect("the manifest of the workspace");
        let manifest = include_str!("../../../crates/levity/Cargo.toml");
        let (_, section) = manifest.split_once("[features]\n").expect("features");
        let (section, _) = section.split_once("\n[").expect("a next section");
        let names = section.lines().filter_map(|line| line.split_once(" = ["));
        let names: Vec<_> = names
            .map(|(name, _)| name)
            .filter(|name| *name != "default")
            .collect();
        assert_eq!(features, names);
    }
}
