//! Decimal numbers.

/// Appends `number`. Several times as fast as the formatter of the standard library.
pub fn push(out: &mut Vec<u8>, mut number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The number of one or more digits, and nothing else; `None` also on overflow.
pub fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The same without leading zeros: each number has one form.
#[must_use]
pub fn parse_canonical(digits: &[u8]) -> Option<u64> {
    parse(digits).filter(|_| digits == b"0" || !digits.starts_with(b"0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_standard_library() {
        for number in [0, 9, 10, 206, 1_048_576, u64::MAX] {
            let mut out = Vec::new();
            push(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
