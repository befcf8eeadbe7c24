//! The ids of events that clients get.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use levity_mailbox::MessageId;

/// An id that a client has got from here.
pub struct Id<'t> {
    pub token: &'t str,
    pub message: MessageId,
    /// The id that the application gave; empty without one.
    pub of_application: &'t str,
}

impl<'t> Id<'t> {
    pub fn parse(text: &'t [u8]) -> Option<Self> {
        let mut parts = str::from_utf8(text)
            .ok()?
            .strip_prefix("lv.")?
            .splitn(3, '.');
        Some(Self {
            token: parts.next()?,
            message: parts.next()?.parse().ok()?,
            of_application: parts.next().unwrap_or_default(),
        })
    }
}

/// A random token, of which nobody can guess another.
///
/// # Panics
/// If the kernel has no random numbers.
pub fn token() -> String {
    let mut token = [0; 16];
    getrandom::fill(&mut token).expect("random numbers of the kernel");
    text(&token)
}

/// Bytes as they are part of an id and the name of a box.
pub fn text(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_three_parts() {
        let id = Id::parse(b"lv.00ff.3-4.app.7").expect("an id");
        assert_eq!((id.token, id.of_application), ("00ff", "app.7"));
        assert_eq!((id.message.epoch, id.message.sequence), (3, 4));
        assert_eq!(Id::parse(b"lv.00ff.3-4").expect("an id").of_application, "");
        for text in [
            &b"7"[..],
            b"lv.",
            b"lv.00ff",
            b"lv.00ff.x",
            b"3-4",
            b"lv.\xff.3-4",
        ] {
            assert!(Id::parse(text).is_none());
        }
    }
}
