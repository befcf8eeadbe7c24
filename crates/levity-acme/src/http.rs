//! A client for requests to authorities and to whoever is asked about names.

use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use levity_tls::{ClientConfig, Trust, client_config};
use tokio::time;

/// The limit of time of one request and its response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of time until there is a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response, in bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends requests and gets whole responses, over HTTP/1.1. Clones share connections.
#[derive(Clone)]
pub struct Client(legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Client {
    /// One that trusts the authorities in the file `roots`, or else those of the machine. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn new(roots: Option<&PathBuf>) -> Result<Self, String> {
        let trust = roots.map_or(Trust::System, |path| Trust::Authorities(path));
        Ok(Self::with(client_config(trust, None)?))
    }

    /// One for URLs of the scheme `http`, which therefore reads no certificates of authorities. Does not block.
    ///
    /// # Errors
    /// In words.
    pub fn plain() -> Result<Self, String> {
        Ok(Self::with(client_config(Trust::Anybody, None)?))
    }

    fn with(mut config: ClientConfig) -> Self {
        // The connector says which versions of HTTP it speaks.
        config.alpn_protocols.clear();
        let mut transport = HttpConnector::new();
        transport.enforce_http(false);
        transport.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(transport);
        Self(legacy::Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends `request` and waits for the whole response.
    ///
    /// # Errors
    /// When there is none.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, SendError> {
        let sending = async {
            let response = self.0.request(request).await;
            let (parts, body) = response.map_err(|error| of_client(&error))?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| SendError::new(error.to_string()))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        let in_time = time::timeout(TIMEOUT, sending).await;
        in_time.unwrap_or_else(|_| {
            Err(SendError {
                is_unreachable: true,
                ..SendError::new(format!("no response within {} s", TIMEOUT.as_secs()))
            })
        })
    }
}

/// Why there is no response.
#[derive(Debug)]
pub struct SendError {
    /// In words, without the URL.
    pub reason: String,
    /// Whether there was no connection, or no response in time.
    pub is_unreachable: bool,
    /// Whether the certificate of the peer is signed by an authority that is not trusted.
    pub is_of_unknown_authority: bool,
}

impl SendError {
    fn new(reason: String) -> Self {
        Self {
            reason,
            is_unreachable: false,
            is_of_unknown_authority: false,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl From<SendError> for String {
    fn from(error: SendError) -> Self {
        error.reason
    }
}

fn of_client(error: &legacy::Error) -> SendError {
    let chain = || successors(Some(error as &(dyn StdError + 'static)), source);
    let handshake = chain().find_map(levity_tls::handshake_error);
    // An error of a connection says only that there is none; its causes say why.
    let causes = || chain().map(ToString::to_string).collect::<Vec<_>>();
    SendError {
        reason: handshake.map_or_else(|| causes().join(": "), levity_tls::reason),
        is_unreachable: error.is_connect(),
        is_of_unknown_authority: handshake.is_some_and(levity_tls::is_of_unknown_authority),
    }
}

fn source<'e>(error: &&'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    (*error).source()
}
