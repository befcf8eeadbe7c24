//! Begins a connection over HTTP/2, with its limits.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, Builder, SendRequest};
use levity_net::{AsyncTransport, Transport};

use super::failure;

/// The bytes of a response that may arrive before they are passed on, for each stream. Its client may read slowly.
const WINDOW_BYTES: u32 = 128 * 1024;

/// The maximum number of streams on a connection, whatever the backend allows.
pub const STREAMS_MAX: usize = 100;

/// The bytes of a request that wait in the connection, for each stream; about as many wait in the stream itself.
const SEND_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// How long frames of a stream that was reset here may still arrive without a reply.
const RESET_DURATION: Duration = Duration::from_secs(1);

/// The maximum number of streams that were reset here and whose frames may still arrive. Each costs about half a
/// kilobyte.
const RESET_STREAMS_MAX: usize = 1000;

/// The size of the smallest frames that may fill the windows of all streams, in bytes.
const FRAME_BYTES_MIN: usize = 32;

/// The budget for small frames that wait: the library takes 256 bytes less the size of a frame for each. When it is used up,
/// the library closes the connection with all its requests, although a few clients that do not read may be the reason. So
/// the budget is as large as all windows need: about 400 000 frames and 90 MB in the worst case. Seven streams with frames
/// of 32 bytes would use up the default.
///
/// The library also closes a connection after 100 empty frames that end no stream. That limit cannot be set.
const FRAMES_BUDGET_BYTES: usize =
    STREAMS_MAX * (WINDOW_BYTES as usize / FRAME_BYTES_MIN) * (256 - FRAME_BYTES_MIN);

/// The connection as a whole, which has to be polled for its streams to go on.
pub type Connection = client::Connection<AsyncTransport, Bytes>;

/// Sends the preface over `transport`, and waits for the settings of the backend: only they say how many streams it takes,
/// and that it speaks HTTP/2. A header section may have `head_bytes_max` bytes, as HTTP/2 counts them: names, values and 32 bytes
/// for each.
///
/// # Errors
/// When the connection has failed; `Unsupported` for a backend that does not speak HTTP/2.
pub async fn begin(
    transport: Transport,
    head_bytes_max: usize,
) -> io::Result<(SendRequest<Bytes>, Connection)> {
    let begun = send_preface(transport, head_bytes_max).await;
    let (requests, mut connection) = begun.map_err(failure::of_opening)?;
    poll_fn(|context| {
        let ended = Pin::new(&mut connection).poll(context);
        if requests.current_max_send_streams() > 0 {
            return Poll::Ready(Ok(()));
        }
        ended.map(|ended| match ended {
            Ok(()) => {
                let reason =
                    "it closed the connection before its settings; it may want TLS (`https://`)";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
            }
            Err(error) => Err(failure::of_opening(error)),
        })
    })
    .await?;
    Ok((requests, connection))
}

async fn send_preface(
    transport: Transport,
    head_bytes_max: usize,
) -> Result<(SendRequest<Bytes>, Connection), h2::Error> {
    // A stream whose client does not read keeps its own window. With room for all windows in that of the
    // connection, it takes nothing from the others.
    let all_windows = WINDOW_BYTES * STREAMS_MAX as u32;
    Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(all_windows)
        .initial_max_send_streams(0)
        .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
        // The library refuses what has as many.
        .max_header_list_size(head_bytes_max as u32 + 1)
        .data_frame_budget(FRAMES_BUDGET_BYTES)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .reset_stream_duration(RESET_DURATION)
        // It would count over the life of a connection, also late frames for streams whose clients have left.
        .max_local_error_reset_streams(None)
        .handshake(AsyncTransport(transport))
        .await
}
