//! The name of a box in the process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use levity_wire::mailbox::is_name;
use serde::{Deserialize, Serialize};

/// The name of a box, with that of the set that it belongs to: `SET/NAME`. Sets share nothing but the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The box `name` of `set`; `None` if [`is_name`] refuses the name. The name of a set has no slash.
    #[must_use]
    pub fn new(set: &str, name: &[u8]) -> Option<Self> {
        if !is_name(name) {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        Some(Self(format!("{set}/{name}").into()))
    }

    /// The name as [`as_str`](Self::as_str) gave it, for a store that reads it back; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (set, name) = text.split_once('/')?;
        let is_right = !set.is_empty() && is_name(name.as_bytes());
        is_right.then(|| Self(text.into()))
    }

    /// A name before all names of `set`. No box has it.
    pub(crate) fn first_of(set: &str) -> Self {
        Self(format!("{set}/").into())
    }

    /// The first of `names` that is of `set`.
    pub(crate) fn first_in(names: &BTreeSet<Self>, set: &str) -> Option<Self> {
        let first = names.range(Self::first_of(set)..).next();
        first.filter(|name| name.set() == set).cloned()
    }

    /// Set and name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> &str {
        self.0.split_once('/').map_or("", |(set, _)| set)
    }

    /// The name within the set.
    #[must_use]
    pub fn in_set(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("no name of a box")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_parts_that_it_was_made_of() {
        let name = Name::new("chat", b"rooms/1").expect("a name");
        assert_eq!((name.set(), name.in_set()), ("chat", "rooms/1"));
        assert_eq!(Name::parse(name.as_str()), Some(name));
        for text in ["chat", "chat/", "/a", "", "chat//a"] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
        assert_eq!(Name::new("chat", b"a b"), None);
    }
}
