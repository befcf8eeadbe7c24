//! The handler that has requests come over TLS, as the site wants them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_config::address::Address;
use levity_net::PeerTls;
use levity_tls::ClientAuthId;
use levity_wire::http1;

use super::{Handling, Outcome, redirect};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::route::{CLIENT_CERT, HttpsRedirect, HttpsRules, RedirectTo};

/// That of URLs with `http` that name none (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

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
        if let Some(redirect) = &rules.redirect
            && self.client.scheme == "http"
        {
            let port = self.body.stream().local_address().map(|own| own.port());
            let port = port.or_else(|| port_of(peer.listener()?));
            let to = redirect_target(redirect, request, self.client, port);
            return Outcome::Response(redirect::response(to, request, self.client));
        }
        if let Some(response) = response(required, peer.tls()) {
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

/// The port of a listener, where a connection has none: `levity explain` makes it over a pair of sockets.
fn port_of(listener: &Address) -> Option<u16> {
    match listener {
        Address::Tcp(address) => Some(address.port()),
        Address::Unix(_) => None,
    }
}

/// Where a plain request is redirected to that has come to `port`, or to a Unix socket.
fn redirect_target<'r>(
    redirect: &'r HttpsRedirect,
    request: &Request,
    client: &Client,
    port: Option<u16>,
) -> &'r RedirectTo {
    let asked = http1::name_and_port(client.host(request), HTTP_PORT);
    let is_usual = asked.is_some_and(|(_, port)| port == HTTP_PORT);
    let is_mapped = is_usual && port != Some(HTTP_PORT);
    match is_mapped {
        true => &redirect.usual_port,
        false => &redirect.own_port,
    }
}

/// The response to a request that has come the wrong way; `None` for any other. `required` are the rules by which a client of the
/// site proves who it is, if there are any; `tls` is what the handshake of its connection has said, if there was one.
fn response(required: Option<Option<ClientAuthId>>, tls: Option<&PeerTls>) -> Option<Response> {
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
