//! What stands for decoders in a build without compression: there is no coding that could be decoded.

use std::convert::Infallible;

use levity_wire::encoding::Coding;

use crate::http::filter::FilterError;

/// The codings that can be decoded.
pub const CODINGS: [Coding; 0] = [];

/// A decoder: there is none.
#[derive(Debug)]
pub struct Decoder(Infallible);

/// What a decoder would keep of the content.
pub fn window_bytes_max(_: Coding) -> usize {
    0
}

impl Decoder {
    /// A decoder for one of [`CODINGS`].
    pub fn new(_: Coding) -> Self {
        unreachable!("nothing is decoded")
    }

    /// Decodes a piece.
    ///
    /// # Errors
    /// None.
    pub fn push(
        &mut self,
        _: &[u8],
        _: impl FnMut(&[u8]) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        match self.0 {}
    }

    /// Ends the body.
    ///
    /// # Errors
    /// None.
    pub fn finish(&self) -> Result<(), FilterError> {
        match self.0 {}
    }
}
