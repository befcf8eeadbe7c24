//! What FastCGI and SCGI share: a request as environment variables, and the response of a CGI program (RFC
//! 3875).

use std::mem;

use levity_wire::Reject;
use levity_wire::cgi::{self, Environment, ResponseHead, Split, parse_response, split_script};
use levity_wire::http1::{EndToEnd, Limits, Method, Trailers};

use super::head::{Head, limits, may_end};
use super::length_check::LengthCheck;
use super::{EncodeError, Event};
use crate::upstream::upstream_request::{Length, UpstreamRequest};

/// SERVER_SOFTWARE. WordPress gives every permalink `/index.php` unless this has the name of a server that it knows; of
/// these, nginx is the one that also reads no `.htaccess` and knows `X-Accel-Redirect`.
pub const SERVER_SOFTWARE: &[u8] = b"levity (like nginx)";

/// The length of the request body in bytes; `None` when there is no body.
///
/// # Errors
/// 411 when the length is unknown: a program reads CONTENT_LENGTH bytes.
pub fn body_bytes(outgoing: &UpstreamRequest<'_>) -> Result<Option<u64>, EncodeError> {
    match outgoing.length {
        Length::None => Ok(None),
        Length::Known(bytes) => Ok(Some(bytes)),
        Length::Unknown => Err(Reject {
            status: 411,
            reason: "the length of the request's body must be known",
        }),
    }
}

/// Replaces the environment by that of `outgoing`.
///
/// # Errors
/// 431 when it exceeds the limits of CGI programs, 400 for a NUL.
pub fn fill(
    environment: &mut Environment,
    outgoing: &UpstreamRequest<'_>,
    body_bytes: Option<u64>,
) -> Result<(), EncodeError> {
    let (request, proxy) = (outgoing.request, outgoing.proxy);
    let host = outgoing.host();
    let (server_name, port) = server(host);
    let is_https = outgoing.client.scheme == "https";
    let document_root = proxy.document_root();
    let described = cgi::Request {
        method: request.method(),
        path: &outgoing.whole_path,
        query: outgoing.query.as_deref(),
        version: request.head.version,
        host: (!host.is_empty()).then_some(host),
        server_name,
        server_port: port.unwrap_or(if is_https { 443 } else { 80 }),
        server_software: SERVER_SOFTWARE,
        server_addr: outgoing.server_ip.as_deref().copied(),
        remote_addr: outgoing.client.ip,
        remote_port: outgoing.client.port,
        https: is_https,
        content_length: body_bytes,
        document_root: &document_root,
        script: script(outgoing),
    };
    environment.fill(&described, outgoing.fields().iter().copied())?;
    if !outgoing.identity.user.is_empty() {
        environment.set("REMOTE_USER", &outgoing.identity.user)?;
    }
    if let Some(script) = outgoing
        .script
        .filter(|_| !outgoing.strip_prefix.is_empty())
    {
        // Its path below the root differs from the one below the site.
        let name = [outgoing.strip_prefix, b"/", &script.name].concat();
        environment.set("SCRIPT_NAME", &name)?;
    }
    for (name, value) in &proxy.params {
        environment.set(name, value.as_bytes())?;
    }
    Ok(())
}

/// The script that was found. Without one, the application is mounted at its route.
fn script<'a>(outgoing: &'a UpstreamRequest<'_>) -> cgi::Script<'a> {
    if let Some(script) = outgoing.script {
        return cgi::Script {
            name: &script.name,
            info: script.info.as_deref(),
            is_file: true,
        };
    }
    let without_slash = |path: &'a [u8]| path.strip_prefix(b"/").unwrap_or(path);
    // PATH_INFO keeps `%2F` as sent: decoded, it would be a separator.
    let path = without_slash(&outgoing.request.path);
    let mount = Split::Mount(without_slash(outgoing.strip_prefix));
    split_script(path, mount).unwrap_or(cgi::Script {
        name: b"",
        info: Some(path),
        is_file: false,
    })
}

/// SERVER_NAME and port for the host that the client requested. The port is that of the client's URL and not
/// that of this server, which may be behind a proxy: applications build links from both.
pub fn server(host: &[u8]) -> (&[u8], Option<u16>) {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let colon = colon.filter(|&at| !host[at..].contains(&b']'));
    let (name, port) = match colon {
        Some(at) => (&host[..at], &host[at + 1..]),
        None => (host, &b""[..]),
    };
    let port = str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    match name {
        // Host is optional in HTTP/1.0, but programs need a name.
        b"" => (b"localhost", port),
        name => (name, port),
    }
}

/// The response of a program: a header section and a body.
#[derive(Debug)]
pub struct Response {
    /// The request's method.
    method: Method,
    /// Those of the header.
    limits: Limits,
    reading: Reading,
    /// The start of an incomplete header.
    partial: Vec<u8>,
    /// Kept for its allocation.
    head: ResponseHead,
}

/// The state of the parser.
#[derive(Debug)]
enum Reading {
    Head,
    Body(LengthCheck),
    Done,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            method: Method::default(),
            limits: Limits::default(),
            reading: Reading::Done,
            partial: Vec::new(),
            head: ResponseHead::default(),
        }
    }
}

impl Response {
    /// Begins the response to `outgoing`.
    pub fn begin(&mut self, outgoing: &UpstreamRequest<'_>) {
        self.limits = limits(outgoing.proxy.upstream.settings.limits);
        self.begin_head(outgoing.request.head.method);
    }

    /// Begins the response to a request of `method`.
    pub fn begin_head(&mut self, method: Method) {
        self.method = method;
        self.reading = Reading::Head;
        self.partial.clear();
    }

    /// Whether no byte has arrived.
    pub fn is_untouched(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.partial.is_empty()
    }

    /// Whether the body is complete according to Content-Length.
    pub fn is_fulfilled(&self) -> bool {
        match &self.reading {
            Reading::Head => false,
            Reading::Body(length) => length.is_fulfilled(),
            Reading::Done => true,
        }
    }

    /// Reads a piece, cut anywhere. Drops what exceeds Content-Length.
    ///
    /// # Errors
    /// 502 for a malformed header.
    pub fn read(
        &mut self,
        mut input: &[u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Reject> {
        if matches!(self.reading, Reading::Head) {
            input = self.head(input, event)?;
        }
        let Reading::Body(length) = &mut self.reading else {
            return Ok(());
        };
        let data = length.take(input);
        if !data.is_empty() {
            event(Event::Data(data));
        }
        if data.len() < input.len() {
            self.finish(event);
        }
        Ok(())
    }

    /// Handles the end of the output.
    ///
    /// # Errors
    /// 502 when the response is truncated.
    pub fn end(&mut self, event: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match &self.reading {
            Reading::Head => Err(Reject::bad_gateway(
                "the response ended before the end of its header",
            )),
            Reading::Body(length) if !length.may_end() => Err(Reject::bad_gateway(
                "the response body is shorter than its Content-Length",
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

    /// Parses the header, or stores its start; returns the input that follows it.
    fn head<'i>(
        &mut self,
        input: &'i [u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Result<&'i [u8], Reject> {
        if self.partial.is_empty() && parse_response(input, &mut self.head, &self.limits)? {
            self.headed(input, event);
            return Ok(&input[self.head.bytes..]);
        }
        let mut bytes = mem::take(&mut self.partial);
        let before = bytes.len();
        bytes.extend_from_slice(input);
        if before > 0
            && may_end(input, bytes.len(), &self.limits)
            && parse_response(&bytes, &mut self.head, &self.limits)?
        {
            self.headed(&bytes, event);
            bytes.clear();
            self.partial = bytes;
            return Ok(&input[self.head.bytes - before..]);
        }
        self.partial = bytes;
        Ok(&[])
    }

    /// Emits the header in `bytes`. A local redirect (RFC 3875, 6.2.2) becomes one for the client: 302 with
    /// its Location.
    fn headed(&mut self, bytes: &[u8], event: &mut dyn FnMut(Event<'_>)) {
        let parsed = &self.head;
        let mut head = Head::new(parsed.status, parsed.reason.of(bytes));
        head.fields.reserve(parsed.bytes);
        for header in EndToEnd::of(bytes, &parsed.headers).headers() {
            head.field(header.name.of(bytes), header.value.of(bytes));
        }
        head.upgrade_required(parsed.headers.first(bytes, "upgrade"));
        head.length = parsed.content_length;
        self.reading = Reading::Body(LengthCheck::of(&head, self.method));
        event(Event::Head(head));
    }
}
