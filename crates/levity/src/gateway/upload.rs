//! The body of a request, on its way to a backend.

use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use levity_wire::http1::Trailers;

use super::spooled::{Reading, Spooled};
use crate::http::gathered::Gathered;
use crate::http::request_body::RequestBody;
use crate::loop_core::LoopCore;
use crate::message::request::RequestError;
use crate::route::Service;
use crate::upstream::failure::Failure;
use crate::upstream::upstream_request::Length;

/// The maximum size of a piece, in bytes.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The minimum size of a write to the file, in bytes. A body that is spooled occupies about as much memory.
const WRITE_BYTES_MIN: usize = 64 * 1024;

/// The start of a body up to which it is kept to be sent again, in bytes. A client over HTTP/2 sends even a small body after the header.
const REPLAYED_BYTES_MAX: usize = PIECE_BYTES_MAX;

/// A request body, and the position up to which it has been taken.
pub struct Upload {
    /// The part in memory: everything that has arrived, or at least the part that is taken next.
    buffer: Gathered,
    /// The bytes of `buffer` that have been taken.
    taken: usize,
    /// The part that the client has not sent yet.
    body: RequestBody,
    /// `buffer` has the body from its first byte on, so that it can be sent again.
    has_start: bool,
    /// The file with the whole body, so that it can be sent again.
    spooled: Option<Spooled>,
    /// The bytes of the file that have been read.
    read_bytes: u64,
    reading: Option<Reading>,
}

impl Upload {
    /// The upload of `body`. A body that has arrived as a whole together with the header is buffered.
    ///
    /// # Errors
    /// When that body is malformed.
    pub fn new(body: RequestBody) -> Result<Self, RequestError> {
        let mut buffer = Gathered::default();
        body.take_buffered(&mut buffer)?;
        Ok(Self::begin(buffer, body))
    }

    /// The upload of `content` while `client` waits, whose own body is absent.
    pub fn of_own(content: &[u8], client: RequestBody) -> Self {
        let mut buffer = Gathered::default();
        buffer.set_part(content.to_vec());
        Self::begin(buffer, client)
    }

    fn begin(buffer: Gathered, body: RequestBody) -> Self {
        Self {
            buffer,
            taken: 0,
            has_start: true,
            body,
            spooled: None,
            read_bytes: 0,
            reading: None,
        }
    }

    /// A handle to the client.
    pub fn client(&self) -> &RequestBody {
        &self.body
    }

    /// The length of the whole body.
    pub fn length(&self) -> Length {
        if let Some(spooled) = &self.spooled {
            return Length::Known(spooled.length());
        }
        match (self.body.remaining(), self.buffer.len() as u64) {
            (Some(0), 0) => Length::None,
            (Some(left), buffered) => Length::Known(left + buffered),
            (None, _) => Length::Unknown,
        }
    }

    /// Whether all of it has been taken.
    pub fn is_done(&self) -> bool {
        let is_read = |spooled: &Spooled| self.read_bytes == spooled.length();
        self.body.is_complete()
            && self.taken == self.buffer.len()
            && self.spooled.as_ref().is_none_or(is_read)
    }

    /// Whether the client has sent all of it.
    pub fn is_received(&self) -> bool {
        self.body.is_complete()
    }

    /// Whether no byte of it has been taken from the client.
    pub fn is_unread(&self) -> bool {
        self.body.is_unread()
    }

    /// Starts again at its beginning; false when the beginning is no longer available.
    pub fn rewind(&mut self) -> bool {
        if self.spooled.is_some() {
            self.buffer.set_part(Vec::new());
            self.read_bytes = 0;
            self.reading = None;
        }
        self.taken = 0;
        self.has_start || self.spooled.is_some()
    }

    /// A response has begun, so it is not sent again. What has been taken is dropped: the response may last for hours.
    pub fn answered(&mut self) {
        self.has_start = false;
        if self.is_done() {
            self.spooled = None;
            self.buffer = Gathered::default();
            self.taken = 0;
        }
    }

    /// Whether it waits for room, and not for the client.
    pub fn waits_for_room(&self) -> bool {
        self.buffer.waits_for_room()
    }

    /// The trailers that followed it.
    pub fn trailers(&self) -> Trailers {
        self.body.trailers()
    }

    /// Receives all of it, so that its length is known and it can be sent more than once: into memory up to
    /// `limits.body_memory` if there is as much, otherwise into a file. Waits for the client, at most `limits.body_timeout` for each
    /// part, and for the disk.
    ///
    /// # Errors
    /// When the client or the disk fails.
    pub async fn buffer(&mut self, core: &LoopCore, service: &Service) -> Result<(), Failure> {
        let memory_max = service.config.limits.body_memory;
        while !self.body.is_complete() {
            let before = self.buffer.len();
            let received = self.body.receive(&mut self.buffer).await;
            self.body.timer().clear();
            let is_short = matches!(received, Err(RequestError::Shortage))
                && !self.buffer.is_empty()
                && service.spool.is_some();
            if !is_short {
                received.map_err(Failure::of_client)?;
            }
            let fits = self.spooled.is_none() && self.buffer.len() <= memory_max;
            let is_due = self.buffer.len() >= WRITE_BYTES_MIN || self.body.is_complete();
            if is_short || (!fits && is_due) {
                self.spool(core, service).await?;
            }
            let received = self.buffer.len().saturating_sub(before);
            self.body.give_way(received).await;
        }
        if let Some(spooled) = &self.spooled {
            // Taken before the request is sent: it could not be held up or refused later.
            let room = spooled.take_room().await;
            self.buffer = Gathered::for_parts(room.map_err(Failure::of_spool)?);
        }
        Ok(())
    }

    /// Moves the part in memory to the file.
    async fn spool(&mut self, core: &LoopCore, service: &Service) -> Result<(), Failure> {
        let folder = service.spool.as_ref();
        let folder = folder.ok_or_else(|| Failure::of_spool("the folder could not be opened"))?;
        let spooled = match &mut self.spooled {
            Some(spooled) => spooled,
            none => {
                let claims = self.body.claims().expect("it has a body");
                let created = Spooled::create(core, folder, claims).await;
                none.insert(created.map_err(Failure::of_spool)?)
            }
        };
        let (bytes, _held) = mem::take(&mut self.buffer).into_parts();
        let appended = spooled.append(core, bytes).await;
        appended.map_err(Failure::of_spool)
    }

    /// Takes the next piece, of at most `room` bytes. It is empty only at the end of the body.
    pub fn poll_piece(
        &mut self,
        core: &Rc<LoopCore>,
        context: &mut Context<'_>,
        room: usize,
    ) -> Poll<Result<&[u8], Failure>> {
        if self.taken == self.buffer.len() && !self.is_done() {
            match self.spooled.is_some() {
                true => ready!(self.poll_read(core, context)).map_err(Failure::of_spool)?,
                false => ready!(self.poll_receive(context)).map_err(Failure::of_client)?,
            }
        }
        let rest = &self.buffer[self.taken..];
        let piece = &rest[..rest.len().min(room).min(PIECE_BYTES_MAX)];
        self.taken += piece.len();
        Poll::Ready(Ok(piece))
    }

    /// Receives the next part. Keeps those before it only if it is near the start, and need not wait for room: uploads that hold some
    /// meanwhile could all wait for each other.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        let is_kept = self.buffer.is_empty()
            || self.buffer.len() <= REPLAYED_BYTES_MAX && self.body.try_room(&mut self.buffer);
        if !self.has_start || !is_kept {
            self.has_start = false;
            self.buffer.clear();
            self.taken = 0;
        }
        self.body.poll_receive(context, &mut self.buffer)
    }

    /// Reads the next part of the file into memory.
    fn poll_read(
        &mut self,
        core: &Rc<LoopCore>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(spooled) = &self.spooled else {
            return Poll::Ready(Ok(()));
        };
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(spooled.read(core, self.read_bytes)),
        };
        let read = ready!(reading.poll(context));
        self.reading = None;
        self.buffer.set_part(read?);
        self.taken = 0;
        self.read_bytes += self.buffer.len() as u64;
        Poll::Ready(Ok(()))
    }
}
