//! The time that the caller of gRPC gives a call, in the header `grpc-timeout`.

use std::time::{Duration, Instant};

use levity_telemetry::stall;
use levity_wire::decimal;

use crate::message::request::Request;

const DIGITS_MAX: usize = 8;

/// When the time of `request` is over that is sent now; `None` if it has no limit, or none that can be read.
pub fn of(request: &Request) -> Option<Instant> {
    let timeout = timeout(request.header("grpc-timeout")?)?;
    stall::poll_start().checked_add(timeout)
}

fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let count = decimal::parse(digits)?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit() {
        let nanos = |value: &str| timeout(value.as_bytes()).map(|time| time.as_nanos());
        for (value, expected) in [
            ("2H", 7_200_000_000_000),
            ("3M", 180_000_000_000),
            ("1S", 1_000_000_000),
            ("20m", 20_000_000),
            ("199876u", 199_876_000),
            ("99999999n", 99_999_999),
            ("0S", 0),
        ] {
            assert_eq!(nanos(value), Some(expected), "{value}");
        }
        for value in [
            "",
            "S",
            "1",
            "1s",
            "+1S",
            "-1S",
            "1.5S",
            "100000000n",
            "1 S",
        ] {
            assert_eq!(nanos(value), None, "{value}");
        }
    }
}
