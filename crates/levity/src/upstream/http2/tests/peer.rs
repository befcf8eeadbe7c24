//! The other ends: a backend and a client that are the crate `h2`, and a backend of bytes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use ::http::{Request, Response};
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use levity_net::{AsyncTransport, Transport};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinHandle};

pub use crate::rig::http2::{Client, receive_all};
use crate::rig::{Backend, End};

/// The size of the buffer of a connection, in each direction.
pub const WIRE_BYTES: usize = 1 << 16;

/// A request that a backend has got, and the way to respond.
pub struct Call {
    pub request: Request<RecvStream>,
    pub reply: SendResponse<Bytes>,
}

impl Call {
    /// Sends a header section with status 200.
    pub fn begin(&mut self) -> SendStream<Bytes> {
        self.reply
            .send_response(Response::new(()), false)
            .expect("sent")
    }

    /// Sends a whole response.
    pub fn answer(&mut self, body: &str) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.begin().send_data(body, true).expect("sent");
    }

    /// The body of the request, and its trailers.
    pub async fn body(&mut self) -> (Vec<u8>, Option<::http::HeaderMap>) {
        let body = self.request.body_mut();
        let all = receive_all(body).await.expect("a whole body");
        (all, body.trailers().await.expect("an end"))
    }
}

/// One connection of the worker, as its backend sees it.
pub struct Served {
    calls: mpsc::UnboundedReceiver<Call>,
    shut_down: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Served {
    pub async fn accept(app: &Backend) -> Self {
        Self::with(app, &server::Builder::new()).await
    }

    /// With other settings.
    pub async fn with(app: &Backend, builder: &server::Builder) -> Self {
        Self::on(app.accept(WIRE_BYTES).await, builder).await
    }

    /// On a connection that was accepted before.
    pub async fn on(accepted: End, builder: &server::Builder) -> Self {
        let connection = builder
            .handshake(AsyncTransport(accepted.into_transport()))
            .await;
        let mut connection = connection.expect("a preface");
        let (sender, calls) = mpsc::unbounded_channel();
        let (shut_down, told) = oneshot::channel();
        let mut told = Some(told);
        let serving = task::spawn_local(poll_fn(move |context| {
            let shut_down = told.as_mut().map(|told| Pin::new(told).poll(context));
            if let Some(Poll::Ready(shut_down)) = shut_down {
                told = None;
                // Otherwise the test is over.
                if shut_down.is_ok() {
                    connection.graceful_shutdown();
                }
            }
            while let Poll::Ready(accepted) = connection.poll_accept(context) {
                let Some(Ok((request, reply))) = accepted else {
                    return Poll::Ready(());
                };
                // Who does not look for requests does not get them.
                let _ = sender.send(Call { request, reply });
            }
            Poll::Pending
        }));
        Self {
            calls,
            shut_down: Some(shut_down),
            serving,
        }
    }

    pub async fn call(&mut self) -> Call {
        self.calls.recv().await.expect("a request")
    }

    /// A request that has arrived.
    pub fn arrived(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }

    /// Takes no more requests (GOAWAY).
    pub fn shut_down(&mut self) {
        let shut_down = self.shut_down.take().expect("the first time");
        shut_down.send(()).expect("a connection");
    }

    /// Whether the worker has ended the connection.
    pub fn has_ended(&self) -> bool {
        self.serving.is_finished()
    }

    /// Closes the connection without a word.
    pub fn break_off(self) {
        self.serving.abort();
    }
}

/// Sends the header section of a POST with `te: trailers`; the body follows.
pub async fn post(client: &Client) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post("http://a.test/app").header("te", "trailers");
    let request = request.body(()).expect("a request");
    client.send(request, false).await
}

/// A backend of bytes, for what no library says.
pub struct Raw(Transport);

/// Types of frames (RFC 9113, 6).
pub const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A flag (RFC 9113, 6.2).
const END_HEADERS: u8 = 4;

const FRAME_HEADER_BYTES: usize = 9;

/// SETTINGS_MAX_CONCURRENT_STREAMS.
fn streams_setting(count: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, count]
}

impl Raw {
    /// Has said its settings, without limits.
    pub async fn accept(app: &Backend) -> Self {
        Self::with(app, &[]).await
    }

    /// Has said that it takes so many streams at once.
    pub async fn with_streams(app: &Backend, count: u8) -> Self {
        Self::with(app, &streams_setting(count)).await
    }

    async fn with(app: &Backend, settings: &[u8]) -> Self {
        let mut raw = Self(app.accept(WIRE_BYTES).await.into_transport());
        let mut preface = [0; 24];
        raw.fill(&mut preface).await;
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        raw.send(SETTINGS, settings).await;
        raw
    }

    /// Takes so many streams at once from now on.
    pub async fn set_streams(&mut self, count: u8) {
        self.send(SETTINGS, &streams_setting(count)).await;
    }

    /// Breaks the protocol: a PING has eight bytes (RFC 9113, 6.7).
    pub async fn break_protocol(&mut self) {
        self.send(PING, &[0; 7]).await;
    }

    /// Responds to the first request without a status (RFC 9113, 8.3.2).
    pub async fn answer_malformed(&mut self) {
        const END_STREAM: u8 = 1;
        let frame = [0, 0, 0, HEADERS, END_HEADERS | END_STREAM, 0, 0, 0, 1];
        self.0.write_all(&frame).await.expect("written");
    }

    /// Sends a whole response to the first request, `body` with its length (RFC 7541, A), and the end of the connection.
    pub async fn answer_and_end(&mut self, body: &[u8; 6]) {
        const END_STREAM: u8 = 1;
        const DATA: u8 = 0;
        let head = [0, 0, 5, HEADERS, END_HEADERS, 0, 0, 0, 1];
        let fields = [0x88, 0x0f, 0x0d, 1, b'6'];
        let data = [0, 0, 6, DATA, END_STREAM, 0, 0, 0, 1];
        let all = [&head[..], &fields, &data, body].concat();
        self.0.write_all(&all).await.expect("written");
        self.0.end_output();
    }

    async fn fill(&mut self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            let count = self.0.read(&mut bytes[filled..]).await.expect("bytes");
            assert!(count > 0, "it has ended");
            filled += count;
        }
    }

    /// Sends a frame of the connection.
    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let head = [0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0];
        self.0.write_all(&head).await.expect("written");
        self.0.write_all(payload).await.expect("written");
    }

    /// Begins the response to the first request: 200 (RFC 7541, A), and the rest to come.
    pub async fn begin(&mut self) {
        let frame = [0, 0, 1, HEADERS, END_HEADERS, 0, 0, 0, 1, 0x88];
        self.0.write_all(&frame).await.expect("written");
    }

    /// Takes no stream (GOAWAY with the last stream 0).
    pub async fn refuse_all(&mut self) {
        let no_error = Reason::NO_ERROR.into();
        let payload = [[0; 4], u32::to_be_bytes(no_error)].concat();
        self.send(GOAWAY, &payload).await;
    }

    /// Waits for a frame of that type.
    pub async fn until(&mut self, kind: u8) {
        let mut head = [0; FRAME_HEADER_BYTES];
        loop {
            self.fill(&mut head).await;
            let bytes = usize::from(head[1]) << 8 | usize::from(head[2]);
            self.fill(&mut vec![0; bytes]).await;
            if head[3] == kind {
                return;
            }
        }
    }

    /// Waits for the end of the connection.
    pub async fn end(&mut self) {
        let mut bytes = [0; 1024];
        while self.0.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    }
}
