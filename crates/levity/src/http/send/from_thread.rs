//! Sends a large file that is in the page cache by the worker's thread for that, without a copy.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::{Claim, TRANSFER_TIME_MAX, Transfer, TransferEnd, Transferred, transmit};
use rustix::net::Shutdown;
use tokio::sync::oneshot;
use tokio::time;

use super::file::{is_socket_error, read_evidence_inline};
use super::{ResponseSink, SendError, Sender};
use crate::files::disk_client::DiskClient;
use crate::http::file_version::{EVIDENCE_BYTES_MAX, Verdict};
use crate::http::response::FileBody;

/// The minimum of remaining bytes for which a trip to the thread costs less than the copies that it saves.
const BYTES_MIN: u64 = 512 * 1024;

/// The maximum number of bytes of one trip.
const TRIP_BYTES_MAX: u64 = 16 << 20;

/// A client that takes less in a second has no part in the thread for the rest of the response: the number of transfers
/// is limited.
const SLOW_BYTES_MIN: usize = 1 << 20;

/// The maximum wait for the start of a trip. The thread is late if it waits for a disk, which is rare.
const START_TIMEOUT: Duration = Duration::from_millis(5);

impl<S: ResponseSink> Sender<'_, S> {
    /// Whether to try [`Sender::send_from_thread`]: the last read of `file` found its bytes in the page cache, and
    /// enough of them are left.
    pub(super) fn may_use_thread(&self, file: &FileBody) -> bool {
        // The header leaves with bytes that were read, so that an error can still replace it.
        self.is_committed()
            && file.remaining >= BYTES_MIN
            && file.cached.warm.get()
            && self.has_tcp_socket()
            && file.offset >= self.pace.thread_from
            && self.throttle.allowance() as u64 >= BYTES_MIN
    }

    /// Sends bytes of `file` as long as they are in the page cache and the thread is not late. Returns whether any were
    /// sent; the rest is read.
    pub(super) async fn send_from_thread(
        &mut self,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<bool, SendError> {
        let core = self.sink.core().clone();
        let Some(_permit) = core.zero_copy.transfers.try_take() else {
            return Ok(false);
        };
        self.held_file.count(&core);
        self.send_header_with_more().await?;
        self.wait_writable().await?;
        let clone = |socket: BorrowedFd<'_>| socket.try_clone_to_owned();
        let socket = match self.try_move(clone) {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.pace.thread_from = u64::MAX;
                }
                return Ok(false);
            }
        };
        let offset = file.offset;
        while file.remaining > 0 && self.throttle.allowance() > 0 {
            self.wait_writable().await?;
            let from = Instant::now();
            let io_timeout = disk.config().config.limits.io_timeout;
            let Some(sent) = self.trip(&socket, file, io_timeout).await? else {
                self.pace.thread_from = u64::MAX;
                break;
            };
            if sent.bytes > 0 {
                self.sent_pages = true;
                self.count_sent(sent.bytes, sent.bytes).await;
                let stats = &disk.core().stats;
                stats.reads_cached.add(1);
                stats.zero_copy_bytes.add(sent.bytes as u64);
                let to = self.last_byte.unwrap_or(from);
                disk.trace.wrote(None, from, to, sent.bytes as u64);
                self.check_version(&sent, file, disk).await?;
                file.advance(sent.bytes);
            }
            match sent.end {
                TransferEnd::Complete => {}
                TransferEnd::Slow => {
                    self.note_full();
                    if sent.bytes < SLOW_BYTES_MIN {
                        // The thread is for others.
                        self.pace.thread_from = u64::MAX;
                        break;
                    }
                }
                TransferEnd::Unavailable => {
                    // What the page cache has of these bytes is copied.
                    self.pace.thread_from = file.offset + BYTES_MIN;
                    break;
                }
                TransferEnd::Failed(error) if is_socket_error(&error) => {
                    return Err(SendError::Gone);
                }
                TransferEnd::Failed(error) => return Err(SendError::Unreadable(error)),
            }
        }
        Ok(file.offset > offset)
    }

    /// Tells the runtime if the send buffer is full, which it does not learn from the thread. It waits for an event only
    /// after a call that would block.
    fn note_full(&self) {
        let _ = self.try_move(|socket| match transmit::is_writable(socket)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
    }

    /// One trip to the thread; `None` if it is late.
    ///
    /// # Errors
    /// The thread has begun and waits for a disk: that of this file, or of another one.
    async fn trip(
        &self,
        socket: &Arc<OwnedFd>,
        file: &FileBody,
        io_timeout: Duration,
    ) -> Result<Option<Transferred>, SendError> {
        let thread = self.sink.core().zero_copy.thread.as_ref();
        let Some(thread) = thread.filter(|thread| thread.is_available()) else {
            return Ok(None);
        };
        let (sender, mut receiver) = oneshot::channel();
        let transfer = Transfer {
            socket: socket.clone(),
            file: file.file.clone(),
            offset: file.offset,
            len: (file.remaining.min(TRIP_BYTES_MAX) as usize).min(self.throttle.allowance()),
            version: file.version.confirmed(),
        };
        let reply = move |sent| {
            // An error means that the connection has ended.
            let _ = sender.send(sent);
        };
        // Taken also if this future is dropped, so that the thread does not send to a connection that ends.
        let claim = Unclaimed(thread.send(transfer, reply));
        let in_time = time::timeout(START_TIMEOUT, &mut receiver).await;
        let sent = match in_time {
            Ok(sent) => Ok(sent),
            Err(_) if thread.take_back(&claim.0) => return Ok(None),
            Err(_) => time::timeout(TRANSFER_TIME_MAX + io_timeout, receiver).await,
        };
        // Without a result it is unknown what was sent.
        sent.ok().and_then(Result::ok).map(Some).ok_or_else(|| {
            // The thread has the socket open: to close it here would not end the connection.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
            SendError::Unreadable(io::ErrorKind::TimedOut.into())
        })
    }

    /// Checks that what was sent is of the announced version, and keeps its end as evidence.
    ///
    /// # Errors
    /// The file was rewritten while it was sent.
    async fn check_version(
        &self,
        sent: &Transferred,
        file: &mut FileBody,
        disk: &mut DiskClient<'_>,
    ) -> Result<(), SendError> {
        let is_same = match file.version.judge(&sent.now) {
            Verdict::Same => true,
            Verdict::Rewritten => false,
            Verdict::Unclear => self.compare_evidence(&sent.now, file, disk).await?,
        };
        if !is_same {
            return Err(SendError::Rewritten);
        }
        let bytes = sent.bytes.min(EVIDENCE_BYTES_MAX);
        let start = file.offset + (sent.bytes - bytes) as u64;
        if let Some((end, now)) = read_evidence_inline((start, bytes), &file.file)
            && file.version.judge(&now) == Verdict::Same
        {
            file.version.keep_evidence(start, &end);
        }
        Ok(())
    }
}

/// Takes the claim when it is dropped.
struct Unclaimed(Claim);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let _ = self.0.take();
    }
}
