//! A body that is made while it is sent: an async function writes it, piece by piece.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use levity_telemetry::access_log::{End, Source};
use levity_telemetry::trace::Trace;
use levity_wire::http1::Trailers;
use tokio::task;

use crate::http::error::from_io;
use crate::http::response::{BodyStream, Piece, PieceLimits, Response, SourceFailure, StreamError};
use crate::loop_core::LoopCore;

/// The size from which on written bytes are passed on, in bytes. It bounds the time of one turn of the writer, and the
/// memory per client.
pub const PIECE_BYTES: usize = 16 * 1024;

/// The size of the buffer for a piece: what a writer adds to almost [`PIECE_BYTES`] is rarely longer.
const BUFFER_BYTES: usize = PIECE_BYTES + 2048;

/// What an async function writes.
type Writing = Pin<Box<dyn Future<Output = Result<(), StreamError>>>>;

/// Written bytes on their way to the client.
type Slot = Rc<RefCell<Vec<u8>>>;

/// The end at which a body is written.
pub struct Output {
    /// The bytes that follow those that were passed on.
    pub bytes: Vec<u8>,
    slot: Slot,
}

impl Output {
    /// Passes the bytes on if there are [`PIECE_BYTES`]. Then waits until the client has taken them, and lets other
    /// connections have their turn.
    pub async fn flush_if_full(&mut self) {
        if self.bytes.len() >= PIECE_BYTES {
            self.flush().await;
        }
    }

    /// Passes the bytes on, if there are any, and waits in the same way.
    pub async fn flush(&mut self) {
        let rest = Vec::with_capacity(BUFFER_BYTES);
        self.slot.replace(mem::replace(&mut self.bytes, rest));
        // The body is polled again once the client has taken the bytes: no waker is needed.
        poll_fn(|_| match self.slot.borrow().is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        task::yield_now().await;
    }
}

/// The body that the function writes.
pub struct Generated {
    writing: Option<Writing>,
    slot: Slot,
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generated")
    }
}

impl Generated {
    /// The body that `write` makes. It runs only as far as the client takes what it writes.
    pub fn new<F>(write: impl FnOnce(Output) -> F) -> Self
    where
        F: Future<Output = Result<Output, StreamError>> + 'static,
    {
        let slot = Slot::default();
        let output = Output {
            bytes: Vec::with_capacity(BUFFER_BYTES),
            slot: slot.clone(),
        };
        let (writing, rest) = (write(output), slot.clone());
        let writing = async move {
            let output = writing.await?;
            rest.replace(output.bytes);
            Ok(())
        };
        Self {
            writing: Some(Box::pin(writing)),
            slot,
        }
    }

    /// Waits for the whole body, if it has at most `bytes_max` bytes. Otherwise for so much of it, which is sent first.
    ///
    /// # Errors
    /// The error of the function.
    pub async fn gather(mut self, bytes_max: usize) -> Result<Gathered, StreamError> {
        let mut gathered = Vec::new();
        while gathered.len() <= bytes_max {
            let piece = poll_fn(|context| self.poll_bytes(context)).await?;
            gathered.extend_from_slice(&piece);
            if self.writing.is_none() && gathered.len() <= bytes_max {
                return Ok(Gathered::Whole(gathered));
            }
        }
        self.slot.replace(gathered);
        Ok(Gathered::Start(self))
    }

    /// Some bytes; at the end there may be none.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, StreamError>> {
        if self.slot.borrow().is_empty()
            && let Some(writing) = &mut self.writing
        {
            match writing.as_mut().poll(context) {
                Poll::Ready(result) => {
                    self.writing = None;
                    result?;
                }
                Poll::Pending if self.slot.borrow().is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(self.slot.take()))
    }
}

/// The result of [`Generated::gather`].
pub enum Gathered {
    /// All of the body.
    Whole(Vec<u8>),
    /// A body that is longer.
    Start(Generated),
}

impl BodyStream for Generated {
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        limits: PieceLimits,
    ) -> Poll<Result<Piece, StreamError>> {
        let mut bytes = match self.poll_bytes(context) {
            Poll::Ready(bytes) => bytes?,
            Poll::Pending => return Poll::Pending,
        };
        if bytes.is_empty() {
            return Poll::Ready(Ok(Piece::End(Trailers::default())));
        }
        if bytes.len() > limits.bytes_max {
            self.slot.replace(bytes.split_off(limits.bytes_max));
        }
        let is_last = self.writing.is_none() && self.slot.borrow().is_empty();
        Poll::Ready(Ok(Piece::Data { bytes, is_last }))
    }

    fn poll_upload(&mut self, _: &mut Context<'_>) -> Result<(), StreamError> {
        Ok(())
    }

    fn discard(self: Box<Self>) {}

    fn source(&self) -> Source {
        Source::None
    }
}

/// The disk failed while the body was written.
pub struct Unreadable {
    error: io::Error,
    path: Vec<u8>,
    core: Rc<LoopCore>,
}

impl Unreadable {
    /// The response for `path` failed with `error`.
    pub fn boxed(error: io::Error, path: &[u8], core: &Rc<LoopCore>) -> StreamError {
        Box::new(Self {
            error,
            path: path.to_vec(),
            core: core.clone(),
        })
    }
}

impl fmt::Debug for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl SourceFailure for Unreadable {
    fn end(&self) -> End {
        End::Error
    }

    fn response(&self) -> Response {
        from_io(&self.error)
    }

    fn report(&self, _: bool, _: &mut Trace) {
        let path = String::from_utf8_lossy(&self.path);
        let error = &self.error;
        self.core
            .disk_failed(error, || format!("cannot read {path}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn piece(body: &mut Generated, bytes_max: usize) -> Poll<Result<Piece, StreamError>> {
        let limits = PieceLimits {
            bytes_max,
            may_splice: false,
        };
        body.poll_piece(&mut Context::from_waker(Waker::noop()), limits)
    }

    /// The sizes of all pieces, and in how many turns they came.
    fn pieces(body: &mut Generated, bytes_max: usize) -> (Vec<usize>, usize) {
        let (mut sizes, mut waits) = (Vec::new(), 0);
        loop {
            match piece(body, bytes_max) {
                Poll::Pending => waits += 1,
                Poll::Ready(Ok(Piece::Data { bytes, is_last })) => {
                    sizes.push(bytes.len());
                    if is_last {
                        return (sizes, waits);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn of_rows(rows: usize) -> Generated {
        Generated::new(move |mut output| async move {
            for _ in 0..rows {
                output.bytes.extend_from_slice(&[b'x'; 1000]);
                output.flush_if_full().await;
            }
            Ok(output)
        })
    }

    #[test]
    fn a_long_body_comes_in_pieces_with_a_turn_each() {
        let (sizes, waits) = pieces(&mut of_rows(100), usize::MAX);
        assert_eq!(sizes, [17_000, 17_000, 17_000, 17_000, 17_000, 15_000]);
        assert_eq!(waits, 5);
    }

    #[test]
    fn a_piece_is_cut_at_its_limit() {
        let (sizes, _) = pieces(&mut of_rows(20), 10_000);
        assert_eq!(sizes, [10_000, 7000, 3000]);
    }

    /// Otherwise a client that takes nothing would hold all of the body.
    #[test]
    fn nothing_is_written_ahead() {
        let written = Rc::new(RefCell::new(0));
        let counted = written.clone();
        let mut body = Generated::new(|mut output| async move {
            loop {
                *counted.borrow_mut() += 1;
                output.bytes.extend_from_slice(&[0; PIECE_BYTES]);
                output.flush_if_full().await;
            }
        });
        assert!(piece(&mut body, usize::MAX).is_ready());
        assert_eq!(*written.borrow(), 1);
        while piece(&mut body, usize::MAX).is_pending() {}
        assert_eq!(*written.borrow(), 2);
    }

    #[test]
    fn an_empty_body_and_an_empty_end() {
        let mut empty = Generated::new(|output| async { Ok(output) });
        let end = piece(&mut empty, 10);
        assert!(matches!(end, Poll::Ready(Ok(Piece::End(_)))), "{end:?}");
        let mut full = Generated::new(|mut output| async {
            output.bytes.push(b'x');
            output.flush().await;
            Ok(output)
        });
        let first = piece(&mut full, 10);
        let is_last = matches!(first, Poll::Ready(Ok(Piece::Data { is_last: true, .. })));
        assert!(first.is_ready() && !is_last);
        while piece(&mut full, 10).is_pending() {}
        assert!(matches!(
            piece(&mut full, 10),
            Poll::Ready(Ok(Piece::End(_)))
        ));
    }

    #[test]
    fn a_short_body_is_gathered_and_a_long_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        runtime.block_on(async {
            let Ok(Gathered::Whole(bytes)) = of_rows(30).gather(30_000).await else {
                panic!("30 000 bytes are not more than 30 000");
            };
            assert_eq!(bytes.len(), 30_000);
            let Ok(Gathered::Start(mut rest)) = of_rows(31).gather(30_000).await else {
                panic!("31 000 bytes are more than 30 000");
            };
            assert_eq!(
                pieces(&mut rest, usize::MAX).0.iter().sum::<usize>(),
                31_000
            );
        });
    }
}
