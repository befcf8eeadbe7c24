use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use levity_tls::{LocalCa, Server, SitePolicy, TicketKeys, Trust, client_config};
use rustls::{ClientConfig, ServerConfig};

use super::*;
use crate::transport::Transport;

mod early_data;

/// Both ends' configurations.
struct Rig {
    server: Server,
    client: Arc<ClientConfig>,
}

impl Rig {
    fn new() -> Self {
        Self::build(false)
    }

    fn build(early_data: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = LocalCa::open(folder.path()).expect("an authority");
        let hosts = ["a.test".to_owned()];
        let certificate = ca.issue(&hosts, SystemTime::now());
        let site = SitePolicy {
            hosts: &hosts,
            certificates: vec![certificate.expect("a certificate")],
            one_for_each: false,
            on_demand: None,
            client_auth: None,
            early_data,
        };
        let tickets = Arc::new(TicketKeys::random());
        let client = client_config(Trust::Authorities(ca.path()), None);
        let mut client = client.expect("a configuration");
        client.enable_early_data = early_data;
        Self {
            server: Server::new(&[site], Some(0), &tickets).expect("a policy"),
            client: client.into(),
        }
    }

    async fn accept(&self, below: Transport, bytes: Vec<u8>) -> Result<TlsStream, HandshakeError> {
        accept(below, bytes, self.config()).await
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.server.policy(Some("a.test")).config.clone()
    }

    async fn connect(&self, below: Transport) -> Result<TlsStream, HandshakeError> {
        let name = "a.test".try_into().expect("a name");
        let handshake = Handshake::connect(below, self.client.clone(), name)?;
        handshake.finish(at_once).await
    }

    /// Two connected ends over sockets whose buffers hold `bytes_max`.
    async fn pair(&self, bytes_max: usize) -> (Transport, Transport) {
        let (near, far) = Transport::memory(bytes_max);
        let (near, far) = tokio::join!(self.accept(near, Vec::new()), self.connect(far));
        let tls = |stream: Result<TlsStream, _>| Transport::Tls(Box::new(stream.expect("agreed")));
        (tls(near), tls(far))
    }
}

async fn accept(
    below: Transport,
    bytes: Vec<u8>,
    config: Arc<ServerConfig>,
) -> Result<TlsStream, HandshakeError> {
    let hello = Hello::read(below, bytes).await?;
    let (unanswered, job) = hello.answer(config);
    unanswered.with(job.run())?.finish(at_once).await
}

async fn at_once(job: ProcessJob) -> Option<Processed> {
    Some(job.run())
}

/// Reads until the end.
async fn read_all(transport: &mut Transport) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        read.reserve(1000);
        if poll_fn(|context| transport.poll_append(context, &mut read)).await? == 0 {
            return Ok(read);
        }
    }
}

#[tokio::test]
async fn bytes_arrive_through_buffers_of_any_size() {
    let rig = Rig::new();
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at >> 8) as u8).collect();
    for bytes_max in [100, 17_000, 1 << 20] {
        let (mut near, mut far) = rig.pair(bytes_max).await;
        let writing = async {
            near.write_all(&bytes).await.expect("a reader");
            near.end_output();
            // What the socket had no room for is sent along with a read.
            assert_eq!(read_all(&mut near).await.expect("an answer"), b"thanks");
        };
        let reading = async {
            let read = read_all(&mut far).await.expect("bytes");
            assert!(read == *bytes, "{} of {}", read.len(), bytes.len());
            far.write_all(b"thanks").await.expect("a reader");
            far.end_output();
        };
        tokio::join!(writing, reading);
    }
}

/// A write is not over while bytes are in memory that a close would lose.
#[tokio::test]
async fn a_write_waits_until_the_socket_has_all() {
    let rig = Rig::new();
    let (mut near, mut far) = rig.pair(20_000).await;
    let bytes = vec![7; 50_000];
    let mut read = vec![0; bytes.len()];
    let mut count = 0;
    {
        let mut writing = Box::pin(near.write_all(&bytes));
        assert!(polled_once(&mut writing).await.is_none());
        // It goes on as there is room.
        loop {
            tokio::select! {
                biased;
                written = &mut writing => break written.expect("a reader"),
                more = far.read(&mut read[count..]) => count += more.expect("bytes"),
            }
        }
    }
    drop(near);
    while count < bytes.len() {
        count += far.read(&mut read[count..]).await.expect("bytes");
    }
    assert!(read == bytes);
    assert_eq!(far.read(&mut [0]).await.expect("a clean end"), 0);
}

/// Polls once.
async fn polled_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// Whoever cuts the connection must not make a part look like the whole.
#[tokio::test]
async fn an_end_without_a_word_is_an_error() {
    let rig = Rig::new();
    let (mut near, mut far) = rig.pair(1 << 20).await;
    near.write_all(b"part").await.expect("a reader");
    near.reset_on_close();
    drop(near);
    let error = read_all(&mut far).await.expect_err("cut");
    assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
}

/// Reads `bytes` from a client that sends them in pieces of `piece` bytes.
async fn hello_of(rig: &Rig, bytes: &[u8], piece: usize) -> Result<TlsStream, HandshakeError> {
    let (near, mut far) = Transport::memory(1 << 20);
    let sending = async {
        for piece in bytes.chunks(piece) {
            // An error means that the other end has had enough.
            let _ = far.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        far.end_output();
    };
    let (accepted, ()) = tokio::join!(rig.accept(near, Vec::new()), sending);
    accepted
}

/// The first message of a client.
async fn hello_bytes(rig: &Rig) -> Vec<u8> {
    let (near, mut far) = Transport::memory(1 << 20);
    let mut hello = vec![0; 1 << 14];
    let mut connecting = Box::pin(rig.connect(near));
    assert!(polled_once(&mut connecting).await.is_none());
    let count = far.read(&mut hello).await.expect("a hello");
    hello.truncate(count);
    hello
}

#[tokio::test]
async fn a_hello_may_come_in_pieces_and_be_cut_anywhere() {
    let rig = Rig::new();
    let hello = hello_bytes(&rig).await;
    for at in 0..hello.len() {
        let error = hello_of(&rig, &hello[..at], 100).await.expect_err("cut");
        assert!(matches!(error, HandshakeError::Gone(_)), "cut at {at}");
    }
    for piece in [1, 7, 5000] {
        // It is answered, and the client says no more.
        let error = hello_of(&rig, &hello, piece).await.expect_err("cut");
        assert!(matches!(error, HandshakeError::Gone(_)));
    }
}

#[tokio::test]
async fn garbage_is_refused() {
    let rig = Rig::new();
    let error = hello_of(&rig, b"GET / HTTP/1.1\r\n", 3).await;
    let Err(HandshakeError::NotTls(_, bytes)) = error else {
        panic!("taken for TLS");
    };
    assert!(b"GET / HTTP/1.1\r\n".starts_with(&bytes));
    let hello = hello_bytes(&rig).await;
    for at in 0..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 0x80;
        // Whatever it means then, nobody panics, and the handshake does not end.
        hello_of(&rig, &changed, 5000).await.expect_err("cut");
    }
}

#[tokio::test]
async fn a_hello_has_a_maximum_size() {
    let rig = Rig::new();
    // One message in many records, which never ends.
    let mut endless = vec![22, 3, 1, 0x10, 0, 1, 0xff, 0xff, 0];
    endless.resize(5 + 0x1000, 0);
    while endless.len() < 3 * HELLO_BYTES_MAX {
        endless.extend_from_slice(&[22, 3, 1, 0x10, 0]);
        endless.resize(endless.len() + 0x1000, 0);
    }
    let error = hello_of(&rig, &endless, 4096).await.expect_err("too large");
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
}
