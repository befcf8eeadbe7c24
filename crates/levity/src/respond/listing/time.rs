//! Times of files as UTC.

/// A moment in the Gregorian calendar.
struct Utc {
    year: i64,
    month: i64,
    day: i64,
    /// Seconds since midnight.
    second: i64,
}

/// By Howard Hinnant's `civil_from_days`. Years of more than four digits, which a file may have, become the nearest one
/// of four.
fn utc(seconds: i64) -> Utc {
    const FIRST: i64 = -62_167_219_200;
    const LAST: i64 = 253_402_300_799;
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    Utc {
        year: era * 400 + year_of_era + i64::from(month <= 2),
        month,
        day: day_of_year - (153 * from_march + 2) / 5 + 1,
        second,
    }
}

/// Appends `2026-11-20T19:42:07Z` (RFC 3339); `seconds` since 1970.
pub(super) fn push_seconds(out: &mut Vec<u8>, seconds: i64) {
    let time = utc(seconds);
    push_minutes(out, &time, b'T');
    out.push(b':');
    push_digits(out, time.second % 60, 2);
    out.push(b'Z');
}

/// Appends `2026-11-20 19:42`.
pub(super) fn push_minute(out: &mut Vec<u8>, seconds: i64) {
    push_minutes(out, &utc(seconds), b' ');
}

fn push_minutes(out: &mut Vec<u8>, time: &Utc, separator: u8) {
    push_digits(out, time.year, 4);
    out.push(b'-');
    push_digits(out, time.month, 2);
    out.push(b'-');
    push_digits(out, time.day, 2);
    out.push(separator);
    push_digits(out, time.second / 3600, 2);
    out.push(b':');
    push_digits(out, time.second / 60 % 60, 2);
}

/// The formatter of the standard library takes most of the time of a row.
fn push_digits(out: &mut Vec<u8>, number: i64, digits: u32) {
    for place in (0..digits).rev() {
        let digit = number / 10_i64.pow(place) % 10;
        out.push(b'0' + digit as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_203_727, "2026-11-20T19:42:07Z"),
            (-1, "1969-12-31T23:59:59Z"),
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
