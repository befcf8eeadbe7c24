//! Characters that are safe to print on a terminal.

/// Whether a character affects nothing but its own position: it is no control character, no line or paragraph
/// separator, no mark of direction, and not of width zero.
pub(crate) fn is_printable(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !c.is_control() && !is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_printable_and_controls_are_not() {
        assert!("example.org/a b Grüße 日本 <&>".chars().all(is_printable));
        assert!(
            !"\x1b\r\n\u{9b}\u{202e}\u{200b}\u{feff}"
                .chars()
                .any(is_printable)
        );
    }
}
