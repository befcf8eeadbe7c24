//! `origins`: pages of which origins are meant (RFC 6454).

use crate::expression::Expression;
use crate::section::Section;

/// Origins of web pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// Patterns in lower case.
    patterns: Vec<Expression>,
    /// Whether every origin is meant.
    pub any: bool,
}

impl Origins {
    /// Whether `origin` is one of them.
    #[must_use]
    pub fn contain(&self, origin: &[u8]) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.any || self.patterns.iter().any(|pattern| pattern.matches(&origin))
    }
}

/// Reads `origins`; `None` when the key is absent or wrong.
pub(crate) fn read(section: &Section<'_>) -> Option<Origins> {
    let mut origins = Origins::default();
    for given in section.names("origins")? {
        let text = given.text.to_ascii_lowercase();
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let is_origin =
            rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#']));
        // `https://*example.org` would also be `https://evil-example.org`.
        let has_open_star = rest.is_some_and(|host| host.contains('*') && !host.starts_with("*."));
        if text == "*" {
            origins.any = true;
        } else if !is_origin || has_open_star || text.matches('*').count() > 1 {
            given.refuse_with(
                format!("`{}` is no origin", given.text),
                "such as \"https://example.org\", \"https://*.example.org\", \"http://localhost:3000\" or \"*\"",
            );
        } else if let Ok(pattern) = Expression::text(&text) {
            origins.patterns.push(pattern);
        }
    }
    Some(origins)
}
