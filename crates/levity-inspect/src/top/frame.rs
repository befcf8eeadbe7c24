//! One frame of `levity top`: lines of text from two objects of `/status.json`.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::units::{bytes, bytes_per_second, number, per_second, percent, text, time};
use crate::RUN_QUEUE_WAIT_PERCENT_MIN;
use crate::printable::is_printable;

/// Sites that are shown: those with the most requests.
const SITES_MAX: usize = 10;

/// Files that are shown of each list.
const FILES_MAX: usize = 10;

/// Characters of the reason why a backend is not up.
const REASON_CHARS_MAX: usize = 60;

/// One line of a frame.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) style: Style,
}

/// How a line looks where colour is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// A heading.
    Strong,
    /// A line that needs attention.
    Bad,
}

/// The figures `now`, with rates since `before` if the server has not been restarted in between. A figure that
/// is missing is `-`. Whatever the server sent, lines hold no control characters.
pub(super) fn frame(now: &Value, before: Option<&Value>, address: &str) -> Vec<Line> {
    let key = "start_time_seconds";
    let before = before.filter(|before| before[key] == now[key]);
    let view = View { now, before };
    let mut lines = view.summary(address);
    lines.extend(view.sites());
    lines.extend(view.upstreams());
    lines.extend(view.limits());
    lines.extend(view.mailboxes());
    lines.extend(view.devices());
    lines.extend(view.workers());
    lines.extend(view.files());
    for line in &mut lines {
        line.text.retain(is_printable);
    }
    lines
}

/// A line that needs attention.
pub(super) fn bad(text: String) -> Line {
    Line {
        text: text.replace(|c| !is_printable(c), " "),
        style: Style::Bad,
    }
}

fn plain(text: String) -> Line {
    let style = Style::Plain;
    Line { text, style }
}

fn style(is_bad: bool) -> Style {
    match is_bad {
        true => Style::Bad,
        false => Style::Plain,
    }
}

fn strong(text: String) -> Line {
    let style = Style::Strong;
    Line { text, style }
}

struct View<'v> {
    now: &'v Value,
    before: Option<&'v Value>,
}

impl View<'_> {
    fn summary(&self, address: &str) -> Vec<Line> {
        let Value::Object(_) = self.now else {
            return Vec::new();
        };
        let now = self.now;
        let (open, io) = (&now["connections"], &now["io"]);
        let title = format!(
            "levity {} at {address}, up {}, engine {}",
            text(&now["version"]),
            time(&now["uptime_seconds"]),
            text(&io["engine"]),
        );
        let connections = format!(
            "connections {} open, {} busy, {} idle, at most {}; {} accepted",
            text(&open["open"]),
            text(&open["busy"]),
            text(&open["idle"]),
            text(&open["max"]),
            per_second(self.rate("/connections/accepted")),
        );
        let requests = format!(
            "requests    {}, {} sent; 4xx {}, 5xx {}, {} in all",
            per_second(self.rate("/requests/finished")),
            bytes_per_second(self.rate("/sent_bytes")),
            per_second(self.rate("/requests/by_status/4xx")),
            per_second(self.rate("/requests/by_status/5xx")),
            text(&now["requests"]["finished"]),
        );
        let reads = format!(
            "reads       cached {}, async {}, sync {}; {} from the disk",
            per_second(self.rate_of_engines("cached_read")),
            per_second(self.rate_of_engines("async_read")),
            per_second(self.rate_of_engines("sync_read")),
            bytes_per_second(self.rate_of_engines("read_bytes")),
        );
        let (compute, pool) = (&now["compute"], &now["compute"]["response"]);
        let memory = |key| compute[key].as_f64().map_or("-".to_owned(), bytes);
        let compute = format!(
            "compute     {} jobs wait, threads {} busy; encoders {} of {}",
            text(&pool["queued"]),
            percent(&pool["busy_percent"]),
            memory("encoder_bytes"),
            memory("coder_bytes_max"),
        );
        let mut lines = vec![
            strong(title),
            plain(connections),
            plain(requests),
            plain(reads),
            plain(compute),
        ];
        lines.extend(self.losses());
        lines
    }

    /// Lost log lines and refused operations; empty without any.
    fn losses(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let log = &self.now["log"];
        let lost = number(&log["access_dropped"]) + number(&log["diagnostics_dropped"]);
        if lost > 0.0 {
            lines.push(bad(format!("{lost} log lines lost")));
        }
        let full = number(&self.now["io"]["full"]);
        if full > 0.0 {
            lines.push(bad(format!(
                "{full} operations refused: a queue or the memory was full"
            )));
        }
        lines
    }

    /// A row for each site, if there are several.
    fn sites(&self) -> Vec<Line> {
        let headings = ["site", "requests", "4xx", "5xx", "sent", "p50", "p99"];
        let mut sites = list(&self.now["sites"]).to_vec();
        sites.sort_by_key(|site| Reverse(site["finished"].as_u64()));
        sites.truncate(SITES_MAX);
        let row = |site: &Value| {
            let before = self
                .before
                .and_then(|before| member(&before["sites"], "site", &site["site"]));
            let rate = |pointer| {
                let at = |value: &Value| value.pointer(pointer)?.as_f64();
                self.per_second(at(site)?, at(before?)?)
            };
            [
                text(&site["site"]),
                per_second(rate("/finished")),
                per_second(rate("/by_status/4xx")),
                per_second(rate("/by_status/5xx")),
                bytes_per_second(rate("/sent_bytes")),
                time(&site["p50_seconds"]),
                time(&site["p99_seconds"]),
            ]
        };
        table(headings, 1, &sites, row, |_| false)
    }

    /// A row for each backend, a line for each queue.
    fn upstreams(&self) -> Vec<Line> {
        let headings = [
            "upstream", "backend", "state", "in use", "idle", "answers", "failed", "failures",
            "received",
        ];
        let all = list(&self.now["upstreams"]);
        let backends = all.iter().flat_map(|upstream| {
            let backends = list(&upstream["backends"]).iter();
            backends.map(move |backend| json!({ "upstream": upstream["upstream"], "of": backend }))
        });
        let backends: Vec<_> = backends.collect();
        let row = |row: &Value| {
            let (upstream, backend) = (&row["upstream"], &row["of"]);
            let rate = |key| self.rate_of_backend(upstream, backend, key);
            [
                text(upstream),
                text(&backend["backend"]),
                state(backend),
                format!(
                    "{}/{}",
                    text(&backend["in_use"]),
                    text(&backend["connections_max"])
                ),
                text(&backend["idle"]),
                per_second(rate("answered")),
                text(&backend["failed"]),
                per_second(rate("failed")),
                bytes_per_second(rate("received_bytes")),
            ]
        };
        let is_bad = |row: &Value| row["of"]["state"] != "up";
        let mut lines = table(headings, 3, &backends, row, is_bad);
        lines.extend(all.iter().filter_map(queue));
        lines
    }

    /// A row for each rate limit, and a line for the keys under which they count.
    fn limits(&self) -> Vec<Line> {
        let headings = [
            "limit",
            "allowed",
            "limited",
            "in all",
            "would limit",
            "in all",
        ];
        let row = |limit: &Value| {
            let before = self
                .before
                .and_then(|before| member(&before["limits"], "limit", &limit["limit"]));
            let rate =
                |key| self.per_second(limit[key].as_f64()?, before.map(|of| &of[key])?.as_f64()?);
            [
                text(&limit["limit"]),
                per_second(rate("allowed")),
                per_second(rate("limited")),
                text(&limit["limited"]),
                per_second(rate("would_limit")),
                text(&limit["would_limit"]),
            ]
        };
        let mut lines = table(headings, 1, list(&self.now["limits"]), row, |_| false);
        if !lines.is_empty() {
            let table = &self.now["limit_table"];
            let evictions = number(&table["evictions"]);
            let (keys, most) = (text(&table["keys"]), text(&table["keys_max"]));
            lines.push(Line {
                text: format!("{keys} of {most} keys in use, {evictions} forgotten too early"),
                style: style(evictions > 0.0),
            });
        }
        lines
    }

    /// A line for mailboxes, if there are any.
    fn mailboxes(&self) -> Option<Line> {
        let of = &self.now["mailboxes"];
        let (boxes, receivers) = (number(&of["boxes"]), number(&of["receivers"]));
        let is_down = of["store_state"] == "down";
        if boxes == 0.0 && receivers == 0.0 && !is_down {
            return None;
        }
        let before = self
            .before
            .map(|before| &before["mailboxes"]["messages"]["published"]);
        let published = &of["messages"]["published"];
        let rate = self.per_second(published.as_f64()?, before.and_then(Value::as_f64)?);
        let refused = of["refused"].as_object();
        let refused: f64 = refused
            .into_iter()
            .flat_map(|counts| counts.values())
            .map(number)
            .sum();
        let lost = number(&of["dropped"]["bound"]);
        let state = if is_down { "the store is down, " } else { "" };
        Some(Line {
            text: format!(
                "mailboxes: {state}{boxes} boxes, {receivers} receivers, {} messages/s, {lost} lost to bounds, {refused} refused",
                per_second(rate)
            ),
            style: style(refused > 0.0 || is_down),
        })
    }

    /// The rate of a figure of a backend.
    fn rate_of_backend(&self, upstream: &Value, backend: &Value, key: &str) -> Option<f64> {
        let before = member(&self.before?["upstreams"], "upstream", upstream)?;
        let same = member(&before["backends"], "backend", &backend["backend"])?;
        self.per_second(backend[key].as_f64()?, same[key].as_f64()?)
    }

    fn devices(&self) -> Vec<Line> {
        let headings = [
            "mount", "kind", "queued", "flying", "oldest", "p50", "p99", "in queue", "read",
        ];
        let row = |device: &Value| {
            let recent = &device["recent"];
            [
                text(&device["mount"]),
                text(&device["file_system"]),
                text(&device["queued"]),
                format!("{}/{}", text(&device["in_flight"]), text(&device["depth"])),
                match device["dead"] == true {
                    true => "dead".to_owned(),
                    false => time(&device["oldest_seconds"]),
                },
                time(&recent["service_p50_seconds"]),
                time(&recent["service_p99_seconds"]),
                time(&recent["queue_p99_seconds"]),
                bytes_per_second(recent["read_bytes_per_second"].as_f64()),
            ]
        };
        let is_bad =
            |device: &Value| device["dead"] == true || number(&device["oldest_seconds"]) > 1.0;
        table(headings, 2, list(&self.now["devices"]), row, is_bad)
    }

    fn workers(&self) -> Vec<Line> {
        let headings = [
            "worker", "open", "busy", "requests", "sent", "stalls", "longest", "hogs", "cpu wait",
        ];
        let row = |worker: &Value| {
            let of = |key| self.rate_of_worker(worker, key);
            [
                text(&worker["worker"]),
                text(&worker["open"]),
                text(&worker["busy"]),
                per_second(of("requests")),
                bytes_per_second(of("sent_bytes")),
                text(&worker["stall_count"]),
                time(&worker["stall_max_seconds"]),
                text(&worker["hog_count"]),
                percent(&worker["run_queue_wait_percent"]),
            ]
        };
        let is_bad = |worker: &Value| {
            self.rate_of_worker(worker, "stall_count") > Some(0.0)
                || number(&worker["run_queue_wait_percent"]) >= RUN_QUEUE_WAIT_PERCENT_MIN
        };
        table(headings, 1, list(&self.now["workers"]), row, is_bad)
    }

    fn files(&self) -> Vec<Line> {
        let files = &self.now["files"];
        let by_requests = list(&files["by_requests"]);
        let by_bytes = list(&files["by_bytes"]);
        if by_requests.is_empty() {
            return Vec::new();
        }
        let lately = time(&files["seconds"]);
        let requests = |file: &Value| text(&file["requests"]);
        let sent = |file: &Value| {
            let sent = file["sent_bytes"].as_f64();
            sent.map_or("-".to_owned(), bytes)
        };
        let mut lines = file_list("requests", &lately, by_requests, requests);
        lines.extend(file_list("sent", &lately, by_bytes, sent));
        lines
    }

    /// The rate of the figure at this JSON pointer.
    fn rate(&self, pointer: &str) -> Option<f64> {
        let now = self.now.pointer(pointer)?.as_f64()?;
        let before = self.before?.pointer(pointer)?.as_f64()?;
        self.per_second(now, before)
    }

    /// The rate of the sum of a figure over all engines.
    fn rate_of_engines(&self, key: &str) -> Option<f64> {
        let sum = |status: &Value| {
            let engines = list(&status["io"]["engines"]).iter();
            engines.map(|engine| number(&engine[key])).sum()
        };
        self.per_second(sum(self.now), sum(self.before?))
    }

    /// The rate of a figure of a worker.
    fn rate_of_worker(&self, worker: &Value, key: &str) -> Option<f64> {
        let same = member(&self.before?["workers"], "worker", &worker["worker"])?;
        self.per_second(worker[key].as_f64()?, same[key].as_f64()?)
    }

    fn per_second(&self, now: f64, before: f64) -> Option<f64> {
        let at = |status: &Value| status["time_seconds"].as_f64();
        let elapsed = at(self.now)? - at(self.before?)?;
        (elapsed > 0.0 && now >= before).then(|| (now - before) / elapsed)
    }
}

/// Headings and rows, each column as wide as its widest cell: the first `left` columns aligned to the left, the
/// others to the right. Empty without members.
fn table<const N: usize>(
    headings: [&str; N],
    left: usize,
    members: &[Value],
    row: impl Fn(&Value) -> [String; N],
    is_bad: impl Fn(&Value) -> bool,
) -> Vec<Line> {
    if members.is_empty() {
        return Vec::new();
    }
    let rows: Vec<_> = members.iter().map(row).collect();
    let len = |text: &str| text.chars().count();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| len(&row[column]));
        cells.fold(len(headings[column]), usize::max)
    });
    let aligned = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column < left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    let mut lines = vec![plain(String::new()), strong(aligned(headings))];
    lines.extend(rows.iter().zip(members).map(|(row, member)| Line {
        text: aligned(std::array::from_fn(|column| row[column].as_str())),
        style: style(is_bad(member)),
    }));
    lines
}

/// A heading, and the first files of a list with a figure of each.
fn file_list(
    heading: &str,
    lately: &str,
    files: &[Value],
    figure: impl Fn(&Value) -> String,
) -> Vec<Line> {
    let heading = format!("{heading:>8}  file, in the last {lately}");
    let mut lines = vec![plain(String::new()), strong(heading)];
    let row = |file| plain(format!("{:>8}  {}", figure(file), text(&file["file"])));
    lines.extend(files.iter().take(FILES_MAX).map(row));
    lines
}

/// The state of a backend, its flags, and the reason when it is not up.
fn state(backend: &Value) -> String {
    let mut state = match backend["state"].as_str() {
        Some("left_alone") => format!("ejected {}", time(&backend["left_alone_seconds"])),
        _ => text(&backend["state"]),
    };
    let share = &backend["share_percent"];
    if share.as_f64().is_some_and(|share| share < 100.0) {
        state += &format!(" {} %", text(share));
    }
    for flag in ["backup", "drain"] {
        if backend[flag] == true {
            state += &format!(" {flag}");
        }
    }
    if let Some(reason) = backend["reason"].as_str() {
        state += ": ";
        state.extend(reason.chars().take(REASON_CHARS_MAX));
    }
    state
}

/// The queue of an upstream; `None` when it is empty and has refused no request.
fn queue(upstream: &Value) -> Option<Line> {
    let refused = number(&upstream["queue_full"]) + number(&upstream["queue_timeouts"]);
    let waiting = number(&upstream["queue"]);
    (waiting + refused > 0.0).then(|| {
        let (name, most) = (text(&upstream["upstream"]), text(&upstream["queue_max"]));
        let line = format!(
            "{name}: {waiting} of {most} wait for a connection, {refused} were refused one"
        );
        Line {
            text: line,
            style: style(refused > 0.0),
        }
    })
}

/// The member of a list whose value of `key` is `name`.
fn member<'v>(members: &'v Value, key: &str, name: &Value) -> Option<&'v Value> {
    list(members).iter().find(|member| member[key] == *name)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(time: f64, requests: u64) -> Value {
        json!({
            "version": "9.9", "start_time_seconds": 5.0, "time_seconds": time, "uptime_seconds": 90.0,
            "connections": { "open": 3, "busy": 1, "idle": 2, "max": 100, "accepted": 7 },
            "requests": { "finished": requests, "by_status": { "4xx": 0, "5xx": 0 } },
            "sent_bytes": requests * 1024,
            "sites": [
                { "site": "a.example", "finished": 7, "by_status": { "4xx": 0, "5xx": 0 }, "sent_bytes": 0 },
                { "site": "default", "finished": requests, "by_status": { "4xx": requests / 2, "5xx": 0 },
                  "sent_bytes": requests * 1024, "p50_seconds": 0.000256, "p99_seconds": 0.016384 },
            ],
            "io": { "engine": "threads", "full": 0, "engines": [
                { "async_read": 5, "sync_read": 0, "cached_read": 9 * requests, "read_bytes": 0 },
                { "async_read": 5, "sync_read": 0, "cached_read": requests, "read_bytes": 0 },
            ] },
            "upstreams": [{ "upstream": "app", "queue": 2, "queue_max": 10, "queue_full": 0, "queue_timeouts": 0,
                "backends": [
                    { "backend": "10.0.0.1:80", "state": "up", "left_alone_seconds": null, "reason": null,
                      "share_percent": 40, "backup": false, "drain": true, "in_use": 3, "idle": 1,
                      "connections_max": 8, "answered": requests, "failed": 4, "received_bytes": requests * 2048 },
                    { "backend": "10.0.0.2:80", "state": "left_alone", "left_alone_seconds": 7.5, "reason": "refused",
                      "share_percent": 100, "backup": true, "drain": false, "in_use": 0, "idle": 0,
                      "connections_max": 8, "answered": 0, "failed": 9, "received_bytes": 0 },
                ] }],
            "limits": [{ "limit": "5/s per client", "allowed": requests, "limited": 7, "would_limit": 0 }],
            "limit_table": { "keys": 12, "keys_max": 4096, "evictions": 0 },
            "devices": [{ "device": "8:1", "mount": "/srv", "file_system": "ext4", "queued": 4,
                "in_flight": 16, "depth": 16, "oldest_seconds": 31.2,
                "recent": { "service_p50_seconds": 0.005, "service_p99_seconds": null,
                            "queue_p99_seconds": 0.0005, "read_bytes_per_second": 3e6 } }],
            "compute": { "encoder_bytes": 1536, "coder_bytes_max": 67_108_864,
                "response": { "queued": 3, "busy_percent": 40 } },
            "workers": [{ "worker": 0, "open": 3, "busy": 1, "requests": requests, "sent_bytes": 0,
                "stall_count": 0, "stall_max_seconds": 0.0, "hog_count": 0,
                "run_queue_wait_percent": 9 }],
            "files": { "seconds": 61.5,
                "by_requests": [{ "file": "h/a\u{1b}[2J\u{202e}", "requests": 12 }],
                "by_bytes": [{ "file": "h/b", "sent_bytes": 1536 }] },
            "log": { "access_dropped": 0, "diagnostics_dropped": 0 },
        })
    }

    fn text_of(lines: &[Line]) -> String {
        lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect()
    }

    #[test]
    fn rates_come_from_two_objects() {
        let lines = frame(&status(12.0, 300), Some(&status(10.0, 100)), "unix:s");
        let text = text_of(&lines);
        for part in [
            "levity 9.9 at unix:s, up 90 s, engine threads\n",
            "connections 3 open, 1 busy, 2 idle, at most 100; 0/s accepted\n",
            "requests    100/s, 100 KiB/s sent; 4xx 0/s, 5xx 0/s, 300 in all\n",
            "reads       cached 1000/s, async 0/s, sync 0/s; 0 B/s from the disk\n",
            "compute     3 jobs wait, threads 40 % busy; encoders 1.5 KiB of 64.0 MiB\n",
            "default       100/s  50/s  0/s  100 KiB/s  256 us  16 ms\n\
             a.example       0/s   0/s  0/s      0 B/s       -      -\n",
            "app       10.0.0.1:80  up 40 % drain                     3/8     1    100/s       4       0/s  200 KiB/s\n",
            "app       10.0.0.2:80  ejected 7.5 s backup: refused     0/8     0      0/s       9       0/s      0 B/s\n",
            "app: 2 of 10 wait for a connection, 0 were refused one\n",
            "/srv   ext4       4   16/16    31 s  5.0 ms    -    500 us  2.9 MiB/s\n",
            "limit           allowed  limited  in all  would limit  in all\n\
             5/s per client    100/s      0/s       7          0/s       0\n\
             12 of 4096 keys in use, 0 forgotten too early\n",
            "9 %\n",
            "      12  h/a[2J\n",
            " 1.5 KiB  h/b\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let of = |part: &str| {
            lines
                .iter()
                .find(|line| line.text.contains(part))
                .unwrap()
                .style
        };
        assert_eq!(
            (of("10.0.0.1:80"), of("10.0.0.2:80")),
            (Style::Plain, Style::Bad)
        );
        assert_eq!(
            (of("/srv"), of("worker"), of("h/a")),
            (Style::Bad, Style::Strong, Style::Plain)
        );
    }

    #[test]
    fn a_loop_that_waits_for_a_processor_is_shown() {
        for (percent, shown, style) in [
            (json!(9), "9 %", Style::Plain),
            (json!(10), "10 %", Style::Bad),
            (json!(null), "-", Style::Plain),
        ] {
            let mut now = status(10.0, 100);
            now["workers"][0]["run_queue_wait_percent"] = percent;
            let lines = frame(&now, None, "");
            let row = lines.iter().position(|line| line.text.contains("cpu wait"));
            let row = &lines[row.expect("headings") + 1];
            assert!(row.text.ends_with(&format!(" {shown}")), "{}", row.text);
            assert_eq!(row.style, style, "{}", row.text);
        }
    }

    #[test]
    fn keys_that_limits_forget_are_shown() {
        let mut now = status(10.0, 100);
        now["limit_table"]["evictions"] = json!(3);
        let lines = frame(&now, None, "");
        let keys = lines.iter().find(|line| line.text.contains("forgotten"));
        let keys = keys.expect("a line");
        assert!(
            keys.text.ends_with(" 3 forgotten too early"),
            "{}",
            keys.text
        );
        assert_eq!(keys.style, Style::Bad);
        now["limits"] = json!([]);
        let lines = frame(&now, None, "");
        assert!(!text_of(&lines).contains("forgotten"));
    }

    #[test]
    fn a_dead_device_is_shown() {
        let mut now = status(10.0, 100);
        now["devices"][0]["dead"] = json!(true);
        now["devices"][0]["oldest_seconds"] = json!(0.1);
        let lines = frame(&now, None, "");
        let device = lines.iter().find(|line| line.text.contains("/srv"));
        let device = device.expect("a device");
        assert!(device.text.contains(" dead "), "{}", device.text);
        assert_eq!(device.style, Style::Bad);
    }

    #[test]
    fn another_run_of_the_server_has_no_rates() {
        let mut before = status(10.0, 100);
        before["start_time_seconds"] = json!(4.0);
        for before in [None, Some(&before)] {
            let text = text_of(&frame(&status(12.0, 300), before, ""));
            assert!(text.contains("requests    -/s, - sent"), "{text}");
        }
    }

    #[test]
    fn missing_figures_do_no_harm() {
        for odd in [
            json!({}),
            json!(null),
            json!({ "devices": 3, "workers": [null] }),
            json!({ "upstreams": [null, { "backends": [7, { "reason": "r".repeat(100_000) }] }] }),
            json!({ "devices": [{ "mount": "m".repeat(100_000), "queued": vec![1; 100_000] }] }),
        ] {
            frame(&odd, Some(&odd), "");
        }
    }
}
