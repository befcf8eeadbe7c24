//! SVG documents of titles, legends, grids, rectangles and paths, readable on a light and on a dark page.

use std::fmt::Write as _;

/// The colour of text and grid: enough contrast on a light and on a dark page.
const GREY: &str = "#7d8590";

/// Of grid lines.
const GRID_OPACITY: f64 = 0.25;

/// `x` and `y` in user units; `y` grows downwards.
pub type Point = [f64; 2];

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Its left and its right edge.
    pub x: [f64; 2],
    /// Its upper and its lower edge.
    pub y: [f64; 2],
}

impl Area {
    /// The `x` at a share of the width, counted from the left edge.
    #[must_use]
    pub fn x_at(&self, share: f64) -> f64 {
        let [left, right] = self.x;
        left + share * (right - left)
    }

    /// The `y` at a share of the height, counted from the lower edge.
    #[must_use]
    pub fn y_at(&self, share: f64) -> f64 {
        let [top, bottom] = self.y;
        bottom - share * (bottom - top)
    }
}

/// A document, element by element. Every text is escaped; attributes are written as they are.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// A document of this size with its title in the upper left corner.
    #[must_use]
    pub fn new([width, height]: [f64; 2], font_size: u32, title: &str) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"{font_size}\" fill=\"{GREY}\" role=\"img\" \
             aria-label=\"{}\">\n",
            escaped(title)
        ));
        svg.text([8.0, 22.0], "font-size=\"16\" font-weight=\"600\"", title);
        svg
    }

    /// One line of text, its baseline at `y`.
    pub fn text(&mut self, [x, y]: Point, attributes: &str, text: &str) {
        let text = escaped(text);
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>"
        ));
    }

    /// A filled rectangle from its upper left corner.
    pub fn rect(&mut self, [x, y]: Point, [width, height]: [f64; 2], colour: &str) {
        self.element(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"{colour}\"/>"
        ));
    }

    /// A colour of the legend and what it stands for.
    pub fn legend(&mut self, [x, y]: Point, colour: &str, text: &str) {
        self.rect([x, y], [12.0, 12.0], colour);
        self.text([x + 18.0, y + 11.0], "", text);
    }

    /// A straight line in grey.
    pub fn line(&mut self, [x1, y1]: Point, [x2, y2]: Point, opacity: f64) {
        self.element(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{GREY}\" \
             stroke-opacity=\"{opacity}\"/>"
        ));
    }

    /// A vertical grid line with its label below.
    pub fn grid_column(&mut self, area: &Area, x: f64, label: &str) {
        let [top, bottom] = area.y;
        self.line([x, top], [x, bottom], GRID_OPACITY);
        let centred = "text-anchor=\"middle\" font-size=\"11\"";
        self.text([x, bottom + 18.0], centred, label);
    }

    /// A horizontal grid line with its label to the left.
    pub fn grid_row(&mut self, area: &Area, y: f64, label: &str) {
        let [left, right] = area.x;
        self.line([left, y], [right, y], GRID_OPACITY);
        let right_aligned = "text-anchor=\"end\" font-size=\"11\"";
        self.text([left - 8.0, y + 4.0], right_aligned, label);
    }

    /// A path that is drawn and not filled; `data` is in SVG's own language (SVG 2, section 9.3).
    pub fn path(&mut self, data: &str, colour: &str, width: f64, opacity: f64) {
        self.element(format_args!(
            "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\" d=\"{data}\"/>"
        ));
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    /// The whole document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_from_the_lower_left_corner() {
        let area = Area {
            x: [10.0, 110.0],
            y: [20.0, 220.0],
        };
        assert_eq!([area.x_at(0.0), area.y_at(0.0)], [10.0, 220.0]);
        assert_eq!([area.x_at(0.5), area.y_at(0.25)], [60.0, 170.0]);
    }

    #[test]
    fn text_cannot_end_an_element_or_an_attribute() {
        let mut svg = Svg::new([10.0, 10.0], 12, "a \"b\" & c");
        svg.legend([1.0, 2.0], GREY, "x<y");
        let svg = svg.finish();
        assert!(
            svg.contains("aria-label=\"a &quot;b&quot; &amp; c\""),
            "{svg}"
        );
        assert!(svg.contains(">x&lt;y</text>"), "{svg}");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("\n</svg>\n"),
            "{svg}"
        );
    }
}
