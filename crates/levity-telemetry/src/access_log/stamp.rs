//! Moments as text. A log keeps the text of the latest second, because most lines share it.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use super::number;

/// Moments as text, in UTC.
#[derive(Debug)]
pub(super) struct Stamps {
    clf: Stamp,
    /// Lines add microseconds.
    iso: Stamp,
}

impl Stamps {
    pub(super) fn new() -> Self {
        Self {
            clf: Stamp::new("%d/%b/%Y:%H:%M:%S +0000"),
            iso: Stamp::new("%Y-%m-%dT%H:%M:%S"),
        }
    }

    /// As the combined format has it.
    pub(super) fn clf(&mut self, time: SystemTime) -> &[u8] {
        self.clf.at(Self::since_epoch(time).as_secs())
    }

    /// Appends the form of ISO 8601, with microseconds.
    pub(super) fn push_iso(&mut self, out: &mut Vec<u8>, time: SystemTime) {
        let time = Self::since_epoch(time);
        out.extend_from_slice(self.iso.at(time.as_secs()));
        out.push(b'.');
        number::six_digits(out, time.subsec_micros());
        out.push(b'Z');
    }

    /// Since the beginning of 1970.
    pub(super) fn since_epoch(time: SystemTime) -> Duration {
        time.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The text of the latest second.
#[derive(Debug)]
struct Stamp {
    form: &'static str,
    second: Option<u64>,
    text: Vec<u8>,
}

impl Stamp {
    fn new(form: &'static str) -> Self {
        Self {
            form,
            second: None,
            text: Vec::with_capacity(32),
        }
    }

    fn at(&mut self, second: u64) -> &[u8] {
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            let second = i64::try_from(second).unwrap_or(i64::MAX);
            let time = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
            write!(self.text, "{}", time.strftime(self.form)).expect("a Vec takes every byte");
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_httpdate() {
        let leap_days = (0..60).map(|year| 68_169_600 + year * 31_557_600);
        let moments = leap_days.chain([0, 951_782_399, 951_782_400, 4_107_542_399, 4_107_542_400]);
        for second in moments {
            let mut stamps = Stamps::new();
            let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            let expected = format!(
                "{}/{}/{}:{} +0000",
                &http[5..7],
                &http[8..11],
                &http[12..16],
                &http[17..25]
            );
            assert_eq!(String::from_utf8_lossy(stamps.clf.at(second)), expected);
        }
    }
}
