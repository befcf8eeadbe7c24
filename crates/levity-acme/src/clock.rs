//! Times as they are kept in files, seconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The time that many seconds after 1970.
pub fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A random part of `max`, so that many servers do not do the same at the same time.
pub fn some_of(max: Duration) -> Duration {
    max.mul_f64(fraction())
}

/// A random number from 0 to 1.
fn fraction() -> f64 {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(random) / f64::from(u32::MAX)
}
