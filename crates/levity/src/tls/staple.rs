//! OCSP stapling: what the responders of certificates have said, for handshakes.
//!
//! Requests run on the control thread, and files are read and written beside it. No event loop is concerned: it gets
//! responses with the certificates.

mod saved;

use std::collections::HashMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use levity_telemetry::diagnostics;
use levity_tls::ocsp::{Question, Refusal, Staple};
use levity_tls::{CertificateDer, Server, identity};
use sha2::{Digest as _, Sha256};
use tokio::task::{self, JoinSet};

use super::authorities::ask_responder;

/// The maximum number of requests in progress.
const FETCHES_MAX: usize = 8;

/// The delay after a first failure. It doubles with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(60);

/// The maximum of the delay after a failure.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60 * 60);

/// The minimum of time between two requests about a certificate. Responders hand responses out that are old already.
const INTERVAL_MIN: Duration = Duration::from_secs(10);

/// How long before its end a response is not used any more: a client has still to read it.
const MARGIN: Duration = Duration::from_secs(10);

/// A digest of a certificate with its chain.
type ChainId = [u8; 32];

fn id(chain: &[CertificateDer<'_>]) -> ChainId {
    let mut hash = Sha256::new();
    for certificate in chain {
        hash.update(certificate.len().to_be_bytes());
        hash.update(certificate);
    }
    hash.finalize().into()
}

/// What is known about certificates. It outlives a reload.
#[derive(Default)]
pub struct Staples(Mutex<HashMap<ChainId, Known>>);

/// What is known about a certificate.
struct Known {
    /// `None` if nobody can be asked.
    question: Option<Arc<Question>>,
    file: PathBuf,
    staple: Option<Staple>,
    /// When the responder is asked next; `None` while it is being asked.
    due: Option<SystemTime>,
    /// Requests without success since the last one with success.
    failures: u32,
    /// The last line of the log, unless all is well.
    complaint: Option<String>,
}

/// A request that has to be made.
pub struct Due {
    id: ChainId,
    question: Arc<Question>,
    file: PathBuf,
}

/// Requests in progress. Those that are dropped end.
#[derive(Default)]
pub struct Fetches(JoinSet<()>);

impl Fetches {
    /// Begins those that are due. Does not block.
    pub fn begin(&mut self, staples: &Arc<Staples>, now: SystemTime) {
        while self.0.try_join_next().is_some() {}
        while self.0.len() < FETCHES_MAX
            && let Some(due) = staples.take_due(now)
        {
            let staples = staples.clone();
            self.0.spawn(async move { staples.fetch(due).await });
        }
    }
}

impl Staples {
    /// `server` with the responses that are valid at `now`: the same one if it has them already. Certificates that it does not
    /// have are forgotten. Responses from earlier are in `folder`, which is that of all state. Blocks.
    pub fn apply(&self, server: Arc<Server>, folder: &Path, now: SystemTime) -> Arc<Server> {
        let chains: HashMap<_, _> = server
            .chains()
            .map(|(chain, _)| (id(chain), chain))
            .collect();
        self.learn(&chains, folder, now);
        let known = self.lock();
        let staple = |id: &ChainId| known.get(id)?.staple_at(now);
        let mut present = server.chains();
        match present.all(|(chain, ocsp)| staple(&id(chain)) == ocsp) {
            true => server.clone(),
            false => {
                let staple = |chain: &[_]| staple(&id(chain)).map(<[u8]>::to_vec);
                Arc::new(server.stapled(staple))
            }
        }
    }

    /// The lock is not held while files are read: the control thread takes it too.
    fn learn(
        &self,
        chains: &HashMap<ChainId, &[CertificateDer<'static>]>,
        folder: &Path,
        now: SystemTime,
    ) {
        let mut new = chains.clone();
        {
            let mut known = self.lock();
            known.retain(|id, _| chains.contains_key(id));
            new.retain(|id, _| !known.contains_key(id));
        }
        let learned = new.into_iter().map(|(id, chain)| {
            let file = saved::path(folder, &id);
            (id, Known::new(chain, file, now))
        });
        let learned: Vec<_> = learned.collect();
        self.lock().extend(learned);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ChainId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the requests that are due.
    fn take_due(&self, now: SystemTime) -> Option<Due> {
        let mut known = self.lock();
        known.iter_mut().find_map(|(id, known)| {
            let question = known.question.clone()?;
            known.due.take_if(|due| *due <= now)?;
            Some(Due {
                id: *id,
                question,
                file: known.file.clone(),
            })
        })
    }

    async fn fetch(&self, due: Due) {
        let question = &due.question;
        let response = ask_responder(&question.url, &question.request).await;
        let now = SystemTime::now();
        let response = response.map_err(Refusal::Unusable);
        let staple = response.and_then(|der| question.staple(der, now));
        self.note(&due.id, &staple, now);
        let saving = save(&staple, due.file.clone());
        let complaint = match (&staple, saving.await) {
            (Err(refusal), _) => Some(format!(
                "no usable OCSP response for the certificate of {} from {}: {refusal}",
                question.name, question.url
            )),
            (Ok(_), Err(reason)) => Some(format!(
                "the OCSP response for the certificate of {} is in memory only: {reason}",
                question.name
            )),
            (Ok(_), Ok(())) => None,
        };
        self.complain(&due, complaint);
    }

    fn note(&self, id: &ChainId, staple: &Result<Staple, Refusal>, now: SystemTime) {
        // It may be gone meanwhile.
        if let Some(known) = self.lock().get_mut(id) {
            known.note(staple, now);
        }
    }

    /// Logs what has changed.
    fn complain(&self, due: &Due, complaint: Option<String>) {
        let mut known = self.lock();
        let Some(known) = known.get_mut(&due.id) else {
            return;
        };
        let before = mem::replace(&mut known.complaint, complaint);
        match (&known.complaint, before) {
            (Some(line), before) if before.as_ref() != Some(line) => {
                diagnostics::log(format_args!("{line}"));
            }
            (None, Some(_)) => diagnostics::log(format_args!(
                "there is an OCSP response for the certificate of {} again",
                due.question.name
            )),
            _ => {}
        }
    }
}

impl Known {
    /// What a chain and the file from earlier say. Blocks.
    fn new(chain: &[CertificateDer<'static>], file: PathBuf, now: SystemTime) -> Self {
        let question = Question::of(chain).unwrap_or_else(|reason| {
            diagnostics::log(format_args!(
                "no OCSP response for the certificate of {}: {reason}",
                identity(&chain[0])
            ));
            None
        });
        let question = question.map(Arc::new);
        let read = |question: &Arc<Question>| question.staple(saved::read(&file)?, now).ok();
        let staple = question.as_ref().and_then(read);
        Self {
            due: Some(
                staple
                    .as_ref()
                    .map_or(now, |staple| half_life(staple, random())),
            ),
            question,
            staple,
            file,
            failures: 0,
            complaint: None,
        }
    }

    fn staple_at(&self, now: SystemTime) -> Option<&[u8]> {
        let staple = self.staple.as_ref()?;
        (now + MARGIN < staple.next_update).then_some(&staple.der)
    }

    /// Takes what a request has led to.
    fn note(&mut self, staple: &Result<Staple, Refusal>, now: SystemTime) {
        let due = match staple {
            Ok(staple) => {
                self.failures = 0;
                self.staple = Some(staple.clone());
                after_success(staple, now, random())
            }
            Err(refusal) => {
                if *refusal == Refusal::Revoked {
                    self.staple = None;
                }
                self.failures = self.failures.saturating_add(1);
                now + after_failures(self.failures)
            }
        };
        self.due = Some(due);
    }
}

/// Keeps a response for the next start, and removes one that is not true any more.
async fn save(staple: &Result<Staple, Refusal>, file: PathBuf) -> Result<(), String> {
    let work: Box<dyn FnOnce() -> Result<(), String> + Send> = match staple {
        Ok(staple) => {
            let der = staple.der.clone();
            Box::new(move || saved::write(&file, &der))
        }
        Err(Refusal::Revoked) => Box::new(move || saved::remove(&file)),
        Err(Refusal::Unusable(_)) => return Ok(()),
    };
    let done = task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// When about half of the life of a response is over. `random`, below 1, keeps servers from asking at the same time.
fn half_life(staple: &Staple, random: f64) -> SystemTime {
    let life = staple.next_update.duration_since(staple.this_update);
    staple.this_update + life.unwrap_or_default().mul_f64(0.5 - 0.1 * random)
}

fn after_success(staple: &Staple, now: SystemTime, random: f64) -> SystemTime {
    let rest = staple.next_update.duration_since(now).unwrap_or_default();
    let soonest = (rest / 2).clamp(INTERVAL_MIN, RETRY_DELAY_MAX);
    half_life(staple, random).max(now + soonest)
}

fn after_failures(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
    RETRY_DELAY_MIN.saturating_mul(factor).min(RETRY_DELAY_MAX)
}

/// At least 0, below 1.
fn random() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests;
