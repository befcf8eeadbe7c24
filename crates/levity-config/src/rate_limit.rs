//! `[[site.limit]]`: how much clients, files and routes may take.

use std::cell::RefCell;
use std::time::Duration;

use strum::{EnumString, VariantNames};

use crate::line::Line;
use crate::schema::{Key, Kind, documented, key};
use crate::section::{Section, Text};
use crate::value::{self, whole_number};

/// The maximum number of limits that apply to one request.
pub const RATE_LIMITS_MAX: usize = 8;

/// Requests per second above this leave no time between two of them that a clock could tell.
const REQUESTS_PER_SECOND_MAX: u64 = 1_000_000;

const BYTES_PER_SECOND_MAX: u64 = 1 << 40;

/// The longest time of a rate.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The longest time after which all of `after` is available again.
const REFILL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A key may always take at once the bytes of this part of a second. Deadlines of connections are met up to 0.1 s late, and
/// what comes later than that would be lost.
const SLACK_PER_SECOND: u64 = 4;

/// The maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A limit of a site or route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Its name in logs and metrics. Only names that were given are unique in the file.
    pub name: String,
    /// The number of routes around it, one within the other: 0 for that of a site.
    pub depth: usize,
    /// What it limits.
    pub limited: Limited,
    /// What shares it.
    pub per: Per,
    /// The bits of an IPv4 address that clients have in common; 1 to 32.
    pub ipv4_prefix: u32,
    /// The bits of an IPv6 address that clients have in common; 1 to 128.
    pub ipv6_prefix: u32,
    /// Whether it only reports what it would do.
    pub report_only: bool,
}

/// What a limit limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limited {
    /// Requests.
    Requests {
        /// The time of one.
        interval: Duration,
        /// How many may come at once; at least 1.
        after: u64,
    },
    /// Requests that are answered at the same time: at most so many.
    Connections(u64),
    /// Bytes of bodies.
    Bytes {
        /// At least 1.
        per_second: u64,
        /// How many may go at once: at least what a quarter of a second brings.
        after: u64,
    },
}

/// What has a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Per {
    /// Clients of one prefix.
    Client,
    /// Each path.
    File,
    /// Nothing: all requests share it.
    Route,
}

pub(crate) const KEYS: &[Key] = documented! {
    /// Requests in a time, such as `"100/10s"`, `"5/s"` or `"1000/h"`. Others get 429. One of `requests`, `connections` and
    /// `bytes` is required.
    key("requests", Kind::Text("a rate such as `\"100/10s\"`"), None);
    /// Requests that are answered at the same time, up to the last byte of the response. Others get 429.
    key("connections", Kind::Count("1", "1000000"), None);
    /// Bytes of response bodies in a time, such as `"1MiB/s"`. Responses that would exceed it are slowed down.
    key("bytes", Kind::Text("a rate such as `\"1MiB/s\"`"), None);
    /// How much may be taken at once before the rate applies: a number of requests, by default as many as the rate names, or a
    /// size, by default and at least what the rate brings in 0.25 s. What was not taken for a while comes back at the rate, up
    /// to this. It belongs to the key and not to each response: otherwise a client could divide a file into ranges.
    key("after", Kind::Size("1B", "1TiB"), None);
    /// What shares the limit. `"client"`: clients of one address or prefix. `"file"`: requests for one path, without its query
    /// and decoded, as the table with the limit sees it after rewrites; whether it exists is not known yet. `"route"`: all
    /// requests to the site or route.
    key("per", Kind::Word(Per::VARIANTS), Some("client"));
    /// Bits of an IPv4 address by which clients are told apart. See `server.trusted_proxies` for clients behind a proxy. Clients
    /// without an address, on Unix sockets, count as one.
    key("ipv4_prefix", Kind::Count("1", "32"), Some("32"));
    /// The same for IPv6. Most providers give a client a network of 64 bits at least, which nobody else has. Some give 56 or 48:
    /// a shorter prefix also stops clients that use all of that, but counts others together that share it.
    key("ipv6_prefix", Kind::Count("1", "128"), Some("64"));
    /// Whether the limit lets everything pass, and only logs and counts whom it would have hit.
    key("report_only", Kind::Boolean, Some("false"));
    /// Its name in logs and metrics, by default made of the rate. No other limit of the file may be given the same name; the
    /// figures of those with the same default name are added up.
    key("name", Kind::Text("a text"), None);
};

/// The limits of a file.
#[derive(Default)]
pub(crate) struct RateLimits {
    /// The names that were given so far, with their lines.
    names: Names,
}

type Names = RefCell<Vec<(String, Line)>>;

impl RateLimits {
    /// Reads the limits of a table, behind those of `above`. `depth` is the number of routes around them.
    pub(crate) fn of_location(
        &self,
        section: &Section<'_>,
        above: &[RateLimit],
        depth: usize,
    ) -> Vec<RateLimit> {
        if section.is_off("limit") {
            return Vec::new();
        }
        let mut limits = above.to_vec();
        for section in section.children("limit") {
            let Some(limit) = limit(&section, depth, &self.names) else {
                continue;
            };
            let key = kind(&section).unwrap_or("requests");
            if limits.contains(&limit) {
                section.report(key, "this limit is given twice", None);
            } else if limits.len() == RATE_LIMITS_MAX {
                let message = format!(
                    "more than {RATE_LIMITS_MAX} limits apply here, with those of the tables around"
                );
                section.report(key, message, None);
            }
            limits.push(limit);
        }
        limits
    }
}

/// The first of the keys that say what is limited.
fn kind(section: &Section<'_>) -> Option<&'static str> {
    let mut kinds = ["requests", "connections", "bytes"].into_iter();
    kinds.find(|kind| section.has(kind))
}

fn limit(section: &Section<'_>, depth: usize, names: &Names) -> Option<RateLimit> {
    let per = section.word_or_default("per");
    for prefix in ["ipv4_prefix", "ipv6_prefix"] {
        if section.has(prefix) && per != Per::Client {
            section.report(prefix, "it is of use with `per = \"client\"` only", None);
        }
    }
    let (name, report_only) = (
        name(section, names),
        section.boolean_or_default("report_only"),
    );
    let bits = |key| u32::try_from(section.count(key)).unwrap_or_default();
    let (ipv4_prefix, ipv6_prefix) = (bits("ipv4_prefix"), bits("ipv6_prefix"));
    let (limited, text) = limited(section)?;
    let word = match per {
        Per::Client => "client",
        Per::File => "file",
        Per::Route => "route",
    };
    Some(RateLimit {
        name: name.unwrap_or_else(|| format!("{text} per {word}")),
        depth,
        limited,
        per,
        ipv4_prefix,
        ipv6_prefix,
        report_only,
    })
}

fn name(section: &Section<'_>, names: &Names) -> Option<String> {
    let given = section.text("name")?;
    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if given.text.is_empty()
        || given.text.len() > NAME_BYTES_MAX
        || !given.text.bytes().all(is_plain)
    {
        given.refuse(format!(
            "a name has 1 to {NAME_BYTES_MAX} characters of ASCII"
        ));
    }
    let mut names = names.borrow_mut();
    match names.iter().find(|(name, _)| name == given.text) {
        Some((_, line)) => {
            let help = format!("the first is on {line}");
            given.refuse_with(format!("limit `{}` is given twice", given.text), help);
        }
        None => names.push((given.text.to_owned(), section.reader.line(&given.span))),
    }
    Some(given.text.to_owned())
}

/// What is limited, and how it was written.
fn limited(section: &Section<'_>) -> Option<(Limited, String)> {
    let Some(kind) = kind(section) else {
        let is_misspelt = |kind: &&str| section.has_misspelt(kind);
        if !["connections", "bytes"].iter().any(is_misspelt) {
            section.require("requests");
        }
        return None;
    };
    for other in ["connections", "bytes"] {
        if other != kind && section.has(other) {
            section.report(other, format_args!("`{kind}` is given too"), {
                Some("write a table for each limit".to_owned())
            });
        }
    }
    match kind {
        "requests" => {
            let given = section.text(kind)?;
            let rate = Rate::read(&given, &REQUESTS)?;
            Some((requests(section, &rate)?, given.text.to_owned()))
        }
        "bytes" => {
            let given = section.text(kind)?;
            let rate = Rate::read(&given, &BYTES)?;
            Some((bytes(section, &rate)?, given.text.to_owned()))
        }
        _ => {
            if section.has("after") {
                section.report("after", "`connections` is no rate", None);
            }
            let max = section.count(kind);
            Some((
                Limited::Connections(max as u64),
                format!("{max} connections"),
            ))
        }
    }
}

fn requests(section: &Section<'_>, rate: &Rate) -> Option<Limited> {
    if section.is_text("after") {
        let help = "write it without a unit".to_owned();
        section.report("after", "it is a number of requests", Some(help));
    }
    let after = section.optional_count("after");
    let after = after.map_or(rate.count, |after| after as u64);
    let interval = Duration::from_nanos(rate.time_ns() / rate.count);
    check_refill(section, u128::from(after) * interval.as_nanos())?;
    Some(Limited::Requests { interval, after })
}

fn bytes(section: &Section<'_>, rate: &Rate) -> Option<Limited> {
    let per_second = rate.per_second();
    let least = per_second.div_ceil(SLACK_PER_SECOND);
    let after = section.optional_count("after").unwrap_or_default() as u64;
    let after = after.max(least);
    let seconds = u128::from(after / per_second);
    check_refill(section, seconds * Duration::from_secs(1).as_nanos())?;
    Some(Limited::Bytes { per_second, after })
}

/// Reports an `after` that would not come back within [`REFILL_MAX`].
fn check_refill(section: &Section<'_>, refill_ns: u128) -> Option<()> {
    if refill_ns <= REFILL_MAX.as_nanos() {
        return Some(());
    }
    let message = "at this rate it would take more than a year to come back";
    section.report("after", message, None);
    None
}

/// The unit of a rate.
struct Unit {
    name: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<u64, String>,
    per_second_max: u64,
    max: &'static str,
}

const REQUESTS: Unit = Unit {
    name: "requests",
    example: "100/10s",
    parse: number_of_requests,
    per_second_max: REQUESTS_PER_SECOND_MAX,
    max: "1000000/s",
};

const BYTES: Unit = Unit {
    name: "bytes",
    example: "1MiB/s",
    parse: |text| whole_number(text).map_or_else(|| value::size(text), Ok),
    per_second_max: BYTES_PER_SECOND_MAX,
    max: "1TiB/s",
};

/// The error is a phrase that helps; it may be empty. nginx writes `10r/s`.
fn number_of_requests(text: &str) -> Result<u64, String> {
    let bare = text.strip_suffix('r').unwrap_or(text);
    let number: Option<u64> = whole_number(bare);
    match number {
        Some(number) if bare == text => Ok(number),
        Some(number) => Err(format!("did you mean \"{number}\"?")),
        None if value::size(text).is_ok() => Err("a size is for `bytes`".to_owned()),
        None => Err(String::new()),
    }
}

/// What to write in place of a rate, from its two parts as they are written, with phrases that help with those that are wrong.
fn help_on_rate(count: (&str, Option<String>), time: (&str, Option<String>)) -> String {
    let meant = |(text, help): &(&str, Option<String>)| match help {
        None => Some((*text).to_owned()),
        Some(help) => {
            let meant = help.strip_prefix("did you mean \"")?;
            meant.strip_suffix("\"?").map(str::to_owned)
        }
    };
    match (meant(&count), meant(&time)) {
        (Some(count), Some(time)) => format!("did you mean \"{count}/{time}\"?"),
        (None, _) => count.1.unwrap_or_default(),
        _ => time.1.unwrap_or_default(),
    }
}

/// So many in this time. Neither is 0.
struct Rate {
    count: u64,
    time_ms: u64,
}

impl Rate {
    /// Reads `COUNT/TIME`, where a time of one unit needs no number. Reports what is wrong.
    fn read(given: &Text<'_>, unit: &Unit) -> Option<Self> {
        let text = given.text;
        let usual = || {
            format!(
                "write a number of {} and a time, such as \"{}\"",
                unit.name, unit.example
            )
        };
        let refuse = |help: String| {
            let help = if help.is_empty() { usual() } else { help };
            given.refuse_with(format!("`{text}` is no rate"), help);
        };
        let Some((count, time)) = text.split_once('/') else {
            refuse(match (unit.parse)(text) {
                Ok(_) => format!("did you mean \"{text}/s\"?"),
                Err(_) => usual(),
            });
            return None;
        };
        let one = time
            .starts_with(|c: char| c.is_ascii_alphabetic())
            .then_some("1");
        let of_time = value::duration(&[one.unwrap_or_default(), time].concat());
        let rate = match ((unit.parse)(count), of_time) {
            (Ok(count), Ok(time_ms)) => Self { count, time_ms },
            (of_count, of_time) => {
                refuse(help_on_rate((count, of_count.err()), (time, of_time.err())));
                return None;
            }
        };
        rate.check(unit)
            .map_err(|(reason, help)| given.refuse_with(format!("`{text}` {reason}"), help))
            .ok()?;
        Some(rate)
    }

    fn check(&self, unit: &Unit) -> Result<(), (&'static str, String)> {
        let at_most = format!("at most {}; without the limit there is no bound", unit.max);
        if self.count == 0 {
            let help = "`deny = [\"all\"]` refuses everyone".to_owned();
            return Err(("lets nothing pass", help));
        }
        if self.time_ms == 0 || u128::from(self.time_ms) > TIME_MAX.as_millis() {
            return Err(("has a time out of bounds", "from 1ms to 1d".to_owned()));
        }
        let scaled = u128::from(self.count) * 1000;
        let per_second_max = u128::from(unit.per_second_max);
        if scaled > per_second_max * u128::from(self.time_ms) {
            return Err(("is too fast", at_most));
        }
        if unit.name == BYTES.name && scaled < u128::from(self.time_ms) {
            return Err(("is too slow", "at least 1B/s".to_owned()));
        }
        Ok(())
    }

    fn time_ns(&self) -> u64 {
        self.time_ms * 1_000_000
    }

    fn per_second(&self) -> u64 {
        let scaled = u128::from(self.count) * 1000 / u128::from(self.time_ms);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}
