//! A line in Apache's combined format, with timings after it.

use super::record::Record;
use super::{escape, number};
use levity_wire::decimal;

/// Appends `record`, which arrived at `stamp`.
pub(super) fn line(out: &mut Vec<u8>, record: &Record, stamp: &[u8]) {
    match record.peer {
        Some(peer) => number::address(out, peer),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" - ");
    match record.user {
        b"" => out.push(b'-'),
        user => escape::word(out, user),
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(stamp);
    out.extend_from_slice(b"] \"");
    request_line(out, record);
    out.extend_from_slice(b"\" ");
    decimal::push(out, record.status.into());
    out.push(b' ');
    // Apache's %b: a dash where nothing was sent.
    if record.bytes == 0 {
        out.push(b'-')
    } else {
        decimal::push(out, record.bytes)
    }
    quoted_or_dash(out, record.referer);
    quoted_or_dash(out, record.user_agent);
    timings(out, record);
    out.push(b'\n');
}

fn request_line(out: &mut Vec<u8>, record: &Record) {
    if record.method.is_empty() {
        return out.push(b'-');
    }
    escape::combined(out, record.method);
    out.push(b' ');
    escape::combined(out, record.target);
    out.push(b' ');
    escape::combined(out, record.version.as_bytes());
}

fn quoted_or_dash(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b" \"");
    if bytes.is_empty() {
        out.push(b'-')
    } else {
        escape::combined(out, bytes)
    }
    out.push(b'"');
}

fn timings(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(b" bytes=");
    decimal::push(out, record.bytes);
    out.extend_from_slice(b" dur=");
    number::seconds(out, record.duration);
    out.extend_from_slice(b" ttfb=");
    number::seconds(out, record.ttfb);
    out.extend_from_slice(b" io_wait=");
    number::seconds(out, record.trace.disk.waited);
    out.extend_from_slice(b" src=");
    out.extend_from_slice(record.source.label().as_bytes());
    out.extend_from_slice(b" end=");
    out.extend_from_slice(record.end.label().as_bytes());
    if let Some(upstream) = record.trace.upstream() {
        out.extend_from_slice(b" up=");
        escape::word(out, upstream.name().as_bytes());
        out.push(b'/');
        escape::word(out, upstream.backend().unwrap_or("-").as_bytes());
        out.extend_from_slice(b" up_ttfb=");
        match upstream.first_byte {
            Some(time) => number::seconds(out, time),
            None => out.push(b'-'),
        }
        out.extend_from_slice(b" tries=");
        decimal::push(out, upstream.attempts.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{Format, tests::line_in};
    use super::super::record::samples::{ask_upstream, of_upstream, record, with};
    use super::super::record::{End, Record, Source};
    use crate::stats::upstream::Register;
    use crate::trace::Trace;
    use std::time::Instant;

    fn line(record: &Record) -> String {
        line_in(Format::Combined, record)
    }

    #[test]
    fn plain_line() {
        assert_eq!(
            line(&record()),
            "192.0.2.7 - - [20/Nov/2026:19:42:07 +0000] \
             \"GET /debian/pool/main.deb?x=1 HTTP/1.1\" 206 1048576 \"-\" \"curl/8.14.1\" \
             bytes=1048576 dur=12.345678 ttfb=0.000123 io_wait=0.000000 src=memory end=complete\n"
        );
    }

    /// Tools divide the line at spaces.
    #[test]
    fn the_name_of_a_user_is_one_word() {
        let record = Record {
            user: b"ann b\n[x]",
            ..record()
        };
        let line = line(&record);
        let expected = "192.0.2.7 - ann\\x20b\\x0A[x] [20/Nov/2026:19:42:07 +0000] \"GET ";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn line_of_an_unreadable_request() {
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
        let line = line(&record);
        assert!(
            line.starts_with("- - - [20/Nov/2026:19:42:07 +0000] \"-\" 400 - \"-\""),
            "{line}"
        );
        assert!(line.ends_with(" src=- end=error\n"), "{line}");
    }

    #[test]
    fn it_escapes_byte_by_byte() {
        let record = Record {
            user_agent: b"a\"b\\c\r\n\x00\x7f\xc3\xa9\xff~",
            ..record()
        };
        let line = line(&record);
        assert!(
            line.contains(r#" "a\"b\\c\x0D\x0A\x00\x7F\xC3\xA9\xFF~" "#),
            "{line}"
        );
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn line_of_a_request_that_went_to_an_upstream() {
        let end_of = |record: Record| {
            let line = line(&record);
            let (_, end) = line.split_once(" end=complete ").expect("the end");
            end.to_owned()
        };
        assert_eq!(
            end_of(of_upstream(|_| {})),
            "up=app/127.0.0.1:3000 up_ttfb=0.003000 tries=2\n"
        );
        let mut nobody = Trace::new(Instant::now(), None);
        nobody.ask_upstream(Register::default().of("app"));
        assert_eq!(end_of(with(nobody)), "up=app/- up_ttfb=- tries=0\n");
        let mut spaced = Trace::new(Instant::now(), None);
        ask_upstream(&mut spaced, "unix:/a b", |_| {});
        assert_eq!(
            end_of(with(spaced)),
            "up=app/unix:/a\\x20b up_ttfb=0.003000 tries=2\n"
        );
    }

    #[test]
    fn mapped_ipv4_peers_are_written_as_ipv4() {
        let mapped = Record {
            peer: "::ffff:192.0.2.9".parse().ok(),
            ..record()
        };
        assert!(line(&mapped).starts_with("192.0.2.9 "));
        let six = Record {
            peer: "2001:db8::1".parse().ok(),
            ..record()
        };
        assert!(line(&six).starts_with("2001:db8::1 "));
    }
}
