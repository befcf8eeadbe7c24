//! Entity tags of If-None-Match and If-Match, with the suffixes of codings.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::coded_etag(bytes));
