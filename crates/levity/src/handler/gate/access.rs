//! The gate that decides by the address of the client.

use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::route::Access;

impl<'a> Handling<'a> {
    /// Refuses clients that `access` does not let in. Proxies that are trusted name the client.
    pub(in super::super) fn access(&self, access: &Access) -> Outcome<'a> {
        let ip = self.client.ip;
        let is_allowed = access.allow.as_ref().is_none_or(|set| set.contains(ip));
        match is_allowed && !access.deny.contains(ip) {
            true => Outcome::Next,
            false => Outcome::Response(error(403, "")),
        }
    }
}
