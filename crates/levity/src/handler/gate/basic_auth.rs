//! The gate that asks for a name and a password (RFC 7617).
//!
//! A hash takes long by intention. So the pool of threads computes it, few at a time, and the worker remembers the verdict
//! under a keyed hash of name and password. Several requests with the same password wait for one verdict.
//!
//! What others have found out saves a hash and never a guess: a client that has to wait is told nothing, and a wrong password is
//! charged to it wherever the verdict comes from. Otherwise it could guess without end the password of a user who is logged in.
//! What a client itself was right with lets it in, also while its neighbours behind the same address guess.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_compute::Class;
use levity_telemetry::stats::GateKind;
use levity_wire::basic_auth::{self, Credentials};

use super::super::chain::{Asked, Decision, Gate, Waiting, Waits};
use super::super::{Handling, Outcome};
use crate::credentials::guesses::{Admission, Check, Guesses, Refusal};
use crate::credentials::verdicts::Pending;
use crate::credentials::{Guess, Users};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::client_prefix::ClientPrefix;
use crate::message::request::Request;
use crate::worker::Worker;

/// The users with passwords that a location lets in.
pub struct BasicAuth {
    /// The users.
    pub users: Users,
    /// The value of WWW-Authenticate in refusals.
    pub challenge: String,
    /// Whether applications get the Authorization header.
    pub pass_authorization: bool,
    /// The header with the name of the user, for applications.
    pub user_header: Option<String>,
}

impl Gate for Arc<BasicAuth> {
    const KIND: Option<GateKind> = Some(GateKind::BasicAuth);

    fn ask<'s>(&'s self, cx: &mut Handling<'s>, request: &Request) -> Decision<'s> {
        let Some(given) = credentials(request) else {
            cx.explain_refusal("the request has no name and password");
            return challenge(self).into();
        };
        let (guess, now) = (cx.guess(self, &given), Instant::now());
        match cx.worker.verdicts.borrow().is_earned(&guess, now) {
            true => Decision::Now(cx.let_user_in(self, given)),
            false => Decision::Wait(self),
        }
    }

    fn name(&self, _: &Client) -> String {
        "`basic_auth`".to_owned()
    }
}

impl Waits for Arc<BasicAuth> {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.basic_auth(asked.request, self))
    }
}

impl<'a> Handling<'a> {
    /// Lets users with their passwords through.
    async fn basic_auth(&mut self, request: &Request, gate: &Arc<BasicAuth>) -> Outcome<'a> {
        let given = credentials(request).expect("a request without credentials is refused at once");
        match self.verdict(gate, &given).await {
            Ok(true) => self.let_user_in(gate, given),
            Ok(false) => {
                self.explain_refusal("the name or the password is wrong");
                Outcome::Response(challenge(gate))
            }
            Err(refusal) => Outcome::Response(refusal),
        }
    }

    fn let_user_in(&mut self, gate: &BasicAuth, given: Credentials) -> Outcome<'a> {
        let user = given.user.into_bytes();
        self.identity.set_user(user, gate.user_header.as_ref());
        self.identity.hides_authorization = !gate.pass_authorization;
        Outcome::Next
    }

    fn guess(&self, gate: &BasicAuth, given: &Credentials) -> Guess {
        Guess {
            client: ClientPrefix::new(self.client.ip),
            digest: gate.users.digest(given),
        }
    }

    /// Whether the password is right.
    ///
    /// # Errors
    /// The response to a client that has to wait.
    async fn verdict(&self, gate: &Arc<BasicAuth>, given: &Credentials) -> Result<bool, Response> {
        let (verdicts, now) = (&self.worker.verdicts, Instant::now());
        let guess = self.guess(gate, given);
        let is_right = self.judge(gate, given, guess, now).await?;
        if is_right {
            verdicts.borrow_mut().earn(guess, now);
        }
        Ok(is_right)
    }

    /// Whether a guess of the client is right.
    ///
    /// # Errors
    /// The response to a client that has to wait.
    async fn judge(
        &self,
        gate: &Arc<BasicAuth>,
        given: &Credentials,
        guess: Guess,
        now: Instant,
    ) -> Result<bool, Response> {
        let verdicts = &self.worker.verdicts;
        let pending = verdicts.borrow().pending(&guess.digest);
        let own = pending.filter(|pending| pending.has(guess.client));
        let pending = match own {
            Some(pending) => pending,
            None => {
                let admission = self.service.guesses.begin(guess, now).map_err(refusal)?;
                let Admission::Check(check) = admission else {
                    return Ok(true);
                };
                if verdicts.borrow().is_wrong(&guess.digest, now) {
                    check.finish(false, now);
                    return Ok(false);
                }
                let pending = self.pend(gate, given, guess, check, now);
                pending.map_err(refusal)?
            }
        };
        let failed = || error(500, "");
        pending.verdict().await.ok_or_else(failed)
    }

    /// Joins the verification of the password, or begins it.
    ///
    /// # Errors
    /// When the server is busy.
    fn pend(
        &self,
        gate: &Arc<BasicAuth>,
        given: &Credentials,
        guess: Guess,
        check: Check,
        now: Instant,
    ) -> Result<Rc<Pending>, Refusal> {
        let worker = self.worker;
        let begun = worker.verdicts.borrow().pending(&guess.digest);
        if let Some(pending) = begun {
            pending.join(check);
            return Ok(pending);
        }
        let check = check.with_place(gate.users.name_key(given), now)?;
        let pending = worker.verdicts.borrow_mut().begin(guess.digest, check);
        let guesses = self.service.guesses.clone();
        let verify = verify(worker.clone(), gate.clone(), given.clone(), guess, guesses);
        // Not a part of the request: a client that leaves at once would not be charged for its guess.
        worker.core.spawn_background(verify);
        Ok(pending)
    }
}

/// Verifies a password, and remembers the verdict.
async fn verify(
    worker: Rc<Worker>,
    gate: Arc<BasicAuth>,
    given: Credentials,
    guess: Guess,
    guesses: Arc<Guesses>,
) {
    let permit = guesses.permit().await;
    let (stream, cost) = (guess.client.stream(), guesses.cost());
    let memory = guesses.clone();
    let verify = move || memory.with_memory(|memory| gate.users.verify(&given, memory));
    let computed = worker
        .core
        .compute
        .run(Class::Response, stream, cost, verify)
        .await;
    drop(permit);
    let is_right = computed.ok().map(|computed| {
        guesses.measured(computed.ran);
        computed.value
    });
    let mut verdicts = worker.verdicts.borrow_mut();
    verdicts.end(guess.digest, is_right, Instant::now());
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
