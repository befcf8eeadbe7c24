//! Accept: from a listening socket to a connection on this event loop.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use levity_config::address::Address;
use levity_net::{Listener, ListeningSocket, Peer, Transport};
use levity_telemetry::diagnostics;
use levity_telemetry::stall::Watched;
use levity_telemetry::step::Step;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::{self, JoinHandle};
use tokio::time;

use crate::http::h1::conn::Conn;
use crate::serve::{Begins, serve};
use crate::worker::Worker;

/// The pause when the process or the machine is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

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
                        .push((address, close, task::spawn_local(accepting)));
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
    for (_, close, accepting) in listeners {
        let _ = close.send(());
        // An error means that the task has panicked; it does not listen any more either way.
        let _ = accepting.await;
    }
}

/// Accepts until `closed`. Then accepts the connections in the backlog, because closing a listener resets
/// them.
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
    while time::timeout(Duration::ZERO, accept_one(&worker, &address, &listener))
        .await
        .is_ok()
    {}
}

/// Waits for a slot and then for a connection.
async fn accept_one(worker: &Rc<Worker>, address: &Arc<Address>, listener: &Listener) {
    let slot = worker.slots.clone().acquire_owned().await;
    let slot = slot.expect("the slots are never closed");
    let accepted = listener.accept().await;
    take(worker, address, accepted, slot).await;
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
            peer.set_listener(address.clone());
            let conn = Conn::new(worker.clone(), transport, peer, slot);
            // Read each time, because a reload may have changed it.
            let service = worker.service();
            let begins = Begins {
                with_proxy_header: service.config.has_proxy_header(address),
                with_handshake: service.config.has_tls(address),
            };
            let number = conn.number() as u64;
            task::spawn_local(Watched::new(number, serve(conn, begins)));
        }
        Err(error) if is_shortage(&error) => {
            if worker.give_up_idle().await == 0 {
                worker.stats.accept_pauses.add(1);
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
