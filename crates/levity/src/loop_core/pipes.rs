//! Pipes through which bodies pass from the socket of a backend to that of a client.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::{Duration, Instant};

use levity_disk::Pipe;
use levity_net::TURN_BYTES_MAX;

/// The pipes of a worker.
#[derive(Debug)]
pub struct Pipes {
    /// Empty pipes that no body uses.
    idle: RefCell<Vec<Pipe>>,
    /// How many more may be made.
    unmade: Cell<usize>,
    /// When the kernel refused one.
    refused_at: Cell<Option<Instant>>,
}

/// For how long none is tried after the kernel has refused one.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

impl Pipes {
    /// At most `pipes_max` pipes at a time; none exists yet.
    pub fn new(pipes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            unmade: Cell::new(pipes_max),
            refused_at: Cell::default(),
        })
    }

    /// An empty pipe for as many bytes as a connection may move in a turn. `None` when all are in use, or when the
    /// kernel refuses another one of this size.
    pub fn take(self: &Rc<Self>) -> Option<PipeLease> {
        let pipe = self.idle.borrow_mut().pop().or_else(|| self.make())?;
        Some(PipeLease {
            pipe: Some(pipe),
            pipes: self.clone(),
        })
    }

    fn make(&self) -> Option<Pipe> {
        let unmade = self.unmade.get().checked_sub(1)?;
        // The limits of the system are not tried again for each piece of a body.
        let refused_at = self.refused_at.get();
        if refused_at.is_some_and(|at| at.elapsed() < REFUSAL_TIME) {
            return None;
        }
        let pipe = Pipe::new(TURN_BYTES_MAX).ok();
        match pipe.filter(|pipe| pipe.capacity() >= TURN_BYTES_MAX) {
            Some(pipe) => {
                self.unmade.set(unmade);
                Some(pipe)
            }
            None => {
                self.refused_at.set(Some(Instant::now()));
                None
            }
        }
    }
}

/// A pipe in use. It is kept for others if it is empty at the end, and closed otherwise.
#[derive(Debug)]
pub struct PipeLease {
    /// `Some` until it is dropped.
    pipe: Option<Pipe>,
    pipes: Rc<Pipes>,
}

impl Deref for PipeLease {
    type Target = Pipe;

    fn deref(&self) -> &Pipe {
        self.pipe.as_ref().expect("not dropped")
    }
}

impl DerefMut for PipeLease {
    fn deref_mut(&mut self) -> &mut Pipe {
        self.pipe.as_mut().expect("not dropped")
    }
}

impl Drop for PipeLease {
    fn drop(&mut self) {
        match self.pipe.take().filter(Pipe::is_empty) {
            Some(pipe) => self.pipes.idle.borrow_mut().push(pipe),
            None => self.pipes.unmade.set(self.pipes.unmade.get() + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pipes_are_limited_and_reused() {
        let pipes = Pipes::new(2);
        let (one, other) = (pipes.take(), pipes.take());
        assert!(one.is_some() && other.is_some());
        assert!(pipes.take().is_none());
        drop(other);
        assert!(pipes.take().is_some());
        assert_eq!(pipes.idle.borrow().len(), 1);
    }

    #[test]
    fn a_pipe_with_bytes_is_closed() {
        let pipes = Pipes::new(1);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"bytes").unwrap();
        let mut pipe = pipes.take().unwrap();
        pipe.fill(near.as_fd(), None, 5).unwrap();
        drop(pipe);
        assert!(pipes.idle.borrow().is_empty());
        assert!(pipes.take().is_some_and(|pipe| pipe.is_empty()));
    }
}
