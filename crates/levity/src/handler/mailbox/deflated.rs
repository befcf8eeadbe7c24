//! Compression of messages for WebSockets (RFC 7692), off the event loop.

use std::borrow::Cow;
use std::io::Write as _;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use levity_compute::Class;
use levity_mailbox::{Budget, Encoded, Entry, Making, Message};
use levity_wire::websocket;

use super::forms::Form;
use super::grip_item::content;
use crate::loop_core::{self, LoopCore};
use crate::shares::Resource;

/// Messages with less content in bytes are sent as they are: a job takes longer than what it would save.
const CONTENT_BYTES_MIN: usize = 256;

/// The level of DEFLATE.
const LEVEL: u32 = 6;

/// The memory of an encoder in bytes, as measured for gzip.
const ENCODER_BYTES: usize = 416 * 1024;

/// The processor time per byte, estimated.
const NS_PER_BYTE: u64 = 18;

/// The headers of few blocks of DEFLATE in bytes, and a flush.
const BLOCK_BYTES: usize = 64;

/// What a flushed block of DEFLATE ends with, and a message does not (RFC 7692, 7.2.1).
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

/// The compressed frame of a message for all receivers of the event loop, which the first of them starts. `None` for one
/// that is sent as it is, also if there is no memory for the frame.
pub fn making(
    core: &Rc<LoopCore>,
    budget: &Arc<Budget>,
    stream: u64,
    form: Form,
    entry: &Rc<Entry>,
) -> Option<Rc<Making>> {
    let bytes = content(&entry.message, false).1.len();
    let compute = &core.compute;
    // As many encoders as threads exist at a time, so none of the memory is taken.
    let may_encode = ENCODER_BYTES <= core.stakes.shares().max(Resource::Encoders);
    if bytes < CONTENT_BYTES_MIN || !may_encode {
        return None;
    }
    let reserve = || budget.try_reserve_for_form(bytes);
    entry.making(form.number(), reserve, |making, mut reservation| {
        let (compute, message) = (compute.clone(), entry.message.clone());
        let entry = Rc::downgrade(entry);
        let cost = Duration::from_nanos(bytes as u64 * NS_PER_BYTE);
        loop_core::spawn(async move {
            let work = move || frame(form, &message);
            let computed = compute.run(Class::Response, stream, cost, work).await;
            let frame = computed.ok().and_then(|computed| computed.value);
            let frame = frame.map(|frame| {
                let _ = reservation.try_resize(frame.len());
                Encoded::counted(frame, reservation)
            });
            making.finish(frame).await;
            // All that wait for it have it: a box in which nothing happens takes no memory for it.
            if let Some(entry) = entry.upgrade() {
                entry.forget_forms();
            }
        });
    })
}

/// A compressed frame with the message, if that is shorter than its content.
fn frame(form: Form, message: &Message) -> Option<Vec<u8>> {
    let (_, content) = content(message, false);
    let is_text = form.is_text(message);
    let parts = (0..form.parts(message)).map(|number| form.data(message, number, is_text));
    let deflated = deflate(parts, content.len())?;
    Some(websocket::frame(form.opcode(is_text), true, &deflated))
}

/// Compresses `parts`; `None` if that takes `bytes_max` bytes or more.
fn deflate<'d>(parts: impl Iterator<Item = Cow<'d, [u8]>>, bytes_max: usize) -> Option<Vec<u8>> {
    // Also what cannot be compressed has room, with the headers of its blocks.
    let out = Vec::with_capacity(bytes_max + bytes_max / 1024 + BLOCK_BYTES);
    let mut encoder = DeflateEncoder::new(out, Compression::new(LEVEL));
    for part in parts {
        encoder.write_all(&part).ok()?;
    }
    encoder.flush().ok()?;
    let mut out = mem::take(encoder.get_mut());
    if out.ends_with(&FLUSHED) {
        out.truncate(out.len() - FLUSHED.len());
    }
    (out.len() < bytes_max).then_some(out)
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

    fn deflate(data: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        super::deflate(data.chunks(1000).map(Cow::from), bytes_max)
    }

    #[test]
    fn data_comes_back() {
        let noise: Vec<u8> = (0..200_000_u32)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for data in [&b""[..], b"Hello", &[b'x'; 100_000], &noise] {
            let deflated = deflate(data, data.len() + 1000).expect("room");
            assert_eq!(inflate(&deflated, data.len()), data);
        }
    }

    #[test]
    fn what_does_not_get_smaller_is_sent_as_it_is() {
        assert_eq!(deflate(b"ab", 2), None);
        let deflated = deflate(&[b'x'; 1000], 1000).expect("smaller");
        assert!(deflated.len() < 1000);
        let bytes = deflated.len();
        assert_eq!(deflate(&[b'x'; 1000], bytes), None);
        assert_eq!(deflate(&[b'x'; 1000], bytes + 1), Some(deflated));
    }
}
