//! The corpus of the configuration's fuzz target, without the fuzzer.

use std::fs;
use std::path::Path;

#[test]
fn no_input_of_the_corpus_breaks_the_reader() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let inputs = fs::read_dir(&folder).expect("fuzz/corpus/config");
    let mut count = 0;
    for input in inputs {
        let bytes = fs::read(input.expect("an entry").path()).expect("read");
        let text = String::from_utf8_lossy(&bytes);
        if let Err(problems) = levity_config::parse(&text) {
            assert!(!problems.is_empty(), "refused without a reason: {text}");
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}
