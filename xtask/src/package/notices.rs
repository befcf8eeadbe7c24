//! The licences of the components, which those who distribute the program have to pass on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::components::Component;
use crate::files;
use crate::run::Result;

/// What the names of files with licences begin with, in capitals.
const NAMES: [&str; 6] = [
    "COPYING",
    "COPYRIGHT",
    "LICENCE",
    "LICENSE",
    "NOTICE",
    "UNLICENSE",
];

/// How pages write characters; that of the others is the last one.
const CHARACTERS: [(&str, &str); 5] = [
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&#60;", "<"),
    ("&#62;", ">"),
    ("&#38;", "&"),
];

const INTRODUCTION: &str = "\
Levity itself is licensed under MIT or Apache-2.0, at your choice. The program contains the components below, each under the licence
that stands behind it. Their notices follow; components with the same text share one.

The GNU C Library (glibc) is linked into the program. It is licensed under the GNU Lesser General Public License, version 2.1 or later,
whose text is below. `cargo xtask package` in the sources of Levity links the program with another version of it.
";

/// The text of the file `NOTICES`.
pub fn text(components: &[Component]) -> Result<String> {
    let mut out = INTRODUCTION.to_owned() + "\n";
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in components {
        let name = format!("{} {}", component.name, component.version);
        let _ = writeln!(out, "{name}: {}", component.licence);
        for file in notices(&component.licences)? {
            by_text.entry(plain(&file)?).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = by_text.into_iter().collect();
    texts.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (text, mut names) in texts {
        names.dedup();
        let line = "-".repeat(80);
        let _ = write!(out, "\n{line}\n{}\n\n{}\n", names.join(", "), text.trim());
    }
    Ok(out)
}

/// The text of a file with a licence.
fn plain(file: &Path) -> Result<String> {
    let text = files::read(file)?.replace('\r', "");
    Ok(match file.extension().is_some_and(|end| end == "html") {
        true => without_marks(&text),
        false => text,
    })
}

/// The lines of a page, without those that are empty behind another one.
fn without_marks(page: &str) -> String {
    let pieces = page.split('<').enumerate();
    let pieces = pieces.map(|(number, piece)| match number {
        0 => piece,
        _ => piece.split_once('>').map_or("", |(_, text)| text),
    });
    let text = CHARACTERS
        .iter()
        .fold(pieces.collect::<String>(), |text, (name, character)| {
            text.replace(name, character)
        });
    let mut lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|one, before| one.is_empty() && before.is_empty());
    lines.join("\n")
}

/// These files, and those with licences in these folders, also those of what a crate contains in other languages.
fn notices(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => found.extend(in_folder(path)?),
            false => found.push(path.clone()),
        }
    }
    Ok(found)
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in files::entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if path.is_dir() {
            found.extend(in_folder(&path)?);
        } else if NAMES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_text() {
        let page = "<h1>Notices</h1>\n\n <p>\n</p>\nby <b>A</b> &#60;a@b&#62;, &#38;#34; and &#34;C&#34;\n";
        let text = "Notices\n\nby A <a@b>, &#34; and \"C\"";
        assert_eq!(without_marks(page), text);
    }
}
