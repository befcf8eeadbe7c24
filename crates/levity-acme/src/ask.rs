//! Whoever says which names may get certificates on demand.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::http::Client;

/// Why a name gets no certificate.
pub struct Refusal {
    /// In words.
    pub reason: String,
    /// Whether it was said that the name may have none, and not only that nobody could say.
    pub is_denial: bool,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self {
            reason,
            is_denial: false,
        }
    }
}

/// Asks `url` about `name`: a status of 2xx lets it have a certificate.
///
/// # Errors
/// When it may have none, or nobody says so.
pub async fn ask(client: &Client, url: &str, name: &str) -> Result<(), Refusal> {
    let sign = if url.contains('?') { '&' } else { '?' };
    let request = Request::get(format!("{url}{sign}domain={name}"));
    let request = request.body(Full::new(Bytes::new()));
    let response = client
        .send(request.map_err(|error| error.to_string())?)
        .await;
    let response = response.map_err(|reason| format!("{url} does not answer: {reason}"))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(Refusal {
            reason: format!("{url} answers {status}"),
            is_denial: status.is_client_error(),
        }),
    }
}
