//! The opening handshake of WebSockets, and their frames.

use std::io::Cursor;

use levity_wire::Reject;
use levity_wire::websocket::input::{Input, Received};
use levity_wire::websocket::{
    ClientHeader, Deflate, EXTENSIONS_MAX, Opcode, PROTOCOLS_MAX, Violation, accept_input,
    check_version, protocols, push_header,
};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::first_line;

/// An offer of compression is accepted exactly if the RFC allows it and its demands are met, accepted names are tokens, and
/// the header of a frame has the length that was meant.
pub fn websocket_handshake(bytes: &[u8]) {
    let (_, value) = first_line(bytes);
    protocols_are_sound(value);
    extensions_are_those_of_the_rfc(value);
    key_is_sound(value);
    frame_headers_are_sound(bytes);
}

/// Whether a header is accepted; its name is the first line and its value the rest.
pub fn websocket_outcome(bytes: &[u8]) -> Result<bool, Reject> {
    let (name, value) = first_line(bytes);
    match name {
        b"Sec-WebSocket-Key" => accept_input(value).map(|_| true),
        b"Sec-WebSocket-Version" => check_version(value).map(|()| true),
        b"Sec-WebSocket-Protocol" => protocols([value]).map(|names| !names.is_empty()),
        b"Sec-WebSocket-Extensions" => Deflate::negotiate([value]).map(|found| found.is_some()),
        _ => Ok(false),
    }
}

/// Frames of a client: the header of the first is what tungstenite reads, and all are the same at every cut.
pub fn websocket_frames(bytes: &[u8]) {
    assert_eq!(ClientHeader::parse(bytes).ok(), theirs(bytes));
    let whole = frames([bytes]);
    assert_eq!(frames(bytes.chunks(1)), whole);
    for cut in (0..bytes.len()).take(CUTS_MAX) {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(frames([first, second]), whole);
    }
}

/// What becomes of the bytes of a client: `more` if they are not even one frame.
pub fn websocket_frames_outcome(bytes: &[u8]) -> &'static str {
    match frames([bytes]) {
        (_, Err(violation)) if violation.code == 1009 => "size",
        (_, Err(_)) => "protocol",
        (received, Ok(())) if received.is_empty() => "more",
        _ => "ok",
    }
}

/// The cuts that are tried, in bytes from the start: a header has 14 at most.
const CUTS_MAX: usize = 200;

/// All that is in `pieces` up to the first violation, if there is one.
fn frames<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> (Vec<Received>, Result<(), Violation>) {
    let (mut input, mut all) = (Input::default(), Vec::new());
    for mut piece in pieces {
        loop {
            match input.next(&mut piece) {
                Ok(Some(received)) => all.push(received),
                Ok(None) => break,
                Err(violation) => return (all, Err(violation)),
            }
        }
        assert!(piece.is_empty());
    }
    (all, Ok(()))
}

/// The first header as tungstenite reads it, and its length; `None` if RFC 6455, 5.2, or RFC 7692 forbids a client to send it.
fn theirs(bytes: &[u8]) -> Option<Option<(ClientHeader, usize)>> {
    if let [first, second, ..] = bytes {
        let is_reserved = first & 0x30 != 0 || matches!(first & 0x0f, 3..=7 | 11..=15);
        if is_reserved || second & 0x80 == 0 {
            return None;
        }
    }
    let mut cursor = Cursor::new(bytes);
    let parsed = FrameHeader::parse(&mut cursor).ok()?;
    let Some((header, length)) = parsed else {
        return has_good_length(bytes).then_some(None);
    };
    let opcode = match header.opcode {
        OpCode::Data(Data::Continue) => Opcode::Continuation,
        OpCode::Data(Data::Text) => Opcode::Text,
        OpCode::Data(Data::Binary) => Opcode::Binary,
        OpCode::Control(Control::Close) => Opcode::Close,
        OpCode::Control(Control::Ping) => Opcode::Ping,
        OpCode::Control(Control::Pong) => Opcode::Pong,
        _ => return None,
    };
    let count = cursor.position() as usize;
    let ours = ClientHeader {
        is_last: header.is_final,
        is_compressed: header.rsv1,
        opcode,
        length,
        mask: header.mask?,
    };
    let is_shortest = count == header.len(length) && length >> 63 == 0;
    is_shortest.then_some(Some((ours, count)))
}

/// Whether the length that has arrived of a header without its mask has the shortest form, and no sign.
fn has_good_length(bytes: &[u8]) -> bool {
    match bytes {
        [_, 0xfe, high, low, ..] => u16::from_be_bytes([*high, *low]) > 125,
        [_, 0xff, rest @ ..] => rest
            .first_chunk()
            .is_none_or(|length| (0x1_0000..1 << 63).contains(&u64::from_be_bytes(*length))),
        _ => true,
    }
}

fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

fn protocols_are_sound(value: &[u8]) {
    let Ok(names) = protocols([value]) else {
        return;
    };
    assert!(names.len() <= PROTOCOLS_MAX && names.iter().all(|name| is_token(name)));
    assert_eq!(protocols([names.join(", ").as_bytes()]), Ok(names.clone()));
    assert!(names.is_empty() || protocols([value, value]).is_err());
}

fn key_is_sound(value: &[u8]) {
    if let Ok(input) = accept_input(value) {
        assert!(value.trim_ascii() == &input[..24] && input[22..24] == *b"==");
        assert!(input.is_ascii() && input[24..].starts_with(b"258EAFA5"));
    }
}

/// Of lists without quotes: the grammar of quoted strings is tested with the parameters.
fn extensions_are_those_of_the_rfc(value: &[u8]) {
    let found = Deflate::negotiate([value]);
    if let Ok(Some(deflate)) = found {
        // The response is an offer that the server itself accepts.
        let again = Deflate::negotiate([deflate.response().as_bytes()]);
        assert_eq!(again, Ok(Some(deflate)));
    }
    let text = str::from_utf8(value).unwrap_or("\"");
    if text.contains('"') {
        return;
    }
    let white = [' ', '\t'];
    let offers: Vec<Vec<_>> = text
        .split(',')
        .map(|offer| offer.trim_matches(white))
        .filter(|offer| !offer.is_empty())
        .map(|offer| {
            offer
                .split(';')
                .map(|part| part.trim_matches(white))
                .collect()
        })
        .collect();
    let is_well_formed = |offer: &Vec<&str>| {
        let mut words = offer[1..].iter().flat_map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, "x"));
            [name.trim_matches(white), value.trim_matches(white)]
        });
        is_token(offer[0]) && words.all(is_token)
    };
    if offers.len() > EXTENSIONS_MAX || !offers.iter().all(is_well_formed) {
        assert!(found.is_err());
        return;
    }
    let accepted = offers.iter().find(|offer| is_accepted(offer));
    let response = found.expect("well-formed").map(Deflate::response);
    assert_eq!(response.is_some(), accepted.is_some());
    if let (Some(response), Some(offer)) = (response, accepted) {
        let has_window = |part: &&str| part.to_ascii_lowercase().starts_with("server_max");
        assert_eq!(response.contains("bits=15"), offer.iter().any(has_window));
    }
}

fn is_accepted(offer: &[&str]) -> bool {
    let mut names = Vec::new();
    let all_valid = offer[1..].iter().all(|part| {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (*part, None),
        };
        names.push(name.to_ascii_lowercase());
        let bits = value.and_then(|value| value.parse::<u8>().ok());
        let bits = bits.filter(|bits| Some(&bits.to_string()[..]) == value);
        match &name.to_ascii_lowercase()[..] {
            "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
            "server_max_window_bits" => bits == Some(15),
            "client_max_window_bits" => {
                value.is_none() || bits.is_some_and(|bits| (8..=15).contains(&bits))
            }
            _ => false,
        }
    });
    let count = names.len();
    names.sort();
    names.dedup();
    offer[0].eq_ignore_ascii_case("permessage-deflate") && all_valid && names.len() == count
}

/// The first bytes are the length.
fn frame_headers_are_sound(bytes: &[u8]) {
    let length = bytes
        .iter()
        .take(8)
        .fold(0u64, |length, &byte| length << 8 | u64::from(byte));
    let mut header = Vec::new();
    push_header(&mut header, Opcode::Binary, true, true, length);
    let (start, rest) = header.split_at(2);
    assert_eq!(start[0], 0b1100_0010);
    let decoded = match start[1] {
        short @ ..=125 => u64::from(short),
        126 => u64::from(u16::from_be_bytes(rest.try_into().expect("16 bits"))),
        127 => u64::from_be_bytes(rest.try_into().expect("64 bits")),
        _ => panic!("the mask is the client's"),
    };
    assert_eq!(decoded, length);
    // The shortest form (RFC 6455, 5.2).
    let extended = match length {
        ..=125 => 0,
        126..=0xffff => 2,
        _ => 8,
    };
    assert_eq!(rest.len(), extended);
}
