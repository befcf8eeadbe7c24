//! `levity precompress`, and a server for what it writes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Launch, Ran, Tree, age, assert_same, content, wait_until};

const CODINGS: [(&str, &str); 3] = [("zstd", "zst"), ("br", "br"), ("gzip", "gz")];

/// A tree whose folder anybody may write to.
fn open_tree() -> Tree {
    let tree = Tree::new();
    tree.chmod("", 0o777);
    tree
}

fn command(flags: &[&str], tree: &Tree) -> Launch {
    Launch::levity(["precompress"])
        .arguments(flags)
        .arguments([tree.path()])
}

fn ran(flags: &[&str], tree: &Tree) -> Ran {
    command(flags, tree).ran()
}

#[track_caller]
fn succeeds(flags: &[&str], tree: &Tree) -> String {
    let ran = ran(flags, tree);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    ran.stdout
}

#[track_caller]
fn fails(flags: &[&str], tree: &Tree, part: &str) -> Ran {
    let ran = ran(flags, tree);
    assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(part), "{}", ran.stderr);
    ran
}

/// Text that compresses to about half.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let hex = content(seed, length.div_ceil(2));
    let hex = hex
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes());
    hex.take(length).collect()
}

/// The names in the tree, with inode and time of modification. A run may remove one meanwhile.
fn state(folder: &Path) -> BTreeMap<String, (u64, i64, i64)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.filter_map(|entry| {
        let entry = entry.expect("an entry");
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            metadata => metadata.expect("stat"),
        };
        let name = entry.file_name().into_string().expect("UTF-8");
        let state = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        Some((name, state))
    });
    entries.collect()
}

fn names(folder: &Path) -> Vec<String> {
    state(folder).into_keys().collect()
}

/// What the tool of the coding makes of `bytes`.
fn decoded(tool: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tool)
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    let mut input = child.stdin.take().expect("stdin");
    let bytes = bytes.to_owned();
    let writer = std::thread::spawn(move || input.write_all(&bytes).expect("write"));
    let output = child.wait_with_output().expect("wait");
    writer.join().expect("it does not panic");
    assert!(output.status.success(), "{tool}");
    output.stdout
}

#[test]
fn variants_are_written_and_served() {
    let tree = open_tree();
    let pages = [
        ("page.html", text(1, 300)),
        ("app.js", text(2, 60_000)),
        ("data.json", text(3, 700_000)),
    ];
    for (name, bytes) in &pages {
        tree.file(name, bytes);
    }
    tree.file("photo.jpg", text(4, 5_000));
    tree.file("short.txt", "x".repeat(255));
    tree.filled("noise.txt", 5_000);
    let out = succeeds(&[], &tree);
    for (coding, _) in CODINGS {
        let line = format!("{coding}: 3 written (760300 -> ");
        assert!(out.contains(&line), "{out}");
    }
    assert!(
        out.contains("0 up to date, 1 would save too little"),
        "{out}"
    );
    assert!(out.contains("\n5 files in "), "{out}");
    assert_eq!(out.lines().count(), 4, "{out}");
    assert_eq!(names(tree.path()).len(), 6 + 3 * 3);
    let keys = "precompressed = [\"zstd\", \"br\", \"gzip\"]";
    let server = Launch::site(tree.path(), "", keys).start();
    for (name, bytes) in &pages {
        let modified = |name: &str| fs::metadata(tree.at(name)).and_then(|meta| meta.modified());
        let time = modified(name).expect("a time");
        for (coding, suffix) in CODINGS {
            let variant = format!("{name}.{suffix}");
            let written = fs::read(tree.at(&variant)).expect("a variant");
            assert_eq!(modified(&variant).expect("a time"), time);
            let answer = server.get_with(&format!("/{name}"), &[("Accept-Encoding", coding)]);
            assert_eq!(answer.field("content-encoding"), coding);
            assert_same(&answer.body, &written);
            let tool = if coding == "br" { "brotli" } else { coding };
            assert_same(&decoded(tool, &answer.body), bytes);
        }
    }
}

#[test]
fn a_second_run_does_nothing() {
    let tree = open_tree();
    for number in 0..20 {
        tree.file(format!("{number}.css"), text(number, 2_000));
    }
    // One of the second in which it is compressed.
    tree.fresh("fresh.css", text(99, 2_000));
    succeeds(&[], &tree);
    let first = state(tree.path());
    assert_eq!(first.len(), 21 * 4);
    let out = succeeds(&["-v"], &tree);
    assert_eq!(
        out.matches("0 written (0 -> 0 bytes), 21 up to date")
            .count(),
        3,
        "{out}"
    );
    assert_eq!(state(tree.path()), first);
    succeeds(&["--check"], &tree);
    let out = succeeds(&["--force", "--codings", "gzip"], &tree);
    assert!(out.starts_with("gzip: 21 written ("), "{out}");
    for (name, after) in state(tree.path()) {
        assert_eq!(after != first[&name], name.ends_with(".gz"), "{name}");
    }
}

#[test]
fn variants_of_a_changed_file_are_made_anew() {
    let tree = open_tree();
    age(&tree.file("a.js", text(1, 3_000)), Duration::from_secs(100));
    age(&tree.file("b.js", text(2, 3_000)), Duration::from_secs(100));
    succeeds(&[], &tree);
    let first = state(tree.path());
    let changed = text(3, 3_000);
    age(&tree.file("b.js", &changed), Duration::from_secs(50));
    let ran = fails(&["--check"], &tree, "");
    for (_, suffix) in CODINGS {
        let line = format!(
            "outdated: {}\n",
            tree.at(format!("b.js.{suffix}")).display()
        );
        assert!(ran.stdout.contains(&line), "{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("a.js"), "{}", ran.stdout);
    let out = succeeds(&["-v"], &tree);
    assert_eq!(out.matches("b.js.").count(), 3, "{out}");
    assert!(!out.contains("a.js"), "{out}");
    for (name, after) in state(tree.path()) {
        assert_eq!(after != first[&name], name.starts_with('b'), "{name}");
    }
    let gzip = fs::read(tree.at("b.js.gz")).expect("a variant");
    assert_same(&decoded("gzip", &gzip), &changed);
}

#[test]
fn check_and_dry_run_change_nothing() {
    let tree = open_tree();
    tree.file("a.js", text(1, 3_000));
    tree.filled("noise.txt", 3_000);
    tree.file(".levity-precompress-1-1", "left behind");
    let first = state(tree.path());
    let ran = fails(&["--check"], &tree, "");
    assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("missing: ").count(), 3, "{}", ran.stdout);
    let out = succeeds(&["--dry-run"], &tree);
    assert_eq!(out.matches("a.js.").count(), 3, "{out}");
    assert!(out.contains("br: 1 to write (3000 -> "), "{out}");
    assert_eq!(state(tree.path()), first);
    let listed = out.lines().find(|line| line.contains("a.js.gz: 3000 -> "));
    let listed = listed.expect("a line").to_owned();
    assert!(succeeds(&["-v"], &tree).contains(&listed));
    succeeds(&["--check"], &tree);
}

#[test]
fn only_prune_removes() {
    let tree = open_tree();
    tree.file("a.js", text(1, 3_000));
    succeeds(&[], &tree);
    tree.file("backup.sql.gz", "a download");
    tree.file("data.tar", text(2, 3_000));
    tree.file("data.tar.gz", "a download, too");
    tree.fresh("a.js", content(3, 3_000));
    let all = names(tree.path());
    let out = succeeds(&[], &tree);
    assert!(out.contains("1 would save too little, 0 removed"), "{out}");
    assert_eq!(names(tree.path()), all);
    let out = succeeds(&["--prune", "--dry-run"], &tree);
    assert_eq!(out.matches(": removed\n").count(), 3, "{out}");
    assert_eq!(names(tree.path()), all);
    let out = succeeds(&["--prune"], &tree);
    assert!(
        !out.contains(": removed\n") && out.contains("1 removed"),
        "{out}"
    );
    let left = ["a.js", "backup.sql.gz", "data.tar", "data.tar.gz"];
    assert_eq!(names(tree.path()), left);
}

#[test]
fn links_are_not_followed() {
    let (tree, outside) = (open_tree(), open_tree());
    outside.file("a.js", text(1, 3_000));
    tree.link(outside.path(), "folder");
    tree.link(outside.at("a.js"), "a.js");
    tree.file("b.js", text(2, 3_000));
    tree.link(outside.at("a.js"), "b.js.gz");
    let ran = fails(
        &[],
        &tree,
        "b.js.gz is no regular file, and was left as it is",
    );
    assert!(ran.stdout.contains("1 files"), "{}", ran.stdout);
    assert_eq!(names(outside.path()), ["a.js"]);
    let expected = ["a.js", "b.js", "b.js.br", "b.js.gz", "b.js.zst", "folder"];
    assert_eq!(names(tree.path()), expected);
    assert!(tree.at("b.js.gz").is_symlink());
    // The folder that is named may itself be a link.
    let link = open_tree();
    link.link(outside.path(), "current");
    let ran = Launch::levity(["precompress"])
        .arguments([link.at("current")])
        .ran();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(names(outside.path()).len(), 4);
}

/// The others get theirs all the same.
#[test]
fn what_cannot_be_read_or_written_is_named() {
    let tree = open_tree();
    tree.file("a.js", text(1, 3_000));
    tree.file("secret.js", text(2, 3_000));
    tree.chmod("secret.js", 0o000);
    tree.file("closed/b.js", text(3, 3_000));
    tree.chmod("closed", 0o000);
    tree.file("read-only/c.js", text(4, 3_000));
    tree.chmod("read-only", 0o555);
    let named = |name: &str| tree.at(name).display().to_string();
    let ran = fails(&[], &tree, "");
    // Or the tree could not be removed by its owner.
    tree.chmod("closed", 0o755);
    tree.chmod("read-only", 0o755);
    for (what, count) in [
        (
            format!("cannot read {}: Permission denied", named("secret.js")),
            3,
        ),
        (
            format!("cannot read {}: Permission denied", named("closed")),
            1,
        ),
        (format!("cannot write {}", named("read-only/c.js.br")), 1),
    ] {
        assert_eq!(ran.stderr.matches(&what).count(), count, "{}", ran.stderr);
    }
    assert_eq!(ran.stderr.lines().count(), 7, "{}", ran.stderr);
    assert!(tree.at("a.js.br").exists());
    assert_eq!(names(&tree.at("read-only")), ["c.js"]);
    let none = Launch::levity(["precompress"])
        .arguments([tree.at("none"), tree.path().to_owned()])
        .ran();
    assert_eq!(none.status, 1);
    assert!(none.stdout.contains(" files in "), "{}", none.stdout);
    let missing = format!("error: cannot read {}: No such file", named("none"));
    assert!(none.stderr.contains(&missing), "{}", none.stderr);
}

fn temporary(folder: &Path) -> Option<String> {
    let is_temporary = |name: &String| name.starts_with(".levity-precompress-");
    names(folder).into_iter().find(is_temporary)
}

/// Long enough for tests that change a file meanwhile.
const LONG_BYTES: usize = 4_000_000;

#[test]
fn a_file_that_grows_meanwhile_gets_no_variant() {
    let tree = open_tree();
    let path = tree.file("log.txt", text(1, LONG_BYTES));
    let launch = command(&["--codings", "br"], &tree);
    let folder = tree.path().to_owned();
    let grower = std::thread::spawn(move || {
        wait_until("it compresses", || temporary(&folder).is_some());
        let file = fs::OpenOptions::new().append(true).open(path);
        file.expect("open")
            .write_all(b"one more line\n")
            .expect("write");
    });
    let ran = launch.ran();
    grower.join().expect("it does not panic");
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("log.txt changed while it was read"),
        "{}",
        ran.stderr
    );
    assert_eq!(names(tree.path()), ["log.txt"]);
}

/// The next run removes what a killed one leaves, but not what a running one needs.
#[test]
fn a_killed_run_leaves_nothing_for_long() {
    let tree = open_tree();
    // The other runs end long before this one, also on a busy machine.
    tree.file("long.txt", text(1, 5 * LONG_BYTES));
    tree.file("a.js", text(2, 3_000));
    let all = |suffix: &str| -> Vec<String> {
        let all = names(tree.path()).into_iter();
        all.filter(|name| name.ends_with(suffix)).collect()
    };
    let (mut child, _own) = command(&["--codings", "br"], &tree).spawn();
    wait_until("it compresses", || {
        temporary(tree.path()).is_some() && !all(".br").is_empty()
    });
    let name = temporary(tree.path()).expect("a temporary file");
    succeeds(&["--codings", "gzip"], &tree);
    assert_eq!(temporary(tree.path()), Some(name));
    kill_process(Pid::from_child(&child), Signal::KILL).expect("kill");
    child.wait().expect("wait");
    assert_eq!(all(".br"), ["a.js.br"]);
    assert!(temporary(tree.path()).is_some());
    succeeds(&["--codings", "gzip"], &tree);
    assert_eq!(temporary(tree.path()), None);
}
