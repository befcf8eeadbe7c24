//! What applications have to say to their operator, in our diagnostics.
//!
//! One request can make an application say more than anybody reads, and each line takes time on the
//! loop: so much is passed on, and of the rest how much it was.

use std::sync::Arc;

use super::Upstream;
use crate::diagnostics;

/// Bytes of what is said during one request that are passed on.
pub const BYTES_MAX: usize = 32 * 1024;

/// Lines of it; pieces of a line that comes in pieces count as lines.
pub const LINES_MAX: usize = 128;

/// What an application says during one request. Takes no memory until it says something.
#[derive(Default)]
pub struct Stderr(Option<Box<Said>>);

struct Said {
    upstream: Arc<Upstream>,
    left: Left,
}

impl Stderr {
    /// Passes each line of `text`, which may be cut anywhere, on. An application chose the bytes, so those
    /// that a terminal would act upon are escaped.
    pub fn tell(&mut self, upstream: &Arc<Upstream>, text: &[u8]) {
        let new = || {
            let (upstream, left) = (upstream.clone(), Left::default());
            Box::new(Said { upstream, left })
        };
        let said = self.0.get_or_insert_with(new);
        let name = &said.upstream.settings.name;
        said.left.share(text, |line| {
            diagnostics::say(format_args!(
                "upstream {name} says: {}",
                line.escape_ascii()
            ));
        });
    }
}

impl Drop for Said {
    /// The request is over.
    fn drop(&mut self) {
        let (name, bytes) = (&self.upstream.settings.name, self.left.out_bytes);
        if bytes > 0 {
            diagnostics::say(format_args!(
                "upstream {name} says more for one request than is passed on: {bytes} bytes are left out"
            ));
        }
    }
}

/// What may still be passed on, and what was not.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    bytes: usize,
    lines: usize,
    out_bytes: u64,
}

impl Default for Left {
    fn default() -> Self {
        Self {
            bytes: BYTES_MAX,
            lines: LINES_MAX,
            out_bytes: 0,
        }
    }
}

impl Left {
    /// Calls `say` with each line of `text` that has anything in it, as long as there is something left.
    fn share(&mut self, text: &[u8], mut say: impl FnMut(&[u8])) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.bytes == 0 || self.lines == 0 {
                self.out_bytes += rest.trim_ascii().len() as u64;
                return;
            }
            let end = rest.iter().position(|&byte| byte == b'\n');
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = behind;
            let line = line.trim_ascii();
            let (line, over) = line.split_at(line.len().min(self.bytes));
            if !line.is_empty() {
                say(line);
                self.bytes -= line.len();
                self.lines -= 1;
                self.out_bytes += over.len() as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(left: &mut Left, text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        left.share(text, |line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn lines_are_told_apart_and_empty_ones_left_out() {
        let mut left = Left::default();
        assert_eq!(
            shared(&mut left, b"\n\r\n one\r\n\ntwo \n"),
            [b"one", b"two"]
        );
        assert_eq!((left.bytes, left.lines), (BYTES_MAX - 6, LINES_MAX - 2));
        assert_eq!(left.out_bytes, 0);
    }

    #[test]
    fn so_many_bytes_are_passed_on_and_no_more() {
        for (more, out_bytes) in [(0, 0), (1, 1), (5_000, 5_000)] {
            let mut left = Left::default();
            let lines = shared(&mut left, &vec![b'x'; BYTES_MAX + more]);
            assert_eq!(lines, [vec![b'x'; BYTES_MAX]]);
            assert_eq!(left.out_bytes, out_bytes);
            assert!(shared(&mut left, b"one\ntwo\n").is_empty());
            assert_eq!(left.out_bytes, out_bytes + 7);
        }
    }

    #[test]
    fn so_many_lines_are_passed_on_and_no_more() {
        let mut left = Left::default();
        let lines = shared(&mut left, &b"x\n".repeat(LINES_MAX));
        assert_eq!((lines.len(), left.out_bytes), (LINES_MAX, 0));
        assert!(shared(&mut left, b"\n").is_empty());
        assert_eq!(left.out_bytes, 0);
        assert!(shared(&mut left, b"y\n").is_empty());
        assert_eq!(left.out_bytes, 1);
    }
}
