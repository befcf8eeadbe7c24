//! The text of a configuration file: any text is a configuration or a list of errors.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = levity_config::parse(text);
});
