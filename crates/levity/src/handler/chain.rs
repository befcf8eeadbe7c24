//! What a handler is, and the handlers of a location in order.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use levity_telemetry::stats::GateKind;

use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::route::{Files, Location};

/// Answers at a location, or leaves the request to the handlers behind it.
///
/// `'s` is the life of the configuration, apart from that of a call: so a handler may use its context after it has waited for
/// those behind it.
pub trait Handler: Send + Sync {
    /// Answers at once, or says what waits for the answer. A decision to wait has no effect on the request, because a handler
    /// around this one may ask again.
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s>;

    /// Says what it did.
    fn explain(&self, outcome: &Outcome<'_>, client: &Client, explanation: &Explanation);

    /// Says that the request has not got to it, if that is of interest.
    fn explain_unreached(&self, _client: &Client, _explanation: &Explanation) {}

    /// The kind of gate that it is, whose refusals are counted.
    fn gate(&self) -> Option<GateKind> {
        None
    }

    /// What it has for an application that has answered `request` with X-Accel-Redirect to `path`, at its location.
    fn behind_internal<'s>(&'s self, _path: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Next
    }

    /// What it says of `asked`, a request for another name that leads to what is here. `has_same_uploads` is whether that other
    /// name is not that of a compressed form, or is written by the same rules.
    fn for_other_name(&self, _asked: &Request, _has_same_uploads: bool) -> OtherName {
        OtherName::Pass
    }
}

/// The part of a handler that waits: few have it, and a decision cannot name it where there is none.
pub trait Waits {
    /// The outcome.
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's>;
}

/// A handler that waits. Boxed: moving one future that holds those of all handlers costs more than parsing a request.
pub type Waiting<'x, 's> = Pin<Box<dyn Future<Output = Outcome<'s>> + 'x>>;

/// What a handler is asked.
#[derive(Clone, Copy)]
pub struct Asked<'x, 's> {
    /// The request.
    pub request: &'x Request,
    /// The handlers behind this one. A handler that has them [run](Handling::run) returns their outcome, or another one that is
    /// not `Next`: they would be asked twice.
    pub rest: Chain<'s>,
}

impl<'s> Asked<'_, 's> {
    /// The location of the handler.
    pub fn location(self) -> &'s Location {
        self.rest.location
    }
}

/// What a handler answers at once.
pub enum Decision<'s> {
    /// The outcome.
    Now(Outcome<'s>),
    /// This has the outcome later.
    Wait(&'s dyn Waits),
}

impl From<Response> for Decision<'_> {
    fn from(response: Response) -> Self {
        Self::Now(Outcome::Response(response))
    }
}

impl From<Option<Response>> for Decision<'_> {
    fn from(response: Option<Response>) -> Self {
        Self::Now(response.map_or(Outcome::Next, Outcome::Response))
    }
}

/// What a handler has for an application that answers with its location.
pub enum Internal<'s> {
    /// What the next handler has: the application has let the client in, and nothing is written for its response.
    Next,
    /// This response.
    Response(Response),
    /// Nothing: the reason, and the status for the client.
    Refusal(u16, &'static str),
    /// The file that the application has named.
    File(&'s Files),
    /// The file of this path if it exists; otherwise what the next handler has.
    FileIfAny(&'s Files, Cow<'s, [u8]>),
    /// The response of the upstream of the location.
    Upstream,
}

/// What a handler says of a request for another name that leads to what is at its location.
pub enum OtherName {
    /// As of a request for that name: it has to be asked.
    Ask,
    /// Nothing.
    Pass,
    /// The last word, which is a refusal or none.
    End(Option<Response>),
}

/// Decides whether a request reaches the handlers behind it.
pub trait Gate: Send + Sync {
    /// The kind, if refusals are counted.
    const KIND: Option<GateKind>;

    /// Lets the request through, refuses it, or waits.
    fn ask<'s>(&'s self, cx: &mut Handling<'s>, request: &Request) -> Decision<'s>;

    /// What it is called, and about whom it decides.
    fn name(&self, client: &Client) -> String;

    /// What it did, in words.
    fn verdict(&self, outcome: &Outcome<'_>) -> String {
        match outcome {
            Outcome::Response(response) => format!("refuses with {}", response.status),
            _ => "lets the request in".to_owned(),
        }
    }
}

impl<G: Gate> Handler for G {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        self.ask(cx, asked.request)
    }

    fn explain(&self, outcome: &Outcome<'_>, client: &Client, explanation: &Explanation) {
        let (name, verdict) = (self.name(client), self.verdict(outcome));
        explanation.add(Topic::Gate, format!("{name}: {verdict}"));
    }

    fn explain_unreached(&self, client: &Client, explanation: &Explanation) {
        let name = self.name(client);
        explanation.add(Topic::Gate, format!("{name}: not reached"));
    }

    fn gate(&self) -> Option<GateKind> {
        Self::KIND
    }

    fn for_other_name(&self, _: &Request, _: bool) -> OtherName {
        OtherName::Ask
    }
}

/// The handlers of a location, in order.
pub type Handlers = Vec<Box<dyn Handler>>;

/// As locations have it.
pub fn boxed(handler: impl Handler + 'static) -> Box<dyn Handler> {
    Box::new(handler)
}

/// Handlers of a location: all, or those behind one of them.
#[derive(Clone, Copy)]
pub struct Chain<'s> {
    location: &'s Location,
    handlers: &'s [Box<dyn Handler>],
}

impl<'s> Chain<'s> {
    /// All handlers of `location`.
    pub fn of(location: &'s Location) -> Self {
        let handlers: &(dyn Any + Send + Sync) = &*location.handlers;
        let handlers = handlers.downcast_ref::<Handlers>();
        Self {
            location,
            handlers: handlers.expect("whatever compiles locations gives them handlers"),
        }
    }

    /// The first handler, and those behind it.
    pub fn split_first(self) -> Option<(&'s dyn Handler, Self)> {
        let (first, handlers) = self.handlers.split_first()?;
        Some((&**first, Self { handlers, ..self }))
    }

    /// The handlers, in order.
    pub fn iter(self) -> impl Iterator<Item = &'s dyn Handler> {
        self.handlers.iter().map(|handler| &**handler)
    }
}

#[cfg(test)]
mod tests;
