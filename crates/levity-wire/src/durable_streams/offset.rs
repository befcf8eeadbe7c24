//! Offsets: positions in a stream (section 8).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The hexadecimal digits of each part of an offset. All offsets have as many, so that their order as texts is their order as
/// numbers.
const DIGITS: usize = 16;

/// A position in a stream, written `LIFE_POSITION` with 16 hexadecimal digits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offset {
    /// The life of the stream. A stream that has lost content, or was made anew, has a later one, so that an offset of the old
    /// one is recognised. 0 stands for any life, at position 0 only.
    pub life: u64,
    /// The number of the append that ends at this position. Numbers grow, not necessarily by one.
    pub position: u64,
}

impl Offset {
    /// The start of any stream.
    pub const ZERO: Self = Self {
        life: 0,
        position: 0,
    };
}

impl fmt::Display for Offset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { life, position } = self;
        write!(formatter, "{life:0DIGITS$x}_{position:0DIGITS$x}")
    }
}

/// A text that is no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoOffset;

impl FromStr for Offset {
    type Err = NoOffset;

    /// Accepts only what [`fmt::Display`] writes, so that an offset has one spelling.
    fn from_str(text: &str) -> Result<Self, NoOffset> {
        let (life, position) = text.split_once('_').ok_or(NoOffset)?;
        Ok(Self {
            life: number(life)?,
            position: number(position)?,
        })
    }
}

fn number(digits: &str) -> Result<u64, NoOffset> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match digits.len() == DIGITS && digits.bytes().all(is_digit) {
        true => u64::from_str_radix(digits, 16).map_err(|_| NoOffset),
        false => Err(NoOffset),
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the start of the stream, written `-1`.
    Beginning,
    /// With what is appended from now on, written `now`.
    Now,
    /// At this position.
    At(Offset),
}

impl FromStr for Start {
    type Err = NoOffset;

    fn from_str(text: &str) -> Result<Self, NoOffset> {
        match text {
            "-1" => Ok(Self::Beginning),
            "now" => Ok(Self::Now),
            offset => offset.parse().map(Self::At),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_one_spelling() {
        let largest = Offset {
            life: u64::MAX,
            position: u64::MAX,
        };
        for (offset, text) in [
            (Offset::ZERO, "0000000000000000_0000000000000000"),
            (largest, "ffffffffffffffff_ffffffffffffffff"),
        ] {
            assert_eq!(offset.to_string(), text);
            assert_eq!(text.parse(), Ok(offset));
        }
        for text in [
            "",
            "_",
            "0_0",
            "0000000000000000",
            "0000000000000000_",
            "0000000000000000_000000000000000",
            "0000000000000000_00000000000000000",
            "0000000000000000-0000000000000000",
            "+000000000000000_0000000000000000",
            "0000000000000000_000000000000000g",
            "0000000000000000_000000000000000A",
            "0000000000000000_0000000000000000\n",
        ] {
            assert_eq!(text.parse::<Offset>(), Err(NoOffset), "{text}");
        }
    }

    #[test]
    fn the_order_of_texts_is_that_of_positions() {
        let texts = [(0, 0), (1, 0), (1, 9), (1, 10), (1, 1 << 40), (2, 0)]
            .map(|(life, position)| Offset { life, position }.to_string());
        assert!(texts.is_sorted());
        // The start of any stream is the smallest, and what has a meaning of its own is no offset.
        assert!(texts.iter().all(|text| text != "-1" && text != "now"));
    }

    #[test]
    fn starts() {
        assert_eq!("-1".parse(), Ok(Start::Beginning));
        assert_eq!("now".parse(), Ok(Start::Now));
        let start = Start::At(Offset::ZERO);
        assert_eq!("0000000000000000_0000000000000000".parse(), Ok(start));
        for text in ["", "NOW", "-2", "0", "latest"] {
            assert_eq!(text.parse::<Start>(), Err(NoOffset), "{text}");
        }
    }
}
