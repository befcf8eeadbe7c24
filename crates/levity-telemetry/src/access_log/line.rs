//! One line, in the format that was chosen. Formatting allocates nothing once the block has its size.

use levity_config::{LogFormat, LogTemplate, LogTiming};

use super::record::Record;
use super::stamp::Stamps;
use super::{combined, custom, json};

/// How a line is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Apache's combined format, then `bytes= dur= ttfb= io_wait= src= end=`; and behind these, where
    /// the request went to an upstream, `up= up_ttfb= tries=`.
    Combined,
    /// One JSON object per line.
    Json {
        /// Whether it has the time of each step, and the chunks that were noted.
        timing: LogTiming,
    },
    /// Text with fields.
    Custom(LogTemplate),
}

impl From<&levity_config::Log> for Format {
    fn from(log: &levity_config::Log) -> Self {
        match &log.format {
            LogFormat::Combined => Self::Combined,
            LogFormat::Json => Self::Json { timing: log.timing },
            LogFormat::Custom(template) => Self::Custom(template.clone()),
        }
    }
}

/// Writes lines of one format.
#[derive(Debug)]
pub(super) struct Formatter {
    format: Format,
    stamps: Stamps,
}

impl Formatter {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            stamps: Stamps::new(),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn line(&mut self, out: &mut Vec<u8>, record: &Record) {
        let stamps = &mut self.stamps;
        match &self.format {
            Format::Combined => combined::line(out, record, stamps.clf(record.arrived)),
            Format::Json { timing } => json::line(out, record, stamps, *timing),
            Format::Custom(template) => custom::line(out, record, template, stamps),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::samples::record;
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

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
}
