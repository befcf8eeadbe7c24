//! Receivers over WebSocket (RFC 6455).
//!
//! A socket only receives. Each message is one that the client gets:
//! - With the subprotocol [`mailbox.json`](JSON) as a text with a JSON object, the same as a line of the form of lines, with
//!   the id. Where messages are missing comes `{"gap":true,"id":ID}`; `ID` is where the client continues.
//! - Without a subprotocol it is the content alone: a text if its media type is one of text and it is UTF-8, otherwise bytes.
//!   A gap at the start is in the header `Mailbox-Gap` of the handshake.
//!
//! A receiver that was too slow is closed with the code [`GAP`](super::socket::GAP), and the id as the reason. Other codes are
//! 1000 for a box that was removed and for a stream that its publisher has ended, 1001 for a client that has to come back, 1002, 1007 and 1009 for bytes that violate the
//! protocol, 1003 for a message, and 1011 if the store failed.
//!
//! The cursor is `?last_event_id=`, since browsers cannot send headers.

use std::sync::Arc;

use levity_mailbox::{Cursor, Name};
use levity_wire::Reject;
use levity_wire::websocket::{self, Deflate};
use sha1::{Digest as _, Sha1};

use super::super::Handling;
use super::forms::Form;
use super::receiver::Hold;
use super::socket::Socket;
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::mailboxes::set::MailboxSet;
use crate::message::fields::Fields;
use crate::message::request::Request;

/// The subprotocol with ids.
const JSON: &str = "mailbox.json";

impl Handling<'_> {
    /// Answers the opening handshake of a receiver. `protocol` is the one that Upgrade names.
    pub(super) async fn open_websocket(
        &self,
        request: &Request,
        set: &Arc<MailboxSet>,
        (name, cursor): (&Name, Option<Cursor>),
        protocol: &[u8],
    ) -> Result<Response, Response> {
        self.check_origin(request, set)?;
        let mut response = Response::new(101);
        let fields = &mut response.fields;
        let (form, is_compressed) = agree(request, fields).map_err(refused)?;
        let opened = self.open(set, name, cursor).await?;
        let receiver = self.receiver(set, opened, form, Hold::default(), fields);
        response.body = Body::Held {
            protocol: Some(protocol.to_vec()),
            held: Box::new(receiver.over(Socket::new(is_compressed))),
        };
        Ok(response)
    }
}

/// Adds the answer to the handshake to `fields`. Returns the form of messages, and whether they may be compressed.
fn agree(request: &Request, fields: &mut Fields) -> Result<(Form, bool), Reject> {
    let version = request.header("sec-websocket-version").unwrap_or_default();
    websocket::check_version(version)?;
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let digest = Sha1::digest(websocket::accept_input(key)?);
    let protocols = request.headers_named("sec-websocket-protocol");
    let has_ids = websocket::protocols(protocols)?.contains(&JSON);
    let extensions = request.headers_named("sec-websocket-extensions");
    let deflate = Deflate::negotiate(extensions)?;
    fields.add(
        "Sec-WebSocket-Accept",
        websocket::accept(&digest).as_bytes(),
    );
    if has_ids {
        fields.add("Sec-WebSocket-Protocol", JSON.as_bytes());
    }
    if let Some(deflate) = deflate {
        fields.add("Sec-WebSocket-Extensions", deflate.response().as_bytes());
    }
    let form = if has_ids { Form::Objects } else { Form::Frames };
    Ok((form, deflate.is_some()))
}

/// The name of WebSocket as the client has offered it in Upgrade, if it has.
pub fn offered(request: &Request) -> Option<&[u8]> {
    let protocols = request.upgrade()?.split(|&byte| byte == b',');
    let mut protocols = protocols.map(<[u8]>::trim_ascii);
    protocols.find(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

fn refused(reject: Reject) -> Response {
    let mut response = error(reject.status, reject.reason);
    if reject.status == 426 {
        let fields = &mut response.fields;
        fields.add("Upgrade", b"websocket");
        fields.add("Sec-WebSocket-Version", websocket::VERSION.as_bytes());
    }
    response
}
