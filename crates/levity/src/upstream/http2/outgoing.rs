//! What a stream sends: the header section, the body in pieces, and trailers.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use levity_wire::http1::Trailers;

use super::super::codec::EncodeError;
use super::super::upstream_request::{Length, UpstreamRequest};
use super::head;

/// The size of a piece of the body, in bytes. The next one is taken when the backend has made room for all of it.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// A request on its way.
#[derive(Default)]
pub struct Outgoing {
    /// The header section, until it is sent.
    head: Option<Request<()>>,
    /// The body, once the header section is sent.
    stream: Option<SendStream<Bytes>>,
    /// The piece of the body that is not sent.
    data: BytesMut,
    /// The trailers with which the body ends after `data`, until they are sent.
    end: Option<HeaderMap>,
    /// Names of trailers that the client may not send.
    protected: Vec<String>,
}

impl Outgoing {
    /// Encodes the header section of `outgoing`.
    pub fn begin(&mut self, outgoing: &UpstreamRequest<'_>) -> Result<(), EncodeError> {
        self.head = Some(head::request(outgoing)?);
        if outgoing.length != Length::None {
            self.protected = outgoing.protected_in_trailers();
        }
        Ok(())
    }

    /// How many bytes of the body are taken now.
    pub fn room(&self) -> usize {
        match self.data.is_empty() {
            true => PIECE_BYTES_MAX,
            false => 0,
        }
    }

    /// Takes a piece of the body.
    pub fn body(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    /// Takes the end of the body.
    pub fn end_of_body(&mut self, trailers: &Trailers) {
        self.end = Some(head::request_trailers(trailers, &self.protected));
    }

    /// Whether something is left to send.
    pub fn has_unsent(&self) -> bool {
        self.head.is_some() || !self.data.is_empty() || self.end.is_some()
    }

    /// Drops what is left to send.
    pub fn drop_unsent(&mut self) {
        self.head = None;
        self.data.clear();
        self.end = None;
    }

    /// Opens the stream, if that has not been done: sends the header section, and returns the response to come.
    ///
    /// # Errors
    /// When the connection takes no more streams.
    pub fn open(
        &mut self,
        connection: &mut SendRequest<Bytes>,
    ) -> Result<Option<ResponseFuture>, h2::Error> {
        let Some(head) = self.head.take() else {
            return Ok(None);
        };
        let ends = self.data.is_empty() && self.ends_without_trailers();
        let (response, stream) = connection.send_request(head, ends)?;
        if ends {
            self.end = None;
        }
        self.stream = Some(stream);
        Ok(Some(response))
    }

    fn ends_without_trailers(&self) -> bool {
        self.end.as_ref().is_some_and(HeaderMap::is_empty)
    }

    /// Sends as much of the piece as the backend takes now, or the end. Returns the number of bytes.
    ///
    /// # Errors
    /// When the backend has ended the stream.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.data.is_empty() {
            return Poll::Ready(self.send_end().map_err(io::Error::other).map(|()| 0));
        }
        let room = ready!(self.poll_room(context))?;
        let piece = self.data.split_to(room.min(self.data.len()));
        let ends = self.data.is_empty() && self.ends_without_trailers();
        if ends {
            self.end = None;
        }
        let count = piece.len();
        let sent = self.stream()?.send_data(piece.freeze(), ends);
        Poll::Ready(sent.map_err(io::Error::other).map(|()| count))
    }

    /// Waits until the backend and the connection have room for at least a byte of the piece.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wanted = self.data.len();
        let stream = self.stream()?;
        stream.reserve_capacity(wanted);
        loop {
            // A poll reports changes only.
            match stream.capacity() {
                0 => match ready!(stream.poll_capacity(context)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                    None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                },
                room => return Poll::Ready(Ok(room)),
            }
        }
    }

    fn send_end(&mut self) -> Result<(), h2::Error> {
        let (Some(trailers), Some(stream)) = (self.end.take(), &mut self.stream) else {
            return Ok(());
        };
        match trailers.is_empty() {
            true => stream.send_data(Bytes::new(), true),
            false => stream.send_trailers(trailers),
        }
    }

    fn stream(&mut self) -> io::Result<&mut SendStream<Bytes>> {
        let stream = self.stream.as_mut();
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}
