//! Streams of server-sent events.

use levity_wire::Reject;
use levity_wire::sse::{Block, Scanner, encode};

use super::cuts;

/// An event as a page gets it.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: String,
}

#[derive(Debug, Default, PartialEq)]
struct Stream {
    events: Vec<Event>,
    /// Of the end of the stream.
    last_id: String,
    retry: Option<u64>,
}

const BLOCK_BYTES_MAX: usize = 512;

/// However a stream is cut, its blocks are those that the standard describes, also when they are passed on. Any bytes can
/// be sent as an event.
pub fn sse(bytes: &[u8]) {
    let whole = blocks([bytes], BLOCK_BYTES_MAX);
    assert_eq!(blocks(bytes.chunks(1), BLOCK_BYTES_MAX), whole);
    for cut in cuts(bytes.len()) {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(
            blocks([start, rest], BLOCK_BYTES_MAX),
            whole,
            "cut at {cut}"
        );
    }
    if let Ok(blocks) = whole {
        blocks_are_those_of_the_standard(bytes, &blocks);
        ids_are_replaced(&blocks);
    }
    let limited = blocks([bytes], 32);
    for block in limited.iter().flatten() {
        assert!(block.len() <= 32);
    }
    events_survive(bytes);
}

/// Whether the stream has an event.
pub fn sse_outcome(bytes: &[u8]) -> Result<bool, Reject> {
    let mut scanner = Scanner::new(BLOCK_BYTES_MAX);
    let mut input = bytes;
    while let Some(block) = scanner.next_block(&mut input)? {
        if is_event(block.bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn blocks<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    bytes_max: usize,
) -> Result<Vec<Vec<u8>>, Reject> {
    let mut scanner = Scanner::new(bytes_max);
    let mut found = Vec::new();
    for mut piece in pieces {
        while let Some(block) = scanner.next_block(&mut piece)? {
            found.push(block.bytes().to_vec());
        }
        assert!(piece.is_empty());
    }
    Ok(found)
}

fn each_block(blocks: &[Vec<u8>], mut read: impl FnMut(Block<'_>)) {
    let mut scanner = Scanner::new(usize::MAX);
    // The first line of a stream may begin with a byte order mark, and the blocks are within one.
    assert_eq!(scanner.next_block(&mut &b"\n"[..]), Ok(None));
    for bytes in blocks {
        let mut input = &bytes[..];
        let block = scanner.next_block(&mut input).expect("no limit");
        let block = block.expect("what was a block is one again");
        assert_eq!((block.bytes(), input), (&bytes[..], &b""[..]));
        read(block);
    }
}

fn blocks_are_those_of_the_standard(bytes: &[u8], blocks: &[Vec<u8>]) {
    let expected = parse(bytes);
    let (mut last_id, mut ids) = (String::new(), Vec::new());
    each_block(blocks, |block| {
        if let Some(id) = block.id() {
            last_id = lossy(id);
        }
        ids.extend(is_event(block.bytes()).then(|| last_id.clone()));
    });
    assert_eq!(last_id, expected.last_id);
    assert!(ids.iter().eq(expected.events.iter().map(|event| &event.id)));
    // A leading line end keeps a byte order mark within the stream.
    let passed_on = [b"\n", &blocks.concat()[..]].concat();
    assert_eq!(parse(&passed_on), expected);
}

fn ids_are_replaced(blocks: &[Vec<u8>]) {
    let (mut numbered, mut without) = (b"\n".to_vec(), b"\n".to_vec());
    let mut count = 0;
    each_block(blocks, |block| {
        block.write(&mut without, None);
        let number: Option<&dyn std::fmt::Display> = match is_event(block.bytes()) {
            true => Some(&count),
            false => None,
        };
        block.write(&mut numbered, number);
        count += usize::from(is_event(block.bytes()));
    });
    let events = parse(&[b"\n", &blocks.concat()[..]].concat()).events;
    for (out, id) in [
        (&numbered, usize::to_string as fn(&usize) -> String),
        (&without, |_| String::new()),
    ] {
        let expected = events.iter().enumerate().map(|(at, event)| Event {
            id: id(&at),
            ..event.clone()
        });
        assert_eq!(parse(out).events, expected.collect::<Vec<_>>());
    }
}

/// The text up to the first colon is the id and the name of an event, all of it is its data.
fn events_survive(bytes: &[u8]) {
    let text = lossy(bytes);
    let name = text.split(':').next().unwrap_or_default();
    let mut out = Vec::new();
    encode(&mut out, Some(&name), name, bytes);
    let name = match name.contains(['\r', '\n', '\0']) {
        true => "",
        false => name,
    };
    let event = Event {
        id: name.to_owned(),
        name: name.to_owned(),
        data: text.replace("\r\n", "\n").replace('\r', "\n"),
    };
    assert_eq!(parse(&out).events, [event]);
}

/// Whether a block is an event. It is within a stream, at whose start a byte order mark would be.
fn is_event(block: &[u8]) -> bool {
    let events = parse(&[b"\n", block].concat()).events;
    assert!(events.len() <= 1);
    !events.is_empty()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the standard says, step by step, about a stream that has ended (WHATWG HTML, 9.2.6). Unlike there, an unnamed
/// event has no name, and a time to reconnect is set by a complete block.
fn parse(bytes: &[u8]) -> Stream {
    let text = lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<_> = text.split('\n').collect();
    lines.pop();
    let mut stream = Stream::default();
    let (mut data, mut name, mut id) = (String::new(), String::new(), String::new());
    let mut retry = None;
    for line in lines {
        if line.is_empty() {
            stream.last_id.clone_from(&id);
            stream.retry = retry;
            if let Some(data) = data.strip_suffix('\n') {
                stream.events.push(Event {
                    id: id.clone(),
                    name: name.clone(),
                    data: data.to_owned(),
                });
            }
            (data, name) = (String::new(), String::new());
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data += &format!("{value}\n"),
            "id" if !value.contains('\0') => value.clone_into(&mut id),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                retry = value.parse().ok().or(retry);
            }
            _ => {}
        }
    }
    stream
}
