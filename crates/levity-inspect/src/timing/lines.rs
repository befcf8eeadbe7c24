//! Reads requests from the lines of a JSON access log.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use jiff::civil::DateTime;
use jiff::tz::Offset;
use serde_json::Value;

/// The steps of a request in their order, by their keys in `timing_us`.
pub(super) const STEPS: [&str; 8] = [
    "accept", "parse", "route", "resolve", "upstream", "respond", "filter", "send",
];

/// The index of `upstream` in [`STEPS`].
pub(super) const UPSTREAM_STEP: usize = 4;

/// The server writes no longer line, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Times, in microseconds, and counts are below this: 35 years. Such a time can be added to a date.
const NUMBER_MAX: u64 = 1 << 50;

/// The server writes no longer name of an engine or a source, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Errors that are kept with their line number.
const ERRORS_KEPT_MAX: usize = 10;

/// One line of the log. Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Since 1970.
    pub(super) arrived_us: i64,
    pub(super) duration_us: f64,
    pub(super) ttfb_us: f64,
    pub(super) io_wait_us: f64,
    /// The part of `io_wait_us` after which the request gave up. 0 if it did not.
    pub(super) given_up_us: f64,
    pub(super) bytes: u64,
    /// `src`.
    pub(super) source: String,
    /// The disk engine; empty when none was used.
    pub(super) engine: String,
    /// `None` when no upstream was asked.
    pub(super) upstream: Option<Upstream>,
    /// `None` when no filter changed the body.
    pub(super) filter: Option<Filter>,
    /// How much of the second before its end the loop waited for a processor; `None` if the log does not say.
    pub(super) run_queue_wait_percent: Option<f64>,
    pub(super) timing: Option<Timing>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) chunks_omitted: u64,
}

/// The object `upstream`.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    pub(super) queue_us: f64,
    /// `None` without a response.
    pub(super) ttfb_us: Option<f64>,
}

/// The object `filter`.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Waiting for a thread that computes.
    pub(super) queue_us: f64,
    /// Computing.
    pub(super) time_us: f64,
}

/// The object `timing_us`, and `trips`.
#[derive(Debug, Default)]
pub(super) struct Timing {
    /// In the order of [`STEPS`].
    pub(super) steps: [Option<f64>; STEPS.len()],
    pub(super) queue: f64,
    pub(super) read: f64,
    pub(super) write: f64,
    pub(super) trips: u64,
}

/// One array of `chunks_us`. Moments are in microseconds from the arrival of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Queued, read start, read end; `None` when no engine was used.
    pub(super) disk: Option<[u64; 3]>,
    /// Write start, write end; `None` when nothing was written.
    pub(super) write: Option<[u64; 2]>,
}

/// Why a line was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineError {
    /// It is in the combined format.
    Combined,
    NotJson,
    TooLong,
    /// This key is absent or its value has a wrong type.
    Key(&'static str),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Combined => f.write_str("in the combined format"),
            Self::NotJson => f.write_str("not JSON"),
            Self::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            Self::Key(key) => write!(f, "no `{key}`, or not as the access log writes it"),
        }
    }
}

/// The lines that were skipped.
#[derive(Debug, Default)]
pub(super) struct SkippedLines {
    pub(super) count: u64,
    /// The first errors, with line numbers that start at 1.
    pub(super) errors: Vec<(u64, LineError)>,
}

impl SkippedLines {
    fn push(&mut self, line: u64, error: LineError) {
        self.count += 1;
        if self.errors.len() < ERRORS_KEPT_MAX {
            self.errors.push((line, error));
        }
    }

    /// For people; empty when no line was skipped.
    pub(super) fn warning(&self, log: &str) -> String {
        if self.count == 0 {
            return String::new();
        }
        let mut text = match self.count {
            1 => "1 line was left out:\n".to_owned(),
            count => format!("{count} lines were left out:\n"),
        };
        for (line, error) in &self.errors {
            text += &format!("{log} line {line}: {error}\n");
        }
        let more = self.count - self.errors.len() as u64;
        if more > 0 {
            text += &format!("and {more} more\n");
        }
        text
    }
}

/// Calls `take` with each request of the log. Empty lines are ignored. May block.
///
/// # Errors
/// Those of reading.
pub(super) fn read(
    log: &mut dyn BufRead,
    mut take: impl FnMut(Request),
) -> io::Result<SkippedLines> {
    let mut skipped = SkippedLines::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if log.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            log.skip_until(b'\n')?;
            skipped.push(number, LineError::TooLong);
        } else if !line.trim_ascii().is_empty() {
            match request(&line) {
                Ok(request) => take(request),
                Err(error) => skipped.push(number, error),
            }
        }
    }
    Ok(skipped)
}

fn request(line: &[u8]) -> Result<Request, LineError> {
    let value: Value = serde_json::from_slice(line).map_err(|_| not_json(line))?;
    let arrived_us = value["time"].as_str().and_then(unix_us);
    Ok(Request {
        arrived_us: arrived_us.ok_or(LineError::Key("time"))?,
        duration_us: seconds_in_us(&value, "dur")?,
        ttfb_us: seconds_in_us(&value, "ttfb")?,
        io_wait_us: seconds_in_us(&value, "io_wait")?,
        given_up_us: given_up(&value)?,
        bytes: count(&value["bytes"]).ok_or(LineError::Key("bytes"))?,
        source: name(&value["src"]).ok_or(LineError::Key("src"))?,
        engine: name(&value["engine"]).unwrap_or_default(),
        upstream: upstream(&value["upstream"])?,
        filter: filter(&value["filter"])?,
        run_queue_wait_percent: percent(&value, "run_queue_wait_percent")?,
        timing: timing(&value)?,
        chunks: chunks(&value["chunks_us"])?,
        chunks_omitted: count(&value["chunks_omitted"]).unwrap_or(0),
    })
}

fn not_json(line: &[u8]) -> LineError {
    let is_combined = line.windows(4).any(|part| part == b" - [");
    match is_combined && !line.starts_with(b"{") {
        true => LineError::Combined,
        false => LineError::NotJson,
    }
}

fn name(value: &Value) -> Option<String> {
    let name = value.as_str().filter(|name| name.len() <= NAME_BYTES_MAX);
    name.map(str::to_owned)
}

fn count(value: &Value) -> Option<u64> {
    value.as_u64().filter(|count| *count < NUMBER_MAX)
}

/// A time that is neither negative nor longer than any process lives.
fn time_us(us: f64) -> Option<f64> {
    (0.0..NUMBER_MAX as f64).contains(&us).then_some(us)
}

fn time(value: &Value) -> Option<f64> {
    time_us(value.as_f64()?)
}

fn seconds_in_us(value: &Value, key: &'static str) -> Result<f64, LineError> {
    let us = value[key].as_f64().map(|seconds| seconds * 1e6);
    us.and_then(time_us).ok_or(LineError::Key(key))
}

/// 0 when the key is absent.
fn given_up(value: &Value) -> Result<f64, LineError> {
    const KEY: &str = "io_given_up";
    match value[KEY].is_null() {
        true => Ok(0.0),
        false => seconds_in_us(value, KEY),
    }
}

/// `None` when the key is absent or null.
fn percent(value: &Value, key: &'static str) -> Result<Option<f64>, LineError> {
    if value[key].is_null() {
        return Ok(None);
    }
    let percent = value[key].as_f64();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(Some).ok_or(LineError::Key(key))
}

fn upstream(object: &Value) -> Result<Option<Upstream>, LineError> {
    if object.is_null() {
        return Ok(None);
    }
    let of = |key| seconds_in_us(object, key).map_err(|_| LineError::Key("upstream"));
    let ttfb_us = (!object["ttfb"].is_null()).then(|| of("ttfb"));
    Ok(Some(Upstream {
        queue_us: of("queue")?,
        ttfb_us: ttfb_us.transpose()?,
    }))
}

fn filter(object: &Value) -> Result<Option<Filter>, LineError> {
    if object.is_null() {
        return Ok(None);
    }
    let of = |key| seconds_in_us(object, key).map_err(|_| LineError::Key("filter"));
    Ok(Some(Filter {
        queue_us: of("queue")?,
        time_us: of("time")?,
    }))
}

fn timing(value: &Value) -> Result<Option<Timing>, LineError> {
    let object = &value["timing_us"];
    if object.is_null() {
        return Ok(None);
    }
    let of = |key| time(&object[key]).ok_or(LineError::Key("timing_us"));
    Ok(Some(Timing {
        steps: STEPS.map(|step| time(&object[step])),
        queue: of("queue")?,
        read: of("read")?,
        write: of("write")?,
        trips: count(&value["trips"]).ok_or(LineError::Key("trips"))?,
    }))
}

fn chunks(value: &Value) -> Result<Vec<Chunk>, LineError> {
    let chunks = value.as_array().map_or(&[][..], Vec::as_slice);
    let all = chunks.iter().map(chunk);
    all.collect::<Option<_>>()
        .ok_or(LineError::Key("chunks_us"))
}

/// From `[queued, read start, read end, write start, write end, bytes]`.
fn chunk(value: &Value) -> Option<Chunk> {
    let fields = value.as_array()?.as_slice();
    let [
        queued,
        read_start,
        read_end,
        write_start,
        write_end,
        bytes,
        ..,
    ] = fields
    else {
        return None;
    };
    count(bytes)?;
    Some(Chunk {
        disk: in_order([queued, read_start, read_end])?,
        write: in_order([write_start, write_end])?,
    })
}

/// `Some(None)` when a moment is missing, `None` when they are out of order.
fn in_order<const N: usize>(moments: [&Value; N]) -> Option<Option<[u64; N]>> {
    let mut us = [0; N];
    for (us, moment) in us.iter_mut().zip(moments) {
        match count(moment) {
            Some(moment) => *us = moment,
            None => return Some(None),
        }
    }
    us.is_sorted().then_some(Some(us))
}

/// Microseconds since 1970, from `2026-11-20T19:42:07.000042Z`.
fn unix_us(text: &str) -> Option<i64> {
    const BYTES: usize = "2026-11-20T19:42:07.000042Z".len();
    if text.len() != BYTES {
        return None;
    }
    let time = DateTime::strptime("%Y-%m-%dT%H:%M:%S%.fZ", text).ok()?;
    Some(Offset::UTC.to_timestamp(time).ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("2000-02-29T23:59:59.000000Z", 951_868_799),
            ("2026-11-20T19:42:07.000042Z", 1_795_203_727),
            ("2100-03-01T00:00:00.000000Z", 4_107_542_400),
        ] {
            let us = if text.contains("42Z") { 42 } else { 0 };
            assert_eq!(unix_us(text), Some(seconds * 1_000_000 + us), "{text}");
        }
        for text in [
            "",
            "2026-11-20",
            "2026-11-20T19:42:07.00004Z",
            "2026-11-20t19:42:07.000042Z",
        ] {
            assert_eq!(unix_us(text), None, "{text}");
        }
    }

    #[test]
    fn chunks_are_read_as_they_are_written() {
        let value = serde_json::json!([
            [1, 2, 3, 4, 5, 600],
            [null, null, null, 7, 9, 8],
            [1, 2, 3, null, null, 0]
        ]);
        let chunks = chunks(&value).unwrap();
        assert_eq!(chunks[0].disk, Some([1, 2, 3]));
        assert_eq!((chunks[1].disk, chunks[1].write), (None, Some([7, 9])));
        assert_eq!(chunks[2].write, None);
        for wrong in [
            serde_json::json!([1]),
            serde_json::json!([[1, 2, 3, 4, 5]]),
            serde_json::json!([[3, 2, 1, 4, 5, 0]]),
        ] {
            assert!(super::chunks(&wrong).is_err(), "{wrong}");
        }
    }

    /// A request whose line ends with `rest`.
    fn line(rest: &str) -> Result<Request, LineError> {
        let start = r#"{"time":"2026-11-20T19:42:07.000042Z","dur":0.5,"ttfb":0.25,"io_wait":0,"bytes":7,"src":"-""#;
        request(format!("{start}{rest}}}").as_bytes())
    }

    #[test]
    fn filters_are_read() {
        assert!(line("").expect("a line").filter.is_none());
        let of = |object: &str| line(&format!(r#","filter":{object}"#));
        let filtered = of(r#"{"queue":0.001,"time":0.2,"in":9,"out":3}"#).expect("a line");
        let filter = filtered.filter.expect("filters");
        assert_eq!((filter.queue_us, filter.time_us), (1_000.0, 200_000.0));
        for odd in ["3", r#"{"queue":-1,"time":0}"#, r#"{"queue":0}"#] {
            assert_eq!(of(odd).err(), Some(LineError::Key("filter")), "{odd}");
        }
    }

    #[test]
    fn upstreams_are_read() {
        assert!(line("").expect("a line").upstream.is_none());
        let of = |object: &str| line(&format!(r#","upstream":{object}"#));
        let answered = of(r#"{"name":"app","queue":0.001,"ttfb":0.2}"#).expect("a line");
        let answered = answered.upstream.expect("an upstream");
        assert_eq!(
            (answered.queue_us, answered.ttfb_us),
            (1_000.0, Some(200_000.0))
        );
        let failed = of(r#"{"name":"app","queue":0,"ttfb":null}"#).expect("a line");
        assert_eq!(failed.upstream.expect("an upstream").ttfb_us, None);
        for odd in [
            "3",
            r#"{"queue":-1,"ttfb":null}"#,
            r#"{"queue":0,"ttfb":"x"}"#,
        ] {
            assert_eq!(of(odd).err(), Some(LineError::Key("upstream")), "{odd}");
        }
    }

    #[test]
    fn a_share_is_a_percentage_or_unknown() {
        let of = |json: &str| {
            request(format!("{{\"time\":\"1970-01-01T00:00:01.000000Z\",\"dur\":0,\"ttfb\":0,\"io_wait\":0,\"bytes\":0,\"src\":\"-\"{json}}}").as_bytes())
        };
        for (json, percent) in [
            ("", None),
            (",\"run_queue_wait_percent\":null", None),
            (",\"run_queue_wait_percent\":12", Some(12.0)),
        ] {
            assert_eq!(of(json).expect(json).run_queue_wait_percent, percent);
        }
        for odd in ["-1", "101", "\"12\"", "1e300"] {
            let json = format!(",\"run_queue_wait_percent\":{odd}");
            let error = of(&json).expect_err(odd);
            assert_eq!(error, LineError::Key("run_queue_wait_percent"));
        }
    }

    #[test]
    fn an_endless_line_is_skipped_in_bounded_memory() {
        let mut log = vec![b'{'; LINE_BYTES_MAX as usize * 3];
        log.push(b'\n');
        log.extend_from_slice(b"also not\n");
        let skipped = read(&mut log.as_slice(), |_| panic!("a request")).unwrap();
        assert_eq!(
            skipped.errors,
            [(1, LineError::TooLong), (2, LineError::NotJson)]
        );
    }
}
