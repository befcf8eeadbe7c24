//! A bar chart as SVG: two bars for each server on a logarithmic scale.

use super::table::number;
use levity_inspect::svg::{Area, Svg};

/// One server's pair of bars.
pub struct Pair {
    /// The server.
    pub name: String,
    /// What could be had.
    pub limit: f64,
    /// What it gave.
    pub measured: f64,
}

const WIDTH: f64 = 860.0;
/// The average width of a letter.
const LETTER_WIDTH: f64 = 7.0;
const NUMBER_WIDTH: f64 = 80.0;
const TOP: f64 = 74.0;
const ROW_HEIGHT: f64 = 46.0;
const BAR_HEIGHT: f64 = 15.0;
const LIMIT: &str = "#8c959f";
const MEASURED: &str = "#2f81f7";

/// The picture as SVG.
#[must_use]
pub fn svg(title: &str, [limit, measured]: [&str; 2], pairs: &[Pair]) -> String {
    let bottom = TOP + ROW_HEIGHT * pairs.len() as f64 + 2.0;
    let mut svg = Svg::new([WIDTH, bottom + 24.0], 13, title);
    svg.legend([8.0, 36.0], LIMIT, limit);
    svg.legend([368.0, 36.0], MEASURED, measured);
    let scale = Scale::over(pairs, bottom);
    for decade in 0..=scale.decades as i32 {
        let value = 10f64.powi(decade);
        svg.grid_column(&scale.area, scale.x(value), &number_of_decade(value));
    }
    for (index, pair) in pairs.iter().enumerate() {
        row(&mut svg, &scale, TOP + ROW_HEIGHT * index as f64, pair);
    }
    svg.finish()
}

/// From one request per second to the power of ten above the highest bar.
struct Scale {
    decades: f64,
    /// Right of the longest name.
    area: Area,
}

impl Scale {
    fn over(pairs: &[Pair], bottom: f64) -> Self {
        let highest = pairs
            .iter()
            .flat_map(|pair| [pair.limit, pair.measured])
            .fold(10.0, f64::max);
        let letters = pairs.iter().map(|pair| pair.name.chars().count()).max();
        let left = LETTER_WIDTH * letters.unwrap_or(0) as f64 + 30.0;
        Self {
            decades: highest.log10().ceil(),
            area: Area {
                x: [left, WIDTH - NUMBER_WIDTH],
                y: [TOP - 8.0, bottom],
            },
        }
    }

    fn x(&self, value: f64) -> f64 {
        self.area.x_at(value.max(1.0).log10() / self.decades)
    }
}

fn number_of_decade(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.0}")
    } else {
        number(value)
    }
}

fn row(svg: &mut Svg, scale: &Scale, y: f64, pair: &Pair) {
    let [left, _] = scale.area.x;
    svg.text([left - 10.0, y + 20.0], "text-anchor=\"end\"", &pair.name);
    bar(svg, scale, y, pair.limit, LIMIT);
    bar(svg, scale, y + BAR_HEIGHT + 2.0, pair.measured, MEASURED);
}

fn bar(svg: &mut Svg, scale: &Scale, y: f64, value: f64, colour: &str) {
    let [left, _] = scale.area.x;
    let width = (scale.x(value) - left).max(2.0);
    svg.rect([left, y], [width, BAR_HEIGHT], colour);
    let end = [left + width + 6.0, y + 12.0];
    svg.text(end, "font-size=\"12\"", &number(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, limit: f64, measured: f64) -> Pair {
        Pair {
            name: name.into(),
            limit,
            measured,
        }
    }

    #[test]
    fn each_decade_is_as_wide_as_the_next() {
        let scale = Scale::over(&[pair("a", 90_000.0, 2.7)], 100.0);
        assert_eq!(scale.decades, 5.0);
        let width = |value| scale.x(value) - scale.area.x[0];
        assert!((width(100.0) - 2.0 * width(10.0)).abs() < 1e-9);
        assert_eq!(width(0.0), 0.0);
    }

    #[test]
    fn names_and_numbers_are_escaped() {
        let svg = svg("a & b", ["one", "two"], &[pair("x<y", 64_479.0, 2.7)]);
        assert!(svg.contains("x&lt;y") && svg.contains("a &amp; b"));
        assert!(svg.contains(">64 500<") && svg.contains(">2.70<"));
        assert!(svg.contains(">one<") && svg.contains(">two<"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
