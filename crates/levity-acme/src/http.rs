//! A client for requests to authorities and to whoever is asked about names.

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
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .build();
        Self(legacy::Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends `request` and waits for the whole response.
    ///
    /// # Errors
    /// In words, without the URL.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, String> {
        let sending = async {
            let response = self.0.request(request).await;
            let (parts, body) = response.map_err(|error| causes(&error))?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok(Response::from_parts(parts, body))
        };
        let in_time = time::timeout(TIMEOUT, sending).await;
        in_time.unwrap_or_else(|_| Err(format!("no response within {} s", TIMEOUT.as_secs())))
    }
}

/// An error and what has caused it: that of a connection says only that there is none.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
