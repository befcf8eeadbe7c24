//! Standard error of applications, forwarded to the server's own log.
//!
//! A faulty application may write any amount for one request, and each line costs time on the event loop. So
//! the output of a request is limited; the bytes beyond are counted and reported.

use std::sync::Arc;

use crate::upstream::Upstream;
use levity_telemetry::diagnostics;

/// The maximum number of bytes that are logged per request.
pub const BYTES_MAX: usize = 32 * 1024;

/// The maximum number of log lines per request. Pieces of a line that arrives in pieces, or is too long for one log
/// line, count separately.
pub const LINES_MAX: usize = 128;

/// The minimum size of a piece in bytes, however long the name of the upstream is.
const PIECE_BYTES_MIN: usize = 64;

/// The standard error of an application during one request. Allocates on first output.
#[derive(Default)]
pub struct Stderr(Option<Box<Output>>);

struct Output {
    upstream: Arc<Upstream>,
    left: Left,
}

impl Stderr {
    /// Logs each line of `text`, which may be cut anywhere. The bytes are untrusted, so control characters
    /// are escaped.
    pub fn log(&mut self, upstream: &Arc<Upstream>, text: &[u8]) {
        let new = || {
            let (upstream, left) = (upstream.clone(), Left::default());
            Box::new(Output { upstream, left })
        };
        let output = self.0.get_or_insert_with(new);
        let prefix = prefix(&output.upstream);
        let room = diagnostics::TEXT_BYTES_MAX.saturating_sub(prefix.len());
        output.left.split(text, room.max(PIECE_BYTES_MIN), |piece| {
            diagnostics::log(format_args!("{prefix}{}", piece.escape_ascii()));
        });
    }
}

fn prefix(upstream: &Upstream) -> String {
    format!("upstream {}: stderr: ", upstream.settings.name)
}

/// How many bytes of `line` fit into `room` after escaping.
fn fitting(line: &[u8], room: usize) -> usize {
    let sizes = line.iter().scan(0, |total, byte| {
        *total += byte.escape_ascii().len();
        Some(*total)
    });
    sizes.take_while(|total| *total <= room).count()
}

impl Drop for Output {
    /// Reports what was left out when the request ends.
    fn drop(&mut self) {
        let (name, bytes) = (&self.upstream.settings.name, self.left.out_bytes);
        if bytes > 0 {
            diagnostics::log(format_args!(
                "upstream {name}: stderr: one request wrote more than is logged: {bytes} bytes dropped"
            ));
        }
    }
}

/// The remaining allowance, and the bytes beyond it.
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
    /// Calls `log` with each line of `text` that is not blank, while the allowance lasts. Long lines are
    /// split into pieces of at most `room` bytes after escaping.
    fn split(&mut self, text: &[u8], room: usize, mut log: impl FnMut(&[u8])) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.bytes == 0 || self.lines == 0 {
                self.out_bytes += rest.trim_ascii().len() as u64;
                return;
            }
            let end = rest.iter().position(|&byte| byte == b'\n');
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = behind;
            let mut line = line.trim_ascii();
            while !line.is_empty() && self.bytes > 0 && self.lines > 0 {
                let piece = fitting(&line[..line.len().min(self.bytes)], room);
                log(&line[..piece]);
                self.bytes -= piece;
                self.lines -= 1;
                line = &line[piece..];
            }
            self.out_bytes += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 2000;

    fn shared(left: &mut Left, text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        left.split(text, ROOM, |line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn blank_lines_are_dropped() {
        let mut left = Left::default();
        assert_eq!(
            shared(&mut left, b"\n\r\n one\r\n\ntwo \n"),
            [b"one", b"two"]
        );
        assert_eq!((left.bytes, left.lines), (BYTES_MAX - 6, LINES_MAX - 2));
        assert_eq!(left.out_bytes, 0);
    }

    #[test]
    fn the_number_of_bytes_is_limited() {
        for (more, out_bytes) in [(0, 0), (1, 1), (5_000, 5_000)] {
            let mut left = Left::default();
            let lines = shared(&mut left, &vec![b'x'; BYTES_MAX + more]);
            assert_eq!(lines.concat(), [b'x'; BYTES_MAX]);
            assert_eq!(left.out_bytes, out_bytes);
            assert!(shared(&mut left, b"one\ntwo\n").is_empty());
            assert_eq!(left.out_bytes, out_bytes + 7);
        }
    }

    #[test]
    fn a_long_line_is_split_into_pieces_that_fit() {
        let text: Vec<u8> = (0..10 * 1024).map(|n| (n % 251) as u8 | 1).collect();
        let text: Vec<u8> = text
            .into_iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let mut left = Left::default();
        let pieces = shared(&mut left, &text);
        assert_eq!((pieces.concat(), left.out_bytes), (text.clone(), 0));
        let sizes = pieces.iter().map(|piece| piece.escape_ascii().count());
        let sizes: Vec<_> = sizes.collect();
        // All but the last are full: one more escaped byte would not have fitted.
        let (last, full) = sizes.split_last().expect("some");
        assert!(
            full.iter().all(|size| (ROOM - 3..=ROOM).contains(size)),
            "{sizes:?}"
        );
        assert!(*last <= ROOM && full.len() > 10);
    }

    #[test]
    fn a_piece_fits_into_a_log_line_with_its_prefix() {
        let settings = crate::upstream::tests::settings(&["127.0.0.1:1"]);
        let upstream = Upstream::new(settings).expect("upstream");
        let room = diagnostics::TEXT_BYTES_MAX - prefix(&upstream).len();
        for (line, expected) in [
            (vec![b'x'; room], vec![room]),
            (vec![b'x'; room + 1], vec![room, 1]),
            (vec![0xff; room / 4 + 1], vec![room / 4, 1]),
        ] {
            let mut sizes = Vec::new();
            Left::default().split(&line, room, |piece| sizes.push(piece.len()));
            assert_eq!(sizes, expected);
        }
    }

    #[test]
    fn the_number_of_lines_is_limited() {
        let mut left = Left::default();
        let lines = shared(&mut left, &b"x\n".repeat(LINES_MAX));
        assert_eq!((lines.len(), left.out_bytes), (LINES_MAX, 0));
        assert!(shared(&mut left, b"\n").is_empty());
        assert_eq!(left.out_bytes, 0);
        assert!(shared(&mut left, b"y\n").is_empty());
        assert_eq!(left.out_bytes, 1);
    }
}
