//! The dates of certificates, in words.

use std::path::Path;
use std::time::{Duration, SystemTime};

use levity_tls::Authority;

use crate::on_disk;
use crate::section::Section;

/// How long before its end a certificate is noted.
const NOTED_BEFORE_END: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Reads authorities that a server is trusted by, whatever their dates: rustls knows none. Notes those that have expired or will soon.
/// May block.
///
/// # Errors
///
/// In words, when they cannot be read.
pub(crate) fn check_trusted(section: &Section<'_>, key: &str, file: &Path) -> Result<(), String> {
    let found = on_disk::in_words(file, levity_tls::authorities)?;
    let what = "its certificates are accepted all the same";
    note_dates(section, key, (file, &found), what);
    Ok(())
}

/// Notes the authorities in a file whose signatures cannot be verified, and those that are not valid now, or not for long. `what`
/// says what comes of that.
pub(crate) fn note_dates(
    section: &Section<'_>,
    key: &str,
    (file, found): (&Path, &[Authority]),
    what: &str,
) {
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
pub(crate) fn note_passed_over(section: &Section<'_>, key: &str, file: &Path) {
    let found = on_disk::in_words(file, levity_tls::passed_over).unwrap_or_default();
    for said in found {
        section.note(key, format!("{}, {said}", file.display()));
    }
}

/// What is said of a certificate that is not valid now or ends soon. `refused` says what comes of that.
pub(crate) fn dates(
    now: SystemTime,
    start: SystemTime,
    end: SystemTime,
    refused: &str,
) -> Vec<String> {
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
