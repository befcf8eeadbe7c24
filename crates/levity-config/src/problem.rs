//! Problems of a configuration with their positions, and their rendering.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthChar as _;

/// So many problems are shown to people: more help nobody, and an answer of the server has room for them.
const SHOWN_MAX: usize = 100;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The message, without a full stop.
    pub message: String,
    /// The file, as messages name it; `None` for the main one.
    pub file: Option<Arc<Path>>,
    /// Where in that file; `None` for all of it, such as one that cannot be read.
    pub position: Option<Position>,
    /// How to correct it.
    pub help: Option<String>,
}

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The line, or the part around the position when the line is long.
    pub(crate) excerpt: String,
    /// In characters of the excerpt; may be empty.
    pub(crate) marked: Range<usize>,
}

/// All problems of one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// Its main file, as it was named.
    pub file: PathBuf,
    /// In the order of the files; never empty.
    pub problems: Vec<Problem>,
    /// The only problem is that files of it do not respond: nothing may be wrong with them.
    pub is_silent: bool,
}

impl Errors {
    /// Every problem with its line and a caret, for people; of more than 100 the first ones, and how many more there are.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let shown = self.problems.iter().take(SHOWN_MAX);
        let mut blocks: Vec<_> = shown.map(|p| p.render(&self.file, colour)).collect();
        if let more @ 1.. = self.problems.len() - blocks.len() {
            let all = "`levity check --json` has all";
            blocks.push(format!("and {more} more: {all}\n"));
        }
        blocks.join("\n")
    }

    /// All problems for programs: `{"file", "ok": false, "problems": [{"message", "file", "line", "column",
    /// "help"}]}`, with `null` for unknown values.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let problems = self.problems.iter();
        let problems: Vec<_> = problems.map(|one| one.to_json(&self.file)).collect();
        json!({ "file": self.file.to_string_lossy(), "ok": false, "problems": problems })
    }
}

impl std::fmt::Display for Errors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Errors {}

impl Problem {
    /// A problem of the main file without a position.
    pub(crate) fn without_position(message: String) -> Self {
        Problem {
            message,
            file: None,
            position: None,
            help: None,
        }
    }

    /// The file with the problem, where `main` is the one without another name.
    fn file<'p>(&'p self, main: &'p Path) -> &'p Path {
        self.file.as_deref().unwrap_or(main)
    }

    fn to_json(&self, main: &Path) -> Value {
        json!({
            "message": self.message,
            "file": self.file(main).to_string_lossy(),
            "line": self.position.as_ref().map(|position| position.line),
            "column": self.position.as_ref().map(|position| position.column),
            "help": self.help,
        })
    }

    /// Several lines that end in a line break, in the form that rustc made familiar.
    fn render(&self, main: &Path, colour: bool) -> String {
        let paint = Paint { colour };
        let file = printable(&self.file(main).to_string_lossy());
        let mut out = format!("{}: {}\n", paint.red("error"), printable(&self.message));
        let help = self.help.as_deref().map(printable).unwrap_or_default();
        match &self.position {
            Some(position) => position.render(&file, &help, paint, &mut out),
            None => {
                let _ = writeln!(out, " {} {file}", paint.blue("-->"));
                if !help.is_empty() {
                    let _ = writeln!(out, "  {} {help}", paint.blue("="));
                }
            }
        }
        out
    }
}

impl Position {
    fn render(&self, file: &str, help: &str, paint: Paint, out: &mut String) {
        let Position { line, column, .. } = self;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let bar = paint.blue("|");
        let width: usize = self.marked().map(columns).sum();
        let carets = paint.red(&"^".repeat(width.max(1)));
        let hint = match help {
            "" => String::new(),
            help => format!(" {}", paint.red(help)),
        };
        let _ = writeln!(out, " {margin}{} {file}:{line}:{column}", paint.blue("-->"));
        let _ = writeln!(out, " {margin} {bar}");
        let _ = writeln!(
            out,
            " {} {bar} {}",
            paint.blue(&number),
            printable(&self.excerpt)
        );
        let _ = writeln!(out, " {margin} {bar} {}{carets}{hint}", self.padding());
    }

    fn marked(&self) -> impl Iterator<Item = char> {
        let excerpt = self.excerpt.chars();
        excerpt.skip(self.marked.start).take(self.marked.len())
    }

    /// As wide as what precedes the mark. Tabs stay tabs, because only the terminal knows how wide
    /// they are.
    fn padding(&self) -> String {
        let before = self.excerpt.chars().take(self.marked.start);
        let space = |c| match c {
            '\t' => "\t".to_owned(),
            c => " ".repeat(columns(c)),
        };
        before.map(space).collect()
    }
}

/// Columns that a terminal gives to a character. Control characters are replaced before they are shown.
fn columns(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// A text for people without control characters, which would reach the terminal: a file, and the name of one, may hold an escape
/// sequence.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}")
}

#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    fn blue(self, text: &str) -> String {
        self.with("1;34", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn problem(text: &str, marked: &str, help: Option<&str>) -> Problem {
        let start = text.find(marked).unwrap();
        let position = Source::new(text, None).position(&(start..start + marked.len()));
        Problem {
            message: "bad".to_owned(),
            file: None,
            position: Some(position),
            help: help.map(str::to_owned),
        }
    }

    fn render(problem: &Problem) -> String {
        problem.render(Path::new("levity.toml"), false)
    }

    #[test]
    fn line_and_caret() {
        let problem = problem(
            "a = 1\n\n\nenigne = \"auto\"\n",
            "enigne",
            Some("did you mean `engine`?"),
        );
        let expected = "\
error: bad
  --> levity.toml:4:1
   |
 4 | enigne = \"auto\"
   | ^^^^^^ did you mean `engine`?
";
        assert_eq!(render(&problem), expected);
    }

    #[test]
    fn wide_line_numbers_move_the_bar() {
        let text = format!("{}x = 1", "\n".repeat(99));
        assert!(
            render(&problem(&text, "x", None))
                .ends_with("   --> levity.toml:100:1\n     |\n 100 | x = 1\n     | ^\n")
        );
    }

    #[test]
    fn tabs_stay_tabs_and_count_as_one_column() {
        let rendered = render(&problem("\tk\t= bad", "bad", None));
        assert!(rendered.contains("levity.toml:1:6"), "{rendered}");
        assert!(rendered.ends_with("\n   | \t \t  ^^^\n"), "{rendered}");
    }

    #[test]
    fn characters_not_bytes() {
        let rendered = render(&problem("k = \"\u{e9}\u{e9}\" bad", "bad", None));
        assert!(rendered.contains(":1:10\n"), "{rendered}");
        assert!(
            rendered.ends_with(&format!("| {}^^^\n", " ".repeat(9))),
            "{rendered}"
        );
        let wide = render(&problem("\u{65e5}\u{672c} bad", "bad", None));
        assert!(
            wide.contains(":1:4\n") && wide.ends_with("|      ^^^\n"),
            "{wide}"
        );
        let combined = render(&problem("e\u{301} bad", "bad", None));
        assert!(
            combined.contains(":1:4\n") && combined.ends_with("|   ^^^\n"),
            "{combined}"
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let rendered = render(&problem("\u{feff}bad = 1", "bad", None));
        assert!(
            rendered.contains(":1:1\n") && rendered.contains(" | bad = 1\n"),
            "{rendered}"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_mark() {
        let text = format!("{}bad{}", "a".repeat(5000), "b".repeat(5000));
        let problem = problem(&text, "bad", None);
        let position = problem.position.clone().unwrap();
        assert_eq!(position.column, 5001);
        assert_eq!(position.marked().collect::<String>(), "bad");
        assert!(render(&problem).lines().all(|line| line.len() < 200));
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert!(!render(&problem("x \u{1b}[2J bad", "bad", Some("\u{1b}"))).contains('\u{1b}'));
    }

    #[test]
    fn without_a_position() {
        let mut problem = Problem::without_position("no site".to_owned());
        problem.help = Some("add one".to_owned());
        assert_eq!(
            render(&problem),
            "error: no site\n --> levity.toml\n  = add one\n"
        );
    }

    #[test]
    fn colour_only_when_asked() {
        let problem = problem("bad", "bad", None);
        assert!(
            problem
                .render(Path::new("f"), true)
                .contains("\x1b[1;31m^^^\x1b[0m")
        );
        assert!(!render(&problem).contains('\x1b'));
    }

    #[test]
    fn json_has_all_fields() {
        let errors = Errors {
            file: PathBuf::from("f"),
            problems: vec![
                problem("\nbad", "bad", Some("h")),
                Problem::without_position("m".to_owned()),
            ],
            is_silent: false,
        };
        let expected = r#"{"file":"f","ok":false,"problems":[{"column":1,"file":"f","help":"h","line":2,"message":"bad"},{"column":null,"file":"f","help":null,"line":null,"message":"m"}]}"#;
        assert_eq!(errors.to_json().to_string(), expected);
    }

    #[test]
    fn people_are_shown_some_problems_and_programs_all() {
        let errors = |count: usize| Errors {
            file: PathBuf::from("f"),
            problems: vec![Problem::without_position("m".to_owned()); count],
            is_silent: false,
        };
        let (all, some) = (errors(SHOWN_MAX), errors(SHOWN_MAX + 2));
        assert_eq!(all.render(false).matches("error: m\n").count(), SHOWN_MAX);
        assert!(!all.render(false).contains("more"));
        let end = "\nand 2 more: `levity check --json` has all\n";
        assert_eq!(some.render(false), all.render(false) + end);
        let json = some.to_json();
        assert_eq!(
            json["problems"].as_array().map(Vec::len),
            Some(SHOWN_MAX + 2)
        );
    }
}
