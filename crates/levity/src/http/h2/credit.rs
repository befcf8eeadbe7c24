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

/// The bytes by which the windows of all bodies of a connection may grow beyond the usual one of a stream. A client that has all of
/// it sends 4 MiB per round trip, which is about what the kernel buffers of a connection.
pub const GROWTH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The window of a stream at its start.
pub const WINDOW_BYTES: usize = STREAM_WINDOW_BYTES as usize;

/// The time in which bytes are counted. A body whose client takes longer for a round trip does not grow its window.
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
    /// The bytes of this body that nobody has read, with these.
    pub unread_here: usize,
    /// The bytes of credit that the connection may still take, up to the window of each stream at its start.
    pub room: usize,
    /// The bytes by which the windows of the connection may still grow beyond.
    pub growth_room: usize,
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

    /// Takes credit for a body that arrives fast or when bodies are not read, as far as the client may have as much; more for one that
    /// fills its window and is read as fast; and gives it back when the body has become slow.
    pub fn arrived(&mut self, arrival: Arrival, now: Instant) {
        if now.saturating_duration_since(self.since) >= PERIOD {
            self.end_period(arrival.unread);
            self.begin_period(now);
        }
        self.bytes += arrival.bytes;
        if self.held.is_some() {
            return self.follow(arrival, now);
        }
        if self.is_paused || self.bytes.max(arrival.unread) < BYTES_MIN {
            return;
        }
        let wanted_max = arrival.outstanding.min(arrival.room);
        let wanted = wanted_max.min(WINDOW_BYTES);
        if wanted > 0 {
            // Half: bodies can do without it, but not without the memory in which they are gathered.
            let mut held = self.claims.nothing(Resource::Bodies, Portion::Half);
            self.held = held.try_grow(wanted).is_ok().then_some(held);
        }
    }

    fn begin_period(&mut self, now: Instant) {
        (self.since, self.bytes) = (now, 0);
    }

    /// Gives back what a body that has become slow does not use.
    fn end_period(&mut self, unread: usize) {
        if self.bytes < BYTES_MIN && unread < BYTES_MIN {
            self.held = None;
        }
        if let Some(held) = &mut self.held
            && self.bytes < held.amount() / 4
        {
            held.shrink_to(WINDOW_BYTES.max(held.amount() / 2));
        }
    }

    /// Changes credit that there is: the client gets twice as much if it has used all of it within a period, and somebody reads the
    /// body as fast. Without that, a client could send no more than one window per round trip.
    fn follow(&mut self, arrival: Arrival, now: Instant) {
        let Some(held) = &mut self.held else {
            return;
        };
        held.shrink_to(arrival.outstanding);
        if !self.claims.is_plenty(Resource::Bodies) {
            return held.shrink_to(WINDOW_BYTES);
        }
        let amount = held.amount();
        if amount < WINDOW_BYTES || self.bytes < amount || arrival.unread_here > amount / 2 {
            return;
        }
        let more_max = (arrival.outstanding - amount).min(arrival.growth_room);
        let more = amount.min(more_max);
        if more > 0 && held.try_grow_within(Portion::Quarter, more).is_ok() {
            self.begin_period(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::client::Client;
    use crate::shares::claim::Requester;
    use crate::shares::stakes::Stakes;
    use crate::shares::{Bounds, Shares};

    const BODIES: usize = 1 << 20;
    const WINDOW: usize = WINDOW_BYTES;

    fn shares() -> Arc<Shares> {
        shares_of(BODIES)
    }

    fn shares_of(bodies: usize) -> Arc<Shares> {
        Shares::new(&Bounds {
            files: 1,
            coders: 1,
            bodies,
            spool: 1,
        })
    }

    fn credit(shares: &Arc<Shares>, connection: u64, now: Instant) -> Credit {
        let client = Client::without_address("http");
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
            unread_here: bytes,
            outstanding: usize::MAX,
            room: usize::MAX,
            growth_room: usize::MAX,
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
        drop(credit);
        assert_eq!(shares.used(Resource::Bodies), 0);
    }

    /// Sends a window within the next period, in parts that are read at once.
    fn fill(credit: &mut Credit, now: Instant) {
        let parts = credit.amount() / BYTES_MIN;
        (0..parts).for_each(|_| credit.arrived(read_at_once(BYTES_MIN), now));
    }

    #[test]
    fn a_window_that_is_filled_and_read_within_a_period_doubles() {
        let (shares, now) = (shares_of(16 * WINDOW), Instant::now());
        let mut credit = credit(&shares, 1, now);
        credit.arrived(read_at_once(BYTES_MIN), now);
        fill(&mut credit, now);
        assert_eq!(credit.amount(), 2 * WINDOW);
        fill(&mut credit, now);
        assert_eq!(credit.amount(), 4 * WINDOW);
        // A quarter of the memory is used.
        fill(&mut credit, now);
        assert_eq!(credit.amount(), 4 * WINDOW);
        // Others need more than the other half.
        let requester = credit.claims.clone();
        let mut others = requester.nothing(Resource::Bodies, Portion::Whole);
        others.grow(4 * WINDOW);
        credit.arrived(read_at_once(1), now);
        assert_eq!(credit.amount(), WINDOW);
    }

    #[test]
    fn a_window_does_not_grow_without_a_reason() {
        let now = Instant::now();
        let whole = Arrival {
            unread_here: 0,
            ..read_at_once(WINDOW - BYTES_MIN)
        };
        let unread_here = WINDOW / 2 + 1;
        for (arrival, amount) in [
            (whole, 2 * WINDOW),
            (
                Arrival {
                    bytes: whole.bytes - 1,
                    ..whole
                },
                WINDOW,
            ),
            (
                Arrival {
                    unread_here,
                    ..whole
                },
                WINDOW,
            ),
            (
                Arrival {
                    growth_room: 5,
                    ..whole
                },
                WINDOW + 5,
            ),
            (
                Arrival {
                    growth_room: 0,
                    ..whole
                },
                WINDOW,
            ),
            (
                Arrival {
                    outstanding: WINDOW + 7,
                    ..whole
                },
                WINDOW + 7,
            ),
            (
                Arrival {
                    outstanding: WINDOW - 1,
                    ..whole
                },
                WINDOW - 1,
            ),
        ] {
            let shares = shares_of(16 * WINDOW);
            let mut credit = credit(&shares, 1, now);
            credit.arrived(read_at_once(BYTES_MIN), now);
            credit.arrived(arrival, now);
            assert_eq!(credit.amount(), amount, "{arrival:?}");
        }
    }

    #[test]
    fn a_window_that_is_not_filled_any_more_is_halved() {
        let (shares, start) = (shares_of(64 * WINDOW), Instant::now());
        let mut credit = credit(&shares, 1, start);
        credit.arrived(read_at_once(BYTES_MIN), start);
        fill(&mut credit, start);
        fill(&mut credit, start);
        for (period, amount) in [(1, 2 * WINDOW), (2, WINDOW), (3, WINDOW)] {
            credit.arrived(read_at_once(BYTES_MIN), start + period * PERIOD);
            assert_eq!(credit.amount(), amount);
        }
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
            unread: BYTES_MIN,
            ..read_at_once(1)
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
                unread,
                ..read_at_once(1)
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
