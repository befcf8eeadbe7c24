//! Host names that stand for this machine.

use std::net::Ipv4Addr;

use levity_wire::http1;

/// Host names that can only mean this machine, and the names that the operator adds.
///
/// They prevent DNS rebinding: a web page can make its own name resolve to an address of this machine, and its
/// script can then read the responses as if they came from its own server. The browser still sends the page's
/// name as the host. An IP address cannot be made to mean another machine, and the browser resolves `localhost`
/// itself (RFC 6761 section 6.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnNames {
    /// Lower case, without port and final dot; `*.example.org` stands for every name beneath.
    pub added: Vec<String>,
}

impl OwnNames {
    /// Whether a request for `host`, a name or address with or without a port, may be meant for this
    /// machine. An empty one may: browsers always send one.
    #[must_use]
    pub fn include(&self, host: &[u8]) -> bool {
        host.is_empty()
            || http1::host_name(host).is_ok_and(|name| is_own(&name) || self.is_added(&name))
    }

    fn is_added(&self, name: &str) -> bool {
        self.added
            .iter()
            .any(|added| match added.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix),
                None => name == added,
            })
    }
}

fn is_own(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || name.starts_with('[')
        || name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(added: &[&str]) -> OwnNames {
        let added = added.iter().map(|&name| name.to_owned()).collect();
        OwnNames { added }
    }

    #[test]
    fn what_no_page_can_be_called() {
        for host in [
            "",
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "a.localhost",
            "127.0.0.1:9180",
            "192.0.2.7",
            "[::1]",
            "[2001:db8::1]:80",
        ] {
            assert!(names(&[]).include(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn what_a_page_may_be_called() {
        for host in [
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "1.2.3",
            "127.0.0.1@evil.example",
            "[::1",
        ] {
            assert!(!names(&["own.example"]).include(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn names_can_be_added() {
        let names = names(&["web1", "*.example.org"]);
        for host in ["web1:80", "WEB1", "a.example.org", "a.b.example.org."] {
            assert!(names.include(host.as_bytes()), "{host}");
        }
        for host in ["web2", "a.web1", "example.org", "aexample.org"] {
            assert!(!names.include(host.as_bytes()), "{host}");
        }
    }
}
