//! A reader that stays for what comes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use levity_wire::durable_streams::Start;
use levity_wire::mailbox::Cursor;

use super::protocol::{ReadResult, StreamError};
use super::streams::{CLOSED, Streams};
use crate::copies::Feed;
use crate::kept::Next;
use crate::name::Name;
use crate::stream_state::Refused;

/// A reader that stays.
///
/// It gets what comes from the copy of the event loop. What came before the copy was there, and what the copy has dropped
/// before it was read, is read from the store.
pub struct Tail {
    streams: Streams,
    name: Name,
    feed: Feed,
    bytes_max: usize,
    is_open: bool,
    is_removed: bool,
    /// What was read last.
    last: ReadResult,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<ReadResult, StreamError>>>>;

impl Streams {
    /// A reader who has `last`, and gets about `bytes_max` bytes at a time.
    ///
    /// # Errors
    /// If there are too many.
    pub fn follow(
        &self,
        name: &Name,
        last: ReadResult,
        bytes_max: usize,
    ) -> Result<Tail, StreamError> {
        let feed = self
            .copies
            .subscribe(name, &self.settings, Some(Cursor::New));
        Ok(Tail {
            streams: self.clone(),
            name: name.clone(),
            feed: feed.ok_or(StreamError::TooManyReceivers)?,
            bytes_max,
            is_open: false,
            is_removed: false,
            last,
            reading: None,
        })
    }
}

impl Tail {
    /// What was read last, without its content.
    #[must_use]
    pub fn into_last(self) -> ReadResult {
        self.last
    }

    /// What comes next: content, or the end of the stream.
    ///
    /// # Errors
    /// Why it cannot be read any more.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        now: SystemTime,
    ) -> Poll<Result<ReadResult, StreamError>> {
        loop {
            if self.is_open && self.reading.is_none() && !self.last.is_up_to_date {
                self.read_again(now);
            }
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(context));
                self.reading = None;
                let read = read?;
                if self.is_removed {
                    return Poll::Ready(Err(Refused::Unknown.into()));
                }
                self.note(&read);
                if !read.pieces.is_empty() || read.is_closed {
                    return Poll::Ready(Ok(read));
                }
                continue;
            }
            if !self.is_open {
                ready!(self.feed.poll_open(context))?;
                self.is_open = true;
                self.read_again(now);
                continue;
            }
            match ready!(self.poll_feed(context, now))? {
                Some(read) => {
                    self.note(&read);
                    return Poll::Ready(Ok(read));
                }
                None => self.read_again(now),
            }
        }
    }

    /// What the copy has; `None` if it lacks something.
    fn poll_feed(
        &mut self,
        context: &mut Context<'_>,
        now: SystemTime,
    ) -> Poll<Result<Option<ReadResult>, StreamError>> {
        let mut read = self.nothing();
        let mut bytes = 0;
        while !read.is_closed && bytes < self.bytes_max {
            let next = match read.pieces.is_empty() {
                true => ready!(self.feed.poll_next(context, now)),
                false => match self.feed.next(now) {
                    Some(next) => next,
                    None => break,
                },
            };
            match next {
                Next::Message(entry) if entry.message.id.sequence > read.next.position => {
                    let draft = &entry.message.draft;
                    read.is_closed = &*draft.event == CLOSED;
                    if !draft.content.is_empty() {
                        bytes += draft.content.len();
                        read.next.position = entry.message.id.sequence;
                        read.pieces.push(entry.message.clone());
                    }
                }
                Next::Message(_) => {}
                // What was taken so far is read again.
                Next::Gap(_) => return Poll::Ready(Ok(None)),
                // It may have forks.
                Next::Removed => {
                    self.is_removed = true;
                    return Poll::Ready(Ok(None));
                }
                Next::Failed(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(Some(read)))
    }

    fn read_again(&mut self, now: SystemTime) {
        let (streams, name) = (self.streams.clone(), self.name.clone());
        let (start, bytes_max) = (Start::At(self.last.next), self.bytes_max);
        let reading = async move { streams.read(&name, start, bytes_max, now).await };
        self.reading = Some(Box::pin(reading));
    }

    fn note(&mut self, read: &ReadResult) {
        self.last = read.without_content();
    }

    fn nothing(&self) -> ReadResult {
        ReadResult {
            start: self.last.next,
            is_up_to_date: true,
            is_closed: false,
            ..self.last.without_content()
        }
    }
}
