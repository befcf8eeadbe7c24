//! Filters of bodies, cut and flushed anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/levity/tests/it/compress/property.rs"]
mod property;

fuzz_target!(|bytes: &[u8]| property::body_filter(bytes));
