//! The texts of the files of a configuration, in which one number stands for a byte of one of them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::line::Line;
use crate::problem::Position;

/// Characters of a line that are shown around the position of a problem.
const EXCERPT_CHARS_MAX: usize = 160;

/// One file.
pub(crate) struct Part<'t> {
    /// As messages name it; `None` where there is one file only.
    pub(crate) name: Option<Arc<Path>>,
    /// The folder of its relative paths.
    pub(crate) folder: Option<&'t Path>,
    pub(crate) text: &'t str,
}

/// The texts one behind the other, with one byte between them, and the starts of their lines. A span is one of all of them.
pub(crate) struct Source<'t> {
    parts: Vec<(usize, Part<'t>)>,
    /// Of all lines.
    starts: Vec<usize>,
}

impl<'t> Source<'t> {
    /// Of one file without a name.
    pub(crate) fn new(text: &'t str, folder: Option<&'t Path>) -> Self {
        Self::of(vec![Part {
            name: None,
            folder,
            text,
        }])
    }

    /// Of these files, of which there is one at least.
    pub(crate) fn of(files: Vec<Part<'t>>) -> Self {
        let (mut parts, mut starts) = (Vec::with_capacity(files.len()), Vec::new());
        let mut start = 0;
        for part in files {
            let breaks = part.text.bytes().enumerate();
            let breaks = breaks.filter(|(_, byte)| *byte == b'\n');
            starts.push(start);
            starts.extend(breaks.map(|(at, _)| start + at + 1));
            let next = start + part.text.len() + 1;
            parts.push((start, part));
            start = next;
        }
        Source { parts, starts }
    }

    /// The text of each file, with its first byte.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &'t str)> {
        self.parts.iter().map(|(start, part)| (*start, part.text))
    }

    /// The number of the file with a byte.
    pub(crate) fn number(&self, at: usize) -> usize {
        self.parts.partition_point(|(start, _)| *start <= at) - 1
    }

    /// The first byte of the file with a byte, and that file.
    fn part(&self, at: usize) -> (usize, &Part<'t>) {
        let (start, part) = &self.parts[self.number(at)];
        (*start, part)
    }

    /// The folder of the file with a byte.
    pub(crate) fn folder(&self, at: usize) -> Option<&'t Path> {
        self.part(at).1.folder
    }

    /// The part of the text at `span`, in bytes.
    pub(crate) fn slice(&self, span: &Range<usize>) -> &'t str {
        let (start, part) = self.part(span.start);
        let slice = part.text.get(span.start - start..span.end - start);
        slice.unwrap_or_default()
    }

    /// The byte behind the file with a byte.
    pub(crate) fn end(&self, at: usize) -> usize {
        let (start, part) = self.part(at);
        start + part.text.len()
    }

    /// The lines from that of a byte to the last of its file, counted from 0.
    pub(crate) fn lines_from(&self, at: usize) -> Range<usize> {
        self.row(at)..self.row(self.end(at)) + 1
    }

    /// The line of a byte, counted from 0 in all files.
    pub(crate) fn row(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// The line of a byte.
    pub(crate) fn line(&self, at: usize) -> Line {
        let (start, part) = self.part(at);
        let order = self.row(at);
        Line {
            file: part.name.clone(),
            number: order - self.row(start) + 1,
            order,
        }
    }

    /// Where `span`, in bytes, begins; a mark that goes on over several lines ends with the first.
    pub(crate) fn position(&self, span: &Range<usize>) -> Position {
        let Line { number, order, .. } = self.line(span.start);
        let (start, text) = self.line_text(order);
        let within = |at: usize| at.saturating_sub(start).min(text.len());
        let (from, to) = (within(span.start), within(span.end.max(span.start)));
        let shown = excerpt_start(text, from);
        let excerpt: String = text[shown..].chars().take(EXCERPT_CHARS_MAX).collect();
        let last = excerpt.chars().count();
        let marked = chars(text, shown..from).min(last)..chars(text, shown..to).min(last);
        Position {
            line: number,
            column: chars(text, 0..from) + 1,
            excerpt,
            marked,
        }
    }

    /// The first byte of a line and its text, without byte order mark and line end.
    fn line_text(&self, line: usize) -> (usize, &'t str) {
        let start = self.starts[line];
        let (first, part) = self.part(start);
        let next = self.starts.get(line + 1).map(|next| next - 1 - first);
        let end = next.unwrap_or(part.text.len());
        let text = &part.text[start - first..end];
        let bare = text.trim_start_matches('\u{feff}');
        (start + text.len() - bare.len(), bare.trim_end_matches('\r'))
    }
}

/// Characters in a range of bytes. Counts bytes that begin one, since a file may be one long line.
fn chars(text: &str, bytes: Range<usize>) -> usize {
    let starts = |byte: &&u8| **byte & 0xc0 != 0x80;
    text.as_bytes()[bytes].iter().filter(starts).count()
}

/// The byte at which the excerpt of a line begins, so that it shows what precedes `mark` too.
fn excerpt_start(text: &str, mark: usize) -> usize {
    let is_long = text.chars().nth(EXCERPT_CHARS_MAX).is_some();
    match text.get(..mark) {
        Some(before) if is_long => {
            let earlier = before.char_indices().rev().nth(EXCERPT_CHARS_MAX / 2 - 1);
            earlier.map_or(0, |(at, _)| at)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_file_and_of_a_line_can_be_marked() {
        let text = "a =\r\nb";
        let source = Source::new(text, None);
        let end = source.position(&(text.len()..text.len()));
        assert_eq!((end.line, end.column, end.marked.clone()), (2, 2, 1..1));
        let after = source.position(&(3..3));
        assert_eq!(
            (after.line, after.column, after.excerpt.as_str()),
            (1, 4, "a =")
        );
        let both = source.position(&(2..6));
        assert_eq!((both.column, both.marked), (3, 2..3));
        assert_eq!(Source::new("", None).position(&(0..0)).line, 1);
    }

    #[test]
    fn each_byte_belongs_to_one_file() {
        let part = |name: &str, text| Part {
            name: Some(Path::new(name).into()),
            folder: None,
            text,
        };
        let parts = vec![part("a", "x\n"), part("b", ""), part("c", "\u{feff}y\r\nz")];
        let source = Source::of(parts);
        let starts: Vec<_> = source.parts().map(|(start, _)| start).collect();
        assert_eq!(starts, [0, 3, 4]);
        let shown = |at: usize| {
            let position = source.position(&(at..at + 1));
            let file = source.line(at).file.expect("a name");
            let (line, column) = (position.line, position.column);
            format!("{}:{line}:{column} {}", file.display(), position.excerpt)
        };
        // The last byte of each is that behind it.
        for (at, expected) in [
            (0, "a:1:1 x"),
            (2, "a:2:1 "),
            (3, "b:1:1 "),
            (7, "c:1:1 y"),
            (10, "c:2:1 z"),
            (11, "c:2:2 z"),
        ] {
            assert_eq!(shown(at), expected, "{at}");
        }
        assert_eq!(source.lines_from(0), 0..2);
        assert_eq!(source.lines_from(3), 2..3);
        assert_eq!(source.lines_from(10), 4..5);
        assert_eq!(source.slice(&(10..11)), "z");
        assert_eq!(source.line(10).to_string(), "line 2 of c");
    }
}
