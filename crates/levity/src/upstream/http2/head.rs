//! Translates header sections and trailers to and from HTTP/2.

use http::header::{CONTENT_LENGTH, EXPECT, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use levity_config::upstream::ResponseLimits;
use levity_wire::http1::{Framing, Trailers, is_hop_by_hop};
use levity_wire::{Reject, mailbox_header, sendfile_header};

use super::super::codec::EncodeError;
use super::super::codec::head::Head;
use super::super::upstream_request::{Length, UpstreamRequest, passes};

/// The Host of a request without one.
const NO_HOST: &str = "localhost";

const TOO_MANY_FIELDS: Reject = Reject {
    status: 502,
    reason: "too many header fields",
};

const FIELD_TOO_LONG: Reject = Reject {
    status: 502,
    reason: "header field too long",
};

/// What stands between name and value in a line of HTTP/1.1, in bytes.
const SEPARATOR_BYTES: usize = 2;

/// The header section of a request (RFC 9113, 8.3.1), without headers about the connection.
///
/// # Errors
/// 400 for what HTTP/2 cannot express.
pub fn request(outgoing: &UpstreamRequest<'_>) -> Result<Request<()>, EncodeError> {
    let method = Method::from_bytes(outgoing.request.method());
    let mut request = Request::new(());
    *request.method_mut() = method.map_err(|_| unwritable("HTTP/2 cannot express the method"))?;
    *request.uri_mut() = uri(outgoing)?;
    let headers = request.headers_mut();
    for (name, value) in outgoing.fields() {
        add(headers, name, value)
            .ok_or_else(|| unwritable("HTTP/2 cannot express a header field"))?;
    }
    match outgoing.length {
        // Some applications require an explicit length of zero (RFC 9110, 8.6).
        Length::None if outgoing.request.head.framing != Framing::None => {
            headers.insert(CONTENT_LENGTH, 0.into());
        }
        Length::Known(bytes) => {
            headers.insert(CONTENT_LENGTH, bytes.into());
        }
        Length::None | Length::Unknown => {}
    }
    if outgoing.expects_continue {
        headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    if outgoing.accepts_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    Ok(request)
}

fn uri(outgoing: &UpstreamRequest<'_>) -> Result<Uri, EncodeError> {
    let host = match outgoing.host() {
        b"" => NO_HOST.as_bytes(),
        host => host,
    };
    let authority =
        Authority::try_from(host).map_err(|_| unwritable("HTTP/2 cannot express the host"))?;
    let target = PathAndQuery::from_maybe_shared(escaped(&outgoing.target()));
    let scheme = match outgoing.proxy.upstream.tls {
        Some(_) => Scheme::HTTPS,
        None => Scheme::HTTP,
    };
    let uri = Uri::builder().scheme(scheme).authority(authority);
    let uri =
        uri.path_and_query(target.map_err(|_| unwritable("HTTP/2 cannot express the target"))?);
    uri.build()
        .map_err(|_| unwritable("HTTP/2 cannot express the target"))
}

/// The target with the characters escaped that no URI has (RFC 3986, 2). Browsers send some of them.
fn escaped(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len());
    for &byte in target {
        match byte {
            b'<' | b'>' | b'`' | b'"' | b'{' | b'}' | b'|' | b'^' | b'#' => {
                out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            _ => out.push(byte),
        }
    }
    out
}

fn unwritable(reason: &'static str) -> EncodeError {
    Reject {
        status: 400,
        reason,
    }
}

fn add(headers: &mut HeaderMap, name: &[u8], value: &[u8]) -> Option<()> {
    let name = HeaderName::from_bytes(name).ok()?;
    let value = HeaderValue::from_bytes(value).ok()?;
    headers.try_append(name, value).ok()?;
    Some(())
}

/// The trailers of a request, without those in `protected`.
pub fn request_trailers(trailers: &Trailers, protected: &[String]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in trailers.fields() {
        if passes(name, protected.iter().map(String::as_str)) {
            // A parser has accepted the value.
            let _ = add(&mut headers, name, value);
        }
    }
    headers
}

/// The header section of a response, final or interim.
///
/// # Errors
/// 502 for a header section that no client may get.
pub fn response(response: &Response<()>, limits: ResponseLimits) -> Result<Head, Reject> {
    let headers = response.headers();
    if headers.len() > limits.headers {
        return Err(TOO_MANY_FIELDS);
    }
    let line_bytes = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + SEPARATOR_BYTES + value.len()
    };
    if headers
        .iter()
        .map(line_bytes)
        .any(|bytes| bytes > limits.line_bytes)
    {
        return Err(FIELD_TOO_LONG);
    }
    let status = response.status().as_u16();
    let mut head = Head::new(status, b"");
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        if !is_hop_by_hop(name) {
            head.field(name, value.as_bytes());
        }
    }
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    head.length = length.filter(|_| status >= 200);
    Ok(head)
}

/// The trailers of a response, without those that are for this server.
pub fn response_trailers(headers: &HeaderMap) -> Trailers {
    let is_reserved =
        |name: &[u8]| sendfile_header::is_reserved(name) || mailbox_header::is_reserved(name);
    let mut trailers = Trailers::default();
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        if !is_reserved(name) {
            trailers.add(name, value.as_bytes());
        }
    }
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ResponseLimits = ResponseLimits {
        line_bytes: 40,
        head_bytes: 1000,
        headers: 4,
    };

    /// A response with so many fields of 40 bytes, as lines of HTTP/1.1.
    fn with_fields(count: usize, more: &str) -> Response<()> {
        let mut response = Response::builder();
        for number in 0..count {
            response = response.header(format!("x-{number}"), format!("{}{more}", "v".repeat(35)));
        }
        response.body(()).expect("a response")
    }

    #[test]
    fn a_header_section_at_its_limits() {
        assert!(response(&with_fields(4, ""), LIMITS).is_ok());
        let refused = |whole| response(&whole, LIMITS).map(|_| ());
        assert_eq!(refused(with_fields(5, "")), Err(TOO_MANY_FIELDS));
        assert_eq!(refused(with_fields(1, "v")), Err(FIELD_TOO_LONG));
    }

    #[test]
    fn what_no_uri_has_is_escaped() {
        let target = escaped(b"/a<b>?q={\"x\"}|`^%41");
        assert_eq!(target, b"/a%3Cb%3E?q=%7B%22x%22%7D%7C%60%5E%41");
        assert!(PathAndQuery::from_maybe_shared(target).is_ok());
    }

    #[test]
    fn headers_about_a_connection_are_dropped() {
        let whole = Response::builder()
            .header("trailer", "x-sum")
            .header("proxy-authenticate", "Basic")
            .header("te", "trailers")
            .header("x-app", "yes")
            .body(());
        let head = response(&whole.expect("a response"), LIMITS).expect("a head");
        assert_eq!(head.fields.value("x-app"), Some(&b"yes"[..]));
        for name in ["trailer", "proxy-authenticate", "te"] {
            assert_eq!(head.fields.value(name), None, "{name}");
        }
    }

    #[test]
    fn statuses_that_http_does_not_know_pass() {
        for status in [200, 599, 600, 999] {
            let whole = Response::builder().status(status).body(());
            let head = response(&whole.expect("a response"), LIMITS);
            assert_eq!(head.map(|head| head.status), Ok(status));
        }
    }

    #[test]
    fn trailers_for_this_server_are_dropped() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("grpc-status", "0"), ("x-sendfile", "/etc/passwd")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let trailers = response_trailers(&headers);
        let all: Vec<_> = trailers.fields().collect();
        assert_eq!(all, [(&b"grpc-status"[..], &b"0"[..])]);
    }
}
