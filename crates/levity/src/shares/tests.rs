use std::rc::Rc;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use levity_disk::{Clients, Root, Symlinks};
use levity_net::{Timer, Timers};

use super::common::Common;
use super::holder::Holder;
use super::stakes::{Exchange, STALLED_AFTER, Stakes};
use super::*;
use crate::message::client_prefix::ClientPrefix;

const FILES: usize = 100;

fn shares() -> Arc<Shares> {
    Shares::new(&Bounds {
        files: FILES,
        coders: 64 << 20,
        bodies: 1 << 20,
        spool: 4 << 20,
    })
}

fn holder(number: u8) -> Holder {
    Holder::Prefix(ClientPrefix::new(Some([192, 0, 2, number].into())))
}

fn exchange(client: u8, stream: u64) -> Exchange {
    Exchange {
        holder: holder(client),
        connection: stream,
        stream,
    }
}

fn nothing(shares: &Arc<Shares>, number: u8, resource: Resource, portion: Portion) -> Held {
    let account = shares.accounts.get(holder(number));
    Held::nothing(shares.clone(), account, None, resource, portion)
}

fn files(shares: &Arc<Shares>, number: u8) -> Held {
    nothing(shares, number, Resource::Files, Portion::Whole)
}

#[test]
fn one_client_alone_may_hold_all() {
    let shares = shares();
    let mut held = files(&shares, 1);
    assert_eq!(held.try_grow(FILES), Ok(()));
    assert_eq!(held.try_grow(1), Err(Shortage::UsedUp));
    assert_eq!(
        (held.amount(), shares.used(Resource::Files)),
        (FILES, FILES)
    );
    held.shrink_to(FILES - 1);
    assert_eq!(held.try_grow(1), Ok(()));
}

#[test]
fn above_half_a_client_has_its_share_to_the_unit() {
    let shares = shares();
    let (mut first, mut second) = (files(&shares, 1), files(&shares, 2));
    assert_eq!(first.try_grow(FILES / 2), Ok(()));
    assert!(!shares.is_plenty(Resource::Files));
    // Its share is half, which it holds.
    assert_eq!(second.try_grow(1), Ok(()));
    assert_eq!(first.try_grow(1), Err(Shortage::OverShare));
    assert_eq!(first.amount(), FILES / 2);
    assert_eq!(second.try_grow(FILES / 2 - 1), Ok(()));
    assert_eq!(second.try_grow(1), Err(Shortage::UsedUp));
    drop(first);
    assert_eq!(second.try_grow(1), Ok(()), "it is alone again");
}

#[test]
fn whoever_holds_nothing_gets_what_one_request_takes() {
    let shares = shares();
    let all: Vec<_> = (0..FILES as u8 - 1)
        .map(|number| {
            let mut held = files(&shares, number);
            held.try_grow(1).map(|()| held)
        })
        .collect();
    assert!(all.iter().all(Result::is_ok));
    let mut last = files(&shares, 200);
    assert_eq!(last.try_grow(1), Ok(()));
    let mut none = files(&shares, 201);
    assert_eq!(none.try_grow(1), Err(Shortage::UsedUp));
    assert_eq!(shares.figures()[0].holders, FILES as u64);
}

#[test]
fn whoever_waits_has_a_share() {
    let shares = shares();
    let (mut first, mut second) = (files(&shares, 1), files(&shares, 2));
    first.try_grow(FILES).expect("it is alone");
    assert_eq!(second.try_grow(1), Err(Shortage::UsedUp));
    second.set_awaited(true);
    first.shrink_to(FILES - 1);
    assert_eq!(first.try_grow(1), Err(Shortage::OverShare));
    assert_eq!(second.try_grow(1), Ok(()));
    second.set_awaited(false);
    assert_eq!(shares.figures()[0].holders, 2);
    second.shrink_to(0);
    assert_eq!(first.try_grow(1), Ok(()));
}

#[test]
fn portions_leave_some_to_others() {
    let shares = shares();
    let most = shares.max(Resource::Listings) / 4 * 3;
    let mut archive = nothing(&shares, 1, Resource::Listings, Portion::Most);
    assert_eq!(archive.try_grow(most), Ok(()));
    assert_eq!(archive.try_grow(1), Err(Shortage::UsedUp));
    let mut listing = nothing(&shares, 2, Resource::Listings, Portion::Whole);
    assert_eq!(listing.try_grow(1), Ok(()));
    assert_eq!(archive.try_grow(1), Err(Shortage::UsedUp));
}

#[test]
fn what_is_open_already_counts_beyond_the_bound() {
    let shares = shares();
    let mut held = files(&shares, 1);
    held.grow(FILES + 1);
    assert_eq!(shares.used(Resource::Files), FILES + 1);
    assert_eq!(files(&shares, 2).try_grow(1), Err(Shortage::UsedUp));
    drop(held);
    let figure = shares.figures()[0];
    assert_eq!((figure.used, figure.holders), (0, 0));
}

/// All is given back, and clients are counted right, whatever threads do at the same time.
#[test]
fn threads_give_back_what_they_take() {
    let shares = shares();
    thread::scope(|scope| {
        for number in 0..8 {
            let shares = &shares;
            scope.spawn(move || {
                for turn in 0..10_000 {
                    let mut held = files(shares, number % 4);
                    let _ = held.try_grow(1 + turn % 40);
                    assert!(shares.used(Resource::Files) <= FILES);
                    held.shrink_to(turn % 7);
                }
            });
        }
    });
    let figure = shares.figures()[0];
    assert_eq!((figure.used, figure.holders), (0, 0));
}

#[test]
fn loops_that_ask_for_a_client_at_the_same_moment_get_one_account() {
    const LOOPS: usize = 4;
    let shares = shares();
    let together = Barrier::new(LOOPS);
    thread::scope(|scope| {
        let asking = (0..LOOPS).map(|_| {
            scope.spawn(|| {
                // More clients than are swept at, so that some are forgotten while others are asked for.
                let ask = |number| {
                    together.wait();
                    let account = shares.accounts.get(Holder::Connection(number));
                    let address = Arc::as_ptr(&account) as usize;
                    together.wait();
                    address
                };
                (0..3000).map(ask).collect::<Vec<_>>()
            })
        });
        let asking: Vec<_> = asking.collect();
        let mut answers = asking
            .into_iter()
            .map(|asking| asking.join().expect("a loop"));
        let first = answers.next().expect("a loop");
        assert!(answers.all(|answer| answer == first));
    });
}

#[test]
fn accounts_without_a_user_are_forgotten() {
    let shares = shares();
    let number = |number: u64| shares.accounts.get(Holder::Connection(number));
    let kept = number(0);
    (1..5000).for_each(|at| drop(number(at)));
    assert!(Arc::ptr_eq(&kept, &number(0)));
    assert!(shares.accounts.len() < 2100, "{}", shares.accounts.len());
}

/// Exchanges on one event loop: each with a timer, and one file.
struct Loop {
    stakes: Rc<Stakes>,
    timers: Timers,
    all: Vec<(Rc<Timer>, Held)>,
}

impl Loop {
    fn new(shares: &Arc<Shares>) -> Self {
        Self {
            stakes: Stakes::new(shares.clone()),
            timers: Timers::default(),
            all: Vec::new(),
        }
    }

    /// An exchange whose client is to move bytes since `since`.
    fn add(&mut self, client: u8, since: Instant) {
        let timer = Rc::new(Timer::default());
        timer.set_for_client(since, Duration::from_secs(60));
        let number = self.timers.insert(timer.clone());
        let exchange = exchange(client, number as u64);
        let mut held = self
            .stakes
            .nothing(exchange, Resource::Files, Portion::Whole);
        held.grow(1);
        self.all.push((timer, held));
    }

    /// The numbers of those that are ended by a sweep at `now`.
    fn ended(&self, now: Instant) -> Vec<usize> {
        self.stakes.sweep(&self.timers, now);
        let mut context = Context::from_waker(Waker::noop());
        let all = self.all.iter().enumerate();
        let ended = all.filter(|(_, (timer, _))| timer.poll_expired(&mut context));
        ended.map(|(number, _)| number).collect()
    }
}

fn want(shares: &Shares, files: usize) {
    let pool = shares.pool(Resource::Files);
    pool.wanted[Portion::Whole as usize].store(files, Ordering::Relaxed);
}

#[test]
fn what_has_stalled_is_reclaimed_from_whoever_holds_most() {
    let (shares, start) = (shares(), Instant::now());
    let mut event_loop = Loop::new(&shares);
    let seconds = Duration::from_secs;
    // The first client holds one, the second all the others; the oldest of these comes in the middle.
    event_loop.add(1, start);
    for number in 1..FILES as u64 {
        event_loop.add(2, start + seconds(if number == 50 { 1 } else { 2 }));
    }
    let stalled = start + seconds(1) + STALLED_AFTER;
    assert!(
        event_loop.ended(stalled + seconds(9)).is_empty(),
        "nobody waits"
    );
    want(&shares, 1);
    let early = stalled - Duration::from_nanos(1);
    assert!(event_loop.ended(early).is_empty());
    assert_eq!(event_loop.ended(stalled), [50]);
    assert_eq!(shares.figures()[0].reclaimed, 1);
    // Its file is given back, which is enough.
    event_loop.all[50].1.shrink_to(0);
    assert_eq!(event_loop.ended(stalled), [50]);
    want(&shares, 3);
    assert_eq!(event_loop.ended(stalled + seconds(1)).len(), 3);
    assert!(
        !event_loop.ended(stalled).contains(&0),
        "it holds less than its share"
    );
}

#[test]
fn whoever_moves_bytes_loses_nothing() {
    let (shares, start) = (shares(), Instant::now());
    let mut event_loop = Loop::new(&shares);
    (0..FILES).for_each(|_| event_loop.add(1, start));
    want(&shares, 1);
    let now = start + 10 * STALLED_AFTER;
    for (timer, _) in &event_loop.all {
        timer.set_for_client(now, Duration::from_secs(60));
    }
    event_loop.all[7].0.clear();
    event_loop.all[8].0.set(now + Duration::from_secs(60));
    assert!(event_loop.ended(now).is_empty());
}

#[test]
fn a_file_counts_once_and_for_each_client() {
    let shares = shares();
    let stakes = Stakes::new(shares.clone());
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "content").expect("write");
    let root = Root::open(folder.path(), Symlinks::Beneath).expect("a root");
    let file = root.open_cached(c"file").expect("a file in memory");
    let hold = |client, stream| stakes.hold(exchange(client, stream), file.clone());
    let holds = [hold(1, 0), hold(1, 1), hold(2, 2)];
    let figure = || (shares.used(Resource::Files), shares.figures()[0].holders);
    assert_eq!(figure(), (1, 2));
    let [first, second, third] = holds;
    drop((first, third));
    assert_eq!(figure(), (1, 1));
    drop(second);
    assert_eq!(figure(), (0, 0));
}

/// A common thing that counts itself as used.
struct Large {
    used: Used,
    clients: Clients,
}

impl Common for Large {
    fn resource(&self) -> Resource {
        Resource::Files
    }

    fn amount(&self) -> usize {
        self.used.amount()
    }

    fn holders(&self) -> &Clients {
        &self.clients
    }

    fn is_used_by_holders(&self) -> bool {
        false
    }
}

#[test]
fn what_one_has_made_is_reclaimed_from_those_who_keep_it() {
    let (shares, start) = (shares(), Instant::now());
    let mut event_loop = Loop::new(&shares);
    (1..4).for_each(|client| event_loop.add(client, start));
    let lasting = (Resource::Files, Portion::Whole);
    let mut made = event_loop
        .stakes
        .nothing_lasting(holder(9), lasting.0, lasting.1);
    made.grow(FILES - 1);
    let large = Arc::new(Large {
        used: made.without_client(),
        clients: Clients::default(),
    });
    let stakes = event_loop.stakes.clone();
    let hold = |client: u8| stakes.hold(exchange(client, u64::from(client) - 1), large.clone());
    let holds = [2, 3].map(hold);
    // They have nothing of their own.
    for (_, own) in &mut event_loop.all[1..] {
        own.shrink_to(0);
    }
    let figure = || (shares.used(Resource::Files), shares.figures()[0].holders);
    assert_eq!(figure(), (FILES, 3));
    want(&shares, 1);
    let stalled = start + STALLED_AFTER;
    let reading = &event_loop.all[2].0;
    reading.set_for_client(stalled, Duration::from_secs(60));
    assert!(
        event_loop.ended(stalled).is_empty(),
        "nothing would become free"
    );
    assert_eq!(event_loop.ended(stalled + STALLED_AFTER), [1, 2]);
    assert_eq!(shares.figures()[0].reclaimed, 1);
    drop(holds);
    assert_eq!(figure(), (FILES, 1));
    drop(large);
    assert_eq!(figure(), (1, 1));
}

/// Those of another event loop are asked by that one.
#[test]
fn what_is_held_on_several_event_loops_is_reclaimed_on_all() {
    let (shares, start) = (shares(), Instant::now());
    let loops = [0, 1].map(|_| {
        let mut event_loop = Loop::new(&shares);
        event_loop.add(1, start);
        event_loop.all[0].1.shrink_to(0);
        event_loop
    });
    let mut made = loops[0]
        .stakes
        .nothing_lasting(holder(1), Resource::Files, Portion::Whole);
    made.grow(FILES);
    let large = Arc::new(Large {
        used: made.without_client(),
        clients: Clients::default(),
    });
    let hold = |event_loop: &Loop| event_loop.stakes.hold(exchange(1, 0), large.clone());
    let _holds = [hold(&loops[0]), hold(&loops[1])];
    want(&shares, 1);
    let mut now = start + STALLED_AFTER;
    assert!(loops[0].ended(now).is_empty());
    assert_eq!(loops[1].ended(now), [0]);
    now += Duration::from_millis(100);
    assert_eq!(loops[0].ended(now), [0]);
}

#[test]
fn what_was_missed_is_forgotten() {
    let (shares, start) = (shares(), Instant::now());
    let mut event_loop = Loop::new(&shares);
    (0..FILES).for_each(|_| event_loop.add(1, start));
    shares
        .pool(Resource::Files)
        .missed(1, Portion::Whole, start);
    let forgotten = start + WAIT_MAX;
    assert!(event_loop.ended(forgotten).is_empty());
    shares
        .pool(Resource::Files)
        .missed(1, Portion::Whole, forgotten);
    assert_eq!(
        event_loop.ended(forgotten + Duration::from_secs(1)).len(),
        1
    );
}
