//! Lines of prose in the documents that people write are short enough to read beside code, and in a difference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The maximum number of characters of a line.
const COLUMNS_MAX: usize = 100;

/// What begins a line that cannot be divided: tables, headings, quotations, HTML.
const WHOLE: [char; 4] = ['|', '#', '>', '<'];

#[test]
fn lines_of_prose_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let long: Vec<String> = documents(&root)
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(root.join(path)).unwrap();
            let lines = long_lines(&text).into_iter();
            lines
                .map(|line| format!("{}:{line}", path.display()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        long.is_empty(),
        "lines over {COLUMNS_MAX} columns:\n{}",
        long.join("\n")
    );
}

/// The documents of the repository but those that programs write, which say so in their first lines.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut list = Command::new("git");
    let output = list.args(["ls-files", "*.md"]).current_dir(root).output();
    let names = String::from_utf8(output.unwrap().stdout).unwrap();
    let is_written = |path: &PathBuf| {
        let text = fs::read_to_string(root.join(path)).unwrap();
        !text
            .lines()
            .take(4)
            .any(|line| line.contains("LEVITY_WRITE_DOCS=1"))
    };
    let paths: Vec<_> = names
        .lines()
        .map(PathBuf::from)
        .filter(|path| !path.starts_with("bench/results"))
        .filter(is_written)
        .collect();
    assert!(paths.len() > 50, "{} documents", paths.len());
    paths
}

/// The numbers of the lines that are too long and could be divided.
fn long_lines(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut long = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fences = line.trim_start().starts_with("```");
        is_code ^= fences;
        if !is_code && !fences && is_too_long(line) {
            long.push(number);
        }
    }
    long
}

fn is_too_long(line: &str) -> bool {
    let is_whole = line.trim_start().starts_with(WHOLE);
    line.chars().count() > COLUMNS_MAX && !is_whole && may_be_divided(line)
}

/// Whether there is a space behind the first words that is not within code or a link.
fn may_be_divided(line: &str) -> bool {
    let (mut is_code, mut brackets) = (false, 0usize);
    let first = line.len() - line.trim_start_matches([' ', '-', '*']).len();
    line.char_indices().skip(first).any(|(_, character)| {
        match character {
            '`' => is_code = !is_code,
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        character == ' ' && !is_code && brackets == 0
    })
}

#[test]
fn what_is_too_long_is_found() {
    let words = "word ".repeat(21);
    let link = format!("- [{words}](url)");
    let text = format!("{words}\n```\n{words}\n```\n| {words} |\n{link}\nshort\n{words}");
    assert_eq!(long_lines(&text), [1, 8]);
    assert_eq!(long_lines(&"w".repeat(101)), []);
    assert_eq!(long_lines(&format!("a {}", "w".repeat(98))), []);
    assert_eq!(long_lines(&format!("a {}", "w".repeat(99))), [1]);
}
