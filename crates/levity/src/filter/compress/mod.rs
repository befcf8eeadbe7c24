//! Compression of responses on their way to the client.
//!
//! The coding is chosen by Accept-Encoding, and the level by load. While a new job would wait for
//! more than 25 ms, or the memory of encoders is short (`limits.compression_memory`), responses get
//! the fast level; beyond 100 ms, or without any memory left, they go out as they are. At the
//! highest levels, where one job takes longer, the bounds are 4 and 16 jobs. The memory is reserved
//! from the decision to the last byte of content, not to the last byte sent. A body of known length
//! up to 64 KiB reserves none: it is gathered and filtered in one job, and there are as many
//! encoders for such bodies as threads. Streams of unknown length, which may stay for hours, get at
//! most half of it.
//!
//! - A body that is one job is sent with its length. Others are chunked.
//! - A piece of a stream is flushed unless the next one has arrived already, so an event can be
//!   decoded at once.
//! - The ETag becomes weak and gets the coding as a suffix: with another level the bytes differ.
//!   Conditions of requests are adapted before handlers and backends see them
//!   (`Request::adapt_conditions`): the suffix is removed, and a 304 gets it back. A date in
//!   If-Range is dropped, because the client may hold the start of a coded response.
//! - Ranges are answered from the file as it is. A compressed response has no `Accept-Ranges`. A
//!   304 on account of a date alone has no ETag: the client may hold any coding.

mod encoder;

use std::sync::Arc;
use std::time::Duration;

use levity_compute::Class;
use levity_config::{CompressCoding, LocationOptions, MediaTypes};
use levity_telemetry::stats::Compression;
use levity_wire::coded_etag;
use levity_wire::encoding::{Accepted, Coding};

pub use self::encoder::{Encoder, Settings};
use super::directives::{elements, forbids_transform};
use crate::files::entry::{Entry, VARY};
use crate::http::filter::{BodyFilter, Filter, FilterError, FilteredHead, JOB_BYTES};
use crate::loop_core::compute::Compute;
use crate::message::fields::Fields;
use crate::message::request::Request;
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource};

/// While a new job would wait for longer than this in the pool, the lowest useful level is used. A client hardly notices
/// a shorter wait.
const FAST_WAIT: Duration = Duration::from_millis(25);

/// While it would wait for longer than this, responses are not compressed.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// At the highest levels a job takes longer than that. So many of them may be ahead before the lowest level is used.
const FAST_JOBS: u32 = 4;

/// So many may be ahead before responses are not compressed.
const JOBS_MAX: u32 = 16;

/// Headers with a digest of the content, which would be wrong after compression (RFC 9530; RFC 2616, 14.15).
const DIGESTS: &[&str] = &["content-digest", "repr-digest", "digest", "content-md5"];

/// The compression of one location.
pub struct Compress {
    codings: Vec<CompressCoding>,
    types: Vec<MediaTypes>,
    bytes_min: u64,
    compute: Arc<Compute>,
}

impl Compress {
    /// The compression that `options` ask for; `None` if they do not.
    pub fn new(options: &LocationOptions, compute: &Arc<Compute>) -> Option<Self> {
        options.compress.then(|| Self {
            codings: options.compress_codings.clone(),
            types: options.compress_types.clone(),
            bytes_min: options.compress_min_bytes as u64,
            compute: compute.clone(),
        })
    }

    /// Whether the response, or that of which it is a part, is compressed for clients that accept it.
    fn applies(&self, head: &FilteredHead<'_>) -> bool {
        let fields = &head.fields;
        let has = |name: &&str| fields.value(name).is_some();
        // A part may be shorter.
        let is_long = head.length.is_none_or(|length| length >= self.bytes_min);
        (is_long || head.status == 206)
            && self.includes_type(fields)
            && !has(&"content-encoding")
            && !DIGESTS.iter().any(has)
            && !forbids_transform(fields)
    }

    /// Whether the file of `entry` is compressed for clients that accept it.
    pub fn applies_to_file(&self, entry: &Entry) -> bool {
        entry.coding.is_none()
            && entry.strong
            && entry.meta.size >= self.bytes_min
            && self.includes_type(&entry.fields)
    }

    /// The coding that the client of `request` prefers, if any.
    pub fn coding(&self, request: &Request) -> Option<Coding> {
        self.choices(request).first().copied()
    }

    /// The codings that the client prefers to none, by its preference, then by ours.
    fn choices(&self, request: &Request) -> Vec<Coding> {
        let accepted = Accepted::parse(request.headers_named("accept-encoding"));
        let offered: Vec<Coding> = self.codings.iter().map(|own| own.coding).collect();
        accepted.choices(&offered)
    }

    /// The coding and level for a client, and the memory of the encoder; `None` if the client prefers none, or if the
    /// pool or the memory has no room.
    fn choose(
        &self,
        request: &Request,
        length: Option<u64>,
        claims: &Claims,
    ) -> Option<(Settings, Option<Held>)> {
        let coding = self.coding(request)?;
        let own = self.codings.iter().find(|own| own.coding == coding)?;
        let level = own.level.unwrap_or(default_level(coding));
        let settings = |level| Settings {
            coding,
            level,
            length,
            ample: false,
        };
        let fast_level = level.min(fast_level(coding));
        let chosen = self.reserve(settings(level), settings(fast_level), claims);
        let outcome = match &chosen {
            Ok((chosen, _)) if chosen.level == level => Compression::Usual,
            Ok(_) => Compression::Fast,
            Err(lacking) => *lacking,
        };
        self.compute.compressions.count(coding, outcome);
        chosen.ok()
    }

    /// Reserves the memory of an encoder with the `usual` settings, or with the `fast` ones if there is much to do.
    fn reserve(
        &self,
        usual: Settings,
        fast: Settings,
        claims: &Claims,
    ) -> Result<(Settings, Option<Held>), Compression> {
        // One that is kept for hours, as for an event stream, gets of a half.
        let portion = usual.length.map_or(Portion::Half, |_| Portion::Whole);
        let is_one_job = usual
            .length
            .is_some_and(|length| length <= JOB_BYTES as u64);
        // As many encoders for one job as threads exist at a time, so these take none of the memory.
        let mut memory = (!is_one_job).then(|| claims.nothing(Resource::Encoders, portion));
        let mut reserve = |settings: Settings| {
            let bytes = settings.memory_bytes();
            let is_there = match &mut memory {
                Some(memory) => memory.try_grow(bytes).is_ok(),
                None => bytes <= claims.max(Resource::Encoders),
            };
            is_there.then_some(settings)
        };
        let wait = self.compute.pool.wait_estimate(Class::Response);
        let job = Duration::from_nanos(u64::from(usual.ns_per_byte()) * JOB_BYTES as u64);
        let chosen = match wait {
            wait if wait > WAIT_MAX.max(job * JOBS_MAX) => return Err(Compression::PoolBusy),
            wait if wait > FAST_WAIT.max(job * FAST_JOBS) => reserve(fast),
            _ => reserve(usual).or_else(|| reserve(fast)),
        };
        match chosen {
            Some(settings) => Ok((settings, memory)),
            None => {
                // It is sent without compression, so nobody loses a response for it.
                if let Some(memory) = memory {
                    memory.count_refused();
                }
                Err(Compression::MemoryFull)
            }
        }
    }
}

/// The level without a configured one: the ratio of the next one costs half as much time again.
fn default_level(coding: Coding) -> u8 {
    match coding {
        Coding::Zstd | Coding::Dcz => 3,
        Coding::Brotli | Coding::Dcb | Coding::Gzip => 4,
    }
}

/// The level while there is much to do. Level 1 of gzip saves little time, and compresses a third less.
fn fast_level(coding: Coding) -> u8 {
    match coding {
        Coding::Zstd | Coding::Dcz | Coding::Brotli | Coding::Dcb => 1,
        Coding::Gzip => 2,
    }
}

impl Filter for Compress {
    fn key(&self) -> &'static str {
        "compress"
    }

    /// A cache needs Vary also with a response that was not compressed for this client, and with a 304 or 206.
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        if head.status == 304 {
            self.restore_etag(request, head.fields);
        }
        if hides_type(head.status, head.fields) || self.applies(&head) {
            add_vary(head.fields);
        }
    }

    fn transforms(&self, request: &Request, media_type: &str) -> bool {
        MediaTypes::any_include(&self.types, media_type.as_bytes())
            && !self.choices(request).is_empty()
    }

    fn passes(&self, base: &Fields) -> bool {
        !hides_type(200, base) && !self.includes_type(base)
    }

    fn body(
        &self,
        request: &Request,
        head: FilteredHead<'_>,
        claims: &Claims,
    ) -> Option<Box<dyn BodyFilter>> {
        if !self.applies(&head) {
            return None;
        }
        let (settings, memory) = self.choose(request, head.length, claims)?;
        let fields = head.fields;
        let coding = settings.coding;
        fields.add("Content-Encoding", coding.name().as_bytes());
        // A range of the compressed content could not be made from that of another response.
        fields.remove("accept-ranges");
        match fields
            .value("etag")
            .map(|etag| coded_etag::coded(etag, coding))
        {
            Some(Some(coded)) => fields.set("ETag", &coded),
            // What is no ETag cannot get the coding: it would name both forms.
            Some(None) => fields.remove("etag"),
            None => {}
        }
        Some(Box::new(Compressing {
            settings,
            encoder: None,
            memory,
        }))
    }
}

impl Compress {
    /// Whether content of this type is compressed.
    fn includes_type(&self, fields: &Fields) -> bool {
        let content_type = fields.value("content-type").unwrap_or_default();
        MediaTypes::any_include(&self.types, content_type)
    }

    /// Gives a 304 the ETag that the client has, if that is the one in a coding that it accepts.
    fn restore_etag(&self, request: &Request, fields: &mut Fields) {
        let has_tags = request.header("if-none-match").is_some();
        if !has_tags && !self.choices(request).is_empty() {
            // The client has named a date, which all codings share: it may hold another one than that of this tag.
            fields.remove("etag");
            fields.remove("accept-ranges");
        }
        if !request.coded_etags.is_empty() {
            fields.edit("etag", |etag| {
                coded_etag::restored(&request.coded_etags, etag)
            });
        }
    }
}

/// Whether the header does not tell the media type of the content: that of a 304, and of several ranges.
fn hides_type(status: u16, fields: &Fields) -> bool {
    const RANGES: &[u8] = b"multipart/byteranges";
    let content_type = fields.value("content-type").unwrap_or_default();
    let start = content_type.get(..RANGES.len());
    status == 304 || start.is_some_and(|start| start.eq_ignore_ascii_case(RANGES))
}

fn add_vary(fields: &mut Fields) {
    let includes = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(VARY);
    if !elements(fields, "vary").any(includes) {
        let names: Vec<_> = elements(fields, "vary").chain([VARY]).collect();
        let value = names.join(&b", "[..]);
        fields.set("Vary", &value);
    }
}

/// A body that is being compressed.
#[derive(Debug)]
struct Compressing {
    settings: Settings,
    /// Made where it computes, by the first call.
    encoder: Option<Encoder>,
    /// `None` for one job, and once the last byte is compressed, which the client may receive much later.
    memory: Option<Held>,
}

impl Compressing {
    fn encoder(&mut self) -> Result<&mut Encoder, FilterError> {
        if self.encoder.is_none() {
            self.encoder = Some(Encoder::new(self.settings).map_err(defect)?);
        }
        Ok(self.encoder.as_mut().expect("it was just made"))
    }
}

impl BodyFilter for Compressing {
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.encoder()?.push(input, out).map_err(defect)
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.encoder()?.flush(out).map_err(defect)
    }

    fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.encoder()?;
        let encoder = self.encoder.take().expect("it exists");
        let finished = encoder.finish(input, out).map_err(defect);
        self.memory = None;
        finished
    }

    fn ns_per_byte(&self) -> u32 {
        self.settings.ns_per_byte()
    }
}

fn defect(error: std::io::Error) -> FilterError {
    FilterError(format!("its encoder failed: {error}"))
}
