//! The handler that answers the preflight requests of other origins (CORS, Fetch standard, 3.2.2).

use levity_config::Cors;

use super::chain::{Asked, Decision, Handler};
use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::filter::cors::permitted;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;

impl Handler for Cors {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        response(self, asked.request).into()
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        if let Outcome::Response(_) = outcome {
            explanation.add(Topic::Handler, "`cors` answers the preflight");
        }
    }
}

/// The response to a preflight request; `None` for any other request. [`CorsHeaders`](crate::filter::cors::CorsHeaders) adds the origin.
fn response(cors: &Cors, request: &Request) -> Option<Response> {
    request.header("access-control-request-method")?;
    request
        .header("origin")
        .filter(|_| request.method() == b"OPTIONS")?;
    let mut response = Response::new(204);
    let fields = &mut response.fields;
    fields.add(
        "Vary",
        b"Access-Control-Request-Method, Access-Control-Request-Headers",
    );
    if permitted(cors, request).is_some() {
        let methods = cors.methods.join(", ");
        fields.add("Access-Control-Allow-Methods", methods.as_bytes());
        let headers = cors.headers.join(", ");
        // With credentials a star is a name (Fetch standard, 4.8).
        let any = cors.headers.iter().any(|name| name == "*");
        let asked = request.header("access-control-request-headers");
        let allowed = asked.filter(|_| any).unwrap_or(headers.as_bytes());
        fields.add("Access-Control-Allow-Headers", allowed);
        let seconds = cors.max_age.as_secs().to_string();
        fields.add("Access-Control-Max-Age", seconds.as_bytes());
    }
    Some(response)
}
