//! The credentials of the scheme Basic (RFC 7617).

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The maximum number of bytes in a password. The time of SHA-crypt grows with its length.
pub const PASSWORD_BYTES_MAX: usize = 256;

/// The maximum number of bytes in a name.
const USER_BYTES_MAX: usize = 255;

/// Clients that leave out the padding exist.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A name and a password, both in UTF-8.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Without a colon and control characters.
    pub user: String,
    /// Without control characters.
    pub password: String,
}

impl fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Reads the value of an Authorization header. `None` for another scheme, and for what no user can have: text that is not
/// UTF-8, control characters, an empty name, or more than 255 bytes of a name or 256 of a password.
#[must_use]
pub fn credentials(value: &[u8]) -> Option<Credentials> {
    let (scheme, rest) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = BASE64.decode(rest.trim_ascii()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    let is_long = user.len() > USER_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX;
    if user.is_empty() || is_long || text.contains(char::is_control) {
        return None;
    }
    Some(Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(value: &str) -> Option<(String, String)> {
        let found = credentials(value.as_bytes())?;
        Some((found.user, found.password))
    }

    #[test]
    fn what_is_read() {
        let own = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        // RFC 7617, 2 and 2.1.
        let example = "QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        let expected = own("Aladdin", "open sesame");
        assert_eq!(pair(&format!("Basic {example}")), expected);
        assert_eq!(pair(&format!("bASIC  {}", &example[..26])), expected);
        assert_eq!(pair("Basic dGVzdDoxMjPCow=="), own("test", "123£"));
        assert_eq!(pair("Basic YTo="), own("a", ""));
        assert_eq!(pair("Basic YTpiOmM="), own("a", "b:c"));
    }

    #[test]
    fn what_is_not() {
        for value in [
            "",
            "Basic",
            "Basic ",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Basic !",
            // "a" without a colon, ":b", "a:b\n", and a byte that is not UTF-8.
            "Basic YQ==",
            "Basic OmI=",
            "Basic YTpiCg==",
            "Basic YTr/",
        ] {
            assert_eq!(pair(value), None, "{value}");
        }
        let long = |user: usize, password: usize| {
            let text = format!("{}:{}", "a".repeat(user), "b".repeat(password));
            pair(&format!("Basic {}", BASE64.encode(text)))
        };
        assert!(long(255, 256).is_some());
        assert!(long(256, 1).is_none() && long(1, 257).is_none());
    }
}
