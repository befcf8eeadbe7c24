//! Requests to an authority. One that it could not answer just then is sent again.

use std::error::Error as StdError;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::{self, Instant};

use crate::clock::some_of;
use crate::failure::Later;
use crate::http::Client;

/// How long a request is sent again and again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time before a request is sent for the second time. It is doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The longest time for which an authority is left alone because it says so.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Sends requests of the library that speaks ACME.
pub struct Requests(pub Client);

impl HttpClient for Requests {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body
                .collect()
                .await
                .map_or_else(|never| match never {}, |body| body.to_bytes());
            let request = Request::from_parts(parts, Full::new(body));
            let response = send(&client, &request).await.map_err(Error::Other)?;
            Ok(BytesResponse::from(response.map(Full::new)))
        })
    }
}

async fn send(
    client: &Client,
    request: &Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Box<dyn StdError + Send + Sync>> {
    let give_up = Instant::now() + PATIENCE;
    let mut delay = FIRST_DELAY;
    loop {
        let outcome = client.send(request.clone()).await;
        let wanted = match &outcome {
            Ok(response) if !is_passing(response.status()) => return Ok(outcome?),
            Ok(response) => retry_after(response),
            Err(_) => None,
        };
        let wait = wanted.unwrap_or_default().max(delay + some_of(delay));
        if Instant::now() + wait > give_up {
            let response = outcome?;
            return match wanted {
                Some(wait) => Err(Box::new(later(&response, wait))),
                None if response.status() == StatusCode::TOO_MANY_REQUESTS => Ok(response),
                None => Err(format!("the authority answers {}", response.status()).into()),
            };
        }
        time::sleep(wait).await;
        delay *= 2;
    }
}

/// Whether the same request may get another response soon.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// How long the authority wants to be left alone (RFC 9110, 10.2.3).
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.parse().map(Duration::from_secs).ok();
    let wait = seconds.or_else(|| {
        let at = httpdate::parse_http_date(value).ok()?;
        at.duration_since(SystemTime::now()).ok()
    });
    wait.map(|wait| wait.min(WAIT_MAX))
}

fn later(response: &Response<Bytes>, wait: Duration) -> Later {
    let problem: Option<instant_acme::Problem> = serde_json::from_slice(response.body()).ok();
    let detail = problem.and_then(|problem| problem.detail);
    Later {
        reason: detail.unwrap_or_else(|| format!("the authority answers {}", response.status())),
        at: SystemTime::now() + wait,
    }
}
