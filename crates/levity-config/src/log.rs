//! `[log]`.

use crate::model::{AccessLog, Log, LogFormat, LogTiming};
use crate::section::Section;

pub(crate) fn log(section: &Section<'_>) -> Log {
    let format = section.word("format");
    Log {
        access: access(section),
        format: match format {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Combined,
        },
        timing: timing(section, format),
    }
}

fn timing(section: &Section<'_>, format: Option<&str>) -> LogTiming {
    let timing = match section.word("timing") {
        Some("request") => LogTiming::Request,
        Some("chunk") => LogTiming::Chunk,
        _ => LogTiming::Off,
    };
    let is_combined = format == Some("combined") || !section.has("format");
    if timing != LogTiming::Off && is_combined {
        let help = "write `format = \"json\"` beside it".to_owned();
        section.report("timing", "only lines in JSON have room for it", Some(help));
    }
    timing
}

fn access(section: &Section<'_>) -> AccessLog {
    match section.text("access").map(|given| given.text) {
        None | Some("stdout") => AccessLog::Stdout,
        Some("off") => AccessLog::Off,
        Some(path) if path.contains('/') && !path.ends_with('/') => {
            let Some(file) = section.path("access") else {
                return AccessLog::Off;
            };
            section.must_have_folder("access", &file);
            AccessLog::File(file)
        }
        Some(word) => {
            let help = format!("for a file write \"./{word}\"");
            let help = if word.contains('/') || word.is_empty() {
                None
            } else {
                Some(help)
            };
            section.report(
                "access",
                "expected \"off\", \"stdout\" or the path of a file",
                help,
            );
            AccessLog::Off
        }
    }
}
