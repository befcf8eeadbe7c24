//! Times of RFC 3339, in milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::calendar::{Utc, days_of_month, days_since_1970};

/// Reads `2026-11-20T19:42:07.123+01:00` (RFC 3339, 5.6) to the millisecond. Times before 1970 are that of 1970. A leap second is
/// the first second of the next minute. `None` for anything else.
#[must_use]
pub fn parse_time(text: &[u8]) -> Option<SystemTime> {
    let (date_time, rest) = text.split_at_checked(b"2026-11-20T19:42:07".len())?;
    let number = |from: usize, digits: usize| number(&date_time[from..from + digits]);
    let separators = [4, 7, 10, 13, 16].map(|index| date_time[index].to_ascii_uppercase());
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let is_date = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    if separators != *b"--T::" || !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (millis, zone) = fraction(rest)?;
    let days = days_since_1970(i64::from(year), month, day);
    let minutes = (days * 24 + i64::from(hour)) * 60 + i64::from(minute) - zone_minutes(zone)?;
    let millis = (minutes * 60 + i64::from(second)) * 1000 + millis;
    Some(UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

fn number(digits: &[u8]) -> Option<u32> {
    crate::decimal::parse(digits).and_then(|number| u32::try_from(number).ok())
}

/// The milliseconds of a fraction of a second, and what follows it.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = rest.strip_prefix(b".") else {
        return Some((0, rest));
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let milli = |index: usize| match index < digits {
        true => i64::from(rest[index] - b'0'),
        false => 0,
    };
    let millis = milli(0) * 100 + milli(1) * 10 + milli(2);
    Some((millis, &rest[digits..]))
}

/// The minutes by which a zone is before UTC.
fn zone_minutes(zone: &[u8]) -> Option<i64> {
    if zone == b"Z" || zone == b"z" {
        return Some(0);
    }
    let &[sign, _, _, b':', _, _] = zone else {
        return None;
    };
    let (hours, minutes) = (number(&zone[1..3])?, number(&zone[4..6])?);
    let sign = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 60 + minutes))
}

/// Writes `2026-11-20T19:42:07.123Z`. Times after the year 9999 are the end of that year.
#[must_use]
pub fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = Utc::of(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let Utc {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = utc;
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u128> {
        let time = parse_time(text.as_bytes())?;
        Some(time.duration_since(UNIX_EPOCH).expect("since").as_millis())
    }

    #[test]
    fn reads_times_of_all_zones() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2026-11-20T19:42:07Z", 1_795_203_727_000),
            ("2026-11-20t19:42:07z", 1_795_203_727_000),
            ("2026-11-20T19:42:07.1Z", 1_795_203_727_100),
            ("2026-11-20T19:42:07.123456789Z", 1_795_203_727_123),
            ("2026-11-20T20:42:07+01:00", 1_795_203_727_000),
            ("2026-11-20T11:12:07.5-08:30", 1_795_203_727_500),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0000-01-01T00:00:00Z", 0),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ];
        for (text, expected) in cases {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_anything_else() {
        for text in [
            "",
            "not-a-timestamp",
            "2026-11-20",
            "2026-11-20T19:42:07",
            "2026-11-20 19:42:07Z",
            "2026-11-20T19:42Z",
            "2026-11-20T19:42:07.Z",
            "2026-11-20T19:42:07+0100",
            "2026-11-20T19:42:07+01",
            "2026-11-20T19:42:07+24:00",
            "2026-11-20T19:42:07 01:00",
            "2026-13-20T19:42:07Z",
            "2026-02-29T19:42:07Z",
            "2026-00-20T19:42:07Z",
            "2026-11-00T19:42:07Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T19:60:07Z",
            "2026-11-20T19:42:61Z",
            "2026-11-20T19:42:07ZZ",
            "+026-11-20T19:42:07Z",
            "1795203727",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for day in 0..3_000_000 / 7 {
            let time = UNIX_EPOCH + Duration::from_millis(day * 7 * 86_400_123);
            let text =
                format_time(time.min(UNIX_EPOCH + Duration::from_millis(253_402_300_799_999)));
            assert_eq!(parse_time(text.as_bytes()).map(format_time), Some(text));
        }
    }
}
