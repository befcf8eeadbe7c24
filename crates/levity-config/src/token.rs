//! Tokens of HTTP, such as names of headers.

/// Whether `name` is a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
