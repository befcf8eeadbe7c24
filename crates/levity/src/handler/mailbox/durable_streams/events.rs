//! A reader of events: what is left of its request when it waits (section 5.8).

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_mailbox::steady_time;
use levity_mailbox::stream::{ReadResult, Tail};
use levity_telemetry::access_log::End;
use levity_wire::durable_streams::{Control, DataEvent, Form, push_control};
use levity_wire::sse;

use crate::handler::mailbox::receiver_clock::{Due, Sending, Stay, TURN_BYTES_MAX};
use crate::http::held::{Held, HeldClient};
use crate::http::response::{Body, Response};
use crate::loop_core::LoopCore;
use crate::mailboxes::set::{MailboxSet, ReceiverSlot};

/// The maximum of content that is encoded at once, in bytes.
const PART_BYTES_MAX: usize = 16 * 1024;

/// A reader.
pub struct EventReceiver {
    core: Rc<LoopCore>,
    tail: Tail,
    form: Form,
    cursor: u64,
    state: State,
    sending: Sending,
    stay: Stay,
    _slot: ReceiverSlot,
}

/// What the reader does next.
enum State {
    /// Sends what was read.
    Found(Box<Found>),
    /// Waits for more.
    Waits,
    /// Leaves.
    Ends,
}

/// What was read, on its way to the client.
struct Found {
    result: ReadResult,
    event: Option<DataEvent>,
    /// The piece that is next, and what was written of it.
    next: (usize, usize),
}

impl EventReceiver {
    /// A reader whose first read has found something, if only the stream.
    pub fn new(
        core: Rc<LoopCore>,
        set: &Arc<MailboxSet>,
        (tail, found): (Tail, ReadResult),
        cursor: u64,
        slot: ReceiverSlot,
    ) -> Self {
        Self {
            core,
            tail,
            form: Form::of(&found.content_type.essence),
            cursor,
            state: State::Found(Found::new(found)),
            sending: Sending::default(),
            stay: Stay::new(set.of.heartbeat, set.of.rotate),
            _slot: slot,
        }
    }

    /// The same reader, which leaves after `left` if there is such a time.
    pub fn within(mut self, left: Option<Duration>) -> Self {
        left.into_iter().for_each(|left| self.stay.end_within(left));
        self
    }

    /// The response that it becomes.
    pub fn response(self) -> Response {
        let mut response = Response::new(200);
        let fields = &mut response.fields;
        fields.add("Content-Type", sse::MEDIA_TYPE.as_bytes());
        fields.add("Cache-Control", b"no-cache");
        // Proxies of the nginx family would keep events back.
        fields.add("X-Accel-Buffering", b"no");
        if self.form == Form::Bytes {
            fields.add("Stream-SSE-Data-Encoding", b"base64");
        }
        response.body = Body::Held {
            protocol: None,
            held: Box::new(self),
        };
        response
    }

    /// Has something to send, or ends.
    fn poll_next(&mut self, client: &dyn HeldClient, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            State::Found(found) => {
                let mut out = Vec::new();
                if found.write(&mut out, self.form, self.cursor) {
                    self.state = match found.result.is_closed {
                        true => State::Ends,
                        false => State::Waits,
                    };
                }
                self.sending.start(out);
                Poll::Ready(())
            }
            State::Waits => {
                let now = steady_time(Instant::now());
                match self.tail.poll_read(context, now) {
                    Poll::Ready(Ok(found)) => self.state = State::Found(Found::new(found)),
                    // The client learns why when it comes back.
                    Poll::Ready(Err(_)) => self.state = State::Ends,
                    Poll::Pending => match ready!(self.stay.poll(&self.core, client, context)) {
                        Due::End => self.state = State::Ends,
                        Due::Heartbeat => self.sending.start(sse::HEARTBEAT.to_vec()),
                    },
                }
                Poll::Ready(())
            }
            State::Ends => Poll::Ready(()),
        }
    }
}

impl Found {
    fn new(result: ReadResult) -> Box<Self> {
        Box::new(Self {
            result,
            event: None,
            next: (0, 0),
        })
    }

    /// Appends the next part of the events; whether it is the last one.
    fn write(&mut self, out: &mut Vec<u8>, form: Form, cursor: u64) -> bool {
        let (index, written) = self.next;
        if let Some(piece) = self.result.pieces.get(index) {
            let rest = &piece.draft.content[written..];
            let part = &rest[..rest.len().min(PART_BYTES_MAX)];
            let event = &mut self.event;
            let event = event.get_or_insert_with(|| DataEvent::begin(out, form));
            event.push(out, part);
            self.next = match part.len() == rest.len() {
                true => (index + 1, 0),
                false => (index, written + part.len()),
            };
            if self.next.0 < self.result.pieces.len() {
                return false;
            }
        }
        if let Some(event) = self.event.take() {
            event.end(out);
        }
        let control = Control {
            next: self.result.next,
            cursor,
            is_up_to_date: self.result.is_up_to_date,
            is_closed: self.result.is_closed,
        };
        push_control(out, control);
        true
    }
}

impl Held for EventReceiver {
    fn poll(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        sent: &mut u64,
    ) -> Poll<End> {
        let mut moved = 0;
        loop {
            if client.is_gone(context) {
                return Poll::Ready(End::ClientAbort);
            }
            let polled = self.sending.poll(&self.core, client, context, sent, false);
            match ready!(polled) {
                Ok(more) => moved += more,
                Err(end) => return Poll::Ready(end),
            }
            if matches!(self.state, State::Ends) {
                return self.sending.poll_end(&self.core, client, context);
            }
            if moved >= TURN_BYTES_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_next(client, context));
        }
    }
}
