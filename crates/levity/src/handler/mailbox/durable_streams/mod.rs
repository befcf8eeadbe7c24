//! Mailboxes that speak the Durable Streams protocol: each is a stream. The semantics are those of
//! [`levity_mailbox::stream`], and what is written where those of [`levity_wire::durable_streams`].

mod answers;
mod content;
mod events;
mod read;
mod write;

use std::pin::pin;
use std::time::{Instant, SystemTime};

use levity_mailbox::stream::{StreamError, Streams};
use levity_mailbox::{Name, steady_time};
use levity_wire::durable_streams::{Headers, Lifetime, format_time};
use levity_wire::http1::Method;

use self::answers::{refused, with_info};
use super::super::Handling;
use super::MailboxEndpoint;
use super::{rejected, with_allow};
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::MailboxSet;
use crate::message::request::Request;

const ALLOW: &[u8] = b"GET, HEAD, PUT, POST, DELETE, OPTIONS";

/// The first segment of names that the protocol reserves for subscriptions and schedules, which are not supported.
const RESERVED: &str = "__ds";

/// The headers of responses that pages of other origins may read. They may read none without `cors`.
const EXPOSED: &[u8] = b"ETag, Location, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, \
    Stream-TTL, Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, \
    Producer-Received-Seq";

impl Handling<'_> {
    /// Answers a request to a stream.
    pub(super) async fn stream_request(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Response {
        let answered = Box::pin(self.answer_stream(request, endpoint)).await;
        let mut response = answered.unwrap_or_else(|refusal| refusal);
        // Section 12.7.
        let fields = &mut response.fields;
        fields.add("X-Content-Type-Options", b"nosniff");
        // What a publisher wrote does not run on the origin of the site.
        fields.add("Content-Security-Policy", b"sandbox");
        fields.add("Cross-Origin-Resource-Policy", b"same-origin");
        fields.add("Access-Control-Expose-Headers", EXPOSED);
        response
    }

    async fn answer_stream(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Result<Response, Response> {
        if request.head.method == Method::Options {
            return Ok(with_allow(Response::new(204), ALLOW));
        }
        let name = self.named_stream(request, endpoint)?;
        let headers = Headers::new(|name| request.header(name));
        match request.head.method {
            Method::Get => self.read_stream(request, endpoint, &name).await,
            Method::Head => self.describe_stream(endpoint, &name).await,
            Method::Put => self.make_stream(request, endpoint, name, headers).await,
            Method::Post => {
                self.append_to_stream(request, endpoint, name, headers)
                    .await
            }
            Method::Delete => self.remove_stream(request, endpoint, &name).await,
            _ => Err(with_allow(error(405, ""), ALLOW)),
        }
    }

    /// The stream that the path names.
    fn named_stream(
        &self,
        request: &Request,
        endpoint: &MailboxEndpoint,
    ) -> Result<Name, Response> {
        let name = self.named_box(request, endpoint)?;
        match name.in_set().split('/').next() == Some(RESERVED) {
            true => Err(error(404, "subscriptions are not supported")),
            false => Ok(name),
        }
    }

    /// What `ask` asks the streams of the set at the present time, at most for `limits.io_timeout`.
    async fn ask_streams<T>(
        &self,
        set: &MailboxSet,
        ask: impl AsyncFnOnce(Streams, SystemTime) -> Result<T, StreamError>,
    ) -> Result<T, Response> {
        let mut asking = pin!(ask(self.streams(set), steady_time(Instant::now())));
        let answer = self.owner_ready(|context| asking.as_mut().poll(context));
        answer.await?.map_err(|reason| refused(set, reason))
    }

    fn streams(&self, set: &MailboxSet) -> Streams {
        Streams::new(&self.worker.mailboxes, &set.settings, &set.shared.budget)
    }

    async fn describe_stream(
        &self,
        endpoint: &MailboxEndpoint,
        name: &Name,
    ) -> Result<Response, Response> {
        self.check_receiver(&endpoint.set, name.in_set())?;
        let look = async |streams: Streams, now| streams.look(name, now).await;
        let info = self.ask_streams(&endpoint.set, look).await?;
        let mut response = with_info(Response::new(200), &info);
        let fields = &mut response.fields;
        fields.add("Cache-Control", b"no-store");
        match info.lifetime {
            None => {}
            Some(Lifetime::Idle(time)) => {
                fields.add("Stream-TTL", time.as_secs().to_string().as_bytes());
            }
            Some(Lifetime::Until(time)) => {
                fields.add("Stream-Expires-At", format_time(time).as_bytes());
            }
        }
        Ok(response)
    }

    async fn remove_stream(
        &self,
        request: &Request,
        endpoint: &MailboxEndpoint,
        name: &Name,
    ) -> Result<Response, Response> {
        self.check_publisher(request, &endpoint.set, name.in_set())?;
        let remove = async |streams: Streams, now| streams.remove(name, now).await;
        self.ask_streams(&endpoint.set, remove).await?;
        Ok(Response::new(204))
    }
}
