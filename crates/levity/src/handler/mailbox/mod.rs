//! The handler of mailboxes: publishers send to them by request, and clients receive from them.
//!
//! - A *receiver* (`receiver.rs`) is a held body: its exchange ends when it begins to wait. It is
//!   the same on a body of HTTP and on a WebSocket, which differs in its forms, in what the client
//!   may send, and in how it ends. It holds at most one message: it is a position in the log. Once
//!   that is gone, it gets a gap and its connection ends.
//! - A message is *encoded once* per event loop and form (`Entry`), and all receivers that are
//!   woken for it write the same bytes. Compressed frames are made once, by the pool. The forms are
//!   dropped when all receivers have got them; only messages that have forms are looked at then,
//!   since others are in no cache of the processor. Their memory is that of messages: without it,
//!   each receiver encodes for itself, and nothing is compressed.
//! - A long message is encoded and sent *in parts* (`PART_BYTES` of `forms.rs`). The same part
//!   always has the same bytes, so a receiver whose client takes nothing drops what it has encoded
//!   and makes it again when it is needed: it keeps a reference to the message, which counts, and a
//!   position. Receivers of a box share the parts of a long message (`LongForm`) while the memory
//!   of messages is less than half used. The contents of an item of GRIP are ranges of its message
//!   for the same reason.
//! - *Pages* of JSON (`page.rs`) are made message by message while they are sent, so a client that
//!   takes nothing holds a piece, and references to the messages of a page.
//! - *In band* (`in_band.rs`, `grip.rs`): what applications say in headers. The parsers are in
//!   `levity-wire`. A file that an application delivers by X-Sendfile is read once, by the engines,
//!   and kept as bytes: `message_bytes` bounds it, and an application that uses its name again does
//!   not change a message which some receivers have already.
//! - *Durable Streams* (`durable_streams/`) are boxes that are not trimmed; their semantics are in
//!   `levity-mailbox`.
//! - *Publishers* without a key are told by the listener that they connect to and by their user,
//!   not by what they send.

mod deflated;
mod durable_streams;
pub mod for_mailboxes;
mod forms;
mod grip;
mod grip_item;
mod grip_publish;
mod in_band;
mod list;
mod mark_when_sent;
mod page;
mod publish;
mod publisher;
mod receive;
mod receiver;
mod receiver_clock;
mod socket;
mod websocket;

pub(super) use self::forms::{Form, is_headers};
pub(super) use self::in_band::begin;
pub(super) use self::receiver::Hold;

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use levity_config::MailboxProtocol;
use levity_mailbox::{Command, Name, StoreError};
use levity_wire::Reject;
use levity_wire::http1::Method;
use serde_json::Value;
use tokio::sync::oneshot;

use super::chain::{Asked, Decision, Handler, Internal, Waiting, Waits};
use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::loop_core::compute::Panicked;
use crate::mailboxes::set::{MailboxSet, Refusal};
use crate::message::client::Client;
use crate::message::request::Request;

/// Room for the lines of a header without cookies, in bytes.
const HEADER_BYTES: usize = 128;

const ALLOW: &[u8] = b"GET, HEAD, POST, DELETE, OPTIONS";

/// Where clients use a set of mailboxes.
pub struct MailboxEndpoint {
    /// The set.
    pub set: Arc<MailboxSet>,
    /// What precedes the name of a box in paths.
    pub prefix: Vec<u8>,
}

impl MailboxEndpoint {
    /// The part of `path` that names a box.
    pub fn beneath<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let name = path.strip_prefix(&self.prefix[..]).unwrap_or(path);
        name.strip_prefix(b"/").unwrap_or(name)
    }
}

impl Handler for MailboxEndpoint {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        match cx.unasked() {
            Some(response) => response.into(),
            None => Decision::Wait(self),
        }
    }

    fn explain(&self, _: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let name = &self.set.of.name;
        let text = format!("`mailbox` of `{name}`; nothing is sent or received now");
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Refusal(502, "a route of mailboxes has no content")
    }
}

impl Waits for MailboxEndpoint {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.mailbox(asked.request, self))
    }
}

impl<'a> Handling<'a> {
    /// Answers a request to an endpoint of mailboxes.
    async fn mailbox(&mut self, request: &Request, endpoint: &'a MailboxEndpoint) -> Outcome<'a> {
        if endpoint.set.of.protocol == MailboxProtocol::DurableStreams {
            return Outcome::Response(self.stream_request(request, endpoint).await);
        }
        let answered = match request.head.method {
            Method::Get | Method::Head => {
                Box::pin(self.receive_from_mailbox(request, endpoint)).await
            }
            Method::Post if grip_publish::is_for(request, endpoint) => {
                Box::pin(self.publish_items(request, &endpoint.set)).await
            }
            Method::Post => Box::pin(self.publish(request, endpoint)).await,
            Method::Delete => self.remove_mailbox(request, endpoint).await,
            Method::Options => Ok(with_allow(Response::new(204), ALLOW)),
            _ => Err(with_allow(error(405, ""), ALLOW)),
        };
        let (Ok(response) | Err(response)) = answered;
        Outcome::Response(response)
    }

    /// Removes a box, which ends its receivers.
    async fn remove_mailbox(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        let name = self.named_box(request, endpoint)?;
        self.check_publisher(request, set, name.in_set())?;
        let owner = self.worker.mailboxes.owner_of(&name);
        let remove = |reply| Command::Remove {
            name,
            epoch: None,
            reply,
        };
        match self.ask_owner(set, owner, remove).await? {
            true => Ok(Response::new(204)),
            false => Err(no_mailbox()),
        }
    }

    /// What the owner of that number answers, at most after `limits.io_timeout`.
    async fn ask_owner<T>(
        &self,
        set: &MailboxSet,
        owner: usize,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, Response> {
        let answer = self.worker.mailboxes.ask(owner, command);
        let answer = self.answer_of_owner(answer).await?;
        answer.map_err(|failure| refused_by_store(set, &failure))
    }

    /// What `parse` makes of `content`.
    async fn parsed<T: Send + 'static>(
        &self,
        content: Vec<u8>,
        parse: fn(&[u8]) -> T,
    ) -> Result<T, Response> {
        let (compute, stream) = (&self.worker.core.compute, self.disk.connection());
        let parsed = compute.parse(stream, content, parse).await;
        parsed.map_err(|Panicked| error(500, ""))
    }

    /// The box that the path names.
    fn named_box(&self, request: &Request, endpoint: &MailboxEndpoint) -> Result<Name, Response> {
        let name = endpoint.beneath(&request.path);
        Name::new(&endpoint.set.of.name, name).ok_or_else(|| {
            error(
                400,
                "the name of a mailbox has letters, digits and -._~:@+=/, 200 bytes at most",
            )
        })
    }

    /// Waits for the answer of an owner, at most `limits.io_timeout`.
    async fn answer_of_owner<T>(&self, mut answer: oneshot::Receiver<T>) -> Result<T, Response> {
        // In memory it comes within the same turn of the loop.
        let answer = self.owner_ready(|context| Pin::new(&mut answer).poll(context));
        answer.await?.map_err(|_| no_answer())
    }

    /// Waits until `poll`, which waits for an owner, is ready, at most `limits.io_timeout`.
    async fn owner_ready<T>(
        &self,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Response> {
        let end = Instant::now() + self.service.config.limits.io_timeout;
        let ready = self.ready_before(end, |_| false, poll).await;
        ready.ok_or_else(no_answer)
    }

    /// Waits until `poll` is ready, at most until `end`, for a client whose response comes then: only while it is there and the
    /// server does not end.
    async fn ready_for_client<T>(
        &self,
        end: Instant,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let is_over = |context: &mut Context<'_>| {
            self.worker.core.is_draining() || self.body.watch(context).is_err()
        };
        self.ready_before(end, is_over, poll).await
    }

    /// Waits until `poll` is ready, at most until `end`, and while nothing `is_over`.
    async fn ready_before<T>(
        &self,
        end: Instant,
        is_over: impl Fn(&mut Context<'_>) -> bool,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let timer = self.body.timer();
        timer.set(end);
        let ready = poll_fn(|context| match poll(context) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending if is_over(context) || timer.poll_expired(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        timer.clear();
        ready
    }
}

fn no_mailbox() -> Response {
    error(404, "there is no such mailbox")
}

fn no_answer() -> Response {
    error(503, "the mailboxes do not answer")
}

fn with_allow(mut response: Response, methods: &[u8]) -> Response {
    response.fields.set("Allow", methods);
    response
}

fn rejected(reject: Reject) -> Response {
    error(reject.status, reject.reason)
}

/// A response with this JSON.
fn json(status: u16, value: &Value) -> Response {
    json_text(status, value.to_string())
}

fn json_text(status: u16, mut text: String) -> Response {
    let mut response = Response::new(status);
    response.fields.reserve(HEADER_BYTES);
    response.fields.add("Content-Type", b"application/json");
    response.fields.add("Cache-Control", b"no-store");
    text.push('\n');
    response.body = Body::Text(text.into_bytes());
    response
}

/// The response to a failure of the store.
fn refused_by_store(set: &MailboxSet, failure: &StoreError) -> Response {
    let (refusal, status) = reason_of(failure);
    set.shared.refusals.add(refusal);
    error(status, &failure.to_string())
}

fn reason_of(failure: &StoreError) -> (Refusal, u16) {
    match failure {
        StoreError::TooManyBoxes => (Refusal::Boxes, 507),
        StoreError::Memory => (Refusal::MailboxMemory, 503),
        StoreError::Full(_) => (Refusal::StoreFull, 507),
        StoreError::Unavailable(_) | StoreError::Refused(_) => (Refusal::Store, 503),
    }
}
