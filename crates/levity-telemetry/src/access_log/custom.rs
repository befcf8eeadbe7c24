//! A line in a format of the operator's own.
//!
//! A line is parsed from left to right, each field up to the text behind it. So a value must contain neither a newline,
//! nor the character that follows its field, nor, outside of quotes, a space: all of these are escaped.

use levity_config::{LogField, LogPart, LogTemplate, LogValue};
use levity_wire::decimal;

use super::record::{Record, Tls};
use super::stamp::Stamps;
use super::{escape, number};
use crate::request_id::RequestId;

/// Appends `record`.
pub(super) fn line(
    out: &mut Vec<u8>,
    record: &Record,
    template: &LogTemplate,
    stamps: &mut Stamps,
) {
    out.extend_from_slice(template.start.as_bytes());
    for part in template.parts.iter() {
        let mut place = Place {
            delimiters: delimiters(part),
            out: &mut *out,
        };
        match &part.value {
            LogValue::Field(field) => place.field(*field, record, stamps),
            LogValue::RequestHeader(name) => place.text_or_dash(record.headers.request(name)),
            LogValue::ResponseHeader(name) => place.text_or_dash(record.headers.response(name)),
        }
        out.extend_from_slice(part.after.as_bytes());
    }
    out.push(b'\n');
}

/// The bytes that a value must not contain, in addition to those that are always escaped. A letter or digit may follow a
/// field too, as the unit of a number, but divides nothing.
fn delimiters(part: &LogPart) -> [u8; 2] {
    let next = part.after.bytes().next();
    let next = next.filter(|byte| !byte.is_ascii_alphanumeric());
    let space = (!part.is_quoted).then_some(b' ');
    [next.unwrap_or(b'\n'), space.unwrap_or(b'\n')]
}

/// The place of one field in a line.
struct Place<'o> {
    out: &'o mut Vec<u8>,
    delimiters: [u8; 2],
}

impl Place<'_> {
    fn field(&mut self, field: LogField, record: &Record, stamps: &mut Stamps) {
        match field {
            LogField::Time => stamps.push_iso(self.out, record.arrived),
            LogField::TimeClf => self.out.extend_from_slice(stamps.clf(record.arrived)),
            LogField::TimeUnix => number::seconds(self.out, Stamps::since_epoch(record.arrived)),
            LogField::Peer => self.or_dash(record.peer, number::address),
            LogField::Via => self.or_dash(record.via, number::address),
            LogField::Id => self.id(record.id),
            LogField::User => self.text(record.user),
            LogField::Scheme => self.text(record.scheme.as_bytes()),
            LogField::Host => self.text(record.host),
            LogField::Request => self.request_line(record),
            LogField::Method => self.text(record.method),
            LogField::Target => self.text(record.target),
            LogField::Path => self.text(divided(record.target).0),
            LogField::Query => self.text(divided(record.target).1),
            LogField::Version => self.text(record.version.as_bytes()),
            LogField::TlsVersion => self.of_tls(record, |tls| tls.version),
            LogField::TlsCipher => self.of_tls(record, |tls| tls.cipher),
            LogField::TlsName => self.of_tls(record, |tls| tls.name),
            LogField::TlsResumed => self.of_tls(record, |tls| boolean(tls.is_resumed)),
            LogField::Status => decimal::push(self.out, record.status.into()),
            LogField::Bytes => decimal::push(self.out, record.bytes),
            LogField::BytesClf => {
                let bytes = Some(record.bytes).filter(|bytes| *bytes > 0);
                self.or_dash(bytes, decimal::push);
            }
            LogField::Duration => number::seconds(self.out, record.duration),
            LogField::Ttfb => number::seconds(self.out, record.ttfb),
            LogField::IoWait => number::seconds(self.out, record.trace.disk.waited),
            LogField::Source => self.text(record.source.label().as_bytes()),
            LogField::End => self.text(record.end.label().as_bytes()),
            LogField::Limited => self.limit(record, false),
            LogField::WouldLimit => self.limit(record, true),
            LogField::BodyBytes => decimal::push(self.out, record.body_bytes),
            LogField::Referer => self.text(record.referer),
            LogField::UserAgent => self.text(record.user_agent),
            LogField::Site => self.text(record.site.as_bytes()),
            LogField::Route => self.text(record.route.as_bytes()),
            LogField::FilterIn => self.of_filter(record, record.trace.filter.bytes_in),
            LogField::FilterOut => self.of_filter(record, record.trace.filter.bytes_out),
            of_upstream => self.of_upstream(of_upstream, record),
        }
    }

    fn of_tls<'a>(&mut self, record: &Record<'a>, text: fn(Tls<'a>) -> &'a str) {
        self.text(record.tls.map_or("", text).as_bytes());
    }

    fn of_upstream(&mut self, field: LogField, record: &Record) {
        let Some(upstream) = record.trace.upstream() else {
            return self.text(b"");
        };
        match field {
            LogField::UpstreamName => self.text(upstream.name().as_bytes()),
            LogField::UpstreamBackend => self.text(upstream.backend().unwrap_or("").as_bytes()),
            LogField::UpstreamAttempts => decimal::push(self.out, upstream.attempts.into()),
            LogField::UpstreamQueue => number::seconds(self.out, upstream.queue),
            LogField::UpstreamConnect => self.or_dash(upstream.connect, number::seconds),
            LogField::UpstreamTtfb => self.or_dash(upstream.first_byte, number::seconds),
            _ => self.text(upstream.failure.map_or("", |(_, error)| error).as_bytes()),
        }
    }

    /// The name of the limit that has hit the request; `is_report` is whether it only reports.
    fn limit(&mut self, record: &Record, is_report: bool) {
        let limited = record.limited.filter(|by| by.is_report == is_report);
        self.text(limited.map_or(b"", |by| by.limit.as_bytes()));
    }

    fn of_filter(&mut self, record: &Record, bytes: u64) {
        let has_filtered = record.trace.filter.jobs > 0;
        self.or_dash(has_filtered.then_some(bytes), decimal::push);
    }

    fn request_line(&mut self, record: &Record) {
        let parts = [record.method, record.target, record.version.as_bytes()];
        if record.method.is_empty() {
            return self.text(b"");
        }
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                escape::field(self.out, b" ", self.delimiters);
            }
            escape::field(self.out, part, self.delimiters);
        }
    }

    fn id(&mut self, id: Option<RequestId<'_>>) {
        match id {
            Some(id) => self.text(id.to_string().as_bytes()),
            None => self.text(b""),
        }
    }

    fn text_or_dash(&mut self, text: Option<&[u8]>) {
        self.text(text.unwrap_or_default());
    }

    /// Text of anyone; a dash for none.
    fn text(&mut self, text: &[u8]) {
        match text {
            b"" => self.out.push(b'-'),
            text => escape::field(self.out, text, self.delimiters),
        }
    }

    /// A value without a byte to escape.
    fn or_dash<T>(&mut self, value: Option<T>, push: fn(&mut Vec<u8>, T)) {
        match value {
            Some(value) => push(self.out, value),
            None => self.out.push(b'-'),
        }
    }
}

fn boolean(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

/// Path and query of a target.
fn divided(target: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{Format, tests::line_in};
    use super::super::record::samples::{Lines, TLS, of_upstream, record, with};
    use super::super::record::{End, LimitedBy, Record, Source};
    use super::*;
    use crate::trace::{Side, Trace};
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    /// The built-in format in this notation, and what it appends for upstreams.
    const COMBINED: &str = "{peer} - {user} [{time.clf}] \"{request}\" {status} {bytes.clf} \"{referer}\" \
        \"{user_agent}\" bytes={bytes} dur={dur} ttfb={ttfb} io_wait={io_wait} src={src} end={end}";
    const OF_UPSTREAM: &str =
        " up={upstream.name}/{upstream.backend} up_ttfb={upstream.ttfb} tries={upstream.attempts}";

    fn custom(format: &str) -> Format {
        Format::Custom(LogTemplate::parse(format).expect("a format"))
    }

    #[track_caller]
    fn assert_lines(record: &Record, lines: &[(&str, &str)]) {
        for (format, line) in lines {
            assert_eq!(
                line_in(custom(format), record),
                format!("{line}\n"),
                "{format}"
            );
        }
    }

    #[test]
    fn combined_can_be_spelt() {
        let every: Vec<u8> = (0..=255).collect();
        for text in [&b""[..], b"-", b"a \"b\" \\ c]", b"\r\n\xff", &every] {
            let ours = Record {
                user: text,
                target: text,
                referer: text,
                user_agent: text,
                ..record()
            };
            let unread = Record {
                method: b"",
                peer: None,
                bytes: 0,
                end: End::Error,
                ..ours.clone()
            };
            for record in [&ours, &unread] {
                let built_in = line_in(Format::Combined, record);
                assert_eq!(line_in(custom(COMBINED), record), built_in);
            }
        }
        let format = custom(&format!("{COMBINED}{OF_UPSTREAM}"));
        let record = of_upstream(|_| {});
        assert_eq!(line_in(format, &record), line_in(Format::Combined, &record));
    }

    /// Those of nginx and Caddy end with the User-Agent.
    #[test]
    fn the_combined_format_of_other_servers() {
        let nginx = "{peer} - {user} [{time.clf}] \"{request}\" {status} {bytes} \"{referer}\" \"{user_agent}\"";
        let line = "192.0.2.7 - - [20/Nov/2026:19:42:07 +0000] \"GET /debian/pool/main.deb?x=1 HTTP/1.1\" 206 \
                    1048576 \"-\" \"curl/8.14.1\"";
        assert_lines(&record(), &[(nginx, line)]);
    }

    #[test]
    fn every_field() {
        let mut trace = Trace::new(Instant::now(), None);
        super::super::record::samples::ask_upstream(&mut trace, "127.0.0.1:3000", |upstream| {
            upstream.failed(Side::Backend, "connection_refused");
        });
        trace.filtered(Duration::ZERO, Duration::ZERO, 900, 300);
        let headers = Lines(&[("x-a", b"1")], &[("etag", b"\"2\"")]);
        let record = Record {
            via: Some(IpAddr::from([192, 0, 2, 1])),
            user: b"ann",
            scheme: "https",
            site: "a.example",
            route: "/debian/*",
            referer: b"r",
            headers: &headers,
            source: Source::Disk,
            body_bytes: 77,
            tls: Some(TLS),
            limited: Some(LimitedBy {
                limit: "5/s per client",
                is_report: false,
            }),
            ..with(trace)
        };
        assert_lines(
            &record,
            &[
                (
                    "{time} {time.unix}",
                    "2026-11-20T19:42:07.000042Z 1795203727.000042",
                ),
                ("{via}|{id}", "192.0.2.1|0000000000000000000000000000002a"),
                ("{user}@{scheme}://{host}", "ann@https://mirror.example.org"),
                (
                    "{method} {path}?{query}#{target}",
                    "GET /debian/pool/main.deb?x=1#/debian/pool/main.deb?x=1",
                ),
                ("{version},{site},{route}", "HTTP/1.1,a.example,/debian/*"),
                (
                    "{tls.version}/{tls.cipher} {tls.name} {tls.resumed}",
                    "TLSv1.3/TLS_AES_128_GCM_SHA256 mirror.example.org true",
                ),
                ("{dur} {ttfb} {io_wait}", "12.345678 0.000123 0.000000"),
                (
                    "{src} {end} {referer} {user_agent}",
                    "disk complete r curl/8.14.1",
                ),
                (
                    "{upstream.name}\t{upstream.backend}\t{upstream.attempts}",
                    "app\t127.0.0.1:3000\t2",
                ),
                (
                    "{upstream.queue} {upstream.connect} {upstream.ttfb} {upstream.error}",
                    "0.000007 0.000045 0.003000 connection_refused",
                ),
                ("{filter.in}-{filter.out}", "900-300"),
                (
                    "{body_bytes} {limited} {would_limit}",
                    "77 5/s\\x20per\\x20client -",
                ),
                (
                    "{request.header.X-A} \"{response.header.ETag}\"",
                    "1 \"\\\"2\\\"\"",
                ),
                ("{request.header.x-b}", "-"),
            ],
        );
    }

    #[test]
    fn absent_values_are_dashes() {
        let record = Record {
            peer: None,
            id: None,
            bytes: 0,
            ..record()
        };
        for field in [
            "peer",
            "id",
            "user",
            "referer",
            "route",
            "bytes.clf",
            "limited",
            "would_limit",
            "filter.in",
            "tls.version",
            "tls.cipher",
            "tls.name",
            "tls.resumed",
            "upstream.name",
            "upstream.attempts",
            "upstream.ttfb",
        ] {
            assert_lines(&record, &[(&format!("<{{{field}}}>"), "<->")]);
        }
    }

    #[test]
    fn a_limit_that_only_reports() {
        let limited = Some(LimitedBy {
            limit: "few",
            is_report: true,
        });
        let record = Record {
            limited,
            ..record()
        };
        assert_lines(
            &record,
            &[("{limited} {would_limit} {body_bytes}", "- few 0")],
        );
    }

    /// A strict parser reads each field up to the text behind it, and gets what was sent.
    #[test]
    fn no_value_ends_its_field() {
        let hostile: Vec<u8> = (0..=255).chain(*b"\\x20\" |,;]\t").collect();
        let record = Record {
            user: &hostile,
            user_agent: &hostile,
            target: &hostile,
            ..record()
        };
        for (before, after) in [
            ("", " "),
            ("", "|"),
            ("\"", "\""),
            ("[", "]"),
            ("", "\t"),
            ("", ", "),
            ("\"", "|x\""),
            ("'", "'"),
            ("", ""),
        ] {
            let format = format!("{before}{{user}}{after}{{user_agent}}{after}{{request}}{after}");
            let line = line_in(custom(&format), &record);
            assert_eq!(line.matches('\n').count(), 1, "{format}");
            assert!(
                line.bytes()
                    .all(|byte| matches!(byte, b'\t' | b'\n' | b' '..=b'~'))
            );
            let mut rest = line.strip_prefix(before).expect("the start");
            for _ in 0..if after.is_empty() { 0 } else { 2 } {
                let (value, behind) = rest.split_at(end_of_field(rest, after));
                assert_eq!(unescaped(value), hostile, "{format}");
                rest = &behind[after.len()..];
            }
        }
    }

    /// Where a parser that knows `\"` and `\\` finds `after`.
    fn end_of_field(text: &str, after: &str) -> usize {
        let mut at = 0;
        while !text[at..].starts_with(after) {
            at += if text[at..].starts_with('\\') { 2 } else { 1 };
        }
        at
    }

    fn unescaped(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        while let [byte, behind @ ..] = rest {
            rest = behind;
            match (byte, rest) {
                (b'\\', [b'x', digits @ ..]) => {
                    let digits = std::str::from_utf8(&digits[..2]).expect("digits");
                    out.push(u8::from_str_radix(digits, 16).expect("two digits"));
                    rest = &rest[3..];
                }
                (b'\\', [escaped, behind @ ..]) => {
                    out.push(*escaped);
                    rest = behind;
                }
                _ => out.push(*byte),
            }
        }
        out
    }

    #[test]
    fn the_documentation_has_every_field() {
        const START: &str = "| field | meaning |\n|---|---|\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/log.md");
        let page = std::fs::read_to_string(path).expect("docs/log.md");
        let (before, table) = page.split_once(START).expect("the table");
        let end = table.find("\n\n").expect("its end") + 1;
        let (table, behind) = table.split_at(end);
        let current = LogTemplate::reference();
        if std::env::var_os("LEVITY_WRITE_DOCS").is_some() {
            let page = format!("{before}{START}{current}{behind}");
            return std::fs::write(path, page).expect("write docs/log.md");
        }
        assert_eq!(
            table, current,
            "docs/log.md is old: run LEVITY_WRITE_DOCS=1 cargo test -p levity-telemetry --lib documentation"
        );
    }
}
