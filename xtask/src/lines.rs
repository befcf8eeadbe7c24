//! `cargo xtask lines`: counts the lines of product code, without tests, what only tests are built with, comments and
//! blank lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::files;
use crate::run::{self, Result};

/// What makes up the mailboxes: files and folders, beneath `crates`.
const MAILBOX: &[&str] = &[
    "levity-config/src/mailbox",
    "levity-config/src/resume.rs",
    "levity-inspect/src/mailbox.rs",
    "levity-mailbox/src",
    "levity-telemetry/src/stats/mailboxes.rs",
    "levity-wire/src/durable_streams",
    "levity-wire/src/grip",
    "levity-wire/src/mailbox.rs",
    "levity-wire/src/mailbox_header.rs",
    "levity-wire/src/sse.rs",
    "levity-wire/src/websocket",
    "levity-wire/src/websocket.rs",
    "levity/src/cli/inspect/mailbox.rs",
    "levity/src/handler/mailbox",
    "levity/src/handler/resume",
    "levity/src/mailboxes",
    "levity/src/status/mailboxes.rs",
    "levity/src/upstream/abandoned.rs",
    "levity/src/upstream/grip_sig.rs",
];

/// Prints the lines of all that belongs to the mailboxes, and their sum.
///
/// # Errors
/// When a path of the list does not exist: what has moved would not be counted.
pub fn mailbox() -> Result<()> {
    let mut sum = 0;
    for path in MAILBOX {
        let whole = run::root().join("crates").join(path);
        let lines = match whole.is_dir() {
            true => lines_beneath(&whole)?,
            false => product_lines(&files::read(&whole)?),
        };
        println!("{lines:>7} {path}");
        sum += lines;
    }
    println!("{sum:>7} in all");
    Ok(())
}

/// Prints the lines of each crate and their sum.
pub fn run() -> Result<()> {
    let mut by_crate = BTreeMap::new();
    for folder in files::entries(&run::root().join("crates"))? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        by_crate.insert(name.into_owned(), lines_beneath(&folder.join("src"))?);
    }
    for (name, lines) in &by_crate {
        println!("{lines:>7} {name}");
    }
    println!("{:>7} in all", by_crate.values().sum::<usize>());
    Ok(())
}

/// What stands above items that no product has.
const OF_TESTS: [&str; 2] = [
    "#[cfg(test)]",
    "#[cfg(any(test, feature = \"test-support\"))]",
];

fn is_of_tests(line: &str) -> bool {
    OF_TESTS.contains(&line.trim_start())
}

fn lines_beneath(folder: &Path) -> Result<usize> {
    let mut sources = Vec::new();
    for file in files::sources(folder)? {
        let source = files::read(&file)?;
        sources.push((file, source));
    }
    let of_tests: Vec<_> = sources
        .iter()
        .flat_map(|(file, source)| test_modules(file, source))
        .collect();
    let is_product = |file: &Path| {
        let module = file.with_extension("");
        !of_tests.iter().any(|tests| module.starts_with(tests))
    };
    let product = sources.iter().filter(|(file, _)| is_product(file));
    Ok(product.map(|(_, source)| product_lines(source)).sum())
}

/// The test modules with a file of their own that `file` declares, as paths without extension.
fn test_modules(file: &Path, source: &str) -> Vec<PathBuf> {
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") => file.parent().unwrap_or(file).to_owned(),
        _ => file.with_extension(""),
    };
    let lines = source.lines().zip(source.lines().skip(1));
    let declarations = lines.filter(|(line, _)| is_of_tests(line));
    let names = declarations.filter_map(|(_, line)| line.split("mod ").nth(1)?.strip_suffix(';'));
    names.map(|name| folder.join(name)).collect()
}

/// The number of lines of product code in `source`. rustfmt has formatted it, so an item ends with a brace at the
/// indentation of its first line.
fn product_lines(source: &str) -> usize {
    let mut lines = source.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if is_of_tests(line) {
            let indent = &line[..line.len() - line.trim_start().len()];
            skip_item(&mut lines, indent);
        } else if is_code(line) {
            count += 1;
        }
    }
    count
}

fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: &str) {
    let ends = |line: &str| match line.strip_prefix(indent) {
        Some(rest) if rest.starts_with('}') => true,
        Some(rest) => !rest.starts_with([' ', '#']) && rest.ends_with([';', ',', '}']),
        None => false,
    };
    lines.find(|line| ends(line));
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest share of a room in the product lines of `levity`, in percent.
    const SHARE_MAX: usize = 15;

    /// Rooms of which each folder counts as a room of its own.
    const DIVIDED: [&str; 2] = ["handler", "upstream"];

    #[test]
    fn no_room_outgrows_the_others() {
        let source = run::root().join("crates/levity/src");
        let whole = lines_beneath(&source).expect("sources");
        for room in rooms(&source) {
            let lines = lines_of(&room);
            assert!(
                lines * 100 <= whole * SHARE_MAX,
                "{} has {lines} of {whole} lines",
                room.display()
            );
        }
    }

    fn rooms(source: &Path) -> Vec<PathBuf> {
        let folders = |folder: &Path| {
            let entries = files::entries(folder).expect("a folder");
            entries.into_iter().filter(|path| path.is_dir())
        };
        let parts = DIVIDED.iter().flat_map(|name| folders(&source.join(name)));
        folders(source).chain(parts).collect()
    }

    /// The lines of a room, without those of the rooms in it.
    fn lines_of(room: &Path) -> usize {
        let whole = lines_beneath(room).expect("sources");
        let is_divided = DIVIDED.iter().any(|name| room.ends_with(name));
        let parts = files::entries(room).expect("a folder");
        let parts = parts.iter().filter(|path| is_divided && path.is_dir());
        whole
            - parts
                .map(|part| lines_beneath(part).expect("sources"))
                .sum::<usize>()
    }

    #[test]
    fn test_modules_have_their_paths() {
        let source = "#[cfg(test)]\npub mod rig;\nmod other;\n#[cfg(test)]\nuse x;\n";
        let found = |file: &str| test_modules(Path::new(file), source);
        assert_eq!(found("src/lib.rs"), [Path::new("src/rig")]);
        assert_eq!(found("src/a.rs"), [Path::new("src/a/rig")]);
    }

    #[test]
    fn tests_comments_and_blank_lines_do_not_count() {
        let source = "\
//! A file.

use std::io; // counts

#[cfg(test)]
mod samples;

/// A function.
fn one() {
    // Why.
    two();
    #[cfg(test)]
    if three() {
        four();
    }
}

#[cfg(any(test, feature = \"test-support\"))]
pub fn eight() {
    nine();
}

#[cfg(test)]
#[path = \"x.rs\"]
mod tests {
    fn five() {}

    fn six() {
        seven();
    }
}
";
        assert_eq!(product_lines(source), 4);
    }
}
