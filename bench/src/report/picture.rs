//! A bar chart as SVG: two bars for each server on a logarithmic scale, readable on white and black.

use super::table::number;
use std::fmt::Write;

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
/// Of a letter, on average.
const LETTER_WIDTH: f64 = 7.0;
const NUMBER_WIDTH: f64 = 80.0;
const TOP: f64 = 74.0;
const ROW_HEIGHT: f64 = 46.0;
const BAR_HEIGHT: f64 = 15.0;
/// Middle tones: enough contrast on a light and on a dark page.
const TEXT: &str = "#7d8590";
const LIMIT: &str = "#8c959f";
const MEASURED: &str = "#2f81f7";

/// The whole picture.
#[must_use]
pub fn svg(title: &str, legend: [&str; 2], pairs: &[Pair]) -> String {
    let height = TOP + ROW_HEIGHT * pairs.len() as f64 + 26.0;
    let scale = Scale::over(pairs);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" fill=\"{TEXT}\" role=\"img\" aria-label=\"{label}\">\n",
        label = escape(title)
    );
    text(
        &mut svg,
        8.0,
        22.0,
        "font-size=\"16\" font-weight=\"600\"",
        title,
    );
    self::legend(&mut svg, legend);
    grid(&mut svg, &scale, height);
    for (index, pair) in pairs.iter().enumerate() {
        row(&mut svg, &scale, TOP + ROW_HEIGHT * index as f64, pair);
    }
    svg.push_str("</svg>\n");
    svg
}

/// From one request per second to the power of ten above the highest bar.
struct Scale {
    decades: f64,
    /// Where the bars begin: right of the longest name.
    left: f64,
}

impl Scale {
    fn over(pairs: &[Pair]) -> Self {
        let highest = pairs
            .iter()
            .flat_map(|pair| [pair.limit, pair.measured])
            .fold(10.0, f64::max);
        let letters = pairs.iter().map(|pair| pair.name.chars().count()).max();
        Self {
            decades: highest.log10().ceil(),
            left: LETTER_WIDTH * letters.unwrap_or(0) as f64 + 30.0,
        }
    }

    fn width(&self, value: f64) -> f64 {
        value.max(1.0).log10() / self.decades * (WIDTH - self.left - NUMBER_WIDTH)
    }
}

fn legend(svg: &mut String, [limit, measured]: [&str; 2]) {
    rect(svg, 8.0, 36.0, 12.0, 12.0, LIMIT);
    text(svg, 26.0, 47.0, "", limit);
    rect(svg, 368.0, 36.0, 12.0, 12.0, MEASURED);
    text(svg, 386.0, 47.0, "", measured);
}

fn grid(svg: &mut String, scale: &Scale, height: f64) {
    for decade in 0..=scale.decades as i32 {
        let value = 10f64.powi(decade);
        let x = scale.left + scale.width(value);
        let bottom = height - 22.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"{TEXT}\" stroke-opacity=\"0.25\"/>",
            TOP - 8.0
        );
        text(
            svg,
            x,
            height - 6.0,
            "text-anchor=\"middle\" font-size=\"11\"",
            &number_of_decade(value),
        );
    }
}

fn number_of_decade(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.0}")
    } else {
        number(value)
    }
}

fn row(svg: &mut String, scale: &Scale, y: f64, pair: &Pair) {
    text(
        svg,
        scale.left - 10.0,
        y + 20.0,
        "text-anchor=\"end\"",
        &pair.name,
    );
    bar(svg, scale, y, pair.limit, LIMIT);
    bar(svg, scale, y + BAR_HEIGHT + 2.0, pair.measured, MEASURED);
}

fn bar(svg: &mut String, scale: &Scale, y: f64, value: f64, colour: &str) {
    let width = scale.width(value).max(2.0);
    rect(svg, scale.left, y, width, BAR_HEIGHT, colour);
    text(
        svg,
        scale.left + width + 6.0,
        y + 12.0,
        "font-size=\"12\"",
        &number(value),
    );
}

fn rect(svg: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, attributes: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>",
        escape(words)
    );
}

pub(super) fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
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
        let scale = Scale::over(&[pair("a", 90_000.0, 2.7)]);
        assert_eq!(scale.decades, 5.0);
        assert!((scale.width(100.0) - 2.0 * scale.width(10.0)).abs() < 1e-9);
        assert_eq!(scale.width(0.0), 0.0);
    }

    #[test]
    fn names_and_numbers_are_shown_escaped() {
        let svg = svg("a & b", ["one", "two"], &[pair("x<y", 64_479.0, 2.7)]);
        assert!(svg.contains("x&lt;y") && svg.contains("a &amp; b"));
        assert!(svg.contains(">64 500<") && svg.contains(">2.70<"));
        assert!(svg.contains(">one<") && svg.contains(">two<"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
