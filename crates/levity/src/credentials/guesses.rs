//! Bounds on guessing passwords: per client, and for the processor and the memory of all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::generations::Generations;
use super::password::Memory;
use super::{Digest, Guess, NameKey};
use crate::message::client_prefix::ClientPrefix;

/// Wrong passwords of a client that cost it no time.
const FREE_FAILURES: u32 = 5;

/// How long a client waits after the first failure beyond those. Each further one doubles it, up to the maximum.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(64);

/// How long a wrong password is not verified again: a program that repeats it costs one hash in this time, and is charged once.
pub const WRONG_TTL: Duration = Duration::from_secs(5);

/// The failures of a client are forgotten after this time without another one.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Passwords of one client that are verified or wait for it at a time.
const CHECKS_PER_CLIENT_MAX: u32 = 4;

/// Passwords of all clients that wait, per permit: an honest client waits for at most so many hashes.
const WAITING_PER_PERMIT_MAX: usize = 16;

/// The part of those places that one name may have, whether or not a user has it. Otherwise nobody could log in while many
/// clients guess the password of one.
const WAITING_PER_NAME_PART: usize = 4;

/// Clients whose failures are remembered, in each of two generations of the table. About 4 MiB in all, reserved at the start:
/// a table that grows is copied, which takes longer than a loop may compute.
const CLIENTS_MAX: usize = 32 * 1024;

/// Right passwords that are remembered, in each of two generations: of each client, and of anybody. About 10 MiB in all.
const RIGHT_MAX: usize = 16 * 1024;

/// How long a right password of a client is remembered after its last use. An address may belong to somebody else one day.
const EARNED_TTL: Duration = Duration::from_secs(24 * 3600);

/// What a hash costs before the first one was measured.
const COST_INITIAL: Duration = Duration::from_millis(25);

/// The bounds of all event loops together. Loops lock the table for one look-up; no other thread does.
pub struct Guesses {
    permits: Semaphore,
    permits_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    clients: Mutex<Clients>,
    /// Memory of hashes for those that wait. Only threads that compute hashes lock it.
    memory: Mutex<Vec<Memory>>,
    /// The processor time of the last hash, in microseconds.
    cost_us: AtomicU64,
}

/// Why a password is not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The client has guessed too often. It may try again after this time.
    TooMany(Duration),
    /// Other clients keep the server busy.
    Busy,
}

/// What a client may do that gives a password.
pub enum Admission {
    /// Come in: the password is known to be right, from this client or from one before it.
    Right,
    /// Have the password checked.
    Check(Check),
}

/// A password of a client that is checked. Counted until it is dropped.
pub struct Check {
    guesses: Arc<Guesses>,
    guess: Guess,
    /// The name under which a hash is computed or waits for it; `None` while it is not known whether one is needed.
    place: Option<NameKey>,
}

struct Clients {
    young: HashMap<ClientPrefix, Client>,
    /// Those that were not asked for since the last change of generations. They are dropped at the next one.
    old: HashMap<ClientPrefix, Client>,
    /// Passwords that are verified or wait, by the name that was given.
    checks_by_name: HashMap<NameKey, usize>,
    /// Whatever else a client does, these let it in.
    earned: Generations<Guess>,
    /// What any client was right with. Only one whose guess is counted may learn it.
    right: Generations<Digest>,
}

#[derive(Default, Clone, Copy)]
struct Client {
    failures: u32,
    last_failure: Option<Instant>,
    /// A part of the digest of the last wrong password.
    last_wrong: u64,
    checks: u32,
}

impl Client {
    /// How long it has to wait.
    fn delay(&self, now: Instant) -> Option<Duration> {
        let beyond = self.failures.checked_sub(FREE_FAILURES + 1)?;
        let delay = DELAY_MIN.saturating_mul(1 << beyond.min(16)).min(DELAY_MAX);
        let left = (self.last_failure? + delay).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Counts a wrong password. A program that repeats one guesses nothing.
    fn fail(&mut self, wrong: u64, now: Instant) {
        let is_recent = |last| now.saturating_duration_since(last) < WRONG_TTL;
        if wrong == self.last_wrong && self.last_failure.is_some_and(is_recent) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(now);
        self.last_wrong = wrong;
    }
}

impl Clients {
    fn new() -> Self {
        Self {
            young: HashMap::with_capacity(CLIENTS_MAX),
            old: HashMap::with_capacity(CLIENTS_MAX),
            checks_by_name: HashMap::new(),
            earned: Generations::new(RIGHT_MAX),
            right: Generations::new(RIGHT_MAX),
        }
    }

    fn of(&mut self, client: ClientPrefix) -> &mut Client {
        if !self.young.contains_key(&client) && self.young.len() >= CLIENTS_MAX {
            mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        let before = self.old.remove(&client);
        let entry = self.young.entry(client);
        entry.or_insert_with(|| before.unwrap_or_default())
    }

    /// The client was right with its guess.
    fn earn(&mut self, guess: Guess, now: Instant) {
        self.earned.insert(guess, now + EARNED_TTL);
        self.right.insert(guess.digest, now + EARNED_TTL);
    }

    /// Nothing is computed for `name` any more.
    fn leave_place(&mut self, name: NameKey) {
        if let Entry::Occupied(mut of_name) = self.checks_by_name.entry(name) {
            *of_name.get_mut() -= 1;
            if *of_name.get() == 0 {
                of_name.remove();
            }
        }
    }
}

impl Guesses {
    /// Bounds for as many hashes at a time as `permits`. Each has the memory of one hash.
    pub fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Semaphore::new(permits),
            permits_max: permits,
            waiting: AtomicUsize::new(0),
            waiting_max: permits * WAITING_PER_PERMIT_MAX,
            clients: Mutex::new(Clients::new()),
            memory: Mutex::default(),
            cost_us: AtomicU64::new(u64::try_from(COST_INITIAL.as_micros()).unwrap_or(u64::MAX)),
        })
    }

    /// Admits a password that a client gives.
    ///
    /// What others have found out about the password may be looked up only for a client that may guess. Whoever is refused must
    /// not learn from it whether the password is right.
    ///
    /// # Errors
    /// When the client has to wait.
    pub fn begin(self: &Arc<Self>, guess: Guess, now: Instant) -> Result<Admission, Refusal> {
        let mut clients = self.lock();
        if clients.earned.has(&guess, now) {
            clients.earn(guess, now);
            return Ok(Admission::Right);
        }
        let is_right = clients.right.has(&guess.digest, now);
        let known = clients.of(guess.client);
        if known
            .last_failure
            .is_some_and(|last| now.saturating_duration_since(last) > FORGET_AFTER)
        {
            (known.failures, known.last_failure) = (0, None);
        }
        if let Some(delay) = known.delay(now) {
            return Err(Refusal::TooMany(delay));
        }
        if known.checks >= CHECKS_PER_CLIENT_MAX {
            return Err(Refusal::TooMany(DELAY_MIN));
        }
        if is_right {
            clients.earn(guess, now);
            return Ok(Admission::Right);
        }
        known.checks += 1;
        Ok(Admission::Check(Check {
            guesses: self.clone(),
            guess,
            place: None,
        }))
    }

    /// Takes a place among those that wait for a hash, if `name` may have one more.
    fn take_place(&self, name: NameKey) -> bool {
        let mut clients = self.lock();
        let of_name = clients.checks_by_name.get(&name).copied().unwrap_or(0);
        if of_name >= self.waiting_max / WAITING_PER_NAME_PART {
            return false;
        }
        let one_more = |waiting| (waiting < self.waiting_max).then_some(waiting + 1);
        let counted = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if counted.is_ok() {
            clients.checks_by_name.insert(name, of_name + 1);
        }
        counted.is_ok()
    }

    /// Waits until a hash may be computed.
    pub async fn permit(&self) -> SemaphorePermit<'_> {
        let permit = self.permits.acquire().await;
        permit.expect("nobody closes the semaphore")
    }

    /// The estimated processor time of a hash.
    pub fn cost(&self) -> Duration {
        Duration::from_micros(self.cost_us.load(Ordering::Relaxed))
    }

    /// A hash has taken `ran`.
    pub fn measured(&self, ran: Duration) {
        let micros = u64::try_from(ran.as_micros()).unwrap_or(u64::MAX);
        self.cost_us.store(micros, Ordering::Relaxed);
    }

    /// Runs `compute` with the memory of an earlier hash, if others have waited since. For the threads that compute hashes, as
    /// many at a time as there are permits.
    pub fn with_memory<T>(&self, compute: impl FnOnce(&mut Memory) -> T) -> T {
        let kept = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = kept().pop().unwrap_or_default();
        let computed = compute(&mut memory);
        // The allocator would give the memory back to the kernel late, and the next hash would have to clear new pages.
        match self.waiting.load(Ordering::Relaxed) > self.permits_max {
            true => kept().push(memory),
            // Those that ended at the same time may have kept theirs for nobody.
            false => kept().clear(),
        }
        computed
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// Counts the verdict. A client that was right may come in with this password from now on.
    pub fn finish(self, is_right: bool, now: Instant) {
        let mut clients = self.guesses.lock();
        match is_right {
            true => clients.earn(self.guess, now),
            false => clients
                .of(self.guess.client)
                .fail(self.guess.short_digest(), now),
        }
    }

    /// The same check with a place in the queue: a hash is computed for the name of `name`.
    ///
    /// # Errors
    /// When the server is busy. The client is charged: it has learnt that nobody was right with this password before, and could
    /// guess without end while others keep the server busy.
    pub fn with_place(mut self, name: NameKey, now: Instant) -> Result<Self, Refusal> {
        if self.guesses.take_place(name) {
            self.place = Some(name);
            return Ok(self);
        }
        self.finish(false, now);
        Err(Refusal::Busy)
    }

    /// The client.
    pub fn client(&self) -> ClientPrefix {
        self.guess.client
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let mut clients = self.guesses.lock();
        let known = clients.of(self.guess.client);
        known.checks = known.checks.saturating_sub(1);
        if let Some(name) = self.place {
            self.guesses.waiting.fetch_sub(1, Ordering::Relaxed);
            clients.leave_place(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const ANN: NameKey = NameKey(1);

    fn client(ip: &str) -> ClientPrefix {
        ClientPrefix::new(Some(ip.parse().expect("an address")))
    }

    fn known(by: ClientPrefix, number: u64) -> Guess {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_ne_bytes());
        Guess { client: by, digest }
    }

    /// A password that nobody has given.
    fn new(by: ClientPrefix) -> Guess {
        static LAST: AtomicU64 = AtomicU64::new(1000);
        known(by, LAST.fetch_add(1, Ordering::Relaxed))
    }

    fn begin(
        guesses: &Arc<Guesses>,
        guess: Guess,
        name: NameKey,
        now: Instant,
    ) -> Result<Check, Refusal> {
        match guesses.begin(guess, now)? {
            Admission::Check(check) => check.with_place(name, now),
            Admission::Right => panic!("the password was right before"),
        }
    }

    /// Begins and ends a check of a new password; returns the refusal, if any.
    fn guess(
        guesses: &Arc<Guesses>,
        by: ClientPrefix,
        is_right: bool,
        now: Instant,
    ) -> Option<Refusal> {
        let begun = begin(guesses, new(by), ANN, now);
        begun.map(|check| check.finish(is_right, now)).err()
    }

    #[test]
    fn each_failure_doubles_the_wait_of_its_client_only() {
        let guesses = Guesses::new(1);
        let (attacker, other) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut now = Instant::now();
        for _ in 0..=FREE_FAILURES {
            assert_eq!(guess(&guesses, attacker, false, now), None);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            let wait = Duration::from_secs(seconds);
            let refused = guess(&guesses, attacker, false, now);
            assert_eq!(refused, Some(Refusal::TooMany(wait)));
            let almost = now + wait - Duration::from_millis(1);
            assert!(guess(&guesses, attacker, true, almost).is_some());
            assert_eq!(guess(&guesses, other, true, almost), None);
            now += wait;
            assert_eq!(guess(&guesses, attacker, false, now), None);
        }
        now += FORGET_AFTER + Duration::from_secs(1);
        for _ in 0..=FREE_FAILURES {
            assert_eq!(guess(&guesses, attacker, false, now), None);
        }
        guesses.measured(Duration::from_millis(7));
        assert_eq!(guesses.cost(), Duration::from_millis(7));
    }

    /// Neighbours of an attacker stay in, with what they themselves have given and with nothing else.
    #[test]
    fn a_client_that_waits_gets_in_with_what_it_was_right_with() {
        let guesses = Guesses::new(1);
        let (by, other, now) = (client("192.0.2.1"), client("192.0.2.2"), Instant::now());
        for (by, password) in [(by, 1), (other, 2)] {
            let check = begin(&guesses, known(by, password), ANN, now);
            check.expect("nothing waits").finish(true, now);
        }
        for _ in 0..=FREE_FAILURES {
            assert_eq!(guess(&guesses, by, false, now), None);
        }
        let is_earned = |by, password, now| {
            matches!(
                guesses.begin(known(by, password), now),
                Ok(Admission::Right)
            )
        };
        assert!(is_earned(by, 1, now) && is_earned(other, 2, now));
        assert!(!is_earned(by, 2, now));
        // Each use counts.
        let day = EARNED_TTL - Duration::from_secs(1);
        assert!(is_earned(by, 1, now + day) && is_earned(by, 1, now + 2 * day));
        assert!(!is_earned(other, 2, now + 2 * day));
    }

    #[test]
    fn a_program_that_repeats_a_wrong_password_is_charged_once_in_a_time() {
        let guesses = Guesses::new(1);
        let (by, mut now) = (client("192.0.2.1"), Instant::now());
        for failures in 1..=FREE_FAILURES {
            for _ in 0..20 {
                let check = begin(&guesses, known(by, 1), ANN, now);
                check.expect("it may try").finish(false, now);
            }
            assert_eq!(guesses.lock().of(by).failures, failures);
            now += WRONG_TTL;
        }
    }

    /// Whoever waits for the hash of another takes no place from those that need one.
    #[test]
    fn a_check_without_place_counts_for_its_client() {
        let guesses = Guesses::new(1);
        let (by, now) = (client("192.0.2.1"), Instant::now());
        let begin = || guesses.begin(new(by), now);
        let begun: Vec<_> = (0..CHECKS_PER_CLIENT_MAX).map(|_| begin()).collect();
        assert!(begun.iter().all(Result::is_ok));
        assert_eq!(guesses.waiting.load(Ordering::Relaxed), 0);
        assert!(guesses.lock().checks_by_name.is_empty());
        assert_eq!(begin().err(), Some(Refusal::TooMany(DELAY_MIN)));
        drop(begun);
        assert!(begin().is_ok());
    }

    /// Otherwise a user whose name others guess could not come from a new address.
    #[test]
    fn a_password_that_is_known_to_be_right_needs_no_place() {
        let guesses = Guesses::new(1);
        let now = Instant::now();
        let first = begin(&guesses, known(client("192.0.2.1"), 1), ANN, now);
        first.expect("nothing waits").finish(true, now);
        let of = |number: u8| client(&format!("198.51.100.{number}"));
        let busy: Vec<_> = (0..16)
            .filter_map(|number| begin(&guesses, new(of(number)), ANN, now).ok())
            .collect();
        let by = client("192.0.2.2");
        let is_right = || matches!(guesses.begin(known(by, 1), now), Ok(Admission::Right));
        assert!(is_right() && is_right());
        // Whoever is told nothing but that the server is busy has guessed, too, and must not go on without end.
        let by = client("192.0.2.3");
        for _ in 0..=FREE_FAILURES {
            let refused = begin(&guesses, new(by), ANN, now).err();
            assert_eq!(refused, Some(Refusal::Busy));
        }
        let refused = guesses.begin(known(by, 1), now).err();
        assert_eq!(refused, Some(Refusal::TooMany(DELAY_MIN)));
        drop(busy);
    }

    /// Otherwise whoever knows one password could guess others without end.
    #[test]
    fn a_right_password_forgives_nothing() {
        let guesses = Guesses::new(1);
        let (by, now) = (client("192.0.2.1"), Instant::now());
        for number in 0..=FREE_FAILURES {
            assert_eq!(guess(&guesses, by, false, now), None, "{number}");
            assert_eq!(
                guess(&guesses, by, true, now).is_some(),
                number == FREE_FAILURES
            );
        }
    }

    #[test]
    fn what_waits_is_bounded_per_client_and_for_all() {
        let guesses = Guesses::new(1);
        let now = Instant::now();
        let mut begun = Vec::new();
        for number in 0..WAITING_PER_PERMIT_MAX / CHECKS_PER_CLIENT_MAX as usize {
            let by = client(&format!("192.0.2.{number}"));
            for _ in 0..CHECKS_PER_CLIENT_MAX {
                begun.extend(begin(&guesses, new(by), NameKey(10 + number as u64), now).ok());
            }
            let refused = guess(&guesses, by, true, now);
            assert_eq!(refused, Some(Refusal::TooMany(DELAY_MIN)));
        }
        assert_eq!(begun.len(), WAITING_PER_PERMIT_MAX);
        let by = client("198.51.100.1");
        assert_eq!(guess(&guesses, by, true, now), Some(Refusal::Busy));
        begun.pop();
        assert_eq!(guess(&guesses, by, true, now), None);
        drop(begun);
        assert_eq!(guesses.waiting.load(Ordering::Relaxed), 0);
        let checks: u32 = guesses
            .lock()
            .young
            .values()
            .map(|client| client.checks)
            .sum();
        assert_eq!(checks, 0);
        assert!(guesses.lock().checks_by_name.is_empty());
    }

    /// Whoever guesses the password of one user from many addresses leaves places to others.
    #[test]
    fn one_name_does_not_take_all_places() {
        let guesses = Guesses::new(1);
        let now = Instant::now();
        let begin = |number: usize, name| {
            let by = new(client(&format!("192.0.2.{number}")));
            let begun = begin(&guesses, by, name, now);
            begun
                .map_err(|refusal| assert_eq!(refusal, Refusal::Busy))
                .ok()
        };
        let bob = NameKey(2);
        for name in [ANN, NameKey(0)] {
            let begun: Vec<_> = (0..WAITING_PER_PERMIT_MAX)
                .filter_map(|number| begin(number, name))
                .collect();
            assert_eq!(begun.len(), WAITING_PER_PERMIT_MAX / WAITING_PER_NAME_PART);
            assert!(begin(0, bob).is_some());
        }
        assert!(begin(0, ANN).is_some());
    }

    /// Memory is kept as long as somebody waits for it, and no longer.
    #[test]
    fn memory_is_kept_for_those_who_wait() {
        let guesses = Guesses::new(1);
        let (by, now) = (client("192.0.2.1"), Instant::now());
        let kept = || guesses.memory.lock().expect("memory").len();
        let first = begin(&guesses, new(by), ANN, now).ok();
        let second = begin(&guesses, new(by), ANN, now).ok();
        guesses.with_memory(|_| ());
        assert_eq!(kept(), 1);
        drop(first);
        // One that nobody took goes, too.
        guesses
            .memory
            .lock()
            .expect("memory")
            .push(Memory::default());
        guesses.with_memory(|_| ());
        assert_eq!(kept(), 0);
        drop(second);
    }

    #[test]
    fn the_table_is_bounded() {
        let guesses = Guesses::new(1);
        let now = Instant::now();
        let of = |number: u32| ClientPrefix::new(Some(IpAddr::from(number.to_be_bytes())));
        for number in 0..3 * u32::try_from(CLIENTS_MAX).expect("a number") {
            assert_eq!(guess(&guesses, of(number), false, now), None);
        }
        let clients = guesses.lock();
        assert!(clients.young.len() <= CLIENTS_MAX && clients.old.len() <= CLIENTS_MAX);
        assert!(clients.young.contains_key(&of(3 * 32 * 1024 - 1)));
    }
}
