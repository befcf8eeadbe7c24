//! Sends a body through filters, which run in the pool of threads that compute.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use levity_compute::Class;
use levity_disk::{Buffer, Ready};
use levity_telemetry::trace::Trace;
use levity_wire::http1::{Trailers, is_one_of};
use tokio::time::{self, Instant};

use super::file::HOLD_MAX;
use super::throttle::STREAM_BYTES_MAX;
use super::{ResponseSink, SendError, Sender};
use crate::files::disk_client::DiskClient;
use crate::http::filter::{BodyFilter, FilterError, JOB_BYTES};
use crate::http::response::{Body, BodyStream, FileBody, Piece, PieceLimits};
use crate::loop_core::compute::{Compute, DroppedInPool, Panicked};
use crate::shares::claim::Claims;

/// The processor time of a job without its bytes: that of passing it to another thread.
const JOB_TIME: Duration = Duration::from_micros(10);

/// Trailers about the bytes that the filters change.
const VALIDATORS: &[&str] = &[
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
    "etag",
];

/// The filters of a body.
struct Filters {
    /// `None` while they are in the pool, and once they have finished.
    list: DroppedInPool<Vec<Box<dyn BodyFilter>>>,
    compute: Arc<Compute>,
    /// The maximum number of bytes that one job filters.
    job_bytes: usize,
    /// Takes what a job needs before it; `None` for work of the server's own.
    claims: Option<Claims>,
    /// A job has waited in vain for what it needs.
    has_waited: bool,
    /// The input so far of a body that is short enough for one job: its filters then hold no memory while a backend or
    /// a client is slow. `None` for other bodies.
    gathered: Option<Vec<u8>>,
}

impl Filters {
    /// Filters for a body of `length` bytes, if that is known.
    fn new(
        list: Vec<Box<dyn BodyFilter>>,
        length: Option<u64>,
        compute: &Arc<Compute>,
        claims: Option<Claims>,
    ) -> Self {
        let job_bytes = list.iter().map(|filter| filter.job_bytes()).min();
        let job_bytes = job_bytes.unwrap_or(JOB_BYTES);
        let is_one_job = length.is_some_and(|length| length <= job_bytes as u64);
        Self {
            job_bytes,
            gathered: is_one_job.then(Vec::new),
            list: DroppedInPool::new(Some(list), compute),
            compute: compute.clone(),
            claims,
            has_waited: false,
        }
    }

    /// The input to filter now: `input`, or all that was gathered and `input`. `None` if more is to be gathered.
    fn gather(&mut self, input: Vec<u8>, then: Then) -> Option<Vec<u8>> {
        let Some(gathered) = &mut self.gathered else {
            return Some(input);
        };
        // Most such bodies come at once.
        if gathered.is_empty() {
            *gathered = input;
        } else {
            gathered.extend_from_slice(&input);
        }
        (then == Then::Finish).then(|| mem::take(gathered))
    }
}

/// What follows the input of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// More input, at once.
    More,
    /// Perhaps nothing for a long time, so that the client must get all that the filters hold back.
    Flush,
    /// The end of the body.
    Finish,
}

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends `body` through `filters`, piece by piece.
    pub(super) async fn send_filtered(
        &mut self,
        body: &mut Body,
        filters: Vec<Box<dyn BodyFilter>>,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let core = self.sink.core();
        let requester = disk.requester();
        let claims = requester.map(|requester| requester.claims(&core.stakes));
        let filters = &mut Filters::new(filters, body.length(), &core.compute, claims);
        let mut trailers = Trailers::default();
        match body {
            Body::Text(text) => self.filter_bytes(filters, text, disk.trace).await?,
            Body::Page(page) => {
                self.filter_bytes(filters, (**page).as_ref(), disk.trace)
                    .await?
            }
            Body::Memory(cached, range) => {
                let bytes = &cached.entry.bytes()[range.clone()];
                self.filter_bytes(filters, bytes, disk.trace).await?;
            }
            Body::File(file) => self.filter_file(filters, file, Then::Finish, disk).await?,
            Body::Parts(parts) => {
                while let Some(mut part) = parts.next(disk).await? {
                    self.held_file.set(&part.file);
                    self.filter_file(filters, &mut part, Then::More, disk)
                        .await?;
                    // Before the next one is opened, which may have to wait for a place.
                    drop(part);
                    self.held_file.release();
                }
                let input = self.input(&[]);
                self.pass(filters, None, input, Then::Finish, disk.trace)
                    .await?;
            }
            Body::Stream { stream, .. } => {
                trailers = self
                    .filter_stream(filters, &mut **stream, disk.trace)
                    .await?;
            }
            Body::None | Body::Held { .. } | Body::Upgrade { .. } | Body::Multipart(_) => {
                unreachable!("filters get whole content only")
            }
        }
        // They have freed what they held.
        filters.list.value = None;
        self.finish(&trailers).await
    }

    /// Filters `bytes`, all of the body, and sends the output.
    async fn filter_bytes(
        &mut self,
        filters: &mut Filters,
        bytes: &[u8],
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let mut slices = bytes.chunks(filters.job_bytes);
        let last = slices.next_back().unwrap_or_default();
        for slice in slices {
            let input = self.input(slice);
            self.pass(filters, None, input, Then::More, trace).await?;
        }
        let input = self.input(last);
        self.pass(filters, None, input, Then::Finish, trace).await
    }

    /// Filters the rest of `file`, and sends the output. `then` is what follows its last byte.
    async fn filter_file(
        &mut self,
        filters: &mut Filters,
        file: &mut FileBody,
        then: Then,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        if file.remaining == 0 {
            let input = self.input(&[]);
            return self.pass(filters, None, input, then, disk.trace).await;
        }
        disk.take_no_pipes();
        while file.remaining > 0 {
            let ready = match file.ready.take() {
                Some(ready) => ready,
                None => {
                    self.grant(JOB_BYTES).await?;
                    self.next_chunk(file, None, disk).await?.ready
                }
            };
            if let Ready::PageCache { .. } = ready {
                // To copy them here would wait for the disk if they have been evicted.
                disk.read_into_memory();
                continue;
            }
            let bytes = ready.into_bytes(disk.core().disk.budget());
            let bytes = bytes.map_err(SendError::Unreadable)?;
            self.filter_chunk(filters, file, bytes, then, disk.trace)
                .await?;
        }
        Ok(())
    }

    /// Filters `chunk`, the next bytes of `file`, and sends the output. A client that takes longer than [`HOLD_MAX`]
    /// holds no disk buffer: the rest of the chunk is read again.
    async fn filter_chunk(
        &mut self,
        filters: &mut Filters,
        file: &mut FileBody,
        chunk: Buffer,
        then: Then,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let hold_until = Instant::now() + HOLD_MAX;
        let bytes_max = usize::try_from(file.remaining).unwrap_or(usize::MAX);
        let bytes = &chunk[..chunk.len().min(bytes_max)];
        let mut slices = bytes.chunks(filters.job_bytes);
        let rest = loop {
            let Some(slice) = slices.next() else {
                return Ok(());
            };
            file.version.keep_evidence(file.offset, slice);
            file.advance(slice.len());
            let then = match file.remaining {
                0 => then,
                _ => Then::More,
            };
            let input = self.input(slice);
            let mut passing = Box::pin(self.pass(filters, None, input, then, trace));
            match time::timeout_at(hold_until, &mut passing).await {
                Ok(passed) => passed?,
                Err(_) => break passing,
            }
        };
        drop(chunk);
        rest.await
    }

    /// Filters `stream`, and sends the output. A piece after which nothing is there yet is flushed, because the next
    /// one may be long in coming. Returns the trailers.
    async fn filter_stream(
        &mut self,
        filters: &mut Filters,
        stream: &mut dyn BodyStream,
        trace: &mut Trace,
    ) -> Result<Trailers, SendError> {
        let mut received = None;
        loop {
            let piece = match received.take() {
                Some(piece) => piece,
                None => {
                    self.grant_beside(&mut *stream, STREAM_BYTES_MAX).await?;
                    self.next_piece(stream, false, trace).await?
                }
            };
            let (bytes, then) = match piece {
                Piece::Data { bytes, is_last } if is_last => (bytes, Then::Finish),
                Piece::Data { bytes, .. } => {
                    received = self.received(stream).await?;
                    let then = match &received {
                        Some(Piece::End(trailers)) if trailers.is_empty() => Then::Finish,
                        Some(_) => Then::More,
                        None => Then::Flush,
                    };
                    (bytes, then)
                }
                Piece::End(mut trailers) => {
                    trailers.retain(|name| !is_one_of(name, VALIDATORS));
                    // A header that announces the length announces no trailers.
                    self.encode_header();
                    let input = self.input(&[]);
                    let mut no_stream = None;
                    let out = self.filter(filters, &mut no_stream, input, Then::Finish, trace);
                    let out = out.await?;
                    if !out.is_empty() {
                        let is_last = trailers.is_empty();
                        self.send_piece(None, &out, is_last, trace).await?;
                    }
                    return Ok(trailers);
                }
                Piece::Spliced(_) => unreachable!("filters need the bytes"),
            };
            self.filter_piece(filters, stream, bytes, then, trace)
                .await?;
            if then == Then::Finish {
                return Ok(Trailers::default());
            }
        }
    }

    /// The next piece of `stream`, if it has been received already.
    async fn received(&mut self, stream: &mut dyn BodyStream) -> Result<Option<Piece>, SendError> {
        let limits = PieceLimits {
            bytes_max: self.pace.piece_bytes,
            may_splice: false,
        };
        poll_fn(|context| match stream.poll_piece(context, limits) {
            Poll::Ready(piece) => Poll::Ready(piece.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        })
        .await
        .map_err(SendError::Source)
    }

    /// Filters a piece of `stream`, and sends the output.
    async fn filter_piece(
        &mut self,
        filters: &mut Filters,
        stream: &mut dyn BodyStream,
        bytes: Vec<u8>,
        then: Then,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        if bytes.len() <= filters.job_bytes {
            return self.pass(filters, Some(stream), bytes, then, trace).await;
        }
        let mut slices = bytes.chunks(filters.job_bytes);
        let last = slices.next_back().unwrap_or_default();
        for slice in slices {
            let input = self.input(slice);
            self.pass(filters, Some(&mut *stream), input, Then::More, trace)
                .await?;
        }
        let input = self.input(last);
        self.pass(filters, Some(stream), input, then, trace).await?;
        self.sink.core().return_piece(bytes);
        Ok(())
    }

    /// A copy of at most [`JOB_BYTES`].
    fn input(&self, bytes: &[u8]) -> Vec<u8> {
        let mut input = self.sink.core().take_piece(JOB_BYTES);
        input.extend_from_slice(bytes);
        input
    }

    /// Filters the input of one job, and sends the output. If that is all of the body, the header announces its length.
    /// The upload to `stream` continues meanwhile.
    async fn pass(
        &mut self,
        filters: &mut Filters,
        mut stream: Option<&mut dyn BodyStream>,
        input: Vec<u8>,
        then: Then,
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let out = self.filter(filters, &mut stream, input, then, trace);
        let out = out.await?;
        let is_last = then == Then::Finish;
        if is_last && !self.has_header {
            self.announce(out.len());
        }
        match out.is_empty() {
            true => Ok(()),
            false => self.send_piece(stream, &out, is_last, trace).await,
        }
    }

    /// Waits until there is what the next job needs at most. It runs in any case: mostly it needs less, and finds what is there. A
    /// body waits in vain once: it has many jobs.
    async fn meet_needs(
        &self,
        filters: &mut Filters,
        stream: &mut Option<&mut dyn BodyStream>,
    ) -> Result<(), SendError> {
        let Some(claims) = &filters.claims else {
            return Ok(());
        };
        let has_waited = &mut filters.has_waited;
        for filter in filters.list.value.iter_mut().flatten() {
            let Some((held, more)) = filter.needs() else {
                continue;
            };
            let grown = match has_waited {
                true => held.try_grow(more),
                false => self.beside(stream, claims.grow(held, more)).await?,
            };
            *has_waited |= grown.is_err();
        }
        Ok(())
    }

    /// Waits for `work`, while the upload to `stream` continues. A client that leaves ends the wait.
    async fn beside<T>(
        &self,
        stream: &mut Option<&mut dyn BodyStream>,
        work: impl Future<Output = T>,
    ) -> Result<T, SendError> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let uploaded = match stream {
                Some(stream) => stream.poll_upload(context).map_err(SendError::Source),
                None => Ok(()),
            };
            let watched = self.sink.watch(context).map_err(|_| SendError::Gone);
            match uploaded.and(watched) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Runs `input` through all filters in the pool, and returns the output of the last one. A client that leaves
    /// cancels the job.
    async fn filter(
        &mut self,
        filters: &mut Filters,
        stream: &mut Option<&mut dyn BodyStream>,
        input: Vec<u8>,
        then: Then,
        trace: &mut Trace,
    ) -> Result<Vec<u8>, SendError> {
        let Some(input) = filters.gather(input, then) else {
            return Ok(Vec::new());
        };
        self.meet_needs(filters, stream).await?;
        let compute = filters.compute.clone();
        let list = mem::replace(&mut filters.list, DroppedInPool::new(None, &compute));
        let each = list.value.iter().flatten();
        let ns_per_byte: u32 = each.map(|filter| filter.ns_per_byte()).sum();
        let cost_ns = input.len() as u64 * u64::from(ns_per_byte);
        let cost = JOB_TIME + Duration::from_nanos(cost_ns);
        let bytes_in = input.len();
        *self.content_bytes.get_or_insert(0) += bytes_in as u64;
        let job = FilterJob {
            filters: list,
            input,
            then,
        };
        let run = compute.run(Class::Response, self.sink.number(), cost, || job.run());
        let computed = self.beside(stream, run).await?;
        let computed = computed.map_err(|Panicked| panicked())?;
        let Filtered { job, out } = computed.value;
        filters.list = job.filters;
        self.sink.core().return_piece(job.input);
        let out = out?;
        trace.filtered(computed.queued, computed.ran, bytes_in, out.len());
        self.update_server_timing(trace);
        Ok(out)
    }
}

fn panicked() -> FilterError {
    FilterError("a filter panicked".to_owned())
}

/// A piece of a body and its filters, on their way through the pool.
struct FilterJob {
    filters: DroppedInPool<Vec<Box<dyn BodyFilter>>>,
    input: Vec<u8>,
    then: Then,
}

/// The same on its way back.
struct Filtered {
    job: FilterJob,
    out: Result<Vec<u8>, FilterError>,
}

impl FilterJob {
    fn run(mut self) -> Filtered {
        let out = self.output();
        Filtered { job: self, out }
    }

    fn output(&mut self) -> Result<Vec<u8>, FilterError> {
        let mut filtered: Option<Vec<u8>> = None;
        for filter in self.filters.value.iter_mut().flatten() {
            let input = filtered.as_ref().unwrap_or(&self.input);
            let mut out = Vec::new();
            match self.then {
                Then::More => filter.push(input, &mut out)?,
                Then::Flush => {
                    filter.push(input, &mut out)?;
                    filter.flush(&mut out)?;
                }
                Then::Finish => filter.finish(input, &mut out)?,
            }
            filtered = Some(out);
        }
        Ok(filtered.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use levity_telemetry::access_log::End;

    use super::*;
    use crate::handler::Handled;
    use crate::handler::Handling;
    use crate::http::h1::conn::Conn;
    use crate::http::request_body::{ClientStream, RequestBody};
    use crate::http::response::Response;
    use crate::http::send::send;
    use crate::message::client::Client;
    use crate::message::request::Request;
    use crate::rate_limit::charges::Charges;
    use crate::rig::{Rig, message};
    use crate::route::RouteInput;

    /// A filter that transforms each byte.
    #[derive(Debug)]
    struct Uppercase;

    impl BodyFilter for Uppercase {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            out.extend(input.to_ascii_uppercase());
            Ok(())
        }

        fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.push(input, out)
        }

        fn ns_per_byte(&self) -> u32 {
            1
        }
    }

    /// A filter that holds back an incomplete line until it is flushed.
    #[derive(Debug, Default)]
    struct Lines(Vec<u8>);

    impl BodyFilter for Lines {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.0.extend_from_slice(input);
            let lines = self.0.iter().rposition(|&byte| byte == b'\n');
            out.extend(self.0.drain(..lines.map_or(0, |end| end + 1)));
            Ok(())
        }

        fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), FilterError> {
            out.append(&mut self.0);
            Ok(())
        }

        fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.push(input, out)?;
            self.flush(out)
        }

        fn ns_per_byte(&self) -> u32 {
            1
        }
    }

    /// A filter that fails at the first digit.
    #[derive(Debug)]
    struct NoDigits;

    impl BodyFilter for NoDigits {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            out.extend(input);
            match input.iter().any(u8::is_ascii_digit) {
                true => Err(FilterError("it has a digit".to_owned())),
                false => Ok(()),
            }
        }

        fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.push(input, out)
        }

        fn ns_per_byte(&self) -> u32 {
            1
        }
    }

    fn filters() -> Vec<Box<dyn BodyFilter>> {
        vec![Box::new(Lines::default()), Box::new(Uppercase)]
    }

    /// The response to `request` with `body` through [`filters`], as the client receives it. `bytes_max` is the size
    /// of the connection's buffer.
    fn filtered(body: Body, request: &[u8], bytes_max: usize) -> String {
        let (end, received) = sent(body, filters(), request, bytes_max);
        assert!(matches!(end, End::Complete));
        received
    }

    /// In the same way through any filters, and how the response ended.
    fn sent(
        body: Body,
        filters: Vec<Box<dyn BodyFilter>>,
        request: &[u8],
        bytes_max: usize,
    ) -> (End, String) {
        let rig = Rig::new("");
        let (mut client, conn) = rig.conn(bytes_max);
        rig.run(async {
            let sending = async {
                let request = Request::parsed(request, &Default::default()).expect("a request");
                let mut response = Response::new(200);
                response.body = body;
                response.filters = filters;
                let (service, lookups) = (rig.worker.service(), Cell::default());
                let mut trace = Trace::new(Instant::now(), None);
                let mut disk =
                    DiskClient::new(&rig.worker.core, &service.own, 0, &lookups, &mut trace);
                let no_limits = Charges::default();
                let sent =
                    send::<Conn>(&conn, &request, &mut response, &mut disk, &no_limits).await;
                drop(conn);
                let replacement = sent.replacement.map(|response| response.status);
                assert_eq!(replacement, sent.first_byte.is_none().then_some(502));
                sent.end
            };
            tokio::join!(sending, client.rest())
        })
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_body_in_memory_is_filtered() {
        for bytes_max in [1, 7, 4096] {
            let text = Body::Text(b"one\ntwo".to_vec());
            let received = filtered(text, REQUEST, bytes_max);
            assert!(received.contains("\r\nContent-Length: 7\r\n"));
            assert!(received.ends_with("\r\n\r\nONE\nTWO"), "{received}");
        }
    }

    #[test]
    fn a_file_is_filtered_in_slices() {
        let line = "a line of sixteen\n";
        let content = line.repeat(20 * JOB_BYTES / line.len());
        let rig = Rig::with_files("", &[("file", &content)]);
        let request = "GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        rig.run(async {
            let (mut client, conn) = rig.conn(1000);
            let conn = Rc::new(conn);
            let sending = async {
                let request = Request::parsed(request.as_bytes(), &Default::default());
                let mut request = request.expect("a request");
                request.decode_path().expect("a path");
                let (service, lookups) = (rig.worker.service(), Cell::default());
                let mut trace = Trace::new(Instant::now(), None);
                let disk = DiskClient::new(&rig.worker.core, &service.own, 0, &lookups, &mut trace);
                let client = Client::new(conn.peer(), &request, &Default::default());
                let body = RequestBody::new(conn.clone(), &service.config.limits, None);
                let mut handling = Handling::new(&rig.worker, &service, &client, body, disk);
                let location = service
                    .route(b"a", b"/file", RouteInput::of(&request))
                    .expect("a location");
                let handled = handling.respond(&request, location).await;
                let Handled::Response(mut response) = handled else {
                    panic!("a response")
                };
                assert!(matches!(response.body, Body::File(_)));
                response.filters = filters();
                let sent = send::<Conn>(
                    &conn,
                    &request,
                    &mut response,
                    &mut handling.disk,
                    &handling.charges,
                )
                .await;
                assert!(matches!(sent.end, End::Complete));
                drop((handling, conn));
            };
            let received = tokio::join!(sending, client.rest()).1;
            let (_, body) = message(&received, true).expect("a response");
            assert!(body == content.to_ascii_uppercase());
        });
    }

    #[test]
    fn a_stream_is_flushed_with_each_piece() {
        let pieces = ["one\ntw", "o", "\nthree"];
        let received = filtered(stream(&pieces, None), REQUEST, 4096);
        let end = "\r\n\r\n6\r\nONE\nTW\r\n1\r\nO\r\n6\r\n\nTHREE\r\n0\r\n\r\n";
        assert!(received.ends_with(end), "{received}");
    }

    #[test]
    fn a_short_body_is_one_job() {
        let pieces = ["one\ntw", "o", "\nthree"];
        let received = filtered(stream(&pieces, Some(13)), REQUEST, 4096);
        let end = "\r\n\r\nd\r\nONE\nTWO\nTHREE\r\n0\r\n\r\n";
        assert!(received.ends_with(end), "{received}");
        let long = JOB_BYTES as u64 + 1;
        let received = filtered(stream(&pieces, Some(long)), REQUEST, 4096);
        assert!(received.contains("\r\n1\r\nO\r\n"), "{received}");
    }

    #[test]
    fn a_response_to_head_is_not_filtered() {
        let text = Body::Text(b"one".to_vec());
        let received = filtered(text, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 4096);
        assert!(received.ends_with("\r\n\r\n"), "{received}");
    }

    #[test]
    fn a_body_that_a_filter_refuses_is_replaced_or_cut_short() {
        let filters = || vec![Box::new(NoDigits) as _];
        let (end, received) = sent(stream(&["2", "two"], None), filters(), REQUEST, 4096);
        assert!(matches!(end, End::Error));
        assert_eq!(received, "");
        let (end, received) = sent(
            stream(&["one", "2", "three"], None),
            filters(),
            REQUEST,
            4096,
        );
        assert!(matches!(end, End::Error));
        assert!(received.ends_with("\r\n\r\n3\r\none\r\n"), "{received}");
    }

    /// A filter that stays in the pool until the test lets it go.
    #[derive(Debug)]
    struct Held {
        started: Arc<AtomicBool>,
        release: mpsc::Receiver<()>,
    }

    impl Held {
        /// The filter, the sign that it runs, and what lets it go.
        fn new() -> (Self, Arc<AtomicBool>, mpsc::Sender<()>) {
            let started = Arc::new(AtomicBool::new(false));
            let (released, release) = mpsc::channel();
            let held = Self {
                started: started.clone(),
                release,
            };
            (held, started, released)
        }
    }

    impl BodyFilter for Held {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.started.store(true, Ordering::Relaxed);
            out.extend(input);
            let released = self.release.recv();
            released.map_err(|_| FilterError("it was given up".to_owned()))
        }

        fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
            self.push(input, out)
        }

        fn ns_per_byte(&self) -> u32 {
            1
        }
    }

    /// A stream of one piece, whose upload goes on only as it is polled.
    #[derive(Debug)]
    struct Uploading {
        pieces: Pieces,
        is_filtered: Arc<AtomicBool>,
        uploaded: mpsc::Sender<()>,
    }

    impl BodyStream for Uploading {
        fn poll_piece(
            &mut self,
            context: &mut std::task::Context<'_>,
            limits: PieceLimits,
        ) -> Poll<Result<Piece, crate::http::response::StreamError>> {
            self.pieces.poll_piece(context, limits)
        }

        fn poll_upload(
            &mut self,
            context: &mut std::task::Context<'_>,
        ) -> Result<(), crate::http::response::StreamError> {
            if self.is_filtered.load(Ordering::Relaxed) {
                // The filter has gone when the response has ended.
                let _ = self.uploaded.send(());
            }
            context.waker().wake_by_ref();
            Ok(())
        }

        fn discard(self: Box<Self>) {}
    }

    /// Otherwise a backend that wants all of the request before it sends more, and a client that sends it, would wait
    /// for each other.
    #[test]
    fn an_upload_continues_while_a_piece_is_filtered() {
        let (held, is_filtered, uploaded) = Held::new();
        let uploading = Uploading {
            pieces: Pieces::new(&["one"]),
            is_filtered,
            uploaded,
        };
        let body = Body::Stream {
            stream: Box::new(uploading),
            length: None,
        };
        let (end, received) = sent(body, vec![Box::new(held)], REQUEST, 4096);
        assert!(matches!(end, End::Complete));
        assert!(
            received.ends_with("\r\n\r\n3\r\none\r\n0\r\n\r\n"),
            "{received}"
        );
    }

    /// It does not wait for the pool.
    #[test]
    fn a_client_that_leaves_ends_the_response_at_once() {
        let rig = Rig::new("");
        // After the rig: its drop waits for the job if the test fails.
        let (held, is_filtered, release) = Held::new();
        let (client, conn) = rig.conn(4096);
        rig.run(async {
            let sending = async {
                let request = Request::parsed(REQUEST, &Default::default()).expect("a request");
                let mut response = Response::new(200);
                response.body = Body::Text(b"one".to_vec());
                response.filters = vec![Box::new(held)];
                let (service, lookups) = (rig.worker.service(), Cell::default());
                let mut trace = Trace::new(Instant::now(), None);
                let mut disk =
                    DiskClient::new(&rig.worker.core, &service.own, 0, &lookups, &mut trace);
                let no_limits = Charges::default();
                let sent =
                    send::<Conn>(&conn, &request, &mut response, &mut disk, &no_limits).await;
                assert!(matches!(sent.end, End::ClientAbort), "{:?}", sent.end);
            };
            let leaving = async {
                while !is_filtered.load(Ordering::Relaxed) {
                    tokio::task::yield_now().await;
                }
                client.break_off();
            };
            tokio::join!(sending, leaving);
        });
        release.send(()).expect("it is still in the pool");
    }

    fn stream(pieces: &[&str], length: Option<u64>) -> Body {
        Body::Stream {
            stream: Box::new(Pieces::new(pieces)),
            length,
        }
    }

    /// A stream of pieces with a wait between them.
    #[derive(Debug)]
    struct Pieces {
        pieces: std::collections::VecDeque<String>,
        is_ready: bool,
    }

    impl Pieces {
        fn new(pieces: &[&str]) -> Self {
            let pieces = pieces.iter().map(|&piece| piece.to_owned());
            Self {
                pieces: pieces.collect(),
                is_ready: true,
            }
        }
    }

    impl BodyStream for Pieces {
        fn poll_piece(
            &mut self,
            context: &mut std::task::Context<'_>,
            _: PieceLimits,
        ) -> Poll<Result<Piece, crate::http::response::StreamError>> {
            if !mem::replace(&mut self.is_ready, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.is_ready = false;
            Poll::Ready(Ok(match self.pieces.pop_front() {
                Some(piece) => Piece::Data {
                    bytes: piece.into_bytes(),
                    is_last: false,
                },
                None => Piece::End(Trailers::default()),
            }))
        }

        fn poll_upload(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> Result<(), crate::http::response::StreamError> {
            Ok(())
        }

        fn discard(self: Box<Self>) {}
    }
}
