//! Event streams of an application that outlive the connections of their clients (`resume`), although the application knows
//! nothing of it.
//!
//! The application is asked by a task of its own, which passes what it sends to a box that nobody else knows. The client is a
//! receiver of that box. If its connection ends, the task goes on; the client that comes back with the id of the last event is
//! a receiver again, and the application is not asked twice.
//!
//! The ids of events are replaced: `lv.TOKEN.EPOCH-SEQUENCE.ID`, with the id of the application at the end. The name of the box
//! is a hash of the random token, of the request and of its credentials, so a token is of use only to whoever could have got the
//! stream himself.

use std::fmt::Write as _;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use levity_mailbox::{Append, Command, Cursor, Draft, Message, MessageId, Name};
use levity_net::Timer;
use levity_telemetry::trace::Trace;
use levity_wire::accept;
use levity_wire::http1::Method;
use levity_wire::sse::{self, Block, Scanner};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

use super::mailbox::{Form, Hold, Start, is_headers};
use super::{Handling, Outcome, without_body};
use crate::credentials::Identity;
use crate::http::client::Client;
use crate::http::detached::Detached;
use crate::http::error::error;
use crate::http::fields::{Fields, lines};
use crate::http::request::Request;
use crate::http::request_body::RequestBody;
use crate::http::response::{Body, BodyStream, Piece, PieceLimits, Response};
use crate::mailboxes::set::{ClientStreamSlot, Refusal};
use crate::route::{Proxy, Resume, Service};
use crate::scripts::Script;
use crate::upstream::abandoned::Abandoned;
use crate::upstream::gateway::{Answered, Gateway};
use crate::worker::Worker;

/// The header by which a client has other requests than GET kept: a value that it repeats when it comes back.
const KEY: &str = "resume-key";

/// The maximum size of an event in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The maximum of bytes that are read from the application at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// How often the task of a stream looks whether its client is there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Headers that are not kept with a stream: those of the first response alone, and those that the writer adds.
const NOT_KEPT: [&str; 3] = ["Set-Cookie", "Date", "Content-Length"];

/// The headers are kept once for this part of a box, so that it always has them, and take no more than a quarter of it.
const HEADERS_PER_BOX: usize = 4;

/// The memory of an event beside its bytes, about.
const OVERHEAD_BYTES: usize = 512;

impl Resume {
    /// Whether one more stream may be kept.
    fn has_room(&self) -> bool {
        self.kept.load(Ordering::Relaxed) < self.of.streams
    }

    /// The right to keep one more stream.
    ///
    /// # Errors
    /// The refusal, if the client or all clients have as many as there may be.
    fn permit(self: &Arc<Self>, client: &Client) -> Result<Permit, Response> {
        let max = self.of.streams_per_client;
        let slot = self.set.keep_stream(client.ip, max, Instant::now());
        let Some(slot) = slot else {
            self.set.shared.refusals.add(Refusal::StreamsPerClient);
            return Err(error(429, "too many streams of this client"));
        };
        let one_more = |kept: usize| (kept < self.of.streams).then_some(kept + 1);
        let kept = &self.kept;
        kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| error(503, "too many streams"))?;
        Ok(Permit {
            resume: self.clone(),
            _slot: slot,
        })
    }
}

struct Permit {
    resume: Arc<Resume>,
    _slot: ClientStreamSlot,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.resume.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An id that a client has got from here.
struct Id<'t> {
    token: &'t str,
    message: MessageId,
    /// The id that the application gave; empty without one.
    of_application: &'t str,
}

impl<'t> Id<'t> {
    fn parse(text: &'t [u8]) -> Option<Self> {
        let mut parts = str::from_utf8(text)
            .ok()?
            .strip_prefix("lv.")?
            .splitn(3, '.');
        Some(Self {
            token: parts.next()?,
            message: parts.next()?.parse().ok()?,
            of_application: parts.next().unwrap_or_default(),
        })
    }
}

/// What the application has answered.
enum Begun {
    /// Something else than a stream of events.
    Answer(Answered),
    /// A stream that begins so, whose events are in the box.
    Stream(Start),
}

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
        // Not before: a slow body would hold it.
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

    /// Goes on with what the application has sent or still sends; `None` if there is no such stream, or its client has
    /// all of it.
    async fn resume(&self, resume: &Resume, name: &Name, last: MessageId) -> Option<Response> {
        let info = self.look(&resume.set, name).await.ok()?;
        let messages = &info.opened.messages;
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

    /// The request to the application, which this one does not wait for.
    fn detached(
        &mut self,
        request: &Request,
        proxy: Arc<Proxy>,
        permit: Permit,
        body: Vec<u8>,
    ) -> Result<Stream, getrandom::Error> {
        let token = token()?;
        let timer = SweptTimer::new(self.worker);
        let client = Detached::new(&**self.body.stream(), body, timer.timer.clone());
        Ok(Stream {
            body: RequestBody::new(Rc::new(client), &self.service.config.limits),
            worker: self.worker.clone(),
            service: self.service.clone(),
            client: *self.client,
            identity: self.identity.clone(),
            request: request.clone(),
            script: self.script.take(),
            name: self.box_of(request, &token),
            proxy,
            token,
            permit,
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
        let (resume, name) = (stream.permit.resume.clone(), stream.name.clone());
        let (begun, beginning) = oneshot::channel();
        self.worker.spawn_background(stream.run(begun));
        match self.wait_for(beginning).await {
            None => Outcome::Response(error(502, "the application does not answer")),
            Some(Begun::Answer(answered)) => self.outcome(answered, request, proxy).await,
            Some(Begun::Stream(start)) => {
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
    async fn wait_for(&self, mut beginning: oneshot::Receiver<Begun>) -> Option<Begun> {
        poll_fn(|context| match Pin::new(&mut beginning).poll(context) {
            Poll::Ready(begun) => Poll::Ready(begun.ok()),
            Poll::Pending if self.body.watch(context).is_err() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    async fn whole_body(&self, proxy: &Proxy) -> Result<Vec<u8>, Response> {
        let mut body = Vec::new();
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
            request.target(),
        ];
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Name::new(Resume::SET, hex(&hash.finalize()[..16]).as_bytes()).expect("hexadecimal digits")
    }
}

/// Begins a response as the application has.
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

/// The same, for a request whose client has got the event `id` of the application last.
fn with_last_id(proxy: &Proxy, id: &str) -> Arc<Proxy> {
    let mut proxy = proxy.clone();
    let name = "Last-Event-ID".to_owned();
    match id {
        "" => proxy.request_headers.remove.push(name.to_ascii_lowercase()),
        id => proxy.request_headers.set.push((name, id.to_owned())),
    }
    Arc::new(proxy)
}

fn token() -> Result<String, getrandom::Error> {
    let mut token = [0; 16];
    getrandom::fill(&mut token)?;
    Ok(hex(&token))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A timer that the event loop sweeps.
struct SweptTimer {
    worker: Rc<Worker>,
    timer: Rc<Timer>,
    number: usize,
}

impl SweptTimer {
    fn new(worker: &Rc<Worker>) -> Self {
        let timer = Rc::new(Timer::default());
        Self {
            number: worker.timers.insert(timer.clone()),
            worker: worker.clone(),
            timer,
        }
    }
}

impl Drop for SweptTimer {
    fn drop(&mut self) {
        self.worker.timers.remove(self.number);
        self.worker.work_ended.notify_one();
    }
}

/// A request to an application, and what it sends.
struct Stream {
    worker: Rc<Worker>,
    service: Arc<Service>,
    client: Client,
    body: RequestBody,
    identity: Identity,
    request: Request,
    proxy: Arc<Proxy>,
    script: Option<Script>,
    name: Name,
    token: String,
    permit: Permit,
    _timer: SweptTimer,
}

impl Stream {
    async fn run(self, mut begun: oneshot::Sender<Begun>) {
        let mut trace = Trace::new(Instant::now(), None);
        let gateway = Gateway {
            worker: &self.worker,
            service: &self.service,
            client: &self.client,
            body: &self.body,
            identity: &self.identity,
        };
        let script = self.script.as_ref();
        let answered = tokio::select! {
            answered = gateway.answer(&self.request, &self.proxy, script, &mut trace) => answered,
            // The client has left before it could know an id.
            () = begun.closed() => return,
        };
        match answered {
            Answered::Response(response) if is_events(&response) => {
                let Body::Stream { stream, .. } = response.body else {
                    return;
                };
                let headers = kept_headers(&response.fields);
                let start = Start {
                    status: response.status,
                    reason: response.reason,
                    fields: response.fields,
                    has_date: response.has_date,
                    has_server: response.has_server,
                };
                if begun.send(Begun::Stream(start)).is_ok() {
                    let mut events = Events::new(&self, headers);
                    let is_complete = self.pass_on(&mut events, stream, &mut trace).await;
                    events.end(is_complete).await;
                }
            }
            // An error means that the client has left.
            other => drop(begun.send(Begun::Answer(other))),
        }
    }

    /// Passes the events of the application to the box. Returns whether these are all; otherwise it has failed, or nobody
    /// waits for them any more.
    async fn pass_on(
        &self,
        events: &mut Events<'_>,
        mut stream: Box<dyn BodyStream>,
        trace: &mut Trace,
    ) -> bool {
        let limits = PieceLimits {
            bytes_max: PIECE_BYTES_MAX,
            may_splice: false,
        };
        let mut looks = time::interval_at(time::Instant::now() + LOOK_INTERVAL, LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !events.begin().await {
            return false;
        }
        loop {
            let piece = tokio::select! {
                piece = poll_fn(|context| stream.poll_piece(context, limits)) => piece,
                _ = looks.tick() => {
                    let receivers = self.receivers().await;
                    match events.is_given_up(receivers) {
                        true => return false,
                        false => continue,
                    }
                }
            };
            let (bytes, is_last) = match piece {
                Ok(Piece::Data { bytes, is_last }) => (bytes, is_last),
                Ok(Piece::Spliced(_)) => unreachable!("it was not permitted"),
                Ok(Piece::End(_)) => return events.pass_on_rest().await,
                Err(failure) => {
                    failure.report(false, trace);
                    return false;
                }
            };
            let went_on = events.pass_on(&bytes).await;
            self.worker.return_piece(bytes);
            self.body.give_way(PIECE_BYTES_MAX / 4).await;
            if !went_on {
                return false;
            }
            if is_last {
                return events.pass_on_rest().await;
            }
        }
    }

    async fn receivers(&self) -> usize {
        let (reply, answer) = oneshot::channel();
        let name = self.name.clone();
        let command = Command::Look { name, reply };
        self.worker.mailboxes.send_to_owner_of(&self.name, command);
        let found = answer.await.ok().and_then(Result::ok).flatten();
        found.map_or(0, |info| info.receivers)
    }
}

fn is_events(response: &Response) -> bool {
    let value = response.header("content-type").unwrap_or_default();
    let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
    response.status == 200
        && essence
            .trim_ascii()
            .eq_ignore_ascii_case(sse::MEDIA_TYPE.as_bytes())
        && response.header("content-encoding").is_none()
        && matches!(response.body, Body::Stream { .. })
}

/// The lines of the headers that a client gets that comes back.
fn kept_headers(of: &Fields) -> Vec<u8> {
    let mut kept = Fields::default();
    kept.extend_except(of, &NOT_KEPT);
    kept.as_bytes().to_vec()
}

/// The events of a stream on their way to its box.
struct Events<'s> {
    stream: &'s Stream,
    scanner: Scanner,
    /// The lines of the headers; empty if they are too long to be kept.
    headers: Vec<u8>,
    /// The bytes and the number of the events that may be passed on before the headers are due again.
    until_headers: (usize, usize),
    /// The last id that the application gave.
    of_application: Box<str>,
    /// Since when nobody receives.
    alone_since: Option<Instant>,
    /// It counts as one without a client.
    abandoned: Option<Abandoned>,
}

impl<'s> Events<'s> {
    fn new(stream: &'s Stream, mut headers: Vec<u8>) -> Self {
        let bytes_max = stream.permit.resume.of.bytes / HEADERS_PER_BOX;
        if headers.len() > bytes_max / HEADERS_PER_BOX {
            headers = Vec::new();
        }
        Self {
            stream,
            scanner: Scanner::new(BLOCK_BYTES_MAX),
            headers,
            until_headers: (0, 0),
            of_application: Box::default(),
            alone_since: None,
            abandoned: None,
        }
    }

    /// Whether nobody has received for as long as the stream is kept without a client.
    fn is_abandoned(&mut self, receivers: usize) -> bool {
        if receivers > 0 {
            self.alone_since = None;
            self.abandoned = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        since.elapsed() >= self.stream.permit.resume.of.keep
    }

    /// Whether the rest is not read, because nobody receives: for too long, or while the server ends or the upstream has too
    /// many such streams.
    fn is_given_up(&mut self, receivers: usize) -> bool {
        if self.is_abandoned(receivers) {
            return true;
        }
        if receivers > 0 {
            return false;
        }
        let Stream { worker, proxy, .. } = self.stream;
        let pool = worker.pools.of(&proxy.upstream);
        let abandoned = self.abandoned.get_or_insert_with(|| pool.abandoned());
        worker.is_draining() || pool.gives_way(abandoned)
    }

    /// Passes on the headers, so that the client knows an id before the first event. Returns whether it was possible.
    async fn begin(&mut self) -> bool {
        let mut drafts = Vec::new();
        self.add_headers(&mut drafts) && self.append(drafts).await.is_some()
    }

    /// Passes on the events that `bytes` complete. Returns whether the stream goes on.
    async fn pass_on(&mut self, mut bytes: &[u8]) -> bool {
        let mut drafts = Vec::new();
        loop {
            let block = match self.scanner.next_block(&mut bytes) {
                Ok(Some(block)) => Passed::new(block),
                Ok(None) => break,
                Err(reject) => return self.fail(reject.reason),
            };
            if !self.add(block, &mut drafts) {
                return false;
            }
        }
        if drafts.is_empty() {
            return true;
        }
        match self.append(drafts).await {
            Some(receivers) => !self.is_abandoned(receivers),
            None => self.fail("the mailboxes take no more"),
        }
    }

    /// Passes on the last event, if no blank line followed it. Returns whether it was possible.
    async fn pass_on_rest(&mut self) -> bool {
        let Some(block) = self.scanner.end().map(Passed::new) else {
            return true;
        };
        let mut drafts = Vec::new();
        self.add(block, &mut drafts) && self.append(drafts).await.is_some()
    }

    /// Adds the drafts for a block. Returns whether there was memory.
    fn add(&mut self, block: Passed, drafts: &mut Vec<Draft>) -> bool {
        if let Some(id) = block.id {
            self.of_application = id;
        }
        let bytes = block.content.len();
        if self.are_headers_due(bytes) && !self.add_headers(drafts) {
            return false;
        }
        let (bytes_left, events_left) = &mut self.until_headers;
        *bytes_left = bytes_left.saturating_sub(bytes + OVERHEAD_BYTES);
        *events_left = events_left.saturating_sub(1);
        let Some(draft) = self.draft(block.content) else {
            return self.fail("`limits.mailbox_memory` is used up");
        };
        drafts.push(draft);
        true
    }

    /// Whether the headers are passed on before an event of that many bytes.
    fn are_headers_due(&self, bytes: usize) -> bool {
        let (bytes_left, events_left) = self.until_headers;
        bytes_left < bytes || events_left == 0
    }

    /// Adds the draft for the headers. Returns whether there was memory.
    fn add_headers(&mut self, drafts: &mut Vec<Draft>) -> bool {
        let Some(mut headers) = self.draft(self.headers.clone()) else {
            return self.fail("`limits.mailbox_memory` is used up");
        };
        Form::mark_headers(&mut headers);
        drafts.push(headers);
        let settings = &self.stream.permit.resume.set.settings;
        self.until_headers = (
            settings.bytes_max / HEADERS_PER_BOX,
            settings.messages_max / HEADERS_PER_BOX,
        );
        true
    }

    /// Logs why the stream is cut short. Returns that it does not go on.
    fn fail(&self, reason: &str) -> bool {
        let Stream { worker, proxy, .. } = self.stream;
        let pool = worker.pools.of(&proxy.upstream);
        pool.report_stream(reason);
        false
    }

    async fn end(&self, is_complete: bool) {
        let mut end = Draft::default();
        Form::mark_end(&mut end, is_complete);
        let _ = self.append(vec![end]).await;
    }

    fn draft(&self, content: Vec<u8>) -> Option<Draft> {
        let budget = &self.stream.permit.resume.set.shared.budget;
        let reservation = budget.try_reserve(content.len() + OVERHEAD_BYTES)?;
        Some(Draft {
            event: self.stream.token.as_str().into(),
            media_type: self.of_application.clone(),
            content: content.into(),
            reservation: Some(reservation),
            ..Draft::default()
        })
    }

    /// Appends to the box. Returns the number of receivers; `None` if the box does not take it.
    async fn append(&self, drafts: Vec<Draft>) -> Option<usize> {
        let stream = self.stream;
        let (reply, answer) = oneshot::channel();
        let appends = drafts.into_iter().map(|draft| Append {
            name: stream.name.clone(),
            settings: stream.permit.resume.set.settings.clone(),
            draft: Arc::new(draft),
        });
        let appends = appends.collect();
        let command = Command::Publish { appends, reply };
        let mailboxes = &stream.worker.mailboxes;
        mailboxes.send_to_owner_of(&stream.name, command);
        let (_, last) = answer.await.ok()?.pop()?;
        last.ok().map(|published| published.receivers)
    }
}

/// A block of the application as it is passed on.
struct Passed {
    /// The id that it gives, if it gives one; empty if it cannot be part of another.
    id: Option<Box<str>>,
    /// The lines without the id.
    content: Vec<u8>,
}

impl Passed {
    fn new(block: Block<'_>) -> Self {
        let mut content = Vec::new();
        block.write(&mut content, None);
        let id = block.id().map(|id| {
            let is_plain = id.iter().all(u8::is_ascii_graphic);
            let id = str::from_utf8(id).ok().filter(|_| is_plain);
            id.unwrap_or_default().into()
        });
        Self { id, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_three_parts() {
        let id = Id::parse(b"lv.00ff.3-4.app.7").expect("an id");
        assert_eq!((id.token, id.of_application), ("00ff", "app.7"));
        assert_eq!((id.message.epoch, id.message.sequence), (3, 4));
        assert_eq!(Id::parse(b"lv.00ff.3-4").expect("an id").of_application, "");
        for text in [
            &b"7"[..],
            b"lv.",
            b"lv.00ff",
            b"lv.00ff.x",
            b"3-4",
            b"lv.\xff.3-4",
        ] {
            assert!(Id::parse(text).is_none());
        }
    }
}
