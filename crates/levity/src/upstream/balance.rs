//! Load balancing: which backends are eligible for a request, and which of them gets it.
//!
//! [`usable`] lists the eligible backends, [`Balancer::choose`] picks one. Each worker has its own balancer
//! and counts only its own requests. With enough requests the shares come out right, and no worker waits for
//! another.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use super::backend::Backend;
use levity_config::upstream::Balance;

/// Upper limit of the turns by which a new balancer is advanced.
const ADVANCE_MAX: usize = 64;

/// Turns that are kept of backends that are no candidates at present.
const ABSENT_MAX: usize = 64;

/// Replaces the content of `usable` by the indices in `backends` of those that may get the request. The first
/// rule that finds any decides:
///
/// 1. the backend `sticky` that the client is bound to, if it is up, even if it drains;
/// 2. backends that are up and neither backups nor draining;
/// 3. backups that are up and not draining;
/// 4. when none is up, those that may be tried again soonest, backup or not, but not draining: an attempt
///    that may fail is better than none. Backends that only a check can bring back come last.
///
/// Backends in `tried` are never listed, so after enough attempts the list is empty.
///
/// Returns whether the listed backends are up. If so, the chosen one may need a [trial](Backend::begin);
/// otherwise it is used without one.
pub fn usable(
    backends: &[Arc<Backend>],
    now: Instant,
    tried: &[u64],
    sticky: Option<u64>,
    usable: &mut Vec<usize>,
) -> bool {
    let is_up = |backend: &Backend| backend.is_up(now);
    let rules: [&dyn Fn(&Backend) -> bool; 3] = [
        &|backend| sticky == Some(backend.id) && is_up(backend),
        &|backend| !backend.backup && !backend.drain && is_up(backend),
        &|backend| backend.backup && !backend.drain && is_up(backend),
    ];
    let fresh = || {
        let slots = backends.iter().enumerate();
        slots.filter(|(_, backend)| !tried.contains(&backend.id))
    };
    usable.clear();
    for rule in rules {
        let fits = fresh().filter(|(_, backend)| rule(backend));
        usable.extend(fits.map(|(slot, _)| slot));
        if !usable.is_empty() {
            return true;
        }
    }
    let waiting = || fresh().filter(|(_, backend)| !backend.drain);
    // `None` would sort before all times.
    let due = |backend: &Backend| {
        let back_at = backend.back_at(now);
        (back_at.is_none(), back_at)
    };
    let soonest = waiting().map(|(_, backend)| due(backend)).min();
    let first = waiting().filter(|(_, backend)| Some(due(backend)) == soonest);
    usable.extend(first.map(|(slot, _)| slot));
    false
}

/// An eligible backend, as one worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// [`Backend::id`]
    pub id: u64,
    /// [`Backend::share`]; at least 1.
    pub share: u32,
    /// This worker's requests in progress there.
    pub busy: u32,
}

/// Picks one of the candidates. Owned by one worker.
#[derive(Debug)]
pub struct Balancer {
    balance: Balance,
    turns: Turns,
    random: Random,
}

impl Balancer {
    /// A balancer that begins at a random turn, so that workers do not all begin with the same backend.
    #[must_use]
    pub fn new(balance: Balance) -> Self {
        Self::seeded(balance, RandomState::new().build_hasher().finish())
    }

    fn seeded(balance: Balance, seed: u64) -> Self {
        Self {
            balance,
            turns: Turns::default(),
            random: Random(seed),
        }
    }

    /// The index of the candidate that gets the next request; `None` only if there are no candidates. `key`
    /// is a hash of the request target, such as [`fingerprint`](super::backend::fingerprint) of its path;
    /// only [`Balance::Carp`] uses it.
    pub fn choose(&mut self, candidates: &[Candidate], key: u64) -> Option<usize> {
        if candidates.len() < 2 && self.balance != Balance::RoundRobin {
            return (!candidates.is_empty()).then_some(0);
        }
        match self.balance {
            Balance::RoundRobin => self.in_turn(candidates, |_| true),
            Balance::LeastConnections => self.least_busy(candidates),
            Balance::Carp => rendezvous(candidates, key),
            Balance::Static => Some(0),
            Balance::RandomTwo => self.random_two(candidates),
        }
    }

    fn in_turn(
        &mut self,
        candidates: &[Candidate],
        takes_part: impl Fn(&Candidate) -> bool,
    ) -> Option<usize> {
        if self.turns.is_new() {
            let advance = self.random.below(candidates.len().min(ADVANCE_MAX) as u64);
            for _ in 0..advance {
                self.turns.next(candidates, |_| true);
            }
        }
        self.turns.next(candidates, takes_part)
    }

    fn least_busy(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let least = candidates.iter().copied().reduce(less_busy)?;
        self.in_turn(candidates, |one| is_as_busy(one, &least))
    }

    /// Both are picked by share, and the first wins a tie, so that shares hold under light load too.
    fn random_two(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let first = self.pick(candidates, None)?;
        let second = self.pick(candidates, Some(first)).unwrap_or(first);
        let (one, other) = (&candidates[first], &candidates[second]);
        let is_other = less_busy(*one, *other).id == other.id;
        Some(if is_other { second } else { first })
    }

    /// Picks a random candidate, weighted by share.
    fn pick(&mut self, candidates: &[Candidate], without: Option<usize>) -> Option<usize> {
        let shares = || {
            let slots = candidates.iter().enumerate();
            let others = slots.filter(move |&(slot, _)| Some(slot) != without);
            others.map(|(slot, candidate)| (slot, u64::from(candidate.share)))
        };
        let total = shares().map(|(_, share)| share).sum();
        let mut left = self.random.below(total);
        for (slot, share) in shares() {
            if left < share {
                return Some(slot);
            }
            left -= share;
        }
        None
    }
}

/// The index of the candidate that `key` maps to, by weighted rendezvous hashing. When a candidate leaves,
/// only its keys move, to the others by their shares; when one joins, only the keys that it takes over move.
/// `None` only if there are no candidates.
///
/// Source: Mosko, Schinazi and others, "Weighted Distributed Hash Tables"; the score is
/// `-share / ln(hash)`.
pub fn rendezvous(candidates: &[Candidate], key: u64) -> Option<usize> {
    let score = |candidate: &Candidate| -> f64 {
        let hash = mix(mix(key) ^ candidate.id);
        // 53 bits at the middle of each step: strictly between 0 and 1.
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        f64::from(candidate.share) / -unit.ln()
    };
    let scores = candidates.iter().map(score).enumerate();
    let best = scores.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(slot, _)| slot)
}

/// The candidate with fewer requests per share; the first one on a tie.
fn less_busy(one: Candidate, other: Candidate) -> Candidate {
    let (left, right) = (per_share(&one, &other), per_share(&other, &one));
    if right < left { other } else { one }
}

fn is_as_busy(one: &Candidate, other: &Candidate) -> bool {
    per_share(one, other) == per_share(other, one)
}

/// `busy / share`, multiplied by both shares: integers compare without rounding.
fn per_share(one: &Candidate, other: &Candidate) -> u64 {
    u64::from(one.busy) * u64::from(other.share)
}

/// Smooth weighted round-robin, as in nginx: at each turn all candidates gain their share as credit; the one
/// with the most is picked and pays the sum. Weights 5, 1, 1 give a a b a c a a instead of a a a a a b c.
#[derive(Debug, Default)]
struct Turns {
    /// In the order in which candidates were first seen.
    known: Vec<Turn>,
}

/// The credit of one backend. It is kept while the backend is down, so that the credits of the others need no
/// change.
#[derive(Debug)]
struct Turn {
    id: u64,
    credit: i64,
}

impl Turns {
    fn is_new(&self) -> bool {
        self.known.is_empty()
    }

    fn next(
        &mut self,
        candidates: &[Candidate],
        takes_part: impl Fn(&Candidate) -> bool,
    ) -> Option<usize> {
        if self.known.len() > candidates.len() + ABSENT_MAX {
            self.forget_absent(candidates);
        }
        let mut total = 0;
        let mut best: Option<(usize, usize, i64)> = None;
        let mut at = 0;
        for (slot, candidate) in candidates.iter().enumerate() {
            if !takes_part(candidate) {
                continue;
            }
            at = self.find(candidate.id, at);
            let turn = &mut self.known[at];
            turn.credit += i64::from(candidate.share);
            total += i64::from(candidate.share);
            if best.is_none_or(|(_, _, credit)| turn.credit > credit) {
                best = Some((slot, at, turn.credit));
            }
        }
        let (slot, at, _) = best?;
        self.known[at].credit -= total;
        Some(slot)
    }

    /// The position of the turn of `id`, which is created if missing. Searches from `from` first: candidates
    /// come in the same order each time, so one pass finds them all.
    fn find(&mut self, id: u64, from: usize) -> usize {
        let (before, behind) = self.known.split_at(from.min(self.known.len()));
        let is_it = |turn: &Turn| turn.id == id;
        let found = behind.iter().position(is_it).map(|slot| from + slot);
        if let Some(at) = found.or_else(|| before.iter().position(is_it)) {
            return at;
        }
        self.known.push(Turn { id, credit: 0 });
        self.known.len() - 1
    }

    /// Bounds the list: names that are resolved repeatedly may bring new addresses again and again.
    fn forget_absent(&mut self, candidates: &[Candidate]) {
        self.known
            .retain(|turn| candidates.iter().any(|candidate| candidate.id == turn.id));
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014). Not for secrets.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to `bound` - 1; 0 for a bound of 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The finalizer of SplitMix64: every output bit depends on every input bit.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
