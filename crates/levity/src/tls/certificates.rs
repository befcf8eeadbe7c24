//! Certificates of sites as operators see them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use levity_telemetry::stats::CertificateFigure;
use levity_wire::tls_names;
use strum::IntoStaticStr;

/// Stands for the name of a certificate without any.
const NO_NAME: &str = "-";

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Origin {
    /// Files of the operator.
    Files,
    /// The authority of this machine.
    Internal,
    /// An authority that speaks ACME.
    Acme,
    /// The same, for a name that a client has asked for.
    OnDemand,
}

impl Origin {
    /// The word on pages and on the metric.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// What operators see of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateReport {
    /// The names that it is for. If it cannot be read, those that it should be for.
    pub names: Vec<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// Who has signed it; `None` if there is none.
    pub issuer: Option<String>,
    /// When it ends.
    pub not_after: Option<SystemTime>,
    /// When it is renewed, or the next attempt is made, if that is up to this server.
    pub next: Option<SystemTime>,
    /// What has failed last.
    pub error: Option<String>,
    /// Whether an authority is asked for it now.
    pub is_in_progress: bool,
}

impl CertificateReport {
    /// That of a certificate for `names` that is not there.
    pub fn missing(names: Vec<String>, origin: Origin) -> Self {
        Self {
            names,
            origin,
            issuer: None,
            not_after: None,
            next: None,
            error: None,
            is_in_progress: false,
        }
    }

    /// The name that stands for the certificate.
    pub fn name(&self) -> &str {
        self.names.first().map_or(NO_NAME, String::as_str)
    }

    /// Whether it is, or should be, for `host`.
    pub fn is_for(&self, host: &str) -> bool {
        tls_names::is_for(&self.names, host)
    }

    /// Whether there is one that has not ended.
    pub fn is_usable(&self, now: SystemTime) -> bool {
        self.not_after.is_some_and(|end| now < end)
    }

    /// The seconds until it ends, negative after that; `None` if there is none.
    pub fn seconds_left(&self, now: SystemTime) -> Option<i64> {
        let end = self.not_after?;
        let seconds = |time: Duration| time.as_secs().cast_signed();
        Some(match end.duration_since(now) {
            Ok(left) => seconds(left),
            Err(ago) => -seconds(ago.duration()),
        })
    }
}

/// One figure for each name and origin. Of two certificates for a name, of which one may be for old clients, it is that which ends
/// first.
pub fn by_name(reports: &[CertificateReport], now: SystemTime) -> Vec<CertificateFigure> {
    let mut soonest = BTreeMap::new();
    for report in reports {
        let left = report.seconds_left(now).unwrap_or(0);
        let key = (report.name().to_owned(), report.origin);
        let before = soonest.entry(key).or_insert(left);
        *before = left.min(*before);
    }
    let figure = |((name, origin), seconds_left): ((String, Origin), i64)| CertificateFigure {
        name,
        source: origin.label(),
        seconds_left,
    };
    soonest.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_figure_for_each_origin() {
        let now = SystemTime::now();
        let seconds = Duration::from_secs;
        let report = |names: &[&str], origin, not_after| CertificateReport {
            not_after,
            ..CertificateReport::missing(names.iter().map(|&one| one.into()).collect(), origin)
        };
        let reports = [
            report(&["a.test"], Origin::Files, Some(now + seconds(90))),
            report(&["a.test", "b.test"], Origin::Files, Some(now - seconds(5))),
            report(&["a.test"], Origin::Internal, Some(now + seconds(70))),
            report(&["c.test"], Origin::Acme, None),
            report(&[], Origin::Files, Some(now)),
        ];
        let figures = by_name(&reports, now);
        let figures = figures.iter();
        let figures: Vec<_> = figures
            .map(|one| (one.name.as_str(), one.source, one.seconds_left))
            .collect();
        assert_eq!(
            figures,
            [
                ("-", "files", 0),
                ("a.test", "files", -5),
                ("a.test", "internal", 70),
                ("c.test", "acme", 0),
            ]
        );
        let usable: Vec<_> = reports.iter().map(|one| one.is_usable(now)).collect();
        assert_eq!(usable, [true, false, true, false, false]);
    }
}
