//! Errors in the form that clients of gRPC read. They learn how a call has ended from `grpc-status`, and map statuses of
//! HTTP to it only if there is none.

use levity_wire::http1::{Method, reason};

use crate::http::response::{Body, Response};
use crate::message::request::Request;

const MEDIA_TYPE: &[u8] = b"application/grpc";

/// The caller's time is over.
const DEADLINE_EXCEEDED: &[u8] = b"4";

/// The service cannot be reached at present.
const UNAVAILABLE: &[u8] = b"14";

/// Turns the response, whose body is the text of an error, into the end of a call: status 200 and trailers without a body,
/// which HTTP/2 sends as one header section. Returns false for other requests than calls, and other errors than 502 to 504.
pub fn end_call(request: &Request, response: &mut Response) -> bool {
    let code = match response.status {
        504 if !is_of_connect(response) => DEADLINE_EXCEEDED,
        502..=504 => UNAVAILABLE,
        _ => return false,
    };
    if !is_call(request) {
        return false;
    }
    let message = match response.header("proxy-status") {
        Some(status) => status.to_vec(),
        None => reason(response.status).into(),
    };
    let fields = &mut response.fields;
    fields.set("Content-Type", MEDIA_TYPE);
    fields.set("grpc-status", code);
    fields.set("grpc-message", &message);
    fields.remove("Retry-After");
    response.status = 200;
    // Not none: over HTTP/1.1 it needs a length.
    response.body = Body::Text(Vec::new());
    response.is_error_text = false;
    true
}

/// Whether no connection was made in time: no backend has seen the call, and its caller may try again.
fn is_of_connect(response: &Response) -> bool {
    let status = response.header("proxy-status");
    status.is_some_and(|status| status.ends_with(b"=connection_timeout"))
}

/// Whether the request is a call of gRPC: not of gRPC-Web, whose media type only begins alike.
fn is_call(request: &Request) -> bool {
    let media_type = request.header("content-type").unwrap_or_default();
    let (start, format) = media_type.split_at(media_type.len().min(MEDIA_TYPE.len()));
    let is_grpc = start.eq_ignore_ascii_case(MEDIA_TYPE);
    request.head.method == Method::Post
        && is_grpc
        && matches!(format.first(), None | Some(b'+' | b';'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::reported;
    use crate::http::error::error;
    use crate::upstream::failure::Failure;
    use levity_wire::http1::Limits;
    use std::io;

    fn request(method: &str, media_type: &str) -> Request {
        let head = format!("{method} /a HTTP/1.1\r\nHost: a\r\nContent-Type: {media_type}\r\n\r\n");
        Request::parsed(head.as_bytes(), &Limits::default()).expect("a request")
    }

    #[test]
    fn calls_end_with_a_code() {
        for (status, code) in [(502, "14"), (503, "14"), (504, "4")] {
            for media_type in [
                "application/grpc",
                "application/grpc+proto",
                "Application/gRPC;a=b",
            ] {
                let mut response = error(status, "");
                assert!(end_call(&request("POST", media_type), &mut response));
                assert_eq!(response.status, 200);
                assert_eq!(response.header("grpc-status"), Some(code.as_bytes()));
                assert_eq!(response.header("content-type"), Some(MEDIA_TYPE));
                assert_eq!(response.content_length(), Some(0));
            }
        }
    }

    #[test]
    fn a_connection_that_takes_too_long_is_no_deadline() {
        let failure = Failure::of_connect(&io::ErrorKind::TimedOut.into());
        let mut response = reported::response(&failure);
        assert_eq!(response.status, 504);
        assert!(end_call(
            &request("POST", "application/grpc"),
            &mut response
        ));
        assert_eq!(response.header("grpc-status"), Some(UNAVAILABLE));
    }

    #[test]
    fn others_keep_their_errors() {
        for (method, media_type, status) in [
            ("POST", "application/grpc", 404),
            ("POST", "application/grpc", 500),
            ("GET", "application/grpc", 502),
            ("POST", "application/grpc-web+proto", 502),
            ("POST", "application/json", 502),
            ("POST", "a", 502),
        ] {
            let mut response = error(status, "");
            assert!(!end_call(&request(method, media_type), &mut response));
            assert_eq!(response.status, status);
            assert!(response.is_error_text);
        }
    }
}
