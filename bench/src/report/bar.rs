//! The last column of a table: whether the bars, the required figures, are met.

/// `pass`, or the bars that are missed: those whose condition holds.
#[must_use]
pub fn verdict(bars: &[(bool, &str)], errors: u64) -> String {
    let mut missed: Vec<String> = bars
        .iter()
        .filter(|(is_missed, _)| *is_missed)
        .map(|(_, bar)| (*bar).to_owned())
        .collect();
    if errors > 0 {
        missed.push(format!("{errors} errors"));
    }
    if missed.is_empty() {
        "pass".into()
    } else {
        format!("missed: {}", missed.join(", "))
    }
}

/// A peer has no bar, but its errors show that it was not measured.
#[must_use]
pub fn verdict_of_peer(errors: u64) -> String {
    match errors {
        0 => "-".into(),
        _ => format!("{errors} errors"),
    }
}

/// Whether a figure is below its minimum. A figure that could not be measured (NaN) is.
#[must_use]
pub fn is_below(figure: f64, bar: f64) -> bool {
    !matches!(
        figure.partial_cmp(&bar),
        Some(std::cmp::Ordering::Greater | std::cmp::Ordering::Equal)
    )
}

/// Whether a figure is above its maximum. A figure that could not be measured (NaN) is.
#[must_use]
pub fn is_above(figure: f64, bar: f64) -> bool {
    is_below(-figure, -bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_bars_are_named() {
        assert_eq!(verdict(&[(false, "E"), (false, "p99")], 0), "pass");
        assert_eq!(
            verdict(&[(true, "E"), (false, "p99")], 3),
            "missed: E, 3 errors"
        );
    }

    #[test]
    fn a_figure_at_its_limit_passes_and_nan_fails() {
        assert!(!is_below(0.9, 0.9) && is_below(0.89, 0.9) && is_below(f64::NAN, 0.9));
        assert!(!is_above(1.2, 1.2) && is_above(1.21, 1.2) && is_above(f64::NAN, 1.2));
    }
}
