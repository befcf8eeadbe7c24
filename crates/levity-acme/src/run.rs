//! What all attempts have in common.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time;

use crate::Log;
use crate::access::Access;
use crate::challenges::Challenges;
use crate::dns::{Dns, Hook, TsigKey, Update};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::reports::Reports;
use crate::settings::{Authority, DnsSettings, Settings};

/// The maximum number of attempts at a time, in each queue. More would only have authorities refuse some.
const ATTEMPTS_MAX: usize = 16;

/// How long resolvers may keep records, in seconds: they are needed for a moment.
const RECORD_TTL: u32 = 60;

/// How often a lock is asked for that somebody else has for a moment.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// How often.
const LOCK_TRIES: u32 = 300;

/// Permits for work of one kind: anybody can make up names, and work for those that are known does not wait behind them.
pub struct Queues {
    known: Semaphore,
    unknown: Semaphore,
}

impl Queues {
    /// So many permits for each.
    pub fn new(permits: usize) -> Self {
        Self {
            known: Semaphore::new(permits),
            unknown: Semaphore::new(permits),
        }
    }

    /// Those for names that the operator has written down, or that were allowed once; or for all others.
    pub fn of(&self, is_known: bool) -> &Semaphore {
        match is_known {
            true => &self.known,
            false => &self.unknown,
        }
    }
}

/// What all attempts have in common.
pub struct Run {
    pub settings: Settings,
    pub folder: Folder,
    pub dns: Option<Dns>,
    pub challenges: Arc<Challenges>,
    pub reports: Arc<Reports>,
    pub log: Log,
    /// What is known of authorities, by their directory.
    authorities: RefCell<HashMap<String, Rc<Access>>>,
    /// Who sleeps until something is due for a name.
    sleepers: RefCell<HashMap<String, Rc<Notify>>>,
    /// A permit for each attempt.
    pub attempts: Queues,
}

impl Run {
    /// For attempts as `settings` say. Blocks.
    ///
    /// # Errors
    /// In words, when the folder cannot be used.
    pub fn new(
        settings: &Settings,
        challenges: &Arc<Challenges>,
        reports: &Arc<Reports>,
        log: Log,
    ) -> Result<Self, String> {
        Ok(Self {
            folder: Folder::open(&settings.folder)?,
            dns: settings.dns.as_ref().map(dns).transpose()?,
            settings: settings.clone(),
            challenges: challenges.clone(),
            reports: reports.clone(),
            log,
            authorities: RefCell::default(),
            sleepers: RefCell::default(),
            attempts: Queues::new(ATTEMPTS_MAX),
        })
    }

    /// What is known of `authority`.
    pub fn access(&self, authority: &Authority) -> Rc<Access> {
        let mut authorities = self.authorities.borrow_mut();
        if let Some(access) = authorities.get(&authority.directory) {
            return access.clone();
        }
        let access = Rc::new(Access::new(authority, self.log));
        authorities.insert(authority.directory.clone(), access.clone());
        access
    }

    /// Has the next request sent to each authority, even to one that could not be reached.
    pub fn try_authorities_again(&self) {
        let authorities = self.authorities.borrow();
        authorities
            .values()
            .for_each(|access| access.reach.try_again());
    }

    /// The lock `name` of an authority, which others have for moments only.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn lock(&self, name: &str, directory: &str) -> Result<File, Failure> {
        let failed = |error: io::Error| Failure::new(format!("the lock of {name}: {error}"));
        for _ in 0..LOCK_TRIES {
            let lock = self.folder.lock_of_authority(name, directory);
            if let Some(lock) = lock.map_err(failed)? {
                return Ok(lock);
            }
            time::sleep(LOCK_INTERVAL).await;
        }
        Err(Failure::new(format!(
            "another server keeps the lock of {name}"
        )))
    }

    /// Sleeps for `time`, or until [`wake`](Self::wake).
    pub async fn sleep(&self, name: &str, time: Duration) {
        let sleeper = Sleeper::new(self, name);
        let _ = time::timeout(time, sleeper.notify.notified()).await;
    }

    /// Wakes whoever sleeps until something is due for `name`.
    pub fn wake(&self, name: &str) {
        if let Some(notify) = self.sleepers.borrow().get(name) {
            notify.notify_one();
        }
    }
}

/// Somebody who sleeps.
struct Sleeper<'r> {
    run: &'r Run,
    name: &'r str,
    notify: Rc<Notify>,
}

impl<'r> Sleeper<'r> {
    fn new(run: &'r Run, name: &'r str) -> Self {
        let notify = Rc::new(Notify::new());
        let mut sleepers = run.sleepers.borrow_mut();
        sleepers.insert(name.to_owned(), notify.clone());
        Self { run, name, notify }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.run.sleepers.borrow_mut().remove(self.name);
    }
}

/// What makes records. Blocks.
fn dns(settings: &DnsSettings) -> Result<Dns, String> {
    Ok(match settings {
        DnsSettings::Hook(program) => Dns::Hook(Hook {
            program: program.clone(),
        }),
        DnsSettings::Update { server, zone, key } => Dns::Update(Update {
            server: *server,
            zone: zone.clone(),
            key: key.as_deref().map(TsigKey::read).transpose()?,
            ttl: RECORD_TTL,
        }),
    })
}
