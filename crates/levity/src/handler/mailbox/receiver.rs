//! A receiver of a stream: what is left of its request when it waits.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use levity_mailbox::{Encoded, Entry, Feed, Message, MessageId, Next, Reservation, steady_time};
use levity_telemetry::access_log::End;
use levity_telemetry::stall;
use levity_wire::grip::{KeepAlive, KeepAliveMode};
use levity_wire::{mailbox_header, sse};

use super::deflated;
use super::forms::Form;
use super::grip_item::{Filtering, close_of_sockets, ends_streams};
use super::socket::Socket;
use crate::handler::mailbox::receiver_clock::{
    self, Due, Ending, Sending, Stay, TURN_BYTES_MAX, Transit, jittered,
};
use crate::http::held::{Held, HeldClient};
use crate::loop_core::LoopCore;
use crate::mailboxes::set::{MailboxSet, ReceiverSlot};
use crate::message::fields::Fields;

/// The maximum number of messages of one receiver before others have their turn: those without content have no bytes.
const TURN_MESSAGES_MAX: usize = 128;

/// What few receivers have: what an application has said about one that it holds, and what comes first.
#[derive(Default)]
pub struct Hold {
    /// What is sent before all messages, and its memory.
    pub first: Option<(Vec<u8>, Reservation)>,
    /// Further boxes.
    pub others: Vec<(Feed, ReceiverSlot)>,
    /// What keeps the connection alive, in place of the heartbeat of the set.
    pub keep_alive: Option<KeepAlive>,
    /// What it does not get of its boxes.
    pub(super) filtering: Option<Filtering>,
    /// The box that is asked first for the next message.
    turn: usize,
    /// It was looked ahead for a gap at the start.
    ahead: Option<Next>,
}

impl Hold {
    fn is_empty(&self) -> bool {
        self.first.is_none()
            && self.others.is_empty()
            && self.keep_alive.is_none()
            && self.filtering.is_none()
            && self.ahead.is_none()
    }
}

/// A receiver.
pub struct Receiver {
    core: Rc<LoopCore>,
    set: Arc<MailboxSet>,
    feed: Feed,
    form: Form,
    /// Boxed, because most receivers are without.
    hold: Option<Box<Hold>>,
    /// The connection, if it is a WebSocket; otherwise the receiver has a body of HTTP.
    socket: Option<Box<Socket>>,
    sending: Sending,
    /// The message that is being sent.
    message: Option<Transit>,
    /// The stream ends after what is being sent.
    ending: Option<Ending>,
    stay: Stay,
    _slot: ReceiverSlot,
}

// There may be a hundred thousand. A byte more, and the allocator gives each of them 320.
const _: () = assert!(size_of::<Receiver>() <= 256);

impl Receiver {
    /// A receiver of `feed`, whose box is open. The header of its response, `fields`, says where the stream begins.
    pub fn new(
        core: Rc<LoopCore>,
        set: Arc<MailboxSet>,
        (mut feed, slot): (Feed, ReceiverSlot),
        form: Form,
        mut hold: Hold,
        fields: &mut Fields,
    ) -> Self {
        // Before it is looked ahead: the first message may be lost on its way.
        let position = feed.position().filter(|_| hold.others.is_empty());
        hold.ahead = feed.next(steady_time(Instant::now()));
        let keep_alive = hold.keep_alive.as_ref();
        let heartbeat = keep_alive.map_or(set.of.heartbeat, |keep_alive| keep_alive.timeout);
        let mut receiver = Self {
            stay: Stay::new(heartbeat, set.of.rotate),
            core,
            set,
            feed,
            form,
            hold: Some(hold).filter(|hold| !hold.is_empty()).map(Box::new),
            socket: None,
            sending: Sending::default(),
            message: None,
            ending: None,
            _slot: slot,
        };
        let greeting = receiver.greeting(position);
        receiver.sending.start(greeting);
        receiver.add_start(position, fields);
        receiver
    }

    /// The same receiver, which leaves after `left` if there is such a time.
    pub fn within(mut self, left: Option<Duration>) -> Self {
        left.into_iter().for_each(|left| self.stay.end_within(left));
        self
    }

    /// The same receiver on a WebSocket.
    pub fn over(mut self, socket: Socket) -> Self {
        self.socket = Some(Box::new(socket));
        self
    }

    /// Adds where the stream begins: the id after which the receiver continues, and that of the last message that is gone.
    fn add_start(&self, position: Option<MessageId>, fields: &mut Fields) {
        if let Some(last) = position {
            fields.add(mailbox_header::LAST, last.to_string().as_bytes());
        }
        let ahead = self.hold.as_ref().and_then(|hold| hold.ahead.as_ref());
        if let Some(Next::Gap(next)) = ahead {
            fields.add(mailbox_header::GAP, next.before().to_string().as_bytes());
        }
    }

    /// Takes what came when it was looked ahead.
    fn take_ahead(&mut self) -> Option<Next> {
        let ahead = self.hold.as_mut()?.ahead.take()?;
        self.hold.take_if(|hold| hold.is_empty());
        Some(ahead)
    }

    /// What is sent before all messages.
    fn greeting(&mut self, position: Option<MessageId>) -> Encoded {
        let mut out = Vec::new();
        if self.form == Form::Events {
            sse::retry(&mut out, jittered(self.set.of.retry));
            position
                .iter()
                .for_each(|last| sse::position(&mut out, last));
        }
        let first = self.hold.as_mut().and_then(|hold| hold.first.take());
        let Some((mut first, reservation)) = first else {
            return out.into();
        };
        self.hold.take_if(|hold| hold.is_empty());
        out.append(&mut first);
        match self.form {
            Form::Events if !out.ends_with(b"\n\n") => out.extend_from_slice(b"\n\n"),
            Form::Lines if !matches!(&out[..], [] | [.., b'\n']) => out.push(b'\n'),
            _ => {}
        }
        Encoded::counted(out, reservation)
    }

    /// The box of that number.
    fn feed(&mut self, number: usize) -> &mut Feed {
        match (number.checked_sub(1), &mut self.hold) {
            (Some(other), Some(hold)) => &mut hold.others[other].0,
            _ => &mut self.feed,
        }
    }

    /// The next message of any of the boxes, which take turns, and the number of the box.
    fn poll_feeds(&mut self, context: &mut Context<'_>, now: SystemTime) -> Poll<(usize, Next)> {
        let count = 1 + self.hold.as_ref().map_or(0, |hold| hold.others.len());
        let turn = self.hold.as_ref().map_or(0, |hold| hold.turn);
        for number in (turn..turn + count).map(|number| number % count) {
            if let Poll::Ready(next) = self.feed(number).poll_next(context, now) {
                if let Some(hold) = &mut self.hold {
                    hold.turn = number + 1;
                }
                return Poll::Ready((number, next));
            }
        }
        Poll::Pending
    }

    fn keep_alive(&self) -> Option<&KeepAlive> {
        self.hold.as_ref()?.keep_alive.as_ref()
    }

    /// What keeps the connection alive.
    fn heartbeat(&self) -> Vec<u8> {
        let heartbeat = || self.form.heartbeat().to_vec();
        self.keep_alive()
            .map_or_else(heartbeat, |keep_alive| keep_alive.data.clone())
    }

    /// Begins the time until the connection is kept alive again, unless that is always after the same time.
    fn rest(&mut self) {
        let is_idle = |keep_alive: &KeepAlive| keep_alive.mode == KeepAliveMode::Idle;
        if self.keep_alive().is_some_and(is_idle) {
            self.stay.rest();
        }
    }

    /// Sends the rest of what is being sent, or the next part of a message.
    fn poll_sending(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        sent: &mut u64,
    ) -> Poll<Result<usize, End>> {
        if self.sending.is_empty() {
            self.encode_part();
        }
        let is_upgraded = self.socket.is_some();
        let polled = self
            .sending
            .poll(&self.core, client, context, sent, is_upgraded);
        let Some(message) = &mut self.message else {
            return polled;
        };
        match polled {
            Poll::Pending if !message.is_whole => self.sending.let_go(),
            Poll::Ready(Ok(_)) => {
                message.part += 1;
                let parts = self.form.parts(&message.entry.message);
                if message.is_whole || message.part as usize >= parts {
                    let (number, id) = (message.number, message.entry.message.id);
                    self.message = None;
                    match self.form {
                        Form::Resumed => self.feed.report_taken(id),
                        _ => self.feed(number.into()).mark_read(id),
                    }
                }
            }
            _ => {}
        }
        polled
    }

    /// Begins to send the present part of the message, if there is one, or continues it.
    fn encode_part(&mut self) {
        let Some(number) = self.message.as_ref().map(|message| message.number) else {
            return;
        };
        let feed = self.feed(number.into());
        let (is_only, keeps_forms) = (feed.is_only(), feed.keeps_forms());
        let Some(message) = &mut self.message else {
            return;
        };
        let Transit { entry, shared, .. } = message;
        let (form, part, is_text) = (self.form, message.part as usize, &mut message.is_text);
        let mut encode = |message: &Message| {
            let is_text = *is_text.get_or_insert_with(|| form.is_text(message));
            form.encode(message, part, is_text)
        };
        let parts = form.parts(&entry.message);
        if parts > 1 && !is_only && shared.is_none() {
            *shared = Some(entry.long_form(form.number(), parts));
        }
        let encoded = match shared {
            Some(shared) => shared.part(part, &entry.message, encode),
            // What nobody shares need not be known.
            None if is_only => encode(&entry.message).into(),
            None => entry.form(form.number(), keeps_forms, encode),
        };
        self.sending.start(encoded);
    }

    /// Takes what comes next.
    fn poll_next(&mut self, client: &dyn HeldClient, context: &mut Context<'_>) -> Poll<()> {
        if let Some(awaited) = self
            .socket
            .as_mut()
            .and_then(|one| one.poll_awaited(context))
        {
            let (form, mut message) = ready!(awaited);
            if let Some(form) = form {
                message.is_whole = true;
                self.sending.start(form);
            }
            self.message = Some(message);
            return Poll::Ready(());
        }
        let now = steady_time(stall::poll_start());
        let ahead = self.take_ahead().map(|next| (0, next));
        let is_start = ahead.is_some();
        let (number, next) = match ahead {
            Some(next) => next,
            None => ready!(self.poll_feeds(context, now)),
        };
        match next {
            Next::Message(entry) => {
                self.take_message(client, number, &entry);
                if !self.feed(number).keeps_forms() {
                    entry.forget_forms();
                }
            }
            Next::Gap(next) => {
                let last = next.before();
                self.sending.start(self.form.gap(last));
                // One that was too slow comes back with the id of the gap; others would get ever later pieces.
                self.ending = (!is_start).then_some(Ending::Gap(last));
            }
            Next::Removed => self.ending = Some(Ending::Removed),
            Next::Failed(_) => self.ending = Some(Ending::Failed),
        }
        Poll::Ready(())
    }

    fn take_message(&mut self, client: &dyn HeldClient, number: usize, entry: &Rc<Entry>) {
        self.ending = self.form.end(&entry.message);
        if self.ending.is_some() {
            return;
        }
        let hold = self.hold.as_ref();
        let filtering = hold.and_then(|hold| hold.filtering.as_ref());
        if filtering.is_some_and(|filtering| filtering.drops(number, entry)) {
            self.feed(number).mark_read(entry.message.id);
            return;
        }
        if let Some(socket) = &mut self.socket
            && let Some(given) = close_of_sockets(entry)
        {
            socket.end_with(given);
            self.feed(number).mark_read(entry.message.id);
            self.ending = Some(Ending::Finished);
            return;
        }
        self.send_message(client, number, entry);
        self.rest();
        if ends_streams(entry) {
            self.ending = Some(Ending::Finished);
        }
    }

    /// Sends a message, or waits for its compressed form.
    fn send_message(&mut self, client: &dyn HeldClient, number: usize, entry: &Rc<Entry>) {
        let message = Transit {
            entry: entry.clone(),
            shared: None,
            part: 0,
            number: number as u16,
            is_text: None,
            is_whole: false,
        };
        if let Some(socket) = self.socket.as_mut().filter(|socket| socket.is_compressed) {
            let stream = client.stream().number();
            let budget = &self.set.shared.budget;
            if let Some(making) = deflated::making(&self.core, budget, stream, self.form, entry) {
                return socket.wait_for(making, message);
            }
        }
        self.message = Some(message);
    }

    /// What a receiver does that waits: it keeps the connection alive, and ends some time. Ready with the end of a client that
    /// does not answer.
    fn poll_idle(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        match ready!(self.stay.poll(&self.core, client, context)) {
            Due::End => self.ending = Some(Ending::Leaving),
            Due::Heartbeat => {
                let send_timeout = self.core.config().config.limits.send_timeout;
                let socket = self.socket.as_mut();
                if socket.is_some_and(|socket| socket.ping(stall::poll_start(), send_timeout)) {
                    client.reset();
                    return Poll::Ready(Err(End::Timeout));
                }
                if let (Form::Resumed, Some(last)) = (self.form, self.feed.position()) {
                    // Another connection of the client may have said less since, and have gone.
                    self.feed.report_taken(last);
                }
                self.sending.start(self.heartbeat());
            }
        }
        Poll::Ready(Ok(()))
    }

    /// How the client has gone, if it has. Takes what it has sent.
    fn look(&mut self, client: &dyn HeldClient, context: &mut Context<'_>) -> Option<End> {
        match &mut self.socket {
            Some(socket) => socket.receive(client, context),
            None => client.is_gone(context).then_some(End::ClientAbort),
        }
    }

    /// Sends what goes before further messages. Whether there was anything.
    fn answers(&mut self) -> bool {
        let Some(socket) = &mut self.socket else {
            return false;
        };
        // The last message goes before the end.
        let is_last_awaited = self.ending == Some(Ending::Finished) && socket.is_waiting();
        let ending = self.ending.filter(|_| !is_last_awaited);
        let close = socket.take_close(ending);
        let Some(frame) = close.or_else(|| socket.take_pong()) else {
            return false;
        };
        self.sending.start(frame);
        true
    }

    /// Ends the stream, if it has to. Ready when the client knows.
    fn poll_ending(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
    ) -> Option<Poll<End>> {
        match &self.socket {
            Some(socket) => socket
                .is_closing()
                .then(|| socket.poll_closed(client, context)),
            None => self.ending.map(|ending| match ending {
                Ending::Truncated => Poll::Ready(receiver_clock::cut(client)),
                _ => self.sending.poll_end(&self.core, client, context),
            }),
        }
    }
}

impl Held for Receiver {
    fn poll(
        &mut self,
        client: &dyn HeldClient,
        context: &mut Context<'_>,
        sent: &mut u64,
    ) -> Poll<End> {
        let (mut moved, mut messages) = (0, 0);
        loop {
            if let Some(end) = self.look(client, context) {
                return Poll::Ready(end);
            }
            match ready!(self.poll_sending(client, context, sent)) {
                Ok(more) => moved += more,
                Err(end) => return Poll::Ready(end),
            }
            let is_between_messages = self.message.is_none();
            if is_between_messages && self.answers() {
                continue;
            }
            if is_between_messages && let Some(ending) = self.poll_ending(client, context) {
                return ending;
            }
            if moved >= TURN_BYTES_MAX || messages >= TURN_MESSAGES_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !is_between_messages {
                continue;
            }
            messages += 1;
            if self.poll_next(client, context).is_pending()
                && let Err(end) = ready!(self.poll_idle(client, context))
            {
                return Poll::Ready(end);
            }
        }
    }
}
