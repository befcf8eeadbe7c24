//! A client over HTTP/2, which is the crate `h2`.

use std::cell::RefCell;
use std::future::poll_fn;

use ::http::Request;
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, RecvStream, SendStream};
use levity_net::{AsyncTransport, Peer, Transport};
use tokio::task::{self, JoinHandle};

use super::Rig;
use crate::serve::serve_unaccepted;

/// The size of the connection's buffer in each direction.
const WIRE_BYTES: usize = 16 * 1024;

/// A client with one connection, and the task that serves the other end.
pub struct Client {
    requests: SendRequest<Bytes>,
    pings: RefCell<PingPong>,
    connection: JoinHandle<()>,
    serving: JoinHandle<()>,
}

impl Client {
    /// A client whose connection the worker of `rig` serves.
    pub async fn new(rig: &Rig) -> Self {
        Self::with(rig, &Builder::new()).await
    }

    /// A client with other settings.
    pub async fn with(rig: &Rig, builder: &Builder) -> Self {
        let (ours, served) = Transport::memory(WIRE_BYTES);
        let slot = rig.worker.slots.clone().try_acquire_owned();
        let front = serve_unaccepted(&rig.worker, served, Peer::new(None), slot.expect("a slot"));
        let serving = task::spawn_local(front);
        let connected = builder.handshake(AsyncTransport(ours)).await;
        let (requests, mut connection) = connected.expect("a connection");
        let pings = connection.ping_pong().expect("nobody else has it");
        let connection = task::spawn_local(async move {
            // An error shows in the requests.
            let _ = connection.await;
        });
        Self {
            requests,
            pings: RefCell::new(pings),
            connection,
            serving,
        }
    }

    /// Sends a header section; the body follows unless `ends`.
    pub async fn send(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut requests = self.requests.clone().ready().await.expect("a connection");
        requests.send_request(request, ends).expect("a request")
    }

    /// Sends a PING, and waits for the reply.
    pub async fn ping(&self) {
        let sent = self.pings.borrow_mut().send_ping(Ping::opaque());
        sent.expect("none is on its way");
        let ponged = poll_fn(|context| self.pings.borrow_mut().poll_pong(context)).await;
        ponged.expect("a reply");
    }

    /// Whether the settings of the server permit an extended CONNECT.
    pub fn may_connect(&self) -> bool {
        self.requests.is_extended_connect_protocol_enabled()
    }

    /// Closes the connection and waits until the worker has released its resources.
    pub async fn close(self) {
        self.connection.abort();
        self.serving.await.expect("served");
    }

    /// Waits until the worker has ended the connection and released its resources.
    pub async fn served(self) {
        self.serving.await.expect("served");
    }
}

/// Receives the next bytes of `body`, and gives the window back.
pub async fn receive(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let piece = body.data().await;
    if let Some(Ok(bytes)) = &piece {
        let released = body.flow_control().release_capacity(bytes.len());
        released.expect("no more than has arrived");
    }
    piece
}

/// Receives until the end of `body` or a reset.
pub async fn receive_all(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = receive(body).await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}
