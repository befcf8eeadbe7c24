//! The table of threads in docs/system-calls.md has the names of those that the code starts, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a name of a thread follows in the code, without white space. A name that is made elsewhere is found in the other direction
/// only.
const STARTS: [&str; 4] = [
    "Builder::new().name(\"",
    "DiskThread::start(\"",
    "=beside(\"",
    "spawn(\"",
];

/// The thread of `levity top`, which is no server.
const ELSEWHERE: &str = "keys";

#[test]
fn threads_have_rows_and_rows_have_threads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = fs::read_to_string(root.join("docs/system-calls.md")).unwrap();
    let table = table
        .split("\n## ")
        .find(|part| part.starts_with("Threads"));
    let rows = table.unwrap().lines().filter(|line| line.starts_with('|'));
    let documented: BTreeSet<String> = rows.flat_map(quoted_in_first_column).collect();
    let code = code(&root);
    let started = STARTS.iter().flat_map(|start| code.split(start).skip(1));
    let started = started.map(|rest| rest.split('"').next().unwrap());
    let without_row: BTreeSet<_> = started
        .filter(|name| *name != ELSEWHERE && !documented.contains(*name))
        .collect();
    assert!(without_row.is_empty(), "no row: {without_row:?}");
    let has_thread = |name: &&String| {
        let name = name
            .strip_suffix("-N")
            .map_or_else(|| format!("\"{name}\""), |of| format!("\"{of}-{{"));
        code.contains(&name)
    };
    let without_thread: Vec<_> = documented.iter().filter(|name| !has_thread(name)).collect();
    assert!(without_thread.is_empty(), "no thread: {without_thread:?}");
}

fn quoted_in_first_column(row: &str) -> Vec<String> {
    let column = row.split('|').nth(1).unwrap();
    // The names lie between each second pair of quotes, without white space as in the code.
    let names = column.split('`').skip(1).step_by(2);
    names.map(|name| name.replace(' ', "")).collect()
}

/// All sources, without white space.
fn code(root: &Path) -> String {
    let mut list = Command::new("git");
    let list = list
        .args(["ls-files", "crates/*/src/*.rs"])
        .current_dir(root);
    let names = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let text = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let texts: String = names.lines().map(text).collect();
    texts.split_whitespace().collect()
}
