//! Cursors: numbers that make the URLs of live reads differ from time to time, so that a cache does not serve the same answer
//! for ever (section 10.1).

/// The length of an interval in seconds.
const INTERVAL_SECONDS: u64 = 20;

/// 2024-10-09 00:00:00 UTC in seconds since 1970, when interval 0 began.
const FIRST_SECONDS: u64 = 1_728_432_000;

/// The maximum number of intervals that are added at random: one hour.
const JITTER_MAX: u64 = 180;

/// The cursor of an answer at `unix_seconds` to a client that sent `cursor`. It is always larger than that one; `random`
/// says by how much, if time alone does not.
#[must_use]
pub fn cursor(unix_seconds: u64, cursor: Option<u64>, random: u32) -> u64 {
    let current = unix_seconds.saturating_sub(FIRST_SECONDS) / INTERVAL_SECONDS;
    match cursor {
        Some(cursor) if cursor >= current => {
            cursor.saturating_add(1 + u64::from(random) % JITTER_MAX)
        }
        _ => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_grows_with_time_and_with_each_request() {
        assert_eq!(cursor(0, None, 0), 0);
        assert_eq!(cursor(FIRST_SECONDS + 19, None, 7), 0);
        assert_eq!(cursor(FIRST_SECONDS + 20, None, 7), 1);
        assert_eq!(cursor(FIRST_SECONDS + 20_000, Some(999), 7), 1000);
        assert_eq!(cursor(FIRST_SECONDS + 20_000, Some(1000), 0), 1001);
        assert_eq!(cursor(FIRST_SECONDS + 20_000, Some(1000), 179), 1180);
        assert_eq!(cursor(FIRST_SECONDS + 20_000, Some(1000), 180), 1001);
        assert_eq!(cursor(FIRST_SECONDS + 20_000, Some(u64::MAX), 1), u64::MAX);
    }
}
