//! The task of a stream: passes its events on, whether its client is there or not.

use std::future::poll_fn;
use std::time::Instant;

use levity_net::Turn;
use levity_telemetry::trace::Trace;
use tokio::time::{self, MissedTickBehavior};

use super::events::{Events, LOOK_INTERVAL};
use crate::http::response::{BodyStream, Piece, PieceLimits};

/// The maximum number of bytes that are read from the application at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Passes what an application sends in `body` to the box, to the end. It is counted by `_slots` until then.
pub async fn run(mut events: Events, body: Box<dyn BodyStream>, _slots: impl Sized) {
    let is_complete = pass_on(&mut events, body).await;
    events.end(is_complete).await;
}

/// Passes the events of the application to the box. Returns whether these are all; otherwise it has failed, or nobody waits for
/// them any more.
async fn pass_on(events: &mut Events, mut body: Box<dyn BodyStream>) -> bool {
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
        events.to.worker.core.return_piece(bytes);
        turn.spend(PIECE_BYTES_MAX / 4).await;
        if !went_on {
            return false;
        }
        if is_last {
            return events.pass_on_rest().await;
        }
    }
}
