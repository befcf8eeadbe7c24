//! A line as one JSON object.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use super::record::{LimitedBy, Record, Tls};
use super::stamp::Stamps;
use super::{escape, number};
use crate::request_id::RequestId;
use crate::trace::{Chunks, Filter, Trace, UpstreamTrace};
use levity_config::LogTiming;
use levity_wire::decimal;

/// Appends `record`.
pub(super) fn line(out: &mut Vec<u8>, record: &Record, stamps: &mut Stamps, timing: LogTiming) {
    out.extend_from_slice(b"{\"time\":\"");
    stamps.push_iso(out, record.arrived);
    out.extend_from_slice(b"\",\"peer\":");
    push_peer(out, record.peer);
    if record.via != record.peer {
        push_key(out, "via");
        push_peer(out, record.via);
    }
    push_id(out, record.id);
    if !record.user.is_empty() {
        push_text(out, "user", record.user);
    }
    push_text(out, "host", record.host);
    for (key, name) in [("site", record.site), ("route", record.route)] {
        if !name.is_empty() {
            push_text(out, key, name.as_bytes());
        }
    }
    push_text(out, "method", record.method);
    push_text(out, "target", record.target);
    push_text(out, "version", record.version.as_bytes());
    push_number(out, "status", record.status.into());
    push_number(out, "bytes", record.bytes);
    if record.body_bytes > 0 {
        push_number(out, "body_bytes", record.body_bytes);
    }
    times(out, record);
    push_text(out, "src", record.source.label().as_bytes());
    push_text(out, "end", record.end.label().as_bytes());
    if let Some(LimitedBy { limit, is_report }) = record.limited {
        let key = if is_report { "would_limit" } else { "limited" };
        push_text(out, key, limit.as_bytes());
    }
    push_text(out, "referer", record.referer);
    push_text(out, "user_agent", record.user_agent);
    if let Some(tls) = &record.tls {
        self::tls(out, tls);
    }
    if let Some(upstream) = record.trace.upstream() {
        self::upstream(out, upstream);
    }
    if record.trace.filter.jobs > 0 {
        filter(out, &record.trace.filter);
    }
    if timing != LogTiming::Off {
        timing_us(out, record.trace);
        match record.run_queue_wait_percent {
            Some(percent) => push_number(out, "run_queue_wait_percent", percent.into()),
            None => push_null(out, "run_queue_wait_percent"),
        }
        let chunks = record.trace.chunks.as_ref();
        if let Some(chunks) = chunks.filter(|_| timing == LogTiming::Chunk) {
            chunks_us(out, chunks);
        }
    }
    out.extend_from_slice(b"}\n");
}

fn tls(out: &mut Vec<u8>, tls: &Tls<'_>) {
    push_key(out, "tls");
    out.push(b'{');
    // The first key has no comma before it.
    let start = out.len();
    push_text(out, "version", tls.version.as_bytes());
    out.remove(start);
    push_text(out, "cipher", tls.cipher.as_bytes());
    push_text(out, "name", tls.name.as_bytes());
    push_boolean(out, "resumed", tls.is_resumed);
    out.push(b'}');
}

fn upstream(out: &mut Vec<u8>, upstream: &UpstreamTrace) {
    push_key(out, "upstream");
    out.push(b'{');
    // The first key has no comma before it.
    let start = out.len();
    push_text(out, "name", upstream.name().as_bytes());
    out.remove(start);
    match upstream.backend() {
        Some(backend) => push_text(out, "backend", backend.as_bytes()),
        None => push_null(out, "backend"),
    }
    push_number(out, "attempts", upstream.attempts.into());
    push_boolean(out, "reused", upstream.is_reused);
    push_seconds(out, "queue", upstream.queue);
    for (key, time) in [("connect", upstream.connect), ("ttfb", upstream.first_byte)] {
        match time {
            Some(time) => push_seconds(out, key, time),
            None => push_null(out, key),
        }
    }
    if let Some((side, error)) = upstream.failure {
        push_text(out, "failed", side.label().as_bytes());
        push_text(out, "error", error.as_bytes());
    }
    out.push(b'}');
}

fn filter(out: &mut Vec<u8>, filter: &Filter) {
    push_key(out, "filter");
    out.push(b'{');
    // The first key has no comma before it.
    let start = out.len();
    push_seconds(out, "queue", filter.queue);
    out.remove(start);
    push_seconds(out, "time", filter.time);
    push_number(out, "in", filter.bytes_in);
    push_number(out, "out", filter.bytes_out);
    out.push(b'}');
}

fn times(out: &mut Vec<u8>, record: &Record) {
    push_seconds(out, "dur", record.duration);
    push_seconds(out, "ttfb", record.ttfb);
    push_seconds(out, "io_wait", record.trace.disk.waited);
    let given_up = record.trace.disk.given_up();
    if !given_up.is_zero() {
        push_seconds(out, "io_given_up", given_up);
    }
}

fn timing_us(out: &mut Vec<u8>, trace: &Trace) {
    push_key(out, "timing_us");
    let (times, disk) = (trace.times(), &trace.disk);
    let steps = times.iter().map(|(step, time)| (step.label(), time));
    let inside = [
        ("queue", disk.queue),
        ("read", disk.read),
        ("write", trace.write),
    ];
    for (index, (name, time)) in steps.chain(inside).enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        number::microseconds(out, time);
    }
    out.push(b'}');
    push_number(out, "trips", disk.trips.into());
    match disk.engine {
        Some(engine) => push_text(out, "engine", engine.as_bytes()),
        None => push_null(out, "engine"),
    }
}

/// Each as `[queued, read start, read end, write start, write end, bytes]`.
fn chunks_us(out: &mut Vec<u8>, chunks: &Chunks) {
    push_key(out, "chunks_us");
    out.push(b'[');
    for (index, chunk) in chunks.kept.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        moments(out, chunk.disk);
        moments(out, chunk.write);
        decimal::push(out, chunk.bytes);
        out.push(b']');
    }
    out.push(b']');
    push_number(out, "chunks_omitted", chunks.omitted);
}

fn moments<const COUNT: usize>(out: &mut Vec<u8>, moments: Option<[u64; COUNT]>) {
    for index in 0..COUNT {
        match moments {
            Some(moments) => decimal::push(out, moments[index]),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
    }
}

fn push_id(out: &mut Vec<u8>, id: Option<RequestId<'_>>) {
    match id {
        Some(RequestId::Taken(id)) => push_text(out, "id", id.as_bytes()),
        Some(RequestId::Made(id)) => {
            // Writing to memory does not fail.
            let _ = write!(out, ",\"id\":\"{}\"", RequestId::Made(id));
        }
        None => push_null(out, "id"),
    }
}

fn push_null(out: &mut Vec<u8>, key: &str) {
    push_key(out, key);
    out.extend_from_slice(b"null");
}

fn push_peer(out: &mut Vec<u8>, address: Option<IpAddr>) {
    let Some(address) = address else {
        return out.extend_from_slice(b"null");
    };
    out.push(b'"');
    number::address(out, address);
    out.push(b'"');
}

fn push_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_boolean(out: &mut Vec<u8>, key: &str, value: bool) {
    push_key(out, key);
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

fn push_number(out: &mut Vec<u8>, key: &str, value: u64) {
    push_key(out, key);
    decimal::push(out, value);
}

fn push_seconds(out: &mut Vec<u8>, key: &str, value: Duration) {
    push_key(out, key);
    number::seconds(out, value);
}

fn push_text(out: &mut Vec<u8>, key: &str, bytes: &[u8]) {
    push_key(out, key);
    out.push(b'"');
    escape::json(out, bytes);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::line::{Format, tests::line_in};
    use super::super::record::samples::{TLS, ask_upstream, of_upstream, record, with};
    use super::*;
    use crate::stats::upstream::Register;
    use crate::step::Step;
    use crate::trace::{DiskTrip, Side};
    use std::time::Instant;

    fn line(record: &Record) -> String {
        line_in(
            Format::Json {
                timing: LogTiming::Chunk,
            },
            record,
        )
    }

    fn json(record: &Record) -> serde_json::Value {
        let format = Format::Json {
            timing: LogTiming::Off,
        };
        serde_json::from_str(&line_in(format, record)).expect("a line is JSON")
    }

    /// Undoes the escapes of a decoded JSON string, as [`escape::json`] says.
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
    fn plain_line() {
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
    fn line_of_a_client_behind_a_proxy() {
        let via = |via| json(&Record { via, ..record() });
        let over_tcp = via(Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(over_tcp["peer"], "192.0.2.7");
        assert_eq!(over_tcp["via"], "192.0.2.1");
        assert_eq!(via(None).get("via"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn line_of_a_request_that_met_a_limit() {
        for (is_report, key, other) in [
            (false, "limited", "would_limit"),
            (true, "would_limit", "limited"),
        ] {
            let limit = "5/s per client";
            let limited = Some(LimitedBy { limit, is_report });
            let value = json(&Record {
                limited,
                ..record()
            });
            assert_eq!(value[key], limit);
            assert_eq!(value.get(other), None);
        }
        assert_eq!(json(&record()).get("limited"), None);
        assert_eq!(json(&record()).get("body_bytes"), None);
        let body_bytes = 7;
        let upload = Record {
            body_bytes,
            ..record()
        };
        assert_eq!(json(&upload)["body_bytes"], 7);
    }

    #[test]
    fn line_of_a_request_over_tls() {
        let tls = |tls| json(&Record { tls, ..record() });
        assert_eq!(
            tls(Some(TLS))["tls"],
            serde_json::json!({
                "version": "TLSv1.3",
                "cipher": "TLS_AES_128_GCM_SHA256",
                "name": "mirror.example.org",
                "resumed": true,
            })
        );
        let unnamed = Tls { name: "", ..TLS };
        assert_eq!(tls(Some(unnamed))["tls"]["name"], "");
        assert_eq!(tls(None).get("tls"), None);
    }

    #[test]
    fn line_of_a_request_that_went_to_an_upstream() {
        let format = Format::Json {
            timing: LogTiming::Off,
        };
        let line = line_in(format, &of_upstream(|_| {}));
        let end = ",\"upstream\":{\"name\":\"app\",\"backend\":\"127.0.0.1:3000\",\"attempts\":2,\
                   \"reused\":false,\"queue\":0.000007,\"connect\":0.000045,\"ttfb\":0.003000}}\n";
        assert!(line.ends_with(end), "{line}");
        let mut trace = Trace::new(Instant::now(), None);
        let upstream = trace.ask_upstream(Register::default().of("app"));
        upstream.failed(Side::Own, "connection_limit_reached");
        let upstream = &json(&with(trace))["upstream"];
        assert_eq!(upstream["failed"], "own");
        assert_eq!(upstream["error"], "connection_limit_reached");
        assert!(upstream["backend"].is_null() && upstream["connect"].is_null());
    }

    #[test]
    fn line_of_a_filtered_response() {
        let format = Format::Json {
            timing: LogTiming::Off,
        };
        let us = Duration::from_micros;
        let mut trace = Trace::new(Instant::now(), None);
        trace.filtered(us(70), us(1_500), 65_536, 0);
        trace.filtered(us(30), us(500), 1_000, 9_000);
        let line = line_in(format, &with(trace));
        let end = ",\"filter\":{\"queue\":0.000100,\"time\":0.002000,\"in\":66536,\"out\":9000}}\n";
        assert!(line.ends_with(end), "{line}");
        assert_eq!(json(&record()).get("filter"), None);
    }

    #[test]
    fn line_with_timing() {
        let arrived = Instant::now();
        let at = |us| arrived + Duration::from_micros(us);
        let mut trace = Trace::new(arrived, None);
        trace.keep_chunks();
        trace.disk_waited("threads", Duration::from_micros(2_990));
        let trip = DiskTrip {
            requested: at(10),
            read_start: at(200),
            read_end: at(3_000),
            bytes: 512,
        };
        trace.disk_completed(&trip, at(10));
        trace.wrote(trace.last_read().chunk, at(3_050), at(3_070), 500);
        trace.wrote(None, at(3_100), at(3_200), 7);
        trace.end(arrived + Duration::from_nanos(2_045));
        let of = |trace| {
            let line = line(&with(trace));
            line.split_once("\"user_agent\"")
                .expect("before")
                .1
                .to_owned()
        };
        assert_eq!(
            of(trace),
            ":\"curl/8.14.1\",\"timing_us\":{\"parse\":2.045,\"queue\":190.000,\
             \"read\":2800.000,\"write\":120.000},\"trips\":1,\"engine\":\"threads\",\
             \"run_queue_wait_percent\":12,\"chunks_us\":[[10,200,3000,3050,3070,500],[null,null,null,3100,3200,7]],\"chunks_omitted\":0}\n"
        );
        assert_eq!(
            of(Trace::new(arrived, None)),
            ":\"curl/8.14.1\",\"timing_us\":{\"queue\":0.000,\"read\":0.000,\"write\":0.000},\
             \"trips\":0,\"engine\":null,\"run_queue_wait_percent\":12}\n"
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
        let mut trace = Trace::new(Instant::now(), Some(Duration::from_micros(1)));
        Step::TIMED.iter().for_each(|step| trace.enter(*step));
        trace.end(Instant::now());
        trace.keep_chunks();
        ask_upstream(&mut trace, "127.0.0.1:3000", |upstream| {
            upstream.failed(Side::Backend, "connection_refused");
        });
        trace.filtered(Duration::ZERO, Duration::ZERO, 1, 1);
        trace.disk_given_up(Duration::from_secs(3));
        let by_proxy = Record {
            run_queue_wait_percent: None,
            via: None,
            user: b"ann",
            body_bytes: 1,
            limited: Some(LimitedBy {
                limit: "a",
                is_report: false,
            }),
            route: "/a",
            tls: Some(TLS),
            ..with(trace)
        };
        let line = line(&by_proxy);
        // This one stands in place of the one before it.
        let mut all = documented("JSON");
        all.retain(|key| *key != "would_limit");
        assert_eq!(keys(&line), all);
        let (_, tls) = line.split_once("\"tls\":").expect("the key");
        let (tls, _) = tls.split_once('}').expect("its end");
        assert_eq!(keys(tls), documented("TLS"));
        let (_, upstream) = line.split_once("\"upstream\":{").expect("the key");
        let (upstream, _) = upstream.split_once('}').expect("its end");
        assert_eq!(keys(&format!("{{{upstream}")), documented("Upstreams"));
        let (_, filter) = line.split_once("\"filter\":").expect("the key");
        let (filter, _) = filter.split_once('}').expect("its end");
        assert_eq!(keys(filter), documented("Filters"));
        let (_, timing) = line.split_once("\"timing_us\":").expect("the key");
        let (timing, _) = timing.split_once('}').expect("its end");
        assert_eq!(keys(timing), documented("Timing"));
    }

    #[test]
    fn it_holds_any_bytes_without_loss() {
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
    fn it_keeps_utf8_readable() {
        let record = Record {
            user_agent: "caf\u{e9}".as_bytes(),
            ..record()
        };
        assert_eq!(json(&record)["user_agent"], "caf\u{e9}");
    }
}
