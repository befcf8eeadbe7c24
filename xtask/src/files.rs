//! `cargo xtask files`: lists source files with a summary of each.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{self, Result};

/// Prints the files whose path contains `part`, each with the first sentence of its documentation.
pub fn run(part: &str) -> Result<()> {
    let root = run::root();
    for file in sources(&root.join("crates"))? {
        let path = file.strip_prefix(&root).unwrap_or(&file);
        let path = path.display().to_string();
        if path.contains(part) {
            println!("{path:<56} {}", summary(&read(&file)?));
        }
    }
    Ok(())
}

/// The source files of the product, sorted by path. Modules called `tests` are skipped.
pub fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for path in entries(folder)? {
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            sources.extend(self::sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    Ok(sources)
}

/// The entries of a folder, sorted by name.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn summary(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    let text = lines.collect::<Vec<_>>().join(" ");
    match text.find(". ") {
        Some(end) => text[..=end].to_owned(),
        None => text,
    }
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_summary() {
        let sources = sources(&run::root().join("crates")).unwrap();
        assert!(sources.len() > 100);
        for file in sources {
            let summary = summary(&read(&file).unwrap());
            assert!(
                !summary.is_empty(),
                "{} does not begin with //!",
                file.display()
            );
        }
    }

    #[test]
    fn a_summary_is_the_first_sentence() {
        let source = "//! One thing,\n//! in two lines. More.\n//!\n//! Much more.\nmod x;\n";
        assert_eq!(summary(source), "One thing, in two lines.");
        assert_eq!(summary("//! A title\n\n//! Other.\n"), "A title");
        assert_eq!(summary("use std::io;\n"), "");
    }
}
