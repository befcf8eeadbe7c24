//! Markdown tables and the format of their numbers.

/// A heading and rows of the same length.
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. The number of cells must be that of the heading.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(
            row.len(),
            self.heading.len(),
            "a row as long as the heading"
        );
        self.rows.push(row);
    }

    /// The text in Markdown: the first column is left-aligned, the others right-aligned.
    #[must_use]
    pub fn markdown(&self) -> String {
        let heading = line(&self.heading);
        let rule = format!("|---|{}", "---:|".repeat(self.heading.len() - 1));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{heading}{rule}\n{rows}")
    }
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Three significant digits, with thousands separated: `0.93`, `12.4`, `64 500`.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let digits = value.abs().max(0.001).log10().floor() as i32;
    if digits < 2 {
        return format!(
            "{value:.*}",
            usize::try_from((2 - digits).min(2)).unwrap_or(0)
        );
    }
    let unit = 10f64.powi(digits - 2);
    thousands((value / unit).round() * unit)
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Microseconds as milliseconds, or as seconds from one second on.
#[must_use]
pub fn time_us(us: f64) -> String {
    if us >= 1_000_000.0 {
        format!("{} s", number(us / 1e6))
    } else {
        format!("{} ms", number(us / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.9312, 2.7, 12.44, 109.6, 64_479.0, 1_234_567.0, 0.0].map(number);
        assert_eq!(
            shown,
            ["0.93", "2.70", "12.4", "110", "64 500", "1 230 000", "0.00"]
        );
        assert_eq!(number(f64::NAN), "-");
    }

    #[test]
    fn times_choose_their_unit() {
        assert_eq!([time_us(85.0), time_us(2_350_000.0)], ["0.09 ms", "2.35 s"]);
    }

    #[test]
    fn markdown_aligns_numbers_right() {
        let mut table = Table::new(&["server", "req/s"]);
        table.push(vec!["a".into(), "1".into()]);
        assert_eq!(
            table.markdown(),
            "| server | req/s |\n|---|---:|\n| a | 1 |\n"
        );
    }
}
