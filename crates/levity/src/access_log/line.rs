//! The text of one line: Apache's combined format with timings after it, or one JSON object.
//!
//! Formatting allocates nothing once the block has its size. Bytes that came from a client are
//! escaped so that each line holds exactly one newline, and so that no byte is lost:
//!
//! - combined: `\"`, `\\`, and `\xHH` for every control and non-ASCII byte, as nginx writes them;
//! - JSON: well-formed UTF-8 stays as it is. In the decoded string a backslash is doubled and a byte
//!   that is not UTF-8 is the four characters `\xHH`, so that undoing these two gives the bytes back.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::chunks::Chunks;
use crate::steps::Times;

/// Where the bytes of a response came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From nowhere else: an error, a redirect, a listing.
    None,
    /// From the server's own cache of small bodies.
    Memory,
    /// From the page cache, read by the loop without waiting.
    Cached,
    /// From the disk, through an engine; also when only one chunk of many was.
    Disk,
    /// From an application.
    Upstream,
}

impl Source {
    /// Every source, in the order of the metric.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Memory,
        Self::Cached,
        Self::Disk,
        Self::Upstream,
    ];

    /// The word in the log and on the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Memory => "memory",
            Self::Cached => "cached",
            Self::Disk => "disk",
            Self::Upstream => "upstream",
        }
    }
}

/// How a request, or a connection, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Complete,
    /// The client went away first.
    ClientAbort,
    /// A time limit passed.
    Timeout,
    /// The server could not finish.
    Error,
}

impl End {
    /// Every end, in the order of the metric.
    pub const ALL: [Self; 4] = [
        Self::Complete,
        Self::ClientAbort,
        Self::Timeout,
        Self::Error,
    ];

    /// The word in the log and on the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientAbort => "client_abort",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

/// What is known of a finished request. An empty slice means that the client sent no such thing.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// The client; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Who has connected, `None` over a Unix socket: the client itself, or a proxy.
    pub via: Option<IpAddr>,
    /// When the first byte of the request came.
    pub arrived: SystemTime,
    /// The host asked for.
    pub host: &'a [u8],
    /// The method; empty when the request line could not be read.
    pub method: &'a [u8],
    /// The request target as sent.
    pub target: &'a [u8],
    /// Such as `HTTP/1.1`.
    pub version: &'a str,
    /// The status sent.
    pub status: u16,
    /// Bytes of body sent.
    pub bytes: u64,
    /// From the first byte of the request to the last of the response.
    pub duration: Duration,
    /// From the first byte of the request to the first of the response.
    pub ttfb: Duration,
    /// Time in which the request waited for an engine.
    pub io_wait: Duration,
    /// Where the time went.
    pub timing: Timing<'a>,
    /// Where the body came from.
    pub source: Source,
    /// How it ended.
    pub end: End,
    /// The `Referer` field.
    pub referer: &'a [u8],
    /// The `User-Agent` field.
    pub user_agent: &'a [u8],
    /// The upstream that was asked; none when none was.
    pub visited: Option<Visited<'a>>,
}

/// What a request has met with at an upstream.
#[derive(Debug, Clone, Copy)]
pub struct Visited<'a> {
    /// The name of the upstream.
    pub upstream: &'a str,
    /// The address that was asked last; none when there was no place at any.
    pub backend: Option<&'a str>,
    /// How often a backend was asked.
    pub attempts: u32,
    /// The connection of the last attempt had carried a request before.
    pub is_reused: bool,
    /// Waiting for a place at a backend, of all attempts.
    pub queue: Duration,
    /// Making the connection of the last attempt, where one was made.
    pub connect: Option<Duration>,
    /// From the beginning of the last attempt to the head of the answer.
    pub first_byte: Option<Duration>,
    /// Which side failed, and the error type of RFC 9209.
    pub failure: Option<(&'a str, &'a str)>,
}

/// Where the time of a request went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timing<'a> {
    /// Of each step.
    pub steps: Times,
    /// Trips made to the disk.
    pub trips: u32,
    /// Their time before the engine took them up, where it answered.
    pub queue: Duration,
    /// Their time in the engine.
    pub read: Duration,
    /// Giving bytes to the client, which includes waiting for it.
    pub write: Duration,
    /// The engine that was asked; none when no trip was made.
    pub engine: Option<&'a str>,
    /// What became of each chunk, where that is noted.
    pub chunks: Option<&'a Chunks>,
}

/// How a line is written: `log.format` and `log.timing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache's combined format, then `bytes= dur= ttfb= io_wait= src= end=`; and behind these, where
    /// an upstream was asked, `up= up_ttfb=`.
    Combined,
    /// One JSON object per line.
    Json {
        /// With the time of each step, and the chunks that were noted.
        timing: bool,
    },
}

/// Writes lines of one format; remembers the text of the current second.
#[derive(Debug)]
pub(super) struct Formatter {
    format: Format,
    second: Option<u64>,
    stamp: Vec<u8>,
}

impl Formatter {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            second: None,
            stamp: Vec::with_capacity(32),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn line(&mut self, out: &mut Vec<u8>, record: &Record) {
        let arrived = record
            .arrived
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.stamp(arrived.as_secs());
        match self.format {
            Format::Combined => self.combined(out, record),
            Format::Json { timing } => {
                self.json(out, record, arrived.subsec_micros());
                if timing {
                    json_timing(out, &record.timing);
                }
                out.extend_from_slice(b"}\n");
            }
        }
    }

    fn stamp(&mut self, second: u64) {
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        self.stamp.clear();
        let date = Date::from_unix(second);
        match self.format {
            Format::Combined => date.apache(&mut self.stamp),
            Format::Json { .. } => date.iso(&mut self.stamp),
        }
    }

    fn combined(&self, out: &mut Vec<u8>, record: &Record) {
        peer(out, record.peer);
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&self.stamp);
        out.extend_from_slice(b"] \"");
        request_line(out, record);
        out.extend_from_slice(b"\" ");
        decimal(out, record.status.into());
        out.push(b' ');
        // Apache's %b: a dash where nothing was sent.
        if record.bytes == 0 {
            out.push(b'-')
        } else {
            decimal(out, record.bytes)
        }
        quoted_or_dash(out, record.referer);
        quoted_or_dash(out, record.user_agent);
        timings(out, record);
        out.push(b'\n');
    }

    fn json(&self, out: &mut Vec<u8>, record: &Record, micros: u32) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&self.stamp);
        out.push(b'.');
        six_digits(out, micros);
        out.extend_from_slice(b"Z\",\"peer\":");
        json_peer(out, record.peer);
        if record.via != record.peer {
            json_key(out, "via");
            json_peer(out, record.via);
        }
        json_text(out, "host", record.host);
        json_text(out, "method", record.method);
        json_text(out, "target", record.target);
        json_text(out, "version", record.version.as_bytes());
        json_number(out, "status", record.status.into());
        json_number(out, "bytes", record.bytes);
        json_seconds(out, "dur", record.duration);
        json_seconds(out, "ttfb", record.ttfb);
        json_seconds(out, "io_wait", record.io_wait);
        json_text(out, "src", record.source.label().as_bytes());
        json_text(out, "end", record.end.label().as_bytes());
        json_text(out, "referer", record.referer);
        json_text(out, "user_agent", record.user_agent);
        if let Some(visited) = &record.visited {
            json_visited(out, visited);
        }
    }
}

fn peer(out: &mut Vec<u8>, peer: Option<IpAddr>) {
    match peer.map(|address| address.to_canonical()) {
        None => out.push(b'-'),
        Some(IpAddr::V4(address)) => dotted(out, address.octets()),
        Some(IpAddr::V6(address)) => write!(out, "{address}").expect("a Vec takes every byte"),
    }
}

fn dotted(out: &mut Vec<u8>, octets: [u8; 4]) {
    for (place, octet) in octets.into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        decimal(out, octet.into());
    }
}

fn request_line(out: &mut Vec<u8>, record: &Record) {
    if record.method.is_empty() {
        return out.push(b'-');
    }
    escaped(out, record.method);
    out.push(b' ');
    escaped(out, record.target);
    out.push(b' ');
    escaped(out, record.version.as_bytes());
}

fn quoted_or_dash(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b" \"");
    if bytes.is_empty() {
        out.push(b'-')
    } else {
        escaped(out, bytes)
    }
    out.push(b'"');
}

fn timings(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(b" bytes=");
    decimal(out, record.bytes);
    out.extend_from_slice(b" dur=");
    seconds(out, record.duration);
    out.extend_from_slice(b" ttfb=");
    seconds(out, record.ttfb);
    out.extend_from_slice(b" io_wait=");
    seconds(out, record.io_wait);
    out.extend_from_slice(b" src=");
    out.extend_from_slice(record.source.label().as_bytes());
    out.extend_from_slice(b" end=");
    out.extend_from_slice(record.end.label().as_bytes());
    if let Some(visited) = &record.visited {
        out.extend_from_slice(b" up=");
        word(out, visited.upstream.as_bytes());
        out.push(b'/');
        word(out, visited.backend.unwrap_or("-").as_bytes());
        out.extend_from_slice(b" up_ttfb=");
        match visited.first_byte {
            Some(time) => seconds(out, time),
            None => out.push(b'-'),
        }
    }
}

/// As [`escaped`], and without a space: it ends what is not in quotes.
fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    for (place, part) in bytes.split(|&byte| byte == b' ').enumerate() {
        if place > 0 {
            escape(out, b' ');
        }
        escaped(out, part);
    }
}

fn json_visited(out: &mut Vec<u8>, visited: &Visited) {
    json_key(out, "upstream");
    out.push(b'{');
    // The first key has no comma before it.
    let start = out.len();
    json_text(out, "name", visited.upstream.as_bytes());
    out.remove(start);
    match visited.backend {
        Some(backend) => json_text(out, "backend", backend.as_bytes()),
        None => json_null(out, "backend"),
    }
    json_number(out, "attempts", visited.attempts.into());
    json_key(out, "reused");
    out.extend_from_slice(if visited.is_reused { b"true" } else { b"false" });
    json_seconds(out, "queue", visited.queue);
    for (key, time) in [("connect", visited.connect), ("ttfb", visited.first_byte)] {
        match time {
            Some(time) => json_seconds(out, key, time),
            None => json_null(out, key),
        }
    }
    if let Some((side, error)) = visited.failure {
        json_text(out, "failed", side.as_bytes());
        json_text(out, "error", error.as_bytes());
    }
    out.push(b'}');
}

fn json_timing(out: &mut Vec<u8>, timing: &Timing) {
    json_key(out, "timing_us");
    let steps = timing.steps.iter().map(|(step, time)| (step.label(), time));
    let inside = [
        ("queue", timing.queue),
        ("read", timing.read),
        ("write", timing.write),
    ];
    for (place, (name, time)) in steps.chain(inside).enumerate() {
        out.extend_from_slice(if place == 0 { b"{\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        microseconds(out, time);
    }
    out.push(b'}');
    json_number(out, "trips", timing.trips.into());
    match timing.engine {
        Some(engine) => json_text(out, "engine", engine.as_bytes()),
        None => json_null(out, "engine"),
    }
    if let Some(chunks) = timing.chunks {
        json_chunks(out, chunks);
    }
}

/// Each as `[queued, read start, read end, write start, write end, bytes]`.
fn json_chunks(out: &mut Vec<u8>, chunks: &Chunks) {
    json_key(out, "chunks_us");
    out.push(b'[');
    for (place, chunk) in chunks.noted().iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"[" } else { b",[" });
        moments(out, chunk.disk);
        moments(out, chunk.write);
        decimal(out, chunk.bytes);
        out.push(b']');
    }
    out.push(b']');
    json_number(out, "chunks_omitted", chunks.omitted());
}

fn moments<const COUNT: usize>(out: &mut Vec<u8>, moments: Option<[u64; COUNT]>) {
    for place in 0..COUNT {
        match moments {
            Some(moments) => decimal(out, moments[place]),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
    }
}

fn json_null(out: &mut Vec<u8>, key: &str) {
    json_key(out, key);
    out.extend_from_slice(b"null");
}

fn json_peer(out: &mut Vec<u8>, address: Option<IpAddr>) {
    if address.is_none() {
        return out.extend_from_slice(b"null");
    }
    out.push(b'"');
    peer(out, address);
    out.push(b'"');
}

fn json_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn json_number(out: &mut Vec<u8>, key: &str, value: u64) {
    json_key(out, key);
    decimal(out, value);
}

fn json_seconds(out: &mut Vec<u8>, key: &str, value: Duration) {
    json_key(out, key);
    seconds(out, value);
}

fn json_text(out: &mut Vec<u8>, key: &str, bytes: &[u8]) {
    json_key(out, key);
    out.push(b'"');
    // A run that needs nothing is both the common case and valid JSON.
    if all_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        json_escaped(out, bytes);
    }
    out.push(b'"');
}

fn json_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\\\\\"),
                0..=0x1f | 0x7f => {
                    out.extend_from_slice(b"\\u00");
                    hex(out, byte);
                }
                _ => out.push(byte),
            }
        }
        for &byte in chunk.invalid() {
            out.extend_from_slice(b"\\\\x");
            hex(out, byte);
        }
    }
}

/// Appends `bytes` as the combined format escapes them.
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    if all_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|&byte| !plain(byte)) {
        out.extend_from_slice(&rest[..end]);
        escape(out, rest[end]);
        rest = &rest[end + 1..];
    }
    out.extend_from_slice(rest);
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    out.push(b'\\');
    match byte {
        b'"' | b'\\' => out.push(byte),
        _ => {
            out.push(b'x');
            hex(out, byte);
        }
    }
}

/// Looks at every byte whatever it finds, which the compiler turns into vector instructions; `all`
/// stops at the first and takes bytes one by one.
fn all_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |all, &byte| all & plain(byte))
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_graphic() & (byte != b'"') & (byte != b'\\') | (byte == b' ')
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// `write!` costs several times as much, and a line holds nine numbers.
fn decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

fn seconds(out: &mut Vec<u8>, value: Duration) {
    decimal(out, value.as_secs());
    out.push(b'.');
    six_digits(out, value.subsec_micros());
}

fn microseconds(out: &mut Vec<u8>, value: Duration) {
    let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    decimal(out, ns / 1000);
    out.push(b'.');
    let rest = ns % 1000;
    out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
}

fn six_digits(out: &mut Vec<u8>, mut value: u32) {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits);
}

/// A moment in UTC, in whole seconds.
struct Date {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Date {
    /// Counts days in years that begin on the first of March, so that the leap day comes last
    /// (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
    fn from_unix(second: u64) -> Self {
        let days = second / 86_400 + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: second % 86_400,
        }
    }

    /// `20/Nov/2026:19:42:07 +0000`
    fn apache(&self, out: &mut Vec<u8>) {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let month = MONTHS[self.month as usize - 1];
        write!(out, "{:02}/{month}/{:04}:", self.day, self.year).expect("a Vec takes every byte");
        self.clock(out);
        out.extend_from_slice(b" +0000");
    }

    /// `2026-11-20T19:42:07`, to which the line adds microseconds.
    fn iso(&self, out: &mut Vec<u8>) {
        write!(out, "{:04}-{:02}-{:02}T", self.year, self.month, self.day)
            .expect("a Vec takes every byte");
        self.clock(out);
    }

    fn clock(&self, out: &mut Vec<u8>) {
        let (hour, minute, second) = (
            self.second_of_day / 3_600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        );
        write!(out, "{hour:02}:{minute:02}:{second:02}").expect("a Vec takes every byte");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record() -> Record<'static> {
        Record {
            peer: Some(IpAddr::from([192, 0, 2, 7])),
            via: Some(IpAddr::from([192, 0, 2, 7])),
            arrived: UNIX_EPOCH + Duration::from_micros(1_795_203_727_000_042),
            host: b"mirror.example.org",
            method: b"GET",
            target: b"/debian/pool/main.deb?x=1",
            version: "HTTP/1.1",
            status: 206,
            bytes: 1_048_576,
            duration: Duration::from_micros(12_345_678),
            ttfb: Duration::from_micros(123),
            io_wait: Duration::ZERO,
            timing: Timing::default(),
            source: Source::Memory,
            end: End::Complete,
            referer: b"",
            user_agent: b"curl/8.14.1",
            visited: None,
        }
    }

    fn line(format: Format, record: &Record) -> String {
        let mut out = Vec::new();
        Formatter::new(format).line(&mut out, record);
        String::from_utf8(out).expect("a line is UTF-8")
    }

    fn json(record: &Record) -> serde_json::Value {
        let format = Format::Json { timing: false };
        serde_json::from_str(&line(format, record)).expect("a line is JSON")
    }

    /// Undoes the escapes of a decoded JSON string, as the module's text says.
    fn unescape(text: &str) -> Vec<u8> {
        let bytes = text.as_bytes();
        let mut out = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at..] {
                [b'\\', b'\\', ..] => {
                    out.push(b'\\');
                    at += 2;
                }
                [b'\\', b'x', ..] => {
                    out.push(u8::from_str_radix(&text[at + 2..at + 4], 16).expect("two digits"));
                    at += 4;
                }
                _ => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        out
    }

    #[test]
    fn combined_line() {
        assert_eq!(
            line(Format::Combined, &record()),
            "192.0.2.7 - - [20/Nov/2026:19:42:07 +0000] \
             \"GET /debian/pool/main.deb?x=1 HTTP/1.1\" 206 1048576 \"-\" \"curl/8.14.1\" \
             bytes=1048576 dur=12.345678 ttfb=0.000123 io_wait=0.000000 src=memory end=complete\n"
        );
    }

    #[test]
    fn combined_line_of_an_unreadable_request() {
        let record = Record {
            peer: None,
            method: b"",
            target: b"",
            status: 400,
            bytes: 0,
            source: Source::None,
            end: End::Error,
            ..record()
        };
        let line = line(Format::Combined, &record);
        assert!(
            line.starts_with("- - - [20/Nov/2026:19:42:07 +0000] \"-\" 400 - \"-\""),
            "{line}"
        );
        assert!(line.ends_with(" src=- end=error\n"), "{line}");
    }

    #[test]
    fn combined_escapes_byte_by_byte() {
        let record = Record {
            user_agent: b"a\"b\\c\r\n\x00\x7f\xc3\xa9\xff~",
            ..record()
        };
        let line = line(Format::Combined, &record);
        assert!(
            line.contains(r#" "a\"b\\c\x0D\x0A\x00\x7F\xC3\xA9\xFF~" "#),
            "{line}"
        );
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn json_line() {
        let value = json(&record());
        assert_eq!(value["time"], "2026-11-20T19:42:07.000042Z");
        assert_eq!(value["peer"], "192.0.2.7");
        assert_eq!(value.get("via"), None);
        assert_eq!(value["status"], 206);
        assert_eq!(value["dur"], 12.345678);
        assert_eq!(value["ttfb"], 0.000123);
        assert_eq!(value["src"], "memory");
        assert_eq!(
            json(&Record {
                peer: None,
                ..record()
            })["peer"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn json_line_of_a_client_behind_a_proxy() {
        let via = |via| json(&Record { via, ..record() });
        let over_tcp = via(Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(over_tcp["peer"], "192.0.2.7");
        assert_eq!(over_tcp["via"], "192.0.2.1");
        assert_eq!(via(None).get("via"), Some(&serde_json::Value::Null));
    }

    fn visited() -> Visited<'static> {
        Visited {
            upstream: "app",
            backend: Some("127.0.0.1:3000"),
            attempts: 2,
            is_reused: false,
            queue: Duration::from_micros(7),
            connect: Some(Duration::from_micros(45)),
            first_byte: Some(Duration::from_millis(3)),
            failure: None,
        }
    }

    fn of_upstream(visited: Visited<'static>) -> Record<'static> {
        Record {
            source: Source::Upstream,
            visited: Some(visited),
            ..record()
        }
    }

    #[test]
    fn lines_of_requests_that_went_to_an_upstream() {
        let answered = of_upstream(visited());
        let line_of = line(Format::Combined, &answered);
        let end = " src=upstream end=complete up=app/127.0.0.1:3000 up_ttfb=0.003000\n";
        assert!(line_of.ends_with(end), "{line_of}");
        let line_of = line(Format::Json { timing: false }, &answered);
        let end = ",\"upstream\":{\"name\":\"app\",\"backend\":\"127.0.0.1:3000\",\"attempts\":2,\
                   \"reused\":false,\"queue\":0.000007,\"connect\":0.000045,\"ttfb\":0.003000}}\n";
        assert!(line_of.ends_with(end), "{line_of}");

        let failed = of_upstream(Visited {
            backend: None,
            connect: None,
            first_byte: None,
            failure: Some(("own", "connection_limit_reached")),
            ..visited()
        });
        let line_of = line(Format::Combined, &failed);
        assert!(line_of.ends_with(" up=app/- up_ttfb=-\n"), "{line_of}");
        let upstream = &json(&failed)["upstream"];
        assert_eq!(upstream["failed"], "own");
        assert_eq!(upstream["error"], "connection_limit_reached");
        assert!(upstream["backend"].is_null() && upstream["connect"].is_null());
        let spaced = of_upstream(Visited {
            backend: Some("unix:/a b"),
            ..visited()
        });
        let line_of = line(Format::Combined, &spaced);
        assert!(
            line_of.contains(" up=app/unix:/a\\x20b up_ttfb="),
            "{line_of}"
        );
    }

    #[test]
    fn json_line_with_timing() {
        use crate::chunks::Trip;
        use crate::stall::Step;
        let arrived = std::time::Instant::now();
        let at = |us| arrived + Duration::from_micros(us);
        let mut chunks = Chunks::new(arrived);
        let read = chunks.read(&Trip {
            asked: at(10),
            read_start: at(200),
            read_end: at(3_000),
            bytes: 512,
        });
        chunks.wrote(read, at(3_050), at(3_070), 500);
        chunks.wrote(None, at(3_100), at(3_200), 7);
        let mut steps = Times::default();
        steps.add(Step::Parse, Duration::from_nanos(2_045));
        steps.add(Step::Send, Duration::from_micros(3_200));
        let timing = Timing {
            steps,
            trips: 1,
            queue: Duration::from_micros(190),
            read: Duration::from_micros(2_800),
            write: Duration::from_micros(120),
            engine: Some("threads"),
            chunks: Some(&chunks),
        };
        let of = |timing| {
            let format = Format::Json { timing: true };
            let line = line(format, &Record { timing, ..record() });
            line.split_once("\"user_agent\"")
                .expect("before")
                .1
                .to_owned()
        };
        assert_eq!(
            of(timing),
            ":\"curl/8.14.1\",\"timing_us\":{\"parse\":2.045,\"send\":3200.000,\"queue\":190.000,\
             \"read\":2800.000,\"write\":120.000},\"trips\":1,\"engine\":\"threads\",\
             \"chunks_us\":[[10,200,3000,3050,3070,500],[null,null,null,3100,3200,7]],\"chunks_omitted\":0}\n"
        );
        assert_eq!(
            of(Timing::default()),
            ":\"curl/8.14.1\",\"timing_us\":{\"queue\":0.000,\"read\":0.000,\"write\":0.000},\
             \"trips\":0,\"engine\":null}\n"
        );
    }

    /// The first cells of the table beneath a heading of `docs/log.md`.
    fn documented(heading: &str) -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/log.md");
        let page = std::fs::read_to_string(path).expect("docs/log.md");
        let (_, section) = page
            .split_once(&format!("\n## {heading}\n"))
            .expect("the section");
        let section = section.split("\n## ").next().expect("some text");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| row.split('`').next().expect("a cell").to_owned())
            .collect()
    }

    /// The keys of an object on a line, in their order.
    fn keys(object: &str) -> Vec<String> {
        let mut depth = 0;
        let parts = object.split('"').collect::<Vec<_>>();
        let mut keys = Vec::new();
        for pair in parts.windows(2).step_by(2) {
            for byte in pair[0].bytes() {
                depth += i32::from(matches!(byte, b'{' | b'['));
                depth -= i32::from(matches!(byte, b'}' | b']'));
            }
            if depth == 1 && pair[0].ends_with(['{', ',']) {
                keys.push(pair[1].to_owned());
            }
        }
        keys
    }

    #[test]
    fn the_documentation_has_every_key_in_order() {
        let chunks = Chunks::new(std::time::Instant::now());
        let mut steps = Times::default();
        for step in crate::stall::Step::TIMED {
            steps.add(step, Duration::from_micros(1));
        }
        let timing = Timing {
            steps,
            chunks: Some(&chunks),
            ..Timing::default()
        };
        let format = Format::Json { timing: true };
        let by_proxy = Record {
            timing,
            via: None,
            ..of_upstream(Visited {
                failure: Some(("backend", "connection_refused")),
                ..visited()
            })
        };
        let line = line(format, &by_proxy);
        assert_eq!(keys(&line), documented("JSON"));
        let (_, upstream) = line.split_once("\"upstream\":{").expect("the key");
        let (upstream, _) = upstream.split_once('}').expect("its end");
        assert_eq!(keys(&format!("{{{upstream}")), documented("Upstreams"));
        let (_, timing) = line.split_once("\"timing_us\":").expect("the key");
        let (timing, _) = timing.split_once('}').expect("its end");
        assert_eq!(keys(timing), documented("Timing"));
    }

    #[test]
    fn json_holds_any_bytes_without_loss() {
        let every: Vec<u8> = (0..=255).collect();
        let samples: [&[u8]; 5] = [
            &every,
            b"\\x41",
            "caf\u{e9} \u{1f600}".as_bytes(),
            b"\xff\\xff",
            b"\xed\xa0\x80",
        ];
        for bytes in samples {
            let value = json(&Record {
                target: bytes,
                ..record()
            });
            let text = value["target"].as_str().expect("text");
            assert_eq!(unescape(text), bytes, "{text}");
        }
    }

    #[test]
    fn json_keeps_utf8_readable() {
        let record = Record {
            user_agent: "caf\u{e9}".as_bytes(),
            ..record()
        };
        assert_eq!(json(&record)["user_agent"], "caf\u{e9}");
    }

    #[test]
    fn mapped_ipv4_peers_are_written_as_ipv4() {
        let mapped = Record {
            peer: "::ffff:192.0.2.9".parse().ok(),
            ..record()
        };
        assert!(line(Format::Combined, &mapped).starts_with("192.0.2.9 "));
        let six = Record {
            peer: "2001:db8::1".parse().ok(),
            ..record()
        };
        assert!(line(Format::Combined, &six).starts_with("2001:db8::1 "));
    }

    #[test]
    fn dates_agree_with_httpdate() {
        let leap_days = (0..60).map(|year| 68_169_600 + year * 31_557_600);
        let moments = leap_days.chain([0, 951_782_399, 951_782_400, 4_107_542_399, 4_107_542_400]);
        for second in moments {
            let mut apache = Vec::new();
            Date::from_unix(second).apache(&mut apache);
            let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            let expected = format!(
                "{}/{}/{}:{} +0000",
                &http[5..7],
                &http[8..11],
                &http[12..16],
                &http[17..25]
            );
            assert_eq!(String::from_utf8_lossy(&apache), expected);
        }
    }

    #[test]
    fn the_stamp_follows_the_clock_in_both_directions() {
        let mut formatter = Formatter::new(Format::Combined);
        for (second, clock) in [(7, "00:00:07"), (8, "00:00:08"), (7, "00:00:07")] {
            let mut out = Vec::new();
            let arrived = UNIX_EPOCH + Duration::from_secs(second);
            formatter.line(
                &mut out,
                &Record {
                    arrived,
                    ..record()
                },
            );
            assert!(String::from_utf8_lossy(&out).contains(clock));
        }
    }
}
