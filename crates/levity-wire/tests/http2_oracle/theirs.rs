//! The crate `h2`, over a connection in memory.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use levity_wire::http2::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

use crate::support::{HEAD_BYTES_MAX, sent};
use crate::verdict::{Request, Verdict, comparable};

/// More than a sequence has, so that no write waits.
const PIPE_BYTES: usize = 8 << 20;

/// A connection. What has arrived of bodies is never used, so that windows do not grow.
pub struct Theirs {
    connection: Connection<DuplexStream, Bytes>,
    client: DuplexStream,
    /// What the server has sent of a frame that is not whole.
    partial: Vec<u8>,
    requests: BTreeMap<u32, Accepted>,
    pub verdict: Verdict,
}

struct Accepted {
    body: RecvStream,
    received: Vec<u8>,
    /// Without it the stream would be reset.
    _response: SendResponse<Bytes>,
}

impl Theirs {
    /// A connection whose client has sent `start`: the preface and its settings.
    pub fn new(start: &[u8]) -> Self {
        let (mut client, server) = tokio::io::duplex(PIPE_BYTES);
        write(&mut client, start);
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(STREAMS_MAX as u32)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .enable_connect_protocol()
            .max_concurrent_reset_streams(usize::MAX)
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(usize::MAX)
            .data_frame_budget(usize::MAX);
        let handshake = pin!(builder.handshake(server));
        let Poll::Ready(connection) = handshake.poll(&mut noop()) else {
            panic!("the preface was sent");
        };
        let mut this = Self {
            connection: connection.expect("a handshake"),
            client,
            partial: Vec::new(),
            requests: BTreeMap::new(),
            verdict: Verdict::default(),
        };
        this.run();
        this
    }

    /// Takes bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        write(&mut self.client, bytes);
        self.run();
    }

    /// Polls until nothing moves any more.
    fn run(&mut self) {
        loop {
            let mut moves = self.accept();
            moves |= self.bodies();
            moves |= self.read();
            if !moves {
                return;
            }
        }
    }

    fn accept(&mut self) -> bool {
        match self.connection.poll_accept(&mut noop()) {
            Poll::Ready(Some(Ok((request, response)))) => {
                let stream = response.stream_id().as_u32();
                let (parts, body) = request.into_parts();
                let request = Request {
                    head: head(&parts),
                    ..Request::default()
                };
                self.verdict.requests.insert(stream, request);
                let accepted = Accepted {
                    body,
                    received: Vec::new(),
                    _response: response,
                };
                self.requests.insert(stream, accepted);
                true
            }
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => false,
        }
    }

    fn bodies(&mut self) -> bool {
        let mut moves = false;
        for (stream, accepted) in &mut self.requests {
            let request = self.verdict.requests.get_mut(stream).expect("it is there");
            while request.body.is_none() {
                match accepted.body.poll_data(&mut noop()) {
                    Poll::Ready(Some(Ok(part))) => accepted.received.extend_from_slice(&part),
                    Poll::Ready(None) => match accepted.body.poll_trailers(&mut noop()) {
                        Poll::Ready(Ok(trailers)) => {
                            request.body = Some(accepted.received.clone());
                            let trailers = trailers.unwrap_or_default();
                            let fields = trailers.iter();
                            let fields =
                                fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
                            request.trailers = comparable(fields);
                        }
                        _ => break,
                    },
                    Poll::Ready(Some(Err(_))) | Poll::Pending => break,
                }
                moves = true;
            }
        }
        moves
    }

    /// Reads what the server has sent.
    fn read(&mut self) -> bool {
        let mut moves = false;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let mut room = ReadBuf::new(&mut buffer);
            let polled = Pin::new(&mut self.client).poll_read(&mut noop(), &mut room);
            if !matches!(polled, Poll::Ready(Ok(()))) || room.filled().is_empty() {
                break;
            }
            self.partial.extend_from_slice(room.filled());
            moves = true;
        }
        let whole = whole(&self.partial);
        let frames: Vec<_> = self.partial.drain(..whole).collect();
        self.verdict.take(&sent(&frames));
        moves
    }
}

/// The bytes of the frames that are whole.
fn whole(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some([a, b, c, ..]) = bytes.get(end..).filter(|rest| rest.len() >= 9) {
        let next = end + 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn write(client: &mut DuplexStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match Pin::new(&mut *client).poll_write(&mut noop(), bytes) {
            Poll::Ready(Ok(written)) => bytes = &bytes[written..],
            // The server has gone.
            Poll::Ready(Err(_)) => return,
            Poll::Pending => panic!("the pipe is full"),
        }
    }
}

fn head(parts: &http::request::Parts) -> Vec<String> {
    let uri = &parts.uri;
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let authority = uri
        .authority()
        .map(|name| ("host", name.as_str().as_bytes()));
    let fields = parts.headers.iter();
    let is_authority = |value: &[u8]| authority.is_some_and(|(_, authority)| authority == value);
    let fields = fields.filter(|(name, value)| *name != "host" || !is_authority(value.as_bytes()));
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let line = [parts.method.to_string(), target.to_owned()];
    [
        line.to_vec(),
        comparable(authority.into_iter().chain(fields)),
    ]
    .concat()
}
