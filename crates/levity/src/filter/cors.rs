//! CORS: lets web pages of other origins read responses (Fetch standard, 3.2).

use levity_config::Cors;

use crate::http::filter::{Filter, FilteredHead};
use crate::message::request::Request;

/// The permissions of one location.
pub struct CorsHeaders(pub Cors);

const ORIGIN: &str = "Access-Control-Allow-Origin";

impl Filter for CorsHeaders {
    fn key(&self) -> &'static str {
        "cors"
    }

    /// Replaces what an application says: two values would be refused by browsers.
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        let Self(cors) = self;
        let fields = head.fields;
        for name in [
            "access-control-allow-origin",
            "access-control-allow-credentials",
        ] {
            fields.remove(name);
        }
        if !cors.origins.any {
            fields.add("Vary", b"Origin");
        }
        let Some(origin) = permitted(cors, request) else {
            return;
        };
        fields.add(ORIGIN, origin);
        if cors.credentials {
            fields.add("Access-Control-Allow-Credentials", b"true");
        }
        if !cors.expose.is_empty() {
            let names = cors.expose.join(", ");
            fields.set("access-control-expose-headers", names.as_bytes());
        }
    }
}

/// The value of Access-Control-Allow-Origin for `request`, if its page is permitted.
pub fn permitted<'r>(cors: &Cors, request: &'r Request) -> Option<&'r [u8]> {
    // Also without an origin: a cache may keep the response for pages of others.
    if cors.origins.any {
        return Some(b"*");
    }
    let origin = request.header("origin")?;
    cors.permits(origin).then_some(origin)
}
