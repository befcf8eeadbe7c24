//! Times as operators say them: of certificates, and of attempts to get some.

use std::time::Duration;

/// A time in the largest unit of which it has two or more, up to days.
#[must_use]
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
