//! Host names.

use std::net::Ipv6Addr;

use crate::section::Text;

/// The name in the form in which hosts are compared. Reports a name that is not valid.
pub(crate) fn host_or_report(given: &Text<'_>) -> Option<String> {
    let refuse = |help| given.refuse_with(format!("`{}` is not a host name", given.text), help);
    host(given.text).map_err(refuse).ok()
}

/// The form in which hosts are compared: lower case, without the final dot.
pub fn host(text: &str) -> Result<String, String> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    // `_` is nginx's way to match any host.
    if matches!(&*host, "*" | "_") {
        return Err("leave `hosts` out to answer any host".to_owned());
    }
    if let Some(ip) = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let ip: Ipv6Addr = ip
            .parse()
            .map_err(|_| "brackets hold an IPv6 address".to_owned())?;
        return Ok(format!("[{ip}]"));
    }
    if !name.is_ascii() {
        return Err("write it as browsers send it, in its `xn--` form".to_owned());
    }
    if name.contains(':') {
        return Err("leave scheme and port out".to_owned());
    }
    if !has_labels(name, b"-_~!$&'()+=") {
        let help = "letters, digits, `-`, `_` and `~!$&'()+=`, with dots between; a star only as `*.` at the start";
        return Err(help.to_owned());
    }
    Ok(host)
}

/// Whether `name` consists of labels with dots between (RFC 1123 section 2.1). Underscores are common, though
/// not allowed.
pub(crate) fn is_host_name(name: &str) -> bool {
    has_labels(name, b"-_")
}

/// A site's name may have more marks than a machine's (RFC 3986 section 3.2.2). `*`, `,` and `;` are excluded:
/// they have a meaning in the configuration or separate names.
fn has_labels(name: &str, marks: &[u8]) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_in_one_form() {
        for (text, form) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("*.Example.org", "*.example.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[0:0::1]", "[::1]"),
            ("a_b-c", "a_b-c"),
            ("It's(1)+$.example", "it's(1)+$.example"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(form), "{text}");
        }
    }

    #[test]
    fn what_is_no_host() {
        for text in [
            "",
            ".",
            "*",
            "_",
            "a*.b",
            "a.b,c.d",
            "a;b",
            "*.*.b",
            "a..b",
            "a b",
            "a:80",
            "http://a",
            "b\u{fc}cher.de",
            "[::x]",
            "a/b",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
        assert!(host(&"a".repeat(64)).is_err());
        assert!(host(&vec!["a"; 128].join(".")).is_err());
    }
}
