//! What stands for HTTP/2 in a build without it. Handshakes of TLS do not offer it; other clients may begin with it all the same.

use std::rc::Rc;

use levity_telemetry::access_log::End;

use super::{ended, refuse};
use crate::http::error::error;
use crate::http::h1::conn::Conn;
use crate::worker::Worker;

/// Refuses a connection whose client has begun with HTTP/2, in the words of HTTP/1.
pub(super) async fn over_http2(worker: &Rc<Worker>, conn: Rc<Conn>) {
    refuse(worker, &conn, error(505, "this server has no HTTP/2")).await;
    conn.linger().await;
    ended(&conn.core, &conn.peer, conn.handshake_error(), End::Error);
}
