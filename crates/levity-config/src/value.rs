//! Numbers, durations and sizes as people write them.

use std::str::FromStr;

/// Units of a duration and their length in milliseconds.
const DURATIONS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Units of a size in bytes: `KiB` is 1024, `KB` is 1000, as in IEC 80000-13 and SI.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A number of digits alone: `parse` would also take `+8`.
pub(crate) fn whole_number<N: FromStr>(text: &str) -> Option<N> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// A duration such as `30s` in milliseconds.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    quantity(text, DURATIONS)
}

/// A size such as `16KiB` in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    quantity(text, SIZES)
}

/// The error is a phrase that helps; it may be empty when there is nothing to add.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(String::new());
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        if let Some(near) = near(unit.trim(), units) {
            return Err(format!("did you mean \"{digits}{near}\"?"));
        }
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        return Err(format!("units are {}", names.join(", ")));
    };
    let number: Option<u64> = digits.parse().ok();
    let quantity = number.and_then(|number| number.checked_mul(*factor));
    quantity.ok_or_else(|| "this is too large".to_owned())
}

/// The unit for one in the wrong case, and for `k`, `m`, `g` and `t`, which are powers of 1024 in other servers.
fn near<'u>(unit: &str, units: &[(&'u str, u64)]) -> Option<&'u str> {
    let is = |name: &str| name.eq_ignore_ascii_case(unit);
    let is_short = |name: &str| name.strip_suffix("iB").is_some_and(is);
    let mut names = units.iter().map(|(name, _)| *name);
    names.find(|name| is(name) || is_short(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_milliseconds() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn sizes_in_bytes() {
        for (text, bytes) in [
            ("0B", 0),
            ("16KiB", 16 << 10),
            ("1MiB", 1 << 20),
            ("512KB", 512_000),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refusals() {
        for text in [
            "",
            "s",
            "-1s",
            "1.5s",
            "30",
            "30 s",
            "30S",
            "1KiB",
            "18446744073709551615m",
            "9e9s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in [
            "",
            "KiB",
            "16kib",
            "16k",
            "1 MiB",
            "99999999999999999999B",
            "20000000TiB",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
        for (text, meant) in [
            ("1 mb", "1MB"),
            ("16kib", "16KiB"),
            ("10m", "10MiB"),
            ("1 B", "1B"),
        ] {
            let help = format!("did you mean \"{meant}\"?");
            assert_eq!(size(text), Err(help), "{text}");
        }
        for (text, meant) in [("30 s", "30s"), ("30S", "30s"), ("5 MS", "5ms")] {
            let help = format!("did you mean \"{meant}\"?");
            assert_eq!(duration(text), Err(help), "{text}");
        }
        assert_eq!(duration("30x").unwrap_err(), "units are ms, s, m, h, d");
    }
}
