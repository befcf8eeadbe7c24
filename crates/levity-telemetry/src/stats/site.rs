//! Counters of sites, which come and go with reloads. As with [upstreams](super::upstream), each worker has cells of its
//! own, and a scrape adds up those with the same name.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::register::{add, retain};
use crate::cells::{Counter, Fourfold, HistogramFigures};

/// The maximum number of sites with counters of their own: each has 24 series at `/metrics` and 256 bytes per worker.
pub const SITES_MAX: usize = 100;

/// The name under which all further sites count.
pub const OTHER: &str = "other";

/// Classes of statuses by their first digit; at 0 what is no status.
pub const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The index in [`CLASSES`] of a status of three digits. From 600, which only applications send, it counts as 5xx
/// (RFC 9110, 15).
pub fn class(status: u16) -> usize {
    usize::from(status / 100).min(CLASSES.len() - 1)
}

/// The sites of one worker.
#[derive(Debug, Default)]
pub struct SiteRegister(ArcSwap<Vec<Arc<SiteCells>>>);

impl SiteRegister {
    /// The cells of the sites with these names, in their order. Those of a name that was known stay, those of all other
    /// names are dropped. From the [`SITES_MAX`]th on, sites share one. For the worker's own thread.
    pub fn replace<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<Arc<SiteCells>> {
        let label = |(number, name): (usize, &'n str)| match number < SITES_MAX {
            true => name,
            false => OTHER,
        };
        let cells: Vec<_> = names
            .enumerate()
            .map(label)
            .map(|name| self.of(name))
            .collect();
        retain(&self.0, |known| {
            cells.iter().any(|kept| kept.name == known.name)
        });
        cells
    }

    fn of(&self, name: &str) -> Arc<SiteCells> {
        let known = self.0.load();
        let known = known.iter().find(|cells| cells.name == name).cloned();
        known.unwrap_or_else(|| {
            let new = Arc::new(SiteCells {
                name: name.to_owned(),
                ..SiteCells::default()
            });
            add(&self.0, new.clone());
            new
        })
    }
}

/// One worker's counters of one site. Only that worker's thread may count; nothing here blocks.
// Aligned, so that two workers never write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SiteCells {
    name: String,
    classes: [Counter; CLASSES.len()],
    bytes: Counter,
    duration: Fourfold,
}

impl SiteCells {
    /// A request was answered with `status` and `bytes` of a body, `duration` after its first byte.
    pub fn request(&self, status: u16, bytes: u64, duration: Duration) {
        self.classes[class(status)].add(1);
        self.bytes.add(bytes);
        self.duration
            .observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The figures of a site, of all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFigures {
    /// Its first host, `default`, or [`OTHER`].
    pub name: String,
    /// Requests by class of status, in the order of [`CLASSES`].
    pub classes: [u64; CLASSES.len()],
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// From the first byte of a request to the last of its response.
    pub duration: HistogramFigures,
}

impl SiteFigures {
    /// Those of all sites in `registers`, in the order of the first register.
    pub(super) fn all<'r>(registers: impl Iterator<Item = &'r SiteRegister>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for cells in registers.flat_map(|register| register.0.load().to_vec()) {
            let figures = Self::of(&cells);
            match all.iter_mut().find(|known| known.name == figures.name) {
                Some(known) => known.add(figures),
                None => all.push(figures),
            }
        }
        all
    }

    fn of(cells: &SiteCells) -> Self {
        Self {
            name: cells.name.clone(),
            classes: std::array::from_fn(|class| cells.classes[class].get()),
            bytes: cells.bytes.get(),
            duration: cells.duration.figures(),
        }
    }

    fn add(&mut self, more: Self) {
        for (sum, count) in self.classes.iter_mut().zip(more.classes) {
            *sum += count;
        }
        self.bytes += more.bytes;
        let parts = [self.duration.clone(), more.duration];
        self.duration
            .clone_from(&HistogramFigures::total(parts.into_iter()).expect("two"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(registers: &[SiteRegister]) -> Vec<(String, u64)> {
        let all = SiteFigures::all(registers.iter());
        let count = |one: SiteFigures| (one.name, one.classes.iter().sum());
        all.into_iter().map(count).collect()
    }

    #[test]
    fn a_reload_keeps_the_counters_of_sites_that_stay() {
        let registers = [SiteRegister::default(), SiteRegister::default()];
        for register in &registers {
            let sites = register.replace(["a", "b"].into_iter());
            for (site, status) in sites.iter().zip([200, 999]) {
                site.request(status, 10, Duration::from_millis(3));
            }
            let again = register.replace(["c", "b"].into_iter());
            again[1].request(0, 1, Duration::ZERO);
        }
        assert_eq!(
            figures(&registers),
            [("b".to_owned(), 4), ("c".to_owned(), 0)]
        );
        let all = SiteFigures::all(registers.iter());
        assert_eq!((all[0].classes, all[0].bytes), ([2, 0, 0, 0, 0, 2], 22));
        assert_eq!(all[0].duration.count(), 4);
    }

    #[test]
    fn further_sites_share_counters() {
        let register = SiteRegister::default();
        let names: Vec<_> = (0..SITES_MAX + 2)
            .map(|number| number.to_string())
            .collect();
        let names = |count: usize| names.iter().take(count).map(String::as_str);
        for (count, cells) in [
            (SITES_MAX, SITES_MAX),
            (SITES_MAX + 1, SITES_MAX + 1),
            (SITES_MAX + 2, SITES_MAX + 1),
        ] {
            let sites = register.replace(names(count));
            assert_eq!(sites.len(), count);
            for site in &sites {
                site.request(200, 1, Duration::ZERO);
            }
            let figures = SiteFigures::all([&register].into_iter());
            assert_eq!(figures.len(), cells);
            assert_eq!(
                figures.iter().any(|one| one.name == OTHER),
                count > SITES_MAX
            );
        }
        let figures = SiteFigures::all([&register].into_iter());
        assert_eq!(
            figures.last().map(|one| (one.name.as_str(), one.bytes)),
            Some((OTHER, 3))
        );
    }
}
