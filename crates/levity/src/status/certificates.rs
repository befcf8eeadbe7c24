//! Certificates of sites at this moment.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::since_epoch;
use crate::tls::certificates::CertificateReport;
use levity_telemetry::escape::escaped;

/// A certificate as JSON. Its texts come from files and from authorities.
pub fn certificate(report: &CertificateReport, now: SystemTime) -> Value {
    let text = |text: &String| escaped(text.as_bytes());
    json!({
        "certificate": escaped(report.name().as_bytes()),
        "names": report.names.iter().map(text).collect::<Vec<_>>(),
        "source": report.origin.label(),
        "issuer": report.issuer.as_ref().map(text),
        "not_after_seconds": report.not_after.map(since_epoch),
        "left_seconds": report.seconds_left(now),
        "next_seconds": report.next.map(since_epoch),
        "error": report.error.as_ref().map(text),
        "in_progress": report.is_in_progress,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::tls::certificates::Origin;

    #[test]
    fn texts_of_others_are_escaped() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let report = CertificateReport {
            issuer: Some("An\nauthority".to_owned()),
            not_after: Some(at(70)),
            next: Some(at(50)),
            error: Some("refused\u{1b}".to_owned()),
            ..CertificateReport::missing(vec!["a.test".into(), "b.test".into()], Origin::Acme)
        };
        let expected = json!({
            "certificate": "a.test",
            "names": ["a.test", "b.test"],
            "source": "acme",
            "issuer": "An\\x0aauthority",
            "not_after_seconds": 70.0,
            "left_seconds": -30,
            "next_seconds": 50.0,
            "error": "refused\\x1b",
            "in_progress": false,
        });
        assert_eq!(certificate(&report, at(100)), expected);
        let missing = CertificateReport::missing(Vec::new(), Origin::OnDemand);
        let missing = certificate(&missing, at(100));
        assert_eq!(
            (&missing["certificate"], &missing["source"]),
            (&"-".into(), &"on_demand".into())
        );
        assert!(missing["not_after_seconds"].is_null() && missing["left_seconds"].is_null());
    }
}
