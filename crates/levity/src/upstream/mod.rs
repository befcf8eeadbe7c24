//! Upstreams: applications that answer in place of files.

pub mod answer;
pub mod ask;
pub mod backend;
pub mod balance;
pub mod codec;
pub mod connection;
pub mod failure;
pub mod gateway;
pub mod head;
pub mod http;
pub mod pool;
mod stderr;
pub mod sticky;
pub mod tunnel;
pub mod upload;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;

use crate::config;
use crate::config::upstream::At;
use crate::diagnostics;
use backend::Backend;

/// A named set of backends, shared by all workers.
pub struct Upstream {
    /// Unique in the process, so that a worker never mixes up what two configurations meant.
    pub number: u32,
    /// What the configuration says.
    pub settings: config::Upstream,
    backends: ArcSwap<Vec<Arc<Backend>>>,
}

impl Upstream {
    /// Looks up the names among its backends. May block.
    ///
    /// # Errors
    /// When a name cannot be looked up.
    pub fn new(settings: config::Upstream) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let backends = settings.to.iter().map(|entry| match &entry.at {
            At::Address(address) => Ok(Arc::new(Backend::new(address.clone(), entry))),
            At::Name(..) => Err(io::ErrorKind::Unsupported.into()),
        });
        Ok(Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            backends: ArcSwap::from_pointee(backends.collect::<io::Result<_>>()?),
            settings,
        })
    }

    /// Its backends as of now. Does not wait.
    pub fn backends(&self) -> Arc<Vec<Arc<Backend>>> {
        self.backends.load_full()
    }

    /// A request failed for a reason that is the fault of `backend`, as `reason` tells. Does not wait.
    ///
    /// This never takes out the only backend that new clients can get: nobody else could answer, and
    /// an attempt that may fail is better than none.
    pub fn failed(&self, backend: &Backend, now: Instant, reason: fmt::Arguments<'_>) {
        let is_other = |other: &Arc<Backend>| other.id != backend.id && !other.drain;
        if !self.backends.load().iter().any(is_other) {
            return;
        }
        let (after, period) = (self.settings.fail_after, self.settings.fail_for);
        if backend.failed(now, after, period) {
            let (name, backend) = (&self.settings.name, &backend.name);
            diagnostics::say(format_args!(
                "upstream {name}: backend {backend} is left alone for {period:?}: {reason}"
            ));
        }
    }

    /// `backend` answered. Does not wait.
    pub fn succeeded(&self, backend: &Backend, now: Instant) {
        if backend.succeeded(now) {
            let (name, backend) = (&self.settings.name, &backend.name);
            diagnostics::say(format_args!("upstream {name}: backend {backend} is back"));
        }
    }
}

#[cfg(test)]
mod tests;
