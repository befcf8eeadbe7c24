//! The care for one certificate: to get it, and to renew it in time.

use std::time::{Duration, SystemTime};

use levity_tls::{Certificate, files};
use tokio::sync::Semaphore;

use levity_tls::in_words;

use crate::clock::{at, seconds, some_of};
use crate::failure::{Cause, Failure};
use crate::order::Attempt;
use crate::records::{self, When};
use crate::renewal;
use crate::reports::Report;
use crate::run::Run;
use crate::settings::Authority;
use crate::state::NameState;

/// How long to wait while another server works on the same name.
const OTHER_PAUSE: Duration = Duration::from_secs(5);

/// The longest sleep. The clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(10 * 60);

/// More than any pause.
const PAUSE_MAX: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// How long to wait until files are read again that could not be read.
const UNREAD_PAUSE: Duration = Duration::from_secs(60);

/// How often an attempt goes on after nonces that the authority did not take.
const NONCE_TRIES: u32 = 10;

/// How late the clock of this machine may be until that is told.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

const CLOCK: &str = "is the clock of this machine right?";

/// Cares for `name` without an end.
pub async fn care(run: &Run, name: &str) {
    loop {
        let next = step(run, &mut Known::read(run, name), run.attempts.of(true)).await;
        sleep_until(run, name, next).await;
    }
}

/// Waits until `time`, or a little less, or until an operator wants another attempt.
pub async fn sleep_until(run: &Run, name: &str, time: SystemTime) {
    let left = time.duration_since(SystemTime::now()).unwrap_or_default();
    run.sleep(name, left.min(SLEEP_MAX)).await;
}

/// Does what is due for a name, an attempt with a permit of `attempts`. Returns when something may be due again.
pub async fn step(run: &Run, known: &mut Known<'_>, attempts: &Semaphore) -> SystemTime {
    let name = known.name;
    let is_wanted = run.folder.wants_retry(name);
    let is_due = known.unread.is_none() && SystemTime::now() >= known.next(run);
    if !is_wanted && !is_due {
        return known.report(run);
    }
    let _permit = attempts.acquire().await;
    match run.folder.lock(name) {
        Ok(Some(_lock)) => {
            // Another server may have been quicker.
            *known = Known::read(run, name);
            if is_wanted {
                // What cannot be read is replaced.
                known.unread = None;
            }
            if known.unread.is_none() {
                known.work(run).await;
            }
            known.report(run)
        }
        Ok(None) => {
            known.report_progress(run);
            SystemTime::now() + OTHER_PAUSE + some_of(OTHER_PAUSE)
        }
        Err(error) => {
            if known.due(run) <= SystemTime::now() {
                known.failed(run, &Failure::new(format!("the lock of the name: {error}")));
            }
            // A record may be due.
            known.report(run).max(SystemTime::now() + OTHER_PAUSE)
        }
    }
}

/// What is known of a name.
pub struct Known<'n> {
    name: &'n str,
    /// The certificate, if clients would accept it.
    pub certificate: Option<Certificate>,
    state: NameState,
    /// Why files that are there cannot be read now. Nothing is done for the name then, since it might have all it needs.
    unread: Option<String>,
}

impl<'n> Known<'n> {
    /// What the folder says. Blocks.
    pub fn read(run: &Run, name: &'n str) -> Self {
        let certificate = read_certificate(run, name);
        let state = NameState::load(&run.folder, name, run.log);
        let unread = state.as_ref().err().or(certificate.as_ref().err()).cloned();
        let accepted = |one: &Certificate| one.is_for(name) && SystemTime::now() < one.not_after;
        Self {
            name,
            certificate: certificate.ok().flatten().filter(accepted),
            state: state.unwrap_or_default(),
            unread,
        }
    }

    /// Whether files that are there cannot be read now.
    pub fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Why there is no certificate, as far as that is known.
    pub fn error(&self) -> &str {
        let error = self.unread.as_deref().or(self.state.last_error.as_deref());
        error.unwrap_or("there is none yet")
    }

    /// When the next attempt is to be made.
    pub fn due(&self, run: &Run) -> SystemTime {
        if self.unread.is_some() {
            return SystemTime::now() + UNREAD_PAUSE;
        }
        let wanted = match (&self.certificate, self.state.renew_at.map(at)) {
            (Some(_), Some(renew_at)) if self.authority(run).is_some() => renew_at,
            (Some(_), renew_at) => {
                let other = self.next_replacement(run);
                other.map_or(at(0), |other| other.min(renew_at.unwrap_or(other)))
            }
            _ => at(0),
        };
        // A pause is never that long: the clock was wrong.
        let latest = seconds(SystemTime::now() + PAUSE_MAX);
        let not_before = self
            .state
            .not_before
            .filter(|not_before| *not_before < latest);
        wanted.max(at(not_before.unwrap_or(0)))
    }

    /// The authority that has issued the certificate, if it is still asked.
    fn authority<'r>(&self, run: &'r Run) -> Option<&'r Authority> {
        let mut authorities = run.settings.authorities.iter();
        authorities.find(|one| Some(&one.directory) == self.state.directory.as_ref())
    }

    /// When a certificate of an authority that is not asked any more, such as one for tests, may be replaced; `None` if at once.
    fn next_replacement(&self, run: &Run) -> Option<SystemTime> {
        let now = SystemTime::now();
        self.state.next_replacement(&directories(run), now)
    }

    /// Does what is due. The name is locked.
    async fn work(&mut self, run: &Run) {
        if run.folder.wants_retry(self.name) && run.folder.end_retry(self.name) {
            self.state.try_again();
            self.save(run);
            run.try_authorities_again();
        }
        let removal = self.state.next_removal();
        if removal.is_some_and(|removal| removal <= SystemTime::now()) {
            records::remove(run, &mut self.state, When::Due).await;
            self.save(run);
        }
        self.ask(run).await;
        if self.due(run) <= SystemTime::now() {
            self.report_progress(run);
            self.attempt(run).await;
        }
    }

    /// Asks the authority for a better time to renew, if that is due.
    async fn ask(&mut self, run: &Run) {
        let is_due = self
            .state
            .ask_at
            .is_some_and(|ask_at| at(ask_at) <= SystemTime::now());
        let authority = self.authority(run);
        let (true, Some(certificate), Some(authority)) = (is_due, &self.certificate, authority)
        else {
            return;
        };
        let advice = match run.account(authority).await {
            Ok(account) => renewal::advice(&account, certificate)
                .await
                .map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match advice {
            Ok(Some((renew_at, ask_at))) => {
                self.state.renew_at = Some(seconds(renew_at));
                self.state.ask_at = Some(seconds(ask_at));
            }
            Ok(None) => self.state.ask_at = None,
            Err(_) => self.state.ask_at = Some(seconds(renewal::ask_later())),
        }
        self.save(run);
    }

    /// Tries each authority in turn, those with an order that was left first.
    async fn attempt(&mut self, run: &Run) {
        let mut authorities: Vec<_> = run.settings.authorities.iter().collect();
        authorities.sort_by_key(|one| self.state.order(&one.directory).is_none());
        let mut failures = Vec::new();
        for authority in authorities {
            let outcome = self.ask_for_one(run, authority).await;
            match outcome.and_then(|pem| self.install(run, authority, &pem)) {
                Ok(certificate) => {
                    return self.succeeded(run, certificate, &authority.directory).await;
                }
                Err(failure) => failures.push((authority, failure)),
            }
        }
        self.failed(run, &of_all(&failures));
    }

    /// Asks an authority for a certificate. Nonces expire, and the library gives up after three that did; the order goes on where it
    /// was.
    async fn ask_for_one(&mut self, run: &Run, authority: &Authority) -> Result<String, Failure> {
        let mut tries = 0;
        loop {
            let replaced = self.certificate.as_ref();
            let attempt = Attempt::new(run, authority, self.name, replaced, &mut self.state);
            tries += 1;
            match attempt.certificate().await {
                Err(failure) if failure.is("badNonce") && tries < NONCE_TRIES => {}
                outcome => return outcome,
            }
        }
    }

    /// Writes a certificate, unless clients would refuse it.
    fn install(
        &mut self,
        run: &Run,
        authority: &Authority,
        pem: &str,
    ) -> Result<Certificate, Failure> {
        let refused =
            |reason: String| Failure::new(format!("the certificate that was issued: {reason}"));
        let usable = Certificate::of_pem(pem.as_bytes()).and_then(|certificate| match () {
            () if !certificate.is_for(self.name) => Err("it is for another name".to_owned()),
            () if certificate.not_after <= SystemTime::now() => {
                Err(format!("it has ended already; {CLOCK}"))
            }
            () => Ok(certificate),
        });
        let certificate = usable.map_err(|reason| {
            // It would be the same one each time.
            self.state.end_order(&authority.directory);
            refused(reason)
        })?;
        if SystemTime::now() + CLOCK_TOLERANCE < certificate.not_before {
            (run.log)(format_args!(
                "the certificate for {} is not valid yet; {CLOCK}",
                self.name
            ));
        }
        let path = run.folder.certificate(self.name);
        run.folder
            .write(&path, pem.as_bytes())
            .map_err(Failure::new)?;
        Ok(certificate)
    }

    async fn succeeded(&mut self, run: &Run, certificate: Certificate, directory: &str) {
        let days = certificate
            .not_after
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        (run.log)(format_args!(
            "certificate for {} from {}, valid for {}",
            self.name,
            certificate.issuer,
            in_words(days)
        ));
        if self.certificate.is_some() && self.authority(run).is_none() {
            self.state.replaced(&directories(run), SystemTime::now());
        }
        self.state = NameState {
            replacements: std::mem::take(&mut self.state.replacements),
            refusals: std::mem::take(&mut self.state.refusals),
            records: std::mem::take(&mut self.state.records),
            directory: Some(directory.to_owned()),
            renew_at: Some(seconds(renewal::usual(&certificate))),
            // Whatever an authority or a clock says, orders do not follow each other at once.
            not_before: Some(seconds(
                SystemTime::now() + renewal::pause(1, Some(&certificate)),
            )),
            ask_at: Some(seconds(SystemTime::now())),
            ..NameState::default()
        };
        self.certificate = Some(certificate);
        self.save(run);
        self.ask(run).await;
    }

    fn failed(&mut self, run: &Run, failure: &Failure) {
        let state = &mut self.state;
        let now = SystemTime::now();
        let pause = |failures| now + renewal::pause(failures, self.certificate.as_ref());
        let next = match (failure.cause, failure.not_before) {
            // No authority was asked.
            (Cause::Limit, not_before) => not_before.unwrap_or(now).max(pause(1)),
            (_, not_before) => {
                state.failures += 1;
                not_before.unwrap_or(now).max(pause(state.failures))
            }
        };
        state.not_before = Some(seconds(next));
        state.last_error = Some(failure.reason.clone());
        (run.log)(format_args!(
            "no certificate for {}: {}; the next attempt is in {}",
            self.name,
            failure.reason,
            in_words(next.duration_since(now).unwrap_or_default())
        ));
        self.save(run);
    }

    fn save(&self, run: &Run) {
        if let Err(reason) = self.state.save(&run.folder, self.name) {
            (run.log)(format_args!(
                "the state of the certificate for {} is not kept: {reason}",
                self.name
            ));
        }
    }

    /// Tells operators. Returns when something may be due again.
    fn report(&self, run: &Run) -> SystemTime {
        let before = run.reports.set(self.as_report(run));
        let told = before.and_then(|before| before.error);
        // An operator who wants another attempt has the files read each second.
        if let Some(reason) = self.unread.as_ref().filter(|_| told != self.unread) {
            let name = self.name;
            (run.log)(format_args!(
                "nothing is done for the certificate of {name} while its files cannot be read: {reason}"
            ));
        }
        self.next(run)
    }

    /// Tells operators that an attempt is made.
    fn report_progress(&self, run: &Run) {
        run.reports.set(Report {
            is_in_progress: true,
            ..self.as_report(run)
        });
    }

    fn as_report(&self, run: &Run) -> Report {
        let report = Report::of(self.name, self.certificate.as_ref(), &self.state);
        let is_left = self.certificate.is_some() && self.authority(run).is_none();
        let why = || {
            self.next_replacement(run).filter(|_| is_left)?;
            let name = self.name;
            Some(format!(
                "its authority is not asked any more, but it was replaced several times already, maybe by servers with different \
                 authorities that share the folder; `levity certs --retry {name}` replaces it now"
            ))
        };
        Report {
            next: Some(self.due(run)).filter(|due| *due > at(0)),
            error: self.unread.clone().or(report.error.clone()).or_else(why),
            ..report
        }
    }

    /// When something may be due.
    fn next(&self, run: &Run) -> SystemTime {
        if self.unread.is_some() {
            return self.due(run);
        }
        let may_ask = self.certificate.is_some() && self.authority(run).is_some();
        let ask_at = self.state.ask_at.filter(|_| may_ask);
        let times = [ask_at.map(at), self.state.next_removal()];
        let times = times.into_iter().flatten();
        times.fold(self.due(run), SystemTime::min)
    }
}

/// The certificate for `name`, if its file is there and makes sense. Blocks.
///
/// # Errors
/// In words, with the path, when the file cannot be read.
fn read_certificate(run: &Run, name: &str) -> Result<Option<Certificate>, String> {
    let path = run.folder.certificate(name);
    let Some(bytes) = files::read_if_there(&path)? else {
        return Ok(None);
    };
    let read = Certificate::of_pem(&bytes);
    Ok(read
        .inspect_err(|reason| {
            let path = path.display();
            (run.log)(format_args!(
                "a new certificate for {name} is needed: {path}: {reason}"
            ));
        })
        .ok())
}

/// The directories that are asked, as one text.
fn directories(run: &Run) -> String {
    let directories = run.settings.authorities.iter();
    let directories = directories.map(|one| one.directory.as_str());
    directories.collect::<Vec<_>>().join(" ")
}

/// What has failed at all authorities.
fn of_all(failures: &[(&Authority, Failure)]) -> Failure {
    let reasons = failures
        .iter()
        .map(|(authority, failure)| format!("{}: {}", authority.host(), failure.reason));
    let is_limit = failures
        .iter()
        .all(|(_, failure)| failure.cause == Cause::Limit);
    // One of them that names no time may be asked sooner.
    let times = failures.iter().map(|(_, failure)| failure.not_before);
    Failure {
        not_before: times.min().flatten(),
        cause: match is_limit {
            true => Cause::Limit,
            false => Cause::Other,
        },
        ..Failure::new(reasons.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fmt::Arguments;
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::settings::Settings;

    thread_local! {
        static LINES: Cell<u32> = const { Cell::new(0) };
    }

    fn log(line: Arguments<'_>) {
        let is_of_files = line.to_string().contains("cannot be read");
        LINES.set(LINES.get() + u32::from(is_of_files));
    }

    #[tokio::test]
    async fn files_that_cannot_be_read_are_told_once_and_nothing_is_done() {
        let state = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            folder: state.path().to_owned(),
            contact: None,
            authorities: Vec::new(),
            methods: Vec::new(),
            dns: None,
            ask: None,
        };
        let run = Run::new(&settings, &Arc::default(), &Arc::default(), log).expect("a folder");
        let (name, now) = ("a.test", SystemTime::now());
        for file in [run.folder.state(name), run.folder.certificate(name)] {
            LINES.set(0);
            // As unreadable as a file on a disk with errors.
            fs::create_dir(&file).expect("made");
            for _ in 0..2 {
                let next = step(&run, &mut Known::read(&run, name), run.attempts.of(true)).await;
                assert!(next >= now + UNREAD_PAUSE);
            }
            let reason = run.reports.all()[0].error.clone().expect("a reason");
            assert!(reason.contains("cannot be read"), "{reason}");
            assert_eq!(LINES.get(), 1, "{}", file.display());
            fs::remove_dir(&file).expect("nothing was written");
        }
        step(&run, &mut Known::read(&run, name), run.attempts.of(true)).await;
        assert!(run.folder.state(name).exists());
    }
}
