//! Compressed header sections (HPACK, RFC 7541).

mod decode;
mod encode;
mod huffman;
mod table;

pub(super) use decode::Decoder;
pub use encode::FieldBlock;
pub(super) use encode::NO_TABLE;
