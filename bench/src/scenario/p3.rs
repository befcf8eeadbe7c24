//! P3: a response through the application's socket, or in a temporary file that the proxy sends instead: from which
//! length on is the file faster?

use super::proxied::{Cost, PLACES, Pair, WARM_UP_SECONDS, upstream};
use super::{Measured, Run, interleaved, to_json};
use crate::backend::Protocol;
use crate::backend::command::Backend;
use crate::failure::Result;
use crate::peer::Row;
use crate::peer::proxy::{Handover, Upstream};
use crate::report::Outcome;
use crate::report::curve::{self, Curve, size_in_words};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use crate::rig::journal::Step;
use crate::rig::slow_disk::create_dir_for_nobody;
use serde::Serialize;
use std::path::PathBuf;

const KB: usize = 1024;
const SIZES: [usize; 14] = [
    KB,
    2 * KB,
    4 * KB,
    8 * KB,
    16 * KB,
    32 * KB,
    64 * KB,
    128 * KB,
    256 * KB,
    512 * KB,
    KB * KB,
    4 * KB * KB,
    16 * KB * KB,
    64 * KB * KB,
];
const QUICK_SIZES: [usize; 4] = [KB, 8 * KB, 64 * KB, 512 * KB];
/// A sweep has many steps. Each takes this share of the configured time.
const TIME_SHARE: f64 = 0.4;
/// The maximum number of body bytes in flight, which bounds memory and temporary files.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
const CLIENTS_MAX: usize = 16;
/// Memory, whatever file systems the rig's own folder is on.
const FILES: &str = "/dev/shm/levity-bench";

/// A row in a pass, with one length.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    socket: Cost,
    file: Cost,
}

impl Pass {
    fn errors(&self) -> u64 {
        self.socket.report.errors + self.file.report.errors
    }
}

/// A row with the protocol to the application, and its results for each length.
struct Series {
    name: String,
    steps: Vec<Measured<Pass>>,
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let rows: Vec<Row> = rows
        .iter()
        .filter(|row| row.sends_files())
        .cloned()
        .collect();
    let sizes = if run.quick { &QUICK_SIZES[..] } else { &SIZES };
    let mut all = Vec::new();
    for (protocol, name) in [(Protocol::Fastcgi, "FastCGI"), (Protocol::Http, "HTTP")] {
        let mut series: Vec<Series> = rows
            .iter()
            .map(|row| Series {
                name: format!("{}, {name}", row.name),
                steps: Vec::new(),
            })
            .collect();
        for &bytes in sizes {
            let measured = interleaved(&rows, run.passes, |row, _| {
                measure(rig, row, protocol, bytes, run.seconds * TIME_SHARE)
            })?;
            for (series, measured) in series.iter_mut().zip(measured) {
                series.steps.push(measured);
            }
        }
        all.extend(series);
    }
    let steps: Vec<_> = all.iter().flat_map(|series| &series.steps).collect();
    Ok(Outcome {
        name: "p3".into(),
        caption: caption(run, &all),
        table: table(&all),
        passes: to_json(&steps)?,
        picture: Some(picture(&all)),
    })
}

fn measure(rig: &Rig, row: &Row, protocol: Protocol, bytes: usize, seconds: f64) -> Result<Pass> {
    let clients = clients(bytes);
    let files = PathBuf::from(FILES);
    let _remove = rig.journal().note(Step::RemoveDirectory(files.clone()))?;
    create_dir_for_nobody(&files)?;
    let naming = row.naming();
    let upstream = Upstream {
        handover: Handover::Temporary(files.clone()),
        ..upstream(rig, protocol, 1, clients)
    };
    let backend = Backend {
        files: Some(files),
        field: naming.field.into(),
        prefix: naming.prefix.map(str::to_owned),
        kept: if naming.removes { 0 } else { 2 * clients },
        ..Backend::new(&upstream.sockets[0], protocol)
    };
    let pair = Pair::start(rig, row, &upstream, &[backend])?;
    let cost = |path: String| {
        let mut load = pair.load(&path, clients, WARM_UP_SECONDS);
        load.body_bytes = Some(bytes as u64);
        load.measure(rig.load_cpu())?;
        load.seconds = seconds;
        pair.measure(rig, &load)
    };
    Ok(Pass {
        bytes,
        socket: cost(format!("/?bytes={bytes}"))?,
        file: cost(format!("/?bytes={bytes}&file"))?,
    })
}

fn clients(bytes: usize) -> usize {
    (UNDER_WAY_BYTES_MAX / bytes).clamp(1, CLIENTS_MAX)
}

fn table(all: &[Series]) -> Table {
    let mut table = Table::new(&[
        "proxy, protocol",
        "body",
        "clients",
        "req/s socket",
        "req/s file",
        "proxy CPU us socket",
        "proxy CPU us file",
        "CPU us of both socket",
        "CPU us of both file",
        "file / socket",
        "errors",
    ]);
    for series in all {
        for step in &series.steps {
            table.push(cells(&series.name, step));
        }
    }
    table
}

fn cells(name: &str, step: &Measured<Pass>) -> Vec<String> {
    let bytes = step.passes[0].bytes;
    let mut cells = vec![
        name.into(),
        size_in_words(bytes as f64),
        clients(bytes).to_string(),
    ];
    let figures: [fn(&Cost) -> f64; 3] = [
        |cost| cost.report.requests_per_second(),
        Cost::proxy_us_per_request,
        Cost::us_per_request,
    ];
    for figure in figures {
        cells.push(step.spread(|pass| figure(&pass.socket)).show(number));
        cells.push(step.spread(|pass| figure(&pass.file)).show(number));
    }
    cells.push(number(cpu_ratio(step)));
    cells.push(step.total(Pass::errors).to_string());
    cells
}

/// CPU time of proxy and application together: file divided by socket.
fn cpu_ratio(step: &Measured<Pass>) -> f64 {
    step.spread(|pass| pass.file.us_per_request() / pass.socket.us_per_request())
        .median
}

/// Requests per second: socket divided by file, so that the file wins below 1 here too.
fn rate_ratio(step: &Measured<Pass>) -> f64 {
    let rate = |cost: &Cost| cost.report.requests_per_second();
    step.spread(|pass| rate(&pass.socket) / rate(&pass.file))
        .median
}

/// The length from which on the file always wins.
fn break_even(ratios: &[(usize, f64)]) -> Option<usize> {
    let wins = ratios.iter().rev().take_while(|(_, ratio)| *ratio < 1.0);
    wins.last().map(|(bytes, _)| *bytes)
}

fn ratios(series: &Series, ratio: impl Fn(&Measured<Pass>) -> f64) -> Vec<(usize, f64)> {
    let steps = series.steps.iter();
    steps
        .map(|step| (step.passes[0].bytes, ratio(step)))
        .collect()
}

fn caption(run: &Run, all: &[Series]) -> String {
    let words = |bytes: Option<usize>| {
        bytes.map_or("never".to_owned(), |bytes| {
            format!("from {}", size_in_words(bytes as f64))
        })
    };
    let sentences: String = all
        .iter()
        .map(|series| {
            format!(
                "\n- {}: {} by CPU time, {} by requests/s",
                series.name,
                words(break_even(&ratios(series, cpu_ratio))),
                words(break_even(&ratios(series, rate_ratio)))
            )
        })
        .collect();
    format!(
        "The application makes each body anew: it writes it to the Unix socket, or to a file of its own in /dev/shm that the \
         proxy sends in its place. Levity removes the file (X-Sendfile-Temporary); behind nginx (X-Accel-Redirect) and lighttpd \
         (X-Sendfile), which do not, the application removes the oldest. HAProxy cannot send files. {PLACES} CPU of both: proxy and application. \
         Closed loop, as many clients as fit {} MB of bodies, {CLIENTS_MAX} at most. Median of {} interleaved passes (lowest to highest).\n\n\
         Where the file wins, at this and every greater length:\n{sentences}",
        UNDER_WAY_BYTES_MAX >> 20,
        run.passes
    )
}

fn picture(all: &[Series]) -> String {
    let curves: Vec<Curve> = all
        .iter()
        .map(|series| Curve {
            name: series.name.clone(),
            // None and infinite are steps without a single complete body.
            points: ratios(series, cpu_ratio)
                .into_iter()
                .filter(|(_, ratio)| ratio.is_normal())
                .map(|(bytes, ratio)| (bytes as f64, ratio))
                .collect(),
        })
        .collect();
    curve::svg(
        "A body in a temporary file instead of the application's socket",
        "CPU time of proxy and application, file over socket, by the length of the body; below 1 the file wins",
        &curves,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_break_even_is_where_the_file_wins_for_good() {
        let ratios = |values: [f64; 4]| [1, 2, 3, 4].into_iter().zip(values).collect::<Vec<_>>();
        assert_eq!(break_even(&ratios([1.5, 0.9, 0.8, 0.7])), Some(2));
        assert_eq!(break_even(&ratios([0.5, 1.1, 0.8, 0.7])), Some(3));
        assert_eq!(break_even(&ratios([0.5, 0.6, 0.8, 1.7])), None);
        assert_eq!(break_even(&ratios([0.5, 0.6, 0.8, f64::NAN])), None);
    }

    #[test]
    fn bodies_in_flight_are_bounded() {
        assert!(
            SIZES
                .iter()
                .all(|bytes| bytes * clients(*bytes) <= UNDER_WAY_BYTES_MAX)
        );
        assert_eq!(clients(SIZES[0]), CLIENTS_MAX);
    }
}
