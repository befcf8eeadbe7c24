//! Encodes the header section of a response as HTTP/2.

use levity_wire::http2::FieldBlock;

use crate::http::send::Head;
use crate::loop_core::LoopCore;
use crate::message::fields::{Fields, lines};

/// The status of a response to an extended CONNECT (RFC 8441, 5).
const UPGRADED: u16 = 200;

/// Encodes the status, Server, Date, the headers of the response and Content-Length.
pub fn write(head: &Head<'_>, core: &LoopCore) -> FieldBlock {
    let mut block = FieldBlock::new(core.take_head());
    block.status(match head.upgrade {
        Some(_) => UPGRADED,
        None => head.status,
    });
    if !head.has_server {
        block.server(b"levity");
    }
    if !head.has_date {
        block.date(&core.clock.date());
    }
    if let Some(file) = head.base {
        block.append(&file.encoded_fields(encode));
    }
    append(&mut block, head.fields);
    if let Some(metrics) = head.server_timing {
        block.field(b"server-timing", metrics.as_bytes());
    }
    if let Some(bytes) = head.length {
        block.length(bytes);
    }
    block
}

/// Encodes an interim response (RFC 9110, 15.2).
pub fn interim(status: u16, fields: &Fields) -> FieldBlock {
    let mut block = FieldBlock::default();
    block.status(status);
    append(&mut block, fields);
    block
}

fn encode(fields: &Fields) -> Vec<u8> {
    let mut block = FieldBlock::default();
    append(&mut block, fields);
    block.into_buffer()
}

/// Appends headers, except those about the connection (RFC 9113, 8.2.2) or an upgrade.
fn append(block: &mut FieldBlock, fields: &Fields) {
    const LEFT_OUT: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"sec-websocket-accept",
        b"transfer-encoding",
        b"upgrade",
    ];
    let is_left_out = |name: &[u8]| {
        matches!(name.first(), Some(first) if b"ckpstuCKPSTU".contains(first))
            && LEFT_OUT
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other))
    };
    for line in lines(fields.as_bytes()) {
        if !is_left_out(line.name) {
            block.field(line.name, line.value);
        }
    }
}
