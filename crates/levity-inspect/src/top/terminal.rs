//! The terminal of `levity top`.

use std::io::{self, BufWriter, IsTerminal as _, Read as _, Write};
use std::mem;
use std::thread;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{PrintStyledContent, Stylize as _};
use crossterm::terminal::{
    self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use tokio::sync::oneshot;

use super::frame::{Line, Style};

/// Columns and rows where the kernel does not know them.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

/// The alternate screen, and raw mode if standard input is a terminal. Dropping it restores both.
pub(super) struct Terminal {
    is_raw: bool,
}

impl Terminal {
    /// # Errors
    /// The terminal is gone.
    pub(super) fn enter() -> io::Result<Self> {
        let is_raw = io::stdin().is_terminal();
        if is_raw {
            terminal::enable_raw_mode()?;
        }
        let entered = Self { is_raw };
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(entered)
    }

    /// Draws over the last frame, cut at the edges.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&self, lines: &[Line], colour: bool) -> io::Result<()> {
        let size = match terminal::size() {
            Ok((columns @ 1.., rows @ 1..)) => (columns, rows),
            _ => SIZE_DEFAULT,
        };
        let mut out = BufWriter::new(io::stdout().lock());
        render(&mut out, lines, size, colour)?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        if self.is_raw {
            let _ = terminal::disable_raw_mode();
        }
    }
}

/// Completes when a key says stop, or the terminal is gone; never if standard input is no terminal. The thread
/// that reads keys lives until the process ends.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn stop_key() -> io::Result<oneshot::Receiver<()>> {
    let (sender, stop) = oneshot::channel();
    if !io::stdin().is_terminal() {
        // Dropping it would complete the receiver.
        mem::forget(sender);
        return Ok(stop);
    }
    let wait = move || {
        let mut keys = io::stdin().lock().bytes();
        keys.find(|key| !matches!(key, Ok(key) if !is_stop(*key)));
        // The receiver may have stopped for another reason.
        let _ = sender.send(());
    };
    thread::Builder::new().name("keys".to_owned()).spawn(wait)?;
    Ok(stop)
}

fn is_stop(key: u8) -> bool {
    matches!(key, b'q' | b'Q' | CTRL_C | CTRL_D)
}

/// Writes each line over the old one and erases the rest of it: clearing the screen would flicker.
fn render(
    out: &mut impl Write,
    lines: &[Line],
    (columns, rows): (u16, u16),
    colour: bool,
) -> io::Result<()> {
    for (line, row) in lines.iter().zip(0..rows) {
        let text: String = line.text.chars().take(columns.into()).collect();
        let text = text.trim_end();
        let text = match line.style {
            Style::Strong if colour => text.bold(),
            Style::Bad if colour => text.bold().dark_red(),
            Style::Plain | Style::Strong | Style::Bad => text.stylize(),
        };
        let rest = Clear(ClearType::UntilNewLine);
        queue!(out, MoveTo(0, row), PrintStyledContent(text), rest)?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(lines: &[(&str, Style)], size: (u16, u16), colour: bool) -> String {
        let line = |&(text, style): &(&str, Style)| Line {
            text: text.to_owned(),
            style,
        };
        let lines: Vec<_> = lines.iter().map(line).collect();
        let mut out = Vec::new();
        render(&mut out, &lines, size, colour).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_frame_is_cut_at_the_edges() {
        let lines = [
            ("abcdef", Style::Strong),
            ("ghi  ", Style::Plain),
            ("never", Style::Plain),
        ];
        assert_eq!(
            rendered(&lines, (4, 2), true),
            "\x1b[1;1H\x1b[1mabcd\x1b[0m\x1b[K\x1b[2;1Hghi\x1b[K\x1b[J"
        );
        assert_eq!(
            rendered(&lines, (9, 1), false),
            "\x1b[1;1Habcdef\x1b[K\x1b[J"
        );
    }
}
