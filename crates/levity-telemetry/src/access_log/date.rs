//! The time of a line: a moment in UTC as the calendar and the clock have it.

use std::io::Write;

/// A moment in UTC, in whole seconds.
pub(super) struct Date {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Date {
    /// Counts days in years that begin on the first of March, so that the leap day comes last
    /// (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
    pub(super) fn from_unix(second: u64) -> Self {
        let days = second / 86_400 + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: second % 86_400,
        }
    }

    /// `20/Nov/2026:19:42:07 +0000`
    pub(super) fn apache(&self, out: &mut Vec<u8>) {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let month = MONTHS[self.month as usize - 1];
        write!(out, "{:02}/{month}/{:04}:", self.day, self.year).expect("a Vec takes every byte");
        self.clock(out);
        out.extend_from_slice(b" +0000");
    }

    /// `2026-11-20T19:42:07`, to which the line adds microseconds.
    pub(super) fn iso(&self, out: &mut Vec<u8>) {
        write!(out, "{:04}-{:02}-{:02}T", self.year, self.month, self.day)
            .expect("a Vec takes every byte");
        self.clock(out);
    }

    fn clock(&self, out: &mut Vec<u8>) {
        let (hour, minute, second) = (
            self.second_of_day / 3_600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        );
        write!(out, "{hour:02}:{minute:02}:{second:02}").expect("a Vec takes every byte");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn dates_agree_with_httpdate() {
        let leap_days = (0..60).map(|year| 68_169_600 + year * 31_557_600);
        let moments = leap_days.chain([0, 951_782_399, 951_782_400, 4_107_542_399, 4_107_542_400]);
        for second in moments {
            let mut apache = Vec::new();
            Date::from_unix(second).apache(&mut apache);
            let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            let expected = format!(
                "{}/{}/{}:{} +0000",
                &http[5..7],
                &http[8..11],
                &http[12..16],
                &http[17..25]
            );
            assert_eq!(String::from_utf8_lossy(&apache), expected);
        }
    }
}
