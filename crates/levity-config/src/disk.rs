//! `[disk]`, `[site.disk]` and `[site.route.disk]`.

use levity_disk::{Direct, engine};

use crate::fields::Fields;
use crate::keys::{SPOOL, engine_named};
use crate::model::{CHUNK_STEP_BYTES, Disk, PlaceDisk, Watch};

pub(crate) fn disk(fields: &Fields<'_>) -> Disk {
    fields.less_than("stat_threads", "threads");
    fields.at_most("chunk", "buffer_bytes");
    let PlaceDisk {
        engine,
        chunk_bytes,
        direct,
    } = place_disk(fields);
    let disk = Disk {
        engine: engine.unwrap_or_else(|| engine::AUTO.to_owned()),
        threads: fields.auto_count("threads"),
        stat_threads: fields.auto_count("stat_threads"),
        depth: fields.auto_count("depth"),
        chunk_bytes,
        direct: direct.unwrap_or_default(),
        cache_bytes: fields.size("cache_bytes"),
        buffer_bytes: fields.size("buffer_bytes"),
        queue: fields.count("queue"),
        dead_after: fields.duration("dead_after"),
        entry_ttl: fields.duration("entry_ttl"),
        watch: match fields.word("watch") {
            Some("inotify") => Watch::Inotify,
            _ => Watch::Off,
        },
        spool: fields.folder("spool").unwrap_or_else(|| SPOOL.into()),
    };
    let fits = disk.threads > disk.stat_threads || disk.stat_threads.is_none();
    if fits && let Err(error) = disk.settings().check() {
        let key = if fields.has("threads") {
            "threads"
        } else {
            "depth"
        };
        let is_derived = fields.has("threads") && !fields.has("stat_threads");
        let help = is_derived
            .then(|| "`stat_threads` is an eighth of `threads` unless it is given".to_owned());
        fields.report(key, error, help);
    }
    disk
}

/// What `[disk]`, `[site.disk]` and `[site.route.disk]` have in common.
pub(crate) fn place_disk(fields: &Fields<'_>) -> PlaceDisk {
    PlaceDisk {
        engine: fields.word_or("engine", engine_named).map(str::to_owned),
        chunk_bytes: chunk_bytes(fields),
        direct: fields.word("direct").map(|word| match word {
            "always" => Direct::Always,
            "never" => Direct::Never,
            _ => Direct::Auto,
        }),
    }
}

fn chunk_bytes(fields: &Fields<'_>) -> Option<usize> {
    let bytes = fields.auto_size("chunk")?;
    if !bytes.is_multiple_of(CHUNK_STEP_BYTES) {
        fields.report(
            "chunk",
            format_args!("{bytes} bytes are no multiple of {CHUNK_STEP_BYTES}"),
            None,
        );
    }
    Some(bytes)
}
