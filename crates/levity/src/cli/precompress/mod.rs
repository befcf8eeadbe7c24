//! `levity precompress`: writes compressed variants beside files, at publication.
//!
//! A variant is written under a hidden name and synced, the file compared with that of the start,
//! then the variant is renamed. A file of the present second is read in the next one, because a
//! server compares variants with files by the second. One thread walks through folders; the others,
//! one per core, compress variants of files. It runs without an event loop, and may block.

mod folder;
mod temporary;
mod variant;
mod walk;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use clap::Args;
use levity_config::{Config, LocationOptions, MediaTypes};
use levity_disk::Secrets;
use levity_wire::encoding::Coding;

use self::variant::{Failure, Outcome, Rules, Variant};
use self::walk::{Found, Walk};
use super::{EXIT_CONFIG, EXIT_FAILURE, Environment, Streams};
use crate::tls::folder as state;

/// The number of variants that wait for a thread, and of events that wait to be reported. Each holds the descriptor of
/// its folder.
const QUEUE_MAX: usize = 64;

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub(super) struct Options {
    /// The folders
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The configuration of the server: what it keeps from clients, such as keys and passwords, gets no variants
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    environment: Environment,
    /// The codings, separated by commas
    #[arg(
        long,
        value_name = "CODINGS",
        value_delimiter = ',',
        default_value = "zstd,br,gzip",
        value_parser = coding
    )]
    codings: Vec<Coding>,
    /// Make variants anew that are up to date
    #[arg(long)]
    force: bool,
    /// Remove variants that are outdated or save too little, and that no better one replaces
    #[arg(long)]
    prune: bool,
    /// List what would be written or removed, and change nothing. Compresses, to find out what it saves
    #[arg(long)]
    dry_run: bool,
    /// Exit with status 1 if a variant is missing or outdated, list such ones, and change nothing
    #[arg(long, conflicts_with_all = ["force", "prune", "dry_run"])]
    check: bool,
    /// Print a line for each variant that is written or removed
    #[arg(short, long)]
    verbose: bool,
}

fn coding(name: &str) -> Result<Coding, String> {
    let coding = Coding::ALL.into_iter().find(|coding| coding.name() == name);
    coding.ok_or_else(|| {
        let names = Coding::ALL.map(Coding::name).join(", ");
        format!("the codings are {names}")
    })
}

impl Options {
    fn writes(&self) -> bool {
        !self.dry_run && !self.check
    }

    /// Without repetition.
    fn codings(&self) -> impl Iterator<Item = Coding> {
        let all = Coding::ALL.into_iter();
        all.filter(|coding| self.codings.contains(coding))
    }
}

/// What threads report.
enum Event {
    /// What became of a variant.
    Done(Variant, Outcome),
    /// What failed, and why.
    Failed(String),
    /// A file that gets no variants.
    Secret(PathBuf),
    /// The walk found a file of one of the media types.
    File,
}

/// Compresses on all processors; returns the exit status. Each thread needs up to 92 MiB.
pub(super) fn run(options: &Options, streams: &mut Streams<'_>) -> u8 {
    let start = Instant::now();
    let secrets = match secrets(options, streams) {
        Ok(secrets) => secrets,
        Err(status) => return status,
    };
    let defaults = LocationOptions::default();
    let rules = Rules {
        bytes_min: defaults.compress_min_bytes as u64,
        force: options.force,
        prune: options.prune,
        writes: options.writes(),
    };
    let mut report = Report::new(options);
    thread::scope(|scope| {
        let (events, reported) = mpsc::sync_channel(QUEUE_MAX);
        let (jobs, queue) = mpsc::sync_channel(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let mut start_thread = |run: Box<dyn FnOnce() + Send>| {
            let builder = Builder::new().name("precompress".to_owned());
            if let Err(error) = builder.spawn_scoped(scope, run) {
                report.failed(&format!("cannot start a thread: {error}"), streams);
            }
        };
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let (queue, events) = (queue.clone(), events.clone());
            start_thread(Box::new(move || work(&queue, &rules, &events)));
        }
        // Without any of the threads, the walk ends at once.
        drop(queue);
        let types = defaults.compress_types;
        start_thread(Box::new(move || {
            walk(options, &types, &secrets, &jobs, &events)
        }));
        for event in reported {
            report.add(event, streams);
        }
    });
    report.end(start.elapsed(), streams)
}

/// What a server with the configuration sends to nobody; without one, the folder of the state of TLS. May block.
fn secrets(options: &Options, streams: &mut Streams<'_>) -> Result<Arc<Secrets>, u8> {
    let Some(file) = &options.config else {
        return Ok(state::secrets(&Config::default()));
    };
    let variables = options.environment.variables(streams)?;
    let config = levity_config::load_without_certificates(file, &variables);
    let config = config.map_err(|errors| {
        streams.err(&errors.render(streams.colour));
        EXIT_CONFIG
    })?;
    Ok(state::secrets(&config))
}

/// Makes variants until the walk is over and the queue empty.
fn work(queue: &Mutex<Receiver<Variant>>, rules: &Rules, events: &SyncSender<Event>) {
    let next = || queue.lock().expect("no thread panics").recv();
    while let Ok(variant) = next() {
        let event = match variant.update(rules) {
            Ok(outcome) => Event::Done(variant, outcome),
            Err(failure) => Event::Failed(describe(&variant, &failure)),
        };
        let _ = events.send(event);
    }
}

/// Walks through all folders and queues the variants of each file.
fn walk(
    options: &Options,
    types: &[MediaTypes],
    secrets: &Arc<Secrets>,
    jobs: &SyncSender<Variant>,
    events: &SyncSender<Event>,
) {
    let found = |found| match found {
        Found::File(original) => {
            let _ = events.send(Event::File);
            for coding in options.codings() {
                // It fails if no thread could be started, which was reported.
                let _ = jobs.send(Variant::new(original.clone(), coding));
            }
        }
        Found::Secret(path) => {
            let _ = events.send(Event::Secret(path));
        }
        Found::Unreadable(path, error) => {
            let message = format!("cannot read {}: {error}", printable(&path));
            let _ = events.send(Event::Failed(message));
        }
    };
    let mut walk = Walk {
        types,
        secrets,
        cleans: options.writes(),
        found,
    };
    for folder in &options.folders {
        walk.run(folder);
    }
}

fn describe(variant: &Variant, failure: &Failure) -> String {
    let original = printable(&variant.original_path());
    let path = printable(&variant.path());
    match failure {
        Failure::Read(error) => format!("cannot read {original}: {error}"),
        Failure::Changed => {
            format!("{original} changed while it was read; {path} was not written: run again")
        }
        Failure::Write(error) => format!("cannot write {path}: {error}"),
        Failure::Occupied => format!("{path} is no regular file, and was left as it is"),
        Failure::Defect(error) => format!("cannot compress {original} to {path}: {error}"),
    }
}

/// A path without control characters: the name of a file may hold an escape sequence.
fn printable(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "\u{fffd}")
}

/// The figures of one coding.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    written: u64,
    bytes_before: u64,
    bytes_after: u64,
    kept: u64,
    useless: u64,
    removed: u64,
}

/// The output of a run.
struct Report<'o> {
    options: &'o Options,
    figures: [Figures; Coding::ALL.len()],
    files: u64,
    failures: u64,
}

impl<'o> Report<'o> {
    fn new(options: &'o Options) -> Self {
        Self {
            options,
            figures: Default::default(),
            files: 0,
            failures: 0,
        }
    }

    fn failed(&mut self, message: &str, streams: &mut Streams<'_>) {
        self.failures += 1;
        streams.err(&format!("error: {message}\n"));
    }

    fn add(&mut self, event: Event, streams: &mut Streams<'_>) {
        match event {
            Event::File => self.files += 1,
            Event::Failed(message) => self.failed(&message, streams),
            Event::Secret(path) => streams.err(&format!(
                "note: {} is sent to nobody, and gets no variants\n",
                printable(&path)
            )),
            Event::Done(variant, outcome) => {
                if let Some(line) = self.line(&variant, outcome) {
                    streams.out(&format!("{line}\n"));
                }
                self.count(variant.coding(), outcome);
            }
        }
    }

    /// The line of a variant, if it gets one.
    fn line(&self, variant: &Variant, outcome: Outcome) -> Option<String> {
        let path = printable(&variant.path());
        let is_listed = self.options.verbose || self.options.dry_run;
        match outcome {
            Outcome::Written { replaces, .. } if self.options.check => {
                let state = if replaces { "outdated" } else { "missing" };
                Some(format!("{state}: {path}"))
            }
            Outcome::Written { before, after, .. } if is_listed => {
                Some(format!("{path}: {before} -> {after} bytes"))
            }
            Outcome::Removed if is_listed => Some(format!("{path}: removed")),
            _ => None,
        }
    }

    fn count(&mut self, coding: Coding, outcome: Outcome) {
        let figures = &mut self.figures[coding as usize];
        match outcome {
            Outcome::Skipped => {}
            Outcome::Kept => figures.kept += 1,
            Outcome::Useless => figures.useless += 1,
            Outcome::Removed => figures.removed += 1,
            Outcome::Written { before, after, .. } => {
                figures.written += 1;
                figures.bytes_before += before;
                figures.bytes_after += after;
            }
        }
    }

    /// Prints the summary; returns the exit status.
    fn end(&self, time: Duration, streams: &mut Streams<'_>) -> u8 {
        let written = match (self.options.check, self.options.dry_run) {
            (true, _) => "missing or outdated",
            (_, true) => "to write",
            _ => "written",
        };
        for coding in self.options.codings() {
            let Figures {
                written: count,
                bytes_before,
                bytes_after,
                kept,
                useless,
                removed,
            } = self.figures[coding as usize];
            streams.out(&format!(
                "{}: {count} {written} ({bytes_before} -> {bytes_after} bytes), {kept} up to date, \
                 {useless} would save too little, {removed} removed\n",
                coding.name()
            ));
        }
        let (files, seconds) = (self.files, time.as_secs_f64());
        streams.out(&format!("{files} files in {seconds:.1} s\n"));
        let is_incomplete = self.figures.iter().any(|one| one.written > 0);
        match self.failures > 0 || self.options.check && is_incomplete {
            true => EXIT_FAILURE,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{Folder, levity};
    use super::super::{EXIT_CONFIG, EXIT_USAGE};

    #[test]
    fn usage() {
        levity(&["precompress"]).exits(EXIT_USAGE);
        let ran = levity(&["precompress", "--codings", "zstd,deflate", "."]);
        ran.exits(EXIT_USAGE);
        assert!(
            ran.err.contains("the codings are zstd, br, gzip"),
            "{}",
            ran.err
        );
        for other in ["--force", "--prune", "--dry-run"] {
            levity(&["precompress", "--check", other, "."]).exits(EXIT_USAGE);
        }
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        let folder = Folder::new();
        folder.write("a\u{1b}[2J.txt", &"text ".repeat(1000));
        let ran = levity(&["precompress", "-v", "--dry-run", folder.path()]);
        ran.exits(0);
        assert!(
            ran.out.contains("a\u{fffd}[2J.txt.br: 5000 -> "),
            "{}",
            ran.out
        );
    }

    /// A server would send the variant, which is another file.
    #[test]
    fn secrets_get_no_variants() {
        let (web, own) = (Folder::new(), Folder::new());
        let key = web.write("key.txt", &"0123456789abcdef".repeat(100));
        web.write("a.txt", &"text ".repeat(1000));
        fs::hard_link(&key, format!("{}/linked.txt", web.path())).expect("a link");
        let root = web.path();
        let text = format!(
            "[[site]]\nroot = \"{root}\"\nprecompressed = [\"br\"]\nsigned_url = {{ secret_file = \"{key}\" }}\n"
        );
        let config = own.write("levity.toml", &text);
        let ran = levity(&["precompress", "--codings", "br", "-c", &config, root]);
        ran.exits(0);
        for name in ["key.txt", "linked.txt"] {
            let note = format!("note: {root}/{name} is sent to nobody, and gets no variants\n");
            assert!(ran.err.contains(&note), "{}", ran.err);
            assert!(!fs::exists(format!("{root}/{name}.br")).expect("stat"));
        }
        assert!(fs::exists(format!("{root}/a.txt.br")).expect("stat"));
        let text = text.replace(&key, "${KEY}");
        let config = own.write("levity.toml", &text);
        let values = own.write("values", &format!("KEY={key}\n"));
        let arguments = ["precompress", "-c", &config, root];
        levity(&arguments).exits(EXIT_CONFIG);
        let ran = levity(&[&arguments[..], &["--env-file", &values]].concat());
        ran.exits(0);
        assert!(
            ran.err.contains("/key.txt is sent to nobody"),
            "{}",
            ran.err
        );
        let wrong = own.write("wrong.toml", "[disk]\nenigne = 1\n");
        let ran = levity(&["precompress", "-c", &wrong, root]);
        ran.exits(EXIT_CONFIG);
        assert!(ran.err.contains("enigne"), "{}", ran.err);
    }

    #[test]
    fn codings_are_those_selected_once_each() {
        let folder = Folder::new();
        let file = folder.write("a.txt", &"text ".repeat(1000));
        let ran = levity(&["precompress", "--codings", "br,br", folder.path()]);
        ran.exits(0);
        assert!(
            ran.out.starts_with("br: 1 written (5000 -> "),
            "{}",
            ran.out
        );
        assert!(ran.out.contains("\n1 files in "), "{}", ran.out);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        assert!(fs::exists(format!("{file}.br")).expect("stat"));
    }
}
