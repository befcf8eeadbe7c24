//! Tests of the whole, and runs for the tests of its parts.

use super::lines::{Chunk, Request, Timing};
use super::*;

/// Adds reads behind the end of `run`: `count` one after the other in each of `lanes` lanes, each taking
/// `read_us` after it waited for `queue_us`.
pub(super) fn add_reads(run: &mut Run, lanes: u64, count: u64, queue_us: u64, read_us: u64) {
    let start_us = run.start_us() + (run.length_s() * 1e6) as i64 + 1_000_000;
    let end = queue_us + read_us;
    for number in 0..count {
        for lane in 0..lanes {
            run.add(&Request {
                arrived_us: start_us + (number * read_us + lane) as i64 - queue_us as i64,
                duration_us: end as f64 + 20.0,
                io_wait_us: end as f64,
                timing: Some(Timing {
                    queue: queue_us as f64,
                    read: read_us as f64,
                    write: 10.0,
                    trips: 1,
                    ..Timing::default()
                }),
                chunks: vec![Chunk {
                    disk: Some([0, queue_us, end]),
                    write: Some([end, end + 10]),
                }],
                source: "disk".to_owned(),
                engine: "threads".to_owned(),
                ..Request::default()
            });
        }
    }
}

/// Standard output and standard error, or the error.
fn timing(log: &str, json: bool) -> Result<(String, String), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    std::fs::write(&file, log).unwrap();
    let options = Options {
        log: file,
        svg: Some(folder.path().join("svg")),
        json,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    run(&options, &mut out, &mut err)?;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ok((text(out), text(err)))
}

const LINE: &str = "{\"time\":\"2026-11-20T19:42:07.000042Z\",\"status\":200,\"bytes\":5,\"dur\":0.010000,\
    \"ttfb\":0.009,\"io_wait\":0.008,\"src\":\"disk\",\"timing_us\":{\"parse\":10.5,\"send\":9989.500,\"queue\":7000.000,\
    \"read\":900.000,\"write\":100.000},\"trips\":1,\"engine\":\"threads\"}\n";

#[test]
fn a_combined_log_is_refused_with_what_to_do() {
    let line = "192.0.2.7 - - [20/Nov/2026:19:42:07 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" bytes=5 dur=0.1\n";
    let error = timing(line, false).unwrap_err();
    assert!(
        error.contains("combined format") && error.contains("`format = \"json\"`"),
        "{error}"
    );
}

#[test]
fn an_empty_log_and_one_of_something_else_are_refused() {
    assert!(timing("", false).unwrap_err().ends_with("has no lines"));
    let error = timing("\n{\"a\":1}\n", false).unwrap_err();
    assert!(error.contains("line 2: no `time`"), "{error}");
}

#[test]
fn bad_lines_are_counted_and_named() {
    let log = format!("{LINE}nonsense\n{LINE}{{\"time\":\"yesterday\"}}\n");
    let (out, err) = timing(&log, false).unwrap();
    assert!(out.starts_with("2 requests"), "{out}");
    assert!(err.contains("2 lines were left out"), "{err}");
    assert!(
        err.contains("line 2: not JSON") && err.contains("line 4: no `time`"),
        "{err}"
    );
    let (out, err) = timing(&log, true).unwrap();
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&value["requests"], &value["bad_lines"]["count"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        (&value["bad_lines"]["first"][0]["line"], err.as_str()),
        (&2.into(), "")
    );
}

/// Numbers that no server writes are skipped or added up, without an overflow and without a long picture.
#[test]
fn absurd_numbers_do_no_harm() {
    let large = "1125899906842623";
    let mut log = LINE.replace("0.010000", "9e14");
    log += &LINE.replace("\"bytes\":5", "\"bytes\":18446744073709551615");
    log += &LINE.replace("\"trips\":1", "\"trips\":18446744073709551615");
    log += &LINE.replace("\"src\":\"disk\"", "\"src\":\"\\u202e\\u001b[2J\"");
    log += &LINE.replace(
        "\"src\":\"disk\"",
        &format!("\"src\":\"{}\"", "x".repeat(65)),
    );
    for second in 10..60 {
        let at = format!(":{second}.000042Z");
        let chunks = format!(
            "\"trips\":1,\"chunks_us\":[[0,{large},{large},{large},{large},{large}],\
            [0,{second},{large},{second}{second}{second},{large},1]]"
        );
        log += &LINE
            .replace(":07.000042Z", &at)
            .replace("\"trips\":1", &chunks);
    }
    let (out, err) = timing(&log, false).unwrap();
    assert!(out.starts_with("51 requests in"), "{out}");
    assert!(err.starts_with("4 lines were left out"), "{err}");
    assert!(!out.contains(['\u{1b}', '\u{202e}']), "{out}");
}

#[test]
fn the_wait_for_a_processor_is_shown() {
    let of = |percent: u8| {
        let key = format!("\"trips\":1,\"run_queue_wait_percent\":{percent}");
        LINE.replace("\"trips\":1", &key)
    };
    let log = format!("{LINE}{}{}", of(3), of(30));
    let (out, _) = timing(&log, false).unwrap();
    let line =
        "The event loops waited for a processor 16 % of the time, at most 30 % of one second.\n";
    assert!(out.contains(line), "{out}");
    let (out, _) = timing(&log, true).unwrap();
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let expected = serde_json::json!({ "mean": 16.5, "max": 30.0 });
    assert_eq!(value["run_queue_wait_percent"], expected);
    let (out, _) = timing(LINE, true).unwrap();
    assert!(out.contains("\"run_queue_wait_percent\":null"), "{out}");
}

#[test]
fn filters_have_their_share() {
    let key = "\"filter\":{\"queue\":0.004,\"time\":0.001,\"in\":9000,\"out\":5},\"timing_us\"";
    let log = LINE.replace("\"timing_us\"", key);
    let (out, _) = timing(&log, false).unwrap();
    for row in [
        "filter queue         1    4.00 ms  40.0 %",
        "filter run           1    1.00 ms  10.0 %",
    ] {
        assert!(out.contains(row), "{out}");
    }
    let (out, _) = timing(LINE, false).unwrap();
    assert!(!out.contains("filter run"), "{out}");
}

#[test]
fn a_log_without_timing_gives_what_it_has() {
    let (before, rest) = LINE.split_once(",\"timing_us\"").unwrap();
    assert!(rest.contains("trips"));
    let (out, _) = timing(&format!("{before}}}\n"), false).unwrap();
    assert!(
        out.contains("io_wait") && out.contains("`timing = \"chunk\"`"),
        "{out}"
    );
}
