//! What FastCGI and SCGI share: a request as variables, and the answer of a CGI program (RFC 3875).

use std::mem;

use levity_wire::Reject;
use levity_wire::cgi::{self, Environment, ResponseHead, Split, parse_response, split_script};
use levity_wire::http1::{EndToEnd, Method, Trailers};

use super::head::{Head, LIMITS, may_end};
use super::length_check::LengthCheck;
use super::{EncodeError, Event};
use crate::upstream::upstream_request::{Length, UpstreamRequest};

/// Bytes of the body of `ask`; `None` when it has none.
///
/// # Errors
/// 411 when nobody knows: a program reads as much as CONTENT_LENGTH says.
pub fn body_bytes(ask: &UpstreamRequest<'_>) -> Result<Option<u64>, EncodeError> {
    match ask.length {
        Length::None => Ok(None),
        Length::Known(bytes) => Ok(Some(bytes)),
        Length::Unknown => Err(Reject {
            status: 411,
            reason: "the length of the request's body must be known",
        }),
    }
}

/// Replaces the variables by those of `ask`.
///
/// # Errors
/// 431 when they are more than programs take, 400 for a NUL.
pub fn fill(
    environment: &mut Environment,
    ask: &UpstreamRequest<'_>,
    body_bytes: Option<u64>,
) -> Result<(), EncodeError> {
    let (request, proxy) = (ask.request, ask.proxy);
    let host = ask.host();
    let (server_name, port) = server(host);
    let is_https = ask.client.scheme == "https";
    let document_root = proxy.document_root();
    let described = cgi::Request {
        method: request.method(),
        path: &ask.whole_path,
        query: ask.query.as_deref(),
        version: request.head.version,
        host: (!host.is_empty()).then_some(host),
        server_name,
        server_port: port.unwrap_or(if is_https { 443 } else { 80 }),
        server_software: b"levity",
        remote_addr: ask.client.ip,
        remote_port: ask.client.port,
        https: is_https,
        content_length: body_bytes,
        document_root: &document_root,
        script: script(ask),
    };
    environment.fill(&described, ask.fields().iter().copied())?;
    if let Some(script) = ask.script.filter(|_| !proxy.strip_prefix.is_empty()) {
        // Beneath the root it has another name than beneath the site.
        let name = [&proxy.strip_prefix, &b"/"[..], &script.name].concat();
        environment.set("SCRIPT_NAME", &name)?;
    }
    Ok(())
}

/// The script that was found; without one, an application that is mounted where its route is.
fn script<'a>(ask: &'a UpstreamRequest<'_>) -> cgi::Script<'a> {
    if let Some(script) = ask.script {
        return cgi::Script {
            name: &script.name,
            info: script.info.as_deref(),
            is_file: true,
        };
    }
    let without_slash = |path: &'a [u8]| path.strip_prefix(b"/").unwrap_or(path);
    // `%2F` stays as it was sent in PATH_INFO: decoded, it could not be told from a slash.
    let path = without_slash(&ask.request.path);
    let mount = Split::Mount(without_slash(&ask.proxy.strip_prefix));
    split_script(path, mount).unwrap_or(cgi::Script {
        name: b"",
        info: Some(path),
        is_file: false,
    })
}

/// SERVER_NAME and the port that go with the host that the client asked for. As with other servers, and
/// for applications that make links of both, the port is that of the client's URL, which is not ours
/// behind a proxy.
pub fn server(host: &[u8]) -> (&[u8], Option<u16>) {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let colon = colon.filter(|&at| !host[at..].contains(&b']'));
    let (name, port) = match colon {
        Some(at) => (&host[..at], &host[at + 1..]),
        None => (host, &b""[..]),
    };
    let port = str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    match name {
        // HTTP/1.0 needs no Host, but programs need a name.
        b"" => (b"localhost", port),
        name => (name, port),
    }
}

/// The answer of a program: a head, and a body behind it.
#[derive(Debug)]
pub struct Answer {
    /// Of the request.
    method: Method,
    reading: Reading,
    /// The start of a head whose rest has not come.
    partial: Vec<u8>,
    /// Kept for its allocation.
    head: ResponseHead,
}

/// What is read next.
#[derive(Debug)]
enum Reading {
    Head,
    Body(LengthCheck),
    Done,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            method: Method::default(),
            reading: Reading::Done,
            partial: Vec::new(),
            head: ResponseHead::default(),
        }
    }
}

impl Answer {
    /// Expects the answer to a request of `method`.
    pub fn begin(&mut self, method: Method) {
        self.method = method;
        self.reading = Reading::Head;
        self.partial.clear();
    }

    /// Whether nothing of it has come.
    pub fn is_untouched(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.partial.is_empty()
    }

    /// Whether all that was promised has come, so that nothing can be missing.
    pub fn is_fulfilled(&self) -> bool {
        match &self.reading {
            Reading::Head => false,
            Reading::Body(promise) => promise.is_fulfilled(),
            Reading::Done => true,
        }
    }

    /// Reads what has come, cut anywhere. A body that is longer than its Content-Length ends there: what
    /// follows is dropped.
    ///
    /// # Errors
    /// 502 for what is no head.
    pub fn read(
        &mut self,
        mut input: &[u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Reject> {
        if matches!(self.reading, Reading::Head) {
            input = self.head(input, event)?;
        }
        let Reading::Body(promise) = &mut self.reading else {
            return Ok(());
        };
        let data = promise.take(input);
        if !data.is_empty() {
            event(Event::Data(data));
        }
        if data.len() < input.len() {
            self.finish(event);
        }
        Ok(())
    }

    /// No more will come.
    ///
    /// # Errors
    /// 502 when it is cut short.
    pub fn end(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match &self.reading {
            Reading::Head => Err(Reject::bad_gateway("the answer ended before its head did")),
            Reading::Body(promise) if !promise.is_kept() => Err(Reject::bad_gateway(
                "the answer's body is shorter than its Content-Length",
            )),
            Reading::Body(_) => {
                self.finish(event);
                Ok(())
            }
            Reading::Done => Ok(()),
        }
    }

    fn finish(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        self.reading = Reading::Done;
        event(Event::End(Trailers::default()));
    }

    /// Reads a head, or keeps its start; gives what comes behind it.
    fn head<'i>(
        &mut self,
        input: &'i [u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<&'i [u8], Reject> {
        if self.partial.is_empty() && parse_response(input, &mut self.head, &LIMITS)? {
            self.headed(input, event);
            return Ok(&input[self.head.bytes..]);
        }
        let mut bytes = mem::take(&mut self.partial);
        let before = bytes.len();
        bytes.extend_from_slice(input);
        if before > 0
            && may_end(input, bytes.len())
            && parse_response(&bytes, &mut self.head, &LIMITS)?
        {
            self.headed(&bytes, event);
            bytes.clear();
            self.partial = bytes;
            return Ok(&input[self.head.bytes - before..]);
        }
        self.partial = bytes;
        Ok(&[])
    }

    /// Hands over the head that is in `bytes`. A local redirect (RFC 3875, 6.2.2) is one for the client:
    /// 302 with its Location.
    fn headed(&mut self, bytes: &[u8], event: &mut dyn FnMut(Event<'_>)) {
        let parsed = &self.head;
        let mut head = Head::new(parsed.status, parsed.reason.of(bytes));
        head.fields.reserve(parsed.bytes);
        for header in EndToEnd::of(bytes, &parsed.headers).headers() {
            head.field(header.name.of(bytes), header.value.of(bytes));
        }
        head.length = parsed.content_length;
        self.reading = Reading::Body(LengthCheck::of(&head, self.method));
        event(Event::Head(head));
    }
}
