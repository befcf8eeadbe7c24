//! Handshakes with clients and with backends.
//!
//! One with a client has three parts: its first message is read ([`Hello::read`]), which says what it wants; the answer is
//! computed ([`AnswerJob`]), wherever the caller likes, since a signature may take milliseconds; both ends finish
//! ([`Handshake::finish`]).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Waker};

use rustls::pki_types::ServerName;
use rustls::server::{Accepted, AcceptedAlert, Acceptor, ClientHello};
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, HandshakeKind, ServerConfig,
    ServerConnection,
};

use super::stream::{Below, TlsStream, early_data, poll_fill, poll_flush};
use crate::transport::Transport;

/// The maximum size of the first message of a client in bytes: what one record holds. Those of browsers have 2 KB.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;

/// The types of records (RFC 8446, 5.1), and that of heartbeats (RFC 6520).
const RECORDS: RangeInclusive<u8> = 20..=24;

/// The maximum number of pieces in which a peer may send its part of a handshake after the first message. Each is
/// computed by itself, perhaps by other threads.
const PIECES_MAX: usize = 64;

/// The bytes that a session takes at a time.
const PIECE_BYTES: usize = 4096;

/// Why a handshake fails.
#[derive(Debug)]
pub enum HandshakeError {
    /// The connection has ended, or is broken.
    Gone(io::Error),
    /// The client does not speak TLS. What it has sent so far.
    NotTls(Transport, Vec<u8>),
    /// The two ends do not agree, or the peer breaks the rules.
    Tls(Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// A client whose first message has come.
pub struct Hello {
    below: Transport,
    accepted: Accepted,
    /// What has come after it.
    rest: Vec<u8>,
}

impl Hello {
    /// Reads the first message of the client at the other end of `below`, of which `bytes` have come already.
    ///
    /// # Errors
    /// When it is not TLS or too large, or the client has gone.
    pub async fn read(mut below: Transport, mut bytes: Vec<u8>) -> Result<Self, HandshakeError> {
        let mut acceptor = Acceptor::default();
        let mut given = 0;
        loop {
            if bytes.first().is_some_and(|first| !RECORDS.contains(first)) {
                return Err(HandshakeError::NotTls(below, bytes));
            }
            // More may have come at once.
            let end = bytes.len().min(HELLO_BYTES_MAX);
            while given < end {
                given += acceptor.read_tls(&mut &bytes[given..end])?;
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) => {
                        bytes.drain(..given);
                        let rest = bytes;
                        return Ok(Self {
                            below,
                            accepted,
                            rest,
                        });
                    }
                    Err((error, alert)) => return Err(refused(&mut below, error, alert)),
                }
            }
            if given == HELLO_BYTES_MAX {
                return Err(HandshakeError::Tls(Error::PeerSentOversizedRecord));
            }
            bytes.reserve(PIECE_BYTES);
            if poll_fn(|context| below.poll_append(context, &mut bytes)).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The address at our end; `None` except over TCP.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.below.local_address()
    }

    /// What the client says.
    #[must_use]
    pub fn client_hello(&self) -> ClientHello<'_> {
        self.accepted.client_hello()
    }

    /// What has to be computed to answer as `config` says, and what waits for it.
    #[must_use]
    pub fn answer(self, config: Arc<ServerConfig>) -> (Unanswered, AnswerJob) {
        let unanswered = Unanswered {
            below: self.below,
            rest: self.rest,
        };
        let job = AnswerJob {
            accepted: self.accepted,
            config,
        };
        (unanswered, job)
    }
}

/// The computation of the answer to a hello.
pub struct AnswerJob {
    accepted: Accepted,
    config: Arc<ServerConfig>,
}

/// The answer to a hello.
pub struct Answer(Result<Box<ServerConnection>, Box<(Error, AcceptedAlert)>>);

impl AnswerJob {
    /// Computes it. With a key of RSA it takes milliseconds.
    #[must_use]
    pub fn run(self) -> Answer {
        let answered = self.accepted.into_connection(self.config);
        Answer(answered.map(Box::new).map_err(Box::new))
    }
}

/// A client that waits for the answer to its hello.
pub struct Unanswered {
    below: Transport,
    rest: Vec<u8>,
}

impl Unanswered {
    /// Goes on with `answer`.
    ///
    /// # Errors
    /// When the two ends do not agree.
    pub fn with(mut self, answer: Answer) -> Result<Handshake, HandshakeError> {
        match answer.0 {
            Ok(session) => Ok(Handshake {
                below: self.below,
                session: Box::new((*session).into()),
                rest: self.rest,
            }),
            Err(failed) => {
                let (error, alert) = *failed;
                Err(refused(&mut self.below, error, alert))
            }
        }
    }
}

/// Tells the client why. If the socket has no room, it does without.
fn refused(below: &mut Transport, error: Error, mut alert: AcceptedAlert) -> HandshakeError {
    let mut context = Context::from_waker(Waker::noop());
    let _ = alert.write_all(&mut Below(below, &mut context));
    HandshakeError::Tls(error)
}

/// A handshake whose rest is still to come.
pub struct Handshake {
    below: Transport,
    session: Box<Connection>,
    /// What has come and was not given to the session.
    rest: Vec<u8>,
}

/// The computation of what follows from what the peer has sent.
pub struct ProcessJob(Box<Connection>);

/// Its result.
pub struct Processed(Box<Connection>, Result<(), Error>);

impl ProcessJob {
    /// Computes it. To verify the certificates of a client may take milliseconds.
    #[must_use]
    pub fn run(mut self) -> Processed {
        let processed = self.0.process_new_packets();
        Processed(self.0, processed.map(drop))
    }
}

impl Handshake {
    /// One with the backend at the other end of `below`, which is to prove that it is `name`.
    ///
    /// # Errors
    /// When `config` cannot be used.
    pub fn connect(
        below: Transport,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, HandshakeError> {
        let session = ClientConnection::new(config, name).map_err(HandshakeError::Tls)?;
        Ok(Self {
            below,
            session: Box::new(session.into()),
            rest: Vec::new(),
        })
    }

    /// Whether the client has to send its first message again, to which the answer is computed only then.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
    }

    /// Finishes it; with early data it goes on as the stream is read. `process` runs what has to be computed; it returns `None` if
    /// it cannot.
    ///
    /// # Errors
    /// When the two ends do not agree, or the peer has gone.
    pub async fn finish(
        self,
        process: impl AsyncFn(ProcessJob) -> Option<Processed>,
    ) -> Result<TlsStream, HandshakeError> {
        let Self {
            mut below,
            mut session,
            mut rest,
        } = self;
        let has_early_data = early_data(&mut session).is_some();
        // What has come along with the hello: early data, or what breaks the rules. No certificate can be among it.
        session = checked(&mut below, ProcessJob(session).run())?;
        let mut pieces = 0;
        while session.is_handshaking() && !has_early_data || !rest.is_empty() {
            pieces += 1;
            if pieces > PIECES_MAX {
                let reason = "the handshake is in too many pieces".to_owned();
                return Err(HandshakeError::Tls(Error::General(reason)));
            }
            poll_fn(|context| poll_flush(&mut below, &mut session, context)).await?;
            let count = match rest.is_empty() {
                true => poll_fn(|context| poll_fill(&mut below, &mut session, context)).await?,
                false => {
                    let taken = session.read_tls(&mut &rest[..])?;
                    rest.drain(..taken).count()
                }
            };
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            session = process_in(&mut below, session, &process).await?;
        }
        // What the socket has no room for goes along with the next write, or a read.
        let mut context = Context::from_waker(Waker::noop());
        let _ = poll_flush(&mut below, &mut session, &mut context);
        Ok(TlsStream::new(below, *session))
    }
}

/// Computes what follows from what `session` was given. Tells the peer at the other end of `below` of an error.
async fn process_in(
    below: &mut Transport,
    session: Box<Connection>,
    process: &impl AsyncFn(ProcessJob) -> Option<Processed>,
) -> Result<Box<Connection>, HandshakeError> {
    let processed = process(ProcessJob(session)).await;
    let not_computed = || Error::General("the computation has failed".to_owned());
    checked(
        below,
        processed.ok_or_else(|| HandshakeError::Tls(not_computed()))?,
    )
}

/// The session, unless something was wrong: then the peer at the other end of `below` is told.
fn checked(
    below: &mut Transport,
    Processed(mut session, result): Processed,
) -> Result<Box<Connection>, HandshakeError> {
    if let Err(error) = result {
        // The alert that says why.
        let mut context = Context::from_waker(Waker::noop());
        let _ = poll_flush(below, &mut session, &mut context);
        return Err(HandshakeError::Tls(error));
    }
    Ok(session)
}
