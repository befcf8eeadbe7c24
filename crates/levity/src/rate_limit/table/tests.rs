use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Barrier;
use std::thread;

use super::*;

/// Not keyed, so that each run of a test sees the same collisions.
type Fixed = BuildHasherDefault<DefaultHasher>;

fn table(bytes: usize) -> Table<Fixed> {
    Table::with_hasher(bytes, Fixed::default())
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_key_takes_its_share_at_once_and_then_at_its_rate() {
    let table = table(1 << 16);
    let (key, other) = (table.key(1), table.key(2));
    let (cost, tolerance) = (SECOND / 10, SECOND / 10 * 4);
    let start = 7 * SECOND;
    let take = |key, now| table.take(key, Time(now), cost, tolerance);
    for _ in 0..5 {
        assert_eq!(take(key, start), Ok(()));
    }
    assert_eq!(take(key, start), Err(cost));
    assert_eq!(take(other, start), Ok(()));
    let wait = take(key, start + 1).expect_err("no time has passed");
    assert_eq!(wait, cost - 1);
    // Whoever waits so long gets through, and nobody sooner.
    assert_eq!(take(key, start + wait), Err(1));
    assert_eq!(take(key, start + 1 + wait), Ok(()));
    assert_eq!(take(key, start + cost + 1), Err(cost - 1));
    // What was not taken comes back, but not more than all.
    let later = start + 100 * SECOND;
    for _ in 0..5 {
        assert_eq!(take(key, later), Ok(()));
    }
    assert!(take(key, later).is_err());
    table.give_back(key, cost);
    assert_eq!(take(key, later), Ok(()));
}

#[test]
fn what_is_reserved_has_to_wait_in_turn() {
    let table = table(1 << 16);
    let key = table.key("a");
    let now = Time(SECOND);
    assert_eq!(table.peek(key, now), now);
    assert_eq!(table.reserve(key, now, 5), now);
    assert_eq!(table.reserve(key, now, 5), Time(now.0 + 5));
    assert_eq!(table.reserve(key, now, 5), Time(now.0 + 10));
    assert_eq!(table.peek(key, now), Time(now.0 + 15));
    table.give_back(key, 10);
    assert_eq!(table.peek(key, now), Time(now.0 + 5));
    table.give_back(table.key("nobody"), 10);
    let late = Time(now.0 + SECOND);
    assert_eq!(table.peek(key, late), late);
    // A time that does not end stays a time.
    for _ in 0..3 {
        table.reserve(key, now, u64::MAX);
    }
    assert!(table.take(key, now, 1, 0).is_err());
}

#[test]
fn counts() {
    let table = table(1 << 16);
    let (key, now) = (table.key("a"), Time(1));
    assert!(table.enter(key, now, 2) && table.enter(key, now, 2));
    assert!(!table.enter(key, now, 2));
    table.leave(key);
    assert!(table.enter(key, now, 2));
    for _ in 0..3 {
        table.leave(key);
    }
    assert!(table.enter(key, now, 1) && !table.enter(key, now, 1));
    table.leave(key);
    table.leave(table.key("nobody"));
}

/// A count of 0 and a time that has passed leave the same slot to each other.
#[test]
fn a_slot_passes_from_one_kind_to_the_other() {
    let table = table(1);
    assert_eq!(table.lines.len(), 2);
    let slots = 8;
    for number in 0..slots {
        assert!(table.enter(table.key(number), Time(1), 1));
    }
    for number in 0..slots {
        table.leave(table.key(number));
    }
    for number in slots..2 * slots {
        assert_eq!(table.take(table.key(number), Time(1), 10, 0), Ok(()));
    }
    for number in 0..slots {
        assert!(table.enter(table.key(number), Time(12), 1), "{number}");
    }
    assert_eq!(table.evictions(), 0);
    // All are live now, and a count stays as long as there is a time.
    assert_eq!(table.take(table.key("x"), Time(13), 10, 0), Ok(()));
    assert_eq!(table.take(table.key("y"), Time(13), 10, 0), Ok(()));
    assert_eq!(table.evictions(), 2);
    assert_eq!(table.peek(table.key("x"), Time(13)), Time(13));
    // Whoever was evicted leaves nothing behind.
    for number in 0..slots {
        table.leave(table.key(number));
    }
    assert_eq!(table.peek(table.key("y"), Time(13)), Time(23));
}

/// A million prefixes fit into 64 MiB: all of them are held back until their time has passed, and nobody else.
#[test]
fn a_million_keys_keep_their_state() {
    const KEYS: u64 = 1_000_000;
    let table = table(64 << 20);
    assert_eq!(size_of_val(&*table.lines), 64 << 20);
    let key = |number: u64| table.key((3_u64, Some(u128::from(number) << 64)));
    let now = Time(SECOND);
    for number in 0..KEYS {
        assert_eq!(table.take(key(number), now, 10 * SECOND, 0), Ok(()));
    }
    assert_eq!(table.evictions(), 0);
    let held = |now| {
        let numbers = 0..KEYS;
        let refused = |number: &u64| table.peek(key(*number), now) > now;
        numbers.filter(refused).count() as u64
    };
    assert_eq!(held(Time(10 * SECOND)), KEYS);
    assert_eq!(held(Time(11 * SECOND)), 0);
    // Others take their slots, and none is lost before its time.
    for number in KEYS..2 * KEYS {
        let taken = table.take(key(number), Time(11 * SECOND), SECOND, 0);
        assert_eq!(taken, Ok(()));
    }
    assert_eq!(table.evictions(), 0);
}

/// A full table forgets those first whose time passes first.
#[test]
fn a_table_that_is_too_small_forgets() {
    let table = table(64 << 10);
    let slots = table.lines.len() as u64 * 4;
    for number in 0..4 * slots {
        let cost = if number < slots / 4 { 1000 } else { 1 } * SECOND;
        assert_eq!(table.take(table.key(number), Time(1), cost, 0), Ok(()));
    }
    assert!(table.evictions() > 2 * slots);
    let remain = |number: &u64| table.peek(table.key(number), Time(1)) > Time(1);
    let heavy = (0..slots / 4).filter(remain).count() as u64;
    assert_eq!(heavy, slots / 4);
}

/// Threads that offer far more than the rate of common keys get exactly what the rate allows, whoever else uses the table.
#[test]
fn threads_share_a_rate_exactly() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 8;
    const AFTER: u64 = 100;
    let (interval, steps) = (SECOND / 100, 400);
    let table = table(1 << 20);
    let barrier = Barrier::new(usize::try_from(THREADS).expect("a number"));
    let passed = |thread: u64| {
        let mut passed = [0_u64; KEYS as usize];
        // Each step is a moment at which all threads ask at once, three times as often as the rate allows.
        for step in 0..steps {
            barrier.wait();
            let now = Time(SECOND + step * interval);
            for (number, passed) in (0..KEYS).zip(&mut passed) {
                let key = table.key(number);
                let tolerance = (AFTER - 1) * interval;
                *passed += u64::from(table.take(key, now, interval, tolerance).is_ok());
                // Keys that come and go around them.
                let passing = table.key((step, thread, number));
                assert_eq!(table.take(passing, now, interval / 2, 0), Ok(()));
            }
        }
        passed
    };
    let totals = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || passed(thread)))
            .collect();
        let each = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        each.reduce(|mut sum, one| {
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            sum
        })
    });
    let expected = AFTER + steps - 1;
    assert_eq!(totals, Some([expected; KEYS as usize]));
    assert_eq!(table.evictions(), 0);
}

/// The first requests of keys that nobody has seen, from all threads at once, find one slot.
#[test]
fn threads_make_one_slot_for_a_key() {
    const THREADS: usize = 4;
    let table = table(1 << 20);
    let barrier = Barrier::new(THREADS);
    let ask = || {
        let mut passed = 0;
        for round in 0..2000_u64 {
            barrier.wait();
            let key = table.key(round);
            passed += u64::from(table.take(key, Time(1), SECOND, SECOND).is_ok());
        }
        passed
    };
    let total: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        let each = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        each.sum()
    });
    assert_eq!(total, 2 * 2000);
}

/// As many enter as may, and the count of a key that all have left is 0.
#[test]
fn threads_share_a_count_exactly() {
    const THREADS: usize = 4;
    let table = table(1 << 16);
    let (key, inside, most) = (table.key("a"), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if table.enter(key, Time(1), 2) {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        table.leave(key);
                    }
                }
            });
        }
    });
    assert!((1..=2).contains(&most.into_inner()));
    assert_eq!(table.peek(key, Time(1)), Time(1));
    assert!(table.enter(key, Time(1), 1) && !table.enter(key, Time(1), 1));
}

#[test]
fn keys_are_counted_until_their_time_has_passed() {
    let table = table(1 << 16);
    assert_eq!(table.keys_max(), (1 << 16) / 16);
    let now = Time(SECOND);
    assert_eq!(table.keys(now), 0);
    for number in 0..100 {
        table.reserve(table.key(number), now, SECOND);
    }
    assert!(table.enter(table.key("a"), now, 1));
    assert_eq!(table.keys(now), 101);
    assert_eq!(table.keys(Time(2 * SECOND)), 1);
    table.leave(table.key("a"));
    assert_eq!(table.keys(Time(2 * SECOND)), 0);
}

#[test]
fn many_keys_are_estimated_and_few_are_counted() {
    let table = table(16 << 20);
    let now = Time(SECOND);
    let mut made = 0;
    for (keys, error) in [(3, 0), (1000, 0), (100_000, 10_000)] {
        while made < keys {
            table.reserve(table.key(made), now, SECOND);
            made += 1;
        }
        let found = table.keys(now);
        assert!(found.abs_diff(keys) <= error, "{found} of {keys}");
    }
    // Of a table beyond what is counted, a part stands for all.
    let huge = self::table(256 << 20);
    for number in 0..4000 {
        huge.reserve(huge.key(number), now, SECOND);
    }
    let found = huge.keys(now);
    assert!(found.abs_diff(4000) < 800, "{found}");
}
