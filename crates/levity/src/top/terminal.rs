//! The terminal that `levity top` draws on, and gives back as it was.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::mem;
use std::thread;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use tokio::sync::oneshot;

use super::frame::{Line, Tone};

/// Alternate screen, no cursor, no wrapping at the right edge.
const TAKE: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const GIVE_BACK: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Where the kernel does not know the size.
const ROWS_DEFAULT: usize = 24;
const COLUMNS_DEFAULT: usize = 80;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

/// A terminal in our hands; given back when dropped.
pub struct Terminal {
    /// How it was; `None` when keys come from elsewhere.
    before: Option<Termios>,
}

impl Terminal {
    /// Keys come without Enter and are not shown, and Ctrl-C is a key.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn take() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = stdin.is_terminal().then(|| tcgetattr(&stdin)).transpose()?;
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
        }
        let taken = Self { before };
        say(TAKE)?;
        Ok(taken)
    }

    /// Draws over what was there, cut at the edges.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&self, lines: &[Line], colour: bool) -> io::Result<()> {
        let (rows, columns) = size();
        say(&drawn(lines, rows, columns, colour))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Whoever has taken the terminal away needs nothing back.
        let _ = say(GIVE_BACK);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

/// Told once a key comes that means stop, or the terminal is gone; never where keys come from elsewhere.
/// The thread that waits for it does so until the process ends.
///
/// # Errors
/// When the thread cannot be made.
pub fn stop_key() -> io::Result<oneshot::Receiver<()>> {
    let (told, stop) = oneshot::channel();
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        // Dropped, it would be as good as told.
        mem::forget(told);
        return Ok(stop);
    }
    let wait = move || {
        let mut byte = [0];
        while matches!(rustix::io::read(&stdin, &mut byte), Ok(1)) && !is_stop(byte[0]) {}
        // The one who waits may have stopped for another reason.
        let _ = told.send(());
    };
    thread::Builder::new().name("keys".to_owned()).spawn(wait)?;
    Ok(stop)
}

fn is_stop(key: u8) -> bool {
    matches!(key, b'q' | b'Q' | CTRL_C | CTRL_D)
}

/// Rows and columns.
fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (ROWS_DEFAULT, COLUMNS_DEFAULT),
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Each line is written over the old one and the rest of it erased: clearing all would flicker.
fn drawn(lines: &[Line], rows: usize, columns: usize, colour: bool) -> String {
    let mut out = String::from("\x1b[H");
    for (row, line) in lines.iter().take(rows).enumerate() {
        if row > 0 {
            out.push_str("\r\n");
        }
        let text: String = line.text.chars().take(columns).collect();
        let text = text.trim_end();
        // Writing to memory cannot fail.
        let _ = match line.tone {
            Tone::Strong if colour => write!(out, "\x1b[1m{text}\x1b[0m"),
            Tone::Bad if colour => write!(out, "\x1b[1;31m{text}\x1b[0m"),
            Tone::Plain | Tone::Strong | Tone::Bad => write!(out, "{text}"),
        };
        out.push_str("\x1b[K");
    }
    out.push_str("\x1b[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, tone: Tone) -> Line {
        Line {
            text: text.to_owned(),
            tone,
        }
    }

    #[test]
    fn a_frame_is_cut_at_the_edges() {
        let lines = [
            line("abcdef", Tone::Strong),
            line("ghi  ", Tone::Plain),
            line("never", Tone::Plain),
        ];
        assert_eq!(
            drawn(&lines, 2, 4, true),
            "\x1b[H\x1b[1mabcd\x1b[0m\x1b[K\r\nghi\x1b[K\x1b[J"
        );
        assert_eq!(drawn(&lines, 1, 9, false), "\x1b[Habcdef\x1b[K\x1b[J");
    }
}
