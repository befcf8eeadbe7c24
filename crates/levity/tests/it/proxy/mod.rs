//! The server as a proxy of HTTP applications: what passes in both directions, and failures on either side.

mod bodies;
mod continues;
mod event_streams;
mod fields;
mod half_closed;
mod messages;
mod misbehaving;
mod outages;
mod pool;
mod spliced;
mod stress;
mod tunnels;

use crate::support::scripted::{Conn, Request};

/// Responds to each request with its target.
fn tell_target(conn: &mut Conn) {
    while let Some(request) = conn.read_request() {
        tell(conn, &request, &request.target);
    }
}

/// A valid response, without its body to HEAD.
fn tell(conn: &mut Conn, request: &Request, body: &str) {
    if request.method == "HEAD" {
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
    } else {
        conn.answer("200 OK", body);
    }
}
