//! Certificates for names that nobody knows in advance: got when the first client asks for one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_tls::NamedKeys;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ask::{Refusal, ask};
use crate::care::{Known, sleep_until, step};
use crate::http::Client;
use crate::run::{Queues, Run};

/// The maximum number of names with a certificate.
const NAMES_MAX: usize = 10_000;

/// The maximum number of names that wait for their first one. Names of which something is in the folder do not count:
/// nobody can make them up.
const WAITING_MAX: usize = 1000;

/// The maximum number of questions at a time whether a name may have one, in each queue.
const QUESTIONS_MAX: usize = 16;

/// How long nobody is asked again about a name that got none.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(60);

/// The maximum number of names that got none.
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
    questions: Queues,
    names: RefCell<Names>,
    /// When a reason was logged last.
    reported: Cell<Option<Instant>>,
}

#[derive(Default)]
struct Names {
    /// Who waits for each name that is about to get a certificate.
    waiting: HashMap<String, Waiting>,
    /// The number of them that are unknown.
    unknown: usize,
    /// When a name got none.
    refused: HashMap<String, Instant>,
}

struct Waiting {
    replies: Vec<oneshot::Sender<bool>>,
    /// Whether something is in the folder of the name: it was allowed once, and may have a certificate.
    is_known: bool,
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
            questions: Queues::new(QUESTIONS_MAX),
            names: RefCell::default(),
            reported: Cell::default(),
        })
    }

    /// Serves all who want a certificate.
    pub async fn serve(self: Rc<Self>, wanted: &mut mpsc::Receiver<Wanted>) {
        let mut tasks = JoinSet::new();
        while let Some(one) = wanted.recv().await {
            while tasks.try_join_next().is_some() {}
            if let Some((name, is_known)) = self.begin(one) {
                tasks.spawn_local(guarded(self.clone(), name, is_known));
            }
        }
    }

    /// The name, and whether it is known, if nobody works on it yet. Blocks.
    fn begin(&self, wanted: Wanted) -> Option<(String, bool)> {
        let Wanted { name, reply } = wanted;
        let mut names = self.names.borrow_mut();
        if let Some(waiting) = names.waiting.get_mut(&name) {
            // Clients may leave before there is one.
            waiting.replies.retain(|before| !before.is_closed());
            waiting.replies.push(reply);
            return None;
        }
        let is_had = self.keys.has(&name);
        let is_soon = names
            .refused
            .get(&name)
            .is_some_and(|at| at.elapsed() < REFUSAL_AGE_MAX);
        let is_known = !is_had && !is_soon && self.run.folder.is_known(&name);
        let is_full = !is_known && names.unknown >= WAITING_MAX || self.keys.len() >= NAMES_MAX;
        if is_had || is_soon || is_full {
            let _ = reply.send(is_had);
            return None;
        }
        names.unknown += usize::from(!is_known);
        let waiting = Waiting {
            replies: vec![reply],
            is_known,
        };
        names.waiting.insert(name.clone(), waiting);
        Some((name, is_known))
    }

    /// Gets a certificate for `name`, and renews it until nobody allows it any more.
    async fn care(&self, name: &str, is_known: bool) {
        let mut known = Known::read(&self.run, name);
        // One from before is used at once, whatever is due for it.
        if self.take(name, &known) {
            self.end_waiting(name, true);
        }
        loop {
            let next = match self.renew(name, &mut known, is_known).await {
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
        if let Some(waiting) = names.waiting.remove(name) {
            names.unknown -= usize::from(!waiting.is_known);
            for reply in waiting.replies {
                let _ = reply.send(is_had);
            }
        }
        if !is_had {
            names.refused.retain(|_, at| at.elapsed() < REFUSAL_AGE_MAX);
            if names.refused.len() < REFUSALS_MAX {
                names.refused.insert(name.to_owned(), Instant::now());
            }
        }
    }

    /// Does what is due for `name`. Returns when something may be due again.
    async fn renew(
        &self,
        name: &str,
        known: &mut Known<'_>,
        is_known: bool,
    ) -> Result<SystemTime, Refusal> {
        let is_known = is_known || known.certificate.is_some();
        if known.due(&self.run) <= SystemTime::now() {
            let _permit = self.questions.of(is_known).acquire().await;
            ask(&self.client, &self.url, name).await?;
        }
        let next = step(&self.run, known, self.run.attempts.of(is_known)).await;
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
async fn guarded(on_demand: Rc<OnDemand>, name: String, is_known: bool) {
    let (this, one) = (on_demand.clone(), name.clone());
    let mut task = JoinSet::new();
    task.spawn_local(async move { this.care(&one, is_known).await });
    if let Some(Err(_)) = task.join_next().await {
        on_demand.keys.remove(&name);
        on_demand.end_waiting(&name, false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rcgen::{CertificateParams, KeyPair};
    use tokio::runtime::Builder;
    use tokio::time;

    use super::*;
    use crate::folder::Folder;
    use crate::service::{Acme, Plan};
    use crate::settings::Settings;

    const WAIT_MAX: Duration = Duration::from_secs(20);

    fn pem(name: &str) -> String {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        key.serialize_pem() + &certificate.pem()
    }

    /// A server that has just started gets more made-up names than may wait, and nobody says which names may have certificates.
    #[test]
    fn a_name_with_a_certificate_waits_for_no_other() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let path = folder.certificate("known.test");
        let written = folder.write(&path, pem("known.test").as_bytes());
        written.expect("written");
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let acme = Acme::start(|_| {}).expect("a thread");
        acme.follow(Some(Plan {
            settings: Settings {
                folder: state.path().to_owned(),
                contact: None,
                authorities: Vec::new(),
                methods: Vec::new(),
                dns: None,
                ask: Some(format!(
                    "http://{}/",
                    silent.local_addr().expect("an address")
                )),
            },
            names: Vec::new(),
        }));
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut clients = JoinSet::new();
            for number in 0..2 * WAITING_MAX {
                let acme = acme.clone();
                clients.spawn(async move { acme.get(&format!("{number}.test")).await });
            }
            // Those beyond the limit are refused once all others wait.
            let first = time::timeout(WAIT_MAX, clients.join_next()).await;
            assert!(matches!(first, Ok(Some(Ok(false)))), "{first:?}");
            let known = time::timeout(WAIT_MAX, acme.get("known.test")).await;
            assert_eq!(known, Ok(true));
        });
        assert!(acme.on_demand.has("known.test"));
    }
}
