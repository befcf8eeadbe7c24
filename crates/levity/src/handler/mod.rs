//! Handlers: they make the responses of a location. A location lists its handlers in order; each one
//! responds, passes the request to the next, or reroutes it.

pub mod acme;
mod answered;
pub mod chain;
mod digests;
mod error_page;
mod explain;
pub mod file_step;
mod files;
pub mod gate;
pub mod https;
mod listing;
#[cfg_attr(not(feature = "mailbox"), path = "mailbox/absent.rs")]
pub mod mailbox;
mod other_name;
mod preflight;
mod proxy;
pub mod redirect;
pub mod refuse;
mod respond;
#[cfg_attr(not(feature = "mailbox"), path = "resume/absent.rs")]
mod resume;
pub mod script;
mod sendfile;
#[cfg_attr(not(feature = "upload"), path = "upload/absent.rs")]
pub mod upload;
#[cfg_attr(not(feature = "compress"), path = "variants/absent.rs")]
mod variants;

use std::rc::Rc;
use std::sync::Arc;

use levity_telemetry::step::Step;
use levity_wire::{Reject, path};

use self::chain::{Asked, Chain, Decision, Handler, Waits};
use crate::credentials::FoundIdentity;
use crate::explanation::Explanation;
use crate::files::disk_client::DiskClient;
use crate::files::scripts::PathKind;
use crate::handler::sendfile::Delegated;
use crate::handler::sendfile::completion::CompletionHook;
use crate::http::error::error;
use crate::http::request_body::{NO_ROOM, RequestBody, ends_upload};
use crate::http::response::Response;
use crate::http::send::Sent;
use crate::message::client::Client;
use crate::message::request::{Request, RequestError};
use crate::rate_limit::charges::Charges;
use crate::resolve::servable::object::RunnableScript;
use crate::resolve::servable::{Elsewhere, MovedScript};
use crate::route::{Location, RouteInput, Rules, Service};
use crate::shares::claim::{Claims, Requester};
use crate::upstream::proxy::Proxy;
use crate::worker::Worker;

/// A request's progress through the handlers, with everything they need except its header.
pub struct Handling<'a> {
    /// The worker that runs the request.
    pub worker: &'a Rc<Worker>,
    /// The configuration as of the start of the request.
    pub service: &'a Arc<Service>,
    /// The client.
    pub client: &'a Client,
    /// The request body.
    pub body: RequestBody,
    /// Disk access for this request; holds its trace.
    pub disk: DiskClient<'a>,
    /// What the request has taken from rate limits.
    pub charges: Charges<'a>,
    /// What an earlier handler has found out about the path.
    path_kind: PathKind,
    /// The key in the cache of the last file that a step of `try` has looked for; empty without one.
    served_key: Vec<u8>,
    /// That file is a page, and is sent in place of what the path names.
    sends_page: bool,
    /// The script that handles the request.
    script: Option<RunnableScript>,
    /// What has moved the request to the path of a script, if something has.
    moved_script: Option<Box<MovedScript>>,
    /// Who sent the request, as far as the gates have asked.
    identity: FoundIdentity,
    /// The application's response that rerouted the request here.
    delegated_by: Option<Box<Delegated>>,
    /// What follows the response that the handlers have decided on.
    hooks: Vec<Box<dyn CompletionHook>>,
    /// An earlier response failed before its first byte was sent.
    is_replacing: bool,
    /// The handlers of the location are asked; not for a request that was refused before.
    pub asks_handlers: bool,
}

/// The result of a handler.
pub enum Outcome<'s> {
    /// The response.
    Response(Response),
    /// Continue with the next handler.
    Next,
    /// Continue elsewhere.
    Reroute(Reroute<'s>),
    /// Route the request again, for this target.
    Rewritten(NewTarget),
}

/// The target of a rewrite.
pub struct NewTarget {
    /// A path with or without a query.
    pub target: Vec<u8>,
    /// Whether it may lead to an internal location: the operator has written the rule, and not whoever has written the
    /// files of the site.
    pub may_be_internal: bool,
    /// A rule says so. Otherwise it is the name of what the path has led to, which belongs to another location.
    pub by_rule: bool,
}

/// The result of all handlers of a location.
pub enum Handled {
    /// The response.
    Response(Response),
    /// The request is to be routed again, for this target.
    Rewritten(NewTarget),
}

/// How far handlers have got without waiting.
pub enum Undecided<'s> {
    /// To this outcome.
    Outcome(Outcome<'s>),
    /// To a handler that waits: what has its outcome, and the handlers behind it.
    Waits(&'s dyn Handler, &'s dyn Waits, Chain<'s>),
}

/// A request on its way to another target.
pub struct Reroute<'s> {
    /// The application's response that reroutes it.
    delegated_by: Box<Delegated>,
    /// The request as sent to that application; `None` if it is the client's.
    request: Option<Box<Request>>,
    to: Target<'s>,
}

/// The target of a reroute.
enum Target<'s> {
    /// An internal location, at this path.
    Location(&'s Location, Vec<u8>),
    /// The first of these upstreams with a usable response; never empty.
    Upstreams(Vec<ReproxyTarget<'s>>),
}

/// An upstream to try, with the request for it.
struct ReproxyTarget<'s> {
    request: Box<Request>,
    proxy: &'s Arc<Proxy>,
}

impl<'a> Handling<'a> {
    /// A request before its first handler.
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
            charges: Charges::new(worker.explanation.is_some()),
            path_kind: PathKind::Unknown,
            served_key: Vec::new(),
            sends_page: false,
            script: None,
            moved_script: None,
            identity: FoundIdentity::default(),
            delegated_by: None,
            hooks: Vec::new(),
            is_replacing: false,
            asks_handlers: true,
        }
    }

    /// What routes look at in `request`.
    pub fn route_input<'r>(&'r self, request: &'r Request) -> RouteInput<'r> {
        input_of(request, self.client, &self.body)
    }

    /// The rules of `location`, for what `request` finds there.
    fn rules<'r>(&'r self, request: &'r Request, location: &'a Location) -> Rules<'a, 'r> {
        Rules::new(self.service, location, self.route_input(request))
    }

    /// What a search for `request` at `location` needs: its rules, what has moved it to the path of a script, and the disk.
    fn searching<'s>(
        &'s mut self,
        request: &'s Request,
        location: &'a Location,
    ) -> (
        Rules<'a, 's>,
        Option<&'s MovedScript>,
        &'s mut DiskClient<'a>,
    ) {
        // Not by `route_input`, which would hold the disk too.
        let input = input_of(request, self.client, &self.body);
        let rules = Rules::new(self.service, location, input);
        (rules, self.moved_script.as_deref(), &mut self.disk)
    }

    /// Has `request` go on where what it has found belongs to.
    fn move_to(&mut self, request: &Request, elsewhere: Elsewhere) -> Outcome<'a> {
        self.moved_script = elsewhere.script;
        Outcome::Rewritten(NewTarget {
            target: target_for(&elsewhere.name, request),
            // As for a request for that name.
            may_be_internal: false,
            by_rule: false,
        })
    }

    /// Takes for the request what clients share.
    pub fn claims(&self) -> Claims {
        let stream = self.body.stream();
        let requester = Requester {
            client: self.client,
            connection: stream.connection(),
            stream: stream.number(),
        };
        requester.claims(&self.worker.core.stakes)
    }

    /// The name of the user, if a gate has asked for it; else empty.
    pub fn user(&self) -> &[u8] {
        &self.identity.user
    }

    /// Runs the handlers of `location`.
    pub async fn respond(&mut self, request: &Request, location: &'a Location) -> Handled {
        match self.decide(request, location) {
            Ok(response) => Handled::Response(response),
            Err(undecided) => self.wait_for(request, undecided).await,
        }
    }

    /// Asks the handlers of `location`, as far as they decide at once. The caller [waits for](Self::wait_for) what is
    /// undecided.
    ///
    /// # Errors
    /// When there is no response yet.
    // No future, although the caller has one: a file in memory needs none, and each costs as much as a look into the
    // cache.
    pub fn decide(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Result<Response, Undecided<'a>> {
        (self.path_kind, self.script) = (PathKind::Unknown, None);
        self.sends_page = false;
        // What the gates before a rewrite have found out still holds.
        if !request.is_moved() {
            self.identity = FoundIdentity::default();
        }
        match self.ask_chain(request, Chain::of(location)) {
            Undecided::Outcome(Outcome::Response(response))
                if !self.follows_unread_body(&response) =>
            {
                Ok(response)
            }
            undecided => Err(undecided),
        }
    }

    /// Does what is left after [`decide`](Self::decide).
    pub async fn wait_for(&mut self, request: &Request, undecided: Undecided<'a>) -> Handled {
        Handled::Response(match self.outcome_of(request, undecided).await {
            Outcome::Response(response) => response,
            Outcome::Next => error(404, ""),
            // Boxed: few requests are rerouted, and the future of every request would grow.
            Outcome::Reroute(reroute) => Box::pin(self.follow(request, reroute)).await,
            Outcome::Rewritten(target) => return Handled::Rewritten(target),
        })
    }

    /// Says why the request is refused, if it is only explained. For refusals whose text does not tell the client.
    pub fn explain_refusal(&self, reason: &str) {
        if let Some(explanation) = &self.worker.explanation {
            explanation.set_reason(reason);
        }
    }

    /// Drops the request body, unless the client need not send it; returns `refusal`, or an error of the body.
    pub async fn refuse(&mut self, refusal: Response) -> Response {
        if self.may_precede_body(&refusal) {
            return refusal;
        }
        let dropped = self.drop_body(true).await;
        dropped.err().unwrap_or(refusal)
    }

    /// Whether `response` is for a request whose body has to be dropped before it. The upstream of an application takes the body.
    fn follows_unread_body(&self, response: &Response) -> bool {
        // With `close`, a handler has failed to read it.
        let is_settled = response.is_of_application || response.close;
        !self.body.is_complete() && !is_settled && !self.may_precede_body(response)
    }

    /// As [`refuse`](Self::refuse), but a body that is too long to be dropped does not replace another error, such as that
    /// of a gate: the connection closes after it.
    async fn answer_without_body(&mut self, response: Response) -> Response {
        match self.drop_body(true).await {
            Err(error) if error.status != 413 || response.status < 400 => error,
            _ => response,
        }
    }

    /// Whether the client gets the response before it has sent the body, which it then need not send.
    fn may_precede_body(&self, response: &Response) -> bool {
        ends_upload(response.status) && self.body.may_be_left()
    }

    /// The response failed before its first byte was sent, and another replaces it.
    pub fn replaced(&mut self) {
        self.is_replacing = true;
        self.hooks.retain_mut(|hook| hook.replaced());
    }

    /// Drops the file of the response from the cache, because it has changed.
    pub fn forget(&self, request: &Request) {
        let cache = &self.worker.cache;
        cache.forget(&request.key);
        cache.forget(&self.served_key);
    }

    /// The response has ended.
    pub fn completed(&mut self, sent: &Sent) {
        for hook in self.hooks.drain(..) {
            hook.completed(self.worker, self.service, sent);
        }
    }

    /// Asks the handlers of `chain` in order, until one answers.
    pub async fn run(&mut self, request: &Request, chain: Chain<'a>) -> Outcome<'a> {
        let undecided = self.ask_chain(request, chain);
        self.outcome_of(request, undecided).await
    }

    /// Asks the handlers of `chain` in order, until one answers or waits.
    fn ask_chain(&mut self, request: &Request, mut chain: Chain<'a>) -> Undecided<'a> {
        while let Some((handler, rest)) = chain.split_first() {
            chain = rest;
            match handler.decide(self, Asked { request, rest }) {
                Decision::Now(outcome) => {
                    self.note(handler, rest, &outcome);
                    if !matches!(outcome, Outcome::Next) {
                        return Undecided::Outcome(outcome);
                    }
                }
                Decision::Wait(waits) => return Undecided::Waits(handler, waits, rest),
            }
        }
        Undecided::Outcome(Outcome::Next)
    }

    /// Waits for what is undecided, and asks the handlers behind it.
    async fn outcome_of(&mut self, request: &Request, mut undecided: Undecided<'a>) -> Outcome<'a> {
        loop {
            let (handler, waits, rest) = match undecided {
                Undecided::Waits(handler, waits, rest) => (handler, waits, rest),
                Undecided::Outcome(Outcome::Response(response))
                    if self.follows_unread_body(&response) =>
                {
                    // Boxed: few requests have a body that no handler reads.
                    let answer = Box::pin(self.answer_without_body(response));
                    return Outcome::Response(answer.await);
                }
                Undecided::Outcome(outcome) => return outcome,
            };
            let outcome = waits.wait(self, Asked { request, rest }).await;
            self.note(handler, rest, &outcome);
            undecided = match outcome {
                Outcome::Next => self.ask_chain(request, rest),
                decided => Undecided::Outcome(decided),
            };
        }
    }

    /// Counts and explains the outcome of `handler`, which has `rest` behind it.
    fn note(&self, handler: &dyn Handler, rest: Chain<'_>, outcome: &Outcome<'_>) {
        self.count_refusal(handler, outcome);
        let Some(explanation) = &self.worker.explanation else {
            return;
        };
        handler.explain(outcome, self.client, explanation);
        if let Outcome::Response(_) = outcome {
            rest.iter()
                .for_each(|one| one.explain_unreached(self.client, explanation));
        }
    }

    /// Counts the outcome of `handler` if it is the refusal of a gate.
    fn count_refusal(&self, handler: &dyn Handler, outcome: &Outcome<'_>) {
        if let Outcome::Response(_) = outcome
            && let Some(kind) = handler.gate()
        {
            self.worker.core.stats.gate_denied(kind);
        }
    }

    /// In place of a response that is not asked for when the request is only explained: filters show what they change in any.
    fn unasked(&self) -> Option<Response> {
        let explanation = self.worker.explanation.as_ref()?;
        explanation.leave_unanswered();
        Some(Response::new(200))
    }

    /// Reads and drops the body of a request that no handler reads.
    ///
    /// # Errors
    /// The response to an error of the body.
    async fn drop_body(&mut self, is_refused: bool) -> Result<(), Response> {
        let explanation = self.worker.explanation.as_ref();
        // An application or an upload, which is not asked now, would read the body and has a limit of its own.
        let is_for_other = explanation.is_some_and(Explanation::is_unanswered);
        if self.body.is_complete() || is_for_other {
            return Ok(());
        }
        let bytes_max = self.service.config.limits.body_bytes as u64;
        self.body.limit(bytes_max).map_err(refused_body)?;
        // Nobody sends the body of a request that is only explained.
        if explanation.is_some() {
            return Ok(());
        }
        self.disk.trace.enter(Step::Parse);
        // A client that expects 100-continue need not send the body of a request that is refused.
        if !is_refused || !self.body.expects_continue() {
            self.body.send_continue().await;
            self.body.discard().await.map_err(without_body)?;
        }
        Ok(())
    }
}

/// What routes look at in a request.
fn input_of<'r>(request: &'r Request, client: &'r Client, body: &'r RequestBody) -> RouteInput<'r> {
    RouteInput {
        request,
        client: Some(client),
        listener: body.peer().listener(),
    }
}

/// The target of a request for the path `name` with the query of `request`.
fn target_for(name: &[u8], request: &Request) -> Vec<u8> {
    let mut target = Vec::new();
    path::encode(name, &mut target);
    if let Some(query) = request.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

fn refused_body(reject: Reject) -> Response {
    without_body(reject.into())
}

fn without_body(error: RequestError) -> Response {
    let mut response = match error {
        RequestError::Refused(reject) => self::error(reject.status, reject.reason),
        RequestError::Shortage => self::error(503, NO_ROOM),
        RequestError::Timeout => self::error(408, "the request's body took too long"),
        RequestError::Gone | RequestError::Finished => {
            self::error(400, "the request's body ended early")
        }
    };
    response.close = true;
    response
}
