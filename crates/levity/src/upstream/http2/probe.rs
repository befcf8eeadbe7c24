//! Health checks over HTTP/2.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use levity_config::upstream::ResponseLimits;
use levity_net::Transport;

use super::wire;

/// Waits until the backend at the other end of `transport` has shown that it speaks HTTP/2. The caller limits the time.
///
/// # Errors
/// In words, when it does not.
pub async fn settings(transport: Transport, limits: ResponseLimits) -> Result<(), String> {
    let begun = wire::begin(transport, limits.head_bytes).await;
    begun.map(|_| ()).map_err(failed)
}

/// Requests `uri` with GET over `transport`, and returns the status of the response. The caller limits the time.
///
/// # Errors
/// In words, when there is no response.
pub async fn status(
    transport: Transport,
    uri: &str,
    limits: ResponseLimits,
) -> Result<u16, String> {
    let mut request = Request::get(uri)
        .body(())
        .map_err(|error| error.to_string())?;
    let agent = HeaderValue::from_static("levity-check");
    request.headers_mut().insert(USER_AGENT, agent);
    let begun = wire::begin(transport, limits.head_bytes).await;
    let (mut requests, mut connection) = begun.map_err(failed)?;
    let (response, _stream) = requests.send_request(request, true).map_err(failed)?;
    let mut response = pin!(response);
    poll_fn(|context| {
        let ended = Pin::new(&mut connection).poll(context);
        if let Poll::Ready(response) = response.as_mut().poll(context) {
            let status = response.map(|response| response.status().as_u16());
            return Poll::Ready(status.map_err(failed));
        }
        ended.map(|_| Err("it closed the connection before its response".to_owned()))
    })
    .await
}

fn failed(error: impl Display) -> String {
    format!("no response: {error}")
}
