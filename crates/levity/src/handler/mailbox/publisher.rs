//! Who may publish, and who may receive.

use levity_config::Secret;
use levity_wire::mailbox::matches;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use super::super::Handling;
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::request::Request;

impl Handling<'_> {
    /// Whether the client may publish to the box `name` of `set`.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn check_publisher(
        &self,
        request: &Request,
        set: &MailboxSet,
        name: &str,
    ) -> Result<(), Response> {
        if self.has_claim(set, "publish", name) {
            // Otherwise the token is in a cookie, or in the address.
            return match request.header("authorization") {
                Some(_) => Ok(()),
                None => self.check_origin(request, set),
            };
        }
        let refusal = match &set.of.publish_key {
            Some(Secret(key)) if has_key(request, key) => return Ok(()),
            None if self.is_own_process() => return Ok(()),
            // Neither a key nor a socket is what is missing.
            _ if set.of.claim.is_some() && self.identity.claims.is_some() => {
                error(403, "the token does not permit to publish to this mailbox")
            }
            Some(_) => {
                let mut refusal = error(
                    401,
                    "publishing needs the key in `publish_key_file` of the set",
                );
                refusal.fields.add("WWW-Authenticate", b"Bearer");
                refusal
            }
            None if !self.body.peer().is_for_publishers() => error(
                403,
                "publishing needs `publish_key_file` of the set, or a Unix socket whose `[[listen]]` has `publish = true`",
            ),
            None => error(
                403,
                "only processes of the user of the server and of root publish at this socket",
            ),
        };
        set.shared.refusals.add(Refusal::Publisher);
        Err(refusal)
    }

    /// Whether the client may receive from the box `name` of `set`. Without `claim` whoever has passed the gates may.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn check_receiver(&self, set: &MailboxSet, name: &str) -> Result<(), Response> {
        if set.of.claim.is_none() || self.has_claim(set, "subscribe", name) {
            return Ok(());
        }
        set.shared.refusals.add(Refusal::Receiver);
        Err(error(403, "the token does not permit this mailbox"))
    }

    /// Whether the page that sends the request, if it is one, is of the same host or of one of `origins`: a browser sends the
    /// cookies of this site with requests of others.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn check_origin(&self, request: &Request, set: &MailboxSet) -> Result<(), Response> {
        let Some(origin) = request.header("origin") else {
            return Ok(());
        };
        let host = origin.windows(3).position(|part| part == b"://");
        let is_same = host.is_some_and(|at| origin[at + 3..].eq_ignore_ascii_case(request.host()));
        let origins = set.of.origins.as_ref();
        match is_same || origins.is_some_and(|origins| origins.contain(origin)) {
            true => Ok(()),
            false => Err(error(403, "pages of this origin are not permitted")),
        }
    }

    /// Whether the client is a process of the user of the server or of root, at a listener for publishers. A proxy may have the
    /// same user at another one, and need not say that it is one.
    fn is_own_process(&self) -> bool {
        let peer = self.body.peer();
        peer.is_for_publishers() && peer.is_own_user()
    }

    /// Whether the claim of `set` in the token of the client has a pattern under `right` that the box matches.
    fn has_claim(&self, set: &MailboxSet, right: &str, name: &str) -> bool {
        let Some(claim) = &set.of.claim else {
            return false;
        };
        let claims = self.identity.claims.as_ref();
        let patterns = claims.and_then(|claims| claims.get(claim)?[right].as_array());
        let mut patterns = patterns.into_iter().flatten().filter_map(Value::as_str);
        patterns.any(|pattern| matches(pattern, name))
    }
}

/// Whether the request has the key. The time that this takes tells its length, but not where another one differs.
fn has_key(request: &Request, key: &[u8]) -> bool {
    let given = request.bearer().unwrap_or_default();
    !key.is_empty() && bool::from(given.ct_eq(key))
}
