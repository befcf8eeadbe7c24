//! The task of a stream: passes its events on, whether its client is there or not.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use levity_net::Turn;
use levity_telemetry::trace::Trace;
use tokio::time::{self, MissedTickBehavior};

use super::event_box::EventBox;
use super::events::{Events, LOOK_INTERVAL};
use super::permit::Permit;
use crate::http::response::{BodyStream, Piece, PieceLimits};
use crate::route::Proxy;

/// The maximum of bytes that are read from the application at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// What an application sends.
pub struct Stream {
    /// Names its upstream.
    pub proxy: Arc<Proxy>,
    /// The content, which no longer depends on the client.
    pub body: Box<dyn BodyStream>,
    /// Where its events go.
    pub to: EventBox,
    /// The lines of the headers that are kept with them.
    pub headers: Vec<u8>,
    /// The id of the application that its client has already; empty without one.
    pub last_id: Box<str>,
    /// Held until the stream ends.
    pub _permit: Permit,
}

impl Stream {
    /// Passes the events to the box, to the end.
    pub async fn run(self) {
        let mut events = Events::new(&self.to, &self.proxy, self.headers, self.last_id);
        let is_complete = pass_on(&mut events, &self.to, self.body).await;
        events.end(is_complete).await;
    }
}

/// Passes the events of the application to the box. Returns whether these are all; otherwise it has failed, or nobody waits for
/// them any more.
async fn pass_on(events: &mut Events<'_>, to: &EventBox, mut body: Box<dyn BodyStream>) -> bool {
    let limits = PieceLimits {
        bytes_max: PIECE_BYTES_MAX,
        may_splice: false,
    };
    let turn = Turn::default();
    let mut looks = time::interval_at(time::Instant::now() + LOOK_INTERVAL, LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if !events.begin().await {
        return false;
    }
    loop {
        let piece = tokio::select! {
            piece = poll_fn(|context| body.poll_piece(context, limits)) => piece,
            // Another poll follows, which may find that the application is silent for too long.
            _ = looks.tick() => match events.is_given_up().await {
                true => return false,
                false => continue,
            }
        };
        let (bytes, is_last) = match piece {
            Ok(Piece::Data { bytes, is_last }) => (bytes, is_last),
            Ok(Piece::Spliced(_)) => unreachable!("it was not permitted"),
            Ok(Piece::End(_)) => return events.pass_on_rest().await,
            Err(failure) => {
                failure.report(false, &mut Trace::new(Instant::now(), None));
                return false;
            }
        };
        let went_on = events.pass_on(&bytes).await;
        to.worker.return_piece(bytes);
        turn.spend(PIECE_BYTES_MAX / 4).await;
        if !went_on {
            return false;
        }
        if is_last {
            return events.pass_on_rest().await;
        }
    }
}
