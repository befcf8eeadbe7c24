//! The body of a request, on its way to a backend.

use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use levity_wire::http1::Trailers;

use super::failure::Failure;
use super::spooled::{Reading, Spooled};
use super::upstream_request::Length;
use crate::http::request::RequestError;
use crate::http::request_body::RequestBody;
use crate::route::Service;
use crate::worker::Worker;

/// Bytes that are handed over at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Bytes that are written to a file at once; a body that is spooled has so many in memory.
const WRITE_BYTES_MIN: usize = 64 * 1024;

/// A request's body, and how much of it has been handed over.
pub struct Upload {
    /// What is in memory: all that has come, or what is handed over next.
    kept: Vec<u8>,
    /// Of `kept`.
    handed_over: usize,
    /// The rest, as far as the client has not sent it.
    body: RequestBody,
    /// All of it is in `kept`, so that it can be sent once more.
    is_whole: bool,
    /// All of it is in a file, so that it can be sent once more.
    spooled: Option<Spooled>,
    /// How far the file has been read.
    read_bytes: u64,
    reading: Option<Reading>,
}

impl Upload {
    /// Of what the client sends. What has arrived with the header is taken at once if that is all.
    pub fn new(body: RequestBody) -> Result<Self, RequestError> {
        let mut kept = Vec::new();
        body.take_buffered(&mut kept)?;
        Ok(Self {
            kept,
            handed_over: 0,
            is_whole: body.is_complete(),
            body,
            spooled: None,
            read_bytes: 0,
            reading: None,
        })
    }

    /// The client that sends it.
    pub fn client(&self) -> &RequestBody {
        &self.body
    }

    /// Of the whole body.
    pub fn length(&self) -> Length {
        if let Some(spooled) = &self.spooled {
            return Length::Known(spooled.length());
        }
        match (self.body.remaining(), self.kept.len() as u64) {
            (Some(0), 0) => Length::None,
            (Some(left), kept) => Length::Known(left + kept),
            (None, _) => Length::Unknown,
        }
    }

    /// Whether all of it has been handed over.
    pub fn is_done(&self) -> bool {
        let is_read = |spooled: &Spooled| self.read_bytes == spooled.length();
        self.body.is_complete()
            && self.handed_over == self.kept.len()
            && self.spooled.as_ref().is_none_or(is_read)
    }

    /// Whether the client has sent all of it.
    pub fn is_received(&self) -> bool {
        self.body.is_complete()
    }

    /// Whether the client waits for us, or can be asked to.
    pub fn is_unread(&self) -> bool {
        self.body.is_unread()
    }

    /// Starts again from its beginning; false when that is gone.
    pub fn rewind(&mut self) -> bool {
        if self.spooled.is_some() {
            self.kept.clear();
            self.read_bytes = 0;
            self.reading = None;
        }
        self.handed_over = 0;
        self.is_whole || self.spooled.is_some() || self.body.is_unread()
    }

    /// What came behind it.
    pub fn trailers(&self) -> Trailers {
        self.body.trailers()
    }

    /// Receives all of it, so that it can be told how long it is and sent more than once: up to
    /// `limits.body_memory` into memory, what is more into a file. Waits for the client, at most
    /// `limits.body_timeout` for each part, and for the disk.
    pub async fn buffer(&mut self, worker: &Worker, service: &Service) -> Result<(), Failure> {
        let memory_max = service.config.limits.body_memory;
        while !self.body.is_complete() {
            let before = self.kept.len();
            let received = self.body.receive(&mut self.kept).await;
            received.map_err(Failure::of_client)?;
            self.body.timer().clear();
            let fits = self.spooled.is_none() && self.kept.len() <= memory_max;
            if !fits && (self.kept.len() >= WRITE_BYTES_MIN || self.body.is_complete()) {
                let spooled = self.spool(worker, service).await;
                spooled.map_err(|error| Failure::of_spool(&error))?;
            }
            let received = self.kept.len().saturating_sub(before);
            self.body.give_way(received).await;
        }
        self.is_whole = self.spooled.is_none();
        Ok(())
    }

    /// Moves what is in memory to the file.
    async fn spool(&mut self, worker: &Worker, service: &Service) -> io::Result<()> {
        let folder = service.spool.as_ref();
        let folder = folder.ok_or_else(|| io::Error::other("disk.spool could not be opened"))?;
        let spooled = match &mut self.spooled {
            Some(spooled) => spooled,
            none => none.insert(Spooled::create(worker, folder).await?),
        };
        let bytes = mem::take(&mut self.kept);
        spooled.append(worker, bytes).await
    }

    /// Hands over the next bytes, at most `room` of them: none only when there are no more.
    pub fn poll_piece(
        &mut self,
        worker: &Rc<Worker>,
        context: &mut Context<'_>,
        room: usize,
    ) -> Poll<Result<&[u8], Failure>> {
        if self.handed_over == self.kept.len() && !self.is_done() {
            self.kept.clear();
            self.handed_over = 0;
            match self.spooled.is_some() {
                true => ready!(self.poll_read(worker, context))
                    .map_err(|error| Failure::of_spool(&error))?,
                false => ready!(self.body.poll_receive(context, &mut self.kept))
                    .map_err(Failure::of_client)?,
            }
        }
        let rest = &self.kept[self.handed_over..];
        let piece = &rest[..rest.len().min(room).min(PIECE_BYTES_MAX)];
        self.handed_over += piece.len();
        Poll::Ready(Ok(piece))
    }

    /// Reads the next part of the file into memory.
    fn poll_read(
        &mut self,
        worker: &Rc<Worker>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(spooled) = &self.spooled else {
            return Poll::Ready(Ok(()));
        };
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(spooled.read(worker, self.read_bytes)),
        };
        let read = ready!(reading.poll(context));
        self.reading = None;
        self.kept = read?;
        self.read_bytes += self.kept.len() as u64;
        Poll::Ready(Ok(()))
    }
}
