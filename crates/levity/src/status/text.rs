//! The figures as lines of text, one figure each.

use std::fmt::Write;

use serde_json::Value;

/// Parts of the whole, in the order in which a person reads them.
const PARTS: [&str; 19] = [
    "version",
    "start_time_seconds",
    "time_seconds",
    "uptime_seconds",
    "connections",
    "requests",
    "sites",
    "sent_bytes",
    "upstreams",
    "certificates",
    "on_demand_certificates",
    "limits",
    "limit_table",
    "mailboxes",
    "io",
    "devices",
    "compute",
    "variants",
    "workers",
];

/// Every figure of `status` as `server.PATH: VALUE`. The path is that of the JSON with dots, and with
/// hyphens for underscores; members of a list have their name in it, or their number from 1. What an
/// engine has done is at `server.io.ENGINE`. A list of texts is one line, with spaces between. Lists of plain numbers are left
/// out.
pub fn text(status: &Value) -> String {
    let mut out = String::new();
    let Some(parts) = status.as_object() else {
        return out;
    };
    let rest = parts.keys().map(String::as_str);
    let rest = rest.filter(|part| !PARTS.contains(part));
    for part in PARTS.into_iter().chain(rest) {
        lines(&mut out, &format!("server.{}", hyphens(part)), &parts[part]);
    }
    out
}

fn lines(out: &mut String, path: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                lines(out, &format!("{path}.{}", hyphens(key)), value);
            }
        }
        Value::Array(list) if list.first().is_some_and(Value::is_string) => {
            let texts: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            line(out, path, &texts.join(" "));
        }
        Value::Array(list) => {
            let path = path.strip_suffix(".engines").unwrap_or(path);
            for (number, member) in (1..).zip(list).filter(|(_, member)| member.is_object()) {
                lines(out, &format!("{path}.{}", name(member, number)), member);
            }
        }
        Value::String(text) => line(out, path, text),
        Value::Null => line(out, path, "-"),
        Value::Bool(_) | Value::Number(_) => line(out, path, &value.to_string()),
    }
}

fn line(out: &mut String, path: &str, value: &str) {
    // Writing to memory cannot fail.
    let _ = writeln!(out, "{path}: {value}");
}

fn hyphens(key: &str) -> String {
    key.replace('_', "-")
}

/// The name of a member of a list, or its number.
fn name(member: &Value, number: usize) -> String {
    let keys = [
        "device",
        "engine",
        "worker",
        "upstream",
        "backend",
        "site",
        "limit",
        "certificate",
    ]
    .into_iter();
    match keys.map(|key| &member[key]).find(|name| !name.is_null()) {
        Some(Value::String(name)) => name.clone(),
        Some(name) => name.to_string(),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_the_json() {
        let status = json!({
            "version": "1.0", "start_time_seconds": 1, "time_seconds": 2.5, "uptime_seconds": 1.5,
            "connections": { "accept_pauses": 3 },
            "requests": {}, "sites": [{ "site": "a.example", "finished": 4 }], "sent_bytes": 7,
            "upstreams": [{ "upstream": "app", "backends": [{ "backend": "127.0.0.1:3000", "idle": 2 }] }],
            "certificates": [{ "certificate": "a.test", "names": ["a.test", "b.test"], "left_seconds": -5 }],
            "on_demand_certificates": null,
            "limits": [{ "limit": "5/s per client", "allowed": 8 }], "limit_table": { "keys_max": 64 },
            "mailboxes": { "boxes": 3 },
            "io": { "engine": "threads", "engines": [{ "engine": "threads", "async_read": 1261 }] },
            "devices": [{ "device": "8:1", "mount": null, "history": [1, 2] }],
            "compute": { "encoder_bytes": 9, "response": { "queued": 4, "busy_percent": null } },
            "variants": { "kept": 5, "bytes_max": 6 },
            "workers": [{ "worker": 0, "open": 2 }],
            "files": { "by_requests": [{ "file": "h/a" }] },
        });
        assert_eq!(
            text(&status),
            "server.version: 1.0\n\
             server.start-time-seconds: 1\n\
             server.time-seconds: 2.5\n\
             server.uptime-seconds: 1.5\n\
             server.connections.accept-pauses: 3\n\
             server.sites.a.example.finished: 4\n\
             server.sites.a.example.site: a.example\n\
             server.sent-bytes: 7\n\
             server.upstreams.app.backends.127.0.0.1:3000.backend: 127.0.0.1:3000\n\
             server.upstreams.app.backends.127.0.0.1:3000.idle: 2\n\
             server.upstreams.app.upstream: app\n\
             server.certificates.a.test.certificate: a.test\n\
             server.certificates.a.test.left-seconds: -5\n\
             server.certificates.a.test.names: a.test b.test\n\
             server.on-demand-certificates: -\n\
             server.limits.5/s per client.allowed: 8\n\
             server.limits.5/s per client.limit: 5/s per client\n\
             server.limit-table.keys-max: 64\n\
             server.mailboxes.boxes: 3\n\
             server.io.engine: threads\n\
             server.io.threads.async-read: 1261\n\
             server.io.threads.engine: threads\n\
             server.devices.8:1.device: 8:1\n\
             server.devices.8:1.mount: -\n\
             server.compute.encoder-bytes: 9\n\
             server.compute.response.busy-percent: -\n\
             server.compute.response.queued: 4\n\
             server.variants.bytes-max: 6\n\
             server.variants.kept: 5\n\
             server.workers.0.open: 2\n\
             server.workers.0.worker: 0\n\
             server.files.by-requests.1.file: h/a\n"
        );
    }
}
