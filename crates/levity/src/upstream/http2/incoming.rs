//! What a stream receives: interim responses, the header section, the body, and trailers.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Response;
use levity_config::upstream::ResponseLimits;
use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::super::codec::Event;
use super::super::failure::Failure;
use super::failure;
use super::head;

/// The size of the largest piece in a frame, in bytes.
const FRAME_BYTES_MAX: usize = 16 * 1024;

const SWITCHED: Reject = Reject {
    status: 502,
    reason: "101, which HTTP/2 does not have",
};

/// A response on its way.
pub enum Incoming {
    /// The request has not been sent.
    None,
    /// Its header section has not arrived. With its limits, and the time from which the caller does not wait for it any more.
    Head(ResponseFuture, ResponseLimits, Option<Instant>),
    /// Its body has not arrived.
    Body(Body),
    /// The stream could not be opened.
    Failed(h2::Error),
    /// The response has ended.
    Ended,
}

/// The body of a response.
pub struct Body {
    stream: RecvStream,
    /// The rest of Content-Length, if there is one.
    left: Option<u64>,
}

/// The number of bytes that were received.
type Received = Poll<(usize, Result<(), Failure>)>;

impl Incoming {
    /// Passes what has arrived to `event`: one of an interim response, the header section, and about `bytes_max` of
    /// the body with its end. Returns the bytes of the body, and at least one
    /// unless nothing of a response has arrived.
    pub fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Received {
        match self {
            Self::None => Poll::Pending,
            Self::Head(response, limits, deadline) => {
                let (limits, deadline) = (*limits, *deadline);
                let arrived = ready!(poll_head(response, context));
                let arrived = arrived.map_err(|error| failure::before_response(&error, deadline));
                let taken = self.take_head(arrived, limits, event);
                Poll::Ready((usize::from(taken.is_ok()), taken))
            }
            Self::Body(_) => self.poll_body(context, bytes_max, event),
            Self::Failed(error) => Poll::Ready((0, Err(failure::before_response(error, None)))),
            Self::Ended => Poll::Ready((0, Ok(()))),
        }
    }

    fn take_head(
        &mut self,
        arrived: Result<Arrived, Failure>,
        limits: ResponseLimits,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Failure> {
        match arrived? {
            Arrived::Interim(response) if response.status() == 101 => {
                return Err(Failure::of_invalid_response(SWITCHED));
            }
            Arrived::Interim(response) => {
                let head =
                    head::response(&response, limits).map_err(Failure::of_invalid_response)?;
                event(Event::Interim(head));
            }
            Arrived::Final(response) => {
                let (parts, stream) = response.into_parts();
                let response = Response::from_parts(parts, ());
                let head =
                    head::response(&response, limits).map_err(Failure::of_invalid_response)?;
                let left = head.length;
                event(Event::Head(head));
                *self = Self::Body(Body { stream, left });
                self.end_if_complete(event);
            }
        }
        Ok(())
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Received {
        let Self::Body(body) = self else {
            return Poll::Pending;
        };
        let mut bytes = 0;
        let outcome = loop {
            match body.stream.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => bytes += body.pass_on(&data, event),
                Poll::Ready(Some(Err(error))) => break Err(error),
                Poll::Ready(None) => match body.stream.poll_trailers(context) {
                    Poll::Ready(Ok(trailers)) => {
                        let trailers = trailers.as_ref().map(head::response_trailers);
                        event(Event::End(trailers.unwrap_or_default()));
                        *self = Self::Ended;
                        return Poll::Ready((bytes.max(1), Ok(())));
                    }
                    Poll::Ready(Err(error)) => break Err(error),
                    Poll::Pending if bytes == 0 => return Poll::Pending,
                    Poll::Pending => break Ok(()),
                },
                Poll::Pending if bytes == 0 => return Poll::Pending,
                Poll::Pending => break Ok(()),
            }
            if bytes + FRAME_BYTES_MAX > bytes_max {
                break Ok(());
            }
        };
        let outcome = outcome.or_else(|error| self.broke_off(&error, event));
        self.end_if_complete(event);
        Poll::Ready((bytes.max(1), outcome))
    }

    /// Handles the end of the stream by `error`. A backend may close its connection right after a response to a request
    /// that it has not read. The library then forgets that the response has ended, but its length tells. A reset after
    /// all bytes remains an error.
    fn broke_off(
        &mut self,
        error: &h2::Error,
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Failure> {
        match self {
            Self::Body(Body { left: Some(0), .. }) if !error.is_reset() => {
                self.end(event);
                Ok(())
            }
            _ => Err(failure::within_response(error)),
        }
    }

    /// Without trailers the end comes with the last bytes.
    fn end_if_complete(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        if matches!(self, Self::Body(body) if body.stream.is_end_stream()) {
            self.end(event);
        }
    }

    fn end(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        *self = Self::Ended;
        event(Event::End(Trailers::default()));
    }
}

/// A header section that has arrived.
enum Arrived {
    Interim(Response<()>),
    Final(Response<RecvStream>),
}

fn poll_head(
    response: &mut ResponseFuture,
    context: &mut Context<'_>,
) -> Poll<Result<Arrived, h2::Error>> {
    if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
        return Poll::Ready(interim.map(Arrived::Interim));
    }
    let response = std::pin::Pin::new(response);
    Future::poll(response, context).map_ok(Arrived::Final)
}

impl Body {
    /// Passes `data` on, and lets the backend send as much more: until then it has no more than its window.
    fn pass_on(&mut self, data: &Bytes, event: &mut dyn FnMut(Event<'_>)) -> usize {
        event(Event::Data(data));
        let bytes = data.len();
        self.left = self.left.map(|left| left.saturating_sub(bytes as u64));
        // Fails only for more than was received.
        let _ = self.stream.flow_control().release_capacity(bytes);
        bytes
    }
}
