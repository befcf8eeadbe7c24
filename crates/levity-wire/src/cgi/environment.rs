//! The meta-variables of a request (RFC 3875, 4.1).

use std::net::IpAddr;

use memchr::memchr;

use super::Script;
use crate::Reject;
use crate::http1::{Span, Version};

/// Maximum bytes of the names and values of one request; more is 431.
///
/// An application holds all of them in memory, and other servers send no more than 64 KiB. This is
/// a little less, so that every pair fits in one FastCGI record: php-fpm parses the pairs of each
/// record separately.
pub const ENVIRONMENT_BYTES_MAX: usize = 60 * 1024;

const TOO_LONG: Reject = Reject::new(431, "request too long for CGI variables");
const HAS_NUL: Reject = Reject::bad("NUL in a CGI variable");

/// Headers that never become a variable `HTTP_*`:
///
/// - Content-Length and Host: their variables come from [`Request`], which has their meaning;
/// - Transfer-Encoding: the codings are removed before an application gets the body;
/// - Proxy: programs read the proxy for their own requests from HTTP_PROXY ("httpoxy").
const NOT_PASSED: [&[u8]; 4] = [b"content-length", b"host", b"proxy", b"transfer-encoding"];

/// The source of a request's variables, except its headers.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// REQUEST_METHOD.
    pub method: &'a [u8],
    /// The path as sent, not decoded; with the query it is REQUEST_URI.
    pub path: &'a [u8],
    /// The part after the first `?`, not decoded: QUERY_STRING.
    pub query: Option<&'a [u8]>,
    /// SERVER_PROTOCOL.
    pub version: Version,
    /// The host with its port, from the target or from Host
    /// ([`RequestHead::host`](crate::http1::RequestHead::host)): HTTP_HOST.
    pub host: Option<&'a [u8]>,
    /// SERVER_NAME: the host without its port, or the name of the site.
    pub server_name: &'a [u8],
    /// SERVER_PORT: the port that the request came in on.
    pub server_port: u16,
    /// SERVER_SOFTWARE: name and version of the server.
    pub server_software: &'a [u8],
    /// SERVER_ADDR: the address that the client connected to; unset if it is not known.
    pub server_addr: Option<IpAddr>,
    /// REMOTE_ADDR, empty for a client on a Unix socket.
    pub remote_addr: Option<IpAddr>,
    /// REMOTE_PORT.
    pub remote_port: Option<u16>,
    /// Whether the client used TLS: REQUEST_SCHEME is `https` and HTTPS `on`, else `http` and unset.
    pub https: bool,
    /// Bytes of the body: CONTENT_LENGTH. `None` if there is no body. Most applications ignore a
    /// body of unknown length.
    pub content_length: Option<u64>,
    /// DOCUMENT_ROOT, an absolute path.
    pub document_root: &'a [u8],
    /// SCRIPT_NAME, PATH_INFO, SCRIPT_FILENAME and PATH_TRANSLATED. The last two are set only if
    /// the script is a file, because PHP runs any file that either of them names.
    pub script: Script<'a>,
}

/// The variables of a request in the order they were set. No name is repeated, and no name or value
/// contains a NUL, which terminates both in SCGI, and values in FastCGI applications written in C.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Concatenated names and values.
    bytes: Vec<u8>,
    pairs: Vec<(Span, Span)>,
}

impl Environment {
    /// Forgets the variables and keeps the allocations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
    }

    /// Replaces the variables by those of a request. `fields` are the names and values of its
    /// headers as sent, without hop-by-hop ones (RFC 9110, 7.6.1).
    ///
    /// A header becomes `HTTP_*` only if its name consists of letters, digits and `-`. Applications
    /// see `_` in place of `-`, and PHP also turns `.` into `_`: `X_Forwarded_For` and
    /// `X.Forwarded.For` would arrive under the name of `X-Forwarded-For`, which a proxy may have
    /// set or removed. The values of a repeated header are joined by `, ` (RFC 9110, 5.3), cookies
    /// by `; ` (RFC 6265, 5.4).
    ///
    /// REDIRECT_STATUS is set for php-cgi, which otherwise assumes that the request bypassed the
    /// server.
    ///
    /// # Errors
    /// 431 if they exceed [`ENVIRONMENT_BYTES_MAX`], 400 for a NUL. The variables are then
    /// unspecified.
    pub fn fill<'f>(
        &mut self,
        request: &Request<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Result<(), Reject> {
        self.clear();
        self.message(request)?;
        self.script(request)?;
        self.server(request)?;
        self.client(request)?;
        self.fields(fields)
    }

    /// Sets a variable, or replaces its value. The name must be one that an operator may configure:
    /// not empty and without `=`, which terminates the name of a variable in C.
    ///
    /// # Errors
    /// As [`fill`](Environment::fill).
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), Reject> {
        debug_assert!(!name.is_empty() && !name.contains('='));
        let bytes = &self.bytes;
        self.pairs
            .retain(|pair| pair.0.of(bytes) != name.as_bytes());
        self.put(name, &[value])
    }

    /// Names and values in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.pairs
            .iter()
            .map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    fn message(&mut self, request: &Request<'_>) -> Result<(), Reject> {
        let query = request.query.unwrap_or_default();
        let mark: &[u8] = if request.query.is_some() { b"?" } else { b"" };
        self.put("REQUEST_METHOD", &[request.method])?;
        self.put("REQUEST_URI", &[request.path, mark, query])?;
        self.put("QUERY_STRING", &[query])?;
        self.put("SERVER_PROTOCOL", &[request.version.name()])?;
        if let Some(length) = request.content_length {
            self.put("CONTENT_LENGTH", &[length.to_string().as_bytes()])?;
        }
        Ok(())
    }

    fn script(&mut self, request: &Request<'_>) -> Result<(), Reject> {
        let Script {
            name,
            info,
            is_file,
        } = request.script;
        let root = request.document_root;
        let below = root.strip_suffix(b"/").unwrap_or(root);
        self.put("DOCUMENT_ROOT", &[root])?;
        self.put("SCRIPT_NAME", &[slash(!name.is_empty()), name])?;
        let info_text = info.unwrap_or_default();
        self.put("PATH_INFO", &[slash(info.is_some()), info_text])?;
        if is_file {
            self.put("SCRIPT_FILENAME", &[below, b"/", name])?;
        }
        if is_file && info.is_some() {
            self.put("PATH_TRANSLATED", &[below, b"/", info_text])?;
        }
        Ok(())
    }

    fn server(&mut self, request: &Request<'_>) -> Result<(), Reject> {
        self.put("GATEWAY_INTERFACE", &[b"CGI/1.1"])?;
        self.put("SERVER_SOFTWARE", &[request.server_software])?;
        self.put("SERVER_NAME", &[request.server_name])?;
        self.put("SERVER_PORT", &[request.server_port.to_string().as_bytes()])?;
        if let Some(addr) = request.server_addr {
            self.put("SERVER_ADDR", &[addr.to_canonical().to_string().as_bytes()])?;
        }
        self.put("REDIRECT_STATUS", &[b"200"])?;
        match request.https {
            true => {
                self.put("REQUEST_SCHEME", &[b"https"])?;
                self.put("HTTPS", &[b"on"])
            }
            false => self.put("REQUEST_SCHEME", &[b"http"]),
        }
    }

    fn client(&mut self, request: &Request<'_>) -> Result<(), Reject> {
        let addr = request
            .remote_addr
            .map(|addr| addr.to_canonical().to_string());
        self.put("REMOTE_ADDR", &[addr.unwrap_or_default().as_bytes()])?;
        if let Some(port) = request.remote_port {
            self.put("REMOTE_PORT", &[port.to_string().as_bytes()])?;
        }
        if let Some(host) = request.host {
            self.put("HTTP_HOST", &[host])?;
        }
        Ok(())
    }

    fn fields<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Result<(), Reject> {
        for (number, (name, _)) in fields.clone().enumerate() {
            let same = |field: &(&[u8], &[u8])| field.0.eq_ignore_ascii_case(name);
            if is_passed(name) && !fields.clone().take(number).any(|field| same(&field)) {
                self.field(name, fields.clone().skip(number).filter(same))?;
            }
        }
        Ok(())
    }

    fn field<'f>(
        &mut self,
        name: &[u8],
        lines: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), Reject> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let start = self.bytes.len();
        if !is(b"content-type") {
            self.append(b"HTTP_")?;
        }
        let name_start = self.bytes.len();
        self.append(name)?;
        for byte in &mut self.bytes[name_start..] {
            *byte = variable_byte(*byte);
        }
        let value_start = self.bytes.len();
        let between: &[u8] = if is(b"cookie") { b"; " } else { b", " };
        for (number, (_, value)) in lines.enumerate() {
            self.append(if number == 0 { b"" } else { between })?;
            self.append(value)?;
        }
        self.close(start, value_start);
        Ok(())
    }

    /// Appends a variable with the concatenation of `pieces` as value. Its name must not be set
    /// yet.
    fn put(&mut self, name: &str, pieces: &[&[u8]]) -> Result<(), Reject> {
        let start = self.bytes.len();
        self.append(name.as_bytes())?;
        let value_start = self.bytes.len();
        for piece in pieces {
            self.append(piece)?;
        }
        self.close(start, value_start);
        Ok(())
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), Reject> {
        if piece.len() > ENVIRONMENT_BYTES_MAX - self.bytes.len() {
            return Err(TOO_LONG);
        }
        if memchr(0, piece).is_some() {
            return Err(HAS_NUL);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn close(&mut self, start: usize, value_start: usize) {
        let name = Span::new(start, value_start);
        let value = Span::new(value_start, self.bytes.len());
        self.pairs.push((name, value));
    }
}

fn slash(present: bool) -> &'static [u8] {
    if present { b"/" } else { b"" }
}

fn is_passed(name: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.iter().all(is_plain)
        && !NOT_PASSED
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other))
}

fn variable_byte(byte: u8) -> u8 {
    match byte {
        b'-' => b'_',
        _ => byte.to_ascii_uppercase(),
    }
}
