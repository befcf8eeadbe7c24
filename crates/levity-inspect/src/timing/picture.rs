//! A run as a picture: every wait, read and write at its moment, as high as it was long.
//!
//! The vertical scale is logarithmic, so that microseconds and seconds are visible side by side. Intervals in
//! one cell of a fixed grid are drawn once: whatever the length of the log, the size of the picture is bounded.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::run::{Interval, Run};
use super::units::time;
use crate::svg::{Area, Svg};

const SIZE: [f64; 2] = [960.0, 480.0];
const AREA: Area = Area {
    x: [76.0, 942.0],
    y: [84.0, 428.0],
};
/// Side of a cell, and of the mark in it.
const CELL: f64 = 3.0;
/// Grid columns, about.
const COLUMNS: f64 = 8.0;
/// The lower edge: shorter times are drawn on it.
const SHORTEST_US: f64 = 10.0;

/// Middle tones: enough contrast on a light and on a dark page.
const QUEUE: &str = "#d29922";
const READ: &str = "#2f81f7";
const WRITE: &str = "#2da44e";

/// The whole picture.
pub(super) fn svg(run: &Run) -> String {
    let of = match run.has_single_reads() {
        true => "chunk",
        false => "request",
    };
    let title = format!("Where the time went: how long each {of} waited, was read and was written");
    let mut svg = Svg::new(SIZE, 13, &title);
    let scale = Scale::over(run);
    svg.legend([8.0, 38.0], QUEUE, "waiting for a turn at the disk");
    svg.legend([308.0, 38.0], READ, "reading");
    svg.legend([428.0, 38.0], WRITE, "giving the bytes to the client");
    durations(&mut svg, &scale);
    moments(&mut svg, &scale);
    // Waits matter most and are drawn last, over the others.
    intervals(&mut svg, &scale, run.write_sample.kept(), WRITE);
    intervals(&mut svg, &scale, run.read_sample.kept(), READ);
    intervals(&mut svg, &scale, run.queue_sample.kept(), QUEUE);
    svg.finish()
}

/// From moments and durations to coordinates.
struct Scale {
    start_us: i64,
    length_us: f64,
    /// Powers of ten above the lower edge.
    decades: f64,
}

impl Scale {
    fn over(run: &Run) -> Self {
        let samples = [&run.queue_sample, &run.read_sample, &run.write_sample];
        let intervals = samples.iter().flat_map(|sample| sample.kept());
        let longest_us = intervals.map(|interval| interval.length_us).max();
        let longest_us = longest_us.unwrap_or(0) as f64;
        Self {
            start_us: run.start_us(),
            length_us: (run.length_s() * 1e6).max(1.0),
            decades: (longest_us / SHORTEST_US).max(100.0).log10().ceil(),
        }
    }

    fn x(&self, since_start_us: f64) -> f64 {
        // A foreign log may have intervals outside of its requests.
        AREA.x_at((since_start_us / self.length_us).clamp(0.0, 1.0))
    }

    fn y(&self, length_us: f64) -> f64 {
        AREA.y_at((length_us / SHORTEST_US).max(1.0).log10() / self.decades)
    }
}

/// One grid row for each power of ten.
fn durations(svg: &mut Svg, scale: &Scale) {
    for decade in 0..=scale.decades as i32 {
        let us = SHORTEST_US * 10_f64.powi(decade);
        svg.grid_row(&AREA, scale.y(us), &round(us));
    }
    svg.text([8.0, AREA.y[0] - 12.0], "font-size=\"11\"", "duration");
}

/// Grid columns at round moments.
fn moments(svg: &mut Svg, scale: &Scale) {
    let step_us = step(scale.length_us / COLUMNS);
    for column in 0..=(scale.length_us / step_us) as u32 {
        let us = f64::from(column) * step_us;
        svg.grid_column(&AREA, scale.x(us), &round(us));
    }
    svg.text(
        [AREA.x_at(0.5), SIZE[1] - 12.0],
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

/// A round duration without superfluous zeros.
fn round(us: f64) -> String {
    let text = time(us);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}")
}

/// One mark for each cell that has intervals, all in one path.
fn intervals(svg: &mut Svg, scale: &Scale, intervals: &[Interval], colour: &str) {
    let cell = |interval: &Interval| {
        let x = scale.x((interval.start_us - scale.start_us) as f64);
        let y = scale.y(interval.length_us as f64);
        ((x / CELL) as u32, (y / CELL) as u32)
    };
    let cells: BTreeSet<_> = intervals.iter().map(cell).collect();
    let mut marks = String::new();
    for (x, y) in &cells {
        let (x, y) = (f64::from(*x) * CELL, f64::from(*y) * CELL + CELL / 2.0);
        // Writing to memory cannot fail.
        let _ = write!(marks, "M{x} {y}h{CELL}");
    }
    if !marks.is_empty() {
        svg.path(&marks, colour, CELL, 0.8);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::add_reads;
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
        add_reads(&mut run, 4, 250, 40_000, 20_000);
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
            add_reads(
                &mut run,
                1,
                1,
                number * 37 % 5_000_000,
                number * 91 % 3_000_000,
            );
        }
        let svg = svg(&run);
        assert_well_formed(&svg);
        let cells = (SIZE[0] / CELL) * (SIZE[1] / CELL) * 3.0;
        assert!(
            (svg.matches('h').count() as f64) < cells && svg.len() < 1 << 20,
            "{}",
            svg.len()
        );
    }

    #[test]
    fn a_run_without_intervals_is_drawn_too() {
        let mut run = Run::default();
        run.add(&super::super::lines::Request::default());
        assert_well_formed(&svg(&run));
    }

    #[test]
    fn intervals_stay_within_the_picture() {
        let scale = Scale {
            start_us: 0,
            length_us: 10.0,
            decades: 2.0,
        };
        assert_eq!(scale.x(-1e15), AREA.x[0]);
        assert_eq!(scale.x(1e15), AREA.x[1]);
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
        assert_eq!(round(0.0), "0 us");
        assert_eq!(round(2_500_000.0), "2.5 s");
        assert_eq!(round(200_000_000.0), "200 s");
    }
}
