//! `docs/configuration.md` and the examples beside it are those of the code.
//!
//! `LEVITY_WRITE_DOCS=1 cargo test -p levity-config --test reference` writes the file.

use std::path::{Path, PathBuf};

use levity_config::{Errors, parse, reference};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_committed_reference_is_the_one_of_the_code() {
    let file = docs().join("configuration.md");
    if std::env::var_os("LEVITY_WRITE_DOCS").is_some() {
        std::fs::write(&file, reference()).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(
        committed == reference(),
        "run: LEVITY_WRITE_DOCS=1 cargo test -p levity-config --test reference"
    );
}

#[test]
fn the_examples_are_valid() {
    let mut count = 0;
    for entry in std::fs::read_dir(docs().join("examples")).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let problems = parse(&text).err().unwrap_or_default();
        assert!(
            problems.is_empty(),
            "{}",
            Errors {
                file,
                problems,
                is_silent: false
            }
        );
        count += 1;
    }
    assert!(count >= 5, "{count} examples");
}
