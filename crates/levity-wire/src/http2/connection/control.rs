//! Frames of a client about the connection as a whole: SETTINGS, PING and GOAWAY.

use super::input::Expects;
use super::shutdown::{SHUTDOWN_PING, Shutdown};
use super::{Connection, Event, Outcome};
use crate::http2::Failure;
use crate::http2::frame::{self, FrameHeader, flag, kind};

/// The bytes of GOAWAY before its debug data: the last stream and an error code.
const GO_AWAY_BYTES: usize = 8;

impl Connection {
    /// SETTINGS (RFC 9113, 6.5).
    pub(super) fn receive_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Outcome<'static> {
        if header.stream != 0 {
            return Err(Failure::protocol("settings of a stream"));
        }
        if header.has(flag::ACK) {
            return match payload {
                [] => Ok(None),
                _ => Err(Failure::size("an acknowledgement with content")),
            };
        }
        let before = i64::from(self.settings.window);
        self.settings.read(payload)?;
        self.expects = Expects::Frames;
        frame::write(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        let more = i64::from(self.settings.window) - before;
        self.change_send_windows(more)?;
        // Otherwise all wait on: with 128 of them, a client could make much work by small changes.
        let may_send = more > 0 && self.send_window > 0;
        Ok(may_send.then_some(Event::Window { stream: None }))
    }

    /// PING (RFC 9113, 6.7).
    pub(super) fn receive_ping(&mut self, header: FrameHeader, payload: &[u8]) -> Outcome<'static> {
        let content = frame::fixed(payload)?;
        if header.stream != 0 {
            return Err(Failure::protocol("a ping of a stream"));
        }
        if !header.has(flag::ACK) {
            frame::write(&mut self.out, kind::PING, flag::ACK, 0, &content);
        } else if content == SHUTDOWN_PING && self.shutdown == Shutdown::Announced {
            self.end_shutdown();
        }
        Ok(None)
    }

    /// GOAWAY (RFC 9113, 6.8): without effect, because the client may still wait for responses.
    pub(super) fn receive_go_away(header: FrameHeader, payload: &[u8]) -> Outcome<'static> {
        if payload.len() < GO_AWAY_BYTES {
            return Err(Failure::size("an end of a connection that is too short"));
        }
        match header.stream {
            0 => Ok(None),
            _ => Err(Failure::protocol("an end of a stream's connection")),
        }
    }
}
