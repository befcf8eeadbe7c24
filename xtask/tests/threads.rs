//! The threads of the program are those that docs/system-calls.md has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of threads of commands that are no server, and of names that code makes.
const ELSEWHERE: [&str; 1] = ["keys"];

#[test]
fn each_thread_has_a_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = fs::read_to_string(root.join("docs/system-calls.md")).unwrap();
    let rows = table
        .split("\n## ")
        .find(|part| part.starts_with("Threads"));
    let rows: Vec<&str> = rows
        .unwrap()
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let has_row = |name: &str| {
        let name = format!("`{name}`");
        rows.iter()
            .any(|row| row.split('|').nth(1).unwrap().contains(&name))
    };
    let names: Vec<String> = sources(&root).iter().flat_map(|path| names(path)).collect();
    assert!(names.len() > 10, "{names:?}");
    let without: Vec<_> = names
        .iter()
        .filter(|name| !has_row(name) && !ELSEWHERE.contains(&name.as_str()))
        .collect();
    assert!(
        without.is_empty(),
        "no row of docs/system-calls.md: {without:?}"
    );
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let mut list = Command::new("git");
    let list = list
        .args(["ls-files", "crates/*/src/*.rs"])
        .current_dir(root);
    let names = String::from_utf8(list.output().unwrap().stdout).unwrap();
    names.lines().map(|name| root.join(name)).collect()
}

/// The texts that builders and helpers get as names of threads.
fn names(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let text: String = text.split_whitespace().collect();
    ["Builder::new().name(\"", "spawn(\""]
        .iter()
        .flat_map(|start| text.split(start).skip(1))
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}
