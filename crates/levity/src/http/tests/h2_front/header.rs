//! Converts the header of a response to a HEADERS frame.

use ::http::header::{CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, SERVER};
use ::http::{Response, StatusCode};

use crate::http::fields::{Line, lines};
use crate::http::send::Head;
use crate::worker::Worker;

/// Status and header fields. An upgrade has status 200 and no Sec-WebSocket-Accept (RFC 8441, 5).
pub fn of(head: &Head<'_>, worker: &Worker) -> Response<()> {
    let status = match head.upgrade {
        Some(_) => 200,
        None => head.status,
    };
    let mut response = interim(status, head.fields.into_iter().flat_map(lines));
    let headers = response.headers_mut();
    if head.upgrade.is_some() {
        headers.remove("sec-websocket-accept");
    }
    if !head.has_server {
        headers.insert(SERVER, HeaderValue::from_static("levity"));
    }
    if !head.has_date {
        let mut date = Vec::new();
        worker.date(&mut date);
        headers.extend(value(&date).map(|value| (DATE, value)));
    }
    if let Some(metrics) = head.server_timing {
        let name = HeaderName::from_static("server-timing");
        headers.extend(value(metrics.as_bytes()).map(|value| (name, value)));
    }
    if let Some(bytes) = head.length {
        headers.insert(CONTENT_LENGTH, bytes.into());
    }
    response
}

/// Status and header fields of an interim response.
pub fn interim<'f>(status: u16, fields: impl Iterator<Item = Line<'f>>) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).expect("three digits");
    *response.headers_mut() = map(fields.map(|line| (line.name, line.value)));
    response
}

/// The fields as a map, without those that cannot be sent.
pub fn map<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> HeaderMap {
    let field = |(name, text): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).ok()?;
        Some((name, value(text)?))
    };
    let mut map = HeaderMap::new();
    fields.filter_map(field).for_each(|(name, value)| {
        map.append(name, value);
    });
    map
}

fn value(text: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text).ok()
}
