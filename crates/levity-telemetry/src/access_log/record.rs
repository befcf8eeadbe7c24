//! The record of a finished request, for its log line and the counters.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use strum::{EnumCount, IntoStaticStr, VariantArray};

use crate::request_id::RequestId;
use crate::trace::Trace;

/// Where the bytes of a response came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// Made by the server: an error, a redirect, a listing.
    #[strum(serialize = "-")]
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
    /// The word in the log and on the metric.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// How a request, or a connection, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum End {
    /// Completely.
    Complete,
    /// The client left before the end.
    ClientAbort,
    /// A time limit passed.
    Timeout,
    /// The server could not finish.
    Error,
}

impl End {
    /// The word in the log and on the metric.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// A rate limit that has hit a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitedBy<'a> {
    /// Its name.
    pub limit: &'a str,
    /// It only reports: the request passed.
    pub is_report: bool,
}

/// What the handshake of a connection has agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The version of the protocol, such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher: &'static str,
    /// The name that the client has asked for; empty if it asked for none.
    pub name: &'a str,
    /// Whether the session goes on from an earlier connection.
    pub is_resumed: bool,
}

/// Headers of a request and of its response. Names are in lower case.
pub trait Headers {
    /// The value of the first header of the request with this name.
    fn request(&self, name: &str) -> Option<&[u8]>;
    /// The value of the first header of the response with this name.
    fn response(&self, name: &str) -> Option<&[u8]>;
}

/// Those of input that could not be parsed as a request.
#[derive(Debug, Clone, Copy)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn request(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn response(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

/// A finished request. A slice is empty when the client did not send the value.
#[derive(Clone)]
pub struct Record<'a> {
    /// The client; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// The peer of the connection, `None` on a Unix socket: the client itself, or a proxy.
    pub via: Option<IpAddr>,
    /// The name of the user, if the server has asked for it; else empty.
    pub user: &'a [u8],
    /// The rate limit that has refused the request or slowed down its response, or would have.
    pub limited: Option<LimitedBy<'a>>,
    /// When the first byte of the request arrived.
    pub arrived: SystemTime,
    /// Its id; `None` when it could not be parsed.
    pub id: Option<RequestId<'a>>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host of the request.
    pub host: &'a [u8],
    /// The name of the site; empty if none was found.
    pub site: &'a str,
    /// The path of the route; empty without one.
    pub route: &'a str,
    /// The method; empty when the request line could not be read.
    pub method: &'a [u8],
    /// The request target as sent.
    pub target: &'a [u8],
    /// The protocol version, such as `HTTP/1.1`.
    pub version: &'a str,
    /// What the handshake has agreed on; `None` without TLS.
    pub tls: Option<Tls<'a>>,
    /// The status sent.
    pub status: u16,
    /// Bytes of body sent.
    pub bytes: u64,
    /// Bytes of the request body received.
    pub body_bytes: u64,
    /// From the first byte of the request to the last of the response.
    pub duration: Duration,
    /// From the first byte of the request to the first of the response.
    pub ttfb: Duration,
    /// Where the body came from.
    pub source: Source,
    /// How it ended.
    pub end: End,
    /// The `Referer` header.
    pub referer: &'a [u8],
    /// The `User-Agent` header.
    pub user_agent: &'a [u8],
    /// Other headers.
    pub headers: &'a dyn Headers,
    /// The share of the last second in which the loop waited for a processor, in percent; `None` if unknown.
    pub run_queue_wait_percent: Option<u8>,
    /// Its times, disk trips and upstream attempts.
    pub trace: &'a Trace,
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::stats::upstream::Register;
    use crate::trace::UpstreamTrace;
    use std::time::{Instant, UNIX_EPOCH};

    pub fn record() -> Record<'static> {
        Record {
            peer: Some(IpAddr::from([192, 0, 2, 7])),
            via: Some(IpAddr::from([192, 0, 2, 7])),
            user: b"",
            limited: None,
            arrived: UNIX_EPOCH + Duration::from_micros(1_795_203_727_000_042),
            id: Some(RequestId::Made(0x2a)),
            scheme: "http",
            host: b"mirror.example.org",
            site: "mirror.example.org",
            route: "",
            method: b"GET",
            target: b"/debian/pool/main.deb?x=1",
            version: "HTTP/1.1",
            tls: None,
            status: 206,
            bytes: 1_048_576,
            body_bytes: 0,
            duration: Duration::from_micros(12_345_678),
            ttfb: Duration::from_micros(123),
            source: Source::Memory,
            end: End::Complete,
            referer: b"",
            user_agent: b"curl/8.14.1",
            headers: &NoHeaders,
            run_queue_wait_percent: Some(12),
            trace: leak(Trace::new(Instant::now(), None)),
        }
    }

    pub const TLS: Tls<'static> = Tls {
        version: "TLSv1.3",
        cipher: "TLS_AES_128_GCM_SHA256",
        name: "mirror.example.org",
        is_resumed: true,
    };

    /// Headers of a request and of its response.
    pub struct Lines(
        pub &'static [(&'static str, &'static [u8])],
        pub &'static [(&'static str, &'static [u8])],
    );

    impl Headers for Lines {
        fn request(&self, name: &str) -> Option<&[u8]> {
            let mut lines = self.0.iter();
            lines.find(|line| line.0 == name).map(|line| line.1)
        }

        fn response(&self, name: &str) -> Option<&[u8]> {
            let mut lines = self.1.iter();
            lines.find(|line| line.0 == name).map(|line| line.1)
        }
    }

    fn leak(trace: Trace) -> &'static Trace {
        Box::leak(Box::new(trace))
    }

    pub fn with(trace: Trace) -> Record<'static> {
        Record {
            trace: leak(trace),
            ..record()
        }
    }

    /// A request that went to an upstream, whose trace `change` completes.
    pub fn of_upstream(change: impl FnOnce(&mut UpstreamTrace)) -> Record<'static> {
        let mut trace = Trace::new(Instant::now(), None);
        ask_upstream(&mut trace, "127.0.0.1:3000", change);
        Record {
            source: Source::Upstream,
            ..with(trace)
        }
    }

    pub fn ask_upstream(trace: &mut Trace, backend: &str, change: impl FnOnce(&mut UpstreamTrace)) {
        let cells = Register::default().of("app");
        let upstream = trace.ask_upstream(cells.clone());
        upstream.placed(Instant::now(), cells.backend(1, backend));
        upstream.attempts = 2;
        upstream.queue = Duration::from_micros(7);
        upstream.connect = Some(Duration::from_micros(45));
        upstream.first_byte = Some(Duration::from_millis(3));
        change(upstream);
    }
}
