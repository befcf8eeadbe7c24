//! What a server says about its idle connections (RFC 2068, 19.7.1.1).

use std::time::Duration;

use super::Headers;
use super::line::{list, trim};
use crate::decimal;

/// How long the sender keeps the connection open without a request: the shortest `timeout` in the Keep-Alive lines of
/// `headers`, which were parsed from `bytes`. `None` without a valid one.
pub fn keep_alive_timeout(bytes: &[u8], headers: &Headers) -> Option<Duration> {
    let values = headers.named(bytes, "keep-alive");
    let timeouts = values.flat_map(list).filter_map(timeout);
    timeouts.min().map(Duration::from_secs)
}

/// The seconds of `timeout=5`.
fn timeout(parameter: &[u8]) -> Option<u64> {
    let equals = parameter.iter().position(|&byte| byte == b'=')?;
    let (name, value) = (trim(&parameter[..equals]), trim(&parameter[equals + 1..]));
    match name.eq_ignore_ascii_case(b"timeout") {
        true => decimal::parse(value),
        false => None,
    }
}
