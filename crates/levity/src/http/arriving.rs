//! A connection whose version of HTTP is not known yet.

use std::rc::Rc;
use std::time::Instant;

use levity_net::{Peer, Timer};
use tokio::sync::OwnedSemaphorePermit;

use crate::loop_core::LoopCore;

/// What a connection has from the time when it is accepted, beside its transport.
pub struct Arriving {
    /// The core of the loop that serves it.
    pub core: Rc<LoopCore>,
    /// Its other end.
    pub peer: Peer,
    /// The time-out for its first request.
    pub timer: Rc<Timer>,
    /// When it was accepted.
    pub accepted: Instant,
    /// Its place among those of the worker.
    pub registration: Registration,
    /// One of the worker's connection slots.
    pub slot: OwnedSemaphorePermit,
}

impl Arriving {
    /// Registers an accepted connection with the worker.
    pub fn new(core: Rc<LoopCore>, peer: Peer, slot: OwnedSemaphorePermit) -> Self {
        let timer = Rc::new(Timer::default());
        core.stats.accepted.add(1);
        Self {
            registration: Registration::new(core.clone(), timer.clone()),
            core,
            peer,
            timer,
            accepted: Instant::now(),
            slot,
        }
    }

    /// A number that no other open connection of the worker has.
    pub fn number(&self) -> usize {
        self.registration.number()
    }
}

/// The place of a timer among those of its worker, until it is dropped.
pub struct Registration {
    core: Rc<LoopCore>,
    number: usize,
}

impl Registration {
    /// Registers `timer`.
    pub fn new(core: Rc<LoopCore>, timer: Rc<Timer>) -> Self {
        let number = core.timers.insert(timer);
        Self { core, number }
    }

    /// A number that no other one of the worker has.
    pub fn number(&self) -> usize {
        self.number
    }

    /// A number that no other one of the process has.
    pub fn number_in_process(&self) -> u64 {
        (self.core.stats.worker() as u64) << 32 | self.number as u64
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.core.timers.remove(self.number);
        self.core.work_ended.notify_one();
    }
}
