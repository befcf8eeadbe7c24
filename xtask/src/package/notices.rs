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

const INTRODUCTION: &str = "\
Levity itself is licensed under MIT or Apache-2.0, at your choice. The program contains the components below, each under the licence
that stands behind it. Their notices follow; components with the same text share one.

The GNU C Library (glibc) is linked into the program. It is licensed under the GNU Lesser General Public License, version 2.1 or later
(https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html). `cargo xtask package` in the sources of Levity links the program with
another version of it.
";

/// The text of the file `NOTICES`.
pub fn text(components: &[Component]) -> Result<String> {
    let mut out = INTRODUCTION.to_owned() + "\n";
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in components {
        let name = format!("{} {}", component.name, component.version);
        let _ = writeln!(out, "{name}: {}", component.licence);
        let files = component.folder.as_deref().map(notices).transpose()?;
        for file in files.unwrap_or_default() {
            let text = files::read(&file)?.replace('\r', "");
            by_text.entry(text).or_default().push(name.clone());
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

/// The files with licences in a folder, also those of what a crate contains in other languages.
fn notices(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in files::entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if path.is_dir() {
            found.extend(notices(&path)?);
        } else if NAMES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS") {
            found.push(path);
        }
    }
    Ok(found)
}
