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
}
