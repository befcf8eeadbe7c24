//! `levity certs`: the certificates of a configuration, without a running server.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_config::{Config, Variables};
use levity_telemetry::escape::escaped;
use levity_tls::in_words;
use levity_wire::calendar::Utc;
use serde_json::{Value, json};

use super::{EXIT_CONFIG, EXIT_FAILURE, Streams};
use crate::status;
use crate::tls::certificates::{CertificateReport, Origin};
use crate::tls::offline;

/// The maximum number of names of a certificate in its line.
const NAMES_MAX: usize = 3;

/// Stands for what is not there.
const NONE: &str = "-";

const HEADINGS: [&str; 6] = [
    "NAMES",
    "SOURCE",
    "ISSUER",
    "ENDS (UTC)",
    "LEFT",
    "NEXT (UTC)",
];

/// The configuration of `file`. Blocks.
///
/// # Errors
/// The exit status for one with errors, which have been told.
pub(super) fn configuration(
    file: &Path,
    variables: &Variables,
    json: bool,
    streams: &mut Streams<'_>,
) -> Result<Config, u8> {
    levity_config::load_without_certificates(file, variables).map_err(|errors| {
        match json {
            true => streams.out(&format!("{}\n", errors.to_json())),
            false => streams.err(&errors.render(streams.colour)),
        }
        EXIT_CONFIG
    })
}

/// Lists the certificates of `config`, that of `file`. The exit status says whether each can be used. Blocks.
pub(super) fn certs(file: &Path, config: &Config, json: bool, streams: &mut Streams<'_>) -> u8 {
    let reports = match offline::reports(config) {
        Ok(reports) => reports,
        Err(reason) => return refused(reason, streams),
    };
    let now = SystemTime::now();
    match json {
        true => streams.out(&format!("{}\n", as_json(file, &reports, now))),
        false if reports.is_empty() => {
            streams.out(&format!("{}: no site uses TLS\n", file.display()));
        }
        false => streams.out(&table(&reports, now)),
    }
    match reports.iter().all(|report| report.is_usable(now)) {
        true => 0,
        false => EXIT_FAILURE,
    }
}

/// Has servers with `config`, that of `file`, try again to get certificates by ACME for `names`, or for all that have failed if there
/// are none. Blocks.
pub(super) fn retry(
    file: &Path,
    config: &Config,
    names: &[String],
    streams: &mut Streams<'_>,
) -> u8 {
    let names = match names.is_empty() {
        true => match failed(config) {
            Ok(names) => names,
            Err(reason) => return refused(reason, streams),
        },
        false => names.iter().map(|name| name.to_ascii_lowercase()).collect(),
    };
    if names.is_empty() {
        let file = file.display();
        streams.out(&format!("{file}: no certificate by ACME has failed\n"));
    }
    let mut status = 0;
    for name in names {
        let shown = escaped(name.as_bytes());
        match retry_one(config, &name) {
            Ok(outcome) => streams.out(&format!("{shown}: {outcome}\n")),
            Err(reason) => {
                let reason = config.hidden.hide(&reason);
                streams.err(&format!("error: {shown}: {reason}\n"));
                status = EXIT_FAILURE;
            }
        }
    }
    status
}

/// The names whose certificates by ACME have failed.
fn failed(config: &Config) -> Result<Vec<String>, &'static str> {
    let reports = offline::reports(config)?;
    let by_acme = |report: &&CertificateReport| {
        matches!(report.origin, Origin::Acme | Origin::OnDemand) && report.error.is_some()
    };
    let failed = reports.iter().filter(by_acme);
    let mut names: Vec<_> = failed.flat_map(|report| report.names.clone()).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn refused(reason: &str, streams: &mut Streams<'_>) -> u8 {
    streams.err(&format!("error: {reason}\n"));
    EXIT_FAILURE
}

fn retry_one(config: &Config, name: &str) -> Result<&'static str, String> {
    if !offline::is_by_acme(name, config) {
        return Err("no site gets a certificate for it by ACME".to_owned());
    }
    let stored = offline::stored(config)?;
    let report = stored.report(name);
    stored.retry(name)?;
    let now = SystemTime::now();
    Ok(
        match report.not_after.is_some_and(|end| now < end) && report.error.is_none() {
            true => "it has a certificate; another attempt is made only if that is due",
            false => "another attempt is made now, or as soon as a server runs",
        },
    )
}

fn as_json(file: &Path, reports: &[CertificateReport], now: SystemTime) -> Value {
    let certificates = reports.iter();
    let certificates = certificates.map(|report| status::certificate(report, now));
    json!({
        "file": file.to_string_lossy(),
        "ok": reports.iter().all(|report| report.is_usable(now)),
        "certificates": certificates.collect::<Vec<_>>(),
    })
}

/// A line for each certificate, and one beneath for what has failed.
fn table(reports: &[CertificateReport], now: SystemTime) -> String {
    let rows: Vec<_> = reports.iter().map(|report| cells(report, now)).collect();
    let headings = HEADINGS.map(str::to_owned);
    let width = |column: usize| {
        let rows = rows.iter().chain([&headings]);
        rows.map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(width);
    let mut text = aligned(&headings, widths);
    for (row, report) in rows.iter().zip(reports) {
        text += &aligned(row, widths);
        if report.is_in_progress {
            text += "    in progress: an authority is asked for a certificate\n";
        }
        if let Some(error) = error(report) {
            text += &format!("    error: {error}\n");
        }
    }
    text
}

fn aligned<const COUNT: usize>(row: &[String; COUNT], widths: [usize; COUNT]) -> String {
    let cells = row.iter().zip(widths);
    let cells = cells.map(|(cell, width)| format!("{cell:width$}"));
    let line = cells.collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

fn cells(report: &CertificateReport, now: SystemTime) -> [String; HEADINGS.len()] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    [
        names(report),
        report.origin.label().replace('_', " "),
        or_none(
            report
                .issuer
                .as_ref()
                .map(|issuer| escaped(issuer.as_bytes())),
        ),
        or_none(report.not_after.map(date)),
        or_none(report.seconds_left(now).map(left)),
        or_none(report.next.map(date)),
    ]
}

fn names(report: &CertificateReport) -> String {
    let shown = report.names.iter().take(NAMES_MAX);
    let shown: Vec<_> = shown.map(|name| escaped(name.as_bytes())).collect();
    match report.names.len().saturating_sub(NAMES_MAX) {
        0 if shown.is_empty() => NONE.to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = Utc::of(since.as_secs().cast_signed());
    let Utc {
        year, month, day, ..
    } = utc;
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}",
        utc.hour, utc.minute
    )
}

/// The time that is left, or since when there is none.
fn left(seconds: i64) -> String {
    let time = in_words(Duration::from_secs(seconds.unsigned_abs()));
    match seconds > 0 {
        true => time,
        false => format!("expired {time} ago"),
    }
}

/// What has failed; or that there is nothing, which nobody has said yet.
fn error(report: &CertificateReport) -> Option<String> {
    let none_yet = || {
        let is_none = report.not_after.is_none() && !report.is_in_progress;
        is_none.then(|| "there is none yet".to_owned())
    };
    let error = report.error.as_ref();
    error
        .map(|error| escaped(error.as_bytes()))
        .or_else(none_yet)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::tests::{Folder, levity};
    use super::*;
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn report(names: &[&str], left_seconds: i64) -> CertificateReport {
        let names = names.iter().map(|&name| name.to_owned());
        let end = UNIX_EPOCH + Duration::from_secs((1_000_000 + left_seconds).unsigned_abs());
        CertificateReport {
            issuer: Some("An authority".to_owned()),
            not_after: Some(end),
            ..CertificateReport::missing(names.collect(), Origin::Files)
        }
    }

    #[test]
    fn columns_are_aligned_and_errors_are_beneath() {
        let reports = [
            report(&["a.test", "b.test", "c.test", "d.test", "e.test"], 864_000),
            CertificateReport {
                next: Some(UNIX_EPOCH + Duration::from_secs(1_003_600)),
                error: Some("refused\nby all".to_owned()),
                ..report(&["a.test"], -7200)
            },
            CertificateReport::missing(Vec::new(), Origin::OnDemand),
            CertificateReport {
                is_in_progress: true,
                ..CertificateReport::missing(vec!["b.test".to_owned()], Origin::Acme)
            },
        ];
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(
            table(&reports, now),
            "NAMES                              SOURCE     ISSUER        ENDS (UTC)        LEFT             NEXT (UTC)\n\
             a.test, b.test, c.test and 2 more  files      An authority  1970-01-22 13:46  10 days          -\n\
             a.test                             files      An authority  1970-01-12 11:46  expired 2 h ago  1970-01-12 14:46\n    \
                 error: refused\\x0aby all\n\
             -                                  on demand  -             -                 -                -\n    \
                 error: there is none yet\n\
             b.test                             acme       -             -                 -                -\n    \
                 in progress: an authority is asked for a certificate\n"
        );
    }

    /// Makes `NAME.pem` with its key.
    fn certify(folder: &Folder, name: &str, end: SystemTime) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        (params.not_before, params.not_after) = ((end - 2 * DAY).into(), end.into());
        let certificate = params.self_signed(&key).expect("a certificate");
        let text = key.serialize_pem() + &certificate.pem();
        folder.write(&format!("{name}.pem"), &text);
    }

    fn site(host: &str, table: &str) -> String {
        format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"www\"\n[site.tls]\n{table}\n")
    }

    fn configuration(folder: &Folder, sites: &str) -> String {
        fs::create_dir_all(Path::new(folder.path()).join("www")).expect("a folder");
        let listen = "[tls]\nfolder = \"tls\"\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = true\n";
        folder.write("levity.toml", &format!("{listen}{sites}"))
    }

    #[test]
    fn the_status_says_whether_all_can_be_used() {
        let folder = Folder::new();
        let now = SystemTime::now();
        certify(&folder, "good.test", now + DAY);
        certify(&folder, "old.test", now - DAY);
        let of = |name: &str| site(name, &format!("certificates = [\"{name}.pem\"]"));
        let file = configuration(&folder, &of("good.test"));
        let ran = levity(&["certs", &file]);
        ran.exits(0);
        assert!(ran.out.contains("\ngood.test  files"), "{}", ran.out);

        let file = configuration(&folder, &(of("good.test") + &of("old.test")));
        let ran = levity(&["certs", "-c", &file]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.out.contains("expired 24 h ago"), "{}", ran.out);

        let file = configuration(&folder, &(of("none.test") + &of("good.test")));
        let ran = levity(&["certs", "--json", &file]);
        ran.exits(EXIT_FAILURE);
        let answer: Value = serde_json::from_str(&ran.out).expect("JSON");
        let [none, good] = [0, 1].map(|number| &answer["certificates"][number]);
        assert_eq!(answer["ok"], false);
        assert_eq!(none["names"], json!(["none.test"]));
        let reason = none["error"].as_str().expect("a reason");
        assert!(reason.contains("none.test.pem cannot be read"), "{reason}");
        assert!(good["error"].is_null() && good["left_seconds"].as_i64() > Some(86_000));
    }

    #[test]
    fn errors_show_no_values() {
        let folder = Folder::new();
        let file = configuration(&folder, &site("a.test", "certificates = [\"${FILE}\"]"));
        let values = folder.write("values", "FILE=hunter2.pem\n");
        for json in [&[][..], &["--json"]] {
            let ran = levity(&[&["certs", &file, "--env-file", &values][..], json].concat());
            ran.exits(EXIT_FAILURE);
            assert!(ran.out.contains("${FILE} cannot be read"), "{}", ran.out);
            assert!(!ran.out.contains("hunter2"), "{}", ran.out);
        }
    }

    #[test]
    fn an_authority_that_was_not_made_yet_is_not_made() {
        let folder = Folder::new();
        let file = configuration(&folder, &site("a.test", "issuer = \"internal\""));
        let ran = levity(&["certs", &file]);
        ran.exits(EXIT_FAILURE);
        assert!(
            ran.out.contains("local-ca.pem cannot be read"),
            "{}",
            ran.out
        );
        assert!(!Path::new(folder.path()).join("tls").exists());
        let state = Path::new(folder.path()).join("tls");
        levity_tls::LocalCa::open(&state).expect("an authority");
        let ran = levity(&["certs", &file]);
        ran.exits(0);
        assert!(ran.out.contains("local authority"), "{}", ran.out);
    }

    #[cfg(feature = "acme")]
    #[test]
    fn certificates_by_acme_are_those_of_the_folder() {
        let folder = Folder::new();
        let acme = "issuer = \"acme\"";
        let ask = "[acme]\nask = \"http://127.0.0.1:9/\"\n";
        let sites = site("a.example.org", acme) + &site("*.b.example.org", acme);
        let file = configuration(&folder, &format!("{ask}{sites}"));
        let ran = levity(&["certs", &file]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.out.contains("there is none yet"), "{}", ran.out);
        assert!(!Path::new(folder.path()).join("tls").exists());

        let kept = Path::new(folder.path()).join("tls/acme/certificates");
        fs::create_dir_all(&kept).expect("a folder");
        for name in ["a.example.org", "x.b.example.org", "gone.test"] {
            certify(&folder, name, SystemTime::now() + DAY);
            let file = format!("{name}.pem");
            fs::rename(Path::new(folder.path()).join(&file), kept.join(&file)).expect("moved");
        }
        let ran = levity(&["certs", &file]);
        ran.exits(0);
        let lines: Vec<_> = ran.out.lines().collect();
        assert!(
            lines[1].starts_with("a.example.org    acme "),
            "{}",
            ran.out
        );
        assert!(
            lines[2].starts_with("x.b.example.org  on demand "),
            "{}",
            ran.out
        );
        assert_eq!(lines.len(), 3, "{}", ran.out);
    }

    #[cfg(feature = "acme")]
    #[test]
    fn names_that_have_failed_are_tried_again() {
        let folder = Folder::new();
        let acme = "issuer = \"acme\"";
        let sites = site("a.example.org", acme) + &site("b.example.org", acme);
        let file = configuration(&folder, &sites);
        let ran = levity(&["certs", &file, "--retry"]);
        ran.exits(0);
        assert!(ran.out.ends_with("has failed\n"), "{}", ran.out);
        // No server has made its folder yet.
        let ran = levity(&["certs", &file, "--retry", "a.example.org"]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.err.contains("cannot be written"), "{}", ran.err);

        let state = Path::new(folder.path()).join("tls");
        let server = levity_acme::folder::Folder::open(&state).expect("a folder");
        let kept = levity_acme::NameState {
            last_error: Some("refused".to_owned()),
            ..levity_acme::NameState::default()
        };
        kept.save(&server, "a.example.org").expect("saved");
        let ran = levity(&["certs", &file, "--retry"]);
        ran.exits(0);
        assert!(
            ran.out
                .starts_with("a.example.org: another attempt is made now"),
            "{}",
            ran.out
        );
        assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
        assert!(state.join("acme/retries/a.example.org").exists());

        let ran = levity(&["certs", "-c", &file, "--retry", "B.example.org", "c.test"]);
        ran.exits(EXIT_FAILURE);
        assert!(ran.out.starts_with("b.example.org: "), "{}", ran.out);
        assert!(ran.err.contains("c.test: no site gets"), "{}", ran.err);
    }

    #[test]
    fn a_bad_configuration_is_told() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "nonsense");
        levity(&["certs", &file]).exits(EXIT_CONFIG);
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["certs", &file]);
        ran.exits(0);
        assert!(ran.out.ends_with("no site uses TLS\n"), "{}", ran.out);
    }
}
