//! Decodes the Huffman code of header fields (RFC 7541, 5.2 and appendix B). Responses do not use it: it would cost more time than the
//! bytes that it saves.

/// The end of a string: its code never occurs whole, and its first bits fill the last byte.
const END: usize = 256;

/// The length in bits of the code of each byte, and of [`END`]. The code is canonical: codes of a length follow each other in the
/// order of the bytes, so that the lengths are all of it.
const LENGTHS: [u8; END + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LENGTH_MAX: u8 = 30;

/// The maximum number of bits that fill the last byte.
const FILL_BITS_MAX: u8 = 7;

/// Inner nodes of the tree of the code.
const NODES: usize = END;

/// What four bits lead to from an inner node.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    /// The byte whose code has ended on the way, if there is one. No code is shorter than four bits, so there is at most one.
    byte: Option<u8>,
    /// The code of [`END`] has ended on the way.
    is_end: bool,
}

/// A node, or a symbol plus [`NODES`].
type Children = [u16; 2];

static STEPS: [[Step; 16]; NODES] = steps(&tree());

/// Whether the bits that led to each node may fill the last byte.
static MAY_FILL: [bool; NODES] = fills(&tree());

/// The tree, whose root is the first node.
const fn tree() -> [Children; NODES] {
    let mut tree = [[0; 2]; NODES];
    let (mut nodes, mut code, mut length) = (1, 0_u32, 1);
    while length <= LENGTH_MAX {
        code <<= 1;
        let mut symbol = 0;
        while symbol <= END {
            if LENGTHS[symbol] == length {
                let mut node = 0;
                let mut bit = length - 1;
                while bit > 0 {
                    let side = (code >> bit & 1) as usize;
                    if tree[node][side] == 0 {
                        tree[node][side] = nodes;
                        nodes += 1;
                    }
                    node = tree[node][side] as usize;
                    bit -= 1;
                }
                tree[node][(code & 1) as usize] = (NODES + symbol) as u16;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    tree
}

const fn steps(tree: &[Children; NODES]) -> [[Step; 16]; NODES] {
    let none = Step {
        node: 0,
        byte: None,
        is_end: false,
    };
    let mut steps = [[none; 16]; NODES];
    let mut start = 0;
    while start < NODES {
        let mut bits = 0;
        while bits < 16 {
            steps[start][bits] = walk(tree, start, bits);
            bits += 1;
        }
        start += 1;
    }
    steps
}

const fn walk(tree: &[Children; NODES], start: usize, bits: usize) -> Step {
    let (mut node, mut byte, mut is_end, mut bit) = (start, None, false, 4);
    while bit > 0 {
        bit -= 1;
        let next = tree[node][bits >> bit & 1] as usize;
        node = match next.checked_sub(NODES) {
            None => next,
            Some(END) => {
                is_end = true;
                0
            }
            Some(symbol) => {
                byte = Some(symbol as u8);
                0
            }
        };
    }
    Step {
        node: node as u8,
        byte,
        is_end,
    }
}

const fn fills(tree: &[Children; NODES]) -> [bool; NODES] {
    let mut fills = [false; NODES];
    let (mut node, mut bits) = (0, 0);
    while bits <= FILL_BITS_MAX {
        fills[node] = true;
        node = tree[node][1] as usize;
        bits += 1;
    }
    fills
}

/// Appends the decoded `code` to `out`. False if it is malformed.
pub(super) fn decode(code: &[u8], out: &mut Vec<u8>) -> bool {
    let mut node = 0;
    for byte in code {
        for bits in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(node)][usize::from(bits)];
            if step.is_end {
                return false;
            }
            out.extend(step.byte);
            node = step.node;
        }
    }
    MAY_FILL[usize::from(node)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_decoded(code: &[u8], text: Option<&[u8]>) {
        let mut out = Vec::new();
        let decoded = decode(code, &mut out).then_some(out);
        assert_eq!(decoded.as_deref(), text);
    }

    /// The examples of RFC 7541, C.4 and C.6.
    #[test]
    fn examples() {
        let code = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_decoded(&code, Some(b"www.example.com"));
        assert_decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], Some(b"no-cache"));
        assert_decoded(&[0x64, 0x02], Some(b"302"));
        assert_decoded(&[], Some(b""));
    }

    /// RFC 7541, 5.2: the last byte is filled with at most seven one bits, and the code of the end is an error.
    #[test]
    fn the_last_byte_is_filled_with_ones() {
        assert_decoded(&[0b0000_0111], Some(b"0"));
        assert_decoded(&[0b0000_0110], None);
        assert_decoded(&[0b0000_0000], None);
        assert_decoded(&[0xff], None);
        assert_decoded(&[0b1111_1000, 0xff], None);
        assert_decoded(&[0xff, 0xff, 0xff, 0xff], None);
        assert_decoded(&[0xff, 0xff, 0xff, 0xfc], None);
    }

    #[test]
    fn every_byte_has_a_code() {
        for byte in 0..=255_u8 {
            let symbols = (0..=END).filter(|&symbol| {
                let (own, other) = (LENGTHS[usize::from(byte)], LENGTHS[symbol]);
                (other, symbol) < (own, usize::from(byte))
            });
            let length = LENGTHS[usize::from(byte)];
            // Each shorter code takes as many of this length as there are bits to append.
            let code: u64 = symbols.map(|symbol| 1 << (length - LENGTHS[symbol])).sum();
            let bits = code << (40 - length) | ((1 << (40 - length)) - 1);
            let bytes = &bits.to_be_bytes()[3..3 + usize::from(length.div_ceil(8))];
            assert_decoded(bytes, Some(&[byte]));
        }
    }
}
