//! What the workloads with mailboxes have in common.

use crate::failure::Result;
use crate::mailbox::command::{Subscribe, Subscribers};
use crate::mailbox::dialect::Dialect;
use crate::mailbox::{Delivered, Order};
use crate::peer::Server;
use crate::peer::mailbox::KEY;
use crate::rig::Rig;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::time::Instant;

/// The subscribers of the design.
pub const SUBSCRIBERS: usize = 20_000;
/// The most subscribers where descriptors allow more.
pub const SUBSCRIBERS_MAX: usize = 100_000;
/// Descriptors of a server beside its subscribers.
const OTHER_DESCRIPTORS: u64 = 256;

/// As many subscribers as one process has descriptors for, at most `wanted`.
#[must_use]
pub fn subscribers(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).maximum;
    let most = limit.map_or(u64::MAX, |limit| limit.saturating_sub(OTHER_DESCRIPTORS));
    wanted.min(usize::try_from(most).unwrap_or(usize::MAX))
}

/// Subscribers of this server, each with one of the boxes.
///
/// # Errors
/// The server refuses a stream.
pub fn subscribe(
    rig: &Rig,
    server: &Server,
    subscribers: usize,
    boxes: usize,
    publishers: usize,
) -> Result<Subscribers> {
    let subscribe = Subscribe {
        address: server.address,
        dialect: server.row.dialect().unwrap_or(Dialect::Levity),
        key: KEY.into(),
        subscribers,
        boxes,
        publishers,
    };
    subscribe.start(rig.load_cpu())
}

/// An order, and the CPU time that the server's control group used for it.
#[derive(Serialize)]
pub struct Followed {
    /// The result.
    pub delivered: Delivered,
    /// CPU seconds of the server.
    pub cpu_seconds: f64,
    /// The part of it in user space.
    pub user_seconds: f64,
    /// From the order to its result, in seconds.
    pub seconds: f64,
}

impl Followed {
    /// Gives the order and measures the server until the result.
    ///
    /// # Errors
    /// The subscribers or the server fail.
    pub fn measure(server: &Server, subscribers: &mut Subscribers, order: Order) -> Result<Self> {
        let (started, before) = (Instant::now(), server.group.cpu_usage()?);
        let delivered = subscribers.follow(order)?;
        let used = server.group.cpu_usage()?.since(&before);
        Ok(Self {
            delivered,
            cpu_seconds: used.total.as_secs_f64(),
            user_seconds: used.user.as_secs_f64(),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// CPU time per delivery in microseconds.
    #[must_use]
    pub fn us_per_delivery(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.delivered.deliveries as f64
    }

    /// The part of it in user space.
    #[must_use]
    pub fn user_us_per_delivery(&self) -> f64 {
        self.user_seconds * 1e6 / self.delivered.deliveries as f64
    }

    /// Bytes on the wire per delivery.
    #[must_use]
    pub fn wire_bytes_per_delivery(&self) -> f64 {
        self.delivered.wire_bytes as f64 / self.delivered.deliveries as f64
    }

    /// The share of a CPU that the load used.
    #[must_use]
    pub fn load_processors(&self) -> f64 {
        self.delivered.cpu_seconds / self.delivered.seconds.max(f64::MIN_POSITIVE)
    }
}
