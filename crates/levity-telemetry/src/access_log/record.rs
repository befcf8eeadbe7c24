//! What is known of a finished request, for its line.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

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

#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use std::time::UNIX_EPOCH;

    pub fn record() -> Record<'static> {
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

    pub fn visited() -> Visited<'static> {
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

    pub fn of_upstream(visited: Visited<'static>) -> Record<'static> {
        Record {
            source: Source::Upstream,
            visited: Some(visited),
            ..record()
        }
    }
}
