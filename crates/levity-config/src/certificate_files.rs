//! The files of certificates and keys: read, and what is noted of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use levity_disk::{patiently, patiently_with};
use levity_tls::{Authority, Certificate, TicketKeys};

use crate::certificate_pair::CertificateFiles;
use crate::in_unit::remedy;
use crate::on_disk::found;
use crate::section::Section;

/// How long before its end a certificate is noted.
const NOTED_BEFORE_END: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What comes of files that cannot be used.
const REFUSED: &str = "the handshakes of the site are refused until it can be used";

/// Reads a certificate and its key. Blocks, for seconds at most.
///
/// # Errors
/// In words, with the path, also when a file does not respond.
pub fn read_certificate(files: &CertificateFiles) -> Result<Certificate, String> {
    let key = files.key.clone();
    responds(&key)?;
    let others = vec![key.clone()];
    in_words_with(&files.certificate, others, move |chain| {
        Certificate::read(chain, &key)
    })
}

fn responds(path: &Path) -> Result<(), String> {
    levity_disk::responds(path).map_err(|error| format!("{} {error}", path.display()))
}

/// Reads keys of session tickets. Blocks, for seconds at most.
///
/// # Errors
/// As [`read_certificate`].
pub fn read_ticket_keys(files: &[PathBuf]) -> Result<TicketKeys, String> {
    let Some((first, others)) = files.split_first() else {
        return TicketKeys::read(files);
    };
    for other in others {
        responds(other)?;
    }
    let all = files.to_vec();
    in_words_with(first, others.to_vec(), move |_| TicketKeys::read(&all))
}

/// Notes certificates that cannot be used, and those that clients will not accept.
pub(crate) fn note(section: &Section<'_>, files: &[CertificateFiles], hosts: &[String]) {
    if !section.reader.reads_certificates {
        return;
    }
    let now = SystemTime::now();
    for one in files {
        let name = one.certificate.display();
        let certificate = match read_certificate(one) {
            Ok(certificate) => certificate,
            Err(reason) => {
                section.note("certificates", format!("{reason}; {REFUSED}"));
                continue;
            }
        };
        note_passed_over(section, "certificates", &one.certificate);
        let note = |text: String| section.note("certificates", format!("{name} {text}"));
        let (start, end) = (certificate.not_before, certificate.not_after);
        dates(now, start, end, "clients refuse it")
            .into_iter()
            .for_each(note);
        if certificate.names.is_empty() {
            note("has no names (subjectAltName), and clients ignore the one in its subject (CN); they refuse it".to_owned());
            continue;
        }
        for host in hosts.iter().filter(|host| !certificate.is_for(host)) {
            let names = certificate.names.join(", ");
            note(format!(
                "is not for `{host}`, but for {names}; clients refuse it"
            ));
        }
    }
}

/// Notes hosts that a request may have, and a handshake may not.
pub(crate) fn note_hosts(section: &Section<'_>, hosts: &[String]) {
    for host in hosts {
        let name = host.strip_prefix("*.").unwrap_or(host);
        if !levity_tls::can_be_asked_for(name) {
            let rule = "labels have letters, digits, `-` and `_` there, and neither begin nor end with `-`";
            section.note(
                "hosts",
                format!("no client can ask for `{host}` over TLS: {rule}"),
            );
        }
    }
}

/// Whether a certificate can be for `name`.
pub(crate) fn can_be_for(name: &str) -> bool {
    levity_tls::can_be_asked_for(name)
}

/// Notes authorities that a server is trusted by and that cannot be read, of which `what` comes, or have expired or will soon. Their
/// dates decide nothing: rustls knows none. May block.
pub(crate) fn note_trusted(section: &Section<'_>, key: &str, file: &Path, what: &str) {
    note_authorities(
        section,
        key,
        file,
        ("its certificates are accepted all the same", what),
    );
}

/// Notes the same of those that sign the certificates of clients. May block.
pub(crate) fn note_client_authorities(section: &Section<'_>, file: &Path) {
    let outcomes = ("its certificates are refused", REFUSED);
    note_authorities(section, "client_authorities", file, outcomes);
}

/// `expired` says what comes of authorities that are not valid, `unread` what comes of none.
fn note_authorities(
    section: &Section<'_>,
    key: &str,
    file: &Path,
    (expired, unread): (&str, &str),
) {
    if !section.reads_files() {
        return;
    }
    match in_words(file, levity_tls::authorities) {
        Ok(found) => note_dates(section, key, (file, &found), expired),
        Err(reason) => section.note(key, format!("{reason}; {unread}")),
    }
}

/// Notes keys of session tickets that cannot be read. May block.
pub(crate) fn note_ticket_keys(section: &Section<'_>, files: &[PathBuf]) {
    if section.reads_files()
        && let Err(reason) = read_ticket_keys(files)
    {
        let note = format!("{reason}; each process has keys of its own until they can be used");
        section.note("ticket_keys", note);
    }
}

/// Notes a certificate for backends that cannot be read, of which `what` comes. May block.
pub(crate) fn note_own(section: &Section<'_>, files: &CertificateFiles, what: &str) {
    if section.reads_files()
        && let Err(reason) = read_certificate(files)
    {
        section.note("certificate", format!("{reason}; {what}"));
    }
}

/// Notes the authorities in a file whose signatures cannot be verified, and those that are not valid now, or not for long. `what`
/// says what comes of that.
fn note_dates(section: &Section<'_>, key: &str, (file, found): (&Path, &[Authority]), what: &str) {
    note_passed_over(section, key, file);
    let now = SystemTime::now();
    for one in found {
        let dates = dates(now, one.not_before, one.not_after, what);
        for said in dates {
            let (name, file) = (&one.name, file.display());
            section.note(key, format!("the authority `{name}` in {file} {said}"));
        }
        if let Some(kind) = &one.unusable_key {
            let (name, file) = (&one.name, file.display());
            section.note(
                key,
                format!(
                    "the authority `{name}` in {file} has a key of {kind}; what it signs is refused"
                ),
            );
        }
    }
}

/// Notes what nobody reads of a file of certificates. May block.
fn note_passed_over(section: &Section<'_>, key: &str, file: &Path) {
    let found = in_words(file, levity_tls::passed_over).unwrap_or_default();
    for said in found {
        section.note(key, format!("{}, {said}", file.display()));
    }
}

/// What is said of a certificate that is not valid now or ends soon. `refused` says what comes of that.
fn dates(now: SystemTime, start: SystemTime, end: SystemTime, refused: &str) -> Vec<String> {
    let end = match end {
        end if end <= now => Some(format!("has expired {} ago; {refused}", between(end, now))),
        end if end < now + NOTED_BEFORE_END => Some(format!("expires in {}", between(now, end))),
        _ => None,
    };
    let start = (now < start).then(|| {
        let ahead = between(now, start);
        format!("is valid in {ahead} only; {refused} until then")
    });
    end.into_iter().chain(start).collect()
}

/// The time from one to the other in words, in the largest unit of which it has one, rounded down.
fn between(from: SystemTime, to: SystemTime) -> String {
    let minutes = to.duration_since(from).unwrap_or_default().as_secs() / 60;
    let units = [(24 * 60, "day"), (60, "hour"), (1, "minute")];
    let found = units.iter().find(|(unit, _)| minutes >= *unit);
    let (unit, name) = found.unwrap_or(&units[2]);
    match minutes / unit {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

/// What `call` on a path gives that is one of levity-tls; a path that does not respond is an error in words. Blocks.
fn in_words<T: Send + 'static>(
    path: &Path,
    call: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    in_words_with(path, Vec::new(), call)
}

/// As [`in_words`], for a call that also needs `others`, which respond.
fn in_words_with<T: Send + 'static>(
    path: &Path,
    others: Vec<PathBuf>,
    call: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let paths = [&[path.to_owned()], &others[..]].concat();
    patiently_with(path, others, call)
        .unwrap_or_else(|error| Err(format!("{} {error}", path.display())))
        .map_err(|reason| reason + &remedies(&paths))
}

/// What helps if the unit hides one of these paths. Blocks.
fn remedies(paths: &[PathBuf]) -> String {
    let remedy = |path: &PathBuf| {
        let error = found(patiently(path, |path| fs::metadata(path))).err()?;
        Some(remedy(path, &error)).filter(|remedy| !remedy.is_empty())
    };
    paths.iter().find_map(remedy).unwrap_or_default()
}
