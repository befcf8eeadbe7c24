//! Threads that close files.
//!
//! The last close of a deleted file frees its blocks and may wait for the journal; on FUSE it waits
//! for a reply. So a dropped file only hands its descriptor over. A device that freezes holds one
//! thread, and the descriptors of other devices go on being closed by the others.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::lock::lock;

/// One more than the devices that may freeze before closing stops.
const THREADS: usize = 2;

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

/// Present while at least one [`Closer`] is.
struct Current {
    users: usize,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    devices: HashMap<u64, Pending>,
}

#[derive(Default)]
struct Pending {
    fds: Vec<OwnedFd>,
    /// A thread is closing others of the same device.
    busy: bool,
}

/// Closes `fd`, a file on `device`: in a thread where a [`Closer`] exists, at once otherwise.
pub(crate) fn close(device: u64, fd: OwnedFd) {
    let current = lock(&CURRENT);
    let Some(current) = current.as_ref() else {
        drop(current);
        return drop(fd);
    };
    current.queue.push(device, fd);
}

/// Keeps the threads running; they end with the last of these.
#[derive(Debug)]
pub(crate) struct Closer(());

impl Closer {
    /// Starts the threads unless they run. Call it before any guard is installed: threads inherit it.
    pub(crate) fn start() -> io::Result<Closer> {
        let mut current = lock(&CURRENT);
        match current.as_mut() {
            Some(current) => current.users += 1,
            None => *current = Some(Current::start()?),
        }
        Ok(Closer(()))
    }
}

impl Drop for Closer {
    /// Waits, with the last one, until everything handed over is closed.
    fn drop(&mut self) {
        let last = {
            let mut current = lock(&CURRENT);
            current.take_if(|current| {
                current.users -= 1;
                current.users == 0
            })
        };
        if let Some(last) = last {
            last.stop();
        }
    }
}

impl Current {
    fn start() -> io::Result<Current> {
        let mut current = Current {
            users: 1,
            queue: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            match spawn(Arc::clone(&current.queue)) {
                Ok(thread) => current.threads.push(thread),
                Err(error) => {
                    current.stop();
                    return Err(error);
                }
            }
        }
        Ok(current)
    }

    fn stop(self) {
        lock(&self.queue.state).stop = true;
        self.queue.filled.notify_all();
        for thread in self.threads {
            thread.join().expect("closing does not panic");
        }
    }
}

fn spawn(queue: Arc<Queue>) -> io::Result<JoinHandle<()>> {
    let name = "disk-close".to_owned();
    thread::Builder::new().name(name).spawn(move || queue.run())
}

impl Queue {
    fn push(&self, device: u64, fd: OwnedFd) {
        let mut state = lock(&self.state);
        let pending = state.devices.entry(device).or_default();
        pending.fds.push(fd);
        // Whoever is busy with the device, or was woken by the first, takes the rest too.
        if !pending.busy && pending.fds.len() == 1 {
            self.filled.notify_one();
        }
    }

    fn run(&self) {
        while let Some((device, fds)) = self.next() {
            drop(fds);
            self.finish(device);
        }
    }

    /// Everything of one device that nobody is busy with; waits for it. `None` to stop.
    fn next(&self) -> Option<(u64, Vec<OwnedFd>)> {
        let mut state = lock(&self.state);
        loop {
            if let Some((device, pending)) = state.waiting() {
                pending.busy = true;
                return Some((device, mem::take(&mut pending.fds)));
            }
            if state.stop {
                return None;
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, device: u64) {
        let mut state = lock(&self.state);
        let idle = state.devices.get_mut(&device).is_some_and(|pending| {
            pending.busy = false;
            pending.fds.is_empty()
        });
        if idle {
            state.devices.remove(&device);
        }
    }
}

impl State {
    fn waiting(&mut self) -> Option<(u64, &mut Pending)> {
        let waits = |pending: &Pending| !pending.busy && !pending.fds.is_empty();
        let (device, pending) = self.devices.iter_mut().find(|(_, p)| waits(p))?;
        Some((*device, pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_handed_over_gets_closed() {
        let closer = Closer::start().unwrap();
        let second = Closer::start().unwrap();
        for device in [1, 1, 2] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            close(device, theirs.into());
            assert_eq!(ours.read(&mut [0]).unwrap(), 0, "end of stream once closed");
        }
        drop((closer, second));
    }

    #[test]
    fn the_last_closer_closes_what_is_left() {
        let closer = Closer::start().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        close(3, theirs.into());
        drop(closer);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    }
}
