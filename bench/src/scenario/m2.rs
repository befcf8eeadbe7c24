//! M2: how long does one message take to reach all of many subscribers, and what does a delivery cost?

use super::mailboxes::{Followed, SUBSCRIBERS, subscribe, subscribers};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::mailbox::Order;
use crate::peer::mailbox::WRITER;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::spread::Spread;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

/// The lengths of the messages in bytes.
const SIZES: [usize; 2] = [100, 1024];
/// Messages of each length in a pass.
const MESSAGES: usize = 15;
const MESSAGES_QUICK: usize = 3;
/// Messages before those, in which every socket gets its first one.
const WARM_UP: usize = 2;
/// The peer of the bar.
const NCHAN: &str = "nchan";
/// The bars of the design.
const LAST_RATIO_MAX: f64 = 1.5;
const CPU_RATIO_MAX: f64 = 1.0;

/// A row in a pass: one entry for each of [`SIZES`].
#[derive(Serialize)]
struct Pass {
    sizes: Vec<Followed>,
}

impl Pass {
    /// The median of the times until the last subscriber had the message.
    fn last_us(&self, size: usize) -> f64 {
        let times = self.sizes[size].delivered.last_us.iter();
        Spread::of(times.copied()).median
    }
}

/// Runs the workload. Each server that has mailboxes, and the writer.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut rows = rows.to_vec();
    rows.push(Row::writer(rig)?);
    let count = subscribers(SUBSCRIBERS);
    let messages = if run.quick { MESSAGES_QUICK } else { MESSAGES };
    let measured = interleaved(&rows, run.passes, |row, _| {
        measure(rig, row, count, messages)
    })?;
    let mut table = Table::new(&[
        "server",
        "bytes",
        "last byte",
        "of the writer's",
        "p50",
        "CPU us per delivery",
        "user",
        "of nchan's",
        "wire bytes",
        "load CPU",
        "bar",
    ]);
    for (size, bytes) in SIZES.into_iter().enumerate() {
        for (row, measured_row) in rows.iter().zip(&measured) {
            let cells = Cells {
                measured: &measured,
                size,
                bytes,
            };
            table.push(cells.of(measured_row, row.is_levity()));
        }
    }
    Ok(Outcome {
        name: "m2".into(),
        caption: format!(
            "Fan-out: one message to {count} subscribers of an event stream over HTTP/1.1; the next one when the last subscriber has \
             it, verified. Last byte: from the publish until the last subscriber has the whole message, median of {messages} messages. \
             p50: until half of them have it. The writer is one thread that writes the bytes of Levity to one socket after \
             another. CPU: of the server's control group, publishes included. Wire bytes: received per delivery. Bars for \
             Levity: {LAST_RATIO_MAX} of the writer's last byte, the CPU of nchan. One worker each; median of {passes} \
             interleaved passes (lowest to highest), ratios within a pass.",
            passes = run.passes
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, count: usize, messages: usize) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let mut subscribers = subscribe(rig, &server, count, 1, 1)?;
    let mut sizes = Vec::new();
    for bytes in SIZES {
        let order = |messages| Order::FanOut {
            messages,
            bytes,
            interval_ms: 0,
        };
        subscribers.follow(order(WARM_UP))?;
        let followed = Followed::measure(&server, &mut subscribers, order(messages))?;
        sizes.push(followed);
    }
    Ok(Pass { sizes })
}

struct Cells<'a> {
    measured: &'a [Measured<Pass>],
    size: usize,
    bytes: usize,
}

impl Cells<'_> {
    fn of(&self, row: &Measured<Pass>, is_levity: bool) -> Vec<String> {
        let size = self.size;
        let followed = |figure: fn(&Followed) -> f64| {
            row.spread(|pass| figure(&pass.sizes[size])).show(number)
        };
        let last = self.ratio(row, WRITER, |pass| pass.last_us(size));
        let cpu = self.ratio(row, NCHAN, |pass| pass.sizes[size].us_per_delivery());
        let bars = [
            (
                is_levity && is_above(last.median, LAST_RATIO_MAX),
                "last byte",
            ),
            (is_levity && is_above(cpu.median, CPU_RATIO_MAX), "CPU"),
        ];
        vec![
            row.server.clone(),
            self.bytes.to_string(),
            row.spread(|pass| pass.last_us(size)).show(time_us),
            last.show(number),
            row.spread(|pass| pass.sizes[size].delivered.latency.p50_us)
                .show(time_us),
            followed(Followed::us_per_delivery),
            followed(Followed::user_us_per_delivery),
            cpu.show(number),
            followed(Followed::wire_bytes_per_delivery),
            followed(Followed::load_processors),
            verdict(
                &bars,
                row.total(|pass| pass.sizes[size].delivered.failures()),
            ),
        ]
    }

    /// The figure over that of another row in the same pass; NaN without that row.
    fn ratio(&self, row: &Measured<Pass>, to: &str, figure: impl Fn(&Pass) -> f64) -> Spread {
        let other = self.measured.iter().find(|other| other.server == to);
        other.map_or(Spread::of([]), |other| row.spread_of_ratio(other, figure))
    }
}
