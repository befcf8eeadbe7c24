//! Measures the store on a disk: `store_rate FOLDER SECONDS CONTENT_BYTES MEBIBYTES`.
//!
//! Prints one line of JSON for each part: how long it takes to open a store that has so many mebibytes of messages, and how
//! many messages are acknowledged per second with 1, 8 and 64 publishers that wait for one message each, for a durable set and
//! for another one. What it writes stays in FOLDER, so that another run finds it.

use std::error::Error;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use levity_mailbox::disk::{DiskStore, Options};
use levity_mailbox::{Append, Appending, Budget, Draft, Mode, Name, Settings, Store as _};
use tokio::runtime::{Builder, Runtime};

/// The number of boxes that publishers write to.
const BOXES: usize = 1000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn settings(is_durable: bool, bytes_max: usize) -> Arc<Settings> {
    Arc::new(Settings {
        set: "set".to_owned(),
        mode: Mode::Topic,
        messages_max: usize::MAX,
        bytes_max,
        lifetime: None,
        idle: Duration::from_secs(3600),
        boxes_max: usize::MAX,
        receivers_max: 1,
        keeps_all: false,
        is_durable,
    })
}

fn append(number: usize, bytes: usize, settings: &Arc<Settings>) -> Append {
    let draft = Draft {
        media_type: "application/json".into(),
        content: vec![b'x'; bytes].into(),
        ..Draft::default()
    };
    Append {
        update: None,
        name: Name::new("set", format!("user-{:07}", number % BOXES).as_bytes()).expect("a name"),
        settings: settings.clone(),
        draft: Arc::new(draft),
    }
}

/// Messages that are acknowledged within a time, or a number of them.
fn publish(
    runtime: &Runtime,
    store: &mut DiskStore,
    publishers: usize,
    bytes: usize,
    settings: &Arc<Settings>,
    end: (Duration, usize),
) -> (usize, f64) {
    let start = Instant::now();
    let (mut given, mut acknowledged) = (0, 0);
    let mut waiting: Vec<Option<Appending>> = (0..publishers).map(|_| None).collect();
    let mut swept = start;
    let mut late = Vec::new();
    runtime.block_on(poll_fn(|context| {
        let is_over = start.elapsed() >= end.0 || given >= end.1;
        let mut is_idle = true;
        for publisher in &mut waiting {
            loop {
                if let Some(appending) = publisher {
                    match appending.as_mut().poll(context) {
                        Poll::Pending => {
                            is_idle = false;
                            break;
                        }
                        Poll::Ready(results) => {
                            acknowledged += usize::from(results[0].is_ok());
                            late.extend(results.into_iter().filter_map(Result::err));
                            *publisher = None;
                        }
                    }
                }
                if is_over {
                    break;
                }
                let next = append(given, bytes, settings);
                *publisher = Some(store.append(vec![next], SystemTime::now()));
                given += 1;
            }
        }
        if swept.elapsed() > Duration::from_millis(100) {
            swept = Instant::now();
            store.sweep(SystemTime::now());
        }
        if is_idle {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    if let Some(error) = late.first() {
        eprintln!("{} refused: {error}", late.len());
    }
    (acknowledged, start.elapsed().as_secs_f64())
}

fn open(folder: &Path) -> Outcome<DiskStore> {
    let options = Options::new(folder, |line| eprintln!("{line}"))?;
    let budget = Budget::new(256 << 20);
    Ok(DiskStore::open(folder, budget, options, SystemTime::now())?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, seconds, bytes, mebibytes] = arguments.as_slice() else {
        return Err("usage: store_rate FOLDER SECONDS CONTENT_BYTES MEBIBYTES".into());
    };
    let (seconds, bytes) = (Duration::from_secs(seconds.parse()?), bytes.parse()?);
    let stored = mebibytes.parse::<usize>()? << 20;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    let start = Instant::now();
    let mut store = open(Path::new(folder))?;
    let opened = start.elapsed().as_secs_f64();
    let filling = settings(false, stored / BOXES);
    let end = (Duration::MAX, stored / (bytes + 160));
    let (filled, time) = publish(&runtime, &mut store, 64, bytes, &filling, end);
    println!("{{\"open\":{opened:.3},\"filled\":{filled},\"seconds\":{time:.1}}}");
    for is_durable in [true, false] {
        for publishers in [1, 8, 64] {
            let settings = settings(is_durable, stored / BOXES);
            let end = (seconds, usize::MAX);
            let (count, time) = publish(&runtime, &mut store, publishers, bytes, &settings, end);
            let rate = f64::from(u32::try_from(count)?) / time;
            println!(
                "{{\"durable\":{is_durable},\"publishers\":{publishers},\"per_second\":{rate:.0}}}"
            );
        }
    }
    Ok(())
}
