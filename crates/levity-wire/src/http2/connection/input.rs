//! Cuts what a client sends into frames, and passes each one on.

use super::{Connection, Outcome};
use crate::http2::budget;
use crate::http2::frame::{FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use crate::http2::{Failure, PREFACE};

/// The frame that a client has to send next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expects {
    Preface,
    Settings,
    Frames,
}

impl Connection {
    /// The next event in `input`, as [`Connection::next`].
    pub(super) fn next_event<'i>(&mut self, input: &mut &'i [u8]) -> Outcome<'i> {
        loop {
            if self.data.is_some() {
                let event = self.continue_data(input)?;
                if event.is_some() || self.data.is_some() {
                    return Ok(event);
                }
            }
            if self.expects == Expects::Preface && !self.take_preface(input)? {
                return Ok(None);
            }
            let Some(header) = self.frame_header(input)? else {
                return Ok(None);
            };
            let whole = HEADER_BYTES + header.bytes;
            let assembled;
            let payload = if header.kind == kind::DATA {
                // Its content is passed on as it arrives.
                self.skip_header(input);
                &[]
            } else if self.partial.is_empty() && input.len() >= whole {
                let (frame, rest) = input.split_at(whole);
                *input = rest;
                &frame[HEADER_BYTES..]
            } else if self.fill(whole, input) {
                assembled = std::mem::take(&mut self.partial);
                &assembled[HEADER_BYTES..]
            } else {
                return Ok(None);
            };
            let event = self.receive_frame(header, payload)?;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Takes the preface; false if bytes are missing.
    fn take_preface(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        let is_whole = self.fill(PREFACE.len(), input);
        if !PREFACE.starts_with(&self.partial) {
            return Err(Failure::protocol("no preface of HTTP/2"));
        }
        if is_whole {
            self.partial = Vec::new();
            self.expects = Expects::Settings;
        }
        Ok(is_whole)
    }

    /// Moves bytes from `input` to the partial frame until that has `bytes`; false if some are missing.
    fn fill(&mut self, bytes: usize, input: &mut &[u8]) -> bool {
        let missing = bytes.saturating_sub(self.partial.len());
        let (more, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(more);
        *input = rest;
        self.partial.len() >= bytes
    }

    /// Drops the header of a frame, which has arrived.
    fn skip_header(&mut self, input: &mut &[u8]) {
        if self.partial.is_empty() {
            *input = &input[HEADER_BYTES..];
        }
        self.partial = Vec::new();
    }

    /// The header of the next frame, which stays where it is; `None` if bytes are missing.
    fn frame_header(&mut self, input: &mut &[u8]) -> Result<Option<FrameHeader>, Failure> {
        let bytes = match input.first_chunk() {
            Some(bytes) if self.partial.is_empty() => *bytes,
            _ if input.is_empty() && self.partial.is_empty() => return Ok(None),
            _ if self.fill(HEADER_BYTES, input) => {
                *self.partial.first_chunk().expect("it was filled")
            }
            _ => return Ok(None),
        };
        let header = FrameHeader::read(bytes);
        if header.bytes > PAYLOAD_BYTES_MAX {
            return Err(Failure::size("a frame that is too large"));
        }
        let is_expected = match (&self.expects, &self.block) {
            (Expects::Settings, _) => header.kind == kind::SETTINGS && !header.has(flag::ACK),
            (_, Some(block)) => header.kind == kind::CONTINUATION && header.stream == block.stream,
            _ => header.kind != kind::CONTINUATION,
        };
        match is_expected {
            true => Ok(Some(header)),
            false => Err(Failure::protocol("another frame than has to come here")),
        }
    }

    /// Passes a frame on; one of DATA without its payload. Each costs, whatever it is and whatever stream it is on: those of use
    /// earn it back where their use is seen.
    fn receive_frame(&mut self, header: FrameHeader, payload: &[u8]) -> Outcome<'static> {
        self.budget.spend(budget::FRAME)?;
        match header.kind {
            kind::DATA => self.begin_data(header),
            kind::HEADERS => self.receive_headers(header, payload),
            kind::CONTINUATION => self.receive_continuation(header, payload),
            kind::PUSH_PROMISE => Err(Failure::protocol("a promise of a client")),
            kind::WINDOW_UPDATE => self.receive_window_update(header, payload),
            kind::PRIORITY => self.receive_priority(header, payload),
            kind::RST_STREAM => self.receive_reset(header, payload),
            kind::SETTINGS => self.receive_settings(header, payload),
            kind::PING => self.receive_ping(header, payload),
            kind::GOAWAY => Self::receive_go_away(header, payload),
            kind::PRIORITY_UPDATE => self.receive_priority_update(header, payload),
            // Unknown frames are ignored (RFC 9113, 4.1).
            _ => Ok(None),
        }
    }
}
