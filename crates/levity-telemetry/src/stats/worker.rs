//! The counters of one worker.

use std::sync::Arc;
use std::time::Duration;

use strum::{EnumCount, IntoStaticStr, VariantArray};

use super::site::{self, SiteRegister};
use super::upstream::Register;
use crate::access_log::{End, Source};
use crate::cells::{Counter, Fourfold, Histogram};
use crate::stall::PollStats;
use crate::step::Step;
use crate::trace::Trace;

/// Upper bounds for times of requests, in microseconds: 50 us to 60 s.
const REQUEST_BOUNDS_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
const STATUS_MIN: u16 = 100;
const STATUS_MAX: u16 = 999;
const STATUSES: usize = (STATUS_MAX - STATUS_MIN) as usize + 1;

/// The outcome of a chunk that was read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Ahead {
    /// It was sent.
    Used,
    /// It was refused: a queue or the memory was full.
    Refused,
    /// The client left, or was too slow to keep it.
    Unused,
}

/// The result of a handshake of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HandshakeResult {
    /// The session is new.
    Full,
    /// The session goes on from an earlier one.
    Resumed,
    /// Client and server do not agree.
    Failed,
    /// The client has not made it in time.
    TimedOut,
}

/// The result of a request that writes beneath a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UploadResult {
    /// A file or folder was made.
    Created,
    /// A file was replaced.
    Replaced,
    /// A file or folder was removed.
    Removed,
    /// A part of a file was received, or asked for.
    Part,
    /// A condition, a limit or the state of the folder was against it.
    Refused,
    /// There was no room on the disk or within the quota.
    Full,
    /// The disk failed.
    Failed,
    /// The client left or was too slow.
    Aborted,
}

/// Why the server has ended a connection over HTTP/2: the error code that the client was sent (RFC 9113, 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Http2Failure {
    /// A rule of the protocol was broken that has no code of its own.
    ProtocolError,
    /// More bytes than the window.
    FlowControlError,
    /// A frame for a stream that had ended.
    StreamClosed,
    /// A frame of a wrong size.
    FrameSizeError,
    /// A header section that could not be decoded.
    CompressionError,
    /// A flood: frames of no use, requests that were reset, header sections without an end.
    EnhanceYourCalm,
}

/// A kind of gate: what decides whether a request gets to a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum GateKind {
    /// `allow` and `deny`.
    Access,
    /// `signed_url`.
    SignedUrl,
    /// `jwt`.
    Jwt,
    /// `basic_auth`.
    BasicAuth,
    /// `forward_auth`.
    ForwardAuth,
}

/// The counters of one worker. Only that worker's thread may count; nothing here blocks.
// Aligned, so that two workers never write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerStats {
    /// Its long polls, and the current one.
    pub polls: Arc<PollStats>,
    statuses: [Counter; STATUSES],
    status_other: Counter,
    sources: [Counter; Source::COUNT],
    pub(super) duration: Histogram,
    pub(super) ttfb: Histogram,
    pub(super) io_wait: Histogram,
    steps: [Fourfold; Step::TIMED.len()],
    /// Connections accepted.
    pub accepted: Counter,
    /// Requests begun.
    pub begun: Counter,
    /// Requests answered: each of those begun, once.
    pub answered: Counter,
    ends: [Counter; End::COUNT],
    /// Times that it stopped accepting for a while, because descriptors or memory were exhausted.
    pub accept_pauses: Counter,
    /// Idle connections that it closed for others, because `limits.connections`, descriptors or memory were exhausted.
    pub idle_given_up: Counter,
    /// Bytes that sockets took, headers included.
    pub sent_bytes: Counter,
    /// Chunks read on the loop from the page cache.
    pub reads_cached: Counter,
    reads_ahead: [Counter; Ahead::COUNT],
    /// Bytes of bodies copied from one place in our memory to another.
    pub copied_bytes: Counter,
    /// Bytes of bodies that passed from a backend's socket to a client's through a pipe.
    pub spliced_bytes: Counter,
    /// Bytes of files that the kernel sent from memory without a copy.
    pub zero_copy_bytes: Counter,
    /// Bodies that passed through filters, completely or in part.
    pub(super) filtered_bodies: Counter,
    /// Bytes that went into filters.
    pub(super) filter_input_bytes: Counter,
    /// Bytes that came out of filters.
    pub(super) filter_output_bytes: Counter,
    handshakes: [Counter; HandshakeResult::COUNT],
    http2_failures: [Counter; Http2Failure::COUNT],
    uploads: [Counter; UploadResult::COUNT],
    /// Bytes of files that clients have sent, and that were written.
    pub uploaded_bytes: Counter,
    gates_denied: [Counter; GateKind::COUNT],
    /// Requests delayed because of `limits.absent_trips`: their connections look up too many absent names.
    pub absence_waits: Counter,
    /// Calls of `sendfile` on the loop that slept, because pages were not in memory.
    pub sendfile_waits: Counter,
    /// Lines that its access log has dropped.
    pub log_dropped: Counter,
    /// Counters of the upstreams that it sends requests to.
    pub upstreams: Register,
    /// Counters of sites.
    pub sites: SiteRegister,
}

impl WorkerStats {
    /// Counters at 0, for the worker with this number, counted from 0.
    pub fn new(worker: usize) -> Self {
        Self {
            polls: Arc::new(PollStats::new(worker)),
            statuses: std::array::from_fn(|_| Counter::default()),
            status_other: Counter::default(),
            sources: Default::default(),
            duration: Histogram::new(REQUEST_BOUNDS_US),
            ttfb: Histogram::new(REQUEST_BOUNDS_US),
            io_wait: Histogram::new(REQUEST_BOUNDS_US),
            steps: Default::default(),
            accepted: Counter::default(),
            begun: Counter::default(),
            answered: Counter::default(),
            ends: Default::default(),
            accept_pauses: Counter::default(),
            idle_given_up: Counter::default(),
            sent_bytes: Counter::default(),
            reads_cached: Counter::default(),
            reads_ahead: Default::default(),
            copied_bytes: Counter::default(),
            spliced_bytes: Counter::default(),
            zero_copy_bytes: Counter::default(),
            filtered_bodies: Counter::default(),
            filter_input_bytes: Counter::default(),
            filter_output_bytes: Counter::default(),
            handshakes: Default::default(),
            http2_failures: Default::default(),
            uploads: Default::default(),
            uploaded_bytes: Counter::default(),
            gates_denied: Default::default(),
            absence_waits: Counter::default(),
            sendfile_waits: Counter::default(),
            log_dropped: Counter::default(),
            upstreams: Register::default(),
            sites: SiteRegister::default(),
        }
    }

    /// Its number, counted from 0.
    pub fn worker(&self) -> usize {
        self.polls.pulse.worker()
    }

    /// A connection has ended; once for each that was accepted.
    pub fn connection_ended(&self, end: End) {
        self.ends[end as usize].add(1);
    }

    /// A gate of this kind did not let a request through.
    pub fn gate_denied(&self, kind: GateKind) {
        self.gates_denied[kind as usize].add(1);
    }

    /// A chunk was read ahead, with this outcome.
    pub fn read_ahead(&self, outcome: Ahead) {
        self.reads_ahead[outcome as usize].add(1);
    }

    /// Counts a handshake.
    pub fn handshake(&self, result: HandshakeResult) {
        self.handshakes[result as usize].add(1);
    }

    /// A connection over HTTP/2 was ended because of what the client has sent.
    pub fn http2_failed(&self, failure: Http2Failure) {
        self.http2_failures[failure as usize].add(1);
    }

    /// A request to write beneath a root had this result.
    pub fn upload(&self, result: UploadResult) {
        self.uploads[result as usize].add(1);
    }

    /// A request was answered with `status` and a body from `source`: `duration` after its first byte, and the first
    /// byte of the response `ttfb` after it.
    pub fn request(
        &self,
        status: u16,
        source: Source,
        duration: Duration,
        ttfb: Duration,
        trace: &Trace,
    ) {
        self.status(status).add(1);
        self.sources[source as usize].add(1);
        self.duration.observe(duration);
        self.ttfb.observe(ttfb);
        self.io_wait.observe(trace.disk.waited);
        if trace.filter.jobs > 0 {
            self.filtered_bodies.add(1);
            self.filter_input_bytes.add(trace.filter.bytes_in);
            self.filter_output_bytes.add(trace.filter.bytes_out);
        }
        let times = trace.times();
        for (times, nanos) in self.steps.iter().zip(times.as_nanos()) {
            if *nanos > 0 {
                times.observe(*nanos);
            }
        }
    }

    fn status(&self, status: u16) -> &Counter {
        let index = usize::from(status).checked_sub(STATUS_MIN.into());
        index
            .and_then(|index| self.statuses.get(index))
            .unwrap_or(&self.status_other)
    }

    /// The times of a step; `None` for [`Step::Idle`].
    pub(super) fn step(&self, step: Step) -> Option<&Fourfold> {
        self.steps.get(step.index()?)
    }

    /// Requests by status, and those with a status that HTTP does not know.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let known = (STATUS_MIN..=STATUS_MAX)
            .map(Some)
            .zip(self.statuses.iter().map(Counter::get));
        known.chain([(None, self.status_other.get())])
    }

    /// Requests by [class](site::class) of their status; at 0 those without a status.
    pub fn requests_by_class(&self) -> [u64; 6] {
        let mut classes = [0; 6];
        for (status, count) in self.requests() {
            classes[status.map_or(0, site::class)] += count;
        }
        classes
    }

    /// Requests by the source of their bytes.
    pub fn source(&self, source: Source) -> u64 {
        self.sources[source as usize].get()
    }

    /// Connections that have ended this way.
    pub fn ended(&self, end: End) -> u64 {
        self.ends[end as usize].get()
    }

    /// Requests that were answered without the disk.
    pub fn requests_without_disk(&self) -> u64 {
        let others = Source::VARIANTS
            .iter()
            .filter(|source| **source != Source::Disk);
        others.map(|source| self.source(*source)).sum()
    }

    /// Requests that a gate of this kind did not let through.
    pub(super) fn gates_denied(&self, kind: GateKind) -> u64 {
        self.gates_denied[kind as usize].get()
    }

    /// Chunks read ahead with this outcome.
    pub(super) fn reads_ahead(&self, outcome: Ahead) -> u64 {
        self.reads_ahead[outcome as usize].get()
    }

    /// Requests to write beneath a root with this result.
    pub(super) fn http2_failures(&self, failure: Http2Failure) -> u64 {
        self.http2_failures[failure as usize].get()
    }

    pub(super) fn handshakes(&self, result: HandshakeResult) -> u64 {
        self.handshakes[result as usize].get()
    }

    pub(super) fn uploads(&self, result: UploadResult) -> u64 {
        self.uploads[result as usize].get()
    }

    /// Connections open now. Ends are read first, so that a connection which comes and goes in
    /// between cannot make the difference negative.
    pub fn open(&self) -> u64 {
        let ended: u64 = self.ends.iter().map(Counter::get).sum();
        self.accepted.get().saturating_sub(ended)
    }

    /// Connections with a request now. As with [`Self::open`], the ends are read first.
    pub fn busy(&self) -> u64 {
        let answered = self.answered.get();
        self.begun.get().saturating_sub(answered)
    }
}
