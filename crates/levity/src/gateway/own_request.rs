//! Requests that no client has sent: questions and reports of the server to an application.

use std::rc::Rc;
use std::time::{Duration, Instant};

use levity_telemetry::trace::Trace;
use tokio::time;

use super::{Fetched, Gateway};
use crate::credentials::{Identity, NOBODY};
use crate::http::no_client;
use crate::http::request_body::RequestBody;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::servable::object::RunnableScript;
use crate::route::Service;
use crate::upstream::failure::Failure;
use crate::upstream::proxy::Proxy;
use crate::upstream::sticky::Affinity;
use crate::upstream::upstream_request::OwnHeader;
use crate::worker::Worker;

/// A request of the server's own. It takes slots, is tried again and is counted as those of clients, with two
/// differences: the application gets the path as it is, and unless its method is idempotent, it goes over a new
/// connection, so that no backend acts on it twice.
pub struct OwnRequest<'a> {
    /// Method, target, Host and headers.
    pub request: &'a Request,
    /// The application, and what it gets of every request.
    pub proxy: &'a Proxy,
    /// Whom the application takes for the sender.
    pub client: &'a Client,
    /// What the gates know of the client.
    pub identity: &'a Identity,
    /// The client that waits for the answer, and with whom the request ends; `None` if nobody does.
    pub waits: Option<&'a RequestBody>,
    /// Headers that clients may not send.
    pub headers: &'a [OwnHeader],
    /// The body. Short: it is copied.
    pub body: &'a [u8],
    /// The script that handles the request, if any.
    pub script: Option<&'a RunnableScript>,
    /// The backend; `None` for that of a client with these headers.
    pub affinity: Option<Affinity>,
    /// The time until the header of the answer, beside the time-outs of the upstream.
    pub within: Option<Duration>,
}

impl<'a> OwnRequest<'a> {
    /// Sends `request`, which has no body, to the application of `proxy` as `client`, for whom nobody waits.
    pub fn new(request: &'a Request, proxy: &'a Proxy, client: &'a Client) -> Self {
        Self {
            request,
            proxy,
            client,
            identity: &NOBODY,
            waits: None,
            headers: &[],
            body: &[],
            script: None,
            affinity: None,
            within: None,
        }
    }

    /// Sends it, and waits for the header of the answer. `service` is the configuration that it is sent under.
    ///
    /// # Errors
    /// As for a client's request; and when the time is over.
    pub async fn fetch(&self, worker: &Rc<Worker>, service: &Service) -> Result<Fetched, Failure> {
        let body = match self.waits {
            Some(client) => client.withheld(),
            None => no_client::body(worker.core.clone(), &service.config.limits),
        };
        let gateway = Gateway {
            worker,
            service,
            client: self.client,
            body: &body,
            identity: self.identity,
            own_headers: self.headers,
            own: Some(self),
        };
        // That of a client's request is about the application that answers it.
        let mut trace = Box::new(Trace::new(Instant::now(), None));
        let fetching = gateway.fetch(self.request, self.proxy, self.script, &mut trace);
        let Some(within) = self.within else {
            return fetching.await;
        };
        let fetched = time::timeout(within, fetching).await;
        fetched.unwrap_or_else(|_| Err(Failure::of_silence("no answer in time")))
    }
}
