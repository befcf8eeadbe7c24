//! The Gregorian calendar in UTC, from seconds since 1970.

/// 0000-01-01 00:00:00.
const FIRST: i64 = -62_167_219_200;

/// 9999-12-31 23:59:59.
const LAST: i64 = 253_402_300_799;

/// A second in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    /// From 0 to 9999.
    pub year: u16,
    /// From 1.
    pub month: u8,
    /// From 1.
    pub day: u8,
    /// From 0.
    pub hour: u8,
    /// From 0.
    pub minute: u8,
    /// From 0 to 59.
    pub second: u8,
}

impl Utc {
    /// `unix_seconds` after 1970, negative before. A year of more than four digits, which a file may have, becomes the
    /// nearest one of four.
    pub fn of(unix_seconds: i64) -> Utc {
        let seconds = unix_seconds.clamp(FIRST, LAST);
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        Utc {
            year: year as u16,
            month: month as u8,
            day: day as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }
}

/// Year, month and day, by Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
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
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date, by Howard Hinnant's `days_from_civil`.
pub(crate) fn days_since_1970(year: i64, month: u32, day: u32) -> i64 {
    let (month, day) = (i64::from(month), i64::from(day));
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The number of days of a month, which is from 1 to 12.
pub(crate) fn days_of_month(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_calendar() {
        let of = |seconds: i64| {
            let time = Utc::of(seconds);
            let date = (time.year, time.month, time.day);
            (date, (time.hour, time.minute, time.second))
        };
        assert_eq!(of(0), ((1970, 1, 1), (0, 0, 0)));
        assert_eq!(of(951_782_400), ((2000, 2, 29), (0, 0, 0)));
        assert_eq!(of(1_795_203_727), ((2026, 11, 20), (19, 42, 7)));
        assert_eq!(of(-1), ((1969, 12, 31), (23, 59, 59)));
        assert_eq!(of(i64::MIN), ((0, 1, 1), (0, 0, 0)));
        assert_eq!(of(i64::MAX), ((9999, 12, 31), (23, 59, 59)));
    }

    #[test]
    fn both_directions_agree() {
        let (first, last) = (FIRST.div_euclid(86_400), LAST.div_euclid(86_400));
        for days in (first..=last).step_by(5) {
            let (year, month, day) = civil(days);
            assert_eq!(days_since_1970(year, month as u32, day as u32), days);
            assert!(day as u32 <= days_of_month(year as u32, month as u32));
        }
        let lengths = [(1900, 28), (2000, 29), (2023, 28), (2024, 29)];
        assert!(
            lengths
                .iter()
                .all(|&(year, days)| days_of_month(year, 2) == days)
        );
    }
}
