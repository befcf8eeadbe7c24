//! What an application's response means for the request: that is in its headers.

use std::sync::Arc;

use levity_wire::http1::Method;

use crate::gateway::{Fetched, Gateway};
use crate::handler::mailbox::for_mailboxes::ForMailboxes;
use crate::handler::sendfile::{Delegated, preload};
use crate::http::response::Response;
use crate::message::origin::Origin;
use crate::message::request::Request;
use crate::upstream::proxy::Proxy;

/// The answer of an application.
pub enum Answered {
    /// A response for the client.
    Response(Response),
    /// The application has delegated the body to this server (X-Sendfile, X-Accel-Redirect).
    Delegated(Box<Delegated>),
    /// It says what to do with mailboxes.
    ForMailboxes(Box<ForMailboxes>),
}

impl Answered {
    /// The meaning of what `gateway` has fetched for `request` by way of `proxy`.
    pub async fn by(
        gateway: &Gateway<'_>,
        mut fetched: Fetched,
        request: &Request,
        proxy: &Arc<Proxy>,
    ) -> Self {
        preload::take(
            &fetched.head,
            request,
            gateway.client,
            proxy,
            gateway.worker,
        );
        let uses_mailboxes = proxy.mailboxes.is_some()
            && request.head.method != Method::Head
            && fetched.head.uses_mailboxes();
        if uses_mailboxes {
            fetched.finish_expectation(gateway.body).await;
            return Self::ForMailboxes(Box::new(ForMailboxes::new(fetched, proxy.clone())));
        }
        if fetched.head.delegates() {
            let origin = Origin::of(request, gateway.client);
            let etag = gateway.service.config.server.etag;
            let delegated = Delegated::of(fetched, proxy.clone(), origin, etag);
            return Self::Delegated(Box::new(delegated));
        }
        Self::Response(fetched.respond(request, gateway.body).await)
    }
}
