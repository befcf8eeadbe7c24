//! Figures of `/status.json` as text.

use serde_json::Value;

/// Characters of one figure. The server writes no longer path, and wider columns cannot be made.
const FIGURE_CHARS_MAX: usize = 4 * 4096;

/// 0 for a value that is no number.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// `-` for a missing value, and `?` for a list or an object.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(FIGURE_CHARS_MAX).collect(),
        Value::Null => "-".to_owned(),
        Value::Array(_) | Value::Object(_) => "?".to_owned(),
        other => other.to_string(),
    }
}

/// A rate with its unit.
pub(super) fn per_second(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate > 0.0 && rate < 9.5 => format!("{rate:.1}/s"),
        Some(rate) => format!("{rate:.0}/s"),
        None => "-/s".to_owned(),
    }
}

pub(super) fn bytes_per_second(rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{}/s", bytes(rate)),
        None => "-".to_owned(),
    }
}

pub(super) fn percent(value: &Value) -> String {
    match value.as_f64() {
        Some(percent) => format!("{percent:.0} %"),
        None => "-".to_owned(),
    }
}

pub(super) fn bytes(mut value: f64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    let mut unit = units.next();
    while value >= 1023.5
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = Some(larger);
    }
    let unit = unit.unwrap_or("B");
    match unit != "B" && value < 99.5 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    }
}

/// A number of seconds with its unit.
pub(super) fn time(value: &Value) -> String {
    let Some(seconds) = value.as_f64() else {
        return "-".to_owned();
    };
    match seconds {
        0.0 => "0".to_owned(),
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", (s / 60.0).floor()),
        s if s < 172_800.0 => format!("{:.0} h", (s / 3_600.0).floor()),
        s => format!("{:.0} days", (s / 86_400.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn units() {
        for (seconds, shown) in [
            (0.0, "0"),
            (0.00005, "50 us"),
            (0.0025, "2.5 ms"),
            (0.25, "250 ms"),
            (2.5, "2.5 s"),
            (119.0, "119 s"),
            (3_601.0, "60 min"),
            (90_000.0, "25 h"),
            (200_000.0, "2 days"),
        ] {
            assert_eq!(time(&json!(seconds)), shown);
        }
        for (count, shown) in [(1023.0, "1023 B"), (1024.0, "1.0 KiB"), (5e8, "477 MiB")] {
            assert_eq!(bytes(count), shown);
        }
    }
}
