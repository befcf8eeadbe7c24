//! Requests to an authority. One that it could not answer just then is sent again.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::{self, Instant};

use crate::clock::some_of;
use crate::failure::Later;
use crate::http::{Client, SendError};
use crate::reach::Reach;

/// How long a request is sent again and again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same while the authority cannot be reached: another one may be.
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(3);

/// What to do about a directory whose certificate is not trusted.
const ROOTS: &str = "`roots` of `[[acme.authority]]` names a file with the certificate of the one that has signed it";

/// The time before a request is sent for the second time. It is doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The longest time for which an authority is left alone because it says so.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Sends requests of the library that speaks ACME.
#[derive(Clone)]
pub struct Requests {
    pub client: Client,
    pub reach: Arc<Reach>,
}

impl HttpClient for Requests {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body
                .collect()
                .await
                .map_or_else(|never| match never {}, |body| body.to_bytes());
            let request = Request::from_parts(parts, Full::new(body));
            let response = this.send(&request).await.map_err(Error::Other)?;
            Ok(BytesResponse::from(response.map(Full::new)))
        })
    }
}

impl Requests {
    async fn send(
        &self,
        request: &Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Box<dyn StdError + Send + Sync>> {
        if let Some(reason) = self.reach.outage() {
            return Err(unreachable(&reason).into());
        }
        let (start, mut delay) = (Instant::now(), FIRST_DELAY);
        loop {
            let outcome = match self.try_once(request).await {
                Ok(response) if !is_passing(response.status()) => return Ok(response),
                outcome => outcome,
            };
            let wanted = outcome.as_ref().ok().and_then(retry_after);
            let patience = match &outcome {
                Err(Missed::Unreachable(_)) => UNREACHABLE_PATIENCE,
                _ => PATIENCE,
            };
            let wait = wanted.unwrap_or_default().max(delay + some_of(delay));
            if start.elapsed() + wait > patience {
                return self.give_up(outcome, wanted);
            }
            time::sleep(wait).await;
            delay *= 2;
        }
    }

    async fn try_once(&self, request: &Request<Full<Bytes>>) -> Result<Response<Bytes>, Missed> {
        match self.client.send(request.clone()).await {
            Ok(response) => {
                self.reach.answered();
                Ok(response)
            }
            Err(error) if error.is_unreachable => {
                let reason = with_advice(error);
                self.reach.failed(&reason);
                Err(Missed::Unreachable(reason))
            }
            Err(error) => Err(Missed::Broken(error.reason)),
        }
    }

    fn give_up(
        &self,
        outcome: Result<Response<Bytes>, Missed>,
        wanted: Option<Duration>,
    ) -> Result<Response<Bytes>, Box<dyn StdError + Send + Sync>> {
        let response = match outcome {
            Ok(response) => response,
            Err(Missed::Broken(reason)) => return Err(reason.into()),
            Err(Missed::Unreachable(reason)) => {
                self.reach.give_up();
                return Err(unreachable(&reason).into());
            }
        };
        match wanted {
            Some(wait) => Err(Box::new(later(&response, wait))),
            None if response.status() == StatusCode::TOO_MANY_REQUESTS => Ok(response),
            None => Err(format!("the authority answers {}", response.status()).into()),
        }
    }
}

/// Why there is no response, in words.
enum Missed {
    /// The authority cannot be reached.
    Unreachable(String),
    /// It has ended the connection, or sent nonsense.
    Broken(String),
}

fn unreachable(reason: &str) -> String {
    format!("the authority cannot be reached: {reason}")
}

fn with_advice(error: SendError) -> String {
    match error.is_of_unknown_authority {
        true => format!("{}; {ROOTS}", error.reason),
        false => error.reason,
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
