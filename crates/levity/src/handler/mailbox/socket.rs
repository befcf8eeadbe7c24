//! The connection of a receiver over WebSocket: what the client sends, and the closing handshake.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levity_mailbox::{Encoded, Making, Place};
use levity_telemetry::access_log::End;
use levity_telemetry::stall;
use levity_wire::websocket::input::{Input, Received};
use levity_wire::websocket::{CLOSE_REASON_BYTES_MAX, Opcode, Violation, frame};

use crate::handler::mailbox::receiver_clock::{Ending, Transit};
use crate::http::held::HeldClient;

/// The code with which a receiver is closed that was too slow.
pub const GAP: u16 = 4404;

/// A message of a client, which has no receiver.
const MESSAGE: Violation = Violation {
    code: 1003,
    reason: "a mailbox takes no messages from a WebSocket",
};

/// The size of a read in bytes. Clients send little.
const READ_BYTES: usize = 1024;

/// The number of reads before others have their turn.
const READS_MAX: usize = 16;

/// How long a client may take to answer a Close frame.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// The state of a socket.
#[derive(Default)]
pub struct Socket {
    input: Input,
    /// Compression has been negotiated.
    pub is_compressed: bool,
    /// The answer to the last Ping.
    pong: Option<Vec<u8>>,
    /// When the Ping was sent since which nothing has come from the client.
    pinged_at: Option<Instant>,
    /// A message that is being compressed.
    awaited: Option<Awaited>,
    closing: Closing,
    /// The code and the reason that a publisher has given for the end.
    given: Option<(u16, String)>,
}

struct Awaited {
    making: Rc<Making>,
    place: Place,
    message: Transit,
}

/// How far the closing handshake is.
#[derive(Default)]
enum Closing {
    /// It has not begun.
    #[default]
    Open,
    /// A Close frame is to be sent, and nothing more is expected from the client.
    Final(u16, &'static str),
    /// It has been sent, and the client has until then to answer.
    Sent(Instant),
    /// Both have sent theirs, or the client has violated the protocol.
    Done,
}

impl Socket {
    /// Behind the opening handshake.
    pub fn new(is_compressed: bool) -> Self {
        Self {
            input: Input::new(is_compressed),
            is_compressed,
            ..Self::default()
        }
    }

    /// Reads what the client has sent. `Some` if it has gone.
    pub fn receive(&mut self, client: &dyn HeldClient, context: &mut Context<'_>) -> Option<End> {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            // What follows has no meaning. It is dropped when the connection ends.
            if matches!(self.closing, Closing::Final(..) | Closing::Done) {
                return None;
            }
            let count = match client.stream().poll_read(context, &mut buffer) {
                Poll::Pending => return None,
                Poll::Ready(Ok(count)) if count > 0 => count,
                Poll::Ready(_) => {
                    return Some(match self.closing {
                        Closing::Sent(_) => End::Complete,
                        _ => End::ClientAbort,
                    });
                }
            };
            self.pinged_at = None;
            if let Err(violation) = self.take(&buffer[..count]) {
                self.closing = match self.closing {
                    Closing::Sent(_) => Closing::Done,
                    _ => Closing::Final(violation.code, violation.reason),
                };
            }
        }
        context.waker().wake_by_ref();
        None
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        let is_open = matches!(self.closing, Closing::Open);
        while let Some(received) = self.input.next(&mut bytes)? {
            match received {
                // A client may have sent it before it knew.
                Received::Data if !is_open => {}
                Received::Data => return Err(MESSAGE),
                Received::Ping(content) => self.pong = Some(content),
                Received::Pong => {}
                // It is answered by the same code, which ends the connection as a violation does.
                Received::Close(code) => {
                    let (code, reason) = (code.unwrap_or(1000), "");
                    return Err(Violation { code, reason });
                }
            }
        }
        Ok(())
    }

    /// Whether the connection is about to end.
    pub fn is_closing(&self) -> bool {
        !matches!(self.closing, Closing::Open)
    }

    /// The answer to a Ping, if one is due.
    pub fn take_pong(&mut self) -> Option<Vec<u8>> {
        let is_open = matches!(self.closing, Closing::Open);
        let content = self.pong.take().filter(|_| is_open)?;
        Some(frame(Opcode::Pong, false, &content))
    }

    /// Has the stream [end](Ending::Finished) with this code and reason.
    pub fn end_with(&mut self, given: (u16, String)) {
        self.given = Some(given);
    }

    /// The Close frame that has to be sent now, if any; `ending` is why the server ends.
    pub fn take_close(&mut self, ending: Option<Ending>) -> Option<Vec<u8>> {
        match (&self.closing, ending) {
            (&Closing::Final(code, reason), _) => {
                self.closing = Closing::Done;
                Some(close(code, reason))
            }
            (Closing::Open, Some(ending)) => {
                self.closing = Closing::Sent(stall::poll_start() + CLOSE_TIME_MAX);
                Some(match ending {
                    Ending::Removed => close(1000, "the mailbox was removed"),
                    Ending::Finished => match self.given.take() {
                        Some((code, reason)) => close(code, &reason),
                        None => close(1000, "the stream has ended"),
                    },
                    Ending::Leaving => close(1001, "come back"),
                    Ending::Failed => close(1011, "the store failed"),
                    Ending::Truncated => close(1011, "the stream is cut short"),
                    Ending::Gap(before) => close(GAP, &before.to_string()),
                })
            }
            _ => None,
        }
    }

    /// Ready when the closing handshake is over.
    pub fn poll_closed(&self, client: &dyn HeldClient, context: &mut Context<'_>) -> Poll<End> {
        if let Closing::Sent(deadline) = self.closing
            && stall::poll_start() < deadline
        {
            client.timer().set(deadline);
            let _ = client.timer().poll_expired(context);
            return Poll::Pending;
        }
        client.stream().end_output();
        Poll::Ready(End::Complete)
    }

    /// Notes that a Ping is sent. Whether the client has been silent for `time_max` after one.
    pub fn ping(&mut self, now: Instant, time_max: Duration) -> bool {
        let pinged_at = *self.pinged_at.get_or_insert(now);
        now - pinged_at > time_max
    }

    /// Waits for the form of `message` that `making` makes.
    pub fn wait_for(&mut self, making: Rc<Making>, message: Transit) {
        self.awaited = Some(Awaited {
            making,
            place: Place::default(),
            message,
        });
    }

    /// Whether a message is waited for.
    pub fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// The message that is waited for, if any, when it is there, and its form.
    pub fn poll_awaited(
        &mut self,
        context: &mut Context<'_>,
    ) -> Option<Poll<(Option<Encoded>, Transit)>> {
        let awaited = self.awaited.as_mut()?;
        let Poll::Ready(form) = awaited.making.poll(context, &mut awaited.place) else {
            return Some(Poll::Pending);
        };
        let awaited = self.awaited.take()?;
        Some(Poll::Ready((form, awaited.message)))
    }
}

fn close(code: u16, reason: &str) -> Vec<u8> {
    debug_assert!(reason.len() <= CLOSE_REASON_BYTES_MAX);
    let content = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
    frame(Opcode::Close, false, &content)
}
