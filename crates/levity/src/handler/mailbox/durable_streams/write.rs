//! Making streams, and appending to them.

use levity_mailbox::Name;
use levity_mailbox::stream::{Append, ContentType, Create, ForkOf, Streams};
use levity_wire::durable_streams::{Fork, Headers, essence};
use levity_wire::path;

use super::super::super::Handling;
use super::super::MailboxEndpoint;
use super::answers::{appended, created};
use super::rejected;
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::MailboxSet;
use crate::message::request::Request;

impl Handling<'_> {
    /// Makes the stream, unless it is there.
    pub(super) async fn make_stream(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
        name: Name,
        headers: Headers<'_>,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        self.check_publisher(request, set, name.in_set())?;
        let lifetime = headers.lifetime().map_err(rejected)?;
        let fork = headers.fork().map_err(rejected)?;
        let fork = fork.map(|fork| source(&fork, endpoint)).transpose()?;
        if let Some(fork) = &fork {
            self.check_receiver(set, fork.source.in_set())?;
        }
        let content_type = headers.content_type.map(content_type).transpose()?;
        let body = self.appended_content(set).await?;
        let body = match &content_type {
            _ if body.is_empty() => Ok(body),
            Some(of) => self.kept(&of.essence, body).await,
            None if fork.is_some() => return Err(error(400, "content without Content-Type")),
            None => Ok(body),
        };
        let create = Create {
            content_type,
            lifetime,
            closes: headers.closes(),
            fork,
            body,
        };
        let make = async |streams: Streams, now| streams.create(&name, create, now).await;
        let stream = self.ask_streams(set, make).await?;
        Ok(created(&stream, &self.url(request)))
    }

    /// Appends the body to the stream, or closes it, or both.
    pub(super) async fn append_to_stream(
        &mut self,
        request: &Request,
        endpoint: &MailboxEndpoint,
        name: Name,
        headers: Headers<'_>,
    ) -> Result<Response, Response> {
        let set = &endpoint.set;
        self.check_publisher(request, set, name.in_set())?;
        let producer = headers.producer().map_err(rejected)?;
        let sequence = headers.sequence().map_err(rejected)?;
        let body = self.appended_content(set).await?;
        let content = match body.is_empty() {
            true if headers.closes() => None,
            true => return Err(error(400, "nothing to append")),
            false => {
                let of = headers.content_type.and_then(essence);
                let of = of.ok_or_else(|| error(400, "no usable Content-Type"))?;
                let messages = self.kept(&of, body).await;
                Some((of.into(), messages))
            }
        };
        let has_content = content.is_some();
        let append = Append {
            content,
            closes: headers.closes(),
            sequence: sequence.map(Into::into),
            producer: producer.clone(),
        };
        let append = async |streams: Streams, now| streams.append(&name, append, now).await;
        let stream = self.ask_streams(set, append).await?;
        Ok(appended(&stream, producer.as_ref(), has_content))
    }

    /// The body of the request. What is appended takes memory of its own.
    async fn appended_content(&mut self, set: &MailboxSet) -> Result<Vec<u8>, Response> {
        self.count_publishes(set, 1)?;
        let (content, _) = self.received(set).await?;
        Ok(content)
    }

    /// The URL that the client has asked for, without its query.
    fn url(&self, request: &Request) -> String {
        let (scheme, host) = (self.client.scheme, request.host());
        let (host, path) = (host.escape_ascii(), request.sent_raw_path().escape_ascii());
        format!("{scheme}://{host}{path}")
    }
}

/// The source of a fork, whose path is beneath that of the endpoint, too.
fn source(fork: &Fork<'_>, endpoint: &MailboxEndpoint) -> Result<ForkOf, Response> {
    let name = beneath(fork.source, &endpoint.prefix);
    let name = name.and_then(|name| Name::new(&endpoint.set.of.name, &name));
    Ok(ForkOf {
        source: name.ok_or_else(|| error(404, "there is no such source of the fork"))?,
        offset: fork.offset,
        sub_offset: fork.sub_offset,
    })
}

/// The decoded part of `path` beneath `prefix`.
fn beneath(path: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    path::decode(path, &mut decoded).ok()?;
    decoded.insert(0, b'/');
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let name = decoded.strip_prefix(prefix)?.strip_prefix(b"/")?;
    Some(name.to_vec())
}

fn content_type(value: &[u8]) -> Result<ContentType, Response> {
    let essence = essence(value);
    let value = str::from_utf8(value).ok();
    let (essence, value) = essence
        .zip(value)
        .ok_or_else(|| error(400, "Content-Type is no media type"))?;
    Ok(ContentType {
        value: value.into(),
        essence: essence.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_beneath_the_endpoint() {
        let cases: [(&str, &str, Option<&str>); 9] = [
            ("/v1/stream/a", "/v1/stream", Some("a")),
            ("/v1/stream/a", "/v1/stream/", Some("a")),
            ("/v1/stream/a/%62", "/v1/stream", Some("a/b")),
            ("/a", "", Some("a")),
            ("/v1/streams/a", "/v1/stream", None),
            ("/v1/stream", "/v1/stream", None),
            ("/v1/stream/../a", "/v1/stream", None),
            ("v1/stream/a", "/v1/stream", None),
            ("http://a/v1/stream/a", "/v1/stream", None),
        ];
        for (path, prefix, expected) in cases {
            let name = beneath(path.as_bytes(), prefix.as_bytes());
            assert_eq!(name.as_deref(), expected.map(str::as_bytes), "{path}");
        }
    }
}
