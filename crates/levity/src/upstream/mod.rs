//! Upstreams: named groups of application servers that requests are proxied to. The
//! [gateway](crate::gateway) sends requests to them.
//!
//! - A *codec* (`codec/`) does no I/O: request in, bytes out; bytes in, events out. There are four
//!   of them.
//! - A [`Connection`](connection::Connection) carries one request to a backend: an `OwnConnection`
//!   with a codec, or a `Stream` of a session over HTTP/2 (`http2/`). It is all that the gateway
//!   knows of protocols.
//! - A *pool* (`pool/`) belongs to one worker. The limits of the configuration are divided among
//!   workers, so no loop waits for another. Workers share the list of backends, replaced as a
//!   whole, and their health, in atomics. A free connection goes to the first waiter that can use
//!   it. Affinity (`carp`, `static`, cookie, header) waits for its backend instead of using
//!   another.
//! - *Names* of hosts are resolved by a thread per upstream (`names.rs`): a resolver reads files
//!   and blocks.

pub mod abandoned;
pub mod backend;
pub mod balance;
pub mod check;
pub mod codec;
mod connect;
pub mod connection;
pub mod describe;
pub mod failure;
mod grip_sig;
#[cfg_attr(not(feature = "http2"), path = "http2/absent.rs")]
mod http2;
pub mod names;
mod own_connection;
pub mod pool;
pub mod proxy;
pub mod sticky;
#[cfg_attr(not(feature = "tls"), path = "absent_tls.rs")]
pub mod tls;
pub mod upstream_request;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use levity_wire::http1;

use crate::loop_core::limit::Limit;
use backend::Backend;
use levity_config::address::Address;
use levity_config::upstream::At;
use levity_telemetry::diagnostics;
use levity_telemetry::mounts::Mounts;
use names::{Found, Lookup, Names, Unresolved};
use tls::BackendTls;

/// Consecutive failures after which the return of a backend is logged although the backend was not ejected.
/// Each failure has a log line of its own, so a shorter outage needs none.
const FAILURES_MIN: u64 = 3;

/// The maximum number of receipts that are being sent at a time; more are dropped.
const RECEIPTS_MAX: usize = 1024;

/// The maximum number of preloaded files that are being opened at a time; more are not opened.
const PRELOADS_MAX: usize = 1024;

/// A named set of backends, shared by all workers.
pub struct Upstream {
    /// Unique in the process, so that a worker never confuses upstreams of two configurations.
    pub number: u32,
    /// Its settings in the configuration.
    pub settings: levity_config::Upstream,
    /// How connections to its backends are encrypted, if they are.
    pub tls: Option<BackendTls>,
    /// Receipts that are being sent.
    pub receipt_limit: Limit,
    /// Preloaded files that are being opened.
    pub preload_limit: Limit,
    found: Arc<Found>,
    names: Option<names::Keeper>,
}

/// Creates the upstreams of a configuration. An upstream of `old` with the same settings is reused; one whose
/// settings have changed passes the health of its backends on. Blocks.
///
/// # Errors
/// As [`Upstream::new`]; at a reload also when a file of `tls` cannot be used that could be before.
pub fn make(
    settings: &[levity_config::Upstream],
    old: Option<&[Arc<Upstream>]>,
) -> io::Result<Vec<Arc<Upstream>>> {
    let one = |settings: &levity_config::Upstream| {
        let mut old = old.into_iter().flatten();
        let old = old.find(|old| old.settings.name == settings.name);
        match old {
            Some(old) if old.settings == *settings => Ok(old.clone()),
            Some(old) => Upstream::after(settings.clone(), old).map(Arc::new),
            None => Upstream::new(settings.clone()).map(Arc::new),
        }
    };
    let made: Vec<_> = settings.iter().map(one).collect::<io::Result<_>>()?;
    check_usable(&made, old)?;
    Ok(made)
}

/// Refuses, at a reload, files of `tls` that cannot be used. While some of before cannot either, there is nothing to keep.
///
/// # Errors
/// When there is such a file; the error names it.
fn check_usable(upstreams: &[Arc<Upstream>], old: Option<&[Arc<Upstream>]>) -> io::Result<()> {
    let is_kept = old.is_some_and(|old| old.iter().all(|old| old.tls_failure().is_none()));
    let mut failures = upstreams
        .iter()
        .filter_map(|one| Some((one, one.tls_failure()?)));
    match failures.next().filter(|_| is_kept) {
        Some((upstream, failure)) => Err(io::Error::other(format!(
            "upstream {}: {failure}",
            upstream.settings.name
        ))),
        None => Ok(()),
    }
}

impl Upstream {
    /// Resolves the names of its backends, and keeps resolving them in a thread until it is dropped. A name
    /// that does not resolve has no backends until it does, so the list of backends may be empty. Blocks.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(settings: levity_config::Upstream) -> io::Result<Self> {
        Self::with_lookup(settings, &[], Arc::new(names::system))
    }

    /// As [`Upstream::new`]. Backends at the same addresses inherit the health of those of `old`; names that
    /// do not resolve now keep the addresses they have in `old`.
    ///
    /// # Errors
    /// The same.
    pub fn after(settings: levity_config::Upstream, old: &Self) -> io::Result<Self> {
        let known = old.backends();
        let new = Self::with_lookup(settings, &known, Arc::new(names::system))?;
        // Only another check would bring back a backend whose check failed.
        if new.settings.check.is_none() {
            let now = Instant::now();
            new.backends().iter().for_each(|backend| {
                backend.set_well(true, now);
            });
        }
        Ok(new)
    }

    /// As [`Upstream::new`], with the backends `known` from before and the resolver `lookup`.
    fn with_lookup(
        settings: levity_config::Upstream,
        known: &[Arc<Backend>],
        lookup: Arc<Lookup>,
    ) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let tls = settings.tls.as_ref();
        let tls = tls.map(|tls| BackendTls::new(tls, settings.protocol));
        let names = Names::look_up(&settings, known, lookup);
        let found = Arc::new(Found {
            backends: ArcSwap::from_pointee(names.backends(known, None)),
            unresolved: ArcSwap::from_pointee(names.unresolved()),
        });
        Ok(Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            names: names.keep(settings.resolve_interval, found.clone())?,
            found,
            tls,
            settings,
            receipt_limit: Limit::new(RECEIPTS_MAX),
            preload_limit: Limit::new(PRELOADS_MAX),
        })
    }

    /// Why files of `tls` cannot be used.
    pub fn tls_failure(&self) -> Option<Arc<String>> {
        self.tls.as_ref()?.failure()
    }

    /// The scheme of URLs at its backends.
    pub fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Whether files of `tls` may have to be read again. Does not block.
    pub fn follows_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(BackendTls::is_to_be_followed)
    }

    /// Reads files of `tls` again that have changed, or could not be used. Blocks.
    pub fn refresh_tls(&self) {
        if let Some(said) = self.tls.as_ref().and_then(BackendTls::refresh) {
            let name = &self.settings.name;
            diagnostics::log(format_args!("upstream {name}: {said}"));
        }
    }

    /// Whether one of its backends has this host and port in the configuration, or the host is the name of
    /// the upstream itself.
    pub fn is_at(&self, host: &[u8], port: u16) -> bool {
        let Ok(host) = http1::host_name(host) else {
            return false;
        };
        let is_own_name = port == 80 && self.settings.name.eq_ignore_ascii_case(&host);
        is_own_name || self.has_backend_at(&host, port)
    }

    /// Whether one of its backends has this port and this host in the configuration. The host is as
    /// [`host_name`](http1::host_name) gives it.
    pub fn has_backend_at(&self, host: &str, port: u16) -> bool {
        self.settings.to.iter().any(|entry| match &entry.at {
            At::Name(name, at) => name.trim_end_matches('.') == host && *at == port,
            at => {
                let mut addresses = at.address().into_iter().chain(at.second_address());
                addresses.any(|address| is_address_of(&address, host, port))
            }
        })
    }

    /// A line for each backend whose Unix socket lies on a remote file system: an event loop resolves its path.
    pub fn remote_sockets(&self, mounts: &Mounts) -> impl Iterator<Item = String> {
        let name = &self.settings.name;
        self.settings.to.iter().filter_map(move |entry| {
            let At::Address(address @ Address::Unix(path)) = &entry.at else {
                return None;
            };
            let mount = mounts.above(path).filter(|mount| mount.is_remote())?;
            Some(format!(
                "upstream {name}: {address} is on {}, and connecting to it may block the event loop; keep sockets on \
                 tmpfs, such as /run",
                mount.file_system
            ))
        })
    }

    /// The current backends. Does not wait.
    pub fn backends(&self) -> Arc<Vec<Arc<Backend>>> {
        self.found.backends.load_full()
    }

    /// Backends whose host names do not resolve at present. Does not wait.
    pub fn unresolved(&self) -> Arc<Vec<Unresolved>> {
        self.found.unresolved.load_full()
    }

    /// Has the names of its backends resolved again, which may have moved; at most once per second. Does not wait.
    pub fn resolve_again(&self) {
        self.names.iter().for_each(names::Keeper::ask);
    }

    /// Records that a request failed through the fault of `backend`. Does not wait.
    ///
    /// The only backend that accepts new clients is never ejected: no other could respond, and an attempt
    /// that may fail is better than none.
    pub fn failed(&self, backend: &Backend, now: Instant, reason: fmt::Arguments<'_>) {
        backend.count_failure(now);
        backend.set_last_failure(reason.to_string(), now);
        let is_other = |other: &Arc<Backend>| other.id != backend.id && !other.drain;
        if !self.found.backends.load().iter().any(is_other) {
            return;
        }
        let (after, period) = (self.settings.fail_after, self.settings.fail_for);
        if backend.failed(now, after, period) {
            backend.set_trouble(reason.to_string());
            let (name, backend) = (&self.settings.name, &backend.name);
            diagnostics::log(format_args!(
                "upstream {name}: backend {backend} is ejected for {period:?}: {reason}"
            ));
        }
    }

    /// Records a response of `backend`. True when this brought the backend back. Does not wait.
    pub fn succeeded(&self, backend: &Backend, now: Instant) -> bool {
        let is_back = backend.succeeded(now);
        let outage = backend.end_outage(now);
        if is_back || outage.is_some_and(|(_, failures)| failures >= FAILURES_MIN) {
            self.log_return(backend, outage);
        }
        is_back
    }

    /// Logs that `backend` responds again, with the result of [`Backend::end_outage`]. Does not wait.
    fn log_return(&self, backend: &Backend, outage: Option<(Duration, u64)>) {
        let (name, backend) = (&self.settings.name, &backend.name);
        match outage {
            Some((lasted, failures)) => diagnostics::log(format_args!(
                "upstream {name}: backend {backend} is back after {lasted:.1?}: {failures} attempts failed"
            )),
            None => diagnostics::log(format_args!("upstream {name}: backend {backend} is back")),
        }
    }
}

/// Whether `address` has this port and this host, which is an IP address, or `localhost` for one of a loopback interface.
pub fn is_address_of(address: &Address, host: &str, port: u16) -> bool {
    let Address::Tcp(address) = address else {
        return false;
    };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse();
    let is_host = ip == Ok(address.ip()) || host == "localhost" && address.ip().is_loopback();
    is_host && address.port() == port
}

#[cfg(test)]
pub(crate) mod tests;
