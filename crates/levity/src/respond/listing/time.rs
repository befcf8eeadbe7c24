//! Times of files as UTC.

use levity_wire::calendar::Utc;

/// Appends `2026-11-20T19:42:07Z` (RFC 3339); `seconds` since 1970.
pub(super) fn push_seconds(out: &mut Vec<u8>, seconds: i64) {
    let time = Utc::of(seconds);
    push_minutes(out, &time, b'T');
    out.push(b':');
    push_two(out, time.second);
    out.push(b'Z');
}

/// Appends `2026-11-20 19:42`.
pub(super) fn push_minute(out: &mut Vec<u8>, seconds: i64) {
    push_minutes(out, &Utc::of(seconds), b' ');
}

fn push_minutes(out: &mut Vec<u8>, time: &Utc, separator: u8) {
    push_two(out, (time.year / 100) as u8);
    push_two(out, (time.year % 100) as u8);
    out.push(b'-');
    push_two(out, time.month);
    out.push(b'-');
    push_two(out, time.day);
    out.push(separator);
    push_two(out, time.hour);
    out.push(b':');
    push_two(out, time.minute);
}

/// The formatter of the standard library takes most of the time of a row.
fn push_two(out: &mut Vec<u8>, number: u8) {
    out.extend_from_slice(&[b'0' + number / 10, b'0' + number % 10]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_fixed_width() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_795_203_727, "2026-11-20T19:42:07Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            let mut out = Vec::new();
            push_seconds(&mut out, seconds);
            assert_eq!(String::from_utf8_lossy(&out), text);
            let mut short = Vec::new();
            push_minute(&mut short, seconds);
            assert_eq!(
                String::from_utf8_lossy(&short),
                text[..16].replace('T', " ")
            );
        }
    }
}
