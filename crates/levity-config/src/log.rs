//! `[log]`.

use crate::model::{AccessLog, Log, LogFormat, LogTiming};
use crate::section::Section;

pub(crate) fn log(section: &Section<'_>) -> Log {
    let format = section.word("format");
    Log {
        access: access(section),
        format: format.unwrap_or_else(|| section.default_word("format")),
        timing: timing(section, format),
    }
}

fn timing(section: &Section<'_>, format: Option<LogFormat>) -> LogTiming {
    let timing = section.word_or_default("timing");
    let is_combined = format == Some(LogFormat::Combined) || !section.has("format");
    if timing != LogTiming::Off && is_combined {
        let help = "write `format = \"json\"` beside it".to_owned();
        section.report("timing", "only lines in JSON have room for it", Some(help));
    }
    timing
}

fn access(section: &Section<'_>) -> AccessLog {
    let given = section.text("access");
    match given.map_or(section.default("access"), |given| given.text) {
        "stdout" => AccessLog::Stdout,
        "off" => AccessLog::Off,
        path if path.contains('/') && !path.ends_with('/') => {
            let Some(file) = section.path("access") else {
                return AccessLog::Off;
            };
            section.must_have_folder("access", &file);
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
