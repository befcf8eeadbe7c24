//! One entry of `to`.

use std::net::Ipv4Addr;
use std::path::Path;

use super::{At, Backend};
use crate::address::Address;
use crate::host::is_host_name;
use crate::tls;
use crate::value::whole_number;

const WEIGHT_MAX: u32 = 1000;

/// The name of this machine, which is not resolved.
const LOCALHOST: &str = "localhost";

/// Reads `ADDRESS [weight=N] [backup] [drain]`, a relative socket path from `base`.
///
/// # Errors
///
/// A phrase that says what is wrong, or what to write.
pub(super) fn parse(text: &str, base: Option<&Path>) -> Result<Backend, String> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    let https = first.strip_prefix("https://");
    let at = match https {
        Some(host) => at_https(host, base)?,
        None => at(first, base)?,
    };
    let mut backend = Backend {
        tls: https.map(|_| name_to_prove(&at)),
        at,
        weight: 1,
        backup: false,
        drain: false,
    };
    let mut seen = Vec::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .map_or((word, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("weight", Some(value)) => backend.weight = weight(value)?,
            ("backup", None) => backend.backup = true,
            ("drain", None) => backend.drain = true,
            _ => {
                return Err(format!(
                    "`{word}` is none of `weight=N`, `backup` and `drain`"
                ));
            }
        }
        if seen.contains(&name) {
            return Err(format!("`{name}` is given twice"));
        }
        seen.push(name);
    }
    Ok(backend)
}

fn weight(text: &str) -> Result<u32, String> {
    whole_number(text)
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
        .ok_or_else(|| format!("`weight` is a number from 1 to {WEIGHT_MAX}"))
}

/// What follows `https://`. The port may be left out.
fn at_https(host: &str, base: Option<&Path>) -> Result<At, String> {
    if host.is_empty() {
        return Err("it is empty".to_owned());
    }
    if host.contains('/') {
        let host = host.split('/').next().unwrap_or_default();
        return Err(format!(
            "write \"https://{host}\": a path belongs to the requests"
        ));
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    match has_port {
        true => at(host, base),
        false => at(&format!("{host}:{}", tls::PORT), base),
    }
}

/// What a backend after `https://` proves.
fn name_to_prove(at: &At) -> String {
    match at {
        At::Name(name, _) => name.trim_end_matches('.').to_owned(),
        At::Address(Address::Tcp(address)) => address.ip().to_canonical().to_string(),
        At::Address(Address::Unix(_)) | At::Localhost(_) => LOCALHOST.to_owned(),
    }
}

fn at(text: &str, base: Option<&Path>) -> Result<At, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.starts_with("unix:") {
        return address(text, base);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(without_scheme(scheme, rest));
    }
    let alone = text.strip_prefix(':').unwrap_or(text);
    if whole_number::<u32>(alone).is_some() {
        return Err(format!(
            "a port alone is no backend: for this machine write \"127.0.0.1:{alone}\""
        ));
    }
    let is_bare = text.starts_with('[') && text.ends_with(']');
    let split = text.rsplit_once(':').filter(|_| !is_bare);
    let Some((host, port)) = split else {
        return Err(if text.contains('/') {
            // As another server writes it: `unix//run/a.sock`.
            let path = text.strip_prefix("unix/").unwrap_or(text);
            format!("for a Unix socket write \"unix:{path}\"")
        } else {
            format!("the port is missing, as in \"{text}:8080\"")
        });
    };
    let number = self::port(port)?;
    if host.eq_ignore_ascii_case(LOCALHOST) {
        return Ok(At::Localhost(number));
    }
    if host.contains(':') || host.parse::<Ipv4Addr>().is_ok() {
        return address(text, base);
    }
    name(host).map(|name| At::Name(name, number))
}

/// What to write in place of `scheme` and what follows it.
fn without_scheme(scheme: &str, rest: &str) -> String {
    let host = rest.split('/').next().unwrap_or(rest);
    match scheme.to_ascii_lowercase().as_str() {
        "grpcs" => format!("write \"https://{host}\", which is TLS, and `protocol = \"h2\"`"),
        "https" | "wss" => format!("write \"https://{host}\", which is TLS"),
        "grpc" | "h2c" => format!("write \"{host}\", with a port, and `protocol = \"h2\"`"),
        _ => format!(
            "write \"{host}\", with a port: `protocol` says what is spoken, not `{scheme}://`, and only \
             `https://` adds TLS"
        ),
    }
}

fn port(text: &str) -> Result<u16, String> {
    whole_number(text)
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("`{text}` is not a port from 1 to 65535"))
}

fn address(text: &str, base: Option<&Path>) -> Result<At, String> {
    let address = Address::parse_beneath(text, base);
    address.map(At::Address).map_err(|error| error.to_string())
}

/// A name whose last label is a number would be a wrong address, and no resolver knows it (RFC 1123
/// section 2.1).
fn name(host: &str) -> Result<String, String> {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let last = labels.rsplit('.').next().unwrap_or(labels);
    if !is_host_name(labels) || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{host}` is neither an IP address nor a host name"));
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let Backend {
            at,
            weight,
            backup,
            drain,
            tls,
        } = parse(text, Some(Path::new("/etc"))).unwrap();
        let at = match at {
            At::Address(address) => address.to_string(),
            At::Localhost(port) => format!("localhost {port}"),
            At::Name(name, port) => format!("name {name} {port}"),
        };
        let tls = tls.map_or_else(String::new, |name| format!(" tls {name}"));
        format!("{at} {weight} {backup} {drain}{tls}")
    }

    #[test]
    fn forms_that_are_read() {
        for (text, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1 1 false false"),
            ("localhost:65535", "localhost 65535 1 false false"),
            ("Localhost:1", "localhost 1 1 false false"),
            ("[::1]:80 weight=1000", "[::1]:80 1000 false false"),
            ("unix:a.sock backup", "unix:/etc/a.sock 1 true false"),
            ("unix:/a.sock", "unix:/a.sock 1 false false"),
            ("App.Example:80", "name app.example 80 1 false false"),
            ("a_b.:80  drain  weight=1", "name a_b. 80 1 false true"),
            ("1.2.example:80", "name 1.2.example 80 1 false false"),
            (
                "https://a.example",
                "name a.example 443 1 false false tls a.example",
            ),
            (
                "https://a.example:8443 backup",
                "name a.example 8443 1 true false tls a.example",
            ),
            (
                "https://localhost:8443",
                "localhost 8443 1 false false tls localhost",
            ),
            ("https://[::1]", "[::1]:443 1 false false tls ::1"),
            ("https://[::1]:1", "[::1]:1 1 false false tls ::1"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, reason) in [
            ("", "it is empty"),
            ("http://a:80/x", "write \"a:80\", with a port"),
            (
                "grpcs://a:443",
                "write \"https://a:443\", which is TLS, and `protocol = \"h2\"`",
            ),
            ("GRPCS://a", "write \"https://a\""),
            ("wss://a/x", "write \"https://a\", which is TLS"),
            ("HTTPS://a", "write \"https://a\""),
            (
                "grpc://a:1/",
                "write \"a:1\", with a port, and `protocol = \"h2\"`",
            ),
            (
                "h2c://a:1",
                "write \"a:1\", with a port, and `protocol = \"h2\"`",
            ),
            ("https://a/x", "write \"https://a\": a path"),
            ("https://", "it is empty"),
            ("8080", "write \"127.0.0.1:8080\""),
            (":8080", "write \"127.0.0.1:8080\""),
            (
                "example.org",
                "the port is missing, as in \"example.org:8080\"",
            ),
            ("127.0.0.1", "the port is missing"),
            ("[::1]", "the port is missing, as in \"[::1]:8080\""),
            ("/run/a.sock", "write \"unix:/run/a.sock\""),
            ("unix//run/a.sock", "write \"unix:/run/a.sock\""),
            ("unix:", "the path of the Unix socket is empty"),
            ("a:0", "`0` is not a port from 1 to 65535"),
            ("127.0.0.1:65536", "`65536` is not a port"),
            ("[::1]:0", "`0` is not a port"),
            ("a:+1", "`+1` is not a port"),
            ("a:80/b", "`80/b` is not a port"),
            ("::1:80", "in brackets"),
            ("[::x]:80", "is not an IPv6 address"),
            ("256.0.0.1:80", "neither an IP address nor a host name"),
            ("a..b:80", "neither an IP address nor a host name"),
            ("*.b:80", "neither an IP address nor a host name"),
            ("a:80 weight=0", "a number from 1 to 1000"),
            ("a:80 weight=1001", "a number from 1 to 1000"),
            ("a:80 weight=+1", "a number from 1 to 1000"),
            ("a:80 weight", "`weight` is none of"),
            ("a:80 backup=1", "`backup=1` is none of"),
            ("a:80 drain drain", "`drain` is given twice"),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
