//! One line, in the format that was chosen. Formatting allocates nothing once the block has its size.

use std::io::Write as _;
use std::time::UNIX_EPOCH;

use jiff::Timestamp;

use super::record::Record;
use super::{combined, json};

/// How a line is written: `log.format` and `log.timing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache's combined format, then `bytes= dur= ttfb= io_wait= src= end=`; and behind these, where
    /// the request went to an upstream, `up= up_ttfb= tries=`.
    Combined,
    /// One JSON object per line.
    Json {
        /// With the time of each step, and the chunks that were noted.
        timing: bool,
    },
}

/// Writes lines of one format. Keeps the text of the current second, in UTC.
#[derive(Debug)]
pub(super) struct Formatter {
    format: Format,
    second: Option<u64>,
    stamp: Vec<u8>,
}

impl Formatter {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            second: None,
            stamp: Vec::with_capacity(32),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn line(&mut self, out: &mut Vec<u8>, record: &Record) {
        let arrived = record
            .arrived
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.stamp(arrived.as_secs());
        match self.format {
            Format::Combined => combined::line(out, record, &self.stamp),
            Format::Json { timing } => {
                json::line(out, record, &self.stamp, arrived.subsec_micros(), timing);
            }
        }
    }

    fn stamp(&mut self, second: u64) {
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        self.stamp.clear();
        let form = match self.format {
            Format::Combined => "%d/%b/%Y:%H:%M:%S +0000",
            // The line adds microseconds.
            Format::Json { .. } => "%Y-%m-%dT%H:%M:%S",
        };
        let second = i64::try_from(second).unwrap_or(i64::MAX);
        let time = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        write!(self.stamp, "{}", time.strftime(form)).expect("a Vec takes every byte");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::samples::record;
    use super::*;
    use std::time::Duration;

    pub fn line_in(format: Format, record: &Record) -> String {
        let mut out = Vec::new();
        Formatter::new(format).line(&mut out, record);
        String::from_utf8(out).expect("a line is UTF-8")
    }

    #[test]
    fn the_stamp_follows_the_clock_in_both_directions() {
        let mut formatter = Formatter::new(Format::Combined);
        for (second, clock) in [(7, "00:00:07"), (8, "00:00:08"), (7, "00:00:07")] {
            let mut out = Vec::new();
            let arrived = UNIX_EPOCH + Duration::from_secs(second);
            formatter.line(
                &mut out,
                &Record {
                    arrived,
                    ..record()
                },
            );
            assert!(String::from_utf8_lossy(&out).contains(clock));
        }
    }

    #[test]
    fn dates_agree_with_httpdate() {
        let leap_days = (0..60).map(|year| 68_169_600 + year * 31_557_600);
        let moments = leap_days.chain([0, 951_782_399, 951_782_400, 4_107_542_399, 4_107_542_400]);
        for second in moments {
            let mut formatter = Formatter::new(Format::Combined);
            formatter.stamp(second);
            let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            let expected = format!(
                "{}/{}/{}:{} +0000",
                &http[5..7],
                &http[8..11],
                &http[12..16],
                &http[17..25]
            );
            assert_eq!(String::from_utf8_lossy(&formatter.stamp), expected);
        }
    }
}
