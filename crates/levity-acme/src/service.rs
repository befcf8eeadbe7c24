//! The thread that cares for certificates.

use std::future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use levity_tls::NamedKeys;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time;

use crate::Log;
use crate::care::care;
use crate::challenges::{Challenges, LOOK_INTERVAL};
use crate::on_demand::{OnDemand, Wanted};
use crate::reports::{Report, Reports};
use crate::run::Run;
use crate::settings::Settings;

/// The maximum number of clients of which the thread has still to hear; others wait until they can be told to it.
const WANTED_MAX: usize = 1024;

/// How long to wait for a folder that cannot be used.
const FOLDER_PAUSE: Duration = Duration::from_secs(5);

/// How long to wait after a panic.
const PANIC_PAUSE: Duration = Duration::from_secs(10 * 60);

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How.
    pub settings: Settings,
    /// The names that get certificates, each one of its own: DNS names, some with a star, and IP addresses.
    pub names: Vec<String>,
}

/// Certificates that are asked for and renewed by a thread of its own, since its files may be on a slow disk.
pub struct Acme {
    /// Answers for authorities.
    pub challenges: Arc<Challenges>,
    /// Certificates that clients have asked for.
    pub on_demand: Arc<NamedKeys>,
    reports: Arc<Reports>,
    plan: watch::Sender<Option<Plan>>,
    wanted: mpsc::Sender<Wanted>,
}

impl Acme {
    /// Starts the thread, which does nothing without a plan.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(log: Log) -> io::Result<Arc<Self>> {
        let (plan, plans) = watch::channel(None);
        let (wanted, asked) = mpsc::channel(WANTED_MAX);
        let this = Arc::new(Self {
            challenges: Arc::default(),
            on_demand: Arc::default(),
            reports: Arc::default(),
            plan,
            wanted,
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let worker = Worker {
            challenges: this.challenges.clone(),
            on_demand: this.on_demand.clone(),
            reports: this.reports.clone(),
            log,
        };
        let serving = move || LocalSet::new().block_on(&runtime, worker.serve(plans, asked));
        thread::Builder::new()
            .name("acme".to_owned())
            .spawn(serving)?;
        Ok(this)
    }

    /// Has `plan` done from now on. Orders of the plan before go on where they are.
    pub fn follow(&self, plan: Option<Plan>) {
        self.plan.send_if_modified(|before| {
            let is_other = *before != plan;
            *before = plan;
            is_other
        });
    }

    /// What is known of each certificate, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.all()
    }

    /// Waits until there is a certificate for `name`, which a client asks for. False if there will be none.
    pub async fn get(&self, name: &str) -> bool {
        let (reply, replied) = oneshot::channel();
        let name = name.to_ascii_lowercase();
        // Waits for its turn, since the name may be one that has a certificate.
        match self.wanted.send(Wanted { name, reply }).await {
            Ok(()) => replied.await.unwrap_or(false),
            Err(_) => false,
        }
    }
}

struct Worker {
    challenges: Arc<Challenges>,
    on_demand: Arc<NamedKeys>,
    reports: Arc<Reports>,
    log: Log,
}

impl Worker {
    async fn serve(
        self,
        mut plans: watch::Receiver<Option<Plan>>,
        mut wanted: mpsc::Receiver<Wanted>,
    ) {
        loop {
            let plan = plans.borrow_and_update().clone();
            tokio::select! {
                // A plan that has come goes before clients that have come after it.
                biased;
                changed = plans.changed() => if changed.is_err() { return },
                () = self.follow(plan, &mut wanted) => {}
            }
        }
    }

    /// Does what `plan` says, without an end.
    async fn follow(&self, plan: Option<Plan>, wanted: &mut mpsc::Receiver<Wanted>) {
        // Nobody cares for those of a plan before; each is read again when a client asks for it.
        self.on_demand.clear();
        let Some(plan) = plan else {
            self.reports.retain(|_| false);
            return refuse(wanted).await;
        };
        self.reports
            .retain(|name| plan.names.iter().any(|one| one == name));
        let run = Rc::new(self.open(&plan.settings).await);
        let mut tasks = JoinSet::new();
        for name in plan.names {
            let run = run.clone();
            tasks.spawn_local(async move { care_always(run, name).await });
        }
        tokio::select! {
            () = self.look(&run) => {}
            () = self.serve_on_demand(&run, wanted) => {}
        }
    }

    /// Opens the folder. While that is not possible, the log says why.
    async fn open(&self, settings: &Settings) -> Run {
        let mut before = None;
        loop {
            let run = Run::new(settings, &self.challenges, &self.reports, self.log);
            match run {
                Ok(run) => return run,
                Err(reason) if before.as_ref() == Some(&reason) => {}
                Err(reason) => {
                    (self.log)(format_args!(
                        "certificates are neither got nor renewed: {reason}"
                    ));
                    before = Some(reason);
                }
            }
            time::sleep(FOLDER_PAUSE).await;
        }
    }

    /// Looks for answers that other servers have to give, and for what operators want.
    async fn look(&self, run: &Run) {
        loop {
            // What is wrong with the folder is told where something is written to it.
            let _ = self.challenges.look(&run.folder);
            let retries = run.folder.retries().unwrap_or_default();
            retries.iter().for_each(|name| run.wake(name));
            time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn serve_on_demand(&self, run: &Rc<Run>, wanted: &mut mpsc::Receiver<Wanted>) {
        let Some(url) = &run.settings.ask else {
            return refuse(wanted).await;
        };
        match OnDemand::new(run, url, &self.on_demand) {
            Ok(on_demand) => Rc::new(on_demand).serve(wanted).await,
            Err(reason) => {
                (self.log)(format_args!("no certificates on demand: {reason}"));
                refuse(wanted).await;
            }
        }
        // The process ends.
        future::pending().await
    }
}

/// Cares for `name` without an end, even if what an authority sends makes the library panic.
async fn care_always(run: Rc<Run>, name: String) {
    loop {
        let (of, one) = (run.clone(), name.clone());
        let mut task = JoinSet::new();
        task.spawn_local(async move { care(&of, &one).await });
        let _ = task.join_next().await;
        (run.log)(format_args!(
            "the care for the certificate of {name} has failed; it begins again soon"
        ));
        time::sleep(PANIC_PAUSE).await;
    }
}

async fn refuse(wanted: &mut mpsc::Receiver<Wanted>) {
    while let Some(one) = wanted.recv().await {
        let _ = one.reply.send(false);
    }
    future::pending().await
}
