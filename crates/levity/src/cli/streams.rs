//! The output of commands.

use std::ffi::OsString;
use std::io::Write;

/// The output of a command.
pub struct Streams<'s> {
    /// Data.
    pub out: &'s mut dyn Write,
    /// Messages for people.
    pub err: &'s mut dyn Write,
    /// Whether messages may be coloured.
    pub colour: bool,
}

impl Streams<'_> {
    // A closed pipe is no reason to fail: the exit status still gives the result.
    pub(super) fn out(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes());
    }

    pub(super) fn err(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
    }
}

/// Whether messages may be coloured: for people at a terminal who have not declined it. `no_color` and
/// `term` are the variables `NO_COLOR` (<https://no-color.org>) and `TERM`.
#[must_use]
pub fn colour(terminal: bool, no_color: Option<OsString>, term: Option<OsString>) -> bool {
    terminal
        && no_color.is_none_or(|value| value.is_empty())
        && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_people_who_want_it() {
        let some = |text: &str| Some(OsString::from(text));
        assert!(colour(true, None, some("xterm")) && colour(true, some(""), None));
        assert!(!colour(false, None, some("xterm")));
        assert!(!colour(true, some("1"), some("xterm")) && !colour(true, None, some("dumb")));
    }
}
