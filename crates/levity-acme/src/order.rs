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
use crate::failure::Failure;
use crate::ledger::{self, Ledger};
use crate::renewal;
use crate::run::Run;
use crate::settings::{Authority, Method};
use crate::state::{Pending, State};

/// How long an authority may take to look at a name, or to issue a certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(5 * 60));

/// The lock of the ledger. No host has such a name.
const ORDERS_LOCK: &str = ",orders";

/// The first part of the names of records in the DNS (RFC 8555, 8.4).
const RECORD_PREFIX: &str = "_acme-challenge.";

/// An attempt to get a certificate of one authority.
pub struct Attempt<'r> {
    pub run: &'r Run,
    pub authority: &'r Authority,
    pub name: &'r str,
    /// The certificate that is replaced.
    pub replaces: Option<&'r Certificate>,
    pub state: &'r mut State,
}

/// A proof that an authority can look at.
enum Proof<'r> {
    /// It is there until this is dropped.
    File { _published: Published },
    Record {
        run: &'r Run,
        name: String,
        value: String,
    },
}

impl Proof<'_> {
    async fn withdraw(self) {
        if let Self::Record { run, name, value } = self
            && let Some(dns) = &run.dns
            && let Err(reason) = dns.remove(&name, &value).await
        {
            (run.log)(format_args!("the record {name} stays: {reason}"));
        }
    }
}

impl<'r> Attempt<'r> {
    /// The key, the certificate and its chain, as PEM.
    ///
    /// # Errors
    /// When there is none. An order that may still become one is kept in the state.
    pub async fn certificate(mut self) -> Result<String, Failure> {
        let account = self.run.account(self.authority).await?;
        let outcome = self.of_account(&account).await;
        if outcome
            .as_ref()
            .is_err_and(|failure| failure.is("accountDoesNotExist"))
        {
            self.run.forget_account(self.authority).await;
            self.state.order = None;
        }
        outcome
    }

    async fn of_account(&mut self, account: &Account) -> Result<String, Failure> {
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
        let pending = self.state.order.as_ref();
        pending.map(|pending| &*pending.key).unwrap_or_default()
    }

    /// The order that was left, or a new one.
    async fn order(&mut self, account: &Account) -> Result<Order, Failure> {
        let left = self.state.order.as_ref();
        let left = left.filter(|left| left.directory == self.authority.directory);
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
        let is_renewal = self.renewed().is_some();
        if ledger::is_known(directory) {
            let ledger = Ledger::load(&self.run.folder, directory).map_err(Failure::new)?;
            ledger.allows(directory, self.name, is_renewal, now)?;
        }
        // First the key is on the disk: nothing is ordered that could not be kept.
        self.state.order = Some(Pending {
            directory: directory.clone(),
            url: None,
            key: KeyPair::generate().map_err(of_key)?.serialize_pem(),
        });
        self.save()?;
        let order = self.place(account).await?;
        if let Some(pending) = &mut self.state.order {
            pending.url = Some(order.url().to_owned());
        }
        self.save()?;
        self.count(|ledger| ledger.ordered(self.name, is_renewal, now))
            .await;
        Ok(order)
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
            Err(Error::Api(problem)) if !is_about_limits(&problem) => {}
            outcome => return Ok(outcome?),
        }
        Ok(account.new_order(&plain()).await?)
    }

    /// Proves the name, and waits until the authority has seen it.
    async fn prove(&mut self, order: &mut Order) -> Result<(), Failure> {
        let mut proofs = Vec::new();
        let outcome = self.show(order, &mut proofs).await;
        let outcome = match outcome {
            Ok(()) => order.poll_ready(&PATIENCE).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        for proof in proofs {
            proof.withdraw().await;
        }
        match outcome {
            Ok(OrderStatus::Invalid) => {
                let failure = Failure::new("the authority refuses the order");
                Err(self.over(order, failure).await)
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.over(order, failure).await),
        }
    }

    async fn show(&self, order: &mut Order, proofs: &mut Vec<Proof<'r>>) -> Result<(), Failure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let method = self.method(&authorization)?;
            let Some(mut challenge) = authorization.challenge(method.into()) else {
                continue;
            };
            proofs.push(self.proof(&challenge, method).await?);
            // An order that was left may be looked at already.
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        Ok(())
    }

    /// Each attempt uses the next one of the methods that are possible here and there.
    fn method(&self, authorization: &AuthorizationHandle<'_>) -> Result<Method, Failure> {
        let offered = |method: &Method| {
            let kind = ChallengeType::from(*method);
            authorization
                .challenges
                .iter()
                .any(|one| one.r#type == kind)
        };
        let here = self.run.settings.methods.iter();
        let possible = here.filter(|method| method.can_prove(self.name) && offered(method));
        let possible: Vec<_> = possible.collect();
        let next = (self.state.failures as usize).checked_rem(possible.len());
        let next = next.map(|next| *possible[next]);
        next.ok_or_else(|| {
            Failure::new(
                "the authority offers none of the ways to prove the name that are possible here",
            )
        })
    }

    async fn proof(
        &self,
        challenge: &ChallengeHandle<'_>,
        method: Method,
    ) -> Result<Proof<'r>, Failure> {
        let authorization = challenge.key_authorization();
        if method == Method::Dns01 {
            return self.record(authorization.dns_value()).await;
        }
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
        Ok(Proof::File {
            _published: published,
        })
    }

    async fn record(&self, value: String) -> Result<Proof<'r>, Failure> {
        let name = format!("{RECORD_PREFIX}{}", self.name.trim_start_matches("*."));
        let dns = self.run.dns.as_ref();
        let dns = dns.ok_or_else(|| Failure::new("`[acme.dns]` is missing"))?;
        let set = dns.set(&name, &value).await;
        let run = self.run;
        let proof = Proof::Record { run, name, value };
        match set {
            Ok(()) => Ok(proof),
            Err(reason) => {
                // It may be there nevertheless.
                proof.withdraw().await;
                Err(Failure::new(format!("the record in the DNS: {reason}")))
            }
        }
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
        self.state.order = None;
        let mut authorizations = order.authorizations();
        while let Some(Ok(authorization)) = authorizations.next().await {
            let mut problems = authorization
                .challenges
                .iter()
                .filter_map(|one| one.error.clone());
            if let Some(problem) = problems.next() {
                return Failure::from(Error::Api(problem));
            }
        }
        failure
    }

    /// Counts what has happened already: if that is not possible, it is told, and the certificate is as good.
    async fn count(&self, change: impl FnOnce(&mut Ledger)) {
        let directory = &self.authority.directory;
        if ledger::is_known(directory)
            && let Err(failure) = self.write_down(directory, change).await
        {
            (self.run.log)(format_args!("an order is not counted: {}", failure.reason));
        }
    }

    async fn write_down(
        &self,
        directory: &str,
        change: impl FnOnce(&mut Ledger),
    ) -> Result<(), Failure> {
        let _lock = self.run.lock(ORDERS_LOCK).await?;
        let mut ledger = Ledger::load(&self.run.folder, directory).map_err(Failure::new)?;
        change(&mut ledger);
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

fn is_about_limits(problem: &Problem) -> bool {
    problem
        .r#type
        .as_deref()
        .is_some_and(|kind| kind.ends_with(":rateLimited"))
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
