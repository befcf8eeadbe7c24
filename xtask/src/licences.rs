//! Licences: every dependency must have one that permits distribution under MIT or Apache-2.0.

use crate::run::{self, Result};
use serde_json::Value;

/// SPDX identifiers of licences that require no more than a notice.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that are accepted despite their licence, each with the reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Fails with a list of the packages in `cargo metadata` whose licence is not allowed.
pub fn check() -> Result<()> {
    let metadata = run::metadata()?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata names no packages")?;
    let refused: Vec<String> = packages.iter().filter_map(refusal).collect();
    eprintln!(
        "licences: {} packages, {} refused",
        packages.len(),
        refused.len()
    );
    if refused.is_empty() {
        Ok(())
    } else {
        Err(refused.join("\n"))
    }
}

fn refusal(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let licence = package["license"].as_str().unwrap_or("none");
    let excepted = EXCEPTIONS.iter().any(|(excepted, _)| *excepted == name);
    (!excepted && !is_allowed(licence))
        .then(|| format!("licence of {name} is not allowed: {licence}"))
}

/// Whether an SPDX expression can be satisfied with allowed licences only.
fn is_allowed(expression: &str) -> bool {
    // Old crates write `MIT/Apache-2.0` for OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let allowed = either(&mut rest);
    allowed == Some(true) && rest.is_empty()
}

/// Evaluates `a OR b`; None for a malformed expression.
fn either(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = both(rest)?;
    while take(rest, "OR") {
        allowed |= both(rest)?;
    }
    Some(allowed)
}

/// Evaluates `a AND b`, which binds tighter.
fn both(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = single(rest)?;
    while take(rest, "AND") {
        allowed &= single(rest)?;
    }
    Some(allowed)
}

fn single(rest: &mut &[&str]) -> Option<bool> {
    if take(rest, "(") {
        let allowed = either(rest)?;
        return take(rest, ")").then_some(allowed);
    }
    let (licence, after) = rest.split_first()?;
    *rest = after;
    if !take(rest, "WITH") {
        return Some(ALLOWED.contains(licence));
    }
    let (exception, after) = rest.split_first()?;
    *rest = after;
    Some(ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let found = rest.first() == Some(&word);
    if found {
        *rest = &rest[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_side_of_or_is_enough() {
        assert!(is_allowed("MIT OR GPL-3.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(!is_allowed("GPL-3.0 OR MPL-2.0"));
    }

    #[test]
    fn every_side_of_and_must_be_allowed() {
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("MIT AND MPL-2.0"));
        assert!(is_allowed("MPL-2.0 AND GPL-3.0 OR MIT"));
    }

    #[test]
    fn exceptions_belong_to_their_licence() {
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
        assert!(!is_allowed("GPL-3.0 WITH LLVM-exception"));
    }

    #[test]
    fn malformed_or_missing_expressions_are_refused() {
        for expression in ["", "none", "MIT OR", "(MIT", "MIT MIT", "MIT WITH"] {
            assert!(!is_allowed(expression), "{expression:?}");
        }
    }
}
