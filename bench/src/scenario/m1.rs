//! M1: how much memory does a subscriber cost that has got one message and is idle?

use super::mailboxes::{SUBSCRIBERS, SUBSCRIBERS_MAX, subscribe, subscribers};
use super::{Measured, Run, Subject, interleaved, to_json};
use crate::failure::Result;
use crate::machine::KernelMemory;
use crate::mailbox::Order;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use serde::Serialize;
use std::thread;
use std::time::Duration;

/// The time between the message and the measurement.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_QUICK: Duration = Duration::from_secs(2);
const MESSAGE: Order = Order::FanOut {
    messages: 1,
    bytes: 100,
    interval_ms: 0,
};
/// The bar of the design.
const BYTES_PER_SUBSCRIBER_MAX: f64 = 2048.0;

/// A row in its single pass.
#[derive(Serialize)]
struct Pass {
    subscribers: usize,
    /// Proportional set size of the idle server, in bytes.
    bytes_before: u64,
    /// The same with all subscribers, after the idle time.
    bytes: u64,
    kernel_before: KernelMemory,
    kernel: KernelMemory,
    /// Deliveries that failed, before and after the idle time.
    failures: u64,
    first_error: Option<String>,
}

impl Pass {
    fn bytes_per_subscriber(&self) -> f64 {
        self.bytes.saturating_sub(self.bytes_before) as f64 / self.subscribers as f64
    }

    fn kernel_bytes_per_subscriber(&self, of: fn(&KernelMemory) -> u64) -> f64 {
        of(&self.kernel).saturating_sub(of(&self.kernel_before)) as f64 / self.subscribers as f64
    }
}

/// Runs the workload, in a single pass: memory does not vary between passes.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut counts = vec![subscribers(SUBSCRIBERS), subscribers(SUBSCRIBERS_MAX)];
    counts.dedup();
    let subjects: Vec<Subject<usize>> = counts
        .iter()
        .flat_map(|&kind| rows.iter().map(move |row| (kind, row)))
        .map(|(kind, row)| Subject {
            row: row.clone(),
            kind,
        })
        .collect();
    let idle = if run.quick { IDLE_QUICK } else { IDLE };
    let measured = interleaved(&subjects, 1, |subject, _| measure(rig, subject, idle))?;
    let mut table = Table::new(&[
        "server",
        "subscribers",
        "idle server MiB",
        "with subscribers MiB",
        "bytes per subscriber",
        "kernel: TCP buffers",
        "kernel: slab",
        "failed deliveries",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    Ok(Outcome {
        name: "m1".into(),
        caption: format!(
            "Memory per subscriber of an event stream over HTTP/1.1, all of one box, with several source addresses, after one \
             message of 100 bytes and {} s without any. A second message afterwards shows that all are still there. Bytes per \
             subscriber: proportional set size of all processes of the server, less that of the idle server. The kernel's \
             share, of the whole machine and so of both ends of each connection, in bytes per subscriber: pages of TCP buffers \
             (/proc/net/sockstat) and slab (/proc/meminfo). Bar: {BYTES_PER_SUBSCRIBER_MAX} bytes. One worker each; one pass.",
            idle.as_secs()
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, subject: &Subject<usize>, idle: Duration) -> Result<Pass> {
    let server = Server::start(rig, &subject.row)?;
    // The first message causes one-time allocations, which are not a cost of a subscriber.
    subscribe(rig, &server, 1, 1, 1)?.follow(MESSAGE)?;
    let (bytes_before, kernel_before) = (server.proportional_bytes()?, KernelMemory::now()?);
    let mut subscribers = subscribe(rig, &server, subject.kind, 1, 1)?;
    let first = subscribers.follow(MESSAGE)?;
    thread::sleep(idle);
    let (bytes, kernel) = (server.proportional_bytes()?, KernelMemory::now()?);
    let second = subscribers.follow(MESSAGE)?;
    Ok(Pass {
        subscribers: subject.kind,
        bytes_before,
        bytes,
        kernel_before,
        kernel,
        failures: first.failures() + second.failures(),
        first_error: first.first_error.or(second.first_error),
    })
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let bytes = row.spread(Pass::bytes_per_subscriber);
    let kernel = |of: fn(&KernelMemory) -> u64| {
        row.spread(|pass| pass.kernel_bytes_per_subscriber(of))
            .show(number)
    };
    vec![
        row.server.clone(),
        row.spread(|pass| pass.subscribers as f64).show(number),
        row.spread(|pass| mib(pass.bytes_before)).show(number),
        row.spread(|pass| mib(pass.bytes)).show(number),
        bytes.show(number),
        kernel(|kernel| kernel.tcp_buffer_bytes),
        kernel(|kernel| kernel.slab_bytes),
        row.total(|pass| pass.failures).to_string(),
        verdict(
            &[(is_above(bytes.median, BYTES_PER_SUBSCRIBER_MAX), "memory")],
            row.total(|pass| pass.failures),
        ),
    ]
}
