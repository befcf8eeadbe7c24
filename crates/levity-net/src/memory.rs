//! A connection in memory, for tests: two ends with a bounded buffer in each direction.
//!
//! It behaves as a Unix stream socket does, except that a reset destroys the bytes on their way, as with TCP. Nothing
//! happens by itself: the same calls in the same order have the same results. Each end keeps one waker for reading
//! and one for writing, those of the last poll.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// One end of a connection in memory. Dropping it closes the connection; if bytes for it are unread, that resets
/// the connection, as with a socket.
#[derive(Debug)]
pub struct MemoryStream {
    directions: Arc<Mutex<[Direction; 2]>>,
    /// The direction in which this end writes; it reads from the other one.
    outgoing: usize,
    resets_on_close: bool,
}

/// The bytes on their way in one direction.
#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// The writer sends no more.
    ended: bool,
    /// The reader is closed.
    closed: bool,
    /// The writer has reset the connection.
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.bytes.is_empty() && !self.ended && !buffer.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(self.bytes.len());
        for (to, from) in buffer.iter_mut().zip(self.bytes.drain(..count)) {
            *to = from;
        }
        if count > 0 {
            wake(&mut self.writer);
        }
        Ok(count)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_writable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.ended || self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let free = self.bytes_max - self.bytes.len();
        let given = slices.iter().flat_map(|slice| slice.iter());
        let before = self.bytes.len();
        self.bytes.extend(given.take(free));
        let count = self.bytes.len() - before;
        if count > 0 {
            wake(&mut self.reader);
        }
        Ok(count)
    }

    /// Whether a write would not wait: it moves bytes, or fails.
    fn is_writable(&self) -> bool {
        self.ended || self.closed || self.bytes.len() < self.bytes_max
    }

    fn wake_all(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Two connected ends; `bytes_max`, at least 1, is the size of the buffer in each direction.
#[must_use]
pub fn pair(bytes_max: usize) -> (MemoryStream, MemoryStream) {
    let directions = [0, 1].map(|_| Direction {
        bytes_max,
        ..Direction::default()
    });
    let directions = Arc::new(Mutex::new(directions));
    let end = |outgoing| MemoryStream {
        directions: Arc::clone(&directions),
        outgoing,
        resets_on_close: false,
    };
    (end(0), end(1))
}

impl MemoryStream {
    fn directions(&self) -> MutexGuard<'_, [Direction; 2]> {
        self.directions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Transport::poll_read`](crate::Transport::poll_read).
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let incoming = &mut self.directions()[1 - self.outgoing];
        let read = incoming.read(buffer);
        ready_or_wait(read, &mut incoming.reader, context)
    }

    /// As [`Transport::poll_append`](crate::Transport::poll_append).
    pub fn poll_append(
        &self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let len = buffer.len();
        buffer.resize(buffer.capacity(), 0);
        let read = self.poll_read(context, &mut buffer[len..]);
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        buffer.truncate(len + count);
        read
    }

    /// As [`Transport::try_read`](crate::Transport::try_read).
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.directions()[1 - self.outgoing].read(buffer)
    }

    /// As [`Transport::poll_write_vectored`](crate::Transport::poll_write_vectored).
    pub fn poll_write_vectored(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outgoing = &mut self.directions()[self.outgoing];
        let written = outgoing.write(slices);
        ready_or_wait(written, &mut outgoing.writer, context)
    }

    /// As [`Transport::poll_write_ready`](crate::Transport::poll_write_ready).
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outgoing = &mut self.directions()[self.outgoing];
        let ready = match outgoing.is_writable() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        ready_or_wait(ready, &mut outgoing.writer, context)
    }

    /// As [`Transport::reset_on_close`](crate::Transport::reset_on_close).
    pub fn reset_on_close(&mut self) {
        self.resets_on_close = true;
    }

    /// As [`Transport::is_closed`](crate::Transport::is_closed).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let directions = self.directions();
        let (incoming, outgoing) = (&directions[1 - self.outgoing], &directions[self.outgoing]);
        incoming.reset || outgoing.closed || (incoming.ended && outgoing.ended)
    }

    /// As [`Transport::end_output`](crate::Transport::end_output).
    pub fn end_output(&self) {
        let outgoing = &mut self.directions()[self.outgoing];
        outgoing.ended = true;
        outgoing.wake_all();
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        let outgoing = self.outgoing;
        let mut directions = self.directions();
        let reset = self.resets_on_close || !directions[1 - outgoing].bytes.is_empty();
        directions[1 - outgoing].closed = true;
        directions[outgoing].ended = true;
        if reset {
            directions[outgoing].reset = true;
            directions[outgoing].bytes.clear();
        }
        directions.iter_mut().for_each(Direction::wake_all);
    }
}

fn ready_or_wait<T>(
    result: io::Result<T>,
    waker: &mut Option<Waker>,
    context: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            *waker = Some(context.waker().clone());
            Poll::Pending
        }
        result => Poll::Ready(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakes::Wakes;

    /// A task that polls one end.
    struct Task {
        wakes: Arc<Wakes>,
        waker: Waker,
    }

    impl Task {
        fn new() -> Self {
            let wakes = Arc::<Wakes>::default();
            let waker = Waker::from(Arc::clone(&wakes));
            Self { wakes, waker }
        }

        fn wakes(&self) -> usize {
            self.wakes.count()
        }

        fn read(&self, end: &MemoryStream, bytes_max: usize) -> Poll<io::Result<Vec<u8>>> {
            let mut bytes = vec![0; bytes_max];
            let read = end.poll_read(&mut Context::from_waker(&self.waker), &mut bytes);
            read.map_ok(|count| bytes[..count].to_vec())
        }

        fn write(&self, end: &MemoryStream, parts: &[&[u8]]) -> Poll<io::Result<usize>> {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            end.poll_write_vectored(&mut Context::from_waker(&self.waker), &slices)
        }

        fn is_writable(&self, end: &MemoryStream) -> bool {
            let ready = end.poll_write_ready(&mut Context::from_waker(&self.waker));
            ready.is_ready()
        }
    }

    #[track_caller]
    fn ready<T>(poll: Poll<io::Result<T>>) -> T {
        match poll {
            Poll::Ready(result) => result.expect("no error"),
            Poll::Pending => panic!("it would wait"),
        }
    }

    #[track_caller]
    fn failed<T: std::fmt::Debug>(poll: Poll<io::Result<T>>) -> io::ErrorKind {
        match poll {
            Poll::Ready(result) => result.expect_err("an error").kind(),
            Poll::Pending => panic!("it would wait"),
        }
    }

    #[test]
    fn bytes_go_both_ways_in_order() {
        let (one, other) = pair(64);
        let task = Task::new();
        assert_eq!(ready(task.write(&one, &[b"ab", b"", b"cd"])), 4);
        assert_eq!(ready(task.write(&other, &[b"xyz"])), 3);
        assert_eq!(ready(task.read(&other, 3)), b"abc");
        assert_eq!(ready(task.read(&other, 3)), b"d");
        assert_eq!(ready(task.read(&one, 3)), b"xyz");
    }

    #[test]
    fn a_reader_waits_for_bytes() {
        let (one, other) = pair(64);
        let (reader, writer) = (Task::new(), Task::new());
        assert!(reader.read(&one, 8).is_pending());
        let tried = one.try_read(&mut [0]).expect_err("nothing has come");
        assert_eq!(tried.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(reader.wakes(), 0);
        ready(writer.write(&other, &[b"a"]));
        assert_eq!(reader.wakes(), 1);
        assert_eq!(ready(reader.read(&one, 8)), b"a");
    }

    #[test]
    fn a_writer_waits_for_room() {
        let (one, other) = pair(3);
        let (reader, writer) = (Task::new(), Task::new());
        assert_eq!(ready(writer.write(&one, &[b"ab", b"cd"])), 3);
        assert!(writer.write(&one, &[b"d"]).is_pending());
        assert!(!writer.is_writable(&one));
        assert_eq!(ready(reader.read(&other, 1)), b"a");
        assert_eq!(writer.wakes(), 1);
        assert!(writer.is_writable(&one));
        assert_eq!(ready(writer.write(&one, &[b"de"])), 1);
        assert_eq!(ready(reader.read(&other, 8)), b"bcd");
        assert_eq!(writer.wakes(), 1);
    }

    #[test]
    fn the_end_of_one_direction_leaves_the_other_open() {
        let (one, other) = pair(64);
        let (reader, writer) = (Task::new(), Task::new());
        ready(writer.write(&one, &[b"last"]));
        assert!(reader.read(&one, 8).is_pending());
        one.end_output();
        assert_eq!(ready(reader.read(&other, 8)), b"last");
        assert_eq!(ready(reader.read(&other, 8)), b"");
        assert_eq!(
            failed(writer.write(&one, &[b"more"])),
            io::ErrorKind::BrokenPipe
        );
        assert!(!one.is_closed() && !other.is_closed());
        assert_eq!(ready(writer.write(&other, &[b"answer"])), 6);
        assert_eq!(ready(reader.read(&one, 8)), b"answer");
        other.end_output();
        assert_eq!(ready(reader.read(&one, 8)), b"");
        assert!(one.is_closed() && other.is_closed());
    }

    #[test]
    fn a_close_ends_reads_and_breaks_writes() {
        let (one, other) = pair(1);
        let (reader, writer) = (Task::new(), Task::new());
        ready(writer.write(&one, &[b"a"]));
        ready(reader.read(&other, 1));
        ready(writer.write(&other, &[b"b"]));
        ready(writer.write(&one, &[b""]));
        drop(other);
        assert!(one.is_closed());
        assert_eq!(ready(reader.read(&one, 8)), b"b");
        assert_eq!(ready(reader.read(&one, 8)), b"");
        assert!(writer.is_writable(&one));
        assert_eq!(
            failed(writer.write(&one, &[b"c"])),
            io::ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn a_close_wakes_who_waits() {
        let (one, other) = pair(1);
        let (reader, writer) = (Task::new(), Task::new());
        ready(writer.write(&one, &[b"a"]));
        assert!(writer.write(&one, &[b"b"]).is_pending());
        assert!(reader.read(&one, 1).is_pending());
        drop(other);
        assert_eq!((reader.wakes(), writer.wakes()), (1, 1));
    }

    #[test]
    fn a_close_with_unread_bytes_resets() {
        let (one, other) = pair(64);
        let task = Task::new();
        ready(task.write(&one, &[b"unread"]));
        ready(task.write(&other, &[b"destroyed"]));
        drop(other);
        assert_eq!(failed(task.read(&one, 64)), io::ErrorKind::ConnectionReset);
        assert!(one.is_closed());
    }

    #[test]
    fn a_reset_can_be_asked_for() {
        let (mut one, other) = pair(64);
        let task = Task::new();
        one.reset_on_close();
        drop(one);
        assert_eq!(
            failed(task.read(&other, 64)),
            io::ErrorKind::ConnectionReset
        );
    }
}
