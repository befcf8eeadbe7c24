//! Event streams of an application that outlive the connections of their clients (`resume`). The application need not know.
//!
//! A task of its own asks the application, and appends the events to a box that nobody else knows. The client is a receiver of
//! that box. The task goes on when the client's connection ends. A client that comes back with the id of the last event is a
//! receiver again, and the application is not asked twice.
//!
//! The ids of events are replaced: `lv.TOKEN.EPOCH-SEQUENCE.ID`, with the id of the application at the end. The name of the box
//! is a hash of the random token, of the request and of its credentials: a token is of no use to somebody else.

mod event_box;
mod events;
mod id;
mod permit;
mod stream;

use std::rc::Rc;
use std::sync::Arc;

use levity_mailbox::{Cursor, Limit, Message, MessageId, Name};
use levity_wire::accept;
use levity_wire::http1::Method;
use levity_wire::sse;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use self::event_box::EventBox;
use self::id::Id;
use self::permit::Permit;
use self::stream::{Begun, Stream, SweptTimer};
use super::mailbox::{Form, Hold, Start, is_headers};
use super::{Handling, Outcome, without_body};
use crate::http::detached::Detached;
use crate::http::error::error;
use crate::http::fields::{Fields, lines};
use crate::http::gathered::Gathered;
use crate::http::request::Request;
use crate::http::request_body::RequestBody;
use crate::http::response::Response;
use crate::route::{Proxy, Resume};
use crate::upstream::gateway::{Wait, while_client_waits};
use crate::upstream::reported;

/// The header that makes requests other than GET resumable: a value that the client repeats when it comes back.
const KEY: &str = "resume-key";

impl<'a> Handling<'a> {
    /// Answers a request whose response may be resumed; `None` if it may not.
    pub(super) async fn resumed(
        &mut self,
        request: &Request,
        proxy: &'a Arc<Proxy>,
        resume: &Arc<Resume>,
    ) -> Option<Outcome<'a>> {
        if !may_resume(request) {
            return None;
        }
        let given = request.header("last-event-id").and_then(Id::parse);
        if let Some(id) = &given {
            let name = self.box_of(request, id.token);
            if let Some(response) = self.resume(resume, &name, id.message).await {
                return Some(Outcome::Response(response));
            }
        }
        if !resume.has_room() {
            return None;
        }
        let asked = match &given {
            None => proxy.clone(),
            Some(id) => with_last_id(proxy, id.of_application),
        };
        let body = match self.whole_body(proxy).await {
            Ok(body) => body,
            Err(refusal) => return Some(Outcome::Response(refusal)),
        };
        // After the body, which may be slow.
        let permit = match resume.permit(self.client) {
            Ok(permit) => permit,
            Err(refusal) => return Some(Outcome::Response(refusal)),
        };
        let stream = match self.detached(request, asked, permit, body) {
            Ok(stream) => stream,
            Err(failure) => return Some(Outcome::Response(error(503, &failure.to_string()))),
        };
        Some(self.ask_detached(request, proxy, stream).await)
    }

    /// Resumes a stream; `None` if there is none of this name, or its client has all of it.
    async fn resume(&self, resume: &Resume, name: &Name, last: MessageId) -> Option<Response> {
        let read = self.read(&resume.set, name, None, Limit::NONE).await;
        let messages = &read.ok()?.messages;
        let (end, others) = messages.split_last()?;
        let is_missed = |one: &Message| one.id.sequence > last.sequence && !is_headers(one);
        if Form::Resumed.end(end).is_some() && !others.iter().rev().any(is_missed) {
            return None;
        }
        let headers = messages.iter().rev().find(|one| is_headers(one));
        let start = headers.map(kept_start);
        let cursor = Some(Cursor::After(last));
        let mut opened = self.subscribe(&resume.set, name, cursor).ok()?;
        self.opened(&resume.set, &mut opened.0).await.ok()?;
        let mut response = self.stream(&resume.set, opened, Form::Resumed, Hold::default());
        if let Some(start) = start {
            begin(&mut response, start);
        }
        Some(response)
    }

    /// The task that asks the application, with all that it needs when the client leaves.
    fn detached(
        &mut self,
        request: &Request,
        proxy: Arc<Proxy>,
        permit: Permit,
        body: Gathered,
    ) -> Result<Stream, getrandom::Error> {
        let token = id::token()?;
        let timer = SweptTimer::new(self.worker);
        let claims = self.body.claims().cloned();
        let client = Detached::new(&**self.body.stream(), body, timer.timer.clone());
        let to = EventBox {
            worker: self.worker.clone(),
            resume: permit.resume.clone(),
            name: self.box_of(request, &token),
            token,
        };
        Ok(Stream {
            body: RequestBody::new(Rc::new(client), &self.service.config.limits, claims),
            service: self.service.clone(),
            client: *self.client,
            identity: self.identity.clone(),
            request: request.clone(),
            script: self.script.take(),
            proxy,
            to,
            _permit: permit,
            _timer: timer,
        })
    }

    /// Asks the application.
    async fn ask_detached(
        &mut self,
        request: &Request,
        proxy: &'a Arc<Proxy>,
        stream: Stream,
    ) -> Outcome<'a> {
        let (resume, name) = (stream.to.resume.clone(), stream.to.name.clone());
        let (begun, beginning) = oneshot::channel();
        self.worker.spawn_background(stream.run(begun));
        match self.wait_for(beginning).await {
            Err(failure) => Outcome::Response(failure),
            Ok(Begun::Answer(answered)) => self.outcome(answered, request, proxy).await,
            Ok(Begun::Stream(start)) => {
                Outcome::Response(self.follow_stream(&resume, &name, start).await)
            }
        }
    }

    /// Has the client receive a stream from its beginning.
    async fn follow_stream(&self, resume: &Resume, name: &Name, start: Start) -> Response {
        let set = &resume.set;
        let mut opened = match self.subscribe(set, name, Some(Cursor::Earliest)) {
            Ok(opened) => opened,
            Err(refusal) => return refusal,
        };
        if let Err(refusal) = self.opened(set, &mut opened.0).await {
            return refusal;
        }
        let mut response = self.stream(set, opened, Form::Resumed, Hold::default());
        begin(&mut response, start);
        response
    }

    /// Waits for the header of the response, or until the client leaves.
    async fn wait_for(&self, beginning: oneshot::Receiver<Begun>) -> Result<Begun, Response> {
        let begun = while_client_waits(&self.body, Wait::Connection, async { Ok(beginning.await) });
        let begun = begun.await;
        let begun = begun.map_err(|failure| reported::response(&failure))?;
        begun.map_err(|_| error(502, "the application does not answer"))
    }

    async fn whole_body(&self, proxy: &Proxy) -> Result<Gathered, Response> {
        let mut body = Gathered::default();
        self.body
            .limit(proxy.body_bytes_max)
            .map_err(|reject| without_body(reject.into()))?;
        self.body.send_continue().await;
        while !self.body.is_complete() {
            self.body.receive(&mut body).await.map_err(without_body)?;
        }
        self.body.timer().clear();
        Ok(body)
    }

    /// The box of the stream with this token, for this request of this client.
    fn box_of(&self, request: &Request, token: &str) -> Name {
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
        Name::new(Resume::SET, id::hex(&hash.finalize()[..16]).as_bytes())
            .expect("hexadecimal digits")
    }
}

/// Gives a response the status and the headers of the application.
fn begin(response: &mut Response, start: Start) {
    start.begin(response, true);
    response.fields.remove("content-length");
    response.fields.set("X-Accel-Buffering", b"no");
}

/// The start of a response whose headers were kept.
fn kept_start(message: &Message) -> Start {
    let mut fields = Fields::default();
    lines(&message.draft.content).for_each(|line| fields.add(line.name, line.value));
    Start {
        status: 200,
        has_server: fields.value("server").is_some(),
        fields,
        ..Start::default()
    }
}

/// Whether the client of `request` may come back for the rest of the response.
fn may_resume(request: &Request) -> bool {
    if request.header(KEY).is_some() {
        return true;
    }
    let wants_events = || {
        let types = ["text/html", "application/json", sse::MEDIA_TYPE];
        accept::preferred(request.headers_named("accept"), &types) == Some(2)
    };
    request.head.method == Method::Get && wants_events()
}

/// The same, for a client whose last event has the `id` of the application.
fn with_last_id(proxy: &Proxy, id: &str) -> Arc<Proxy> {
    let mut proxy = proxy.clone();
    let name = "Last-Event-ID".to_owned();
    match id {
        "" => proxy.request_headers.remove.push(name.to_ascii_lowercase()),
        id => proxy.request_headers.set.push((name, id.to_owned())),
    }
    Arc::new(proxy)
}
