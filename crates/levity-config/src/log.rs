//! `[log]`.

use crate::fields::Fields;
use crate::model::{AccessLog, Log, LogFormat, LogTiming};

pub(crate) fn log(fields: &Fields<'_>) -> Log {
    let format = fields.word("format");
    Log {
        access: access(fields),
        format: match format {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Combined,
        },
        timing: timing(fields, format),
    }
}

fn timing(fields: &Fields<'_>, format: Option<&str>) -> LogTiming {
    let timing = match fields.word("timing") {
        Some("request") => LogTiming::Request,
        Some("chunk") => LogTiming::Chunk,
        _ => LogTiming::Off,
    };
    let is_combined = format == Some("combined") || !fields.has("format");
    if timing != LogTiming::Off && is_combined {
        let help = "write `format = \"json\"` beside it".to_owned();
        fields.report("timing", "only lines in JSON have room for it", Some(help));
    }
    timing
}

fn access(fields: &Fields<'_>) -> AccessLog {
    match fields.text("access").map(|given| given.text) {
        None | Some("stdout") => AccessLog::Stdout,
        Some("off") => AccessLog::Off,
        Some(path) if path.contains('/') && !path.ends_with('/') => {
            let Some(file) = fields.path("access") else {
                return AccessLog::Off;
            };
            fields.must_have_folder("access", &file);
            AccessLog::File(file)
        }
        Some(word) => {
            let help = format!("for a file write \"./{word}\"");
            let help = if word.contains('/') || word.is_empty() {
                None
            } else {
                Some(help)
            };
            fields.report(
                "access",
                "expected \"off\", \"stdout\" or the path of a file",
                help,
            );
            AccessLog::Off
        }
    }
}
