//! The handshake with a client.

use std::cell::OnceCell;
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use levity_compute::Class;
use levity_config::address;
use levity_net::tls::{Answer, AnswerJob, HandshakeError, Hello, ProcessJob, Processed, TlsStream};
use levity_net::{ClientCertificate, PeerTls, Timer, Transport};
use levity_telemetry::access_log::End;
use levity_telemetry::stats::HandshakeResult;
use levity_tls::{Policy, Server, ServerConfig};

use super::arriving::{Arriving, Failed, Shaken};
use super::sites::TlsSites;
use crate::loop_core::LoopCore;

/// The estimated time to sign with RSA of 2048 bits, or to verify a chain of certificates.
const COMPUTE_COST: Duration = Duration::from_millis(1);

impl Arriving<'_> {
    /// Makes the handshake over `transport`, from which `bytes` have come already.
    ///
    /// # Errors
    /// When there is no agreement.
    pub async fn shake(
        &self,
        sites: &TlsSites,
        transport: Transport,
        bytes: Vec<u8>,
    ) -> Result<Shaken, Failed> {
        let asked = OnceCell::new();
        let shaking = shake(self, sites, transport, bytes, &asked);
        let shaken = tokio::select! {
            biased;
            shaken = shaking => shaken,
            () = expired(self.timer) => Err(HandshakeError::Gone(io::ErrorKind::TimedOut.into())),
        };
        let stats = &self.core.stats;
        match shaken {
            Ok(shaken) => {
                let result = match shaken.client.is_resumed {
                    true => HandshakeResult::Resumed,
                    false => HandshakeResult::Full,
                };
                stats.handshake(result);
                Ok(shaken)
            }
            Err(HandshakeError::NotTls(transport, _)) => {
                self.report(&"what the client has sent is not TLS");
                Err(Failed::NotTls(transport))
            }
            Err(HandshakeError::Tls(error)) => {
                let asked = asked.get().map(String::as_str);
                self.report(&levity_tls::reason_for(&error, asked));
                Err(Failed::Ended(End::Error))
            }
            // One without any byte is that of a health check, or one that a browser has opened in advance.
            Err(HandshakeError::Gone(error)) => Err(Failed::Ended(match error.kind() {
                io::ErrorKind::TimedOut => {
                    stats.handshake(HandshakeResult::TimedOut);
                    End::Timeout
                }
                _ => End::ClientAbort,
            })),
        }
    }

    fn report(&self, reason: &dyn Display) {
        self.core.stats.handshake(HandshakeResult::Failed);
        let reports = &self.core.handshake_reports;
        reports.failed(self.ip, reason, Instant::now());
    }
}

async fn expired(timer: &Timer) {
    poll_fn(|context| match timer.poll_expired(context) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

async fn shake(
    arriving: &Arriving<'_>,
    sites: &TlsSites,
    transport: Transport,
    bytes: Vec<u8>,
    asked: &OnceCell<String>,
) -> Result<Shaken, HandshakeError> {
    let (core, stream) = (arriving.core, arriving.stream);
    let hello = Hello::read(transport, bytes).await?;
    // It is not idle any more.
    let header_timeout = core.config().config.limits.header_timeout;
    arriving.timer.set(Instant::now() + header_timeout);
    if let Some(config) = challenge(sites, &hello) {
        return prove(hello, config).await;
    }
    let server = sites.server();
    let asked = name(&hello).map(|name| asked.get_or_init(|| name));
    let policy = server.policy(asked.map(String::as_str));
    get_certificate(sites, &server, &hello).await;
    let is_slow = policy.is_slow(&hello.client_hello());
    let (unanswered, job) = hello.answer(policy.config.clone());
    let answer = match is_slow {
        true => answer_in_pool(core, stream, job).await?,
        false => job.run(),
    };
    let handshake = unanswered.with(answer)?;
    // To verify a certificate takes long, and so does a signature that could not be made before.
    let computes = policy.client_auth.is_some() || is_slow && handshake.is_retried();
    let stream = match computes {
        true => {
            let in_pool = async |job| process_in_pool(core, stream, job).await;
            handshake.finish(in_pool).await?
        }
        false => {
            handshake
                .finish(async |job: ProcessJob| Some(job.run()))
                .await?
        }
    };
    let client = client(policy, &stream);
    Ok(Shaken {
        transport: Transport::Tls(Box::new(stream)),
        client,
    })
}

/// The handshake for an authority that looks whether a name leads here, if the client is one.
fn challenge(sites: &TlsSites, hello: &Hello) -> Option<Arc<ServerConfig>> {
    let hello = hello.client_hello();
    let mut offered = hello.alpn()?;
    let is_authority = offered.next() == Some(levity_tls::challenge::ALPN);
    let acme = sites.acme.as_ref().filter(|_| is_authority)?;
    acme.challenges.tls(hello.server_name()?)
}

/// Shows an authority what it looks for. Nothing follows such a handshake (RFC 8737, 3).
async fn prove(hello: Hello, config: Arc<ServerConfig>) -> Result<Shaken, HandshakeError> {
    let (unanswered, job) = hello.answer(config);
    let handshake = unanswered.with(job.run())?;
    handshake
        .finish(async |job: ProcessJob| Some(job.run()))
        .await?;
    Err(HandshakeError::Gone(io::ErrorKind::UnexpectedEof.into()))
}

/// Waits for a certificate for the name that the client asks for, if its site has it got on demand.
async fn get_certificate(sites: &TlsSites, server: &Server, hello: &Hello) {
    let hello = hello.client_hello();
    if let (Some(name), Some(acme)) = (hello.server_name(), &sites.acme)
        && server.is_to_be_asked_for(name)
    {
        acme.get(name).await;
    }
}

/// The name that the client asks for: without one, the address that it has connected to.
fn name(hello: &Hello) -> Option<String> {
    let name = hello.client_hello().server_name().map(str::to_owned);
    let address = || Some(address::host(hello.local_address()?.ip().to_canonical()));
    name.or_else(address)
}

async fn answer_in_pool(
    core: &LoopCore,
    stream: u64,
    job: AnswerJob,
) -> Result<Answer, HandshakeError> {
    let computed = core
        .compute
        .run(Class::Response, stream, COMPUTE_COST, move || job.run());
    let failed = |_| HandshakeError::Gone(io::Error::other("the computation has failed"));
    Ok(computed.await.map_err(failed)?.value)
}

async fn process_in_pool(core: &LoopCore, stream: u64, job: ProcessJob) -> Option<Processed> {
    let computed = core
        .compute
        .run(Class::Response, stream, COMPUTE_COST, move || job.run());
    Some(computed.await.ok()?.value)
}

/// What is known of the client by its handshake.
fn client(policy: &Policy, stream: &TlsStream) -> PeerTls {
    let session = stream.session();
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    PeerTls {
        client_auth: policy.client_auth,
        version: levity_net::tls::version(session),
        cipher: levity_net::tls::cipher(session),
        name: levity_net::tls::asked_name(session).map(Into::into),
        is_resumed: levity_net::tls::is_resumed(session),
        certificate: certificate.map(|certificate| ClientCertificate {
            name: levity_tls::identity(certificate),
            der: certificate.to_vec(),
        }),
    }
}
