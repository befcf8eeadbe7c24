//! What all attempts have in common.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::Account;
use tokio::sync::{Mutex, Semaphore};
use tokio::time;

use crate::Log;
use crate::challenges::Challenges;
use crate::dns::{Dns, Hook, TsigKey, Update};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::reports::Reports;
use crate::settings::{DnsSettings, Settings};

/// The maximum of attempts at a time. More would only have authorities refuse some.
const ATTEMPTS_MAX: usize = 16;

/// How long resolvers may keep records, in seconds: they are needed for a moment.
const RECORD_TTL: u32 = 60;

/// How often a lock is asked for that somebody else has for a moment.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// How often.
const LOCK_TRIES: u32 = 300;

/// What all attempts have in common.
pub struct Run {
    pub settings: Settings,
    pub folder: Folder,
    pub dns: Option<Dns>,
    pub challenges: Arc<Challenges>,
    pub reports: Arc<Reports>,
    pub log: Log,
    /// Accounts in use, by the directory of their authority.
    pub accounts: Mutex<HashMap<String, Account>>,
    /// A permit for each attempt.
    pub attempts: Semaphore,
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
            accounts: Mutex::default(),
            attempts: Semaphore::new(ATTEMPTS_MAX),
        })
    }

    /// A lock that others have for moments only.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn lock(&self, name: &str) -> Result<File, Failure> {
        let failed = |error: io::Error| Failure::new(format!("the lock {name}: {error}"));
        for _ in 0..LOCK_TRIES {
            if let Some(lock) = self.folder.lock(name).map_err(failed)? {
                return Ok(lock);
            }
            time::sleep(LOCK_INTERVAL).await;
        }
        Err(Failure::new(format!(
            "another server keeps the lock {name}"
        )))
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
