//! `[disk]`, `[site.disk]` and `[site.route.disk]`.

use levity_disk::{Changes, Direct, Settings};

use crate::keys::engine_named;
use crate::location_options::LocationDisk;
use crate::model::{CHUNK_STEP_BYTES, Disk};
use crate::section::Section;

pub(crate) fn disk(section: &Section<'_>) -> Disk {
    section.less_than("stat_threads", "threads");
    section.at_most("chunk", "buffer_bytes");
    let LocationDisk {
        engine,
        chunk_bytes,
        direct,
        changes,
    } = location_disk(section);
    let settings = Settings {
        engine: engine.unwrap_or_else(|| section.default("engine").to_owned()),
        threads: section.optional_count("threads"),
        stat_threads: section.optional_count("stat_threads"),
        depth: section.optional_count("depth"),
        queue_max: section.count("queue"),
        buffer_bytes_max: section.count("buffer_bytes"),
        dead_after: section.duration("dead_after"),
    };
    check(section, &settings);
    Disk {
        settings,
        chunk_bytes,
        direct: direct.unwrap_or_else(|| direct_named(section.default("direct"))),
        changes: changes.unwrap_or_else(|| changes_named(section.default("changes"))),
        cache_bytes: section.count("cache_bytes"),
        entry_ttl: section.duration("entry_ttl"),
        watch: section.word_or_default("watch"),
        spool: section
            .folder("spool")
            .unwrap_or_else(|| section.default("spool").into()),
        variants: section.folder("variants"),
        variants_bytes: section.count("variants_bytes"),
    }
}

/// Reports settings that do not fit together, except those that are compared already.
fn check(section: &Section<'_>, settings: &Settings) {
    let fits = settings.threads > settings.stat_threads || settings.stat_threads.is_none();
    if fits && let Err(error) = settings.check() {
        let key = if section.has("threads") {
            "threads"
        } else {
            "depth"
        };
        let is_derived = section.has("threads") && !section.has("stat_threads");
        let help = is_derived
            .then(|| "`stat_threads` is an eighth of `threads` unless it is given".to_owned());
        section.report(key, error, help);
    }
}

/// Reads the keys that `[disk]`, `[site.disk]` and `[site.route.disk]` have in common.
pub(crate) fn location_disk(section: &Section<'_>) -> LocationDisk {
    LocationDisk {
        engine: section.word_or("engine", engine_named).map(str::to_owned),
        chunk_bytes: chunk_bytes(section),
        direct: section.word_or("direct", |_| None).map(direct_named),
        changes: section.word_or("changes", |_| None).map(changes_named),
    }
}

fn direct_named(word: &str) -> Direct {
    match word {
        "always" => Direct::Always,
        "never" => Direct::Never,
        _ => Direct::Auto,
    }
}

fn changes_named(word: &str) -> Changes {
    match word {
        "in-place" => Changes::InPlace,
        "never" => Changes::Never,
        _ => Changes::Renamed,
    }
}

fn chunk_bytes(section: &Section<'_>) -> Option<usize> {
    let bytes = section.optional_count("chunk")?;
    if !bytes.is_multiple_of(CHUNK_STEP_BYTES) {
        let message = format_args!("{bytes} bytes are not a multiple of {CHUNK_STEP_BYTES}");
        section.report("chunk", message, None);
    }
    Some(bytes)
}
