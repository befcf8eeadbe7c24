//! The streams of a connection that are open.

use std::collections::VecDeque;

use super::priority::Priority;
use super::receive_window::ReceiveWindow;
use super::settings::{STREAM_WINDOW_BYTES, STREAMS_MAX};

/// The number of a stream: odd, and larger than those of all earlier ones of the connection.
pub type StreamId = u32;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The bytes that may still be sent. Negative after the client has made its windows smaller.
    pub send_window: i64,
    /// What the client may still send; `None` after its end. Most requests have no body, and many streams may rest.
    pub body: Option<Box<Body>>,
    /// The response has not ended.
    pub is_local_open: bool,
    pub priority: Priority,
}

/// The rest of a request body.
#[derive(Debug)]
pub(super) struct Body {
    /// What the client may still send.
    pub window: ReceiveWindow,
    /// The rest of Content-Length; `None` without it.
    pub length_left: Option<u64>,
}

impl Body {
    /// A body of which nothing has arrived, with this Content-Length.
    pub fn new(length: Option<u64>) -> Self {
        Self {
            window: ReceiveWindow::new(STREAM_WINDOW_BYTES),
            length_left: length,
        }
    }
}

/// The open streams, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Vec<(StreamId, Stream)>,
    /// The last streams that were reset here: the client may have sent more before it knew.
    ended_here: VecDeque<StreamId>,
}

impl Streams {
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn get(&self, id: StreamId) -> Option<&Stream> {
        let index = self.index(id)?;
        Some(&self.open[index].1)
    }

    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let index = self.index(id)?;
        Some(&mut self.open[index].1)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut().map(|(_, stream)| stream)
    }

    /// Adds a stream, whose number has to be the largest.
    pub fn add(&mut self, id: StreamId, stream: Stream) {
        self.open.push((id, stream));
    }

    pub fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let index = self.index(id)?;
        let (_, stream) = self.open.remove(index);
        Some(stream)
    }

    /// Releases memory if no stream is open.
    pub fn shrink(&mut self) {
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    /// Remembers that `id` was reset here.
    pub fn remember(&mut self, id: StreamId) {
        if self.ended_here.len() == STREAMS_MAX {
            self.ended_here.pop_front();
        }
        self.ended_here.push_back(id);
    }

    /// Whether `id` was reset here, so that the client may not have known it when it sent a frame.
    pub fn was_ended_here(&self, id: StreamId) -> bool {
        self.ended_here.contains(&id)
    }

    fn index(&self, id: StreamId) -> Option<usize> {
        self.open.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}
