//! The handler that has requests come over TLS, as the site wants them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_net::PeerTls;

use super::{Handling, Outcome, redirect};
use crate::http::client::Client;
use crate::http::error::error;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::route::HttpsRules;

/// The header in which an application gets the certificate of a client (RFC 9440, 2.2).
pub const CLIENT_CERT: &str = "Client-Cert";

impl<'a> Handling<'a> {
    /// Has the request come as `rules` say, and tells who has sent it.
    pub(super) fn https(&mut self, request: &Request, rules: &HttpsRules) -> Outcome<'a> {
        let peer = self.body.peer();
        if let Some(response) = response(rules, request, self.client, peer.tls()) {
            return Outcome::Response(response);
        }
        let certificate = peer.tls().and_then(|tls| tls.certificate.as_ref());
        if let Some(certificate) = certificate.filter(|_| rules.has_client_auth) {
            let value = format!(":{}:", BASE64_STANDARD.encode(&certificate.der));
            let field = (CLIENT_CERT.to_owned(), value.into_bytes());
            let user = certificate.name.clone().into_bytes();
            self.identity.fields.push(field);
            self.identity.is_user(user, None);
        }
        Outcome::Next
    }
}

/// The response to a request that has come the wrong way; `None` for any other. `tls` is what the handshake of its connection
/// has said, if there was one.
fn response(
    rules: &HttpsRules,
    request: &Request,
    client: &Client,
    tls: Option<&PeerTls>,
) -> Option<Response> {
    if let Some(to) = rules.redirect.as_ref().filter(|_| client.scheme == "http") {
        return Some(redirect::response(to, request, client));
    }
    if !rules.has_client_auth {
        return None;
    }
    match tls {
        // The handshake was for this site, and so its rules for certificates held.
        Some(tls) if *tls.site == *rules.site => None,
        // The client knows to connect again (RFC 9110, 15.5.20).
        Some(_) => Some(error(421, "this connection is for another host name")),
        None => Some(error(403, "only over TLS, with a certificate")),
    }
}
