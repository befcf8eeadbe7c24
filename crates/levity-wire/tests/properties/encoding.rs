//! Accept-Encoding.

use levity_wire::encoding::{Accepted, Coding};

/// The chosen coding was offered and is acceptable; it does not depend on the order and lines of
/// the elements, nor on the other codings offered.
pub fn encoding(bytes: &[u8]) {
    let accepted = Accepted::parse(bytes.split(|&byte| byte == b'\n'));
    let choices = accepted.choices(&Coding::ALL);
    for pair in choices.windows(2) {
        assert!(accepted.weight(pair[0]) >= accepted.weight(pair[1]));
    }
    for coding in Coding::ALL {
        let alone = accepted.choices(&[coding]);
        assert_eq!(alone.contains(&coding), choices.contains(&coding));
        assert!(alone.is_empty() || accepted.weight(coding) > 0);
    }
    let mut elements: Vec<&[u8]> = bytes.split(|byte| b",\n".contains(byte)).collect();
    elements.reverse();
    assert_eq!(Accepted::parse(elements.iter().copied()), accepted);
    assert_eq!(Accepted::parse([&elements.join(&b',')[..]]), accepted);
    assert!(accepted.choices(&[]).is_empty());
}
