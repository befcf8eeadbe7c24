//! What was ordered at an authority whose limits are known, so that none of them is met.
//!
//! The figures are those that Let's Encrypt publishes. Other authorities say when to come again.

use std::fmt;
use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::{at, seconds};
use crate::failure::Failure;
use crate::folder::Folder;

/// The host of Let's Encrypt. Its authority for tests allows more.
const KNOWN: &str = "acme-v02.api.letsencrypt.org";

/// Orders of an account.
const ORDERS: Limit = Limit {
    count: 300,
    within: Duration::from_secs(3 * 60 * 60),
};

/// New certificates for names beneath one registered domain.
const PER_DOMAIN: Limit = Limit {
    count: 50,
    within: Duration::from_secs(7 * 24 * 60 * 60),
};

/// Certificates for the very same name.
const PER_NAME: Limit = Limit {
    count: 5,
    within: Duration::from_secs(7 * 24 * 60 * 60),
};

/// How long a certificate may still come of an order.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(15 * 60);

/// How far clocks of servers differ that share a folder.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// So many within a time.
struct Limit {
    count: usize,
    within: Duration,
}

/// What was ordered at an authority.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ledger(Vec<Order>);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// In seconds since 1970.
    at: u64,
    name: String,
    /// Whether a certificate came of it.
    is_issued: bool,
    /// Whether it replaced another one.
    is_renewal: bool,
}

/// Whether the limits of the authority with this directory are known, so that orders are counted.
pub fn is_known(directory: &str) -> bool {
    let rest = directory
        .split_once("://")
        .map_or(directory, |(_, rest)| rest);
    rest.split(['/', ':']).next() == Some(KNOWN)
}

impl Ledger {
    /// That of an authority. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn load(folder: &Folder, directory: &str) -> Result<Self, String> {
        let path = folder.ledger(directory);
        let failed = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        // A server with many names has a large one.
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Writes it, without what no limit counts any more. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn save(mut self, folder: &Folder, directory: &str, now: SystemTime) -> Result<(), String> {
        let [oldest, oldest_order] = [PER_DOMAIN, ORDERS].map(|limit| seconds(now - limit.within));
        let counts = |order: &Order| match order.is_issued {
            true => order.at > oldest,
            false => order.at > oldest_order,
        };
        self.0.retain(counts);
        let text = serde_json::to_vec(&self).map_err(|error| error.to_string())?;
        folder.write(&folder.ledger(directory), &text)
    }

    /// Whether another order for `name` is within the limits.
    ///
    /// # Errors
    /// When it is not; the failure says until when.
    pub fn allows(
        &self,
        directory: &str,
        name: &str,
        is_renewal: bool,
        now: SystemTime,
    ) -> Result<(), Failure> {
        if !is_known(directory) {
            return Ok(());
        }
        let domain = domain(name);
        let is_of_domain = |order: &Order| !order.is_renewal && self::domain(&order.name) == domain;
        let issued = |order: &Order| order.is_issued && is_of_domain(order);
        // Others may be about to get one, too.
        let since = seconds(now - IN_FLIGHT_MAX);
        let issued_soon =
            |order: &Order| (order.is_issued || order.at > since) && is_of_domain(order);
        let of_name = |order: &Order| order.is_issued && order.name == name;
        let mut full = vec![
            (self.full(&ORDERS, now, |_| true), "orders of this account"),
            (
                self.full(&PER_NAME, now, of_name),
                "certificates for this name",
            ),
        ];
        if !is_renewal {
            let soon = self.full(&PER_DOMAIN, now, issued_soon);
            let soon = soon.map(|_| now + IN_FLIGHT_MAX);
            full.push((
                self.full(&PER_DOMAIN, now, issued).or(soon),
                "certificates for names of this domain",
            ));
        }
        let full = full
            .into_iter()
            .find_map(|(until, what)| Some((until?, what)));
        full.map_or(Ok(()), |(until, what)| {
            let reason = format!("the authority would refuse more {what} now");
            Err(Failure::limit(reason, until))
        })
    }

    /// Until when a limit is reached; `None` if it is not.
    fn full(
        &self,
        limit: &Limit,
        now: SystemTime,
        counts: impl Fn(&Order) -> bool,
    ) -> Option<SystemTime> {
        let since = seconds(now - limit.within);
        // What lies ahead was counted while the clock was wrong.
        let latest = seconds(now + CLOCK_TOLERANCE);
        let mut times: Vec<_> = self
            .0
            .iter()
            .filter(|order| order.at > since && order.at <= latest && counts(order))
            .map(|order| order.at)
            .collect();
        times.sort_unstable();
        let oldest = times.len().checked_sub(limit.count)?;
        Some(at(times[oldest]) + limit.within)
    }

    /// Counts an order.
    pub fn ordered(&mut self, name: &str, is_renewal: bool, now: SystemTime) {
        self.0.push(Order {
            at: seconds(now),
            name: name.to_owned(),
            is_issued: false,
            is_renewal,
        });
    }

    /// Does not count the last order for `name`, which the authority has refused.
    pub fn refused(&mut self, name: &str) {
        let is_it = |order: &Order| order.name == name && !order.is_issued;
        if let Some(number) = self.0.iter().rposition(is_it) {
            self.0.remove(number);
        }
    }

    /// Counts the certificate that came of the last order for `name`.
    pub fn issued(&mut self, name: &str) {
        let mut orders = self.0.iter_mut().rev();
        if let Some(order) = orders.find(|order| order.name == name) {
            order.is_issued = true;
        }
    }
}

/// The domain that somebody has registered, or the name itself if it is an address.
fn domain(name: &str) -> &str {
    let name = name.trim_start_matches("*.");
    psl::domain_str(name).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[track_caller]
    fn refused(
        ledger: &Ledger,
        name: &str,
        is_renewal: bool,
        now: SystemTime,
    ) -> Option<SystemTime> {
        let allowed = ledger.allows(DIRECTORY, name, is_renewal, now);
        assert!(
            ledger
                .allows("https://ca.example/letsencrypt.org", name, is_renewal, now)
                .is_ok()
        );
        allowed
            .err()
            .map(|failure| failure.not_before.expect("a time"))
    }

    #[test]
    fn a_name_gets_five_certificates_in_a_week() {
        let (mut ledger, now) = (Ledger::default(), at(1_800_000_000));
        for day in 0..5 {
            assert_eq!(refused(&ledger, "a.example", true, now + DAY * day), None);
            ledger.ordered("a.example", true, now + DAY * day);
            ledger.issued("a.example");
        }
        assert_eq!(
            refused(&ledger, "a.example", true, now + DAY * 5),
            Some(now + DAY * 7)
        );
        assert_eq!(refused(&ledger, "b.example", true, now + DAY * 5), None);
        assert_eq!(refused(&ledger, "a.example", true, now + DAY * 7), None);
    }

    #[test]
    fn a_domain_gets_fifty_new_ones_in_a_week() {
        let (mut ledger, now) = (Ledger::default(), at(1_800_000_000));
        for number in 0..50 {
            let name = format!("{number}.example.co.uk");
            assert_eq!(refused(&ledger, &name, false, now), None);
            ledger.ordered(&name, false, now);
            ledger.issued(&name);
        }
        assert_eq!(
            refused(&ledger, "*.example.co.uk", false, now),
            Some(now + DAY * 7)
        );
        assert_eq!(refused(&ledger, "1.example.co.uk", true, now), None);
        assert_eq!(refused(&ledger, "other.co.uk", false, now), None);
    }

    #[test]
    fn orders_that_are_about_to_end_well_are_counted() {
        let (mut ledger, now) = (Ledger::default(), at(1_800_000_000));
        for number in 0..50 {
            ledger.ordered(&format!("{number}.example.co.uk"), false, now);
        }
        let soon = Some(now + IN_FLIGHT_MAX);
        assert_eq!(refused(&ledger, "a.example.co.uk", false, now), soon);
        assert_eq!(refused(&ledger, "a.example.co.uk", true, now), None);
        let later = now + IN_FLIGHT_MAX;
        assert_eq!(refused(&ledger, "a.example.co.uk", false, later), None);
        ledger.refused("7.example.co.uk");
        assert_eq!(refused(&ledger, "a.example.co.uk", false, now), None);
    }

    #[test]
    fn an_account_makes_three_hundred_orders_in_three_hours() {
        let (mut ledger, now) = (Ledger::default(), at(1_800_000_000));
        for number in 0..300 {
            let name = format!("{number}.test");
            assert_eq!(refused(&ledger, &name, true, now), None);
            ledger.ordered(&name, true, now);
        }
        assert_eq!(
            refused(&ledger, "a.test", true, now),
            Some(now + ORDERS.within)
        );
    }

    #[test]
    fn what_nobody_counts_is_forgotten() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let (mut ledger, now) = (Ledger::default(), at(1_800_000_000));
        for (name, age) in [
            ("old.test", 7),
            ("failed.test", 1),
            ("kept.test", 1),
            ("new.test", 0),
        ] {
            ledger.ordered(name, false, now - DAY * age);
        }
        ledger.issued("old.test");
        ledger.issued("kept.test");
        ledger.save(&folder, DIRECTORY, now).expect("saved");
        let again = Ledger::load(&folder, DIRECTORY).expect("read");
        let names: Vec<_> = again.0.iter().map(|order| &*order.name).collect();
        assert_eq!(names, ["kept.test", "new.test"]);
    }
}
