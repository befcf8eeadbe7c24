//! Reading from streams: what is there, and what comes.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use levity_mailbox::stream::{ReadResult, Streams};
use levity_mailbox::{Name, steady_time};
use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::durable_streams::{Form, Lifetime, Live, Query, Start, cursor};

use super::super::super::Handling;
use super::super::MailboxEndpoint;
use super::answers::{add_next, refused};
use super::content::body;
use super::events::EventReceiver;
use super::rejected;
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::{MailboxSet, ReceiverSlot};
use crate::message::request::Request;

/// About the maximum number of bytes that a reader who waits gets at a time. A single append may be larger.
const READ_BYTES_MAX: usize = 256 * 1024;

/// About the maximum number of bytes of one response to a reader who does not wait. A single append may be larger.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

impl Handling<'_> {
    /// Answers a reader of the stream.
    pub(super) async fn read_stream(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
        name: &Name,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        self.check_receiver(set, name.in_set())?;
        let query = Query::parse(request.query().unwrap_or_default()).map_err(rejected)?;
        let start = query.start.unwrap_or(Start::Beginning);
        let slot = query.live.map(|_| self.enter(set, name)).transpose()?;
        let bytes_max = match query.live {
            None => PAGE_BYTES_MAX,
            Some(_) => READ_BYTES_MAX,
        };
        let read = async |streams: Streams, now| streams.read(name, start, bytes_max, now).await;
        let found = self.ask_streams(set, read).await?;
        match query.live.zip(slot) {
            None => Ok(caught_up(request, start, found)),
            Some((Live::LongPoll, _)) => {
                let found = self.long_poll_stream(set, name, found).await?;
                Ok(long_polled(request, found, self.cursor(&query)))
            }
            Some((Live::Sse, slot)) => {
                let (cursor, lifetime) = (self.cursor(&query), time_left(&found));
                let last = found.without_content();
                let tail = self.streams(set).follow(name, last, READ_BYTES_MAX);
                let tail = tail.map_err(|reason| refused(set, reason))?;
                let core = self.worker.core.clone();
                let receiver = EventReceiver::new(core, set, (tail, found), cursor, slot);
                let receiver = receiver.within(self.token_time_left()).within(lifetime);
                Ok(receiver.response())
            }
        }
    }

    /// Counts a reader that waits.
    fn enter(&self, set: &Arc<MailboxSet>, name: &Name) -> Result<ReceiverSlot, Response> {
        let slot = set.enter(name, self.client.ip, Instant::now());
        slot.map_err(|refusal| {
            set.shared.refusals.add(refusal);
            error(429, "too many receivers")
        })
    }

    fn cursor(&self, query: &Query) -> u64 {
        let now = self.worker.core.clock.wall_time(Instant::now());
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let random = RandomState::new().hash_one(0) as u32;
        cursor(since.as_secs(), query.cursor, random)
    }

    /// Waits until there is more than nothing in `found`, at most for the time after which receivers get a sign of life.
    async fn long_poll_stream(
        &self,
        set: &MailboxSet,
        name: &Name,
        found: ReadResult,
    ) -> Result<ReadResult, Response> {
        if !found.pieces.is_empty() || found.is_closed {
            return Ok(found);
        }
        let wait = time_left(&found)
            .unwrap_or(set.of.heartbeat)
            .min(set.of.heartbeat);
        let tail = self.streams(set).follow(name, found, READ_BYTES_MAX);
        let mut tail = tail.map_err(|reason| refused(set, reason))?;
        let came = self.ready_for_client(Instant::now() + wait, |context| {
            tail.poll_read(context, steady_time(Instant::now()))
        });
        match came.await {
            Some(came) => came.map_err(|reason| refused(set, reason)),
            None => Ok(tail.into_last()),
        }
    }
}

/// When the stream ends, however it is used.
fn time_left(found: &ReadResult) -> Option<Duration> {
    match found.lifetime? {
        Lifetime::Until(time) => {
            let left = time.duration_since(steady_time(Instant::now()));
            Some(left.unwrap_or_default())
        }
        Lifetime::Idle(_) => None,
    }
}

/// The response to a reader that does not wait.
fn caught_up(request: &Request, start: Start, found: ReadResult) -> Response {
    match start {
        // It is of this moment.
        Start::Now => {
            let mut response = with_content(found);
            response.fields.add("Cache-Control", b"no-store");
            response
        }
        Start::Beginning | Start::At(_) => cacheable(request, found),
    }
}

/// The response to a reader that has waited.
fn long_polled(request: &Request, found: ReadResult, cursor: u64) -> Response {
    let mut response = match found.pieces.is_empty() {
        true => {
            let mut response = Response::new(204);
            add_position(&mut response, &found);
            response.fields.add("Cache-Control", b"no-store");
            response
        }
        false => cacheable(request, found),
    };
    let cursor = cursor.to_string();
    response.fields.add("Stream-Cursor", cursor.as_bytes());
    response
}

/// A response that caches may keep: bytes at an offset never change.
fn cacheable(request: &Request, found: ReadResult) -> Response {
    let etag = etag(&found);
    let validators = Validators {
        etag: Some(etag.as_bytes()),
        modified: None,
    };
    let header = |name| request.headers_named(name);
    let is_empty = found.pieces.is_empty();
    let mut response = match condition::evaluate(true, header, &validators) {
        Verdict::Proceed => with_content(found),
        Verdict::NotModified => {
            let mut response = Response::new(304);
            add_position(&mut response, &found);
            response
        }
        Verdict::Failed => return error(412, ""),
    };
    let fields = &mut response.fields;
    fields.add("ETag", etag.as_bytes());
    fields.add("Cache-Control", cache_control(request, is_empty));
    response
}

/// What was read: it changes with the stream, with the range, and when the end becomes known.
fn etag(found: &ReadResult) -> String {
    let (life, start, next) = (found.start.life, found.start.position, found.next.position);
    let closed = if found.is_closed { "-c" } else { "" };
    format!("\"{life:x}-{start:x}-{next:x}{closed}\"")
}

/// How long caches may keep a response (section 10.1). One without content is about to change. One for a client that has
/// shown who it is, is for that client alone.
fn cache_control(request: &Request, is_empty: bool) -> &'static [u8] {
    let mut of_client = ["authorization", "cookie"].iter();
    match of_client.any(|name| request.header(name).is_some()) {
        _ if is_empty => b"no-cache",
        true => b"private, max-age=60, stale-while-revalidate=300",
        false => b"public, max-age=60, stale-while-revalidate=300",
    }
}

fn with_content(found: ReadResult) -> Response {
    let mut response = Response::new(200);
    let content_type = &found.content_type;
    let fields = &mut response.fields;
    fields.add("Content-Type", content_type.value.as_bytes());
    let form = Form::of(&content_type.essence);
    add_position(&mut response, &found);
    response.body = body(form, found.pieces);
    response
}

fn add_position(response: &mut Response, found: &ReadResult) {
    let fields = &mut response.fields;
    add_next(fields, found.next, found.is_closed);
    if found.is_up_to_date {
        fields.add("Stream-Up-To-Date", b"true");
    }
}
