//! Names in certificates, and those that clients ask for in handshakes of TLS.

/// An IPv6 address without the brackets that it has in URLs.
#[must_use]
pub fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[');
    inner
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host)
}

/// Whether a certificate with these names is accepted by a client that asks for `host`. `*.example.org` stands for each name directly
/// beneath.
#[must_use]
pub fn is_for(names: &[String], host: &str) -> bool {
    let host = bare(host);
    let above = host.split_once('.').map(|(_, above)| above);
    let mut names = names.iter();
    names.any(|name| name == host || above.is_some() && name.strip_prefix("*.") == above)
}

/// Whether `host` of a site stands for `name`, both in lower case: `*.example.org` stands for every name beneath.
#[must_use]
pub fn stands_for(host: &str, name: &str) -> bool {
    match host.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_for_names() {
        for (host, name, expected) in [
            ("a.test", "a.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "c.b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "ba.test", false),
        ] {
            assert_eq!(stands_for(host, name), expected, "{host} {name}");
        }
    }
}
