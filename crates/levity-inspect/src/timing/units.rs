//! Numbers and durations with three digits.

/// A duration with its unit.
pub(super) fn time(us: f64) -> String {
    let (value, unit) = match us {
        _ if us < 1e3 => (us, "us"),
        _ if us < 1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    format!("{} {unit}", number(value))
}

/// A number with three digits, or with all that it has before the decimal point.
pub(super) fn number(value: f64) -> String {
    let places = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (us, text) in [
            (0.312, "0.31 us"),
            (9.999, "10.0 us"),
            (123.4, "123 us"),
            (45_600.0, "45.6 ms"),
            (1_234_000.0, "1.23 s"),
            (98_765_000_000.0, "98765 s"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
