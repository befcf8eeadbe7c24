//! The built-in page of an error: HTML for browsers, JSON (RFC 9457) for programs that ask for it, else the text.

use levity_wire::accept;
use levity_wire::http1::reason;

use crate::http::response::{Body, Response};
use crate::message::request::Request;

/// The media types of the page, the text first: it is for clients that accept anything.
const TYPES: &[&str] = &[
    "text/plain",
    "text/html",
    "application/problem+json",
    "application/json",
];

const STYLE: &str = ":root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto 2rem;padding:0 1.5rem}\
h1{font-size:1.5rem;margin:0}p{margin:.5rem 0}small{opacity:.65}";

/// Gives the response, whose body is the text of an error, the form that the client prefers.
pub fn choose_form(request: &Request, response: &mut Response) {
    response.is_error_text = false;
    let others = response.fields.value("vary").map(<[u8]>::to_vec);
    let vary = others.map_or_else(
        || b"Accept".to_vec(),
        |own| [&own, &b", Accept"[..]].concat(),
    );
    response.fields.set("Vary", &vary);
    let accepted = accept::preferred(request.headers_named("accept"), TYPES);
    let media_type = accepted.map_or(TYPES[0], |index| TYPES[index]);
    let Body::Text(text) = &response.body else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let status = response.status;
    let detail = text
        .trim_end()
        .split_once(": ")
        .map_or("", |(_, detail)| detail);
    let (page, content_type) = match media_type {
        "text/plain" => return,
        "text/html" => (html(status, detail, request), "text/html; charset=utf-8"),
        json => (self::json(status, detail, request), json),
    };
    response.body = Body::Text(page.into_bytes());
    response.fields.set("content-type", content_type.as_bytes());
}

fn html(status: u16, detail: &str, request: &Request) -> String {
    let (name, id) = (reason(status), request.id());
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{status} {name}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{status} {name}</h1>\n"
    );
    let detail = if detail.is_empty() {
        meaning(status)
    } else {
        detail
    };
    if !detail.is_empty() {
        let detail = detail.replace('&', "&amp;").replace('<', "&lt;");
        page.push_str(&format!("<p>{detail}</p>\n"));
    }
    // A taken id may contain any visible character.
    let id = id.to_string().replace('&', "&amp;").replace('<', "&lt;");
    page.push_str(&format!(
        "<p><small>Request {id}</small></p>\n</body>\n</html>\n"
    ));
    page
}

/// What a reader who knows no numbers can do about an error; empty where nothing can be said.
fn meaning(status: u16) -> &'static str {
    match status {
        401 | 403 => "You may not see this page.",
        404 | 410 => {
            "There is no page at this address. The link that led here may be old, or the address misspelt."
        }
        413 => "What was sent is too large.",
        429 => "There were too many requests. Please try again in a moment.",
        500..=599 => "The server cannot answer now. Please try again later.",
        _ => "",
    }
}

/// Problem details (RFC 9457).
fn json(status: u16, detail: &str, request: &Request) -> String {
    let mut problem = serde_json::json!({
        "status": status,
        "title": reason(status),
        "request_id": request.id().to_string(),
    });
    if !detail.is_empty() {
        problem["detail"] = detail.into();
    }
    format!("{problem}\n")
}
