//! Asks responders of OCSP (RFC 6960).

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;

use crate::http::Client;

/// Posts `request`, DER, to the responder at `url`, whose scheme is `http`; gives its response as it is (appendix A.1).
///
/// # Errors
/// In words, without the URL.
pub async fn ask(url: &str, request: &[u8]) -> Result<Vec<u8>, String> {
    let request = Request::post(url)
        .header(CONTENT_TYPE, "application/ocsp-request")
        .header(ACCEPT, "application/ocsp-response")
        .body(Full::new(Bytes::copy_from_slice(request)));
    let request = request.map_err(|error| error.to_string())?;
    let response = Client::plain()?.send(request).await?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body().into()),
        status => Err(format!("the status is {status}")),
    }
}
