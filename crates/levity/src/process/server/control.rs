//! The control thread: start, signals, reloads and end.

use std::future;
use std::io;
use std::mem;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use levity_net::Inherited;
use levity_telemetry::diagnostics;
use tokio::runtime::Runtime;
use tokio::time::{self, MissedTickBehavior};

use super::beside::beside;
use super::reloading::{LOOK_INTERVAL, Looking, Reloading, Text};
use super::{Server, in_words};
use crate::process::confinement::Confinement;
use crate::process::plan::Plan;
use crate::process::service_manager;
use crate::process::signals::{EarlySignals, SignalOrder, Signals};
use crate::process::system_limits::lacking;
use crate::serve::event_loop::Message;
use crate::tls::parts::Upkeep;
use crate::upstream::check::Checks;

/// Descriptors of which a runtime has fewer.
const RUNTIME_DESCRIPTORS: usize = 8;

/// The delay after which draining is logged.
const DRAIN_REPORT_DELAY: Duration = Duration::from_millis(500);

/// How often the control thread looks for hits of rate limits that no line of the log has counted.
const LIMITS_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The time-out for writing the last log lines.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The time-out for what the store of mailboxes has still to write.
const STORE_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the server until a signal stops it.
pub fn run(plan: Plan, early: EarlySignals) -> ExitCode {
    let hidden = plan.config.hidden.clone();
    match serve(plan, early) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::flush(FINAL_FLUSH_TIMEOUT);
            eprintln!("error: {}", in_words(&error, &hidden));
            ExitCode::FAILURE
        }
    }
}

fn serve(plan: Plan, early: EarlySignals) -> io::Result<()> {
    // It changes the environment, so before there are other threads.
    let inherited = Arc::new(Inherited::take()?);
    let confinement = Confinement::start(&plan.config);
    refuse_huge_pages();
    diagnostics::start().map_err(lacking("no thread for the log"))?;
    let runtime = start_runtime().map_err(lacking("no event loop for the control thread"))?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new(early).map_err(lacking("no handlers of signals"))?;
        let Some(mut server) = start(plan, inherited, confinement, &mut signals).await? else {
            return Ok(());
        };
        server.introduce();
        service_manager::ready();
        let outcome = server.live(&mut signals).await;
        server.end(&mut signals).await;
        outcome
    });
    // Does not wait for a start or a reload that hangs on a frozen disk.
    runtime.shutdown_background();
    outcome
}

fn start_runtime() -> io::Result<Runtime> {
    // tokio panics when it cannot have those of its signals.
    let descriptor = |_| rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0);
    let spare: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(descriptor).collect();
    drop(spare?);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Starts the server beside the control thread, which handles signals meanwhile. `None` when one of them ends it.
async fn start(
    plan: Plan,
    inherited: Arc<Inherited>,
    confinement: Confinement,
    signals: &mut Signals,
) -> io::Result<Option<Server>> {
    let started = beside("start", move || Server::start(plan, inherited, confinement))?;
    tokio::select! {
        started = started => started.map_err(io::Error::other)?.map(Some),
        () = signals.stop() => Ok(None),
    }
}

/// Keeps the heap of each thread from growing by huge pages, for which the allocator asks: 72 disk threads took 2 MiB each
/// for some kilobytes, and a first touch of such a page costs milliseconds where a host has to find the memory. Kernels
/// without the call have huge pages.
fn refuse_huge_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

impl Server {
    /// Feeds the watchdog of the service manager. Never ends.
    fn watchdog_feed(&self) -> impl Future<Output = ()> + use<> {
        let heartbeat = self.status.heartbeat().clone();
        async move {
            match service_manager::watchdog_time() {
                Some(time_max) => service_manager::feed(heartbeat, time_max).await,
                None => future::pending().await,
            }
        }
    }

    async fn live(&mut self, signals: &mut Signals) -> io::Result<()> {
        let mut reloading = Reloading::default();
        let mut ticks = time::interval(LIMITS_LOG_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looking = Looking::default();
        let mut upkeep = Upkeep::default();
        let feeding = self.watchdog_feed();
        tokio::pin!(feeding);
        loop {
            tokio::select! {
                now = ticks.tick() => self.parts.rate_limits.log_rest(now.into_std()),
                event = signals.next() => match event {
                    SignalOrder::Stop => return Ok(()),
                    SignalOrder::Reload => reloading.begin(self, Text::New),
                    SignalOrder::Reopen => self.logs.reopen(),
                },
                _ = looks.tick() => {
                    reloading.begin_if_late(self);
                    looking.begin(self);
                    upkeep.look(&self.parts.tls, self.service.tls.is_some());
                }
                order = self.admin.order() => reloading.begin_for(self, order),
                () = &mut feeding => {}
                made = reloading.made() => {
                    let outcome = self.reload(made);
                    reloading.ended(self, &outcome);
                }
                ended = self.ended.recv() => {
                    return ended.unwrap_or(Ok(())).and_then(|()| {
                        Err(io::Error::other("a worker ended unexpectedly"))
                    });
                }
            }
        }
    }

    /// Drains until all connections have ended and receipts are sent, a second signal arrives, or `limits.drain_timeout` has
    /// passed.
    async fn end(&mut self, signals: &mut Signals) {
        service_manager::stopping();
        self.leave_addresses();
        // A successor may have other authorities.
        self.parts.tls.stop();
        self.send_all(|| Message::Drain);
        let timeout = self.service.config.limits.drain_timeout;
        let (soon, seconds) = (DRAIN_REPORT_DELAY, timeout.as_secs_f64());
        let waiting = async {
            time::sleep(soon).await;
            diagnostics::log(format_args!(
                "waiting up to {seconds} s for responses to end; signal again to end at once"
            ));
            time::sleep(timeout.saturating_sub(soon)).await;
        };
        let drained = async { while self.ended.recv().await.is_some() {} };
        tokio::select! {
            () = drained => {}
            () = waiting => diagnostics::log(format_args!("connections were cut off after limits.drain_timeout")),
            () = signals.stop() => diagnostics::log(format_args!("second signal: ending at once")),
        }
        if let Some(store) = self.mailbox_store.take() {
            store.end(STORE_END_TIMEOUT);
        }
        self.checks = Checks::default();
        self.parts.rate_limits.log_all();
        self.logs.shutdown(FINAL_FLUSH_TIMEOUT);
        // Dropping the disk would wait for reads in flight, on a frozen device forever.
        mem::forget(self.disk.clone());
        // Dropping the pool would wait for idle work, which may wait for a processor.
        mem::forget(self.parts.compute.clone());
        diagnostics::flush(FINAL_FLUSH_TIMEOUT);
    }
}
