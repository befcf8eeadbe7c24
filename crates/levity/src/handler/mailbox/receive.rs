//! Receiving: what a client gets of a box, and in which form.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_mailbox::{Command, Cursor, Feed, Info, MessageId, Name, Next, Opened, Summary};
use levity_wire::accept;
use levity_wire::http1::Method;

use super::super::Handling;
use super::MailboxEndpoint;
use super::forms::Form;
use super::list::described;
use super::mark_when_sent::MarkWhenSent;
use super::page::{Page, add_next};
use super::receiver::{Hold, Receiver};
use super::websocket;
use super::{json, no_mailbox, refused_by_store};
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{MailboxSet, ReceiverSlot, Refusal};
use crate::message::fields::Fields;
use crate::message::request::Request;

/// What clients may name in Accept, by preference.
const FORMS: [(&str, Option<Form>); 4] = [
    ("application/json", None),
    ("text/event-stream", Some(Form::Events)),
    ("application/x-ndjson", Some(Form::Lines)),
    ("application/octet-stream", Some(Form::Content)),
];

/// The longest wait of a long poll.
const WAIT_MAX: Duration = Duration::from_secs(120);

impl Handling<'_> {
    /// Answers a client that wants messages.
    pub(super) async fn receive_from_mailbox(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        let query = Query::of(request);
        if query.list {
            return self.list(request, set, &query.after).await;
        }
        let name = self.named_box(request, endpoint)?;
        self.check_receiver(set, name.in_set())?;
        if query.info || request.head.method == Method::Head {
            return self.info(set, &name).await;
        }
        let cursor = cursor(request, &query)?;
        if let Some(protocol) = websocket::offered(request) {
            let from = (&name, cursor);
            return self.open_websocket(request, set, from, protocol).await;
        }
        let form = preferred(request);
        let wait = request.headers_named("prefer").find_map(wait);
        if form.is_none() && wait.is_none() {
            return self.buffered(set, &name, cursor).await;
        }
        let opened = self.open(set, &name, cursor).await?;
        match form {
            Some(form) => Ok(self.stream(set, opened, form, Hold::default())),
            None => {
                self.long_poll(&name, opened, wait.unwrap_or_default())
                    .await
            }
        }
    }

    /// Adds a receiver of the box, and waits until that is open.
    pub(super) async fn open(
        &self,
        set: &Arc<MailboxSet>,
        name: &Name,
        cursor: Option<Cursor>,
    ) -> Result<(Feed, ReceiverSlot), Response> {
        let mut receiver = self.subscribe(set, name, cursor)?;
        self.opened(set, &mut receiver.0).await?;
        Ok(receiver)
    }

    /// Adds a receiver of the box.
    pub(super) fn subscribe(
        &self,
        set: &Arc<MailboxSet>,
        name: &Name,
        cursor: Option<Cursor>,
    ) -> Result<(Feed, ReceiverSlot), Response> {
        let slot = self.count_receiver(set, name)?;
        let feed = self.worker.mailboxes.subscribe(name, &set.settings, cursor);
        let feed = feed.ok_or_else(|| error(503, "the mailbox has too many receivers"))?;
        Ok((feed, slot))
    }

    /// Counts the client as a receiver of the box.
    fn count_receiver(&self, set: &Arc<MailboxSet>, name: &Name) -> Result<ReceiverSlot, Response> {
        let slot = set.enter(name, self.client.ip, Instant::now());
        slot.map_err(|refusal| {
            set.shared.refusals.add(refusal);
            match refusal {
                Refusal::ReceiversPerClient => error(429, "too many receivers of this client"),
                _ => error(503, "the mailbox has too many receivers"),
            }
        })
    }

    /// Waits until the box is open, at most `limits.io_timeout`.
    pub(in crate::handler) async fn opened(
        &self,
        set: &MailboxSet,
        feed: &mut Feed,
    ) -> Result<(), Response> {
        let opened = self.owner_ready(|context| feed.poll_open(context));
        opened
            .await?
            .map_err(|failure| refused_by_store(set, &failure))
    }

    /// A response that never ends by itself.
    pub(in crate::handler) fn stream(
        &self,
        set: &Arc<MailboxSet>,
        feed: (Feed, ReceiverSlot),
        form: Form,
        hold: Hold,
    ) -> Response {
        let mut response = Response::new(200);
        let fields = &mut response.fields;
        fields.add("Content-Type", form.media_type().as_bytes());
        fields.add("Cache-Control", b"no-store");
        // Proxies of the nginx family would keep events back.
        fields.add("X-Accel-Buffering", b"no");
        fields.add("Vary", b"Accept");
        let held = Box::new(self.receiver(set, feed, form, hold, fields));
        let protocol = None;
        response.body = Body::Held { protocol, held };
        response
    }

    /// The receiver of `feed`, which leaves when the token of the client is no longer accepted.
    pub(super) fn receiver(
        &self,
        set: &Arc<MailboxSet>,
        feed: (Feed, ReceiverSlot),
        form: Form,
        hold: Hold,
        fields: &mut Fields,
    ) -> Receiver {
        let (core, set) = (self.worker.core.clone(), set.clone());
        Receiver::new(core, set, feed, form, hold, fields).within(self.token_time_left())
    }

    /// What is kept of a box after the cursor, as JSON.
    async fn buffered(
        &self,
        set: &Arc<MailboxSet>,
        name: &Name,
        cursor: Option<Cursor>,
    ) -> Result<Response, Response> {
        let slot = self.count_receiver(set, name)?;
        let (mut opened, mut page) = self.first_part(set, name, cursor).await?;
        let now = self.now();
        loop {
            let is_limited = Page::is_limited(&opened.messages);
            let end = opened.messages.last().map(|message| message.id);
            let messages = opened.messages.into_iter();
            for message in messages.filter(|one| !one.has_expired(now)) {
                match message.draft.is_damaged {
                    true => page.is_gap = true,
                    false => page.push(message),
                }
            }
            let after = end.filter(|_| is_limited && !page.is_full());
            if after.is_none() {
                let last = last_id(opened.epoch, opened.next);
                return Ok(page.into_response(name, last, slot).await);
            }
            let epoch = opened.epoch;
            opened = self.read(set, name, after).await?;
            // The box was removed and made again.
            page.is_gap |= opened.epoch != epoch;
        }
    }

    /// The first messages of a page after `cursor`, and the page, which knows of messages that are gone before them.
    async fn first_part(
        &self,
        set: &MailboxSet,
        name: &Name,
        cursor: Option<Cursor>,
    ) -> Result<(Opened, Page), Response> {
        let after = match cursor {
            None | Some(Cursor::Earliest) => None,
            Some(Cursor::New) => {
                let Summary { epoch, next, .. } = self.summary(set, name).await?.summary;
                Some(last_id(epoch, next))
            }
            Some(Cursor::After(id)) => Some(id),
        };
        let mut opened = self.read(set, name, after).await?;
        let is_known = |id: MessageId| id.epoch == opened.epoch && id.sequence < opened.next;
        let is_gap = after.is_some_and(|id| !is_known(id) || id.sequence + 1 < opened.lost);
        if after.is_some_and(|id| !is_known(id)) && opened.messages.is_empty() {
            // After an id that was never given there is nothing: all is what the client has missed.
            opened = self.read(set, name, None).await?;
        }
        Ok((opened, Page::new(is_gap)))
    }

    /// A part of what is kept of a box.
    async fn read(
        &self,
        set: &MailboxSet,
        name: &Name,
        after: Option<MessageId>,
    ) -> Result<Opened, Response> {
        let ask = |reply| Command::ReadAfter {
            name: name.clone(),
            after,
            limit: Page::LIMIT,
            reply,
        };
        let owner = self.worker.mailboxes.owner_of(name);
        let found = self.ask_owner(set, owner, ask).await?;
        found.ok_or_else(no_mailbox)
    }

    async fn summary(&self, set: &MailboxSet, name: &Name) -> Result<Info, Response> {
        let ask = |reply| Command::Summary {
            name: name.clone(),
            reply,
        };
        let owner = self.worker.mailboxes.owner_of(name);
        let found = self.ask_owner(set, owner, ask).await?;
        found.ok_or_else(no_mailbox)
    }

    /// What is known of a box.
    async fn info(&self, set: &MailboxSet, name: &Name) -> Result<Response, Response> {
        let info = self.summary(set, name).await?;
        let mut described = described(&info);
        described["last"] = last_id(info.summary.epoch, info.summary.next)
            .to_string()
            .into();
        Ok(json(200, &described))
    }

    /// Waits for messages, and answers with all that have come by then.
    async fn long_poll(
        &mut self,
        name: &Name,
        (mut feed, slot): (Feed, ReceiverSlot),
        wait: Duration,
    ) -> Result<Response, Response> {
        let end = Instant::now() + wait.min(WAIT_MAX);
        let mut next = self
            .ready_for_client(end, |context| feed.poll_next(context, self.now()))
            .await;
        let mut page = Page::new(false);
        while let Some(one) = next {
            match one {
                Next::Message(entry) => page.push(entry.message.clone()),
                Next::Gap(_) => page.is_gap = true,
                Next::Removed => return Err(error(410, "the mailbox was removed")),
                Next::Failed(failure) => return Err(error(503, &failure.to_string())),
            }
            next = match page.is_full() {
                true => None,
                false => feed.next(self.now()),
            };
        }
        let last = feed.position().unwrap_or_default();
        if page.is_empty() {
            let mut response = Response::new(204);
            add_next(&mut response, last);
            return Ok(response);
        }
        if let Some(last) = page.last() {
            self.hooks.push(MarkWhenSent::new(feed, last));
        }
        Ok(page.into_response(name, last, slot).await)
    }
}

/// The id before the number `next`.
fn last_id(epoch: u64, next: u64) -> MessageId {
    let sequence = next;
    MessageId { epoch, sequence }.before()
}

/// The parts of the query that count.
#[derive(Default)]
pub(super) struct Query {
    last_event_id: Option<String>,
    info: bool,
    list: bool,
    after: String,
}

impl Query {
    pub(super) fn of(request: &Request) -> Self {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(request.query().unwrap_or_default()) {
            match &*name {
                "last_event_id" => query.last_event_id = Some(value.into_owned()),
                "info" => query.info = true,
                "list" => query.list = true,
                "after" => query.after = value.into_owned(),
                _ => {}
            }
        }
        query
    }
}

/// Where the client wants to begin. The header goes before the query, since a browser that connects again sends both.
pub(super) fn cursor(request: &Request, query: &Query) -> Result<Option<Cursor>, Response> {
    if let Some(given) = request.header("last-event-id") {
        // An id of another server: what came after it is not known, so something may be missing. An error would keep a
        // browser from coming back.
        let unknown = Cursor::After(MessageId::default());
        let given = str::from_utf8(given)
            .ok()
            .and_then(|text| text.parse().ok());
        return Ok(Some(given.unwrap_or(unknown)));
    }
    let given = query
        .last_event_id
        .as_deref()
        .filter(|text| !text.is_empty());
    given
        .map(|text| {
            text.parse()
                .map_err(|_| error(400, "`last_event_id` is an id, `earliest` or `new`"))
        })
        .transpose()
}

/// The form of a stream that the client prefers; `None` for a response that ends.
pub(super) fn preferred(request: &Request) -> Option<Form> {
    let types = FORMS.map(|(media_type, _)| media_type);
    let chosen = accept::preferred(request.headers_named("accept"), &types)?;
    FORMS[chosen].1
}

/// The seconds of `wait` in a value of Prefer (RFC 7240).
fn wait(value: &[u8]) -> Option<Duration> {
    let preferences = value.split(|&byte| byte == b',');
    preferences.into_iter().find_map(|one| {
        let (name, seconds) = str::from_utf8(one).ok()?.trim().split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        let seconds = seconds.trim().parse().ok()?;
        is_wait.then(|| Duration::from_secs(seconds))
    })
}
