//! C4: how many records per second can be appended durably, compared with fio?
//!
//! The program is `durable_append`, an example of `levity-disk`: each of its writers appends a record, syncs the file,
//! and goes on when both are done. fio writes the same records and syncs after as many of them.

use super::{Measured, Run, order, to_json};
use crate::failure::{Context, Failure, Result};
use crate::report::Outcome;
use crate::report::bar::{is_below, verdict};
use crate::report::table::{Table, number};
use crate::rig::confine::tool;
use crate::rig::journal::{Step, run_quietly};
use crate::rig::{Rig, fio};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const PROGRAM: &str = "durable_append";
const WRITERS: [usize; 4] = [1, 8, 32, 128];
/// The bar of the design.
const RATE_MIN: f64 = 0.9;

/// What the program reports.
#[derive(Clone, Copy, Deserialize, Serialize)]
struct Appended {
    appends: u64,
    syncs: u64,
    seconds: f64,
}

impl Appended {
    /// Records that one sync makes durable, on average: about half of the writers wait for the sync that is in flight,
    /// the others for the next one.
    fn group(&self) -> f64 {
        self.appends as f64 / self.syncs as f64
    }
}

/// One number of writers in a pass.
#[derive(Serialize)]
struct Pass {
    writers: usize,
    levity: Appended,
    fio_per_second: f64,
}

impl Pass {
    fn per_second(&self) -> f64 {
        self.levity.appends as f64 / self.levity.seconds
    }

    fn of_fio(&self) -> f64 {
        self.per_second() / self.fio_per_second
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig, the program or fio fails.
pub fn run(rig: &Rig, run: &Run) -> Result<Outcome> {
    let folder = rig.setup.dir.join("appends");
    let _remove = rig.journal().note(Step::RemoveDirectory(folder.clone()))?;
    fs::create_dir_all(&folder).context(|| format!("create {}", folder.display()))?;
    let mut measured: Vec<Measured<Pass>> = WRITERS
        .map(|writers| Measured {
            server: format!("levity-disk, {writers} writers"),
            passes: Vec::new(),
        })
        .into();
    for pass in 1..=run.passes {
        for number in order(WRITERS.len(), pass) {
            let writers = WRITERS[number];
            eprintln!(
                "levity-bench: pass {pass} of {}: {writers} writers",
                run.passes
            );
            let result = measure(&folder, writers, run.seconds)?;
            measured[number].passes.push(result);
        }
    }
    let mut table = Table::new(&[
        "writers",
        "records per sync",
        "appends/s",
        "fio appends/s",
        "of fio",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    Ok(Outcome {
        name: "c4".into(),
        caption: format!(
            "Durable appends of 4 KiB to one file on the machine's disk. Each writer appends a record, syncs, and goes on when \
             the sync is done; syncs of writers that wait at the same time become one (`{PROGRAM}`, an example of levity-disk). \
             fio writes the same records one after another, with fdatasync after as many of them as one sync of Levity \
             covered on average. Both extend a new file. Bar: {RATE_MIN} of fio. Median of {} interleaved passes of {} s (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(folder: &Path, writers: usize, seconds: f64) -> Result<Pass> {
    let levity = append(folder, writers, seconds)?;
    let file = folder.join("fio");
    let group = levity.group().round().max(1.0) as usize;
    let fio_per_second = fio::durable_appends(&file, group, seconds)?;
    remove(&file)?;
    Ok(Pass {
        writers,
        levity,
        fio_per_second,
    })
}

fn append(folder: &Path, writers: usize, seconds: f64) -> Result<Appended> {
    let built = std::env::current_exe().context(|| "path of this program".into())?;
    let program = built.with_file_name("examples").join(PROGRAM);
    if !program.exists() {
        return Err(Failure::new(format!(
            "no {}: build it with `cargo build --profile dist -p levity-disk --example {PROGRAM}`",
            program.display()
        )));
    }
    let file = folder.join("levity");
    let mut command = tool(None, &program.to_string_lossy());
    command
        .arg(&file)
        .args([writers.to_string(), seconds.to_string()]);
    let report = run_quietly(&mut command)?;
    remove(&file)?;
    serde_json::from_str(&report).context(|| format!("read the report of {PROGRAM}"))
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).context(|| format!("remove {}", file.display()))
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let of_fio = row.spread(Pass::of_fio);
    vec![
        row.passes[0].writers.to_string(),
        row.spread(|pass| pass.levity.group())
            .show(|group| format!("{group:.1}")),
        row.spread(Pass::per_second).show(number),
        row.spread(|pass| pass.fio_per_second).show(number),
        of_fio.show(number),
        verdict(&[(is_below(of_fio.median, RATE_MIN), "rate")], 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_within_a_pass() {
        let pass = Pass {
            writers: 8,
            levity: Appended {
                appends: 450,
                syncs: 100,
                seconds: 0.5,
            },
            fio_per_second: 1000.0,
        };
        assert!((pass.of_fio() - 0.9).abs() < 1e-9);
        let row = Measured {
            server: String::new(),
            passes: vec![pass],
        };
        assert_eq!(cells(&row), ["8", "4.5", "900", "1 000", "0.90", "pass"]);
    }
}
