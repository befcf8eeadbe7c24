//! Frames of a client about the priority of a stream.

use super::{Connection, Event, Outcome};
use crate::http2::frame::{self, FrameHeader};
use crate::http2::priority::Priority;
use crate::http2::streams::StreamId;
use crate::http2::{ErrorCode, Failure};

impl Connection {
    /// PRIORITY (RFC 9113, 6.3): without effect, but checked as RFC 7540, 5.3.1 demands.
    pub(super) fn receive_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        if header.stream == 0 {
            return Err(Failure::protocol("a priority of no stream"));
        }
        let Ok(payload) = frame::fixed::<5>(payload) else {
            return self.stream_error(header.stream, ErrorCode::FrameSize);
        };
        match depends_on(&payload) == header.stream {
            true => self.stream_error(header.stream, ErrorCode::Protocol),
            false => Ok(None),
        }
    }

    /// PRIORITY_UPDATE (RFC 9218, 7.1). Before the request it is ignored: the Priority header of the request counts.
    pub(super) fn receive_priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        let named = payload.split_first_chunk();
        let (id, value) = named.ok_or(Failure::size("an update of a priority without a stream"))?;
        if header.stream != 0 {
            return Err(Failure::protocol("an update of a priority on a stream"));
        }
        let id = frame::number(*id);
        if id.is_multiple_of(2) {
            return Err(Failure::protocol("a priority of no request"));
        }
        let Some(open) = self.streams.get_mut(id) else {
            return Ok(None);
        };
        open.priority = Priority::stated(value);
        Ok(Some(Event::Priority { stream: id }))
    }
}

/// The stream on which another one depends, by RFC 7540, 6.3.
pub(super) fn depends_on(priority: &[u8; 5]) -> StreamId {
    let [stream @ .., _] = priority;
    frame::number(*stream)
}
