//! The handler that has requests come over TLS, as the site wants them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_net::PeerTls;
use levity_tls::ClientAuthId;

use super::{Handling, Outcome, redirect};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::route::{CLIENT_CERT, HttpsRules};

impl<'a> Handling<'a> {
    /// Has the request come as `rules` say, and tells who has sent it.
    pub(super) fn https(&mut self, request: &Request, rules: &HttpsRules) -> Outcome<'a> {
        let peer = self.body.peer();
        // No client has shown anything.
        if self.worker.explanation.is_some() && peer.tls().is_some() {
            return Outcome::Next;
        }
        // The rules of now: a reload, or a new file of authorities, may have changed them since the handshake.
        let required = rules.client_auth.map(|number| {
            let sites = self.service.tls.as_ref()?;
            sites.server().client_auth(number)
        });
        if let Some(response) = response(rules, request, self.client, required, peer.tls()) {
            return Outcome::Response(response);
        }
        let certificate = peer.tls().and_then(|tls| tls.certificate.as_ref());
        if let Some(certificate) = certificate.filter(|_| rules.client_auth.is_some()) {
            // A request that was rewritten has it already.
            self.identity.fields.retain(|(name, _)| name != CLIENT_CERT);
            let value = format!(":{}:", BASE64_STANDARD.encode(&certificate.der));
            let field = (CLIENT_CERT.to_owned(), value.into_bytes());
            let user = certificate.name.clone().into_bytes();
            self.identity.fields.push(field);
            self.identity.is_user(user, None);
        }
        Outcome::Next
    }
}

/// The response to a request that has come the wrong way; `None` for any other. `required` are the rules by which a client of the
/// site proves who it is, if there are any; `tls` is what the handshake of its connection has said, if there was one.
fn response(
    rules: &HttpsRules,
    request: &Request,
    client: &Client,
    required: Option<Option<ClientAuthId>>,
    tls: Option<&PeerTls>,
) -> Option<Response> {
    let redirect = rules.redirect.as_ref();
    if let Some(to) = redirect.filter(|_| client.scheme == "http") {
        return Some(redirect::response(to, request, client));
    }
    let required = required?;
    match tls {
        Some(tls) if required.is_some() && tls.client_auth == required => None,
        // The client knows to connect again (RFC 9110, 15.5.20).
        Some(_) => {
            let reason = "this connection was made for another site, or under other rules";
            Some(error(421, reason))
        }
        None => Some(error(403, "only over TLS, with a certificate")),
    }
}
