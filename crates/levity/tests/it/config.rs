//! The reader of the configuration: the corpus of its fuzz target, without the fuzzer, and what a build lacks.

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

#[cfg(not(feature = "tls"))]
#[test]
fn a_build_without_tls_names_what_needs_it() {
    let text = "[[listen]]\naddress = \"127.0.0.1:443\"\n\
                [[listen]]\naddress = \"127.0.0.1:8443\"\ntls = true\n\
                [[listen]]\naddress = \"127.0.0.2:443\"\ntls = true\n\
                [[site]]\nroot = \"/a\"\n";
    let problems = levity_config::parse(text).expect_err("it needs TLS");
    let found = problems.iter().map(|problem| {
        let message = &problem.message;
        assert!(message.contains("it needs the feature `tls`"), "{message}");
        problem.position.as_ref().map(|position| position.line)
    });
    assert_eq!(found.collect::<Vec<_>>(), [2, 5, 8].map(Some));
    let plain = "[[listen]]\naddress = \"127.0.0.1:443\"\ntls = false\n[[site]]\nroot = \"/a\"\n";
    assert!(levity_config::parse(plain).is_ok());
}
