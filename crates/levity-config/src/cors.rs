//! `cors`: which pages of other origins may read responses (the CORS protocol of the Fetch standard).

use std::time::Duration;

use crate::expression::Expression;
use crate::section::Section;
use crate::token::is_token;

/// What pages of other origins may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// Patterns of origins in lower case; empty permits none.
    pub origins: Vec<Expression>,
    /// Whether every origin is permitted.
    pub any_origin: bool,
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
        let origin = origin.to_ascii_lowercase();
        self.any_origin || self.origins.iter().any(|pattern| pattern.matches(&origin))
    }
}

/// Reads `cors`; `None` when the table is absent.
pub(crate) fn read(section: &Section<'_>) -> Option<Cors> {
    if !section.has("cors") {
        return None;
    }
    let is_table = section.has_table("cors");
    let section = section.child("cors");
    if !is_table {
        return None;
    }
    section.require("origins");
    let (origins, any_origin) = origins(&section);
    let credentials = section.boolean_or_default("credentials");
    if any_origin && credentials {
        let help = "name the origins: with any of them, every page could act for the user";
        section.report(
            "credentials",
            "it cannot be with `origins = [\"*\"]`",
            Some(help.to_owned()),
        );
    }
    Some(Cors {
        origins,
        any_origin,
        methods: tokens(&section, "methods"),
        headers: tokens(&section, "headers"),
        expose: tokens(&section, "expose"),
        credentials,
        max_age: section.duration("max_age"),
    })
}

fn origins(section: &Section<'_>) -> (Vec<Expression>, bool) {
    let (mut origins, mut any) = (Vec::new(), false);
    for given in section.names("origins").unwrap_or_default() {
        let text = given.text.to_ascii_lowercase();
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let is_origin =
            rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#']));
        // `https://*example.org` would also be `https://evil-example.org`.
        let has_open_star = rest.is_some_and(|host| host.contains('*') && !host.starts_with("*."));
        if text == "*" {
            any = true;
        } else if !is_origin || has_open_star || text.matches('*').count() > 1 {
            given.refuse_with(
                format!("`{}` is no origin", given.text),
                "such as \"https://example.org\", \"https://*.example.org\", \"http://localhost:3000\" or \"*\"",
            );
        } else if let Ok(pattern) = Expression::text(&text) {
            origins.push(pattern);
        }
    }
    (origins, any)
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
