//! Whoever says which names may get certificates on demand.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::http::Client;

/// Asks `url` about `name`: a status of 2xx lets it have a certificate.
///
/// # Errors
/// In words, when it may have none, or nobody answers.
pub async fn ask(client: &Client, url: &str, name: &str) -> Result<(), String> {
    let sign = if url.contains('?') { '&' } else { '?' };
    let request = Request::get(format!("{url}{sign}domain={name}"));
    let request = request.body(Full::new(Bytes::new()));
    let response = client
        .send(request.map_err(|error| error.to_string())?)
        .await;
    let response = response.map_err(|reason| format!("{url} does not answer: {reason}"))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("{url} answers {status}")),
    }
}
