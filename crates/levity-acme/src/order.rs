//! An order: from its beginning, or from where it was left, to a certificate.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, ChallengeHandle, ChallengeStatus,
    ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use levity_tls::Certificate;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time;

use crate::challenges::{Answer, LOOK_INTERVAL, Published};
use crate::failure::{Cause, Failure};
use crate::ledger::{self, Ledger};
use crate::records::{self, When};
use crate::renewal;
use crate::run::Run;
use crate::settings::{Authority, Method};
use crate::state::{NameState, Pending, Record};

/// How long an authority may take to look at a name, or to issue a certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(5 * 60));

/// The lock of the ledger of an authority.
const ORDERS_LOCK: &str = "orders";

/// The first part of the names of records in the DNS (RFC 8555, 8.4).
const RECORD_PREFIX: &str = "_acme-challenge.";

/// An attempt to get a certificate of one authority.
pub struct Attempt<'r> {
    run: &'r Run,
    authority: &'r Authority,
    name: &'r str,
    /// The certificate that is replaced.
    replaces: Option<&'r Certificate>,
    state: &'r mut NameState,
    /// The ways to prove the name that the authority has not accepted.
    refused: Vec<Method>,
    /// The way of the order at hand.
    way: Option<Way>,
}

/// A way to prove a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    method: Method,
    /// The next one, or the first again.
    next: Method,
    /// Whether all others were refused already.
    is_last: bool,
}

impl Way {
    /// The first one of `possible` that was not `refused`, from `first` on.
    fn choose(possible: &[Method], first: Option<Method>, refused: &[Method]) -> Option<Self> {
        let first = first.and_then(|first| possible.iter().position(|method| *method == first));
        let mut possible = possible.to_vec();
        possible.rotate_left(first.unwrap_or(0));
        let is_left = |method: &&Method| !refused.contains(*method);
        let mut left = possible.iter().filter(is_left);
        let method = *left.next()?;
        let number = possible.iter().position(|one| *one == method)?;
        Some(Self {
            method,
            next: possible[(number + 1) % possible.len()],
            is_last: left.next().is_none(),
        })
    }
}

impl<'r> Attempt<'r> {
    pub fn new(
        run: &'r Run,
        authority: &'r Authority,
        name: &'r str,
        replaces: Option<&'r Certificate>,
        state: &'r mut NameState,
    ) -> Self {
        Self {
            run,
            authority,
            name,
            replaces,
            state,
            refused: Vec::new(),
            way: None,
        }
    }

    /// The key, the certificate and its chain, as PEM.
    ///
    /// # Errors
    /// When there is none. An order that may still become one is kept in the state.
    pub async fn certificate(mut self) -> Result<String, Failure> {
        let account = self.run.account(self.authority).await?;
        match self.of_account(&account).await {
            Err(failure) if failure.is("accountDoesNotExist") => {
                let forgotten = self.run.forget_account(self.authority, account.id());
                forgotten.await?;
                self.state.end_order(&self.authority.directory);
                let account = self.run.account(self.authority).await?;
                self.of_account(&account).await
            }
            outcome => outcome,
        }
    }

    /// Makes an order for each way to prove the name, until one ends well.
    async fn of_account(&mut self, account: &Account) -> Result<String, Failure> {
        let mut refusals = Vec::new();
        loop {
            let mut failure = match self.of_order(account).await {
                Ok(pem) => return Ok(pem),
                Err(failure) => failure,
            };
            let Some(way) = self.way.take().filter(|_| failure.cause == Cause::Proof) else {
                return Err(together(refusals, failure));
            };
            let directory = &self.authority.directory;
            let now = SystemTime::now();
            self.state.refused(directory, now);
            self.state.method = Some(way.next);
            if way.next != way.method {
                failure.reason = format!("by {}: {}", way.method.label(), failure.reason);
            }
            self.refused.push(way.method);
            if way.is_last || self.state.next_proof(directory, now).is_some() {
                return Err(together(refusals, failure));
            }
            refusals.push(failure);
            self.save()?;
        }
    }

    async fn of_order(&mut self, account: &Account) -> Result<String, Failure> {
        let mut order = self.order(account).await?;
        if order.state().status == OrderStatus::Pending {
            self.prove(&mut order).await?;
        }
        if order.state().status == OrderStatus::Ready {
            self.finalize(&mut order).await?;
        }
        let chain = match order.poll_certificate(&PATIENCE).await {
            Ok(chain) => chain,
            Err(error) => return Err(self.over(&mut order, error.into()).await),
        };
        self.count(|ledger| ledger.issued(self.name)).await;
        Ok(format!("{}{chain}", self.key()))
    }

    /// The key of the order, as PEM.
    fn key(&self) -> &str {
        let pending = self.state.order(&self.authority.directory);
        pending.map(|pending| &*pending.key).unwrap_or_default()
    }

    /// The order that was left, or a new one.
    async fn order(&mut self, account: &Account) -> Result<Order, Failure> {
        let left = self.state.order(&self.authority.directory);
        if let Some(url) = left.and_then(|left| left.url.clone()) {
            match account.order(url).await {
                Ok(mut order) => match order.state().status {
                    // The authority has given it up.
                    OrderStatus::Invalid => {}
                    _ => return Ok(order),
                },
                Err(Error::Api(problem)) if is_gone(&problem) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.new_order(account).await
    }

    async fn new_order(&mut self, account: &Account) -> Result<Order, Failure> {
        let now = SystemTime::now();
        let directory = &self.authority.directory;
        if let Some(until) = self.state.next_proof(directory, now) {
            let reason = "the authority has looked for proofs of the name in vain too often";
            return Err(Failure::limit(reason, until));
        }
        self.reserve(now).await?;
        // First the key is on the disk: nothing is ordered that could not be kept.
        let mut pending = Pending {
            directory: directory.clone(),
            url: None,
            key: KeyPair::generate().map_err(of_key)?.serialize_pem(),
        };
        self.state.begin_order(pending.clone());
        self.save()?;
        let order = match self.place(account).await {
            Ok(order) => order,
            Err(failure) => {
                // Without a word of the authority it may be there.
                if failure.kind.is_some() {
                    self.count(|ledger| ledger.refused(self.name)).await;
                }
                return Err(failure);
            }
        };
        pending.url = Some(order.url().to_owned());
        self.state.begin_order(pending);
        self.save()?;
        Ok(order)
    }

    /// Counts an order that is about to be placed, if it is within the limits.
    async fn reserve(&self, now: SystemTime) -> Result<(), Failure> {
        let directory = &self.authority.directory;
        if !ledger::is_known(directory) {
            return Ok(());
        }
        let is_renewal = self.renewed().is_some();
        let change = |ledger: &mut Ledger| {
            ledger.allows(directory, self.name, is_renewal, now)?;
            ledger.ordered(self.name, is_renewal, now);
            Ok(())
        };
        self.write_down(directory, change).await
    }

    /// The certificate that is replaced, if this authority has issued it: one of another is none that it could renew.
    fn renewed(&self) -> Option<&'r Certificate> {
        let issued_here = self.state.directory.as_ref() == Some(&self.authority.directory);
        self.replaces.filter(|_| issued_here)
    }

    async fn place(&self, account: &Account) -> Result<Order, Failure> {
        let identifiers = [match self.name.parse() {
            Ok(ip) => Identifier::Ip(ip),
            Err(_) => Identifier::Dns(self.name.to_owned()),
        }];
        let plain = || {
            let order = NewOrder::new(&identifiers);
            match &self.authority.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        let Some(replaced) = self.renewed().and_then(renewal::id) else {
            return Ok(account.new_order(&plain()).await?);
        };
        match account.new_order(&plain().replaces(replaced)).await {
            Err(Error::Unsupported(_)) => {}
            // Such as when an order before has replaced it already.
            Err(Error::Api(problem)) if may_be_replaced_already(&problem) => {}
            outcome => return Ok(outcome?),
        }
        Ok(account.new_order(&plain()).await?)
    }

    /// Proves the name, and waits until the authority has seen it.
    async fn prove(&mut self, order: &mut Order) -> Result<(), Failure> {
        let mut answers = Vec::new();
        let shown = self.show(order, &mut answers).await;
        let (outcome, when) = match shown {
            Ok(()) => {
                let ready = order.poll_ready(&PATIENCE).await;
                (ready.map_err(Failure::from), When::Due)
            }
            Err(failure) => (Err(failure), When::Failed),
        };
        drop(answers);
        if !self.state.records.is_empty() {
            records::remove(self.run, self.state, when).await;
            self.save()?;
        }
        let failure = match outcome {
            Ok(OrderStatus::Invalid) => Failure::new("the authority refuses the order"),
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        let mut failure = self.over(order, failure).await;
        if order.state().status == OrderStatus::Invalid {
            // Before it is ready, an order ends by its proofs (RFC 8555, 7.1.6), even if the authority does not say which.
            failure.cause = Cause::Proof;
        }
        Err(failure)
    }

    /// Has proofs where the authority looks for them. Those in `answers` are there until they are dropped.
    async fn show(
        &mut self,
        order: &mut Order,
        answers: &mut Vec<Published>,
    ) -> Result<(), Failure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let way = self.choose_way(&authorization)?;
            let Some(mut challenge) = authorization.challenge(way.method.into()) else {
                continue;
            };
            match way.method {
                Method::Dns01 => {
                    let value = challenge.key_authorization().dns_value();
                    self.record(value).await?;
                }
                method => answers.push(self.answer(&challenge, method).await?),
            }
            self.way = Some(way);
            // An order that was left may be looked at already.
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        Ok(())
    }

    fn choose_way(&self, authorization: &AuthorizationHandle<'_>) -> Result<Way, Failure> {
        let offered = |method: &Method| {
            let kind = ChallengeType::from(*method);
            authorization
                .challenges
                .iter()
                .any(|one| one.r#type == kind)
        };
        let here = self.run.settings.methods.iter().copied();
        let possible = here.filter(|method| method.can_prove(self.name) && offered(method));
        let possible: Vec<_> = possible.collect();
        Way::choose(&possible, self.state.method, &self.refused).ok_or_else(|| {
            Failure::new(
                "the authority offers none of the ways to prove the name that are possible here",
            )
        })
    }

    async fn answer(
        &self,
        challenge: &ChallengeHandle<'_>,
        method: Method,
    ) -> Result<Published, Failure> {
        let authorization = challenge.key_authorization();
        let answer = match method {
            Method::Http01 => Answer::Http {
                token: token(&challenge.token)?.to_owned(),
                content: authorization.as_str().to_owned(),
            },
            _ => Answer::Tls {
                name: self.name.to_owned(),
                digest: BASE64_STANDARD.encode(authorization.digest()),
            },
        };
        let folder = &self.run.folder;
        let published = Published::new(folder, &answer).map_err(Failure::new)?;
        let looked = self.run.challenges.look(folder);
        looked
            .map_err(|error| Failure::new(format!("{}: {error}", folder.challenges().display())))?;
        if folder.is_shared() {
            // The authority may come to another server, which has to look first.
            time::sleep(LOOK_INTERVAL * 2).await;
        }
        Ok(published)
    }

    /// Makes a record in the DNS. That it may be there is noted first, so that it goes even if this attempt is cut off.
    async fn record(&mut self, value: String) -> Result<(), Failure> {
        let name = format!("{RECORD_PREFIX}{}", self.name.trim_start_matches("*."));
        let dns = self.run.dns.as_ref();
        let dns = dns.ok_or_else(|| Failure::new("`[acme.dns]` is missing"))?;
        let record = Record {
            name: name.clone(),
            value: value.clone(),
            failures: 0,
            remove_at: None,
        };
        self.state.records.push(record);
        self.save()?;
        let set = dns.set(&name, &value).await;
        set.map_err(|reason| Failure::new(format!("the record in the DNS: {reason}")))
    }

    async fn finalize(&self, order: &mut Order) -> Result<(), Failure> {
        let key = KeyPair::from_pem(self.key()).map_err(of_key)?;
        let request = request(self.name, &key).map_err(of_key)?;
        Ok(order.finalize_csr(&request).await?)
    }

    /// Why no certificate comes of the order, which is given up if the authority has done so.
    async fn over(&mut self, order: &mut Order, failure: Failure) -> Failure {
        if order.state().status != OrderStatus::Invalid {
            return failure;
        }
        self.state.end_order(&self.authority.directory);
        let mut authorizations = order.authorizations();
        while let Some(Ok(authorization)) = authorizations.next().await {
            let mut problems = authorization
                .challenges
                .iter()
                .filter_map(|one| one.error.clone());
            if let Some(problem) = problems.next() {
                return Failure {
                    cause: Cause::Proof,
                    ..Failure::from(Error::Api(problem))
                };
            }
        }
        failure
    }

    /// Counts what has happened already: if that is not possible, it is told, and the certificate is as good.
    async fn count(&self, change: impl FnOnce(&mut Ledger)) {
        let directory = &self.authority.directory;
        let counting = |ledger: &mut Ledger| {
            change(ledger);
            Ok(())
        };
        if ledger::is_known(directory)
            && let Err(failure) = self.write_down(directory, counting).await
        {
            (self.run.log)(format_args!("an order is not counted: {}", failure.reason));
        }
    }

    async fn write_down(
        &self,
        directory: &str,
        change: impl FnOnce(&mut Ledger) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let _lock = self.run.lock(ORDERS_LOCK, directory).await?;
        let mut ledger = Ledger::load(&self.run.folder, directory).map_err(Failure::new)?;
        change(&mut ledger)?;
        let saved = ledger.save(&self.run.folder, directory, SystemTime::now());
        saved.map_err(Failure::new)
    }

    fn save(&self) -> Result<(), Failure> {
        let saved = self.state.save(&self.run.folder, self.name);
        saved.map_err(Failure::new)
    }
}

impl From<Method> for ChallengeType {
    fn from(method: Method) -> Self {
        match method {
            Method::TlsAlpn01 => Self::TlsAlpn01,
            Method::Http01 => Self::Http01,
            Method::Dns01 => Self::Dns01,
        }
    }
}

/// The last failure, with the words of those before.
fn together(before: Vec<Failure>, last: Failure) -> Failure {
    let is_refused = !before.is_empty();
    let reasons = before.into_iter().map(|failure| failure.reason);
    let reasons = reasons.chain([last.reason]).collect::<Vec<_>>();
    Failure {
        reason: reasons.join("; "),
        cause: match is_refused {
            true => Cause::Proof,
            false => last.cause,
        },
        ..last
    }
}

/// A token, which becomes the name of a file (RFC 8555, 8.3: the alphabet of base64url).
fn token(token: &str) -> Result<&str, Failure> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !token.is_empty() && token.bytes().all(fits) {
        true => Ok(token),
        false => Err(Failure::new("the authority has sent a token that is none")),
    }
}

/// Whether an order is not there any more, or belongs to another account.
fn is_gone(problem: &Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let ends = [":malformed", ":unauthorized", ":accountDoesNotExist"];
    problem.status == Some(404) || ends.iter().any(|end| kind.ends_with(end))
}

/// Whether an order may be refused only because of the certificate that it names as replaced (RFC 9773, 5): another order has
/// replaced it, or the authority does not know it.
fn may_be_replaced_already(problem: &Problem) -> bool {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let ends = [":alreadyReplaced", ":malformed", ":unauthorized"];
    matches!(problem.status, Some(404 | 409)) || ends.iter().any(|end| kind.ends_with(end))
}

fn of_key(error: rcgen::Error) -> Failure {
    Failure::new(error.to_string())
}

/// A request for a certificate, as DER.
fn request(name: &str, key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_tried_once() {
        use Method::{Dns01, Http01, TlsAlpn01};
        let possible = [TlsAlpn01, Http01, Dns01];
        for (first, expected) in [
            (None, possible),
            (Some(TlsAlpn01), possible),
            (Some(Dns01), [Dns01, TlsAlpn01, Http01]),
        ] {
            let mut refused = Vec::new();
            while let Some(way) = Way::choose(&possible, first, &refused) {
                refused.push(way.method);
                assert_eq!(way.is_last, refused.len() == 3);
            }
            assert_eq!(refused, expected);
        }
        // One that is not possible any more.
        let way = Way::choose(&[Http01], Some(Dns01), &[]).expect("a way");
        assert_eq!((way.method, way.next, way.is_last), (Http01, Http01, true));
    }

    #[test]
    fn failures_are_told_together() {
        let proof = Failure {
            cause: Cause::Proof,
            ..Failure::new("not there")
        };
        let until = SystemTime::now();
        let both = together(vec![proof], Failure::limit("too often", until));
        assert_eq!(both.reason, "not there; too often");
        assert_eq!((both.cause, both.not_before), (Cause::Proof, Some(until)));
        let one = together(Vec::new(), Failure::limit("too often", until));
        assert_eq!(one.cause, Cause::Limit);
    }
}
