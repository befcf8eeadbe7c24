//! The program without some of its features.

use serde_json::Value;

use crate::run::{self, Result, cargo};

/// What every build without features is told.
pub const WITHOUT: [&str; 3] = ["-p", "levity", "--no-default-features"];

/// Checks the program and its tests without each of the features alone, and those that need it.
pub fn check_without_each() -> Result<()> {
    let metadata = metadata()?;
    for absent in features(&metadata)? {
        let others = without(&absent, &metadata)?;
        let mut check = cargo(&["clippy", "--tests", "--locked"]);
        check.args(WITHOUT).args(["--features", &others.join(",")]);
        run::run(check.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// The features of the program that are built by default, but for `absent` and those that turn it on.
fn without(absent: &str, metadata: &Value) -> Result<Vec<String>> {
    let all = features(metadata)?;
    let has_it =
        |name: &String| name == absent || of_levity(name, metadata).any(|one| one == absent);
    Ok(all.into_iter().filter(|name| !has_it(name)).collect())
}

/// The features of the program that are built by default.
fn features(metadata: &Value) -> Result<Vec<String>> {
    let default: Vec<_> = of_levity("default", metadata).map(str::to_owned).collect();
    match default.is_empty() {
        true => Err("levity has no features".to_owned()),
        false => Ok(default),
    }
}

fn metadata() -> Result<Value> {
    let metadata = run::output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--locked",
    ]))?;
    serde_json::from_slice(&metadata).map_err(|error| error.to_string())
}

/// What a feature of the program turns on.
fn of_levity<'m>(feature: &str, metadata: &'m Value) -> impl Iterator<Item = &'m str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let levity = packages.filter(|one| one["name"] == "levity");
    let on = levity.filter_map(move |one| one["features"][feature].as_array());
    on.flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_all_features() {
        let features = features(&metadata().expect("the manifest of the workspace"));
        let features = features.expect("a default");
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

    #[test]
    fn what_needs_a_feature_goes_with_it() {
        let metadata = metadata().expect("the manifest of the workspace");
        let others = without("tls", &metadata).expect("features");
        assert!(others.contains(&"http2".to_owned()));
        assert!(!others.contains(&"tls".to_owned()) && !others.contains(&"acme".to_owned()));
    }
}
