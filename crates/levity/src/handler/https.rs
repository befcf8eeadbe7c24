//! The handler that has requests come over TLS, as the site wants them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_config::address::Address;
use levity_net::{ClientAuthId, PeerTls};
use levity_wire::http1;

use super::chain::{Asked, Decision, Handler};
use super::redirect::{self, RedirectTo};
use super::{Handling, Outcome, explain};
use crate::explanation::{Explanation, Topic};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;

/// The header in which an application gets the certificate of a client (RFC 9440, 2.2).
pub const CLIENT_CERT: &str = "Client-Cert";

/// The one for what it was signed with, which is not sent (RFC 9440, 2.3).
pub const CLIENT_CERT_CHAIN: &str = "Client-Cert-Chain";

/// That of URLs with `http` that name none (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// What a site with TLS asks of connections.
pub struct HttpsRules {
    /// The number of the site among those with TLS, if its clients show certificates in the handshake.
    pub client_auth: Option<usize>,
    /// Where plain requests are redirected to, if they are.
    pub redirect: Option<HttpsRedirect>,
}

/// Where plain requests of a site with TLS are redirected to.
pub struct HttpsRedirect {
    /// At the port of the listener with TLS.
    pub own_port: RedirectTo,
    /// At the usual port: something in front of the server has passed the usual port of plain requests on to another one here, and so
    /// the one of TLS (containers).
    pub usual_port: RedirectTo,
}

impl Handler for HttpsRules {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        cx.https(asked.request, self).into()
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let text = match outcome {
            Outcome::Response(_) => match explain::redirected_to(outcome) {
                Some(to) => format!("`tls` redirects to {to}: the request has not come over TLS"),
                None => "`tls` wants it to come over another connection".to_owned(),
            },
            _ if self.client_auth.is_some() => return explanation.add(
                Topic::Gate,
                "`client_authorities`: lets the request in; the client is taken to have a certificate",
            ),
            _ => return,
        };
        explanation.add(Topic::Handler, text);
    }
}

impl Handling<'_> {
    /// The response to a request that has not come as `rules` say. Of any other it notes who has sent it.
    fn https(&mut self, request: &Request, rules: &HttpsRules) -> Option<Response> {
        let peer = self.body.peer();
        // No client has shown anything.
        if self.worker.explanation.is_some() && peer.tls().is_some() {
            return None;
        }
        // The rules of now: a reload, or a new file of authorities, may have changed them since the handshake.
        let required = rules.client_auth.map(|number| {
            let sites = self.service.tls.as_ref()?;
            sites.client_auth(number)
        });
        if let Some(redirect) = &rules.redirect
            && self.client.scheme == "http"
        {
            let port = self.body.stream().local_address().map(|own| own.port());
            let port = port.or_else(|| port_of(peer.listener()?));
            let to = redirect_target(redirect, request, self.client, port);
            return Some(redirect::response(to, request, self.client));
        }
        if let Some(response) = response(required, peer.tls()) {
            return Some(response);
        }
        let certificate = peer.tls().and_then(|tls| tls.certificate.as_ref());
        if let Some(certificate) = certificate.filter(|_| rules.client_auth.is_some()) {
            // A request that was rewritten has it already.
            self.identity.fields.retain(|(name, _)| name != CLIENT_CERT);
            let value = format!(":{}:", BASE64_STANDARD.encode(&certificate.der));
            let field = (CLIENT_CERT.to_owned(), value.into_bytes());
            let user = certificate.name.clone().into_bytes();
            self.identity.fields.push(field);
            self.identity.set_user(user, None);
        }
        None
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
