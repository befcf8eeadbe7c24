//! A run as a picture: every wait, read and write at its moment, as high as it was long.
//!
//! The vertical scale is logarithmic, so that microseconds and seconds are seen side by side. Marks that
//! fall onto one cell of a fixed grid are drawn once: whatever the length of the log, the picture has a
//! bounded size and shows where there was anything at all.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::run::{Mark, Run};
use super::table::time;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 52.0;
/// Side of a cell, and of the mark in it.
const CELL: f64 = 3.0;
/// Lines across at about this distance.
const TICKS: f64 = 8.0;
/// The lowest line: shorter times lie on it.
const SHORTEST_US: f64 = 10.0;

/// Middle tones: enough contrast on a light and on a dark page.
const TEXT: &str = "#7d8590";
const QUEUE: &str = "#d29922";
const READ: &str = "#2f81f7";
const WRITE: &str = "#2da44e";

/// The whole picture.
pub(super) fn svg(run: &Run) -> String {
    let of = if run.knows_reads() {
        "chunk"
    } else {
        "request"
    };
    let title =
        &format!("Where the time went: how long each {of} waited, was read and was written");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" fill=\"{TEXT}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    text(
        &mut svg,
        8.0,
        22.0,
        "font-size=\"16\" font-weight=\"600\"",
        title,
    );
    let scale = Scale::over(run);
    legend(&mut svg);
    durations(&mut svg, &scale);
    moments(&mut svg, &scale);
    // What matters most is drawn last, over the others.
    marks(&mut svg, &scale, run.write_marks.kept(), WRITE);
    marks(&mut svg, &scale, run.read_marks.kept(), READ);
    marks(&mut svg, &scale, run.queue_marks.kept(), QUEUE);
    svg.push_str("</svg>\n");
    svg
}

/// From a moment and a duration to a place.
struct Scale {
    began_us: i64,
    length_us: f64,
    /// Powers of ten above the lowest line.
    decades: f64,
}

impl Scale {
    fn over(run: &Run) -> Self {
        let all = [&run.queue_marks, &run.read_marks, &run.write_marks];
        let longest = all.iter().flat_map(|marks| marks.kept());
        let longest_us = longest.map(|mark| mark.took_us).max().unwrap_or(0) as f64;
        Self {
            began_us: run.began_us(),
            length_us: (run.length_s() * 1e6).max(1.0),
            decades: (longest_us / SHORTEST_US).max(100.0).log10().ceil(),
        }
    }

    fn x(&self, since_us: f64) -> f64 {
        // A log that is not ours may have marks that lie outside of its requests.
        let share = (since_us / self.length_us).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, took_us: f64) -> f64 {
        let decades = (took_us / SHORTEST_US).max(1.0).log10();
        HEIGHT - BOTTOM - decades / self.decades * (HEIGHT - TOP - BOTTOM)
    }
}

fn legend(svg: &mut String) {
    let entries = [
        (8.0, QUEUE, "waiting for a turn at the disk"),
        (308.0, READ, "reading"),
        (428.0, WRITE, "giving the bytes to the client"),
    ];
    for (x, colour, words) in entries {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"38\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>"
        );
        text(svg, x + 18.0, 49.0, "", words);
    }
}

/// Lines across, one for each power of ten.
fn durations(svg: &mut String, scale: &Scale) {
    for decade in 0..=scale.decades as i32 {
        let us = SHORTEST_US * 10_f64.powi(decade);
        let y = scale.y(us);
        line(svg, [LEFT, WIDTH - RIGHT], [y, y]);
        let label = duration(us);
        text(
            svg,
            LEFT - 8.0,
            y + 4.0,
            "text-anchor=\"end\" font-size=\"11\"",
            &label,
        );
    }
    text(svg, 8.0, TOP - 12.0, "font-size=\"11\"", "duration");
}

/// Lines down, at round moments.
fn moments(svg: &mut String, scale: &Scale) {
    let step_us = step(scale.length_us / TICKS);
    let mut tick = 0.0;
    while tick * step_us <= scale.length_us {
        let x = scale.x(tick * step_us);
        line(svg, [x, x], [TOP, HEIGHT - BOTTOM]);
        let label = duration(tick * step_us);
        text(
            svg,
            x,
            HEIGHT - BOTTOM + 18.0,
            "text-anchor=\"middle\" font-size=\"11\"",
            &label,
        );
        tick += 1.0;
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    text(
        svg,
        middle,
        HEIGHT - 12.0,
        "text-anchor=\"middle\" font-size=\"11\"",
        "time since the first request",
    );
}

/// The next of 1, 2 and 5 times a power of ten.
fn step(us: f64) -> f64 {
    let power = 10_f64.powf(us.max(1.0).log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= us);
    factor.unwrap_or(10.0) * power
}

/// A round duration, without digits that it does not need.
fn duration(us: f64) -> String {
    let text = time(us);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}")
}

/// One mark for each cell that holds any, all in one path.
fn marks(svg: &mut String, scale: &Scale, marks: &[Mark], colour: &str) {
    let cell = |mark: &Mark| {
        let x = scale.x((mark.at_us - scale.began_us) as f64);
        let y = scale.y(mark.took_us as f64);
        ((x / CELL) as u32, (y / CELL) as u32)
    };
    let cells: BTreeSet<_> = marks.iter().map(cell).collect();
    if cells.is_empty() {
        return;
    }
    let _ = write!(
        svg,
        "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{CELL}\" stroke-opacity=\"0.8\" d=\""
    );
    for (x, y) in cells {
        let (x, y) = (f64::from(x) * CELL, f64::from(y) * CELL + CELL / 2.0);
        let _ = write!(svg, "M{x} {y}h{CELL}");
    }
    svg.push_str("\"/>\n");
}

fn line(svg: &mut String, x: [f64; 2], y: [f64; 2]) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{TEXT}\" stroke-opacity=\"0.25\"/>",
        x[0], x[1], y[0], y[1]
    );
}

/// The words are ours: nothing in them needs escaping.
fn text(svg: &mut String, x: f64, y: f64, attributes: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::readers::tests::reads;
    use super::*;

    /// Every element is closed, and every attribute quoted: as much of XML as the picture uses.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg.trim();
        while let Some((words, tag)) = rest.split_once('<') {
            assert!(!words.contains(['>', '&']), "{words}");
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            rest = after;
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().expect("a name"));
            }
        }
        assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
    }

    #[test]
    fn a_run_is_drawn_with_axes_and_legend() {
        let mut run = Run::default();
        reads(&mut run, 4, 250, 40_000, 20_000);
        let svg = svg(&run);
        assert_well_formed(&svg);
        for part in [QUEUE, READ, WRITE] {
            assert!(svg.contains(&format!("stroke=\"{part}\"")), "{part}");
        }
        for words in [
            ">10 us<",
            ">100 ms<",
            ">0 us<",
            ">5 s<",
            "time since the first request",
            "how long each chunk waited",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }

    #[test]
    fn a_long_log_makes_no_large_picture() {
        let mut run = Run::default();
        for number in 0..20_000 {
            reads(
                &mut run,
                1,
                1,
                number * 37 % 5_000_000,
                number * 91 % 3_000_000,
            );
        }
        let svg = svg(&run);
        assert_well_formed(&svg);
        let cells = (WIDTH / CELL) * (HEIGHT / CELL) * 3.0;
        assert!(
            (svg.matches('h').count() as f64) < cells && svg.len() < 1 << 20,
            "{}",
            svg.len()
        );
    }

    #[test]
    fn a_run_without_marks_is_drawn_too() {
        let mut run = Run::default();
        run.add(&super::super::lines::Request::default());
        assert_well_formed(&svg(&run));
    }

    #[test]
    fn marks_stay_within_the_picture() {
        let scale = Scale {
            began_us: 0,
            length_us: 10.0,
            decades: 2.0,
        };
        assert_eq!(scale.x(-1e15), LEFT);
        assert_eq!(scale.x(1e15), WIDTH - RIGHT);
    }

    #[test]
    fn ticks_are_round() {
        for (us, round) in [
            (0.0, 1.0),
            (130.0, 200.0),
            (1_000.0, 1_000.0),
            (5_100.0, 10_000.0),
        ] {
            assert_eq!(step(us), round);
        }
        assert_eq!(duration(0.0), "0 us");
        assert_eq!(duration(2_500_000.0), "2.5 s");
        assert_eq!(duration(200_000_000.0), "200 s");
    }
}
