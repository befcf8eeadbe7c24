//! Writes the chunked body of a response (RFC 9112, 7.1).

use std::num::NonZeroUsize;

use levity_wire::http1::Trailers;
use levity_wire::http1::write::{self, CHUNK_END, ChunkSize};

/// The end of the last chunk with data, and of a body without trailers.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// How far a chunked body has been written.
pub(super) enum ChunkedBody {
    /// Up to the end of the header or of a chunk.
    BetweenChunks,
    /// Up to this byte of a chunk, counted from the start of its size line.
    InChunk { len: NonZeroUsize, written: usize },
    /// Up to these bytes at the end of the body.
    InEnd(Vec<u8>),
}

/// The unwritten rest of a chunk.
pub(super) struct Chunk<'a> {
    size: ChunkSize,
    size_written: usize,
    data: &'a [u8],
    end: &'static [u8],
    is_last: bool,
}

impl Chunk<'_> {
    /// The rest of the size line, of the data and of the end.
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        let size = &self.size.as_bytes()[self.size_written..];
        [size, self.data, self.end]
    }
}

impl ChunkedBody {
    /// The unwritten rest of the current chunk, of whose data `data` is unwritten. Between chunks, a new chunk with all
    /// of `data`; `None` if that is empty, because an empty chunk would end the body.
    pub(super) fn chunk<'a>(&mut self, data: &'a [u8], is_last: bool) -> Option<Chunk<'a>> {
        if let (Self::BetweenChunks, Some(len)) = (&self, NonZeroUsize::new(data.len())) {
            *self = Self::InChunk { len, written: 0 };
        }
        let Self::InChunk { len, written } = *self else {
            return None;
        };
        debug_assert!(data.len() <= len.get(), "the rest of the chunk's data");
        let size = ChunkSize::of(len);
        let size_bytes = size.as_bytes().len();
        let end = if is_last { LAST_CHUNK } else { CHUNK_END };
        Some(Chunk {
            size,
            size_written: written.min(size_bytes),
            data,
            end: &end[written.saturating_sub(size_bytes + len.get())..],
            is_last,
        })
    }

    /// Records that `bytes` of `chunk` have been written. Returns the number of data bytes among them, and whether the
    /// chunk is complete.
    pub(super) fn wrote(&mut self, chunk: &Chunk<'_>, bytes: usize) -> (usize, bool) {
        let [size, data, end] = chunk.parts().map(<[u8]>::len);
        let is_complete = bytes == size + data + end;
        if is_complete {
            *self = match chunk.is_last {
                true => Self::InEnd(Vec::new()),
                false => Self::BetweenChunks,
            };
        } else if let Self::InChunk { written, .. } = self {
            *written += bytes;
        }
        (bytes.saturating_sub(size).min(data), is_complete)
    }

    /// The unwritten bytes at the end of the body: the last chunk with `trailers`.
    pub(super) fn end(&mut self, trailers: &Trailers) -> &mut Vec<u8> {
        if !matches!(self, Self::InEnd(_)) {
            let mut end = Vec::new();
            write::last_chunk(&mut end, trailers.fields())
                .expect("fields that a parser accepted can be written");
            *self = Self::InEnd(end);
        }
        match self {
            Self::InEnd(end) => end,
            _ => unreachable!("the end was made above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body that a client receives if `pieces` are written `step` bytes at a time.
    fn written(pieces: &[&[u8]], ends_with_last: bool, step: usize) -> String {
        let (mut body, mut out) = (ChunkedBody::BetweenChunks, Vec::new());
        for (index, piece) in pieces.iter().enumerate() {
            let is_last = ends_with_last && index + 1 == pieces.len();
            let (mut sent, mut is_complete) = (0, false);
            while !is_complete {
                let chunk = body.chunk(&piece[sent..], is_last).expect("a chunk");
                let rest = chunk.parts().concat();
                let bytes = rest.len().min(step);
                out.extend_from_slice(&rest[..bytes]);
                let data;
                (data, is_complete) = body.wrote(&chunk, bytes);
                sent += data;
            }
            assert_eq!(sent, piece.len());
            assert!(body.chunk(b"", false).is_none());
        }
        out.append(body.end(&Trailers::default()));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_chunk_may_be_cut_anywhere() {
        let pieces: [&[u8]; 2] = [b"seventeen bytes..", b"x"];
        for step in 1..40 {
            let expected = "11\r\nseventeen bytes..\r\n1\r\nx\r\n0\r\n\r\n";
            assert_eq!(written(&pieces, false, step), expected);
            assert_eq!(written(&pieces, true, step), expected);
        }
    }
}
