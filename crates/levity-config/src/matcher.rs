//! Which requests a route matches: `path`, `regex` and `when`.

use std::str::FromStr;

use crate::address::Address;
use crate::expression::Expression;
use crate::media_types::{self, MediaTypes};
use crate::network::Network;
use crate::pattern::Pattern;
use crate::section::{Section, Text};
use crate::token::is_token;

/// What a request must have to match a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// Its path.
    pub path: Pattern,
    /// All else.
    pub when: When,
}

/// Conditions besides the path. All hold for a match; an empty list holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    /// Methods, one of which the request has.
    pub methods: Vec<String>,
    /// Names of headers in lower case, each with a pattern for one of its values.
    pub headers: Vec<(String, Expression)>,
    /// Names of parameters of the query, each with a pattern for one of its values.
    pub query: Vec<(String, Expression)>,
    /// Networks, one of which has the client.
    pub clients: Vec<Network>,
    /// Addresses of `[[listen]]`, one of which the connection came to.
    pub listen: Vec<Address>,
    /// Media types, one of which is that of a file with the name in the path.
    pub types: Vec<MediaTypes>,
}

impl Matcher {
    /// The weight of its expressions.
    pub(crate) fn expressions(&self) -> usize {
        self.path.weight() + self.when.headers.len() + self.when.query.len()
    }

    /// Whether every request that `other` matches certainly matches too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_wider = self.when == When::default() || self.when == other.when;
        is_wider && self.path.covers(&other.path)
    }
}

/// Reads the keys of a route; `None` when a key is wrong, or none is given.
pub(crate) fn read(section: &Section<'_>, listen: &[Address]) -> Option<Matcher> {
    let when = section
        .has("when")
        .then(|| when(&section.child("when"), listen));
    let is_given = section.has("path") || section.has("regex");
    if !is_given && when.is_none() {
        section.require("path");
        return None;
    }
    if section.has("path") && section.has("regex") {
        section.report("regex", "`path` is given too", None);
    }
    let path = match is_given {
        true => path(section).or_else(|| regex(section))?,
        false => Pattern::Prefix("/".to_owned()),
    };
    Some(Matcher {
        path,
        when: when.unwrap_or_default(),
    })
}

fn path(section: &Section<'_>) -> Option<Pattern> {
    let given = section.text("path")?;
    let text = given.text;
    let refuse = |help| given.refuse_with(format!("`{text}` is not the path of a route"), help);
    let path = Pattern::parse(text).map_err(refuse).ok()?;
    // `/` alone is often meant literally.
    if matches!(path, Pattern::Exact(_)) && text.ends_with('/') && text != "/" {
        let note = format!("`{text}` is that path alone; everything beneath it is `{text}*`");
        section.reader.note(&given.span, note);
    }
    Some(path)
}

fn regex(section: &Section<'_>) -> Option<Pattern> {
    let given = section.text("regex")?;
    let refuse = |reason| given.refuse(format!("`regex`: {reason}"));
    Pattern::regex(given.text).map_err(refuse).ok()
}

fn when(section: &Section<'_>, listen: &[Address]) -> When {
    When {
        methods: methods(section),
        headers: values(section, "header"),
        query: values(section, "query"),
        clients: networks(section, "client"),
        listen: listeners(section, listen),
        types: media_types::list(section, "type").unwrap_or_default(),
    }
}

fn methods(section: &Section<'_>) -> Vec<String> {
    let mut methods = Vec::new();
    for given in section.names("method").unwrap_or_default() {
        if !is_token(given.text) || given.text.contains(|c: char| c.is_ascii_lowercase()) {
            given.refuse(format!(
                "`{}` is not a method, such as \"POST\"",
                given.text
            ));
        }
        methods.push(given.text.to_owned());
    }
    methods
}

fn values(section: &Section<'_>, key: &str) -> Vec<(String, Expression)> {
    let mut values = Vec::new();
    for (name, value) in section.pairs(key) {
        let is_header = key == "header";
        if is_header && !is_token(name.text) {
            name.refuse(format!("`{}` is not a header name", name.text));
        }
        let name = match is_header {
            true => name.text.to_ascii_lowercase(),
            false => name.text.to_owned(),
        };
        match Expression::text(value.text) {
            Ok(pattern) => values.push((name, pattern)),
            Err(reason) => value.refuse(format!("`{}`: {reason}", value.text)),
        }
    }
    values
}

/// Reads a list of networks; empty when the key is absent or wrong.
fn networks(section: &Section<'_>, key: &str) -> Vec<Network> {
    let mut networks = Vec::new();
    for given in section.names(key).unwrap_or_default() {
        networks.extend(network(&given));
    }
    networks
}

/// Reads a network; `None` when it is wrong.
pub(crate) fn network(given: &Text<'_>) -> Option<Network> {
    let refuse = |help| given.refuse_with(format!("`{}` is no network", given.text), help);
    Network::from_str(given.text).map_err(refuse).ok()
}

fn listeners(section: &Section<'_>, listen: &[Address]) -> Vec<Address> {
    let mut addresses = Vec::new();
    for given in section.names("listen").unwrap_or_default() {
        match given.address() {
            Ok(address) if listen.contains(&address) => addresses.push(address),
            // It may stand in a file that could not be read.
            Ok(_) => section.reader.report_absent(
                Some(&given.span),
                format!("`{}` is not the `address` of a `[[listen]]`", given.text),
                Some("write it as it is written there".to_owned()),
            ),
            Err(error) => given.refuse(error.to_string()),
        }
    }
    addresses
}
