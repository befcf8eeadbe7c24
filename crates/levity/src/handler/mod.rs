//! Handlers: what answers at a location. A location lists its handlers in order; each one responds, leaves the request
//! to the next, or sends it elsewhere.

mod files;
mod proxy;
mod script;

use std::rc::Rc;
use std::sync::Arc;

use levity_telemetry::step::Step;
use levity_wire::Reject;

use crate::disk_client::DiskClient;
use crate::http::client::Client;
use crate::http::error::error;
use crate::http::request::{NoRequest, Request};
use crate::http::request_body::RequestBody;
use crate::http::response::Response;
use crate::route::{Handler, Location, Proxy, Service};
use crate::scripts::{Known, Script};
use crate::upstream::sendfile::Delegated;
use crate::worker::Worker;

/// How often a request may be sent elsewhere: an application that gets what it has sent elsewhere itself would
/// do so for ever.
const REROUTES_MAX: usize = 3;

/// A request, with all that handlers need besides its header.
pub struct Handling<'a> {
    /// The loop that it lives on.
    pub worker: &'a Rc<Worker>,
    /// The configuration that it began with.
    pub service: &'a Arc<Service>,
    /// Who sent it.
    pub client: &'a Client,
    /// Its body, as the client sends it.
    pub body: RequestBody,
    /// What it asks of the disk; holds its trace.
    pub disk: DiskClient<'a>,
    /// What a handler has found out for those behind it.
    known: Known,
    /// The script that is to answer.
    script: Option<Script>,
    /// What sent it here: an application's response.
    sender: Option<Box<Delegated>>,
}

/// What a handler makes of a request.
enum Outcome<'s> {
    /// It is answered.
    Response(Response),
    /// The next handler is asked.
    Next,
    /// It goes elsewhere.
    Reroute(Reroute<'s>),
}

/// A request on its way elsewhere.
struct Reroute<'s> {
    /// Which response says so.
    sender: Box<Delegated>,
    /// The form in which it went to the application that says so; `None` for that of the client.
    request: Option<Box<Request>>,
    to: Target<'s>,
}

/// Where a request goes on.
enum Target<'s> {
    /// An internal location, at this path.
    Location(&'s Location, Vec<u8>),
    /// The first of these upstreams whose response is of use; at least one.
    Upstreams(Vec<Candidate<'s>>),
}

/// An upstream that may be asked, and for what.
struct Candidate<'s> {
    request: Box<Request>,
    proxy: &'s Arc<Proxy>,
}

impl<'a> Handling<'a> {
    /// A request that no handler has seen.
    pub fn new(
        worker: &'a Rc<Worker>,
        service: &'a Arc<Service>,
        client: &'a Client,
        body: RequestBody,
        disk: DiskClient<'a>,
    ) -> Self {
        Self {
            worker,
            service,
            client,
            body,
            disk,
            known: Known::Unknown,
            script: None,
            sender: None,
        }
    }

    /// Has the handlers of `location` answer `request`.
    pub async fn answer(&mut self, request: &Request, location: &'a Location) -> Response {
        (self.known, self.script) = (Known::Unknown, None);
        match self.at(request, location).await {
            Outcome::Response(response) => response,
            Outcome::Next => error(404, ""),
            // Boxed: few requests need it, and all would carry it.
            Outcome::Reroute(reroute) => Box::pin(self.follow(request, reroute)).await,
        }
    }

    /// Refuses a request that no location answers; its body is dropped.
    pub async fn refuse(&mut self, refusal: Response) -> Response {
        let received = self.drop_body(Some(refusal)).await;
        received.expect_err("there is a response already")
    }

    /// Asks one handler after the other.
    async fn at(&mut self, request: &Request, location: &'a Location) -> Outcome<'a> {
        for handler in &location.handlers {
            // Boxed, but for files: to move the futures of all handlers together onto the heap costs more than parsing.
            let outcome = match handler {
                Handler::Files(files) => return self.files(request, files).await,
                Handler::Proxy(proxy) => return Box::pin(self.proxy(request, proxy)).await,
                Handler::IndexScript => Box::pin(self.index_script(request, location)).await,
                Handler::ExistingFile => Box::pin(self.existing_file(request, location)).await,
                Handler::Script => Box::pin(self.script(request, location)).await,
            };
            match outcome {
                Outcome::Next => {}
                Outcome::Response(response) => {
                    return Outcome::Response(Box::pin(self.refuse(response)).await);
                }
                reroute @ Outcome::Reroute(_) => return reroute,
            }
        }
        Outcome::Next
    }

    /// From one target to the next, until somebody answers.
    async fn follow(&mut self, request: &Request, mut reroute: Reroute<'a>) -> Response {
        let mut senders = Vec::new();
        // The first application has had the body.
        self.body = self.body.absent();
        let mut response = loop {
            let Reroute {
                sender,
                request: derived,
                to,
            } = reroute;
            if senders.len() == REROUTES_MAX {
                break sender.refuse(502, "the request was handed on too often");
            }
            let request = derived.as_deref().unwrap_or(request);
            self.sender = Some(sender);
            self.disk.trace.enter(Step::Resolve);
            let outcome = match to {
                Target::Location(location, path) => self.internal(request, location, &path).await,
                Target::Upstreams(candidates) => self.first_of_use(candidates).await,
            };
            // One that has answered by itself, such as with a file, is not left.
            senders.extend(self.sender.take());
            match outcome {
                Outcome::Response(response) => break response,
                Outcome::Next => break error(404, ""),
                Outcome::Reroute(next) => reroute = next,
            }
        };
        self.disk.trace.enter(Step::Respond);
        while let Some(sender) = senders.pop() {
            sender.apply_headers(&mut response);
        }
        response
    }

    /// Takes in and drops the body of a request that nobody reads, and gives the `response` if there is one.
    ///
    /// # Errors
    /// The response to send: the one that was there, or one that says what is wrong with the body.
    async fn drop_body(&mut self, response: Option<Response>) -> Result<(), Response> {
        if self.body.is_complete() {
            return response.map_or(Ok(()), Err);
        }
        let bytes_max = self.service.config.limits.body_bytes as u64;
        self.body.limit(bytes_max).map_err(refused_body)?;
        self.disk.trace.enter(Step::Parse);
        if let Some(response) = response {
            // A client that asks first is spared sending what would be refused.
            if !self.body.is_awaited() {
                self.body.discard().await.map_err(without_body)?;
            }
            return Err(response);
        }
        self.body.ask_for().await;
        self.body.discard().await.map_err(without_body)
    }
}

fn refused_body(reject: Reject) -> Response {
    without_body(reject.into())
}

fn without_body(error: NoRequest) -> Response {
    let mut response = match error {
        NoRequest::Refused(reject) => self::error(reject.status, reject.reason),
        NoRequest::Timeout => self::error(408, "the request's body took too long"),
        NoRequest::Gone | NoRequest::Finished => self::error(400, "the request's body ended early"),
    };
    response.close = true;
    response
}
