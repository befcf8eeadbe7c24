//! Tar, as POSIX 1003.1-2001 has it: ustar headers, before which pax records say what does not fit into them.
//!
//! Each member is a header, its content and [padding](push_padding); the archive ends with [`push_end`].

use super::Member;

/// Everything is a multiple of this, in bytes.
const BLOCK: usize = 512;

/// The length of the name in a header, in bytes.
const NAME_BYTES: usize = 100;

/// The largest size and time of a header: eleven octal digits.
const NUMBER_MAX: u64 = 0o777_7777_7777;

/// Appends the header of a member.
pub fn push_header(out: &mut Vec<u8>, member: &Member<'_>) {
    let slash: &[u8] = if member.is_folder { b"/" } else { b"" };
    let path = [member.path, slash].concat();
    let mut records = Vec::new();
    if path.len() > NAME_BYTES {
        push_record(&mut records, b"path", &path);
    }
    if member.size > NUMBER_MAX {
        push_record(&mut records, b"size", member.size.to_string().as_bytes());
    }
    let mtime = u64::try_from(member.mtime_s).ok();
    let mtime = mtime.filter(|&mtime| mtime <= NUMBER_MAX);
    if mtime.is_none() {
        push_record(
            &mut records,
            b"mtime",
            member.mtime_s.to_string().as_bytes(),
        );
    }
    if !records.is_empty() {
        let size = records.len() as u64;
        push_block(out, b"pax", b'x', size, 0);
        out.extend_from_slice(&records);
        push_padding(out, size);
    }
    let kind = if member.is_folder { b'5' } else { b'0' };
    push_block(out, &path, kind, member.size, mtime.unwrap_or(0));
}

/// Appends what follows `size` bytes of content.
pub fn push_padding(out: &mut Vec<u8>, size: u64) {
    let used = (size % BLOCK as u64) as usize;
    if used > 0 {
        out.resize(out.len() + BLOCK - used, 0);
    }
}

/// Appends the end of the archive.
pub fn push_end(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

/// A header. Numbers and paths that do not fit are in records before it.
fn push_block(out: &mut Vec<u8>, path: &[u8], kind: u8, size: u64, mtime: u64) {
    let mut block = [0; BLOCK];
    let name = &path[..path.len().min(NAME_BYTES)];
    block[..name.len()].copy_from_slice(name);
    let mode = if kind == b'5' { 0o755 } else { 0o644 };
    put_octal(&mut block[100..107], mode);
    put_octal(&mut block[108..115], 0);
    put_octal(&mut block[116..123], 0);
    // A reader that does not know the record sees the start of the file, instead of a wrong size.
    put_octal(&mut block[124..135], size.min(NUMBER_MAX));
    put_octal(&mut block[136..147], mtime);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    // The checksum counts its own field as spaces.
    block[148..156].fill(b' ');
    let sum = block.iter().map(|&byte| u64::from(byte)).sum();
    put_octal(&mut block[148..154], sum);
    block[154] = 0;
    out.extend_from_slice(&block);
}

/// Fills `field` with octal digits.
fn put_octal(field: &mut [u8], mut number: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (number & 7) as u8;
        number >>= 3;
    }
}

/// A pax record: its length with all of itself, a space, and `key=value`.
fn push_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + b" =\n".len();
    let digits = |number: usize| number.to_string().len();
    let mut length = rest + digits(rest);
    if digits(length) > digits(rest) {
        length = rest + digits(length);
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for bytes in 0..2000 {
            let mut out = Vec::new();
            push_record(&mut out, b"path", &vec![b'x'; bytes]);
            let text = String::from_utf8(out).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse(), Ok(text.len()));
        }
    }

    #[test]
    fn what_does_not_fit_is_in_records() {
        let mut out = Vec::new();
        push_header(
            &mut out,
            &Member {
                path: &[b'n'; 101],
                is_folder: false,
                size: NUMBER_MAX + 1,
                mtime_s: -1,
            },
        );
        assert_eq!(out.len(), 3 * BLOCK);
        assert_eq!((out[156], out[2 * BLOCK + 156]), (b'x', b'0'));
        let records = String::from_utf8_lossy(&out[BLOCK..2 * BLOCK]);
        let expected = format!(
            "111 path={}\n19 size=8589934592\n12 mtime=-1\n",
            "n".repeat(101)
        );
        assert_eq!(records.trim_end_matches('\0'), expected);
    }

    #[test]
    fn everything_is_whole_blocks() {
        for size in [0, 1, 511, 512, 513] {
            let mut out = vec![0; size];
            push_padding(&mut out, size as u64);
            assert!(out.len() % BLOCK == 0 && out.len() - size < BLOCK);
        }
    }
}
