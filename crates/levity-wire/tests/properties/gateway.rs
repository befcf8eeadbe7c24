//! Properties of any bytes between a gateway and an application.

use levity_wire::Reject;
use levity_wire::cgi::{
    ENVIRONMENT_BYTES_MAX, Environment, Request, ResponseHead, Script, Split, parse_response,
    split_script,
};
use levity_wire::fastcgi::{Event, ProtocolStatus, ResponseDecoder, STDIN_END, stdin, write_head};
use levity_wire::http1::{Limits, Version};
use levity_wire::scgi;

#[path = "../application/mod.rs"]
mod application;

use super::{SMALL, cuts};

const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const END: u8 = 3;

/// The headers of a response have the same meaning however the input is split and with either line
/// end, and an HTTP parser agrees with the forwarded result.
pub fn cgi_response(bytes: &[u8]) {
    for limits in [&Limits::default(), &SMALL] {
        let mut head = ResponseHead::default();
        let parsed = parse_response(bytes, &mut head, limits);
        if parsed == Ok(true) {
            response_is_sound(bytes, &head, limits);
            line_ends_do_not_matter(bytes, &head, limits);
            httparse_agrees(bytes, &head);
        }
        prefixes_agree(bytes, parsed, &head, limits);
    }
}

fn response_is_sound(bytes: &[u8], head: &ResponseHead, limits: &Limits) {
    assert!(head.bytes <= bytes.len() && head.bytes <= limits.head_bytes_max);
    assert!(head.headers.len() <= limits.headers_max);
    assert!((200..1000).contains(&head.status));
    let text = &bytes[..head.bytes];
    assert!(text.ends_with(b"\n\n") || text.ends_with(b"\n\r\n"));
    assert!(!text.contains(&0));
    for header in head.headers.iter() {
        assert!(!header.name.is_empty() && !header.value.is_empty());
    }
    let count = |name| head.headers.named(text, name).count();
    assert_eq!((count("status"), count("transfer-encoding")), (0, 0));
    let lengths = usize::from(head.content_length.is_some());
    assert_eq!(count("content-length"), lengths);
    assert!(count("location") <= 1 && count("content-type") <= 1);
}

fn fields<'a>(
    bytes: &'a [u8],
    head: &'a ResponseHead,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    head.headers
        .iter()
        .map(|header| (header.name.of(bytes), header.value.of(bytes)))
}

fn line_ends_do_not_matter(bytes: &[u8], head: &ResponseHead, limits: &Limits) {
    let text: Vec<u8> = bytes[..head.bytes]
        .iter()
        .copied()
        .filter(|&byte| byte != b'\r')
        .collect();
    let mut short = ResponseHead::default();
    assert_eq!(parse_response(&text, &mut short, limits), Ok(true));
    assert!(fields(&text, &short).eq(fields(bytes, head)));
    let meaning = |head: &ResponseHead| (head.status, head.content_length);
    assert_eq!(meaning(&short), meaning(head));
    assert_eq!(short.bytes, text.len());
}

/// Forwarded as HTTP/1.1, the headers have the same meaning.
fn httparse_agrees(bytes: &[u8], head: &ResponseHead) {
    let mut passed = format!("HTTP/1.1 {} \r\n", head.status).into_bytes();
    for (name, value) in fields(bytes, head) {
        passed.extend([name, b": ", value, b"\r\n"].concat());
    }
    passed.extend(b"\r\n");
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&passed);
    assert_eq!(parsed, Ok(httparse::Status::Complete(passed.len())));
    assert_eq!(response.code, Some(head.status));
    let theirs = response
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(theirs.eq(fields(bytes, head)));
}

/// A prefix needs more bytes until the headers are complete, and a rejection is final.
fn prefixes_agree(bytes: &[u8], whole: Result<bool, Reject>, head: &ResponseHead, limits: &Limits) {
    let mut again = ResponseHead::default();
    let mut refused = false;
    for cut in cuts(bytes.len()) {
        let parsed = parse_response(&bytes[..cut], &mut again, limits);
        match whole {
            Ok(true) if cut >= head.bytes => assert_eq!((parsed, &again), (Ok(true), head)),
            Ok(_) => assert_eq!(parsed, Ok(false)),
            Err(_) => assert_ne!(parsed, Ok(true)),
        }
        assert!(parsed.is_err() || !refused);
        refused = parsed.is_err();
    }
}

/// A response gives the same bytes in the same order, the same end and the same rejection however
/// the input is split; the output of an application arrives; and an application reads back a
/// request made from these bytes.
pub fn fastcgi(bytes: &[u8]) {
    let whole = response_in_pieces([bytes]);
    let data: usize = whole.0.iter().map(|piece| piece.1.len()).sum();
    assert!(data <= bytes.len());
    assert_eq!(response_in_pieces(bytes.chunks(1)), whole);
    for cut in cuts(bytes.len()) {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(response_in_pieces([start, rest]), whole, "cut at {cut}");
    }
    written_response_is_decoded(bytes);
    requests_are_read(bytes);
}

/// Runs of bytes of one stream; the end is a run of a type of its own. Also the bytes consumed, if
/// the end was found.
type Runs = (Vec<(u8, Vec<u8>)>, Result<Option<usize>, Reject>);

fn response_in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Runs {
    let mut decoder = ResponseDecoder::new(true);
    let (mut runs, mut consumed) = (Vec::new(), 0);
    for piece in pieces {
        match decoder.decode(piece, |event| add(&mut runs, event)) {
            Err(reject) => return (runs, Err(reject)),
            Ok(decoded) => {
                consumed += decoded.consumed;
                if decoded.done {
                    assert!(decoded.consumed <= piece.len());
                    return (runs, Ok(Some(consumed)));
                }
                assert_eq!(decoded.consumed, piece.len());
                assert!(!decoder.is_reusable());
            }
        }
    }
    (runs, Ok(None))
}

fn add(runs: &mut Vec<(u8, Vec<u8>)>, event: Event<'_>) {
    let (kind, bytes) = match event {
        Event::Stdout(bytes) => (STDOUT, bytes),
        Event::Stderr(bytes) => (STDERR, bytes),
        Event::End { .. } => (END, &b""[..]),
    };
    assert_eq!(kind == END, bytes.is_empty());
    match runs.last_mut() {
        Some((last, held)) if *last == kind => held.extend(bytes),
        _ => runs.push((kind, bytes.to_vec())),
    }
}

/// The bytes of both streams arrive, and the connection can be reused.
fn written_response_is_decoded(bytes: &[u8]) {
    let mut written = Vec::new();
    for (number, chunk) in bytes.chunks(13).enumerate() {
        written.extend(application::response_record(STDOUT, chunk, number as u8));
        written.extend(application::response_record(STDERR, &chunk[1..], 0));
    }
    written.extend(application::response_record(END, &[0; 8], 5));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut decoder = ResponseDecoder::new(true);
    let decoded = decoder.decode(&written, |event| match event {
        Event::Stdout(bytes) => stdout.extend_from_slice(bytes),
        Event::Stderr(bytes) => stderr.extend_from_slice(bytes),
        Event::End {
            app_status,
            protocol_status,
        } => assert_eq!((app_status, protocol_status), (0, ProtocolStatus::Complete)),
    });
    assert_eq!(decoded.map(|decoded| decoded.consumed), Ok(written.len()));
    assert!(decoder.is_reusable());
    assert_eq!(stdout, bytes);
    let logged: Vec<&[u8]> = bytes.chunks(13).map(|chunk| &chunk[1..]).collect();
    assert_eq!(stderr, logged.concat());
}

/// The lines are headers of a request, and all of the bytes its body.
fn requests_are_read(bytes: &[u8]) {
    let fields: Vec<(&[u8], &[u8])> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
        .collect();
    let mut environment = Environment::default();
    let filled = environment.fill(&request(), fields.iter().copied());
    if filled.is_ok() {
        environment_is_sound(&environment);
        fastcgi_request_is_read(&environment, bytes);
        scgi_request_is_read(&environment, bytes);
    } else {
        assert!(bytes.contains(&0) || bytes.len() > ENVIRONMENT_BYTES_MAX / 8);
    }
}

fn request() -> Request<'static> {
    Request {
        method: b"GET",
        path: b"/a.php/b",
        query: None,
        version: Version::Http11,
        host: Some(b"a"),
        server_name: b"a",
        server_port: 80,
        server_software: b"levity",
        server_addr: None,
        remote_addr: None,
        remote_port: None,
        https: false,
        content_length: Some(1),
        document_root: b"/srv",
        script: Script {
            name: b"a.php",
            info: Some(b"b"),
            is_file: true,
        },
    }
}

fn environment_is_sound(environment: &Environment) {
    let names: Vec<_> = environment.pairs().map(|(name, _)| name).collect();
    for (number, name) in names.iter().enumerate() {
        let is_plain =
            |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        assert!(name.iter().all(is_plain) && *name != b"HTTP_PROXY");
        assert!(!names[..number].contains(name));
    }
    let value = |known: &[u8]| {
        let mut pairs = environment.pairs();
        pairs.find(|(name, _)| *name == known).map(|pair| pair.1)
    };
    assert_eq!(value(b"HTTP_HOST"), Some(&b"a"[..]));
    assert_eq!(value(b"CONTENT_LENGTH"), Some(&b"1"[..]));
    assert_eq!(value(b"SCRIPT_FILENAME"), Some(&b"/srv/a.php"[..]));
    let bytes = environment
        .pairs()
        .map(|(name, value)| name.len() + value.len());
    assert!(bytes.sum::<usize>() <= ENVIRONMENT_BYTES_MAX);
}

fn fastcgi_request_is_read(environment: &Environment, body: &[u8]) {
    let mut written = Vec::new();
    write_head(environment, true, &mut written);
    for record in body.chunks(1000).flat_map(stdin) {
        written.extend([&record.header[..], record.content, record.padding].concat());
    }
    written.extend(STDIN_END);
    let received = application::receive(&written);
    let read = received
        .variables
        .iter()
        .map(|(name, value)| (&name[..], &value[..]));
    assert!(read.eq(environment.pairs()));
    assert!(received.keep_conn && received.body == body);
}

fn scgi_request_is_read(environment: &Environment, body: &[u8]) {
    let mut written = Vec::new();
    scgi::write_head(environment, body.len() as u64, &mut written);
    let colon = written.iter().position(|&byte| byte == b':');
    let (length, rest) = written.split_at(colon.expect("a netstring"));
    let strings = rest[1..].strip_suffix(b"\0,").expect("its end");
    assert_eq!(length, (strings.len() + 1).to_string().as_bytes());
    let strings: Vec<&[u8]> = strings.split(|&byte| byte == 0).collect();
    let (pairs, odd) = strings.as_chunks::<2>();
    assert!(odd.is_empty());
    assert_eq!(
        pairs[0],
        [&b"CONTENT_LENGTH"[..], body.len().to_string().as_bytes()]
    );
    assert_eq!(pairs[1], [&b"SCGI"[..], b"1"]);
    let read = pairs[2..].iter().map(|[name, value]| (*name, *value));
    let others = environment
        .pairs()
        .filter(|(name, _)| *name != b"CONTENT_LENGTH");
    assert!(read.eq(others));
}

/// The parts of a split path make it up again, and a script found by its suffix ends in it.
pub fn script(path: &[u8]) {
    let suffix = &b".php"[..];
    if let Some(found) = split_script(path, Split::Suffix(suffix)) {
        let last = found.name.rsplit(|&byte| byte == b'/').next();
        assert!(last.is_some_and(|last| last.len() > suffix.len() && last.ends_with(suffix)));
        assert_eq!(joined(&found), path);
        let slash = found.name.iter().rposition(|&byte| byte == b'/');
        let folder = &found.name[..slash.unwrap_or(0)];
        assert_eq!(split_script(folder, Split::Suffix(suffix)), None);
    }
    let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
    let found = split_script(path, Split::Mount(first)).expect("below its first segment");
    assert_eq!(found.name, first);
    if !first.is_empty() {
        assert_eq!(joined(&found), path);
    }
}

fn joined(script: &Script<'_>) -> Vec<u8> {
    match script.info {
        Some(info) => [script.name, info].join(&b'/'),
        None => script.name.to_vec(),
    }
}
