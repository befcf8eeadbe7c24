//! The signals that control the process.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::{SigId, flag, low_level};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a process is asked for before it has an event loop. By default these signals would end it.
#[derive(Debug)]
pub struct EarlySignals {
    reload: EarlySignal,
    reopen: EarlySignal,
}

#[derive(Debug)]
struct EarlySignal {
    id: SigId,
    is_raised: Arc<AtomicBool>,
}

impl EarlySignals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// Those of `sigaction`.
    pub fn handle() -> io::Result<Self> {
        Ok(Self {
            reload: EarlySignal::handle(SignalKind::hangup())?,
            reopen: EarlySignal::handle(SignalKind::user_defined1())?,
        })
    }
}

impl EarlySignal {
    fn handle(kind: SignalKind) -> io::Result<Self> {
        let is_raised = Arc::default();
        let id = flag::register(kind.as_raw_value(), Arc::clone(&is_raised))?;
        Ok(Self { id, is_raised })
    }

    /// Whether the signal has come. Others handle it from now on.
    fn end(self) -> bool {
        low_level::unregister(self.id);
        self.is_raised.load(Ordering::Acquire)
    }
}

/// The signals that control the process.
pub struct Signals {
    stops: Stops,
    reload: Signal,
    reopen: Signal,
    /// What came early.
    has_to_reload: bool,
    has_to_reopen: bool,
}

struct Stops {
    terminate: Signal,
    interrupt: Signal,
    /// nginx ends gracefully by it, and scripts and images that were made for it send it.
    quit: Signal,
}

/// What the process is asked for.
pub enum SignalOrder {
    /// To end.
    Stop,
    /// To read the configuration again.
    Reload,
    /// To open the logs again.
    Reopen,
}

impl Signals {
    /// Handles the signals from now on; those in `early` come first. Within a runtime.
    ///
    /// # Errors
    /// Those of `sigaction`.
    pub fn new(early: EarlySignals) -> io::Result<Self> {
        let (reload, reopen) = (
            signal(SignalKind::hangup())?,
            signal(SignalKind::user_defined1())?,
        );
        Ok(Self {
            stops: Stops {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                quit: signal(SignalKind::quit())?,
            },
            reload,
            reopen,
            has_to_reload: early.reload.end(),
            has_to_reopen: early.reopen.end(),
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalOrder {
        if mem::take(&mut self.has_to_reload) {
            return SignalOrder::Reload;
        }
        if mem::take(&mut self.has_to_reopen) {
            return SignalOrder::Reopen;
        }
        tokio::select! {
            () = self.stops.next() => SignalOrder::Stop,
            _ = self.reload.recv() => SignalOrder::Reload,
            _ = self.reopen.recv() => SignalOrder::Reopen,
        }
    }

    /// Waits for a signal that ends the process. Others stay for [`Self::next`].
    pub async fn stop(&mut self) {
        self.stops.next().await;
    }
}

impl Stops {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
            _ = self.quit.recv() => (),
        }
    }
}
