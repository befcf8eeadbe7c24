//! Curves of a ratio over sizes as SVG, with logarithmic axes.

use levity_inspect::svg::{Area, Svg};

/// One curve.
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Points: size in bytes, and ratio.
    pub points: Vec<(f64, f64)>,
}

const SIZE: [f64; 2] = [860.0, 420.0];
const AREA: Area = Area {
    x: [52.0, 670.0],
    y: [56.0, 380.0],
};
/// The name of a curve is at its last point, or at the nearest free position below.
const NAME_HEIGHT: f64 = 17.0;
/// Medium tones, with enough contrast on light and dark pages.
const COLOURS: [&str; 6] = [
    "#2f81f7", "#d29922", "#3fb950", "#db61a2", "#a371f7", "#e5534b",
];

/// The picture as SVG. `axis` explains a ratio below 1.
#[must_use]
pub fn svg(title: &str, axis: &str, curves: &[Curve]) -> String {
    let scale = Scale::over(curves);
    let mut svg = Svg::new(SIZE, 12, title);
    svg.text([8.0, 42.0], "", axis);
    grid(&mut svg, &scale);
    let mut names: Vec<f64> = Vec::new();
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let Some(&(_, last)) = curve.points.last() else {
            continue;
        };
        svg.path(&line(&scale, curve), colour, 2.0, 1.0);
        let y = free_place(&names, scale.y(last));
        names.push(y);
        let place = [AREA.x[1] + 8.0, y + 4.0];
        svg.text(place, &format!("fill=\"{colour}\""), &curve.name);
    }
    svg.finish()
}

/// Powers of two on the x axis; the y axis is symmetrical about 1.
struct Scale {
    first: f64,
    last: f64,
    /// The power of two at the upper edge.
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
        AREA.x_at((size.log2() - self.first) / (self.last - self.first))
    }

    fn y(&self, ratio: f64) -> f64 {
        AREA.y_at((self.reach + ratio.log2()) / (2.0 * self.reach))
    }
}

fn grid(svg: &mut Svg, scale: &Scale) {
    for power in -scale.reach as i32..=scale.reach as i32 {
        let label = if power < 0 {
            format!("1/{}", 1u64 << -power)
        } else {
            (1u64 << power).to_string()
        };
        svg.grid_row(&AREA, scale.y(f64::from(power).exp2()), &label);
    }
    let one = scale.y(1.0);
    svg.line([AREA.x[0], one], [AREA.x[1], one], 0.9);
    for power in (scale.first as i32..=scale.last as i32).step_by(2) {
        let size = f64::from(power).exp2();
        svg.grid_column(&AREA, scale.x(size), &size_in_words(size));
    }
}

fn line(scale: &Scale, curve: &Curve) -> String {
    let point =
        |(size, ratio): &(f64, f64)| format!("{:.1},{:.1}", scale.x(*size), scale.y(*ratio));
    let points: Vec<String> = curve.points.iter().map(point).collect();
    format!("M{}", points.join(" "))
}

/// The nearest free position below.
fn free_place(taken: &[f64], wanted: f64) -> f64 {
    let mut y = wanted;
    while taken.iter().any(|other| (other - y).abs() < NAME_HEIGHT) {
        y += 1.0;
    }
    y
}

/// 1 KB is 1024 bytes here, because sizes are powers of two.
#[must_use]
pub fn size_in_words(bytes: f64) -> String {
    let (unit, name) = match bytes {
        _ if bytes >= 1_048_576.0 => (1_048_576.0, "MB"),
        _ if bytes >= 1024.0 => (1024.0, "KB"),
        _ => (1.0, "bytes"),
    };
    format!("{:.0} {name}", bytes / unit)
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
        assert!((scale.y(1.0) - AREA.y_at(0.5)).abs() < 1e-9);
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
