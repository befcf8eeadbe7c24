//! Errors of HTTP/2 as failures of requests.

use std::io;
use std::time::Instant;

use h2::{Error, Reason};

use super::super::failure::Failure;

/// The failure of a request whose stream has ended with `error` before the header of its response. `deadline` is when its
/// caller stops to wait: backends of gRPC give a call up at that time, which is no fault of theirs.
pub fn before_response(error: &Error, deadline: Option<Instant>) -> Failure {
    let is_cancelled = error.is_remote() && error.reason() == Some(Reason::CANCEL);
    match deadline {
        Some(deadline) if is_cancelled && deadline <= Instant::now() => Failure {
            spares_backend: true,
            ..Failure::of_silence("the backend has ended the call at its deadline (grpc-timeout)")
        },
        _ => of_stream(error, false),
    }
}

/// The same, after the header.
pub fn within_response(error: &Error) -> Failure {
    of_stream(error, true)
}

fn of_stream(error: &Error, response_begun: bool) -> Failure {
    let is_of_backend = error.is_remote();
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if is_of_backend && error.is_reset() => {
            Failure::of_refused_stream("the backend has refused the stream (REFUSED_STREAM)")
        }
        // The backend names the last stream that it takes; the error is only for those after it (RFC 9113, 6.8).
        Some(_) if is_of_backend && error.is_go_away() => Failure {
            is_untouched: true,
            spares_backend: true,
            ..Failure::of_backend(
                502,
                "connection_terminated",
                "the backend ends the connection, and has not looked at the request (GOAWAY)",
            )
        },
        // This side has ended the connection. All its requests fail, though one of them may be the reason.
        Some(_) if error.is_library() && error.is_go_away() => Failure {
            spares_backend: true,
            ..Failure::of_backend(502, "connection_terminated", broken_rule(error))
        },
        Some(reason) if is_of_backend => {
            let kind = match response_begun {
                true => "http_response_incomplete",
                false => "http_protocol_error",
            };
            let reason = reason_name(reason);
            Failure::of_backend(
                502,
                kind,
                format_args!("the backend has reset the stream ({reason})"),
            )
        }
        Some(_) => Failure::of_backend(502, "http_protocol_error", broken_rule(error)),
        None => Failure::of_backend(502, "connection_terminated", error),
    }
}

/// The error of an attempt to connect: `Unsupported` if the backend does not speak HTTP/2.
pub fn of_opening(error: Error) -> io::Error {
    let text = match error.is_library() {
        true => {
            let rule = broken_rule(&error);
            format!("it does not speak HTTP/2, or not without TLS ({rule})")
        }
        false => format!("HTTP/2: {error}"),
    };
    match error.into_io() {
        Some(error) => error,
        None => io::Error::new(io::ErrorKind::Unsupported, text),
    }
}

/// What the library has found wrong. It tells no more than a code, in words that name nobody.
fn broken_rule(error: &Error) -> String {
    let ended = match error.is_go_away() {
        true => "the connection was ended",
        false => "the stream was reset",
    };
    let code = match error.reason() {
        Some(reason @ Reason::PROTOCOL_ERROR) => reason_name(reason),
        Some(reason) => format!("{}: {error}", reason_name(reason)),
        None => return error.to_string(),
    };
    format!("the backend broke a rule of HTTP/2, so {ended} ({code})")
}

fn reason_name(reason: Reason) -> String {
    // Its `Debug` is the name that RFC 9113, 7 has.
    format!("{reason:?}")
}
