//! Reads the records of a whole segment.

use super::index::{Builder, Index};
use super::record::{self, Bad};
use super::segment::Header;

/// What a segment has.
pub(super) struct Scan {
    pub index: Index,
    /// Records that are wrong.
    pub bad: usize,
}

/// Reads the records of the segment with that number, whose content is `bytes`. `None` if its header is wrong.
///
/// It ends with the first record that is cut or wrong. But before `required`, up to where it was synced, a wrong record is no
/// end, if another one follows.
pub(super) fn scan(bytes: &[u8], number: u32, required: u32) -> Option<Scan> {
    let (header, mut at) = Header::decode(bytes)?;
    if header.number != number {
        return None;
    }
    let (mut builder, mut bad) = (Builder::default(), 0);
    loop {
        match record::decode(&bytes[at..]) {
            Ok(record) => {
                builder.add(record, at as u32);
                at += record.len;
            }
            Err(Bad::Wrong(len)) if goes_on(bytes, at + len, required) => {
                bad += 1;
                at += len;
            }
            Err(_) => break,
        }
    }
    let index = builder.build(number, at as u32);
    Some(Scan { index, bad })
}

fn goes_on(bytes: &[u8], next: usize, required: u32) -> bool {
    next <= required as usize && (next == bytes.len() || record::decode(&bytes[next..]).is_ok())
}
