//! Comments in the event stream of an application that is silent: the client, and the proxies before it, see that the
//! connection is alive (WHATWG HTML, 9.2.7).

use std::time::{Duration, Instant};

use levity_wire::sse::BYTE_ORDER_MARK;

use crate::upstream::codec::head::Head;

/// The bytes that tell whether a stream is between two events: the end of a line, and the one before it.
const TAIL_BYTES: usize = 3;

/// When a stream of events gets a comment.
#[derive(Debug)]
pub struct Heartbeat {
    interval: Duration,
    /// When the application has last sent something.
    heard_at: Instant,
    /// The last bytes of the application; empty before the first one.
    tail: Vec<u8>,
    /// A comment has been sent.
    has_beaten: bool,
    /// The byte order mark behind it has been left out.
    has_no_mark: bool,
}

impl Heartbeat {
    /// That of the stream which begins with `head` at `now`; `None` for content that is encoded, to which no text can be
    /// added.
    pub fn of(head: &Head, interval: Duration, now: Instant) -> Option<Self> {
        let is_plain = head.fields.value("content-encoding").is_none();
        (is_plain && head.status == 200).then_some(Self {
            interval,
            heard_at: now,
            tail: Vec::new(),
            has_beaten: false,
            has_no_mark: false,
        })
    }

    /// How long to wait for the application at `now`, which may be silent for `silence_max`.
    pub fn wait(&self, silence_max: Duration, now: Instant) -> Duration {
        let left = (self.heard_at + silence_max).saturating_duration_since(now);
        match self.is_between_events() {
            true => left.min(self.interval),
            false => left,
        }
    }

    /// Whether a comment is to be sent at `now`, when such a wait is over, and not the application given up.
    pub fn beats(&mut self, silence_max: Duration, now: Instant) -> bool {
        let is_due = self.is_between_events() && now < self.heard_at + silence_max;
        self.has_beaten |= is_due;
        is_due
    }

    /// The wait begins again.
    pub fn restart(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Notes `data` that the application has sent. Behind a comment, a byte order mark would be a part of the first line,
    /// so it is removed.
    pub fn heard(&mut self, data: &mut Vec<u8>, now: Instant) {
        self.heard_at = now;
        let may_begin = self.has_beaten && self.tail.is_empty() && !self.has_no_mark;
        if may_begin && data.starts_with(BYTE_ORDER_MARK) {
            data.drain(..BYTE_ORDER_MARK.len());
            // A second one is content, so that nobody keeps a loop busy with marks that lead to nothing.
            self.has_no_mark = true;
        }
        let last = data.len().saturating_sub(TAIL_BYTES);
        self.tail.extend_from_slice(&data[last..]);
        let before = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..before);
    }

    /// Whether no event has begun that a comment would end: the stream has ended with a blank line, if it has begun.
    fn is_between_events(&self) -> bool {
        let without_end = match &self.tail[..] {
            [] => return true,
            [line @ .., b'\r', b'\n'] | [line @ .., b'\r' | b'\n'] => line,
            _ => return false,
        };
        matches!(without_end, [.., b'\r' | b'\n'])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn begun(now: Instant) -> Heartbeat {
        Heartbeat::of(&Head::new(200, b""), SECOND, now).expect("a plain stream")
    }

    /// Cut anywhere.
    #[test]
    fn between_events_and_nowhere_else() {
        for (stream, is_between) in [
            ("data: 1\n\n", true),
            ("data: 1\r\n\r\n", true),
            ("data: 1\r\r", true),
            ("data: 1\n\r\n", true),
            ("data: 1\r\n\n", true),
            (": comment\n\n", true),
            ("data: 1\n", false),
            ("data: 1\r\n", false),
            ("data: 1\r\n\r\ndata: 2\r\n", false),
            ("data: 1\n\nd", false),
            ("\r\nd", false),
        ] {
            for cut in 0..stream.len() {
                let now = Instant::now();
                let mut heartbeat = begun(now);
                for part in [&stream[..cut], &stream[cut..]] {
                    heartbeat.heard(&mut part.as_bytes().to_vec(), now);
                }
                let beats = heartbeat.beats(SECOND * 9, now + SECOND);
                assert_eq!(beats, is_between, "{stream:?} at {cut}");
            }
        }
    }

    #[test]
    fn silence_is_counted_from_the_last_byte_of_the_application() {
        let now = Instant::now();
        let mut heartbeat = begun(now);
        let silence_max = SECOND * 3;
        assert_eq!(heartbeat.wait(silence_max, now), SECOND);
        assert!(heartbeat.beats(silence_max, now + SECOND));
        let late = now + SECOND * 5 / 2;
        assert_eq!(heartbeat.wait(silence_max, late), SECOND / 2);
        assert!(!heartbeat.beats(silence_max, now + silence_max));
        heartbeat.heard(&mut b"data: 1\n".to_vec(), late);
        assert_eq!(heartbeat.wait(silence_max, late), silence_max);
    }

    #[test]
    fn a_byte_order_mark_stays_at_the_beginning() {
        let now = Instant::now();
        for is_silent in [false, true] {
            let mut heartbeat = begun(now);
            if is_silent {
                assert!(heartbeat.beats(SECOND * 9, now + SECOND));
            }
            let mut data = b"\xef\xbb\xbfdata: 1\n\n".to_vec();
            heartbeat.heard(&mut data, now);
            assert_eq!(data.starts_with(BYTE_ORDER_MARK), !is_silent);
        }
    }
}
