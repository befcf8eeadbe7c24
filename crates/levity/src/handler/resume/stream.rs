//! The task of a stream: asks the application, and passes its events on, whether its client is there or not.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_net::Timer;
use levity_telemetry::trace::Trace;
use levity_wire::sse;
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

use super::event_box::EventBox;
use super::events::Events;
use super::permit::Permit;
use crate::credentials::Identity;
use crate::found::object::RunnableScript;
use crate::handler::mailbox::Start;
use crate::http::client::Client;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::request_body::RequestBody;
use crate::http::response::{Body, BodyStream, Piece, PieceLimits, Response};
use crate::route::{Proxy, Service};
use crate::upstream::gateway::{Answered, Gateway};
use crate::worker::Worker;

/// The maximum of bytes that are read from the application at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// How often the task of a stream checks whether its client is there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Headers that are not kept with a stream: those of the first response alone, and those that the writer adds.
const NOT_KEPT: [&str; 3] = ["Set-Cookie", "Date", "Content-Length"];

/// What the application has answered.
pub enum Begun {
    /// Something else than a stream of events.
    Answer(Answered),
    /// A stream that begins so, whose events are in the box.
    Stream(Start),
}

/// A request to an application, and what it sends.
pub struct Stream {
    pub service: Arc<Service>,
    pub client: Client,
    pub body: RequestBody,
    pub identity: Identity,
    pub request: Request,
    pub proxy: Arc<Proxy>,
    pub script: Option<RunnableScript>,
    /// Where its events go.
    pub to: EventBox,
    /// Held until the stream ends.
    pub _permit: Permit,
    /// The timer of the body.
    pub _timer: SweptTimer,
}

impl Stream {
    /// Asks the application. `begun` gets the start of its answer.
    pub async fn run(self, mut begun: oneshot::Sender<Begun>) {
        let mut trace = Trace::new(Instant::now(), None);
        let gateway = Gateway {
            worker: &self.to.worker,
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
                    let mut events = Events::new(&self.to, &self.proxy, headers);
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
                    let receivers = self.to.receivers().await;
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
            self.to.worker.return_piece(bytes);
            self.body.give_way(PIECE_BYTES_MAX / 4).await;
            if !went_on {
                return false;
            }
            if is_last {
                return events.pass_on_rest().await;
            }
        }
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

/// The lines of the headers for a client that comes back.
fn kept_headers(of: &Fields) -> Vec<u8> {
    let mut kept = Fields::default();
    kept.extend_except(of, &NOT_KEPT);
    kept.as_bytes().to_vec()
}

/// A timer that the event loop sweeps.
pub struct SweptTimer {
    worker: Rc<Worker>,
    pub timer: Rc<Timer>,
    number: usize,
}

impl SweptTimer {
    pub fn new(worker: &Rc<Worker>) -> Self {
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
