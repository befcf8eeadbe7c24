//! Sends a body through filters.

use std::borrow::Cow;

use levity_disk::Buffer;
use levity_telemetry::trace::Trace;
use levity_wire::http1::Trailers;
use tokio::task;
use tokio::time::{self, Instant};

use super::file::HOLD_MAX;
use super::{ResponseSink, SendError, Sender};
use crate::disk_client::DiskClient;
use crate::entry::Content;
use crate::http::filter::BodyFilter;
use crate::http::response::{Body, BodyStream, FileBody, Piece};

/// The maximum of bytes that filters transform in one poll, because they compute on the event loop.
const SLICE_BYTES: usize = 16 * 1024;

type Filters = [Box<dyn BodyFilter>];

impl<S: ResponseSink> Sender<'_, S> {
    /// Sends `body` through `filters`, piece by piece.
    pub(super) async fn send_filtered(
        &mut self,
        body: &mut Body,
        filters: &mut Filters,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let mut trailers = Trailers::default();
        match body {
            Body::Text(text) => self.filter_bytes(filters, text, disk.trace).await?,
            Body::Page(page) => {
                self.filter_bytes(filters, (**page).as_ref(), disk.trace)
                    .await?
            }
            Body::Memory(cached, range) => match &cached.entry.content {
                Content::Memory(bytes, _) => {
                    self.filter_bytes(filters, &bytes[range.clone()], disk.trace)
                        .await?;
                }
                Content::File(_) => unreachable!("a memory body is of an entry in memory"),
            },
            Body::File(file) => self.filter_file(filters, file, disk).await?,
            Body::Parts(parts) => {
                while let Some(mut part) = parts.next(disk).await? {
                    self.filter_file(filters, &mut part, disk).await?;
                }
            }
            Body::Stream { stream, .. } => {
                trailers = self
                    .filter_stream(filters, &mut **stream, disk.trace)
                    .await?;
            }
            Body::None | Body::Upgrade { .. } => unreachable!("it has no content to filter"),
        }
        let out = run_filters(filters, &[], BodyFilter::finish);
        if !out.is_empty() {
            self.send_piece(None, &out, trailers.is_empty(), disk.trace)
                .await?;
        }
        self.finish(&trailers).await
    }

    /// Filters `bytes` and sends the output. The filters are not flushed, because more input follows at once.
    async fn filter_bytes(
        &mut self,
        filters: &mut Filters,
        bytes: &[u8],
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        for slice in bytes.chunks(SLICE_BYTES) {
            let out = run_filters(filters, slice, |_, _| {});
            self.send_output(out, trace).await?;
        }
        Ok(())
    }

    /// Filters the rest of `file`, and sends the output.
    async fn filter_file(
        &mut self,
        filters: &mut Filters,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        while file.remaining > 0 {
            let ready = match file.ready.take() {
                Some(ready) => ready,
                None => self.next_chunk(file, None, disk).await?.ready,
            };
            let bytes = ready.into_bytes(disk.worker().disk.budget());
            let bytes = bytes.map_err(SendError::Unreadable)?;
            self.filter_chunk(filters, file, bytes, disk.trace).await?;
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
        trace: &mut Trace,
    ) -> Result<(), SendError> {
        let hold_until = Instant::now() + HOLD_MAX;
        let bytes_max = usize::try_from(file.remaining).unwrap_or(usize::MAX);
        let bytes = &chunk[..chunk.len().min(bytes_max)];
        let mut slices = bytes.chunks(SLICE_BYTES);
        let rest = loop {
            let Some(slice) = slices.next() else {
                return Ok(());
            };
            let out = run_filters(filters, slice, |_, _| {});
            file.version.keep_evidence(file.offset, slice);
            file.advance(slice.len());
            let mut sending = Box::pin(self.send_output(out, trace));
            match time::timeout_at(hold_until, &mut sending).await {
                Ok(sent) => sent?,
                Err(_) => break sending,
            }
        };
        drop(chunk);
        rest.await
    }

    /// Yields, then sends output of the filters.
    async fn send_output(&mut self, bytes: Vec<u8>, trace: &mut Trace) -> Result<(), SendError> {
        task::yield_now().await;
        match bytes.is_empty() {
            true => Ok(()),
            false => self.send_piece(None, &bytes, false, trace).await,
        }
    }

    /// Sends the output of the filters for a stream. They are flushed after each piece, because the next one may be
    /// long in coming. Returns the trailers.
    async fn filter_stream(
        &mut self,
        filters: &mut Filters,
        stream: &mut dyn BodyStream,
        trace: &mut Trace,
    ) -> Result<Trailers, SendError> {
        loop {
            match self.next_piece(stream, false, trace).await? {
                Piece::End(trailers) => return Ok(trailers),
                Piece::Spliced(_) => unreachable!("filters need the bytes"),
                Piece::Data { bytes, .. } => {
                    let out = run_filters(filters, &bytes, BodyFilter::flush);
                    self.sink.worker().return_piece(bytes);
                    if !out.is_empty() {
                        self.send_piece(Some(&mut *stream), &out, false, trace)
                            .await?;
                    }
                }
            }
        }
    }
}

/// Runs `input` through all filters and returns the output of the last one. `then` is called for each filter after its
/// input, to flush or finish it.
fn run_filters(
    filters: &mut Filters,
    input: &[u8],
    then: impl Fn(&mut (dyn BodyFilter + 'static), &mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = Cow::Borrowed(input);
    for filter in filters {
        let mut out = Vec::new();
        filter.push(&bytes, &mut out);
        then(&mut **filter, &mut out);
        bytes = Cow::Owned(out);
    }
    bytes.into_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Instant;

    use levity_telemetry::access_log::End;

    use super::*;
    use crate::handler::Handling;
    use crate::http::client::Client;
    use crate::http::h1::conn::Conn;
    use crate::http::request::Request;
    use crate::http::request_body::{ClientStream, RequestBody};
    use crate::http::response::Response;
    use crate::http::send::send;
    use crate::rig::{Rig, message};

    /// A filter that transforms each byte.
    #[derive(Debug)]
    struct Uppercase;

    impl BodyFilter for Uppercase {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
            out.extend(input.to_ascii_uppercase());
        }

        fn flush(&mut self, _: &mut Vec<u8>) {}

        fn finish(&mut self, _: &mut Vec<u8>) {}
    }

    /// A filter that holds back an incomplete line until it is flushed.
    #[derive(Debug, Default)]
    struct Lines(Vec<u8>);

    impl BodyFilter for Lines {
        fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
            self.0.extend_from_slice(input);
            let lines = self.0.iter().rposition(|&byte| byte == b'\n');
            out.extend(self.0.drain(..lines.map_or(0, |end| end + 1)));
        }

        fn flush(&mut self, out: &mut Vec<u8>) {
            out.append(&mut self.0);
        }

        fn finish(&mut self, out: &mut Vec<u8>) {
            self.flush(out);
        }
    }

    fn filters() -> Vec<Box<dyn BodyFilter>> {
        vec![Box::new(Lines::default()), Box::new(Uppercase)]
    }

    /// The response to `request` with `body` through the filters, as the client receives it. `bytes_max` is the size
    /// of the connection's buffer.
    fn filtered(body: Body, request: &[u8], bytes_max: usize) -> String {
        let rig = Rig::new("");
        let (mut client, conn) = rig.conn(bytes_max);
        rig.run(async {
            let sending = async {
                let request = Request::parsed(request, &Default::default()).expect("a request");
                let mut response = Response::new(200);
                response.body = body;
                response.filters = filters();
                let (service, lookups) = (rig.worker.service(), Cell::default());
                let mut trace = Trace::new(Instant::now(), None);
                let mut disk = DiskClient::new(&rig.worker, &service, 0, &lookups, &mut trace);
                let sent = send::<Conn>(&conn, &request, &mut response, &mut disk).await;
                assert!(matches!(sent.end, End::Complete));
                drop(conn);
            };
            tokio::join!(sending, client.rest()).1
        })
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_body_in_memory_is_filtered() {
        for bytes_max in [1, 7, 4096] {
            let text = Body::Text(b"one\ntwo".to_vec());
            let received = filtered(text, REQUEST, bytes_max);
            assert!(received.contains("\r\nTransfer-Encoding: chunked\r\n"));
            assert!(!received.contains("Content-Length"));
            let end = "\r\n\r\n4\r\nONE\n\r\n3\r\nTWO\r\n0\r\n\r\n";
            assert!(received.ends_with(end), "{received}");
        }
    }

    #[test]
    fn a_file_is_filtered_in_slices() {
        let line = "a line of sixteen\n";
        let content = line.repeat(20 * SLICE_BYTES / line.len());
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
                let disk = DiskClient::new(&rig.worker, &service, 0, &lookups, &mut trace);
                let client = Client::new(conn.peer(), &request, &Default::default());
                let body = RequestBody::new(conn.clone(), &service.config.limits);
                let mut handling = Handling::new(&rig.worker, &service, &client, body, disk);
                let location = service.route(b"a", b"/file").expect("a location");
                let mut response = handling.respond(&request, location).await;
                assert!(matches!(response.body, Body::File(_)));
                response.filters = filters();
                let sent = send::<Conn>(&conn, &request, &mut response, &mut handling.disk).await;
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
        let pieces = ["one\ntw", "o", "\nthree"].map(str::to_owned);
        let stream = Body::Stream {
            stream: Box::new(Pieces(pieces.into_iter().collect())),
            length: Some(14),
        };
        let received = filtered(stream, REQUEST, 4096);
        let end = "\r\n\r\n6\r\nONE\nTW\r\n1\r\nO\r\n6\r\n\nTHREE\r\n0\r\n\r\n";
        assert!(received.ends_with(end), "{received}");
    }

    #[test]
    fn a_response_to_head_is_not_filtered() {
        let text = Body::Text(b"one".to_vec());
        let received = filtered(text, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 4096);
        assert!(received.ends_with("\r\n\r\n"), "{received}");
    }

    /// A stream whose pieces are all available.
    #[derive(Debug)]
    struct Pieces(std::collections::VecDeque<String>);

    impl BodyStream for Pieces {
        fn poll_piece(
            &mut self,
            _: &mut std::task::Context<'_>,
            _: crate::http::response::PieceLimits,
        ) -> std::task::Poll<Result<Piece, crate::http::response::StreamError>> {
            std::task::Poll::Ready(Ok(match self.0.pop_front() {
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
