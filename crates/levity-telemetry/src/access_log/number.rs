//! Durations and addresses as text. `write!` costs several times as much, and a line holds nine of them.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use levity_wire::decimal;

/// Appends an address; an IPv4-mapped IPv6 address is written as IPv4.
pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => dotted(out, address.octets()),
        IpAddr::V6(address) => write!(out, "{address}").expect("a Vec takes every byte"),
    }
}

fn dotted(out: &mut Vec<u8>, octets: [u8; 4]) {
    for (index, octet) in octets.into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        decimal::push(out, octet.into());
    }
}

/// Appends seconds with six decimals.
pub(super) fn seconds(out: &mut Vec<u8>, value: Duration) {
    decimal::push(out, value.as_secs());
    out.push(b'.');
    six_digits(out, value.subsec_micros());
}

/// Appends microseconds with three decimals.
pub(super) fn microseconds(out: &mut Vec<u8>, value: Duration) {
    let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    decimal::push(out, ns / 1000);
    out.push(b'.');
    let rest = ns % 1000;
    out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
}

/// Appends `value`, which has at most six digits, with leading zeros.
pub(super) fn six_digits(out: &mut Vec<u8>, mut value: u32) {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits);
}
