//! Certificates for names that nobody knows in advance: got when the first client asks for one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_tls::NamedKeys;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ask::{Refusal, ask};
use crate::care::{Known, sleep_until, step};
use crate::http::Client;
use crate::run::Run;

/// The maximum of names with a certificate.
const NAMES_MAX: usize = 10_000;

/// The maximum of names that wait for one.
const WAITING_MAX: usize = 1000;

/// The maximum of questions at a time whether a name may have one.
const QUESTIONS_MAX: usize = 16;

/// How long nobody is asked again about a name that got none.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(60);

/// The maximum of names that got none.
const REFUSALS_MAX: usize = 10_000;

/// How long to wait for whoever says which names may have one.
const ASK_PAUSE: Duration = Duration::from_secs(10 * 60);

/// The minimum of time between two lines of the log about names that get none.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A client waits for a certificate.
pub struct Wanted {
    /// The name that it asks for, in lower case.
    pub name: String,
    /// Gets whether there is one now.
    pub reply: oneshot::Sender<bool>,
}

/// Names that are asked for.
pub struct OnDemand {
    run: Rc<Run>,
    url: String,
    client: Client,
    keys: Arc<NamedKeys>,
    questions: Semaphore,
    names: RefCell<Names>,
    /// When a reason was logged last.
    reported: Cell<Option<Instant>>,
}

#[derive(Default)]
struct Names {
    /// Who waits for each name that is about to get a certificate.
    waiting: HashMap<String, Vec<oneshot::Sender<bool>>>,
    /// When a name got none.
    refused: HashMap<String, Instant>,
}

impl OnDemand {
    /// Gets certificates into `keys` for names that `url` allows.
    ///
    /// # Errors
    /// In words, when this machine knows no authorities for HTTPS. Blocks.
    pub fn new(run: &Rc<Run>, url: &str, keys: &Arc<NamedKeys>) -> Result<Self, String> {
        Ok(Self {
            run: run.clone(),
            url: url.to_owned(),
            client: Client::new(None)?,
            keys: keys.clone(),
            questions: Semaphore::new(QUESTIONS_MAX),
            names: RefCell::default(),
            reported: Cell::default(),
        })
    }

    /// Serves all who want a certificate.
    pub async fn serve(self: Rc<Self>, wanted: &mut mpsc::Receiver<Wanted>) {
        let mut tasks = JoinSet::new();
        while let Some(one) = wanted.recv().await {
            while tasks.try_join_next().is_some() {}
            if let Some(name) = self.begin(one) {
                tasks.spawn_local(guarded(self.clone(), name));
            }
        }
    }

    /// The name, if nobody works on it yet.
    fn begin(&self, wanted: Wanted) -> Option<String> {
        let Wanted { name, reply } = wanted;
        let mut names = self.names.borrow_mut();
        if let Some(waiting) = names.waiting.get_mut(&name) {
            // Clients may leave before there is one.
            waiting.retain(|before| !before.is_closed());
            waiting.push(reply);
            return None;
        }
        let is_had = self.keys.has(&name);
        let is_soon = names
            .refused
            .get(&name)
            .is_some_and(|at| at.elapsed() < REFUSAL_AGE_MAX);
        let is_full = names.waiting.len() >= WAITING_MAX || self.keys.len() >= NAMES_MAX;
        if is_had || is_soon || is_full {
            let _ = reply.send(is_had);
            return None;
        }
        names.waiting.insert(name.clone(), vec![reply]);
        Some(name)
    }

    /// Gets a certificate for `name`, and renews it until nobody allows it any more.
    async fn care(&self, name: &str) {
        let mut known = Known::read(&self.run, name);
        // One from before is used at once, whatever is due for it.
        if self.take(name, &known) {
            self.end_waiting(name, true);
        }
        loop {
            let next = match self.renew(name, &mut known).await {
                Ok(next) => next,
                Err(refusal) => {
                    self.report(name, &refusal.reason);
                    // One that cannot be read now is in use still.
                    let is_in_use = known.is_unread() && self.keys.has(name);
                    if refusal.is_denial || !(is_in_use || self.take(name, &known)) {
                        break;
                    }
                    SystemTime::now() + ASK_PAUSE
                }
            };
            self.end_waiting(name, true);
            sleep_until(&self.run, name, next).await;
            known = Known::read(&self.run, name);
        }
        self.keys.remove(name);
        self.end_waiting(name, false);
    }

    /// Logs why there is no certificate: some of the reasons, since names are of the client's choice.
    fn report(&self, name: &str, reason: &str) {
        let is_soon = |last: Instant| last.elapsed() < REPORT_INTERVAL;
        if !self.reported.get().is_some_and(is_soon) {
            self.reported.set(Some(Instant::now()));
            let log = self.run.log;
            log(format_args!(
                "no certificate on demand for {name}: {reason}"
            ));
        }
    }

    fn end_waiting(&self, name: &str, is_had: bool) {
        let mut names = self.names.borrow_mut();
        for reply in names.waiting.remove(name).unwrap_or_default() {
            let _ = reply.send(is_had);
        }
        if !is_had {
            names.refused.retain(|_, at| at.elapsed() < REFUSAL_AGE_MAX);
            if names.refused.len() < REFUSALS_MAX {
                names.refused.insert(name.to_owned(), Instant::now());
            }
        }
    }

    /// Does what is due for `name`. Returns when something may be due again.
    async fn renew(&self, name: &str, known: &mut Known<'_>) -> Result<SystemTime, Refusal> {
        if known.due(&self.run) <= SystemTime::now() {
            let _permit = self.questions.acquire().await;
            ask(&self.client, &self.url, name).await?;
        }
        let next = step(&self.run, known).await;
        match self.take(name, known) {
            true => Ok(next),
            false => Err(Refusal::from(known.error().to_owned())),
        }
    }

    /// Puts the certificate for `name` into the table. False if there is none that clients would accept.
    fn take(&self, name: &str, known: &Known<'_>) -> bool {
        if let Some(certificate) = &known.certificate {
            self.keys.insert(name, certificate);
        }
        known.certificate.is_some()
    }
}

/// Cares for `name`. A panic does not leave clients waiting.
async fn guarded(on_demand: Rc<OnDemand>, name: String) {
    let (this, one) = (on_demand.clone(), name.clone());
    let mut task = JoinSet::new();
    task.spawn_local(async move { this.care(&one).await });
    if let Some(Err(_)) = task.join_next().await {
        on_demand.keys.remove(&name);
        on_demand.end_waiting(&name, false);
    }
}
