//! Compression of messages for WebSockets (RFC 7692), off the event loop.

use std::rc::Rc;
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use levity_compute::Class;
use levity_mailbox::{Entry, Making};
use levity_wire::websocket::{FrameHeader, Opcode};
use tokio::task;

use super::forms::Form;
use crate::shares::Resource;
use crate::worker::Worker;

/// Messages with less content in bytes are sent as they are: a job takes longer than what it would save.
const CONTENT_BYTES_MIN: usize = 256;

/// The level of DEFLATE.
const LEVEL: u32 = 6;

/// The memory of an encoder in bytes, as measured for gzip.
const ENCODER_BYTES: usize = 416 * 1024;

/// The processor time per byte, estimated.
const NS_PER_BYTE: u64 = 18;

/// What a flushed block of DEFLATE ends with, and a message does not (RFC 7692, 7.2.1).
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

/// The compressed frame of a message for all receivers of the event loop, which the first of them starts. `None` for one
/// that is sent as it is.
pub fn making(
    worker: &Rc<Worker>,
    stream: u64,
    form: Form,
    entry: &Rc<Entry>,
) -> Option<Rc<Making>> {
    let bytes = entry.message.draft.content.len();
    let compute = &worker.compute;
    // As many encoders as threads exist at a time, so none of the memory is taken.
    let may_encode = ENCODER_BYTES <= worker.stakes.shares().max(Resource::Encoders);
    if bytes < CONTENT_BYTES_MIN || !may_encode {
        return None;
    }
    entry.making(form.number(), |making| {
        let (compute, message) = (compute.clone(), entry.message.clone());
        let entry = Rc::downgrade(entry);
        let cost = Duration::from_nanos(bytes as u64 * NS_PER_BYTE);
        task::spawn_local(async move {
            let job = message.clone();
            let work = move || {
                let (opcode, data) = form.data(&job);
                frame(opcode, &data)
            };
            let computed = compute.run(Class::Response, stream, cost, work).await;
            let frame = computed.map_or_else(|_| form.encode(&message), |done| done.value);
            making.finish(frame).await;
            // All that wait for it have it: a box in which nothing happens takes no memory for it.
            if let Some(entry) = entry.upgrade() {
                entry.forget_forms();
            }
        });
    })
}

/// A frame with `data`, compressed if that makes it smaller.
fn frame(opcode: Opcode, data: &[u8]) -> Vec<u8> {
    let deflated = deflate(data);
    let (is_compressed, content) = match deflated.len() < data.len() {
        true => (true, &*deflated),
        false => (false, data),
    };
    let header = FrameHeader::message(opcode, is_compressed, content.len() as u64);
    [header.as_bytes(), content].concat()
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = Compress::new(Compression::new(LEVEL), false);
    // Stored blocks add five bytes for each 16 KiB at least.
    let mut out = Vec::with_capacity(data.len() + data.len() / 1024 + 64);
    loop {
        let taken = encoder.total_in() as usize;
        let result = encoder.compress_vec(&data[taken..], &mut out, FlushCompress::Sync);
        let is_complete = encoder.total_in() as usize == data.len() && out.len() < out.capacity();
        if result.is_err() || is_complete {
            break;
        }
        out.reserve(out.capacity());
    }
    if out.ends_with(&FLUSHED) {
        out.truncate(out.len() - FLUSHED.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;

    fn inflate(deflated: &[u8], length: usize) -> Vec<u8> {
        let deflated = [deflated, &FLUSHED].concat();
        let mut out = Vec::with_capacity(length + 64);
        Decompress::new(false)
            .decompress_vec(&deflated, &mut out, FlushDecompress::Sync)
            .expect("DEFLATE");
        out
    }

    #[test]
    fn data_comes_back() {
        let noise: Vec<u8> = (0..200_000_u32)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for data in [&b""[..], b"Hello", &[b'x'; 100_000], &noise] {
            let deflated = deflate(data);
            assert_eq!(inflate(&deflated, data.len()), data);
        }
    }

    #[test]
    fn what_does_not_get_smaller_is_sent_as_it_is() {
        assert_eq!(frame(Opcode::Text, b"ab"), *b"\x81\x02ab");
        let compressed = frame(Opcode::Binary, &[b'x'; 1000]);
        assert_eq!(compressed[0], 0xc2);
        assert_eq!(usize::from(compressed[1]), compressed.len() - 2);
        assert_eq!(inflate(&compressed[2..], 1000), [b'x'; 1000]);
    }
}
