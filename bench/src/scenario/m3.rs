//! M3: what does a delivery cost when each goes to another box, and how late is it?

use super::mailboxes::{Followed, subscribe};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::mailbox::Order;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::spread::Spread;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;

/// Boxes, each with one subscriber.
const BOXES: usize = 1000;
/// Keep-alive connections that publish.
const PUBLISHERS: usize = 32;
/// Messages per second.
const RATE: u32 = 10_000;
/// The length of a message in bytes.
const BYTES: usize = 100;
const WARM_UP_SECONDS: f64 = 0.5;
/// The peer of the bar.
const NCHAN: &str = "nchan";
/// The bar of the design.
const CPU_RATIO_MAX: f64 = 1.0;

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let measured = interleaved(rows, run.passes, |row, _| measure(rig, row, run.seconds))?;
    let nchan = measured.iter().find(|row| row.server == NCHAN);
    let mut table = Table::new(&[
        "server",
        "deliveries/s",
        "p50",
        "p99",
        "p99.9",
        "acknowledged p99",
        "CPU us per delivery",
        "user",
        "of nchan's",
        "load CPU",
        "failed",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(&measured) {
        table.push(cells(measured, nchan, row.is_levity()));
    }
    Ok(Outcome {
        name: "m3".into(),
        caption: format!(
            "{BOXES} boxes with one subscriber each, {RATE} messages of {BYTES} bytes per second (open loop) to one box after another, \
             published over {PUBLISHERS} keep-alive connections. Every subscriber verifies that it gets each message of its box, \
             once and in order. Latency: from when a message is due. CPU: of the server's control group, a publish and its \
             delivery. Bar for Levity: the CPU of nchan. One worker each; median of {passes} interleaved passes of {seconds} s \
             (lowest to highest), ratios within a pass.",
            passes = run.passes,
            seconds = run.seconds,
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, seconds: f64) -> Result<Followed> {
    let server = Server::start(rig, row)?;
    let mut subscribers = subscribe(rig, &server, BOXES, BOXES, PUBLISHERS)?;
    let order = |seconds| Order::Flow {
        rate: RATE,
        seconds,
        bytes: BYTES,
    };
    subscribers.follow(order(WARM_UP_SECONDS))?;
    Followed::measure(&server, &mut subscribers, order(seconds))
}

fn cells(
    row: &Measured<Followed>,
    nchan: Option<&Measured<Followed>>,
    is_levity: bool,
) -> Vec<String> {
    let time = |figure: fn(&Followed) -> f64| row.spread(figure).show(time_us);
    let figure = |figure: fn(&Followed) -> f64| row.spread(figure).show(number);
    let ratio = nchan.map_or(Spread::of([]), |nchan| {
        row.spread_of_ratio(nchan, Followed::us_per_delivery)
    });
    let failures = row.total(|pass| pass.delivered.failures());
    vec![
        row.server.clone(),
        figure(|pass| pass.delivered.deliveries as f64 / pass.delivered.seconds),
        time(|pass| pass.delivered.latency.p50_us),
        time(|pass| pass.delivered.latency.p99_us),
        time(|pass| pass.delivered.latency.p999_us),
        time(|pass| pass.delivered.acknowledged.p99_us),
        figure(Followed::us_per_delivery),
        figure(Followed::user_us_per_delivery),
        ratio.show(number),
        figure(Followed::load_processors),
        failures.to_string(),
        verdict(
            &[(is_levity && is_above(ratio.median, CPU_RATIO_MAX), "CPU")],
            failures,
        ),
    ]
}
