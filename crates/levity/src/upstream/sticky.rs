//! Session affinity: a client is bound to a backend by a cookie that contains its ID, or by the value of a
//! header.
//!
//! The cookie's value is [`Backend::id`](super::backend::Backend::id) in hexadecimal. It is not secret: it
//! only reveals a backend's address to those who can guess it, and a client that sends another value selects
//! another backend of the same upstream, which is harmless.

use super::backend::fingerprint;
use levity_config::upstream::Sticky;

/// The number of hexadecimal digits of an ID.
const DIGITS: usize = 16;

/// The backend that a request prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// None.
    Free,
    /// The backend with this ID, if it exists.
    Backend(u64),
    /// The backend that [`rendezvous`](super::balance::rendezvous) selects for this key.
    Key(u64),
}

impl Affinity {
    /// The ID in a cookie.
    pub fn backend(self) -> Option<u64> {
        match self {
            Self::Backend(id) => Some(id),
            Self::Free | Self::Key(_) => None,
        }
    }
}

/// The name of the request header, in lower case, whose values [`affinity`] reads.
pub fn header(sticky: &Sticky) -> &str {
    match sticky {
        Sticky::Cookie(_) => "cookie",
        Sticky::Header(name) => name,
    }
}

/// The affinity of a request whose [`header`] has these values. Cookies of other names and malformed ones are
/// skipped. Does not allocate.
pub fn affinity<'v>(sticky: &Sticky, values: impl IntoIterator<Item = &'v [u8]>) -> Affinity {
    let mut values = values.into_iter();
    match sticky {
        Sticky::Cookie(name) => values
            .flat_map(|line| line.split(|&byte| byte == b';'))
            .filter_map(|pair| value_of(pair, name))
            .find_map(id)
            .map_or(Affinity::Free, Affinity::Backend),
        Sticky::Header(_) => values
            .next()
            .filter(|value| !value.is_empty())
            .map_or(Affinity::Free, |value| Affinity::Key(fingerprint(value))),
    }
}

/// The value of the `Set-Cookie` that binds a client to the backend `chosen`; `None` when it is bound to it
/// already, or the affinity is not by cookie. `https` is whether the client uses it; the cookie is then
/// `Secure`.
///
/// A session cookie, hidden from scripts (RFC 6265, 4.1.2).
pub fn set_cookie(sticky: &Sticky, affinity: Affinity, chosen: u64, https: bool) -> Option<String> {
    let Sticky::Cookie(name) = sticky else {
        return None;
    };
    let secure = if https { "; Secure" } else { "" };
    (affinity != Affinity::Backend(chosen))
        .then(|| format!("{name}={chosen:016x}; Path=/; HttpOnly; SameSite=Lax{secure}"))
}

/// The value of a `name=value` pair of a Cookie header. Names are case-sensitive (RFC 6265, 5.4).
fn value_of<'v>(pair: &'v [u8], name: &str) -> Option<&'v [u8]> {
    let value = pair
        .trim_ascii_start()
        .strip_prefix(name.as_bytes())?
        .strip_prefix(b"=")?;
    Some(value.trim_ascii_end())
}

/// Strict: another reader must not see a different value in the same text.
fn id(value: &[u8]) -> Option<u64> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(value).ok()?;
    let is_id = value.len() == DIGITS && value.iter().all(is_digit);
    is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> Sticky {
        Sticky::Cookie("route".into())
    }

    fn of(lines: &[&str]) -> Affinity {
        affinity(&cookie(), lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn a_cookie_names_a_backend() {
        let named = Affinity::Backend(0x0123_4567_89ab_cdef);
        for lines in [
            &["route=0123456789abcdef"][..],
            &["a=b; route=0123456789abcdef; c=d"],
            &["a=b;route=0123456789abcdef ;c=d"],
            &["a=b", "x; =; ;;route=0123456789abcdef"],
            &["route=junk; route=0123456789abcdef; route=1111111111111111"],
            &["\u{e9}=\u{e9}; route=0123456789abcdef"],
        ] {
            assert_eq!(of(lines), named, "{lines:?}");
        }
        assert_eq!(named.backend(), Some(0x0123_4567_89ab_cdef));
    }

    #[test]
    fn malformed_cookies_are_ignored() {
        for line in [
            "",
            "route",
            "route=",
            "route=0123456789abcde",
            "route=0123456789abcdef0",
            "route=0123456789ABCDEF",
            "route=+123456789abcdef",
            "route=\"0123456789abcdef\"",
            "route =0123456789abcdef",
            "Route=0123456789abcdef",
            "xroute=0123456789abcdef",
            "route2=0123456789abcdef",
            "route=0123456789abcd\u{e9}",
            "a=\"; b=\" route=0123456789abcdef",
        ] {
            assert_eq!(of(&[line]), Affinity::Free, "{line}");
        }
        assert_eq!(of(&[]), Affinity::Free);
        assert_eq!(Affinity::Free.backend(), None);
    }

    #[test]
    fn a_cookie_is_set_unless_the_client_has_it() {
        let set = |affinity, https| set_cookie(&cookie(), affinity, 0xab, https);
        let line = "route=00000000000000ab; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(set(Affinity::Free, false).as_deref(), Some(line));
        assert_eq!(set(Affinity::Backend(1), false).as_deref(), Some(line));
        assert_eq!(set(Affinity::Backend(0xab), false), None);
        let secure = format!("{line}; Secure");
        assert_eq!(set(Affinity::Free, true), Some(secure));
    }

    #[test]
    fn a_cookie_that_was_set_is_recognised() {
        for chosen in [0, 1, u64::MAX, fingerprint(b"127.0.0.1:80")] {
            let line = set_cookie(&cookie(), Affinity::Free, chosen, true).expect("set");
            let (pair, _) = line.split_once(';').expect("attributes");
            assert_eq!(of(&[pair]), Affinity::Backend(chosen));
        }
    }

    #[test]
    fn a_header_is_a_key_and_sets_no_cookie() {
        let sticky = Sticky::Header("x-user".into());
        assert_eq!(header(&sticky), "x-user");
        assert_eq!(header(&cookie()), "cookie");
        let of = |values: &[&str]| affinity(&sticky, values.iter().map(|value| value.as_bytes()));
        assert_eq!(of(&["ann"]), Affinity::Key(fingerprint(b"ann")));
        assert_ne!(of(&["ann"]), of(&["bob"]));
        assert_eq!(of(&["ann", "bob"]), of(&["ann"]));
        assert_eq!(of(&[]), Affinity::Free);
        assert_eq!(of(&[""]), Affinity::Free);
        assert_eq!(of(&["ann"]).backend(), None);
        assert_eq!(set_cookie(&sticky, of(&["ann"]), 1, true), None);
    }
}
