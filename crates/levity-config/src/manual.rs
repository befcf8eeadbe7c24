//! `packaging/man/levity.toml.5`, from the table of keys.
//!
//! `LEVITY_WRITE_DOCS=1 cargo test -p levity-config --lib manual` writes the file.

use std::fmt::Write as _;

use crate::keys::TABLES;
use crate::reference::value;
use crate::schema::{Key, Table};

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/man/levity.toml.5"
);

const INTRODUCTION: &str = r#".\" Written from the source by `cargo xtask docs`: change it there.
.TH LEVITY.TOML 5 "" "Levity" "File formats"
.SH NAME
levity.toml \- configuration of the web server Levity
.SH DESCRIPTION
.B levity run
.I FILE
reads a TOML file, and
.B levity check
.I FILE
reports all of its errors at once. The smallest one:
.PP
.nf
.RS 4
[[site]]
root = "/srv/www"
.RE
.fi
.PP
A key that is not listed here is an error, as is a value out of its range.
Durations are "500ms", "30s", "2m", "1h", "1d".
Sizes are "16KiB", "1MiB" (1024), "512KB", "1GB" (1000), "1B", or a number of bytes.
Relative paths are relative to the folder of the file.
.PP
SIGHUP reads the file again.
A file with errors, or one that changes a key that needs a restart, changes nothing.
"#;

const END: &str = "\
.SH SEE ALSO
.BR levity (1)
";

fn manual() -> String {
    let mut out = INTRODUCTION.to_owned();
    for table in TABLES.iter().filter(|table| !table.path.is_empty()) {
        section(table, &mut out);
    }
    out + END
}

fn section(table: &Table, out: &mut String) {
    let _ = write!(out, ".SH \"{}\"\n{}\n", table.heading(), text(table.doc));
    for key in table.keys {
        let _ = write!(
            out,
            ".TP\n\\fB{}\\fP = {}\n",
            escaped(key.name),
            text(&value(key))
        );
        let _ = writeln!(out, "{}", text(&meaning(key)));
    }
}

fn meaning(key: &Key) -> String {
    let default = key.written_default();
    let default = default.map_or(String::new(), |default| format!(" Default: `{default}`."));
    let meanings = key.meanings.map(|meanings| format!(" {}.", meanings()));
    format!("{}{}{default}", key.doc, meanings.unwrap_or_default())
}

/// A paragraph of Markdown in the form of roff: code is bold, and of links the label remains.
fn text(markdown: &str) -> String {
    let words: Vec<_> = markdown.split_whitespace().collect();
    let markdown = words.join(" ");
    let mut out = String::new();
    for (at, part) in markdown.split('`').enumerate() {
        match at % 2 {
            0 => out.push_str(&escaped(&without_targets(part))),
            _ => {
                let _ = write!(out, "\\fB{}\\fP", escaped(part));
            }
        }
    }
    // A dot or a quote at the start of a line would be a request.
    format!("\\&{out}")
}

/// The text without the targets of its links, whose labels may have code in them: brackets and targets then are in different parts.
fn without_targets(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    (out + rest).replace('[', "")
}

/// Characters that roff would read as its own, or replace by typographic ones.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\(rs"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            _ => out.push(character),
        }
    }
    out
}

#[test]
fn the_committed_manual_is_the_one_of_the_code() {
    if std::env::var_os("LEVITY_WRITE_DOCS").is_some() {
        std::fs::write(PATH, manual()).unwrap();
    }
    let committed = std::fs::read_to_string(PATH).unwrap();
    assert!(committed == manual(), "run: cargo xtask docs");
}

#[test]
fn markdown_becomes_roff() {
    assert_eq!(text("a `b-c` [d](e.md#f), g"), "\\&a \\fBb\\-c\\fP d, g");
    assert_eq!(text(".x [`a`](b) 'c'"), "\\&.x \\fBa\\fP \\(aqc\\(aq");
}

#[test]
fn no_link_is_left_in_the_manual() {
    assert!(!manual().contains("]("));
}
