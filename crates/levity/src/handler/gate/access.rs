//! The gate that decides by the address of the client.

use super::super::{Handling, Outcome};
use crate::http::error::error;
use crate::route::Access;

impl<'a> Handling<'a> {
    /// Refuses clients that `access` does not let in. Proxies that are trusted name the client.
    pub(in super::super) fn access(&self, access: &Access) -> Outcome<'a> {
        let ip = self.client.ip;
        let is_allowed = access.allow.as_ref().is_none_or(|set| set.contains(ip));
        let reason = match is_allowed {
            true if !access.deny.contains(ip) => return Outcome::Next,
            true => "the address of the client is in `deny`",
            false => "the address of the client is not in `allow`",
        };
        self.explain_refusal(reason);
        Outcome::Response(error(403, ""))
    }
}
