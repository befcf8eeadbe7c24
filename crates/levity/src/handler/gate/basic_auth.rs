//! The gate that asks for a name and a password (RFC 7617).
//!
//! A hash takes long by intention. So the pool of threads computes it, few at a time, and the worker remembers the verdict
//! under a keyed hash of name and password. Several requests with the same password wait for one verdict.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_compute::Class;
use levity_wire::basic_auth::{self, Credentials};

use super::super::{Handling, Outcome};
use crate::client_prefix::ClientPrefix;
use crate::credentials::Digest;
use crate::credentials::guesses::{Check, Refusal};
use crate::http::error::error;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::route::BasicAuth;
use crate::worker::Worker;

impl<'a> Handling<'a> {
    /// Lets users with their passwords through.
    pub(in super::super) async fn basic_auth(
        &mut self,
        request: &Request,
        gate: &Arc<BasicAuth>,
    ) -> Outcome<'a> {
        let Some(given) = credentials(request) else {
            self.explain_refusal("the request has no name and password");
            return Outcome::Response(challenge(gate));
        };
        match self.verdict(gate, &given).await {
            Ok(true) => {
                let user = given.user.into_bytes();
                self.identity.is_user(user, gate.user_header.as_ref());
                self.identity.hides_authorization = !gate.pass_authorization;
                Outcome::Next
            }
            Ok(false) => {
                self.explain_refusal("the name or the password is wrong");
                Outcome::Response(challenge(gate))
            }
            Err(refusal) => Outcome::Response(refusal),
        }
    }

    /// Whether the password is right.
    ///
    /// # Errors
    /// The response to a client that has to wait.
    async fn verdict(&self, gate: &Arc<BasicAuth>, given: &Credentials) -> Result<bool, Response> {
        let (worker, now) = (self.worker, Instant::now());
        let digest = gate.users.digest(given);
        if let Some(known) = worker.verdicts.borrow().get(&digest, now) {
            return Ok(known);
        }
        let pending = worker.verdicts.borrow().pending(&digest);
        let pending = match pending {
            Some(pending) => pending,
            None => {
                let client = ClientPrefix::new(self.client.ip);
                let guesses = &self.service.guesses;
                let name = gate.users.name_key(given);
                let check = guesses.begin(client, name, now).map_err(refusal)?;
                let pending = worker.verdicts.borrow_mut().begin(digest);
                let verify = verify(worker.clone(), gate.clone(), given.clone(), digest, check);
                // Not a part of the request: a client that leaves at once would not be charged for its guess.
                worker.spawn_background(verify);
                pending
            }
        };
        let failed = || error(500, "");
        pending.verdict().await.ok_or_else(failed)
    }
}

/// Verifies a password, and remembers the verdict.
async fn verify(
    worker: Rc<Worker>,
    gate: Arc<BasicAuth>,
    given: Credentials,
    digest: Digest,
    check: Check,
) {
    let permit = check.permit().await;
    let (stream, cost) = (check.client().stream(), check.cost());
    let guesses = check.guesses();
    let verify = move || guesses.with_memory(|memory| gate.users.verify(&given, memory));
    let computed = worker
        .compute
        .run(Class::Response, stream, cost, verify)
        .await;
    drop(permit);
    let now = Instant::now();
    let (is_right, ran) = match computed {
        Ok(computed) => (Some(computed.value), computed.ran),
        Err(_) => (None, Duration::ZERO),
    };
    worker.verdicts.borrow_mut().end(digest, is_right, now);
    if let Some(is_right) = is_right {
        check.finish(is_right, ran, now);
    }
}

/// Name and password of the request; `None` without, or with more than one Authorization header.
fn credentials(request: &Request) -> Option<Credentials> {
    let mut values = request.headers_named("authorization");
    let value = values.next()?;
    basic_auth::credentials(value).filter(|_| values.next().is_none())
}

fn challenge(gate: &BasicAuth) -> Response {
    let mut response = error(401, "");
    let challenge = gate.challenge.as_bytes();
    response.fields.add("WWW-Authenticate", challenge);
    response
}

fn refusal(refusal: Refusal) -> Response {
    match refusal {
        Refusal::TooMany(wait) => {
            let mut response = error(429, "too many wrong passwords");
            let seconds = wait.as_millis().div_ceil(1000).to_string();
            response.fields.add("Retry-After", seconds.as_bytes());
            response
        }
        Refusal::Busy => error(503, "too many passwords are being verified"),
    }
}
