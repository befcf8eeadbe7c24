//! Certificates for names that nobody knows in advance: got when the first client asks for one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_tls::NamedKeys;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ask::ask;
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
        })
    }

    /// Serves all who want a certificate.
    pub async fn serve(self: Rc<Self>, wanted: &mut mpsc::Receiver<Wanted>) {
        let mut tasks = JoinSet::new();
        while let Some(one) = wanted.recv().await {
            while tasks.try_join_next().is_some() {}
            if let Some(name) = self.begin(one) {
                let this = self.clone();
                tasks.spawn_local(async move { this.care(&name).await });
            }
        }
    }

    /// The name, if nobody works on it yet.
    fn begin(&self, wanted: Wanted) -> Option<String> {
        let Wanted { name, reply } = wanted;
        let mut names = self.names.borrow_mut();
        if let Some(waiting) = names.waiting.get_mut(&name) {
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
        let outcome = self.get(name).await;
        if let Err(reason) = &outcome {
            (self.run.log)(format_args!(
                "no certificate on demand for {name}: {reason}"
            ));
        }
        self.end_waiting(name, outcome.is_ok());
        let Ok(mut next) = outcome else {
            return;
        };
        loop {
            sleep_until(next).await;
            match self.get(name).await {
                Ok(again) => next = again,
                Err(_) => break,
            }
        }
        self.keys.remove(name);
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

    /// Has a certificate for `name` in the table. Returns when something may be due for it.
    async fn get(&self, name: &str) -> Result<SystemTime, String> {
        if Known::read(&self.run, name).due(&self.run) <= SystemTime::now() {
            let _permit = self.questions.acquire().await;
            ask(&self.client, &self.url, name).await?;
        }
        let next = step(&self.run, name).await;
        let known = Known::read(&self.run, name);
        let certificate = known.certificate.as_ref();
        let certificate = certificate.ok_or("there is none yet")?;
        self.keys.insert(name, certificate);
        Ok(next)
    }
}
