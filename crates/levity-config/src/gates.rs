//! Who may use a site or route: the keys of its gates. A gate is inherited by itself: a table that gives the key of one
//! keeps the others of the table around it.

use crate::matcher;
use crate::network::AddressSet;
use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;

/// The word for clients on Unix sockets.
const UNIX: &str = "unix";

/// The word for every client.
const ALL: &str = "all";

/// The gates of a site or route. A request has to pass each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gates {
    /// The clients that are let in; `None` lets all in.
    pub allow: Option<AddressSet>,
    /// The clients that are refused, even if `allow` has them.
    pub deny: AddressSet,
}

pub(crate) const KEYS: &[Key] = documented! {
    /// Networks and addresses of the clients that are let in, such as `["10.0.0.0/8", "2001:db8::1"]`; all others get 403.
    /// `"unix"` stands for every client of a Unix socket, `"all"` for everyone, as when a route opens what its site guards.
    /// See `server.trusted_proxies` for clients behind a proxy. Without the key everyone is let in. A route has the list of
    /// the table around it unless it gives its own, as with all keys and tables that say who is let in; those that it does
    /// not give stay. [How](tasks.md#who-may-read-what) they work together.
    key("allow", Kind::Names, None);
    /// Clients that get 403 although `allow` has them, written as there.
    key("deny", Kind::Names, None);
};

/// Reads the keys of one table; `above` are the gates of the table around it.
pub(crate) fn read(section: &Section<'_>, above: &Gates) -> Gates {
    let (allow, deny) = (clients(section, "allow"), clients(section, "deny"));
    if section.is_empty_array("allow") {
        let help = "`deny = [\"all\"]` refuses everyone, `allow = [\"all\"]` lets everyone in";
        section.report("allow", "it names nobody", Some(help.to_owned()));
    }
    let everyone = everyone();
    if section.has("allow") && deny.as_ref() == Some(&everyone) {
        let help = "leave it out: `allow` refuses all others".to_owned();
        section.report("deny", "nobody would be let in", Some(help));
    }
    Gates {
        allow: match allow {
            Some(own) => Some(own).filter(|own| *own != everyone),
            None => above.allow.clone(),
        },
        deny: deny.unwrap_or_else(|| above.deny.clone()),
    }
}

/// Reads a list of clients; `None` when the key is absent or wrong.
fn clients(section: &Section<'_>, key: &str) -> Option<AddressSet> {
    let mut clients = AddressSet::default();
    for given in section.names(key)? {
        match given.text {
            UNIX => clients.unix = true,
            ALL => clients = everyone(),
            text if text.starts_with("unix:") => {
                given.refuse_with(
                    format!("`{text}` is no network"),
                    "\"unix\" stands for every client of a Unix socket",
                );
            }
            _ => clients.networks.extend(matcher::network(&given)),
        }
    }
    Some(clients)
}

fn everyone() -> AddressSet {
    let networks = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
    AddressSet {
        networks: networks.into(),
        unix: true,
    }
}
