//! `cors`: which pages of other origins may read responses (the CORS protocol of the Fetch standard).

use std::time::Duration;

use crate::origins::{self, Origins};
use crate::section::Section;
use crate::token::is_token;

/// What pages of other origins may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// The origins that are permitted.
    pub origins: Origins,
    /// Methods that need a preflight.
    pub methods: Vec<String>,
    /// Request headers that need a preflight; `*` is any.
    pub headers: Vec<String>,
    /// Response headers that scripts may read.
    pub expose: Vec<String>,
    /// Whether requests may carry cookies and passwords.
    pub credentials: bool,
    /// How long a browser may keep the response to a preflight.
    pub max_age: Duration,
}

impl Cors {
    /// Whether a page of `origin` is permitted.
    #[must_use]
    pub fn permits(&self, origin: &[u8]) -> bool {
        self.origins.contain(origin)
    }
}

/// Reads `cors`; `above` is that of the table around it, for one that is absent or wrong.
pub(crate) fn read(section: &Section<'_>, above: Option<Cors>) -> Option<Cors> {
    const TABLE: &str = "cors";
    if !section.has(TABLE) {
        return above;
    }
    if section.is_off(TABLE) {
        return None;
    }
    let is_table = section.has_table(TABLE);
    let section = section.child(TABLE);
    if !is_table {
        return above;
    }
    section.require("origins");
    let origins = origins::read(&section).unwrap_or_default();
    let credentials = section.boolean_or_default("credentials");
    if origins.any && credentials {
        let help = "name the origins: with any of them, every page could act for the user";
        section.report(
            "credentials",
            "it cannot be with `origins = [\"*\"]`",
            Some(help.to_owned()),
        );
    }
    Some(Cors {
        origins,
        methods: tokens(&section, "methods"),
        headers: tokens(&section, "headers"),
        expose: tokens(&section, "expose"),
        credentials,
        max_age: section.duration("max_age"),
    })
}

/// The tokens of a list, or those of its default.
fn tokens(section: &Section<'_>, key: &str) -> Vec<String> {
    let Some(given) = section.names(key) else {
        let default = section.default(key).trim_matches(['[', ']']);
        let names = default.split(", ").filter(|name| !name.is_empty());
        return names
            .map(|name| name.trim_matches('"').to_owned())
            .collect();
    };
    let mut tokens = Vec::new();
    for token in given {
        if !is_token(token.text) {
            token.refuse(format!("`{}` is not valid in `{key}`", token.text));
        }
        tokens.push(token.text.to_owned());
    }
    tokens
}
