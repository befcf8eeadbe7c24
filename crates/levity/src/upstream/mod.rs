//! Upstreams: applications that answer in place of files.

pub mod answer;
pub mod ask;
pub mod backend;
pub mod codec;
pub mod connection;
pub mod failure;
pub mod gateway;
pub mod head;
pub mod http;
pub mod pool;
mod stderr;
pub mod tunnel;
pub mod upload;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

use crate::config;
use crate::config::upstream::At;
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
}
