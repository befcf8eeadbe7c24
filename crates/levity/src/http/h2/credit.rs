//! How much more a client may send of all request bodies of a connection because of one of them.
//!
//! Every connection has the usual window. What is beyond it is memory that the client may use up, and so counts to its share.

use std::rc::Rc;
use std::time::{Duration, Instant};

use levity_wire::http2::STREAM_WINDOW_BYTES;

use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource};

/// The bytes of a body within [`PERIOD`], or of all bodies that nobody has read, from which on a body gets credit. Below, the usual
/// window is no obstacle: a stream of small messages would otherwise hold credit for hours.
const BYTES_MIN: usize = 32 * 1024;

/// The time in which bytes are counted.
const PERIOD: Duration = Duration::from_secs(1);

/// The credit of a body.
pub struct Credit {
    claims: Rc<Claims>,
    held: Option<Held>,
    /// When the present period began.
    since: Instant,
    /// What has arrived in it.
    bytes: usize,
    /// The body waits for memory in which it is gathered.
    is_paused: bool,
}

/// What has arrived of a body.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The bytes that have arrived now.
    pub bytes: usize,
    /// The bytes of all bodies of the connection that nobody has read, with these.
    pub unread: usize,
    /// The bytes of this body that are unread or to come, at most.
    pub outstanding: usize,
    /// The bytes of credit that the connection may still take.
    pub room: usize,
}

impl Credit {
    /// None yet, for a body whose memory counts as `claims`.
    pub fn new(claims: Rc<Claims>, now: Instant) -> Self {
        Self {
            claims,
            held: None,
            since: now,
            bytes: 0,
            is_paused: false,
        }
    }

    /// In bytes.
    pub fn amount(&self) -> usize {
        self.held.as_ref().map_or(0, Held::amount)
    }

    /// Gives it back until somebody reads the body: those who wait for memory may hold none, or all of them could wait for each other.
    pub fn pause(&mut self) {
        (self.held, self.is_paused) = (None, true);
    }

    /// Somebody has read some of the body.
    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Takes credit for a body that arrives fast or when bodies are not read, as far as the client may have as much; and gives it back
    /// when the body has become slow.
    pub fn arrived(&mut self, arrival: Arrival, now: Instant) {
        if now.saturating_duration_since(self.since) >= PERIOD {
            if self.bytes < BYTES_MIN && arrival.unread < BYTES_MIN {
                self.held = None;
            }
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += arrival.bytes;
        if let Some(held) = &mut self.held {
            return held.shrink_to(arrival.outstanding);
        }
        if self.is_paused || self.bytes.max(arrival.unread) < BYTES_MIN {
            return;
        }
        let wanted_max = arrival.outstanding.min(arrival.room);
        let wanted = wanted_max.min(STREAM_WINDOW_BYTES as usize);
        if wanted > 0 {
            // Half: bodies can do without it, but not without the memory in which they are gathered.
            let mut held = self.claims.nothing(Resource::Bodies, Portion::Half);
            self.held = held.try_grow(wanted).is_ok().then_some(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::client::Client;
    use crate::shares::claim::Requester;
    use crate::shares::stakes::Stakes;
    use crate::shares::{Bounds, Shares};

    const BODIES: usize = 1 << 20;
    const WINDOW: usize = STREAM_WINDOW_BYTES as usize;

    fn shares() -> Arc<Shares> {
        Shares::new(&Bounds {
            files: 1,
            coders: 1,
            bodies: BODIES,
            spool: 1,
        })
    }

    fn credit(shares: &Arc<Shares>, connection: u64, now: Instant) -> Credit {
        let client = Client {
            ip: None,
            port: None,
            peer: None,
            scheme: "http",
            by_trusted: false,
            host_in: crate::http::client::HostIn::Request,
        };
        let requester = Requester {
            client: &client,
            connection,
            stream: connection,
        };
        let claims = requester.claims(&Stakes::new(shares.clone()));
        Credit::new(Rc::new(claims), now)
    }

    fn read_at_once(bytes: usize) -> Arrival {
        Arrival {
            bytes,
            unread: bytes,
            outstanding: usize::MAX,
            room: usize::MAX,
        }
    }

    #[test]
    fn a_fast_body_gets_a_window() {
        let (shares, now) = (shares(), Instant::now());
        let mut credit = credit(&shares, 1, now);
        credit.arrived(read_at_once(BYTES_MIN - 1), now);
        assert_eq!(credit.amount(), 0);
        credit.arrived(read_at_once(1), now);
        assert_eq!(
            (credit.amount(), shares.used(Resource::Bodies)),
            (WINDOW, WINDOW)
        );
        // It does not grow further.
        credit.arrived(read_at_once(BYTES_MIN), now);
        assert_eq!(credit.amount(), WINDOW);
        drop(credit);
        assert_eq!(shares.used(Resource::Bodies), 0);
    }

    #[test]
    fn a_body_gets_no_more_than_is_outstanding_or_than_the_connection_has() {
        let (shares, now) = (shares(), Instant::now());
        for (outstanding, room, amount) in [
            (10, usize::MAX, 10),
            (0, usize::MAX, 0),
            (usize::MAX, 5, 5),
            (usize::MAX, 0, 0),
            (usize::MAX, WINDOW + 1, WINDOW),
        ] {
            let mut credit = credit(&shares, 1, now);
            let arrival = Arrival {
                outstanding,
                room,
                ..read_at_once(BYTES_MIN)
            };
            credit.arrived(arrival, now);
            assert_eq!(credit.amount(), amount, "{outstanding} {room}");
        }
    }

    /// The other half is for what is gathered of bodies.
    #[test]
    fn windows_take_half_at_most() {
        let (shares, now) = (shares(), Instant::now());
        let fast = |connection| {
            let mut credit = credit(&shares, connection, now);
            credit.arrived(read_at_once(BYTES_MIN), now);
            credit
        };
        let mut all: Vec<_> = (0..3).map(fast).collect();
        let amounts: Vec<_> = all.iter().map(Credit::amount).collect();
        assert_eq!(amounts, [WINDOW, WINDOW, 0]);
        // It tries again.
        all.remove(0);
        all[1].arrived(read_at_once(1), now);
        assert_eq!(all[1].amount(), WINDOW);
    }

    #[test]
    fn a_body_that_has_become_slow_gives_back() {
        let (shares, start) = (shares(), Instant::now());
        let mut credit = credit(&shares, 1, start);
        credit.arrived(read_at_once(BYTES_MIN), start);
        // The period that ends was fast.
        credit.arrived(read_at_once(1), start + PERIOD);
        assert_eq!(credit.amount(), WINDOW);
        // Nobody reads it, or another: what may come may have to stay.
        let unread = Arrival {
            bytes: 1,
            unread: BYTES_MIN,
            outstanding: usize::MAX,
            room: usize::MAX,
        };
        credit.arrived(unread, start + 2 * PERIOD);
        assert_eq!(credit.amount(), WINDOW);
        credit.arrived(read_at_once(1), start + 3 * PERIOD);
        assert_eq!(credit.amount(), 0);
    }

    #[test]
    fn a_slow_body_gets_a_window_when_bodies_are_not_read() {
        let (shares, start) = (shares(), Instant::now());
        let mut credit = credit(&shares, 1, start);
        for unread in [BYTES_MIN - 1, BYTES_MIN] {
            let arrival = Arrival {
                bytes: 1,
                unread,
                outstanding: usize::MAX,
                room: usize::MAX,
            };
            assert_eq!(credit.amount(), 0);
            credit.arrived(arrival, start + 5 * PERIOD);
        }
        assert_eq!(credit.amount(), WINDOW);
    }

    #[test]
    fn a_body_that_has_arrived_keeps_credit_for_what_is_unread_of_it() {
        let (shares, now) = (shares(), Instant::now());
        let mut credit = credit(&shares, 1, now);
        credit.arrived(read_at_once(BYTES_MIN), now);
        for outstanding in [WINDOW + 1, 7] {
            let arrival = Arrival {
                outstanding,
                ..read_at_once(1)
            };
            credit.arrived(arrival, now);
            assert_eq!(credit.amount(), outstanding.min(WINDOW));
        }
    }

    #[test]
    fn a_body_that_waits_for_memory_takes_no_credit() {
        let (shares, now) = (shares(), Instant::now());
        let mut credit = credit(&shares, 1, now);
        credit.arrived(read_at_once(BYTES_MIN), now);
        credit.pause();
        credit.arrived(read_at_once(BYTES_MIN), now);
        assert_eq!((credit.amount(), shares.used(Resource::Bodies)), (0, 0));
        credit.resume();
        credit.arrived(read_at_once(1), now);
        assert_eq!(credit.amount(), WINDOW);
    }
}
