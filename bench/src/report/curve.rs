//! Curves of a ratio over sizes as SVG, both on logarithmic scales, readable on white and black.

use super::picture::escape;
use std::fmt::Write;

/// One line of the picture.
pub struct Curve {
    /// What it is of.
    pub name: String,
    /// Size in bytes and ratio.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 40.0;
/// The name of a line stands at its last point, unless another one's is there.
const NAME_HEIGHT: f64 = 17.0;
/// Middle tones: enough contrast on a light and on a dark page.
const TEXT: &str = "#7d8590";
const COLOURS: [&str; 6] = [
    "#2f81f7", "#d29922", "#3fb950", "#db61a2", "#a371f7", "#e5534b",
];

/// The whole picture. `axis` says what a ratio below 1 means.
#[must_use]
pub fn svg(title: &str, axis: &str, curves: &[Curve]) -> String {
    let scale = Scale::over(curves);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"12\" fill=\"{TEXT}\" role=\"img\" aria-label=\"{}\">\n",
        escape(title)
    );
    text(
        &mut svg,
        (8.0, 22.0),
        "font-size=\"16\" font-weight=\"600\"",
        title,
    );
    text(&mut svg, (8.0, 42.0), "", axis);
    grid(&mut svg, &scale);
    let mut names: Vec<f64> = Vec::new();
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        line(&mut svg, &scale, curve, colour);
        let Some(&(_, last)) = curve.points.last() else {
            continue;
        };
        let y = free_place(&names, scale.y(last));
        names.push(y);
        let place = (WIDTH - RIGHT + 8.0, y + 4.0);
        text(&mut svg, place, &format!("fill=\"{colour}\""), &curve.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Powers of two to the right, and as far up as down from 1.
struct Scale {
    first: f64,
    last: f64,
    /// The power of two that is the upper edge.
    reach: f64,
}

impl Scale {
    fn over(curves: &[Curve]) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let sizes = || points().map(|(size, _)| size.log2());
        let (first, last) = (
            sizes().fold(f64::INFINITY, f64::min),
            sizes().fold(0.0, f64::max),
        );
        let reach = points().map(|(_, ratio)| ratio.log2().abs());
        Self {
            first: first.min(last),
            last: last.max(first.min(last) + 1.0),
            reach: reach.fold(1.0, f64::max).ceil(),
        }
    }

    fn x(&self, size: f64) -> f64 {
        let share = (size.log2() - self.first) / (self.last - self.first);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ratio: f64) -> f64 {
        let share = (self.reach - ratio.log2()) / (2.0 * self.reach);
        TOP + share * (HEIGHT - TOP - BOTTOM)
    }
}

fn grid(svg: &mut String, scale: &Scale) {
    for power in -scale.reach as i32..=scale.reach as i32 {
        let ratio = f64::from(power).exp2();
        let y = scale.y(ratio);
        let opacity = if power == 0 { 0.9 } else { 0.25 };
        stroke(svg, (LEFT, y), (WIDTH - RIGHT, y), opacity);
        let label = if power < 0 {
            format!("1/{}", 1u64 << -power)
        } else {
            (1u64 << power).to_string()
        };
        text(svg, (LEFT - 8.0, y + 4.0), "text-anchor=\"end\"", &label);
    }
    for power in (scale.first as i32..=scale.last as i32).step_by(2) {
        let size = f64::from(power).exp2();
        let x = scale.x(size);
        stroke(svg, (x, TOP), (x, HEIGHT - BOTTOM), 0.25);
        let place = (x, HEIGHT - BOTTOM + 18.0);
        text(svg, place, "text-anchor=\"middle\"", &size_in_words(size));
    }
}

fn line(svg: &mut String, scale: &Scale, curve: &Curve, colour: &str) {
    let points: Vec<String> = curve
        .points
        .iter()
        .map(|(size, ratio)| format!("{:.1},{:.1}", scale.x(*size), scale.y(*ratio)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        points.join(" ")
    );
}

/// The nearest place below that is free.
fn free_place(taken: &[f64], wanted: f64) -> f64 {
    let mut y = wanted;
    while taken.iter().any(|other| (other - y).abs() < NAME_HEIGHT) {
        y += 1.0;
    }
    y
}

/// 1 KB is 1024 bytes here, as with everybody who halves and doubles.
#[must_use]
pub fn size_in_words(bytes: f64) -> String {
    let (unit, name) = match bytes {
        _ if bytes >= 1_048_576.0 => (1_048_576.0, "MB"),
        _ if bytes >= 1024.0 => (1024.0, "KB"),
        _ => (1.0, "bytes"),
    };
    format!("{:.0} {name}", bytes / unit)
}

fn stroke(svg: &mut String, from: (f64, f64), to: (f64, f64), opacity: f64) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{TEXT}\" stroke-opacity=\"{opacity}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>",
        escape(words)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
        Curve {
            name: name.into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn one_is_in_the_middle_and_doubling_is_a_step() {
        let scale = Scale::over(&[curve("a", &[(1024.0, 0.3), (4096.0, 1.5)])]);
        assert_eq!(scale.reach, 2.0);
        assert!((scale.y(1.0) - (TOP + HEIGHT - BOTTOM) / 2.0).abs() < 1e-9);
        let steps = [
            scale.x(2048.0) - scale.x(1024.0),
            scale.x(4096.0) - scale.x(2048.0),
        ];
        assert!((steps[0] - steps[1]).abs() < 1e-9);
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let same = [(1024.0, 0.5)];
        let svg = svg("t", "a", &[curve("one & 1", &same), curve("two", &same)]);
        assert!(svg.contains(">one &amp; 1<") && svg.contains(">two<"));
        assert_eq!(free_place(&[10.0], 12.0), 27.0);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [512.0, 1024.0, 67_108_864.0].map(size_in_words),
            ["512 bytes", "1 KB", "64 MB"]
        );
    }
}
