//! When the control thread reads configuration, roots and certificates again.
//!
//! Compiling a new configuration may hang on a frozen disk, so a thread of its own does that.

use std::collections::HashSet;
use std::future;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_config::Note;
use levity_disk::{Root, Symlinks, late_returns, patiently};
use levity_net::Bound;
use levity_telemetry::diagnostics;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::beside::beside;
use super::{Server, devices_of, in_words, take_sockets};
use crate::compile;
use crate::process::admin::control::{Order, Outcome};
use crate::process::reload::{Made, Present, Refused};
use crate::process::service_manager;
use crate::process::start_report::{log_notes, log_some};
use crate::process::system_limits::with_help;
use crate::serve::event_loop::Message;
use crate::shares::{self, Bounds};
use crate::upstream;
use crate::upstream::check;

/// The maximum number of notes that whoever asks for a reload is told. All are in the log.
const NOTES_MAX: usize = 50;

/// How often certificates and absent roots are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum time between looks for a root that can be opened, and whose configuration was refused.
const ABSENT_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A reload in progress. It runs beside the control thread, so that a frozen root does not keep the server
/// from handling signals.
#[derive(Default)]
pub struct Reloading {
    made: Option<oneshot::Receiver<Result<Made, Refused>>>,
    /// Another reload was requested meanwhile: a file may have been read before it changed.
    again: bool,
    /// Who is told the outcome of this one, and of the other one.
    waiting: Vec<Order>,
    waiting_again: Vec<Order>,
    /// [`late_returns`] when the last one began; at first, when the process did.
    late_returns: u64,
    absent: AbsentRoots,
}

/// What a reload reads.
#[derive(Clone, Copy)]
pub enum Text {
    /// The files.
    New,
    /// The texts that the files had: something that did not respond then may do so now.
    Same,
}

impl Reloading {
    /// Begins one, or another one when that which is in progress has ended. Somebody is told its outcome.
    pub fn begin_for(&mut self, server: &Server, order: Order) {
        match self.made.is_some() {
            true => self.waiting_again.push(order),
            false => self.waiting.push(order),
        }
        self.begin(server, Text::New);
    }

    pub fn begin(&mut self, server: &Server, text: Text) {
        if self.made.is_some() {
            self.again = true;
            return;
        }
        service_manager::reloading();
        let (plan, parts) = (server.plan.clone(), server.parts.clone());
        let old = server.service.clone();
        let confinement = server.confinement.clone();
        let configured = server
            .listening
            .iter()
            .map(|bound| bound.configured.clone());
        let present = Present {
            workers: server.workers.len(),
            listening: configured.collect(),
            logs: server.logs.opener(),
            inherited: server.inherited.clone(),
        };
        self.late_returns = late_returns();
        let made = beside("reload", move || {
            let config = match text {
                Text::New => plan.reload(&old.absent_roots),
                Text::Same => plan.again(&old.config.files, &old.absent_roots),
            };
            let config = config.map_err(Refused::Config)?;
            let hidden = config.hidden.clone();
            let made = confinement
                .permits(&config)
                .and_then(|()| compile::service(config, &parts, Some(&old)))
                .inspect(|service| service.remove_stale_uploads(Some(&old)))
                .and_then(|service| Made::new(service, &old, &present));
            made.map_err(|error| Refused::Service(in_words(&error, &hidden)))
        });
        self.made = Some(made.unwrap_or_else(|error| {
            let (sender, refused) = oneshot::channel();
            let _ = sender.send(Err(Refused::Service(with_help(&error))));
            refused
        }));
    }

    /// Tells the outcome to those who wait for it, and begins another one if that was asked for meanwhile.
    pub fn ended(&mut self, server: &Server, outcome: &Outcome) {
        service_manager::ready();
        for order in self.waiting.drain(..) {
            // An error means that the client has gone.
            let _ = order.send(outcome.clone());
        }
        if mem::take(&mut self.again) {
            self.waiting = mem::take(&mut self.waiting_again);
            self.begin(server, Text::New);
        }
    }

    /// Begins another one if something responds or is there again without which the configuration is not complete.
    pub fn begin_if_late(&mut self, server: &Server) {
        self.absent.look(&server.service.absent_roots);
        let is_late = self.absent.have_come || self.late_returns != late_returns();
        if is_late && self.made.is_none() && server.service.is_incomplete() {
            if self.absent.have_come {
                self.absent.reload_begins();
            }
            self.begin(server, Text::Same);
        }
    }

    /// Waits for the new configuration; pending forever when no reload is in progress. Cancel safe.
    pub async fn made(&mut self) -> Result<Made, Refused> {
        let Some(made) = &mut self.made else {
            return future::pending().await;
        };
        let joined = made.await;
        self.made = None;
        let panicked = |_| Err(Refused::Service("the reload panicked".to_owned()));
        joined.unwrap_or_else(panicked)
    }
}

impl Server {
    /// Installs the new configuration, or logs why it failed; then the old one stays.
    ///
    /// # Errors
    /// Why it failed, as lines of text.
    pub fn reload(&mut self, made: Result<Made, Refused>) -> Outcome {
        let swapped = match made {
            Ok(made) => {
                let hidden = made.service.config.hidden.clone();
                self.swap(made).map_err(|error| in_words(&error, &hidden))
            }
            Err(Refused::Service(reason)) => Err(reason),
            Err(Refused::Config(errors)) => {
                Err(errors.render(false) + "the configuration has errors")
            }
        };
        let reason = match swapped {
            Ok(notes) => {
                diagnostics::log(format_args!("configuration reloaded"));
                let notes = notes.iter().take(NOTES_MAX);
                return Ok(notes.map(|note| format!("note: {note}\n")).collect());
            }
            Err(reason) => reason,
        };
        let (before, last) = reason.rsplit_once('\n').unwrap_or(("", &reason));
        for line in before.lines() {
            diagnostics::log(format_args!("{line}"));
        }
        let last = format!("configuration not reloaded, the old one stays: {last}");
        diagnostics::log(format_args!("{last}"));
        let before = before.lines().map(|line| format!("{line}\n"));
        Err(before.collect::<String>() + &last + "\n")
    }

    /// Gives the notes that the configuration before did not have.
    fn swap(&mut self, made: Made) -> io::Result<Vec<String>> {
        let Made {
            service,
            mut bound,
            logs,
        } = made;
        let (config, old) = (&service.config, &self.service.config);
        let admin = self.admin.replacement(config, old)?;

        // Nothing fails from here on: a failed reload changes nothing.
        self.disk.set_open_age_max(config.disk.entry_ttl);
        let mailbox_bytes_max = config.limits.mailbox_memory;
        self.parts.mailboxes.budget.set_max(mailbox_bytes_max);
        let resume_bytes_max = config.limits.resume_memory;
        self.parts.resume.budget.set_max(resume_bytes_max);
        let held_max = self.parts.shares.max(shares::Resource::Files);
        self.parts.shares.set_bounds(&Bounds {
            files: held_max,
            ..Bounds::of_limits(&config.limits)
        });
        let gone = |bound: &mut Bound| !config.listens_on(&bound.configured);
        let close: Vec<_> = self.listening.extract_if(.., gone).collect();
        let service = Arc::new(service);
        self.logs.replace(&service.logs, logs);
        self.send_all(|| Message::Reload {
            service: service.clone(),
            logs: self.logs.logs(&service.logs),
            listen: take_sockets(&mut bound),
            close: close.iter().map(|bound| bound.configured.clone()).collect(),
        });
        self.listening.extend(bound);
        self.admin.replace(admin, &service.config);
        self.status.set_roots(devices_of(&service));
        self.status.set_upstreams(service.upstreams.clone());
        self.status.set_tls(service.tls.clone());
        self.status.set_hidden(service.config.hidden.clone());
        let changes = upstream::describe::changes(&service.upstreams, &self.service.upstreams);
        log_some(changes, "changes of upstreams");
        // Those that were there before are in the log already.
        let before = self.service.config.notes.iter().map(Note::to_string);
        let before: HashSet<_> = before.collect();
        let notes = service.config.notes.iter().map(Note::to_string);
        let notes: Vec<_> = notes.filter(|note| !before.contains(note)).collect();
        log_notes(&notes);
        self.checks = check::start(&service.upstreams);
        compile::follow_certificates(&service, &self.parts);
        self.service = service;
        self.report_unwatched_roots();
        self.report_unused_sockets();
        Ok(notes)
    }
}

/// Looks for absent roots, beside the control thread: they may be on a frozen disk.
struct AbsentRoots {
    look: Option<oneshot::Receiver<bool>>,
    /// One can be opened that could not when the configuration was read. It stays so until a reload has begun with it.
    have_come: bool,
    /// Before the look after a reload: it may be refused again.
    pause: Duration,
    next: Instant,
}

impl Default for AbsentRoots {
    fn default() -> Self {
        Self {
            look: None,
            have_come: false,
            pause: LOOK_INTERVAL,
            next: Instant::now(),
        }
    }
}

impl AbsentRoots {
    /// Takes the outcome of the last look, and begins another one if it is time. Does not wait.
    fn look(&mut self, absent: &[PathBuf]) {
        if absent.is_empty() {
            *self = Self::default();
            return;
        }
        match self.look.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(have_come)) => self.have_come |= have_come,
            Some(Err(TryRecvError::Closed)) | None => {}
        }
        self.look = None;
        if Instant::now() >= self.next && !self.have_come {
            let absent = absent.to_vec();
            // Without a thread, the next call may have one.
            self.look = beside("absent roots", move || {
                absent.iter().any(|root| opens(root))
            })
            .ok();
        }
    }

    /// A reload begins with what has come.
    fn reload_begins(&mut self) {
        self.have_come = false;
        self.next = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(ABSENT_PAUSE_MAX);
    }
}

fn opens(root: &Path) -> bool {
    let opened = patiently(root, |path| Root::open(path, Symlinks::Beneath));
    matches!(opened, Ok(Ok(_)))
}

/// A look at the files of certificates, beside the control thread: they may be on a frozen disk.
#[derive(Default)]
pub struct Looking(Option<oneshot::Receiver<()>>);

impl Looking {
    /// Begins another one, unless one is in progress.
    pub fn begin(&mut self, server: &Server) {
        let mut looking = self.0.iter_mut();
        let is_busy = looking.any(|looking| looking.try_recv() == Err(TryRecvError::Empty));
        let sites = server.service.tls.clone();
        let upstreams = server.service.upstreams.iter();
        let followed = upstreams.filter(|upstream| upstream.follows_tls());
        let followed: Vec<_> = followed.cloned().collect();
        if !is_busy && (sites.is_some() || !followed.is_empty()) {
            // Without a thread, the next look may have one.
            self.0 = beside("certificates", move || {
                sites.iter().for_each(|sites| sites.refresh());
                followed.iter().for_each(|upstream| upstream.refresh_tls());
            })
            .ok();
        }
    }
}
