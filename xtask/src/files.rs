//! `cargo xtask files`: what each source file is for.

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

/// The product's files, in the order of their paths.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() && !path.ends_with("tests") {
            sources.extend(self::sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            sources.push(path);
        }
    }
    Ok(sources)
}

fn summary(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    let text = lines.collect::<Vec<_>>().join(" ");
    match text.find(". ") {
        Some(end) => text[..=end].to_owned(),
        None => text,
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_says_what_it_is_for() {
        let sources = sources(&run::root().join("crates")).unwrap();
        assert!(sources.len() > 100);
        for file in sources {
            let summary = summary(&read(&file).unwrap());
            assert!(!summary.is_empty(), "{} begins without //!", file.display());
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
