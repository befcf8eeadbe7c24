//! Lines of Want-Repr-Digest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::want_digest(bytes));
