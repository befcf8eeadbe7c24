//! The median and the spread of a few passes.

/// Median, lowest and highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; for an even number the mean of the middle two.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// The spread of these values; all NaN when there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else {
            return Self {
                median: f64::NAN,
                low: f64::NAN,
                high: f64::NAN,
            };
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Self { median, low, high }
    }

    /// `median (low to high)`, or one value if all print the same.
    #[must_use]
    pub fn show(&self, print: impl Fn(f64) -> String) -> String {
        let (median, low, high) = (print(self.median), print(self.low), print(self.high));
        if low == high {
            median
        } else {
            format!("{median} ({low} to {high})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Spread {
                median: 2.0,
                low: 1.0,
                high: 3.0
            }
        );
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn equal_passes_have_no_spread() {
        let print = |value: f64| format!("{value:.0}");
        assert_eq!(Spread::of([1.1, 1.2]).show(print), "1");
        assert_eq!(Spread::of([1.0, 2.0, 9.0]).show(print), "2 (1 to 9)");
    }
}
