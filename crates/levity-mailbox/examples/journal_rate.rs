//! Measures the journal in a folder: `journal_rate FOLDER SECONDS BOXES`.
//!
//! Prints one line of JSON for each part: how often a write of 200 bytes can be followed by `fdatasync` there; how many
//! messages of 100 bytes are acknowledged per second by a durable set and by another one, with a number of publishers that
//! wait for one message each; and how long a start takes with that number of boxes of one message each, and the memory.
//! What it writes is removed in the end. `journal_rate start FOLDER` only starts with the journal that is there.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::future::poll_fn;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use levity_disk::Disk;
use levity_mailbox::journal::{JournalStore, Options};
use levity_mailbox::{Append, Appending, Budget, Draft, Mode, Name, Settings, Store as _};
use tokio::runtime::{Builder, Runtime};

/// The size of the content of a message in bytes.
const CONTENT_BYTES: usize = 100;

/// The number of boxes that publishers write to.
const BOXES: usize = 1000;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Measurement {
    folder: PathBuf,
    disk: Arc<Disk>,
    runtime: Runtime,
    time: Duration,
}

fn settings(is_durable: bool) -> Arc<Settings> {
    Arc::new(Settings {
        set: "set".to_owned(),
        mode: Mode::Topic,
        messages_max: 64,
        bytes_max: 256 << 10,
        lifetime: None,
        idle: Duration::from_secs(3600),
        boxes_max: usize::MAX,
        receivers_max: 1,
        is_durable,
    })
}

fn append(number: usize, settings: &Arc<Settings>) -> Append {
    let draft = Draft {
        key: None,
        event: Box::default(),
        media_type: "application/json".into(),
        content: [b'x'; CONTENT_BYTES].into(),
        deadline: None,
        reservation: None,
        is_damaged: false,
    };
    Append {
        name: Name::new("set", format!("user-{number:07}").as_bytes()).expect("a name"),
        settings: settings.clone(),
        draft: Arc::new(draft),
    }
}

impl Measurement {
    fn new(folder: &str, time: Duration) -> Outcome<Self> {
        Ok(Self {
            folder: folder.into(),
            disk: Disk::start(levity_disk::Settings::default())?,
            runtime: Builder::new_current_thread().enable_all().build()?,
            time,
        })
    }

    /// Syncs per second of a file to which a little is appended before each.
    fn syncs(&self) -> Outcome<f64> {
        let path = self.folder.join("raw");
        let mut file = File::create_new(&path)?;
        let start = Instant::now();
        let mut syncs = 0;
        while start.elapsed() < self.time {
            file.write_all(&[b'x'; 200])?;
            file.sync_data()?;
            syncs += 1;
        }
        let rate = f64::from(syncs) / start.elapsed().as_secs_f64();
        fs::remove_file(path)?;
        Ok(rate)
    }

    fn open(&self) -> Outcome<JournalStore> {
        let options = Options::new(|line| eprintln!("{line}"))?;
        let (disk, budget) = (self.disk.clone(), Budget::new(256 << 20));
        let folder = self.folder.join("journal");
        Ok(JournalStore::open(
            &folder,
            disk,
            budget,
            options,
            SystemTime::now(),
        )?)
    }

    fn syncs_of_disk(&self) -> u64 {
        let engines = self.disk.stats().engines;
        engines.iter().map(|engine| engine.syncs).sum()
    }

    /// Prints how many messages are acknowledged.
    fn publish(&self, publishers: usize, is_durable: bool) -> Outcome<()> {
        let mut store = self.open()?;
        let settings = settings(is_durable);
        let (start, syncs) = (Instant::now(), self.syncs_of_disk());
        let (mut given, mut acknowledged) = (0, 0);
        let mut waiting: Vec<Option<Appending>> = (0..publishers).map(|_| None).collect();
        let mut swept = start;
        self.runtime.block_on(poll_fn(|context| {
            let is_over = start.elapsed() >= self.time;
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
                                *publisher = None;
                            }
                        }
                    }
                    if is_over {
                        break;
                    }
                    let next = append(given % BOXES, &settings);
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
        let seconds = start.elapsed().as_secs_f64();
        let syncs = self.syncs_of_disk() - syncs;
        drop(store);
        println!(
            "{{\"durable\":{is_durable},\"publishers\":{publishers},\"per_second\":{:.0},\"syncs_per_second\":{:.0},\
             \"record_bytes\":{}}}",
            f64::from(u32::try_from(acknowledged)?) / seconds,
            f64::from(u32::try_from(syncs)?) / seconds,
            self.record_bytes()?,
        );
        fs::remove_dir_all(self.folder.join("journal"))?;
        Ok(())
    }

    /// The bytes that a message adds to a segment: measured with one that is written alone.
    fn record_bytes(&self) -> Outcome<u64> {
        let folder = self.folder.join("journal");
        fs::remove_dir_all(&folder)?;
        let settings = settings(true);
        let mut sizes = Vec::new();
        for count in [1, 101] {
            let mut store = self.open()?;
            let appends = (0..count).map(|number| append(number, &settings)).collect();
            self.runtime
                .block_on(store.append(appends, SystemTime::now()));
            drop(store);
            sizes.push(size(&folder)?);
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        Ok((sizes[1] - sizes[0]) / 100)
    }

    /// Prints how long a start takes.
    fn start(&self, boxes: usize) -> Outcome<()> {
        let mut store = self.open()?;
        let settings = settings(false);
        let start = Instant::now();
        for first in (0..boxes).step_by(1000) {
            let numbers = first..boxes.min(first + 1000);
            let appends = numbers.map(|number| append(number, &settings)).collect();
            self.runtime
                .block_on(store.append(appends, SystemTime::now()));
        }
        let filled = start.elapsed();
        drop(store);
        println!(
            "{{\"boxes\":{boxes},\"filled_s\":{:.3}}}",
            filled.as_secs_f64()
        );
        // In a process of its own, whose memory nothing has used before.
        let folder = &self.folder;
        let start = Command::new(env::current_exe()?)
            .arg("start")
            .arg(folder)
            .status()?;
        fs::remove_dir_all(self.folder.join("journal"))?;
        if !start.success() {
            return Err("the start has failed".into());
        }
        Ok(())
    }

    /// Prints how long the start of this process takes.
    fn measure_start(&self) -> Outcome<()> {
        let (start, cpu, before) = (Instant::now(), cpu_seconds()?, resident_bytes()?);
        let store = self.open()?;
        let (opened, cpu) = (start.elapsed(), cpu_seconds()? - cpu);
        let boxes = store.figures().boxes;
        println!(
            "{{\"boxes\":{boxes},\"start_s\":{:.3},\"start_cpu_s\":{cpu:.2},\"memory_bytes_per_box\":{},\
             \"disk_bytes_per_box\":{}}}",
            opened.as_secs_f64(),
            (resident_bytes()? - before) / boxes,
            size(&self.folder.join("journal"))? / boxes as u64,
        );
        Ok(())
    }
}

/// The size of the files in a folder.
fn size(folder: &Path) -> Outcome<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        size += entry?.metadata()?.len();
    }
    Ok(size)
}

/// The memory of this process.
fn resident_bytes() -> Outcome<usize> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).ok_or("no size of memory")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// The time that this process has computed, in seconds.
fn cpu_seconds() -> Outcome<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(')').ok_or("no name of a process")?;
    let ticks: Result<Vec<f64>, _> = after_name
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect();
    // The unit is a hundredth of a second on all machines.
    Ok(ticks?.iter().sum::<f64>() / 100.0)
}

fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (folder, seconds, boxes) = match words[..] {
        ["start", folder] => return Measurement::new(folder, Duration::ZERO)?.measure_start(),
        [folder, seconds, boxes] => (folder, seconds, boxes),
        _ => return Err("usage: journal_rate FOLDER SECONDS BOXES".into()),
    };
    let time = Duration::try_from_secs_f64(seconds.parse()?)?;
    let measurement = Measurement::new(folder, time)?;
    println!("{{\"raw_syncs_per_second\":{:.0}}}", measurement.syncs()?);
    for publishers in [1, 16, 256, 4096] {
        measurement.publish(publishers, true)?;
    }
    println!("{{\"raw_syncs_per_second\":{:.0}}}", measurement.syncs()?);
    measurement.publish(256, false)?;
    measurement.start(boxes.parse()?)
}
