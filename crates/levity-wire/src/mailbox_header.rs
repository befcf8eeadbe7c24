//! Headers of mailboxes: `Mailbox-*` in requests of publishers and in responses of applications.
//!
//! Each parser rejects with 400. For the response of an application call [`Reject::by_upstream`].

use std::time::Duration;

use crate::http1::{list, trim};
use crate::mailbox::{is_event, is_key, is_name};
use crate::sendfile_header::starts_with;
use crate::{Reject, decimal};

/// The boxes that the client is to receive from: `Mailbox-Open: NAME, NAME`. See [`add_names`].
pub const OPEN: &str = "Mailbox-Open";
/// The boxes that the content is delivered to: `Mailbox-Deliver: NAME, NAME`. See [`add_names`].
pub const DELIVER: &str = "Mailbox-Deliver";
/// In the response to a receiver: the id after which it continues.
pub const LAST: &str = "Mailbox-Last";
/// In a response that begins with a gap: the id of the last message that is lost.
pub const GAP: &str = "Mailbox-Gap";

/// The maximum number of boxes that one message is delivered to, and that one client opens at once.
pub const NAMES_MAX: usize = 64;

/// The longest time for which a message is kept: 365 days.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const NAMES_TOO_MANY: Reject = Reject::bad("more than 64 mailboxes");
const NO_NAME: Reject = Reject::bad("bad name of a mailbox");
const BAD_EVENT: Reject = Reject::bad("Mailbox-Event is longer than 128 bytes or no line of text");
const BAD_KEY: Reject =
    Reject::bad("Mailbox-Id is not 1 to 128 visible ASCII characters without commas");
const BAD_TTL: Reject = Reject::bad("Mailbox-TTL is not a time such as 90, 90s, 5m, 2h or 7d");
const TTL_OUT_OF_RANGE: Reject = Reject::bad("Mailbox-TTL is not from 1 second to 365 days");

/// Whether a header of this name must never be forwarded from a client to an application, nor from an application to a
/// client: it would give the client the rights of an application, or tell it the names of boxes. As in
/// [`sendfile_header::is_reserved`](crate::sendfile_header::is_reserved), any punctuation counts as a hyphen.
#[must_use]
pub fn is_reserved(name: &[u8]) -> bool {
    starts_with(name, b"mailbox-") || starts_with(name, b"grip-")
}

/// Adds the names of a line of [`OPEN`] or [`DELIVER`] to those of earlier lines. A repeated name counts once.
///
/// # Errors
/// 400 for what is no name, and for more than [`NAMES_MAX`] names. The names so far stay.
pub fn add_names<'v>(names: &mut Vec<&'v str>, value: &'v [u8]) -> Result<(), Reject> {
    for element in list(value).filter(|element| !element.is_empty()) {
        let name = Some(element).filter(|name| is_name(name));
        let name = name
            .and_then(|name| str::from_utf8(name).ok())
            .ok_or(NO_NAME)?;
        if names.contains(&name) {
            continue;
        }
        if names.len() == NAMES_MAX {
            return Err(NAMES_TOO_MANY);
        }
        names.push(name);
    }
    Ok(())
}

/// The value of `Mailbox-Event`, in UTF-8. It may be empty.
///
/// # Errors
/// 400 if it is no name of an event, see [`is_event`].
pub fn event(value: &[u8]) -> Result<&str, Reject> {
    let event = str::from_utf8(trim(value)).ok();
    event.filter(|event| is_event(event)).ok_or(BAD_EVENT)
}

/// The value of `Mailbox-Id`.
///
/// # Errors
/// 400 if it is no id of a publisher, see [`is_key`].
pub fn key(value: &[u8]) -> Result<&str, Reject> {
    let key = Some(trim(value)).filter(|key| is_key(key));
    key.and_then(|key| str::from_utf8(key).ok()).ok_or(BAD_KEY)
}

/// The value of `Mailbox-TTL`: a whole number of seconds, or of the unit that follows it: `s`, `m`, `h` or `d`.
///
/// # Errors
/// 400 for anything else, for 0, which nobody could receive, and for more than [`TTL_MAX`].
pub fn ttl(value: &[u8]) -> Result<Duration, Reject> {
    let value = trim(value);
    let (digits, unit) = match value {
        [digits @ .., b's'] => (digits, 1),
        [digits @ .., b'm'] => (digits, 60),
        [digits @ .., b'h'] => (digits, 60 * 60),
        [digits @ .., b'd'] => (digits, 24 * 60 * 60),
        digits => (digits, 1),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !is_number {
        return Err(BAD_TTL);
    }
    let seconds = decimal::parse(digits).and_then(|number| number.checked_mul(unit));
    let ttl = seconds.map(Duration::from_secs).ok_or(TTL_OUT_OF_RANGE)?;
    match ttl {
        Duration::ZERO => Err(TTL_OUT_OF_RANGE),
        ttl if ttl > TTL_MAX => Err(TTL_OUT_OF_RANGE),
        ttl => Ok(ttl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{KEY_BYTES_MAX, NAME_BYTES_MAX};

    fn names<'v>(lines: &[&'v str]) -> Result<Vec<&'v str>, Reject> {
        let mut names = Vec::new();
        for line in lines {
            add_names(&mut names, line.as_bytes())?;
        }
        Ok(names)
    }

    #[test]
    fn reserved_names() {
        for name in [
            "Mailbox-Open",
            "mailbox-",
            "MAILBOX_X",
            "Grip-Hold",
            "grip.sig",
        ] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        for name in [OPEN, DELIVER, LAST, GAP] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        for name in ["Mailbox", "Mailboxes-X", "X-Grip-Hold", "gripper", ""] {
            assert!(!is_reserved(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_are_a_list() {
        assert_eq!(names(&["a, b/c ,,a", "\tb/c,d"]), Ok(vec!["a", "b/c", "d"]));
        assert_eq!(names(&["", " , "]), Ok(vec![]));
        for bad in ["a b", "a;b", "\"a\"", "a/", "\u{e4}", "a, ../b"] {
            assert_eq!(names(&[bad]), Err(NO_NAME), "{bad}");
        }
        let long = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(names(&[&long]), Ok(vec![&long[..]]));
        assert_eq!(names(&[&format!("{long}a")]), Err(NO_NAME));
    }

    #[test]
    fn names_are_limited() {
        let all: Vec<_> = (0..NAMES_MAX).map(|number| number.to_string()).collect();
        let line = all.join(",");
        assert_eq!(names(&[&line, "0"]).map(|names| names.len()), Ok(NAMES_MAX));
        assert_eq!(names(&[&line, "x"]), Err(NAMES_TOO_MANY));
        assert!(NAMES_TOO_MANY.reason.contains(&NAMES_MAX.to_string()));
    }

    #[test]
    fn events_and_ids() {
        assert_eq!(event(" new mail ü ".as_bytes()), Ok("new mail ü"));
        assert_eq!(event(b""), Ok(""));
        assert_eq!(event(b"a\tb"), Err(BAD_EVENT));
        assert_eq!(event(b"\xff"), Err(BAD_EVENT));
        assert_eq!(event(&[b'e'; KEY_BYTES_MAX + 1]), Err(BAD_EVENT));
        assert_eq!(key(b" a-1 "), Ok("a-1"));
        for bad in [&b""[..], b"a b", b"a,b", &[b'k'; KEY_BYTES_MAX + 1]] {
            assert_eq!(key(bad), Err(BAD_KEY));
        }
    }

    #[test]
    fn times() {
        for (value, seconds) in [
            ("60", 60),
            ("60s", 60),
            (" 5m ", 300),
            ("2h", 7200),
            ("007d", 604_800),
            ("1", 1),
            ("365d", TTL_MAX.as_secs()),
        ] {
            assert_eq!(
                ttl(value.as_bytes()),
                Ok(Duration::from_secs(seconds)),
                "{value}"
            );
        }
        for value in ["", "s", "-1", "+1", "1.5s", "1 s", "1S", "1w", "1ms", "1_0"] {
            assert_eq!(ttl(value.as_bytes()), Err(BAD_TTL), "{value}");
        }
        for value in [
            "0",
            "0d",
            "366d",
            "31536001",
            "99999999999999999999",
            "9999999999999999999d",
        ] {
            assert_eq!(ttl(value.as_bytes()), Err(TTL_OUT_OF_RANGE), "{value}");
        }
    }
}
