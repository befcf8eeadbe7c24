//! Requests of Durable Streams.

use levity_wire::Reject;
use levity_wire::durable_streams::{
    Control, DataEvent, Form, Headers, Lifetime, Offset, Query, Start, end_of_message, essence,
    format_time, messages, parse_time, push_body, push_control,
};
use serde_json::Value;

/// A query in the first line, then lines `name: value`, then an empty line and a body of JSON.
struct Input<'a> {
    query: &'a [u8],
    headers: Headers<'a>,
    body: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let (head, body) = split(bytes, b"\n\n");
        let (query, lines) = split(head, b"\n");
        let header = |name: &str| {
            let mut pairs = lines
                .split(|&byte| byte == b'\n')
                .map(|line| split(line, b": "));
            let found = pairs.find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
            found.map(|(_, value)| value)
        };
        Self {
            query,
            headers: Headers::new(header),
            body,
        }
    }

    fn check(&self) -> Result<(), Reject> {
        Query::parse(self.query)?;
        self.headers.lifetime()?;
        self.headers.sequence()?;
        self.headers.producer()?;
        self.headers.fork()?;
        let malformed = Reject {
            status: 400,
            reason: "",
        };
        let is_malformed = |value| essence(value).is_none();
        if self.headers.content_type.is_some_and(is_malformed) {
            return Err(malformed);
        }
        match self.body.is_empty() {
            true => Ok(()),
            false => messages(self.body).map(drop).map_err(|_| malformed),
        }
    }
}

fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> (&'a [u8], &'a [u8]) {
    let mut windows = bytes.windows(separator.len());
    match windows.position(|window| window == separator) {
        Some(index) => (&bytes[..index], &bytes[index + separator.len()..]),
        None => (bytes, &[]),
    }
}

/// The status of a request.
pub fn durable_streams_status(bytes: &[u8]) -> u16 {
    Input::read(bytes)
        .check()
        .map_or_else(|reject| reject.status, |()| 200)
}

/// What is accepted has one spelling; messages are the elements of the body; events contain their data and nothing else.
pub fn durable_streams(bytes: &[u8]) {
    let input = Input::read(bytes);
    if let Ok(Query {
        start: Some(Start::At(offset)),
        ..
    }) = Query::parse(input.query)
    {
        assert_eq!(offset.to_string().parse(), Ok(offset));
    }
    if let Ok(Some(Lifetime::Until(time))) = input.headers.lifetime() {
        let written = format_time(time);
        assert!(parse_time(written.as_bytes()).is_some_and(|read| read <= time));
    }
    for form in [Form::Text, Form::Bytes] {
        check_event(form, input.body);
    }
    if let Ok(kept) = messages(input.body) {
        check_messages(input.body, &kept);
        check_event(Form::Json, &kept);
    }
}

fn check_messages(body: &[u8], kept: &[u8]) {
    let mut wrapped = Vec::new();
    push_body(&mut wrapped, Form::Json, [kept]);
    // Numbers may be too large for the other parser.
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        let expected = match value {
            Value::Array(elements) => elements,
            value => vec![value],
        };
        let found: Vec<Value> = serde_json::from_slice(&wrapped).expect("JSON");
        assert_eq!(found, expected);
        let count = found.len() as u64;
        assert_eq!(end_of_message(kept, count), Some(kept.len()));
        assert_eq!(end_of_message(kept, count + 1), None);
    }
}

fn check_event(form: Form, kept: &[u8]) {
    let mut out = Vec::new();
    let mut event = DataEvent::begin(&mut out, form);
    let (start, rest) = kept.split_at(kept.len() / 2);
    event.push(&mut out, start);
    event.push(&mut out, rest);
    event.end(&mut out);
    let control = Control {
        next: Offset::ZERO,
        cursor: 1,
        is_up_to_date: true,
        is_closed: false,
    };
    push_control(&mut out, control);
    let is_cr = |byte: &u8| *byte == b'\r';
    assert!(!out.iter().any(is_cr));
    let lines: Vec<_> = out.split(|&byte| byte == b'\n').collect();
    let (data, rest) = lines.split_at(lines.iter().position(|line| line.is_empty()).expect("end"));
    assert_eq!(data[0], b"event: data");
    assert_eq!((rest.len(), rest[1]), (5, &b"event: control"[..]));
    let content = data[1..].iter().map(|line| {
        let content = line.strip_prefix(b"data:").expect("data");
        content.strip_prefix(b" ").unwrap_or(content)
    });
    if form == Form::Text {
        let read = content.collect::<Vec<_>>().join(&b'\n');
        let text = String::from_utf8_lossy(kept);
        let expected = text.replace("\r\n", "\n").replace('\r', "\n");
        assert_eq!(String::from_utf8_lossy(&read), expected);
    }
}
