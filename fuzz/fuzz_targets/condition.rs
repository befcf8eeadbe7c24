//! Lines `name: value`; `method`, `etag` and `modified` among them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| properties::condition(bytes));
