//! What the service manager is told (`sd_notify(3)`): nothing, unless it has asked for it.

use std::sync::Arc;
use std::time::Duration;

use levity_telemetry::diagnostics;
use sd_notify::NotifyState;
use tokio::time::interval;

use crate::status::heartbeat::Heartbeat;

/// Clients are served, with the configuration as it is.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload has begun. [`ready`] ends it, whatever its outcome is.
pub fn reloading() {
    // systemd 253 and later know by the time which request the reload follows (`Type=notify-reload`).
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify(&states);
}

/// The process is about to end.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// How long it waits for a sign of life; `None` if it does not want one.
pub fn watchdog_time() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|time| !time.is_zero())
}

/// Tells it again and again that the server lives, as long as every loop answers. It has to hear that once in `time_max`.
pub async fn feed(heartbeat: Arc<Heartbeat>, time_max: Duration) {
    let mut ticks = interval(time_max / 4);
    let mut is_silent = false;
    loop {
        ticks.tick().await;
        // Then three quarters of the time are over at most when it is told the next time.
        let silent = heartbeat.silent_loop(time_max / 2);
        if let Some(number) = silent.filter(|_| !is_silent) {
            diagnostics::log(format_args!(
                "event loop {number} has not answered for {:?}: the watchdog of the service manager is not fed",
                time_max / 2
            ));
        }
        is_silent = silent.is_some();
        if !is_silent {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        diagnostics::log(format_args!(
            "the service manager cannot be told of the state of the server: {error}"
        ));
    }
}
