//! Addresses of sockets: a TCP address and port, or the path of a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::value::whole_number;

/// Longest path of a Unix socket in bytes: `sun_path` holds 108 with the closing zero (unix(7)).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The default port.
pub const PORT_USUAL: u16 = 8080;

/// The address of a socket to listen on or to connect to.
///
/// `8080` and `:8080` are read as `[::]:8080`. The unspecified IPv6 address stands for every address
/// of the machine, IPv4 included: the socket is opened with `IPV6_V6ONLY` off, and a kernel without
/// IPv6 gets `0.0.0.0` instead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket, at most 107 bytes.
    Unix(PathBuf),
}

/// The reason why a text is not an [`Address`]: a phrase that follows the text in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Address::unix(PathBuf::from(path));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or(rest);
            let reason = format!("write `{host}`, without `{scheme}://`");
            return Err(AddressError(reason));
        }
        if let Some(ip) = without_port(text) {
            let host = if text == "localhost" {
                text.to_owned()
            } else {
                host(ip)
            };
            let reason = format!("the port is missing, as in `{host}:{PORT_USUAL}`");
            return Err(AddressError(reason));
        }
        if text.contains('$') {
            let reason = "a variable is `${PORT}` in a configuration, with capital letters; on a command line the shell puts in its \
                          value";
            return Err(AddressError(reason.to_owned()));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return tcp_without_colon(text);
        };
        if host == "*" {
            let reason = format!("write `{port}`, which stands for every address of the machine");
            return Err(AddressError(reason));
        }
        let ip = ip(host)?;
        Ok(Address::Tcp(match ip {
            // Keeps the scope of `[fe80::1%2]:80`, which `IpAddr` cannot hold.
            Some(IpAddr::V6(_)) => text.parse().map_err(|_| port_error(port))?,
            Some(ip) => SocketAddr::new(ip, self::port(port)?),
            None => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self::port(port)?),
        }))
    }
}

fn tcp_without_colon(text: &str) -> Result<Address, AddressError> {
    if text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('.') {
        let all = Ipv6Addr::UNSPECIFIED.into();
        return Ok(Address::Tcp(SocketAddr::new(all, port(text)?)));
    }
    let reason = if text.contains('/') {
        format!("for a Unix socket write `unix:{text}`")
    } else {
        "expected PORT, :PORT, ADDRESS:PORT, [IPv6]:PORT or unix:PATH".to_owned()
    };
    Err(AddressError(reason))
}

/// `None` for the empty host of `:8080`.
fn ip(host: &str) -> Result<Option<IpAddr>, AddressError> {
    match host {
        "" => return Ok(None),
        "localhost" => return Ok(Some(Ipv4Addr::LOCALHOST.into())),
        _ => {}
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        let bare = inner.split_once('%').map_or(inner, |(bare, _)| bare);
        return match bare.parse::<Ipv6Addr>() {
            Ok(ip) => Ok(Some(ip.into())),
            Err(_) => Err(AddressError(format!("`{inner}` is not an IPv6 address"))),
        };
    }
    if host.contains(':') {
        return Err(AddressError(
            "write an IPv6 address in brackets, as in `[::1]:8080`".to_owned(),
        ));
    }
    host.parse::<Ipv4Addr>().map(|ip| Some(ip.into())).map_err(|_| {
        AddressError(format!(
            "`{host}` is not an IP address; names are not resolved, except `localhost`, because \
             their meaning may change while the server runs"
        ))
    })
}

fn port(text: &str) -> Result<u16, AddressError> {
    whole_number(text).ok_or_else(|| port_error(text))
}

fn port_error(text: &str) -> AddressError {
    AddressError(format!("`{text}` is not a port from 0 to 65535"))
}

impl Address {
    /// The address of a Unix socket.
    ///
    /// # Errors
    ///
    /// When the path is empty, longer than 107 bytes, or holds a zero byte.
    pub fn unix(path: PathBuf) -> Result<Self, AddressError> {
        let bytes = path.as_os_str().as_encoded_bytes();
        let reason = if bytes.is_empty() {
            "the path of the Unix socket is empty".to_owned()
        } else if bytes.len() > UNIX_PATH_BYTES_MAX {
            format!(
                "the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, this one has {}",
                bytes.len()
            )
        } else if bytes.contains(&0) {
            "the path of a Unix socket cannot hold a zero byte".to_owned()
        } else {
            return Ok(Address::Unix(path));
        };
        Err(AddressError(reason))
    }

    /// Reads an address; the path of a socket is relative to `base`, if that is given.
    ///
    /// # Errors
    ///
    /// Those of [`str::parse`], and when the joined path is longer than 107 bytes.
    pub(crate) fn parse_beneath(text: &str, base: Option<&Path>) -> Result<Self, AddressError> {
        match (text.parse()?, base) {
            (Address::Unix(path), Some(base)) => Address::unix(base.join(path)),
            (address, _) => Ok(address),
        }
    }

    /// Whether the port is 0: the kernel then chooses another port for each listener, so that two of them never
    /// clash.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        matches!(self, Address::Tcp(address) if address.port() == 0)
    }

    /// Whether only programs on this machine can connect.
    #[must_use]
    pub fn is_of_this_machine_only(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    /// Whether the kernel refuses to bind both of two different addresses because one contains the other: `[::]`
    /// is every address of the machine, and `0.0.0.0` every IPv4 address.
    #[must_use]
    pub(crate) fn overlaps(&self, other: &Address) -> bool {
        let (Address::Tcp(one), Address::Tcp(other)) = (self, other) else {
            return false;
        };
        let has = |all: &SocketAddr, one: &SocketAddr| {
            all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
        };
        let is_same_port = one.port() == other.port() && one.port() != 0;
        one != other && is_same_port && (has(one, other) || has(other, one))
    }

    /// URLs for a browser, such as `http://127.0.0.1:8080/`, with `scheme`. For the unspecified address the first URL is for
    /// this machine, and one follows for each of `own`, the addresses of its network interfaces. For a Unix
    /// socket its address as text.
    #[must_use]
    pub fn urls(&self, scheme: &str, own: &[IpAddr]) -> Vec<String> {
        let Address::Tcp(address) = self else {
            return vec![self.to_string()];
        };
        let port = address.port();
        if !address.ip().is_unspecified() {
            return vec![url(scheme, &host(address.ip()), port)];
        }
        // An IPv4 socket cannot be reached over IPv6.
        let reached = own.iter().filter(|ip| address.is_ipv6() || ip.is_ipv4());
        let reached = reached.map(|ip| url(scheme, &host(*ip), port));
        std::iter::once(url(scheme, "localhost", port))
            .chain(reached)
            .collect()
    }
}

/// An IP address as the host of a URL: one of IPv6 in brackets.
#[must_use]
pub fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn url(scheme: &str, host: &str, port: u16) -> String {
    match (scheme, port) {
        ("http", 80) | ("https", 443) => format!("{scheme}://{host}/"),
        _ => format!("{scheme}://{host}:{port}/"),
    }
}

/// Parses an address without a port: `localhost`, or an IP address, in brackets if it is IPv6. Without brackets
/// the end of `::1:8080` could be meant as a port.
pub fn without_port(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None if text == "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_are_read() {
        for (text, shown) in [
            ("8080", "[::]:8080"),
            (":8080", "[::]:8080"),
            ("0", "[::]:0"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("localhost:3000", "127.0.0.1:3000"),
            ("[::1]:65535", "[::1]:65535"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
            ("unix:/run/levity.sock", "unix:/run/levity.sock"),
            ("unix:a:1", "unix:a:1"),
        ] {
            assert_eq!(
                text.parse::<Address>().unwrap().to_string(),
                shown,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for text in ["[::]:8080", "127.0.0.1:1", "[::1]:2", "unix:/a/b"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }
    }

    #[test]
    fn refusals_say_why() {
        for (text, part) in [
            ("", "expected PORT"),
            ("example.org:80", "names are not resolved"),
            ("::1:8080", "in brackets"),
            ("[1.2.3.4]:80", "not an IPv6 address"),
            ("127.0.0.1", "the port is missing, as in `127.0.0.1:8080`"),
            ("localhost", "the port is missing, as in `localhost:8080`"),
            ("[::1]", "the port is missing, as in `[::1]:8080`"),
            (
                "http://127.0.0.1:80/",
                "write `127.0.0.1:80`, without `http://`",
            ),
            ("127.0.0.1:", "`` is not a port"),
            ("[::1]:x", "`x` is not a port"),
            ("[fe80::1%eth0]:80", "`80` is not"),
            ("65536", "`65536` is not a port"),
            (":+80", "`+80` is not a port"),
            ("/run/x.sock", "write `unix:/run/x.sock`"),
            ("unix:", "empty"),
            ("*:80", "write `80`, which"),
            ("${PORT}", "a variable is `${PORT}` in a configuration"),
            (
                "127.0.0.1:$PORT",
                "a variable is `${PORT}` in a configuration",
            ),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn unix_paths_have_the_kernels_bound() {
        let longest = "x".repeat(UNIX_PATH_BYTES_MAX);
        assert!(format!("unix:{longest}").parse::<Address>().is_ok());
        assert!(format!("unix:{longest}x").parse::<Address>().is_err());
        let base = Some(Path::new(&longest));
        assert!(Address::parse_beneath("unix:x", base).is_err());
    }

    #[test]
    fn which_addresses_overlap() {
        for (one, other, expected) in [
            ("80", "0.0.0.0:80", true),
            ("80", "127.0.0.1:80", true),
            ("80", "[::1]:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("80", "127.0.0.1:81", false),
            ("80", "80", false),
            ("0", "127.0.0.1:0", false),
            ("80", "unix:80", false),
        ] {
            let (a, b): (Address, Address) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(a.overlaps(&b), expected, "{one} {other}");
            assert_eq!(b.overlaps(&a), expected, "{other} {one}");
        }
    }

    #[test]
    fn urls_for_this_machine_and_others() {
        let own: [IpAddr; 2] = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap());
        for (text, urls) in [
            (
                "8080",
                &[
                    "http://localhost:8080/",
                    "http://192.0.2.7:8080/",
                    "http://[2001:db8::7]:8080/",
                ][..],
            ),
            ("0.0.0.0:80", &["http://localhost/", "http://192.0.2.7/"]),
            ("127.0.0.1:80", &["http://127.0.0.1/"]),
            ("[::1]:81", &["http://[::1]:81/"]),
            ("unix:/s", &["unix:/s"]),
        ] {
            assert_eq!(
                text.parse::<Address>().unwrap().urls("http", &own),
                urls,
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_without_a_port() {
        for (text, ip) in [
            ("localhost", Some("127.0.0.1")),
            ("192.0.2.7", Some("192.0.2.7")),
            ("[::1]", Some("::1")),
            ("::1", None),
            ("::1:8080", None),
            ("[192.0.2.7]", None),
            ("8080", None),
            ("localhost:80", None),
            ("example.org", None),
            ("", None),
        ] {
            assert_eq!(
                without_port(text),
                ip.map(|ip| ip.parse().unwrap()),
                "{text}"
            );
        }
    }
}
