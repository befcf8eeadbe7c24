//! A bar chart as SVG: the share of the throughput that a file in memory keeps while other clients fetch cold files.

use super::table::time_us;
use levity_inspect::svg::{Area, Svg};

/// One server on one disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The server.
    pub server: String,
    /// Requests per second with cold files over those without.
    pub share: f64,
    /// 99th percentile of the latency with cold files.
    pub p99_us: f64,
}

/// All servers on one disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The disk.
    pub disk: String,
    /// The servers.
    pub rows: Vec<Kept>,
}

const TITLE: &str =
    "A 4 KB file in memory, while 100 clients fetch cold files from the same server";
const SUBTITLE: &str =
    "Requests per second, in percent of those without the clients of cold files; p99 of a request";
const WIDTH: f64 = 860.0;
/// The average width of a letter.
const LETTER_WIDTH: f64 = 7.0;
/// The figures right of a bar.
const FIGURES_WIDTH: f64 = 150.0;
const TOP: f64 = 92.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_STEP: f64 = 17.0;
const ROW_GAP: f64 = 12.0;
const GRID_PERCENT: f64 = 20.0;
/// Medium tones, with enough contrast on light and dark pages.
const COLOURS: [&str; 2] = ["#2f81f7", "#d29922"];

/// The picture as SVG: for each server of the first panel one bar for each panel.
#[must_use]
pub fn svg(panels: &[Panel]) -> String {
    let servers: Vec<&str> = panels
        .first()
        .into_iter()
        .flat_map(|panel| &panel.rows)
        .map(|row| &*row.server)
        .collect();
    let height = BAR_STEP * panels.len() as f64 + ROW_GAP;
    let bottom = TOP + height * servers.len() as f64;
    let mut svg = Svg::new([WIDTH, bottom + 24.0], 13, TITLE);
    svg.text([8.0, 42.0], "", SUBTITLE);
    for (index, (panel, colour)) in panels.iter().zip(COLOURS).enumerate() {
        svg.legend([8.0 + 300.0 * index as f64, 56.0], colour, &panel.disk);
    }
    let scale = Scale::over(panels, bottom);
    scale.draw(&mut svg);
    for (index, server) in servers.iter().enumerate() {
        let y = TOP + height * index as f64;
        let middle = y + (height - ROW_GAP) / 2.0 + 4.0;
        let left = scale.area.x[0];
        svg.text([left - 10.0, middle], "text-anchor=\"end\"", server);
        for (number, (panel, colour)) in panels.iter().zip(COLOURS).enumerate() {
            if let Some(kept) = panel.rows.iter().find(|row| row.server == *server) {
                scale.bar(&mut svg, y + BAR_STEP * number as f64, kept, colour);
            }
        }
    }
    svg.finish()
}

/// The rows for a small picture: Levity, the nginx that keeps most over all disks, lighttpd, and Levity with the engine
/// that blocks. An nginx that has opened every cold file before is left out, because the table explains it.
#[must_use]
pub fn main_rows(panels: &[Panel]) -> Vec<Panel> {
    let names = [
        ("levity auto", "Levity"),
        (best_nginx(panels).unwrap_or_default(), ""),
        ("lighttpd", ""),
        ("levity sendfile", "Levity, blocking (sendfile)"),
    ];
    let chosen = |panel: &Panel| Panel {
        disk: panel.disk.clone(),
        rows: names
            .iter()
            .filter_map(|&(name, label)| {
                let row = panel.rows.iter().find(|row| row.server == name)?;
                let server = if label.is_empty() { name } else { label };
                Some(Kept {
                    server: server.into(),
                    ..row.clone()
                })
            })
            .collect(),
    };
    panels.iter().map(chosen).collect()
}

/// Of those that were measured on every disk.
fn best_nginx(panels: &[Panel]) -> Option<&str> {
    let total = |server: &str| -> Option<f64> {
        let shares = panels.iter().map(|panel| {
            let row = panel.rows.iter().find(|row| row.server == server)?;
            Some(row.share)
        });
        shares.sum()
    };
    let servers = panels.first()?.rows.iter().map(|row| &*row.server);
    servers
        .filter(|server| server.starts_with("nginx"))
        .filter_map(|server| Some((server, total(server)?)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(server, _)| server)
}

/// From zero to the first grid line that is at least 100 % and above every bar.
struct Scale {
    percent: f64,
    area: Area,
}

impl Scale {
    fn over(panels: &[Panel], bottom: f64) -> Self {
        let rows = || panels.iter().flat_map(|panel| &panel.rows);
        let highest = rows().map(|row| row.share * 100.0).fold(100.0, f64::max);
        let letters = rows().map(|row| row.server.chars().count()).max();
        let left = LETTER_WIDTH * letters.unwrap_or(0) as f64 + 20.0;
        Self {
            percent: (highest / GRID_PERCENT).ceil() * GRID_PERCENT,
            area: Area {
                x: [left, WIDTH - FIGURES_WIDTH],
                y: [TOP - 8.0, bottom],
            },
        }
    }

    fn x(&self, percent: f64) -> f64 {
        self.area.x_at(percent / self.percent)
    }

    fn draw(&self, svg: &mut Svg) {
        for line in 0..=(self.percent / GRID_PERCENT) as u32 {
            let percent = f64::from(line) * GRID_PERCENT;
            svg.grid_column(&self.area, self.x(percent), &format!("{percent:.0} %"));
        }
    }

    fn bar(&self, svg: &mut Svg, y: f64, kept: &Kept, colour: &str) {
        let [left, _] = self.area.x;
        let width = (self.x(kept.share * 100.0) - left).max(2.0);
        svg.rect([left, y], [width, BAR_HEIGHT], colour);
        let figures = format!("{}, p99 {}", percent(kept.share), time_us(kept.p99_us));
        svg.text([left + width + 6.0, y + 12.0], "font-size=\"12\"", &figures);
    }
}

/// Less than one percent is not nothing.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent {
        _ if percent >= 10.0 || percent == 0.0 => 0,
        _ if percent >= 0.1 => 1,
        _ => 3,
    };
    format!("{percent:.digits$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(disk: &str, rows: &[(&str, f64)]) -> Panel {
        let kept = |(server, share): &(&str, f64)| Kept {
            server: (*server).into(),
            share: *share,
            p99_us: 1540.0,
        };
        Panel {
            disk: disk.into(),
            rows: rows.iter().map(kept).collect(),
        }
    }

    #[test]
    fn the_small_picture_has_the_best_nginx_of_both_disks() {
        let slow = [
            ("levity auto", 1.1),
            ("levity sendfile", 0.0),
            ("nginx-a", 0.5),
            ("nginx-b", 0.4),
            ("nginx-filled", 0.9),
            ("lighttpd", 0.0),
        ];
        let fast = [("levity auto", 0.9), ("nginx-a", 0.1), ("nginx-b", 0.6)];
        let main = main_rows(&[panel("slow", &slow), panel("fast", &fast)]);
        let names = |panel: &Panel| -> Vec<String> {
            panel.rows.iter().map(|row| row.server.clone()).collect()
        };
        assert_eq!(
            names(&main[0]),
            [
                "Levity",
                "nginx-b",
                "lighttpd",
                "Levity, blocking (sendfile)"
            ]
        );
        assert_eq!(names(&main[1]), ["Levity", "nginx-b"]);
    }

    #[test]
    fn bars_are_proportional() {
        let scale = Scale::over(&[panel("d", &[("a", 1.11)])], 200.0);
        assert_eq!(scale.percent, 120.0);
        let width = |percent| scale.x(percent) - scale.area.x[0];
        assert!((width(80.0) - 2.0 * width(40.0)).abs() < 1e-9);
    }

    #[test]
    fn each_disk_has_its_bar_with_figures() {
        let svg = svg(&[
            panel("slow & old", &[("a", 0.97), ("b", 0.000_05)]),
            panel("fast", &[("a", 0.8)]),
        ]);
        assert!(svg.contains(">slow &amp; old<") && svg.contains(">fast<"));
        assert!(svg.contains(">97 %, p99 1.54 ms<") && svg.contains(">80 %, p99 1.54 ms<"));
        assert!(svg.contains(">0.005 %, p99 1.54 ms<"));
    }
}
