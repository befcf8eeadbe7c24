//! A handler may stand around others: it keeps their response, and may let them outlive the client that has asked.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Instant;

use levity_net::{Peer, Transport};
use levity_telemetry::access_log::End;
use levity_telemetry::trace::Trace;
use tokio::sync::Semaphore;

use super::{Asked, Chain, Decision, Handler, Waiting, Waits};
use crate::explanation::Explanation;
use crate::files::disk_client::DiskClient;
use crate::handler::{Handling, Outcome};
use crate::http::error::error;
use crate::http::h1::conn::Conn;
use crate::http::request_body::{ClientStream, RequestBody};
use crate::http::response::{Body, Piece, PieceLimits, Response};
use crate::message::client::Client;
use crate::message::request::Request;
use crate::rig::{Rig, settle};
use crate::route::Service;
use crate::worker::Worker;

const GET: &str = "GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\nhello world";

/// Gives everyone the first response of the handlers behind it.
struct Keeper {
    content: OnceLock<String>,
    /// The handlers run in a task of their own, with a request of their own.
    is_detached: bool,
    is_begun: OnceLock<()>,
    /// Has permits once there is content.
    filled: Semaphore,
}

impl Keeper {
    fn new(is_detached: bool) -> Arc<Self> {
        Arc::new(Self {
            content: OnceLock::new(),
            is_detached,
            is_begun: OnceLock::new(),
            filled: Semaphore::new(0),
        })
    }

    fn keep(&self, content: String) {
        self.content.set(content).expect("only the first is kept");
        self.filled.add_permits(Semaphore::MAX_PERMITS);
    }

    fn kept(&self) -> Option<Response> {
        let mut response = Response::new(200);
        response.body = Body::Text(self.content.get()?.clone().into_bytes());
        Some(response)
    }
}

impl Handler for Arc<Keeper> {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        self.kept().map_or(Decision::Wait(self), Decision::from)
    }

    fn explain(&self, _: &Outcome<'_>, _: &Client, _: &Explanation) {}
}

impl Waits for Arc<Keeper> {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(async move {
            if !self.is_detached {
                let outcome = cx.run(asked.request, asked.rest).await;
                self.keep(content(outcome).await);
            } else if self.is_begun.set(()).is_ok() {
                let own = asked.rest.detach(cx.service);
                let fill = fill(own, cx.worker.clone(), asked.request.clone(), self.clone());
                cx.worker.core.spawn_background(fill);
            }
            let mut filled = pin!(self.filled.acquire());
            let is_filled = poll_fn(|context| match cx.body.watch(context) {
                Ok(()) => filled.as_mut().poll(context).map(|_| true),
                Err(_) => Poll::Ready(false),
            });
            let is_filled = is_filled.await;
            // The context is of use after a wait.
            cx.explain_refusal("");
            Outcome::Response(match self.kept().filter(|_| is_filled) {
                Some(response) => response,
                None => error(408, ""),
            })
        })
    }
}

/// Handlers that need no client.
struct OwnChain {
    service: Arc<Service>,
    site: usize,
    position: usize,
    /// The number of the first one at its location.
    handler: usize,
}

impl Chain<'_> {
    fn detach(self, service: &Arc<Service>) -> OwnChain {
        OwnChain {
            service: service.clone(),
            site: self.location.site,
            position: self.location.position,
            handler: Chain::of(self.location).handlers.len() - self.handlers.len(),
        }
    }
}

impl OwnChain {
    fn chain(&self) -> Chain<'_> {
        let location = self.service.sites[self.site].locations().nth(self.position);
        let all = Chain::of(location.expect("the service has it"));
        Chain {
            handlers: &all.handlers[self.handler..],
            ..all
        }
    }
}

/// Runs `own` for a client that waits as long as it takes, and keeps the content.
async fn fill(own: OwnChain, worker: Rc<Worker>, request: Request, keeper: Arc<Keeper>) {
    let (_client, served) = Transport::memory(4096);
    let slot = worker.core.slots.clone().try_acquire_owned();
    let slot = slot.expect("a slot");
    let stream = Conn::new(worker.core.clone(), served, Peer::new(None), slot);
    let config = worker.core.config();
    let client = Client::new(
        stream.peer(),
        &request,
        &own.service.config.server.trusted_proxies,
    );
    let (lookups, mut trace) = (Cell::default(), Trace::new(Instant::now(), None));
    let disk = DiskClient::new(
        &worker.core,
        &config,
        ClientStream::number(&stream),
        &lookups,
        &mut trace,
    );
    let body = RequestBody::new(Rc::new(stream), &own.service.config.limits, None);
    let mut cx = Handling::new(&worker, &own.service, &client, body, disk);
    let outcome = cx.run(&request, own.chain()).await;
    keeper.keep(content(outcome).await);
    worker.core.stats.connection_ended(End::Complete);
}

async fn content(outcome: Outcome<'_>) -> String {
    let Outcome::Response(response) = outcome else {
        panic!("an application responds");
    };
    let Body::Stream { mut stream, .. } = response.body else {
        panic!("its content is received while it is sent");
    };
    let limits = PieceLimits {
        bytes_max: 4096,
        may_splice: false,
    };
    let mut content = Vec::new();
    loop {
        let piece = poll_fn(|context| stream.poll_piece(context, limits)).await;
        match piece.expect("it is complete") {
            Piece::Data { bytes, is_last } => {
                content.extend(bytes);
                if is_last {
                    break;
                }
            }
            Piece::Spliced(_) => unreachable!("it may not be spliced"),
            Piece::End(_) => break,
        }
    }
    String::from_utf8(content).expect("text")
}

#[test]
fn a_handler_keeps_the_response_of_another() {
    let (rig, app) = Rig::proxy_behind(Keeper::new(false));
    rig.run(async {
        let mut first = rig.client(4096);
        first.send(GET).await;
        let (mut backend, _) = app.asked().await;
        backend.send(ANSWER).await;
        assert!(first.rest().await.ends_with("hello world"));
        first.close().await;
        drop(backend);
        for _ in 0..2 {
            assert!(rig.ask(GET).await.ends_with("hello world"));
        }
        assert_eq!(app.waiting(), 0, "the application is not asked again");
    });
    rig.assert_idle();
}

#[test]
fn a_fill_outlives_its_client() {
    let (rig, app) = Rig::proxy_behind(Keeper::new(true));
    rig.run(async {
        let mut first = rig.client(4096);
        first.send(GET).await;
        let (mut backend, _) = app.asked().await;
        first.close().await;
        let mut second = rig.client(4096);
        second.send(GET).await;
        settle().await;
        backend.send(ANSWER).await;
        assert!(second.rest().await.ends_with("hello world"));
        second.close().await;
        drop(backend);
        assert!(rig.ask(GET).await.ends_with("hello world"));
        assert_eq!(app.waiting(), 0, "the application is asked once");
    });
    rig.assert_idle();
}
