//! A client over HTTP/2, which is the crate `h2`.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ::http::Request;
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, RecvStream, SendStream};
use levity_net::{AsyncTransport, Peer, Transport};
use tokio::task::{self, JoinHandle};

use super::{Rig, settle};
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
        Self::over(rig, builder, ours, served).await
    }

    async fn over(rig: &Rig, builder: &Builder, ours: Transport, served: Transport) -> Self {
        let slot = rig.worker.core.slots.clone().try_acquire_owned();
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

    /// A client that is far away, and the number of round trips that it has waited for.
    pub async fn far(rig: &Rig) -> (Self, Rc<Cell<usize>>) {
        let ((ours, near), (far, served)) =
            (Transport::memory(WIRE_BYTES), Transport::memory(WIRE_BYTES));
        let trips = Rc::new(Cell::new(0));
        task::spawn_local(relay(near, far, trips.clone()));
        let client = Self::over(rig, &Builder::new(), ours, served).await;
        (client, trips)
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

/// Passes on what `client` sends at once, and what `server` says only when nothing happens before: that takes a round trip.
async fn relay(mut client: Transport, mut server: Transport, trips: Rc<Cell<usize>>) {
    let mut context = Context::from_waker(Waker::noop());
    let (mut buffer, mut said, mut is_settled) = (vec![0; WIRE_BYTES], Vec::new(), false);
    loop {
        let sent = client.poll_read(&mut context, &mut buffer);
        if let Poll::Ready(sent) = sent {
            let Ok(bytes @ 1..) = sent else {
                return;
            };
            if server.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
            is_settled = false;
        }
        if let Poll::Ready(Ok(bytes)) = server.poll_read(&mut context, &mut buffer) {
            said.extend_from_slice(&buffer[..bytes]);
            is_settled &= bytes == 0;
        }
        if is_settled && !said.is_empty() {
            trips.set(trips.get() + 1);
            let _ = client.write_all(&std::mem::take(&mut said)).await;
        }
        settle().await;
        is_settled = true;
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
