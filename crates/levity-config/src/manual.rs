//! `packaging/man/levity.toml.5`, from the table of keys.
//!
//! `LEVITY_WRITE_DOCS=1 cargo test -p levity-config --lib manual` writes the file.

use std::fmt::Write as _;

use crate::keys::TABLES;
use crate::reference::{INTRODUCTION, MANY_FILES, meaning, value};
use crate::schema::Table;

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/man/levity.toml.5"
);

const HEAD: &str = r#".\" Written from the source by `cargo xtask docs`: change it there.
.TH LEVITY.TOML 5 "" "Levity" "File formats"
.SH NAME
levity.toml \- configuration of the web server Levity
.SH DESCRIPTION
"#;

const END: &str = "\
.SH SEE ALSO
.BR levity (1)
";

fn manual() -> String {
    let mut out = HEAD.to_owned();
    for table in TABLES {
        match table.path {
            "" => {
                blocks(INTRODUCTION, &mut out);
                keys(table, &mut out);
                blocks(MANY_FILES, &mut out);
            }
            _ => {
                let _ = write!(out, ".SH \"{}\"\n{}\n", table.heading(), text(table.doc));
                keys(table, &mut out);
            }
        }
    }
    out + END
}

fn keys(table: &Table, out: &mut String) {
    for key in table.keys {
        let (name, value) = (escaped(key.name), text(&value(key)));
        let _ = write!(out, ".TP\n\\fB{name}\\fP = {value}\n");
        let default = key.written_default();
        let default = default.map_or(String::new(), |default| format!(" Default: `{default}`."));
        let _ = writeln!(out, "{}", text(&(meaning(key) + &default)));
    }
}

/// Headings, paragraphs, lists and examples of Markdown in the form of roff.
fn blocks(markdown: &str, out: &mut String) {
    for (at, part) in markdown.split("```").enumerate() {
        match part.strip_prefix("toml\n").filter(|_| at % 2 == 1) {
            Some(example) => self::example(example, out),
            None => paragraphs(part, out),
        }
    }
}

fn example(lines: &str, out: &mut String) {
    out.push_str(".PP\n.nf\n.RS 4\n");
    for line in lines.lines() {
        let _ = writeln!(out, "\\&{}", escaped(line));
    }
    out.push_str(".RE\n.fi\n");
}

fn paragraphs(markdown: &str, out: &mut String) {
    for paragraph in markdown.split("\n\n").filter(|one| !one.trim().is_empty()) {
        if let Some(heading) = paragraph.trim().strip_prefix("## ") {
            let _ = writeln!(out, ".SH \"{heading}\"");
            continue;
        }
        let paragraph = format!("\n{}", paragraph.trim());
        let mut items = paragraph.split("\n- ");
        let before = items.next().unwrap_or_default();
        if !before.is_empty() {
            let _ = write!(out, ".PP\n{}\n", text(before));
        }
        for item in items {
            let _ = write!(out, ".IP \\(bu 2\n{}\n", text(item));
        }
    }
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
fn blocks_become_roff() {
    let markdown = "a\nb\n\n- c\n  d\n- `e`\n\n## F\n\n```toml\n.x = \"1\"\n\n[[y]]\n```\n\ng\n";
    let mut out = String::new();
    blocks(markdown, &mut out);
    let expected = ".PP\n\\&a b\n.IP \\(bu 2\n\\&c d\n.IP \\(bu 2\n\\&\\fBe\\fP\n.SH \"F\"\n\
                    .PP\n.nf\n.RS 4\n\\&.x = \"1\"\n\\&\n\\&[[y]]\n.RE\n.fi\n.PP\n\\&g\n";
    assert_eq!(out, expected);
}

#[test]
fn the_manual_has_what_the_reference_has() {
    let manual = manual();
    assert!(!manual.contains("]("), "a link");
    for part in [
        "\\fBinclude\\fP = ",
        "${NAME:\\-default}",
        "credential:NAME",
        "_file\\fP names a file with it",
    ] {
        assert!(manual.contains(part), "{part}");
    }
}
