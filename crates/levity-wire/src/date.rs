//! HTTP dates, in whole seconds since 1970-01-01 00:00:00 UTC (RFC 9110, 5.6.7).

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Length in bytes of a formatted date.
pub const LEN: usize = b"Sun, 06 Nov 1994 08:49:37 GMT".len();

/// 9999-12-31 23:59:59, the last second with a year of four digits.
const UNIX_SECONDS_MAX: u64 = 253_402_300_799;

/// Formats as `Sun, 06 Nov 1994 08:49:37 GMT` (IMF-fixdate). Times after the year 9999, which a
/// file may have, become the end of that year. Does not allocate.
pub fn format(unix_seconds: u64) -> [u8; LEN] {
    let mut text = [0; LEN];
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(UNIX_SECONDS_MAX));
    let written = write!(&mut text[..], "{}", HttpDate::from(time));
    debug_assert!(written.is_ok());
    text
}

/// Parses all three forms: IMF-fixdate, RFC 850 (two-digit years are 1970 to 2069) and asctime.
/// `None` for anything else, for dates before 1970, and for a day of the week that does not match
/// the date.
pub fn parse(value: &[u8]) -> Option<u64> {
    // httpdate trims every kind of white space; a header value has been trimmed already.
    let trimmed = |text: &&str| text.trim().len() == text.len();
    let text = str::from_utf8(value).ok().filter(trimmed)?;
    let time = SystemTime::from(text.parse::<HttpDate>().ok()?);
    time.duration_since(UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(UNIX_SECONDS_MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(format(u64::MAX), format(UNIX_SECONDS_MAX));
    }

    #[test]
    fn the_three_forms_are_one_date() {
        let forms = [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ];
        for form in forms {
            assert_eq!(parse(form.as_bytes()), Some(784_111_777), "{form}");
        }
    }

    #[test]
    fn formatted_dates_can_be_parsed() {
        for day in 0..UNIX_SECONDS_MAX / 86_400 {
            let seconds = day * 86_400 + day % 86_400;
            assert_eq!(parse(&format(seconds)), Some(seconds));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let cases = [
            "",
            "0",
            "784111777",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT\n",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 GMT; length=5",
            "S\u{fc}n, 06 Nov 1994 08:49:37 GMT",
        ];
        for value in cases {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
    }
}
