//! Accept: from a listening socket to a connection on this event loop.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use levity_config::address::Address;
use levity_net::{BACKLOG, Listener, ListeningSocket, Peer, Transport};
use levity_telemetry::diagnostics;
use levity_telemetry::stall::Watched;
use levity_telemetry::step::Step;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::{self, JoinHandle};
use tokio::time;

use crate::http::h1::conn::Conn;
use crate::loop_core::{self, OLDEST_IDLE_MAX};
use crate::serve::{Begins, serve};
use crate::worker::Worker;

/// The pause when the process or the machine is out of descriptors, and no connection is idle.
const PAUSE: Duration = Duration::from_millis(100);

/// How often a listener without a slot looks whether a connection waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// How long an idle connection that gives way may take before another one has to. Over HTTP/2 its client may send a last request.
const GIVE_WAY_TIME: Duration = Duration::from_secs(1);

/// How long a listener that is being closed waits for slots.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(1);

/// The listeners of one worker.
#[derive(Default)]
pub struct Listeners {
    open: Vec<(Address, oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Listeners {
    /// Starts accepting on `sockets`.
    pub fn add(&mut self, worker: &Rc<Worker>, sockets: Vec<(Address, ListeningSocket)>) {
        for (address, socket) in sockets {
            match Listener::new(socket) {
                Ok(listener) => {
                    let (close, closed) = oneshot::channel();
                    let at = Arc::new(address.clone());
                    let accepting = accept(worker.clone(), at, listener, closed);
                    self.open
                        .push((address, close, loop_core::spawn(accepting)));
                }
                Err(error) => diagnostics::log(format_args!("cannot listen on {address}: {error}")),
            }
        }
    }

    /// Stops accepting on `addresses`.
    pub async fn close(&mut self, addresses: &[Address]) {
        let (closing, kept) = self
            .open
            .drain(..)
            .partition(|(address, ..)| addresses.contains(address));
        self.open = kept;
        end(closing).await;
    }

    /// Stops accepting on all addresses.
    pub async fn close_all(&mut self) {
        end(std::mem::take(&mut self.open)).await;
    }
}

async fn end(listeners: Vec<(Address, oneshot::Sender<()>, JoinHandle<()>)>) {
    let close = |(_, close, accepting): (_, oneshot::Sender<()>, _)| {
        let _ = close.send(());
        accepting
    };
    let closing: Vec<JoinHandle<()>> = listeners.into_iter().map(close).collect();
    for accepting in closing {
        // An error means that the task has panicked; it does not listen any more either way.
        let _ = accepting.await;
    }
}

/// Accepts until `closed`. Then accepts the connections in the backlog, because closing a listener resets
/// them, but not more of them: they could go on coming.
async fn accept(
    worker: Rc<Worker>,
    address: Arc<Address>,
    listener: Listener,
    mut closed: oneshot::Receiver<()>,
) {
    loop {
        tokio::select! {
            () = accept_one(&worker, &address, &listener) => {}
            _ = &mut closed => break,
        }
    }
    let backlog = async {
        for _ in 0..BACKLOG {
            if !listener.has_backlog() {
                return;
            }
            let slot = slot(&worker, &listener).await;
            // An error means that another event loop has taken it from the socket that they share.
            if let Ok(accepted) = time::timeout(Duration::ZERO, listener.accept()).await {
                take(&worker, &address, accepted, slot).await;
            }
        }
    };
    // An error means that the others get no slot in time.
    let _ = time::timeout(CLOSING_TIME_MAX, backlog).await;
}

/// Waits for a connection and a slot for it.
async fn accept_one(worker: &Rc<Worker>, address: &Arc<Address>, listener: &Listener) {
    loop {
        let mut slot = Some(slot(worker, listener).await);
        let accepted = poll_fn(|context| {
            // It has been woken.
            let Some(slot) = slot.take() else {
                return Poll::Ready(None);
            };
            // Without a connection the slot is for other listeners.
            let accepted = ready!(listener.poll_accept(context));
            Poll::Ready(Some((accepted, slot)))
        });
        if let Some((accepted, slot)) = accepted.await {
            return take(worker, address, accepted, slot).await;
        }
    }
}

/// Waits for a slot. Idle connections give way to one that waits to be accepted.
async fn slot(worker: &Rc<Worker>, listener: &Listener) -> OwnedSemaphorePermit {
    // Another event loop may accept it meanwhile.
    let mut wait = LOOK_INTERVAL;
    loop {
        let free = worker.core.slots.clone().acquire_owned();
        if let Ok(slot) = time::timeout(wait, free).await {
            return slot.expect("the slots are never closed");
        }
        wait = match listener.has_backlog() && worker.core.give_up_idle(1).await {
            true => GIVE_WAY_TIME,
            false => LOOK_INTERVAL,
        };
    }
}

async fn take(
    worker: &Rc<Worker>,
    address: &Arc<Address>,
    accepted: io::Result<(Transport, Peer)>,
    slot: OwnedSemaphorePermit,
) {
    Step::Accept.enter();
    match accepted {
        Ok((transport, mut peer)) => {
            // Read each time, because a reload may have changed it.
            let service = worker.service();
            let is_for_publishers = service.config.is_for_publishers(address);
            peer.set_listener(address.clone(), is_for_publishers);
            let conn = Conn::new(worker.core.clone(), transport, peer, slot);
            let begins = Begins {
                with_proxy_header: service.config.has_proxy_header(address),
                with_handshake: service.config.has_tls(address),
            };
            let number = conn.number() as u64;
            task::spawn_local(Watched::new(number, serve(worker.clone(), conn, begins)));
        }
        Err(error) if is_shortage(&error) => {
            // Requests need descriptors as well.
            if worker.core.give_up_idle(OLDEST_IDLE_MAX).await {
                let free = worker.core.slots.available_permits();
                let end = Instant::now() + GIVE_WAY_TIME;
                while worker.core.slots.available_permits() == free && Instant::now() < end {
                    time::sleep(LOOK_INTERVAL).await;
                }
            } else {
                worker.core.stats.accept_pauses.add(1);
                diagnostics::log(format_args!("cannot accept, will try again: {error}"));
                time::sleep(PAUSE).await;
            }
        }
        // The client disconnected before it was accepted.
        Err(_) => {}
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
