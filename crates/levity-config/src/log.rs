//! `[log]`, `[site.log]` and `[site.route.log]`.

use std::cell::RefCell;

use crate::log_format::LogTemplate;
use crate::model::{AccessLog, Log, LogFormat, LogTiming};
use crate::on_disk;
use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;
use crate::suggest::nearest;
use strum::VariantNames as _;

/// The maximum number of access logs that differ in file or format: each file has a thread and up to 2 MiB of lines
/// that wait for it, and each log a block of lines per worker.
pub(crate) const LOGS_MAX: usize = 64;

/// The formats that have a name.
const FORMATS: &[&str] = &["combined", "json"];

/// How names of what a process has open begin.
const OPEN_FILES: [&str; 3] = ["/dev/stderr", "/dev/fd/", "/proc/self/fd/"];

/// Keys of `[log]`.
pub(crate) const KEYS: &[Key] = documented! {
    /// Where the access log goes, one line per request. A file is opened for appending, and reopened on
    /// SIGUSR1. Tables that name the same file share it. `/dev/stdout` is `"stdout"`; other names of open files, such as
    /// `/dev/stderr`, are errors, because not all that a process has open can be opened again.
    key("access", Kind::Text("`\"off\"`, `\"stdout\"` or a path with a `/`"), Some("stdout"));
    /// Format of a line: the Combined Log Format; one JSON object, whose keys are in [log.md](log.md); or a text of up to 4
    /// KiB with [fields](log.md#custom), such as `'{peer} "{request}" {status} {request.header.accept}'`. What clients send
    /// is escaped.
    key("format", Kind::Text("`\"combined\"`, `\"json\"` or a text with `{fields}`"), Some("combined"));
    /// What a JSON line has besides the totals: the time of each step (`"request"`), and also when each chunk
    /// was queued, read and written (`"chunk"`). `levity timing` makes tables and a picture of it.
    key("timing", Kind::Word(LogTiming::VARIANTS), Some("off"));
};

/// The logs of a file.
pub(crate) struct Logs<'a> {
    /// `[log]`
    whole: &'a Log,
    /// All that differ, and that are not off.
    seen: RefCell<Vec<Log>>,
}

impl<'a> Logs<'a> {
    pub(crate) fn new(whole: &'a Log) -> Self {
        let seen = Vec::from_iter((whole.access != AccessLog::Off).then(|| whole.clone()));
        Self {
            whole,
            seen: RefCell::new(seen),
        }
    }

    /// Reads `log` of a site or route; `above` is that of the table around it. `None` stands for `[log]`.
    pub(crate) fn of_location(&self, section: &Section<'_>, above: Option<&Log>) -> Option<Log> {
        if !section.has("log") {
            return above.cloned();
        }
        let above = above.unwrap_or(self.whole);
        if section.is_off("log") {
            return Some(Log {
                access: AccessLog::Off,
                ..above.clone()
            });
        }
        let own = read(&section.child("log"), above);
        self.count(section, &own);
        Some(own)
    }

    fn count(&self, section: &Section<'_>, log: &Log) {
        let mut seen = self.seen.borrow_mut();
        if log.access == AccessLog::Off || seen.contains(log) {
            return;
        }
        if seen.len() == LOGS_MAX {
            let message =
                format_args!("more than {LOGS_MAX} access logs that differ in file or format");
            let help = "let sites share a file; lines can have `{site}`".to_owned();
            section.report("log", message, Some(help));
        }
        seen.push(log.clone());
    }
}

/// Reads `[log]`.
pub(crate) fn log(section: &Section<'_>) -> Log {
    let default = Log {
        access: AccessLog::Stdout,
        format: LogFormat::Combined,
        timing: LogTiming::Off,
    };
    read(section, &default)
}

/// Reads a table; `above` has the values of keys that it does not give.
fn read(section: &Section<'_>, above: &Log) -> Log {
    let own = format(section);
    let is_known = own.is_some() || !section.has("format");
    let format = own.unwrap_or_else(|| above.format.clone());
    Log {
        access: access(section, &above.access),
        timing: timing(section, &format, is_known, above.timing),
        format,
    }
}

/// `is_known` is whether the format is not wrong.
fn timing(
    section: &Section<'_>,
    format: &LogFormat,
    is_known: bool,
    above: LogTiming,
) -> LogTiming {
    let own = section.word("timing");
    let has_room = *format == LogFormat::Json;
    if own.is_some_and(|own| own != LogTiming::Off) && !has_room && is_known {
        let help = "write `format = \"json\"` beside it".to_owned();
        section.report("timing", "only lines in JSON have room for it", Some(help));
    }
    match has_room {
        true => own.unwrap_or(above),
        false => LogTiming::Off,
    }
}

/// `None` when the key is absent or wrong.
fn format(section: &Section<'_>) -> Option<LogFormat> {
    let given = section.text("format")?;
    match given.text {
        "combined" => Some(LogFormat::Combined),
        "json" => Some(LogFormat::Json),
        text if text.contains(['{', '}', '$', '%']) => match LogTemplate::parse(text) {
            Ok(template) => Some(LogFormat::Custom(template)),
            Err(problems) => {
                for (message, help) in problems {
                    given.refuse_with(message, help);
                }
                None
            }
        },
        text => {
            let help = match nearest(text, FORMATS.iter().copied()) {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => {
                    "\"combined\", \"json\" or fields in braces: \"{peer} {status}\"".to_owned()
                }
            };
            given.refuse_with(format!("`{text}` is not a value of `format`"), help);
            None
        }
    }
}

fn access(section: &Section<'_>, above: &AccessLog) -> AccessLog {
    let Some(given) = section.text("access") else {
        return above.clone();
    };
    match given.text {
        // It cannot be opened if it is a socket, as under systemd, or belongs to another user.
        "stdout" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => AccessLog::Stdout,
        name if OPEN_FILES.iter().any(|open| name.starts_with(open)) => {
            let message =
                format!("whether {name} can be opened depends on how the server is started");
            given.refuse_with(message, "\"stdout\", or the path of a file");
            AccessLog::Off
        }
        "off" => AccessLog::Off,
        path if path.contains('/') && !path.ends_with('/') => {
            let Some(file) = section.path("access") else {
                return AccessLog::Off;
            };
            section.must_have_folder("access", &file, false);
            if section.reads_files() && on_disk::is_directory(&file).is_ok() {
                section.report(
                    "access",
                    format_args!("{} is a folder", file.display()),
                    None,
                );
            }
            let named = section.named_file("access", &file);
            section.reader.logs.borrow_mut().push(named);
            AccessLog::File(file)
        }
        word => {
            let is_name = !word.contains('/') && !word.is_empty();
            let help = is_name.then(|| format!("for a file write \"./{word}\""));
            let message = "expected \"off\", \"stdout\" or the path of a file";
            section.report("access", message, help);
            AccessLog::Off
        }
    }
}
