//! A scrape of `/metrics`, taken apart.

/// Samples of one scrape.
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Reads the Prometheus text format; a line that is none fails the test.
    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        Self(samples.map(sample).collect())
    }

    /// The sum of all samples whose name and labels start with `series`, which is a name alone or
    /// one with its first labels.
    pub fn sum(&self, series: &str) -> f64 {
        let of = self.0.iter().filter(|(name, _)| is_of(name, series));
        of.map(|(_, value)| value).sum()
    }

    pub fn has(&self, series: &str) -> bool {
        self.0.iter().any(|(name, _)| is_of(name, series))
    }

    /// Recorded observations above `seconds` in a histogram, over all its labels; `seconds` must be
    /// one of its bounds.
    #[track_caller]
    pub fn above(&self, histogram: &str, seconds: f64) -> f64 {
        let bucket = format!("{histogram}_bucket");
        let at = |name: &str| le(name).is_some_and(|le| (le - seconds).abs() < 1e-9);
        let buckets: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| is_of(name, &bucket))
            .collect();
        let below: Vec<_> = buckets.iter().filter(|(name, _)| at(name)).collect();
        let known = || {
            buckets
                .iter()
                .filter_map(|(name, _)| le(name))
                .collect::<Vec<_>>()
        };
        assert!(
            !below.is_empty(),
            "{histogram} has no bound {seconds}: {:?}",
            known()
        );
        let below: f64 = below.iter().map(|(_, count)| count).sum();
        self.sum(&format!("{histogram}_count")) - below
    }
}

fn sample(line: &str) -> (String, f64) {
    let parsed = line
        .rsplit_once(' ')
        .and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    parsed.unwrap_or_else(|| panic!("not a sample: {line}"))
}

/// Whether `name`, with its labels, is of `series`.
fn is_of(name: &str, series: &str) -> bool {
    let series = series.strip_suffix('}').unwrap_or(series);
    name.strip_prefix(series)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['{', ',', '}']))
}

/// The upper bound of a bucket.
fn le(name: &str) -> Option<f64> {
    let (_, bound) = name.split_once("le=\"")?;
    bound.split('"').next()?.parse().ok()
}
