//! The keys of gates.

use levity_wire::htpasswd;

use super::realm::realm;
use super::{BasicAuth, ForwardAuth, Gates, jwt, signed_url};
use crate::headers;
use crate::matcher;
use crate::network::AddressSet;
use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;
use crate::token::is_token;
use crate::upstream::read::Upstreams;

/// The word for clients on Unix sockets.
const UNIX: &str = "unix";

/// The word for every client.
const ALL: &str = "all";

/// The maximum length of a file of users: about 10 000 of them.
const USERS_BYTES_MAX: u64 = 1 << 20;

pub(crate) const KEYS: &[Key] = documented! {
    /// Networks and addresses of the clients that are let in, such as `["10.0.0.0/8", "2001:db8::1"]`; all others get 403.
    /// `"unix"` stands for every client of a Unix socket, `"all"` for everyone, as when a route opens what its site guards.
    /// See `server.trusted_proxies` for clients behind a proxy. Without the key everyone is let in. A route has the list of
    /// the table around it unless it gives its own, as with all keys and tables that say who is let in; those that it does
    /// not give stay. [How](tasks/access.md#what-gates-have-in-common) they work together.
    key("allow", Kind::Names, None);
    /// Clients that get 403 although `allow` has them, written as there.
    key("deny", Kind::Names, None);
};

/// `[site.basic_auth]` and `[site.route.basic_auth]`
pub(crate) const BASIC_AUTH: &[Key] = documented! {
    /// The file of the users, one `USER:HASH` per line, as `levity passwd USER` and `htpasswd -B` print them: hashes of
    /// Argon2, bcrypt, and SHA-crypt (`$5$`, `$6$`). It is read at start and at each reload. Required.
    key("users", Kind::Text("a path"), None).secret();
    /// What browsers show when they ask for the password. Browsers send a password that was given for a realm to all of it.
    key("realm", Kind::Text("a text"), Some("Restricted"));
    /// Names of users in the file who are let in; without the key all of them are.
    key("allow_users", Kind::Names, None);
    /// Whether applications get the `Authorization` header, and with it the password. Those with CGI variables get the name
    /// of the user as `REMOTE_USER` in any case.
    key("pass_authorization", Kind::Boolean, Some("false"));
    /// A header with the name of the user for applications of protocol http, such as `"Remote-User"`. Headers of this name
    /// from clients reach no application of the site.
    key("user_header", Kind::Text("the name of a header"), None);
};

/// `[site.forward_auth]` and `[site.route.forward_auth]`
pub(crate) const FORWARD_AUTH: &[Key] = documented! {
    /// Name of the `[[upstream]]` that decides, of protocol http or h2. Required.
    key("upstream", Kind::Text("a name"), None);
    /// Path, and query if there is one, of the requests to it, such as `"/api/authz/forward-auth"`. Required.
    key("path", Kind::Text("a path"), None);
    /// Headers of its responses that the application of the site or route gets, such as `["Remote-User"]`. Headers of these
    /// names from clients reach no application of the site, whichever route they take.
    key("copy", Kind::Names, Some("[]"));
    /// Header of its responses with the name of the user, for the access log and `REMOTE_USER`. Clients may not send it, as
    /// with `copy`.
    key("user", Kind::Text("the name of a header"), None);
};

/// Whether a table says itself who is let in.
pub(crate) fn are_given(section: &Section<'_>) -> bool {
    let tables = ["signed_url", "jwt", "basic_auth", "forward_auth"];
    let keys = KEYS.iter().map(|key| key.name);
    keys.chain(tables).any(|name| section.has(name))
}

/// Reads the keys of one table; `above` are the gates of the table around it.
pub(crate) fn read(section: &Section<'_>, above: &Gates, upstreams: &Upstreams) -> Gates {
    let (allow, deny) = (clients(section, "allow"), clients(section, "deny"));
    if section.is_empty_array("allow") {
        let help = "`deny = [\"all\"]` refuses everyone, `allow = [\"all\"]` lets everyone in";
        section.report("allow", "it names nobody", Some(help.to_owned()));
    }
    if section.boolean("internal") == Some(true) && are_given(section) {
        let note = "the gates here do not apply: only an application leads to an internal route, and it has let the client in";
        section
            .reader
            .note(&section.span_of("internal"), note.to_owned());
    }
    let everyone = AddressSet::everyone();
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
        signed_url: match section.has("signed_url") {
            true if section.is_off("signed_url") => None,
            true => table(section, "signed_url").and_then(|own| signed_url::read(&own)),
            false => above.signed_url.clone(),
        },
        jwt: match section.has("jwt") {
            true if section.is_off("jwt") => None,
            true => table(section, "jwt").and_then(|own| {
                let user_header = headers::name_for_requests(&own, "user_header");
                jwt::read(&own, user_header)
            }),
            false => above.jwt.clone(),
        },
        basic_auth: match section.has("basic_auth") {
            true if section.is_off("basic_auth") => None,
            true => table(section, "basic_auth").and_then(|own| basic_auth(&own)),
            false => above.basic_auth.clone(),
        },
        forward_auth: match section.has("forward_auth") {
            true if section.is_off("forward_auth") => None,
            true => table(section, "forward_auth").and_then(|own| forward_auth(&own, upstreams)),
            false => above.forward_auth.clone(),
        },
    }
}

/// The table of a gate; `None` for another value, which is reported.
fn table<'r>(section: &Section<'r>, name: &str) -> Option<Section<'r>> {
    let table = section.child(name);
    section.has_table(name).then_some(table)
}

/// Reads the table; `None` when it is wrong, which has been reported.
fn basic_auth(section: &Section<'_>) -> Option<BasicAuth> {
    section.require("users");
    let realm = realm(section);
    let names = section.names("allow_users");
    if section.is_empty_array("allow_users") {
        let help = "leave it out to let all users of the file in".to_owned();
        section.report("allow_users", "it names nobody", Some(help));
    }
    let pass_authorization = section.boolean("pass_authorization") == Some(true);
    let user_header = headers::name_for_requests(section, "user_header");
    let (file, text) = section.file_text("users", USERS_BYTES_MAX)?;
    let report = |error| section.report("users", format_args!("{}, {error}", file.display()), None);
    let users = htpasswd::parse(text.as_deref().unwrap_or_default());
    let users = users.map_err(report).ok()?;
    for given in names.iter().flatten() {
        if text.is_some() && !users.iter().any(|entry| entry.user == given.text) {
            given.refuse(format!("`{}` is not in {}", given.text, file.display()));
        }
    }
    let names = names.map(|names| names.iter().map(|given| given.text.to_owned()).collect());
    Some(BasicAuth {
        realm,
        users: users.into(),
        allow_users: names,
        pass_authorization,
        user_header,
        file,
    })
}

/// Reads the table; `None` when it is wrong, which has been reported.
fn forward_auth(section: &Section<'_>, upstreams: &Upstreams) -> Option<ForwardAuth> {
    section.require("upstream");
    section.require("path");
    let copy = headers::names_for_requests(section, "copy");
    let user = section.text("user");
    if let Some(given) = user.as_ref().filter(|given| !is_token(given.text)) {
        given.refuse(format!("`{}` is not a header name", given.text));
    }
    let upstream = section.text("upstream");
    let known = upstream
        .as_ref()
        .and_then(|name| upstreams.find(section.reader, name, "upstream"));
    let protocol = known.and_then(|known| known.protocol);
    if protocol.is_some_and(|protocol| !protocol.is_http()) {
        section.report(
            "upstream",
            "only an upstream of protocol http or h2 decides",
            None,
        );
    }
    let path = section.text("path")?;
    let is_visible = path.text.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.text.starts_with('/') || path.text.contains('#') || !is_visible {
        path.refuse_with(
            format!("`{}` is no path", path.text),
            "it begins with `/`; the address is in `to` of the upstream",
        );
    }
    Some(ForwardAuth {
        upstream: upstream?.text.to_owned(),
        path: path.text.to_owned(),
        copy,
        user: user.map(|given| given.text.to_owned()),
    })
}

/// Reads a list of clients; `None` when the key is absent or wrong.
fn clients(section: &Section<'_>, key: &str) -> Option<AddressSet> {
    let mut clients = AddressSet::default();
    for given in section.names(key)? {
        match given.text {
            UNIX => clients.unix = true,
            ALL => clients = AddressSet::everyone(),
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
