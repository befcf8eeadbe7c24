//! The Accept-Encoding header: the content codings that a client accepts (RFC 9110, 12.5.3).

use crate::http1::trim;

/// A content coding (RFC 9110, 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard with a dictionary that the client has (RFC 9842, 5).
    Dcz,
    /// Brotli with a dictionary that the client has (RFC 9842, 4).
    Dcb,
}

impl Coding {
    /// The codings that need nothing but the content, ordered by typical compression ratio, the best first.
    pub const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// The codings that need a dictionary. Only a client that names one accepts it, not one with `*`.
    pub const WITH_DICTIONARY: [Coding; 2] = [Coding::Dcz, Coding::Dcb];

    /// All of them, in the order of the enum.
    const KNOWN: [Coding; 5] = [
        Coding::Zstd,
        Coding::Brotli,
        Coding::Gzip,
        Coding::Dcz,
        Coding::Dcb,
    ];

    /// As in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
            Coding::Dcz => "dcz",
            Coding::Dcb => "dcb",
        }
    }

    /// The coding that compresses in the same way with a dictionary, if there is one.
    pub fn with_dictionary(self) -> Option<Coding> {
        match self {
            Coding::Zstd | Coding::Dcz => Some(Coding::Dcz),
            Coding::Brotli | Coding::Dcb => Some(Coding::Dcb),
            Coding::Gzip => None,
        }
    }
}

/// The largest weight; weights are counted in thousandths (RFC 9110, 12.4.2).
pub(crate) const WEIGHT_MAX: u16 = 1000;

/// The weight of each coding; `None` for a coding that the client does not list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    codings: [Option<u16>; Coding::KNOWN.len()],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepted {
    /// Parses all Accept-Encoding lines of a request. Without any, no coding is acceptable: such a
    /// client most likely supports none, although RFC 9110 would allow any.
    ///
    /// Invalid elements and unknown codings are ignored. If a coding is listed twice the smaller
    /// weight counts, so that the order of the elements never matters.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Accepted {
        let mut accepted = Accepted::default();
        for line in lines {
            for element in line.split(|&byte| byte == b',') {
                if let Some((name, weight)) = element_of(element)
                    && let Some(slot) = accepted.slot(name)
                {
                    *slot = Some(slot.map_or(weight, |other| other.min(weight)));
                }
            }
        }
        accepted
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<u16>> {
        if name == b"*" {
            return Some(&mut self.any);
        }
        if name.eq_ignore_ascii_case(b"identity") {
            return Some(&mut self.identity);
        }
        // RFC 9110, 8.4.1.3: "x-gzip" is "gzip".
        let name = match name {
            name if name.eq_ignore_ascii_case(b"x-gzip") => b"gzip",
            name => name,
        };
        let is_named = |coding: &Coding| name.eq_ignore_ascii_case(coding.name().as_bytes());
        let number = Coding::KNOWN.iter().position(is_named)?;
        Some(&mut self.codings[number])
    }

    /// In thousandths; 0 is "not acceptable".
    pub fn weight(&self, coding: Coding) -> u16 {
        let named = self.codings[coding as usize];
        let any = self.any.filter(|_| Coding::ALL.contains(&coding));
        named.or(any).unwrap_or(0)
    }

    /// The weight of content without a coding: unless listed, it is acceptable, but has a lower
    /// weight than any listed coding. `*;q=0` excludes it too.
    fn weight_of_identity(&self) -> u16 {
        self.identity
            .or(self.any.filter(|&any| any == 0))
            .unwrap_or(1)
    }

    /// The codings of `offered` that the client prefers to content without one, by descending
    /// weight; equal weights keep the given order.
    pub fn choices(&self, offered: &[Coding]) -> Vec<Coding> {
        let mut choices: Vec<Coding> = offered
            .iter()
            .copied()
            .filter(|&coding| self.goes_before_identity(coding))
            .collect();
        choices.sort_by_key(|&coding| std::cmp::Reverse(self.weight(coding)));
        choices
    }

    /// Whether a client prefers this coding to none.
    fn goes_before_identity(&self, coding: Coding) -> bool {
        let weight = self.weight(coding);
        weight > 0 && weight >= self.weight_of_identity()
    }
}

/// `token [ OWS ";" OWS "q=" qvalue ]`
fn element_of(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = element.split(|&byte| byte == b';').map(trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = match (parts.next(), parts.next()) {
        (None, _) => WEIGHT_MAX,
        (Some(weight), None) => weight_of(weight)?,
        _ => return None,
    };
    Some((name, weight))
}

/// `"q=" ( "0" [ "." 0*3DIGIT ] / "1" [ "." 0*3("0") ] )`, in thousandths.
pub(crate) fn weight_of(text: &[u8]) -> Option<u16> {
    let (name, value) = text.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, fraction) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] => (whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |index: usize| {
        fraction
            .get(index)
            .map_or(0, |digit| u16::from(digit - b'0'))
    };
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(WEIGHT_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Gzip, Zstd};
    use super::*;

    fn choices(value: &str) -> Vec<Coding> {
        Accepted::parse([value.as_bytes()]).choices(&Coding::ALL)
    }

    #[test]
    fn choices_follow_weights_then_our_order() {
        for (value, expected) in [
            ("", &[][..]),
            ("gzip", &[Gzip]),
            ("gzip, br", &[Brotli, Gzip]),
            ("gzip, deflate, br, zstd", &[Zstd, Brotli, Gzip]),
            ("gzip;q=1.0, br;q=0.9", &[Gzip, Brotli]),
            ("GZIP ; Q=0.001", &[Gzip]),
            ("x-gzip", &[Gzip]),
            ("*", &[Zstd, Brotli, Gzip]),
            ("*, br;q=0", &[Zstd, Gzip]),
            ("*;q=0", &[]),
            ("*;q=0, gzip", &[Gzip]),
            ("gzip;q=0", &[]),
            ("identity", &[]),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.5", &[Brotli]),
            ("identity;q=0, gzip;q=0.1", &[Gzip]),
            ("identity, *;q=0.5", &[]),
            ("gzip\t;\tq=0.5 ,,\t, br", &[Brotli, Gzip]),
            ("gzip, gzip;q=0", &[]),
            ("gzip;q=0, gzip", &[]),
        ] {
            assert_eq!(choices(value), expected, "{value}");
        }
    }

    #[test]
    fn bad_syntax_is_ignored() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;q=1;q=1",
            "gzip;level=9",
            "gzip br",
            ";q=1",
            "gzip;q= 1",
            "gzip;q=.5",
            "gz\u{ff}ip",
        ] {
            assert_eq!(choices(value), [], "{value}");
        }
        assert_eq!(choices("gzip;q=2, br"), [Brotli]);
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [&b"gzip"[..], b"br;q=0.5"];
        assert_eq!(
            Accepted::parse(lines).choices(&[Brotli, Gzip]),
            [Gzip, Brotli]
        );
    }

    #[test]
    fn only_offered_codings_are_chosen() {
        let any = Accepted::parse([&b"*"[..]]);
        assert_eq!(any.choices(&[Gzip, Zstd]), [Gzip, Zstd]);
        assert_eq!(any.choices(&[]), []);
    }

    #[test]
    fn codings_with_a_dictionary_have_to_be_named() {
        let choices = |value: &str| {
            let accepted = Accepted::parse([value.as_bytes()]);
            accepted.choices(&Coding::WITH_DICTIONARY)
        };
        assert_eq!(choices("*"), []);
        assert_eq!(choices("dcb, *"), [Coding::Dcb]);
        assert_eq!(choices("gzip, dcb, dcz"), Coding::WITH_DICTIONARY);
        assert_eq!(choices("dcb, dcz;q=0"), [Coding::Dcb]);
    }

    #[test]
    fn weights_are_in_thousandths() {
        let accepted = Accepted::parse([&b"gzip;q=0.25, br;q=1.000, *;q=0."[..]]);
        let weights = Coding::ALL.map(|coding| accepted.weight(coding));
        assert_eq!(weights, [0, 1000, 250]);
    }
}
