//! Event streams of an application that outlive the connections of their clients (`resume`). The
//! application need not know.
//!
//! The application is asked as for any request. When it has the whole request, and answers with a
//! stream of events, a task of its own reads the answer, and appends the events to a box that
//! nobody else knows. The client is a receiver of that box. The task goes on when the client's
//! connection ends. A client that comes back with the id of the last event is a receiver again, and
//! the application is not asked twice. The boxes are in the memory of this process, wherever other
//! mailboxes are.
//!
//! The ids of events are replaced: `lv.TOKEN.EPOCH-SEQUENCE.ID`, with the id of the application at
//! the end. The name of the box is a hash of the random token, of the request and of its
//! credentials: a token is of no use to somebody else, and that of another server leads to no box.
//!
//! Once the request has been sent, and the header of an event stream has come, the body lets go of
//! its client (`BodyStream::detach`). The boxes have owners, copies and a budget of their own,
//! always in memory (`Worker::resume`). Receivers report how far they are (`Command::Progress`), so
//! the task knows which events an append drops, drops none that a client which is there has not
//! got, and waits instead. The headers are messages of the box, too, repeated once the box drops
//! them. The last message says whether the response is complete; without that, receivers cut theirs
//! short. Streams without a receiver have at most half of the connections to a backend
//! (`upstream/abandoned.rs`).

mod copy_state;
mod event_box;
mod events;
mod id;
mod permit;
mod stream;

use std::mem;
use std::sync::Arc;

use levity_mailbox::{Cursor, Entry, Name};
use levity_wire::http1::Method;
use levity_wire::{accept, mime, sse};
use sha2::{Digest as _, Sha256};

use self::event_box::EventBox;
use self::events::{Events, plain};
use self::id::Id;
use super::answered::Answered;
use super::mailbox::{Form, Hold, begin, is_headers};
use super::{Handling, Outcome};
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::{ClientStreamSlot, Refusal};
use crate::message::fields::{Fields, lines};
use crate::message::request::Request;
use crate::upstream::proxy::{Proxy, Resume};
use crate::upstream::upstream_request::OwnHeader;

/// The header that makes requests other than GET resumable: a value that the client repeats when it comes back.
const KEY: &str = "resume-key";

/// The header of a response that cannot be resumed although its request asks for it.
const KEPT: &str = "Resume-Kept";

/// Headers that are not kept with a stream: those of the first response alone, and those that the writer adds.
const NOT_KEPT: [&str; 3] = ["Set-Cookie", "Date", "Content-Length"];

/// A response that may be kept.
struct Candidate<'r> {
    request: &'r Request,
    proxy: &'r Arc<Proxy>,
    resume: &'r Arc<Resume>,
    slot: ClientStreamSlot,
    /// The id of the application that the client has; empty without one.
    last_id: Box<str>,
}

impl<'a> Handling<'a> {
    /// Answers a request whose response [may be resumed](may_resume).
    pub(super) async fn resumed(
        &mut self,
        request: &Request,
        proxy: &'a Arc<Proxy>,
        resume: &Arc<Resume>,
    ) -> Outcome<'a> {
        let last = request.header("last-event-id").unwrap_or_default();
        let id = Id::parse(last);
        if let Some(id) = &id
            && let Some(response) = self.resume(request, resume, id).await
        {
            return Outcome::Response(response);
        }
        // Before anything of the body is read.
        let Some(slot) = resume.count(self.client) else {
            resume.set.shared.refusals.add(Refusal::StreamsPerClient);
            return Outcome::Response(error(429, "too many streams of this client"));
        };
        let own_headers = id.as_ref().map(|id| last_id(id.of_application));
        let mut answered = self.ask(request, proxy, own_headers.as_slice()).await;
        if let Answered::Response(response) = &mut answered {
            let candidate = Candidate {
                request,
                proxy,
                resume,
                slot,
                last_id: plain(id.map_or(last, |id| id.of_application.as_bytes())),
            };
            if let Err(refusal) = self.keep(candidate, response).await {
                resume.set.shared.refusals.add(refusal);
                response.fields.set(KEPT, b"no");
            }
        }
        self.outcome(answered, request, proxy).await
    }

    /// Resumes a stream; `None` if there is none with this id, or its client has all of it.
    async fn resume(
        &self,
        request: &Request,
        resume: &Arc<Resume>,
        id: &Id<'_>,
    ) -> Option<Response> {
        let to = self.event_box(request, resume, id.token.to_owned());
        if !to.is_known().await {
            return None;
        }
        let mut receiver = to.subscribe(self.client, Cursor::After(id.message))?;
        self.opened(&resume.set, &mut receiver.0).await.ok()?;
        let kept = receiver.0.kept();
        let (end, others) = kept.split_last()?;
        let last = id.message.sequence;
        let is_missed = |one: &Entry| one.message.id.sequence > last && !is_headers(&one.message);
        if Form::Resumed.end(&end.message).is_some() && !others.iter().any(|one| is_missed(one)) {
            return None;
        }
        // It may have got less than the connection before it, which had some on its way.
        let position = receiver.0.position();
        position
            .into_iter()
            .for_each(|last| receiver.0.report_taken(last));
        let mut response = self.stream(&resume.set, receiver, Form::Resumed, Hold::default());
        let mut newest = kept.iter().rev();
        if let Some(headers) = newest.find(|one| is_headers(&one.message)) {
            begin_resumed(&mut response, kept_start(&headers.message.draft.content));
        }
        Some(response)
    }

    /// Has a task read the events of `response`, and makes it one that receives them from there.
    ///
    /// # Errors
    /// Why it cannot be kept. The response is as it was.
    async fn keep(&self, of: Candidate<'_>, response: &mut Response) -> Result<(), Refusal> {
        if !is_events(response) {
            return Err(Refusal::NoEvents);
        }
        let set = &of.resume.set;
        let permit = of.resume.permit()?;
        let to = self.event_box(of.request, of.resume, id::token());
        // Before the first event, so that somebody is there from the beginning.
        let receiver = to.subscribe(self.client, Cursor::Earliest);
        let mut receiver = receiver.ok_or(Refusal::Store)?;
        let opened = self.opened(set, &mut receiver.0).await;
        opened.map_err(|_| Refusal::Store)?;
        let Body::Stream { stream, .. } = &mut response.body else {
            return Err(Refusal::NoEvents);
        };
        if !stream.detach() {
            return Err(Refusal::UnsentRequest);
        }
        let kept = self.stream(set, receiver, Form::Resumed, Hold::default());
        let mut answer = mem::replace(response, kept);
        let Body::Stream { stream, .. } = mem::replace(&mut answer.body, Body::None) else {
            unreachable!("it was one");
        };
        let headers = kept_headers(&answer.fields);
        let events = Events::new(to, of.proxy.clone(), headers, of.last_id);
        let slots = (permit, of.slot);
        self.worker
            .core
            .spawn_background(stream::run(events, stream, slots));
        begin_resumed(response, answer);
        Ok(())
    }

    /// The box of the stream with this token, for this request of this client.
    fn event_box(&self, request: &Request, resume: &Arc<Resume>, token: String) -> EventBox {
        let mut hash = Sha256::new();
        let header = |name| request.header(name).unwrap_or_default();
        let parts: [&[u8]; 8] = [
            token.as_bytes(),
            &self.identity.user,
            header("authorization"),
            header("cookie"),
            header(KEY),
            request.method(),
            request.host(),
            self.target_of(request),
        ];
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name = id::text(&hash.finalize()[..16]);
        EventBox {
            worker: self.worker.clone(),
            resume: resume.clone(),
            name: Name::new(Resume::SET, name.as_bytes()).expect("letters and digits"),
            token,
        }
    }
}

/// Gives a response the status and the headers of the application.
fn begin_resumed(response: &mut Response, start: Response) {
    begin(response, start, true);
    response.fields.remove("content-length");
    // One of another server behind this one.
    response.fields.remove(KEPT);
    response.fields.set("X-Accel-Buffering", b"no");
}

/// The start of a response whose headers were kept as these lines.
fn kept_start(kept: &[u8]) -> Response {
    let mut start = Response::new(200);
    lines(kept).for_each(|line| start.fields.add(line.name, line.value));
    start.has_server = start.fields.value("server").is_some();
    start
}

fn is_events(response: &Response) -> bool {
    let value = response.header("content-type").unwrap_or_default();
    response.status == 200
        && mime::essence(value).eq_ignore_ascii_case(sse::MEDIA_TYPE.as_bytes())
        && response.header("content-encoding").is_none()
        && matches!(response.body, Body::Stream { .. })
}

/// The lines of the headers for a client that comes back.
fn kept_headers(of: &Fields) -> Vec<u8> {
    let mut kept = Fields::default();
    kept.extend_except(of, &NOT_KEPT);
    kept.as_bytes().to_vec()
}

/// Whether the client of `request` may come back for the rest of the response.
pub(super) fn may_resume(request: &Request) -> bool {
    if request.header(KEY).is_some() {
        return true;
    }
    let wants_events = || {
        let types = ["text/html", "application/json", sse::MEDIA_TYPE];
        accept::preferred(request.headers_named("accept"), &types) == Some(2)
    };
    request.head.method == Method::Get && wants_events()
}

/// What tells the application that the last event of the client has its `id`.
fn last_id(id: &str) -> OwnHeader {
    OwnHeader {
        name: "Last-Event-ID",
        value: (!id.is_empty()).then(|| id.as_bytes().to_vec()),
    }
}
