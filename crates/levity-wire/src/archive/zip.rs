//! Zip (PKWARE APPNOTE 6.3.10), written as a stream, with the extensions for large files and archives (zip64).
//!
//! The content is not compressed, but in stored blocks of Deflate (RFC 1951, 3.2.4): they tell where it ends. The checksum
//! is known after the content, and an entry that is plainly stored and has its length after it cannot be read from a pipe.

use super::Member;
use crate::calendar::Utc;

/// From this size on a member has 64-bit fields. It is less than 4 GiB by what blocks add.
const LARGE: u64 = 0xff00_0000;

/// The value of a 32-bit field whose true value is in a 64-bit one.
const ELSEWHERE: u32 = u32::MAX;

/// The maximum number of bytes in a stored block.
const BLOCK_MAX: usize = 65_535;

/// The size of a part of the directory in bytes: it may have megabytes, which must not be moved when it grows.
const PART_BYTES: usize = 64 * 1024;

/// Made by version 4.5 on Unix.
const MADE_BY: u16 = 3 << 8 | 45;

/// Sizes and checksum follow the content; the name is in UTF-8.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;

/// Deflate.
const METHOD: u16 = 8;

/// An archive up to a place between two members, or within one.
#[derive(Debug, Default)]
pub struct Zip {
    /// The bytes so far.
    offset: u64,
    members: u64,
    /// The directory at the end of the archive, so far.
    directory: Vec<Vec<u8>>,
    current: Option<Current>,
}

/// The member whose content is being written.
#[derive(Debug)]
struct Current {
    /// Its record in the directory, up to its checksum; then the rest, from the length of the name on.
    start: Vec<u8>,
    name: Vec<u8>,
    mtime_s: i64,
    is_folder: bool,
    is_large: bool,
    offset: u64,
    size: u64,
    stored: u64,
}

impl Zip {
    /// Memory of the directory in bytes.
    pub fn memory(&self) -> usize {
        self.directory.iter().map(Vec::capacity).sum()
    }

    /// Appends the header of a member. After it come calls of [`push_content`](Self::push_content) with `member.size` bytes
    /// in all, and [`end_member`](Self::end_member).
    pub fn begin_member(&mut self, out: &mut Vec<u8>, member: &Member<'_>) {
        let before = out.len();
        let slash: &[u8] = if member.is_folder { b"/" } else { b"" };
        let name = [member.path, slash].concat();
        let is_large = member.size >= LARGE;
        let mut fields = Vec::new();
        push_u16(&mut fields, if is_large { 45 } else { 20 });
        let utf8 = std::str::from_utf8(&name).map_or(0, |_| FLAG_UTF8);
        let (descriptor, method) = match member.is_folder {
            true => (0, 0),
            false => (FLAG_DESCRIPTOR, METHOD),
        };
        push_u16(&mut fields, descriptor | utf8);
        push_u16(&mut fields, method);
        push_dos_time(&mut fields, member.mtime_s);
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&fields);
        push_u32(out, 0);
        let size = if is_large { ELSEWHERE } else { 0 };
        push_u32(out, size);
        push_u32(out, size);
        let mut extra = Vec::new();
        if is_large {
            push_u16(&mut extra, 1);
            push_u16(&mut extra, 16);
            extra.extend_from_slice(&[0; 16]);
        }
        push_time(&mut extra, member.mtime_s);
        push_u16(out, name.len() as u16);
        push_u16(out, extra.len() as u16);
        out.extend_from_slice(&name);
        out.extend_from_slice(&extra);
        self.current = Some(Current {
            start: fields,
            name,
            mtime_s: member.mtime_s,
            is_folder: member.is_folder,
            is_large,
            offset: self.offset,
            size: 0,
            stored: 0,
        });
        self.offset += (out.len() - before) as u64;
    }

    /// Appends a part of the content of the present member.
    pub fn push_content(&mut self, out: &mut Vec<u8>, content: &[u8]) {
        let before = out.len();
        for block in content.chunks(BLOCK_MAX) {
            push_stored(out, block, false);
        }
        let stored = (out.len() - before) as u64;
        self.offset += stored;
        if let Some(current) = &mut self.current {
            current.size += content.len() as u64;
            current.stored += stored;
        }
    }

    /// Ends the present member; `crc` is the checksum of its content (ISO 3309, as in Ethernet and gzip).
    pub fn end_member(&mut self, out: &mut Vec<u8>, crc: u32) {
        let Some(mut current) = self.current.take() else {
            return;
        };
        let before = out.len();
        if !current.is_folder {
            push_stored(out, b"", true);
            current.stored += (out.len() - before) as u64;
            out.extend_from_slice(b"PK\x07\x08");
            push_u32(out, crc);
            for bytes in [current.stored, current.size] {
                match current.is_large {
                    true => push_u64(out, bytes),
                    false => push_u32(out, bytes as u32),
                }
            }
        }
        self.offset += (out.len() - before) as u64;
        self.members += 1;
        let record = current.record(crc);
        match self.directory.last_mut() {
            Some(part) if part.len() + record.len() <= PART_BYTES => part.extend(record),
            _ => {
                let mut part = Vec::with_capacity(PART_BYTES);
                part.extend(record);
                self.directory.push(part);
            }
        }
    }

    /// The end of the archive, in parts of about 64 KiB.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        let bytes: u64 = self.directory.iter().map(|part| part.len() as u64).sum();
        let mut end = Vec::new();
        let is_large =
            self.members >= 0xffff || self.offset >= ELSEWHERE.into() || bytes >= ELSEWHERE.into();
        if is_large {
            self.push_end64(&mut end, bytes);
        }
        let limited = |number: u64| u32::try_from(number).unwrap_or(ELSEWHERE);
        end.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let members = u16::try_from(self.members).unwrap_or(u16::MAX);
        push_u16(&mut end, members);
        push_u16(&mut end, members);
        push_u32(&mut end, limited(bytes));
        push_u32(&mut end, limited(self.offset));
        push_u16(&mut end, 0);
        self.directory.push(end);
        self.directory
    }

    /// The end with 64-bit fields, and where it is.
    fn push_end64(&self, end: &mut Vec<u8>, directory_bytes: u64) {
        end.extend_from_slice(b"PK\x06\x06");
        push_u64(end, 44);
        push_u16(end, MADE_BY);
        push_u16(end, 45);
        end.extend_from_slice(&[0; 8]);
        push_u64(end, self.members);
        push_u64(end, self.members);
        push_u64(end, directory_bytes);
        push_u64(end, self.offset);
        end.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        push_u64(end, self.offset + directory_bytes);
        push_u32(end, 1);
    }
}

impl Current {
    /// The record in the directory.
    fn record(&self, crc: u32) -> Vec<u8> {
        let mut wide = Vec::new();
        let mut narrow = |number: u64, is_wide: bool| match u32::try_from(number) {
            Ok(number) if !is_wide && number != ELSEWHERE => number,
            _ => {
                push_u64(&mut wide, number);
                ELSEWHERE
            }
        };
        let size = narrow(self.size, self.is_large);
        let stored = narrow(self.stored, self.is_large);
        let offset = narrow(self.offset, false);
        let mut extra = Vec::new();
        if !wide.is_empty() {
            push_u16(&mut extra, 1);
            push_u16(&mut extra, wide.len() as u16);
            extra.extend_from_slice(&wide);
        }
        push_time(&mut extra, self.mtime_s);
        let mut record = b"PK\x01\x02".to_vec();
        push_u16(&mut record, MADE_BY);
        record.extend_from_slice(&self.start);
        push_u32(&mut record, crc);
        push_u32(&mut record, stored);
        push_u32(&mut record, size);
        push_u16(&mut record, self.name.len() as u16);
        push_u16(&mut record, extra.len() as u16);
        // No comment, the first disk, no internal attributes.
        record.extend_from_slice(&[0; 6]);
        // The mode of Unix, and in the lower half the bit of a folder of DOS.
        push_u32(
            &mut record,
            match self.is_folder {
                true => 0o040_755 << 16 | 0x10,
                false => 0o100_644 << 16,
            },
        );
        push_u32(&mut record, offset);
        record.extend_from_slice(&self.name);
        record.extend_from_slice(&extra);
        record
    }
}

/// A stored block of Deflate; its three bits of header are followed by five of padding.
fn push_stored(out: &mut Vec<u8>, content: &[u8], is_last: bool) {
    let length = content.len() as u16;
    out.push(is_last.into());
    push_u16(out, length);
    push_u16(out, !length);
    out.extend_from_slice(content);
}

/// Time and date of DOS, from 1980 to 2107 in steps of two seconds; in UTC, since the reader's zone is unknown.
fn push_dos_time(out: &mut Vec<u8>, mtime_s: i64) {
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_199;
    let time = Utc::of(mtime_s.clamp(FIRST, LAST));
    let [hour, minute, second] = [time.hour, time.minute, time.second].map(u16::from);
    push_u16(out, hour << 11 | minute << 5 | (second / 2));
    let [month, day] = [time.month, time.day].map(u16::from);
    push_u16(out, (time.year - 1980) << 9 | month << 5 | day);
}

/// The extra field with the time of Unix, if it has 32 bits.
fn push_time(out: &mut Vec<u8>, mtime_s: i64) {
    if let Ok(seconds) = i32::try_from(mtime_s) {
        out.extend_from_slice(b"UT\x05\0\x01");
        out.extend_from_slice(&seconds.to_le_bytes());
    }
}

fn push_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn push_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn push_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}
