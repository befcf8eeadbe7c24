use std::io::{Read as _, Write as _};

use levity_tls::EARLY_DATA_BYTES_MAX;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConnection, Error, PeerMisbehaved};

use super::*;

const EARLY: &[u8] = b"early data";

/// A client whose messages are sent by hand.
struct Client {
    session: ClientConnection,
    /// The other end of the server's transport.
    transport: Transport,
}

impl Client {
    /// One that has a session, and the bytes that it sends first, with `early` among them.
    async fn returning(rig: &Rig, early: &[u8]) -> (Self, Transport, Vec<u8>) {
        let (mut near, mut far) = rig.pair(1 << 20).await;
        // The tickets follow the end of the handshake.
        far.write_all(b"hello").await.expect("a reader");
        near.read(&mut [0; 5]).await.expect("a word");
        near.write_all(b"welcome").await.expect("a reader");
        far.read(&mut [0; 7]).await.expect("a word");
        let (near, transport) = Transport::memory(1 << 20);
        let name = "a.test".try_into().expect("a name");
        let session = ClientConnection::new(rig.client.clone(), name);
        let mut client = Self {
            session: session.expect("a session"),
            transport,
        };
        let mut writer = client
            .session
            .early_data()
            .expect("a ticket that allows it");
        writer.write_all(early).expect("room");
        let first = client.said();
        (client, near, first)
    }

    /// What it has to say now.
    fn said(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut said).expect("memory");
        }
        said
    }

    /// Reads once from the server.
    async fn hear(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.transport.read(&mut bytes).await.expect("an answer");
        let mut heard = &bytes[..count];
        while !heard.is_empty() {
            self.session.read_tls(&mut heard).expect("room");
            self.session.process_new_packets().expect("an answer");
        }
    }

    /// Reads `bytes` from the server.
    async fn hears(&mut self, bytes: &[u8]) {
        let mut heard = Vec::new();
        while heard.len() < bytes.len() {
            let mut piece = [0; 1000];
            match self.session.reader().read(&mut piece) {
                Ok(count) => heard.extend_from_slice(&piece[..count]),
                Err(_) => self.hear().await,
            }
        }
        assert_eq!(heard, bytes);
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.transport.write_all(bytes).await.expect("a reader");
    }
}

async fn read_exactly(stream: &mut Transport, bytes: &[u8]) {
    let mut read = Vec::with_capacity(bytes.len());
    while read.len() < bytes.len() {
        let count = poll_fn(|context| stream.poll_append(context, &mut read)).await;
        assert_ne!(count.expect("bytes"), 0);
    }
    assert!(read == bytes);
}

fn tls(stream: Result<TlsStream, HandshakeError>) -> Transport {
    Transport::Tls(Box::new(stream.expect("agreed")))
}

#[tokio::test]
async fn early_data_is_answered_before_the_handshake_is_complete() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    client.send(&first).await;
    let stream = rig.accept(near, Vec::new()).await;
    assert!(
        stream
            .as_ref()
            .is_ok_and(|stream| is_resumed(stream.session()))
    );
    let mut stream = tls(stream);
    read_exactly(&mut stream, EARLY).await;
    assert!(stream.is_early());
    // Four records.
    let answer = vec![7; 64_000];
    stream.write_all(&answer).await.expect("a reader");
    client.hears(&answer).await;
    assert!(client.session.is_early_data_accepted());
    // Now it says more than its first words.
    client.session.writer().write_all(b"more").expect("room");
    let rest = client.said();
    client.send(&rest).await;
    read_exactly(&mut stream, b"more").await;
    assert!(!stream.is_early() && stream.handshake_error().is_none());
    stream.write_all(b"and more").await.expect("a reader");
    client.hears(b"and more").await;
}

/// Reads without a wait and into memory take the same ways.
#[tokio::test]
async fn early_data_is_read_in_any_way() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    client.send(&first).await;
    let mut stream = tls(rig.accept(near, Vec::new()).await);
    let mut read = [0; 4];
    assert_eq!(stream.try_read(&mut read).expect("bytes"), 4);
    assert_eq!(&read, b"earl");
    assert_eq!(stream.read(&mut read).await.expect("bytes"), 4);
    assert_eq!(&read, b"y da");
    read_exactly(&mut stream, b"ta").await;
    let error = stream.try_read(&mut read).expect_err("nothing more");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    // The rest of the handshake and more, at once.
    client.hear().await;
    client.session.writer().write_all(b"more").expect("room");
    let rest = client.said();
    client.send(&rest).await;
    assert_eq!(stream.try_read(&mut read).expect("bytes"), 4);
    assert_eq!(&read, b"more");
    assert!(!stream.is_early());
}

/// Early data that is read after the end of the handshake is no copy.
#[tokio::test]
async fn what_is_read_after_the_handshake_is_not_early() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    client.send(&first).await;
    let mut stream = tls(rig.accept(near, Vec::new()).await);
    client.hear().await;
    client.session.writer().write_all(b", more").expect("room");
    let rest = client.said();
    let mut read = [0; 3];
    stream.read(&mut read).await.expect("bytes");
    assert!(stream.is_early());
    client.send(&rest).await;
    read_exactly(&mut stream, &EARLY[3..]).await;
    // Bytes of the two kinds do not mix.
    read_exactly(&mut stream, b", more").await;
    assert!(!stream.is_early());
}

#[tokio::test]
async fn nobody_is_answered_twice() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    client.send(&first).await;
    let mut stream = tls(rig.accept(near, Vec::new()).await);
    read_exactly(&mut stream, EARLY).await;
    for piece in [1, 100, 5000] {
        // It is asked for a handshake of its own, which somebody without keys cannot make.
        let error = hello_of(&rig, &first, piece).await.expect_err("a copy");
        assert!(matches!(error, HandshakeError::Gone(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_whose_session_is_not_known_sends_again() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    let mut config = (*rig.config()).clone();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    client.send(&first).await;
    let talking = async {
        client.hear().await;
        client.session.writer().write_all(b"again").expect("room");
        let rest = client.said();
        client.send(&rest).await;
    };
    let (stream, ()) = tokio::join!(accept(near, Vec::new(), config.into()), talking);
    let mut stream = tls(stream);
    assert!(!client.session.is_early_data_accepted());
    assert!(!stream.is_early());
    read_exactly(&mut stream, b"again").await;
}

#[tokio::test]
async fn nobody_may_send_early_data_by_default() {
    let rig = Rig::new();
    let (mut near, mut far) = rig.pair(1 << 20).await;
    near.write_all(b"welcome").await.expect("a reader");
    far.read(&mut [0; 7]).await.expect("a word");
    let mut config = (*rig.client).clone();
    config.enable_early_data = true;
    let name = "a.test".try_into().expect("a name");
    let mut session = ClientConnection::new(config.into(), name).expect("a session");
    assert!(session.early_data().is_none());
}

/// The error of whoever reads to the end, and what it has read.
async fn read_until_cut(stream: &mut Transport) -> (Vec<u8>, io::Error) {
    let mut read = Vec::new();
    loop {
        read.reserve(1000);
        match poll_fn(|context| stream.poll_append(context, &mut read)).await {
            Ok(count) => assert_ne!(count, 0, "a clean end"),
            Err(error) => return (read, error),
        }
    }
}

#[tokio::test]
async fn early_data_may_be_cut_anywhere() {
    let rig = Rig::build(true);
    let (_, _, whole) = Client::returning(&rig, EARLY).await;
    let mut accepted = 0;
    for at in 0..whole.len() {
        let (mut client, near, first) = Client::returning(&rig, EARLY).await;
        client.send(&first[..at.min(first.len())]).await;
        client.transport.end_output();
        match rig.accept(near, Vec::new()).await {
            Ok(stream) => {
                let mut stream = tls(Ok(stream));
                let (read, error) = read_until_cut(&mut stream).await;
                assert!(read.is_empty(), "the record of {at} bytes is incomplete");
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {at}");
                assert!(stream.is_early() && stream.handshake_error().is_none());
                accepted += 1;
            }
            Err(HandshakeError::Gone(_)) => assert_eq!(accepted, 0, "cut at {at}"),
            Err(error) => panic!("cut at {at}: {error:?}"),
        }
    }
    // A record with its header and its tag.
    assert!(accepted > EARLY.len() + 5 + 16, "{accepted}");
}

#[tokio::test]
async fn the_rest_of_the_handshake_may_be_cut_anywhere() {
    let rig = Rig::build(true);
    let mut whole = usize::MAX;
    let mut at = 0;
    while at <= whole {
        let (mut client, near, first) = Client::returning(&rig, EARLY).await;
        client.send(&first).await;
        let mut stream = tls(rig.accept(near, Vec::new()).await);
        client.hear().await;
        let rest = client.said();
        whole = rest.len();
        client.send(&rest[..at]).await;
        client.transport.end_output();
        let (read, error) = read_until_cut(&mut stream).await;
        assert_eq!(read, EARLY, "cut at {at}");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {at}");
        assert_eq!(stream.is_early(), at < whole, "cut at {at} of {whole}");
        at += 1;
    }
}

/// Whoever cannot finish the handshake is told so, and the reason is there for the log.
#[tokio::test]
async fn a_rest_that_was_changed_ends_the_stream() {
    let rig = Rig::build(true);
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    client.send(&first).await;
    let mut stream = tls(rig.accept(near, Vec::new()).await);
    client.hear().await;
    let mut rest = client.said();
    *rest.last_mut().expect("bytes") ^= 1;
    client.send(&rest).await;
    let (read, error) = read_until_cut(&mut stream).await;
    assert_eq!(read, EARLY);
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(
        stream.handshake_error(),
        Some(levity_tls::reason(&Error::DecryptError))
    );
    let error = stream.write_all(b"answer").await.expect_err("over");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn as_much_as_is_allowed_arrives() {
    let rig = Rig::build(true);
    let early: Vec<u8> = (0..EARLY_DATA_BYTES_MAX)
        .map(|at| (at >> 4) as u8)
        .collect();
    for piece in [7, 1000, 1 << 16] {
        let (mut client, near, first) = Client::returning(&rig, &early).await;
        let mut writer = client.session.early_data().expect("allowed");
        assert_eq!(writer.write(b"more").expect("memory"), 0);
        let sending = async {
            for piece in first.chunks(piece) {
                client.transport.write_all(piece).await.expect("a reader");
                tokio::task::yield_now().await;
            }
        };
        let reading = async {
            let mut stream = tls(rig.accept(near, Vec::new()).await);
            read_exactly(&mut stream, &early).await;
            assert!(stream.is_early());
        };
        tokio::join!(sending, reading);
    }
    // It is there before the handshake, as after a PROXY header.
    let (_client, near, first) = Client::returning(&rig, &early).await;
    let mut stream = tls(rig.accept(near, first).await);
    read_exactly(&mut stream, &early).await;
}

#[tokio::test]
async fn more_than_is_allowed_is_refused() {
    let rig = Rig::build(true);
    let too_much = Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived);
    let mut config = (*rig.config()).clone();
    config.max_early_data_size = EARLY.len() as u32 - 1;
    let config = Arc::new(config);
    // With the hello.
    let (_client, near, first) = Client::returning(&rig, EARLY).await;
    let refused = accept(near, first, config.clone()).await;
    let Err(HandshakeError::Tls(error)) = refused else {
        panic!("taken");
    };
    assert_eq!(error, too_much);
    // After it.
    let (mut client, near, first) = Client::returning(&rig, EARLY).await;
    let (hello, last) = first.split_at(first.len() - 1);
    client.send(hello).await;
    let mut stream = tls(accept(near, Vec::new(), config).await);
    client.send(last).await;
    let (read, error) = read_until_cut(&mut stream).await;
    assert!(read.is_empty());
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(
        stream.handshake_error(),
        Some(levity_tls::reason(&too_much))
    );
}
