//! Random cuts: servers are killed, restarted and reloaded, disks fail, and Redis servers restart and fail over, while clients
//! whose connections are cut publish and receive.
//!
//! `LEVITY_TEST_SEED` and `LEVITY_TEST_CUTS` say which cuts there are, and how many. A seed repeats the cuts, not their
//! moments.

mod check;
mod clients;
mod servers;
mod streams;

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering;
use std::thread;

use self::check::Message;
use self::clients::{END, EndInPanic, PUBLISHERS, RECEIVERS, Random, World};
use self::servers::Rig;
use super::{json, text};

/// What happens to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// A server is killed, and another one started.
    Kill,
    /// A server ends in order, and another one is started.
    Restart,
    /// A server reads its configuration again.
    Reload,
    /// Calls on the database fail for a while.
    Fault,
    /// The server is killed while they fail.
    KillInFault,
    /// The Redis server, which has synced what it acknowledges, is killed and started again.
    RestartRedis,
    /// It and all servers are.
    RestartAll,
    /// The replica takes over when it has all.
    FailOver,
    /// The Redis server is killed, and the replica takes over with what it has by then.
    FailOverAtOnce,
    /// The replica takes over that has got nothing for a while.
    FailOverLate,
}

const OF_PROCESS: [Cut; 3] = [Cut::Kill, Cut::Restart, Cut::Reload];

const OF_DISK: [Cut; 4] = [Cut::Kill, Cut::Restart, Cut::Fault, Cut::KillInFault];

const OF_REDIS: [Cut; 8] = [
    Cut::Kill,
    Cut::Restart,
    Cut::Reload,
    Cut::RestartRedis,
    Cut::RestartAll,
    Cut::FailOver,
    Cut::FailOverAtOnce,
    Cut::FailOverLate,
];

/// The maximum number of cuts while a box is used.
const ROUND_CUTS_MAX: usize = 5;

/// The maximum number of messages that are acknowledged between two cuts.
const BETWEEN_MAX: usize = 40;

fn variable(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// Cuts servers `count` times, in rounds with a box each.
fn run(rig: Rig, kinds: &[Cut], count: usize) {
    in_rounds(rig, kinds, count, run_round);
}

/// Has `run_round` cut servers `count` times.
fn in_rounds(
    mut rig: Rig,
    kinds: &[Cut],
    count: usize,
    run_round: impl Fn(&mut Rig, usize, &[Cut], &mut Random) -> [usize; 4],
) {
    let seed = variable("LEVITY_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let mut left = variable("LEVITY_TEST_CUTS").map_or(count, |cuts| cuts as usize);
    eprintln!("LEVITY_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut sums = [0; 4];
    for round in 0.. {
        let cuts = left.min(ROUND_CUTS_MAX);
        left -= cuts;
        if cuts == 0 {
            break;
        }
        let cuts: Vec<_> = (0..cuts).map(|_| random.choose(kinds)).collect();
        eprintln!("round {round}: {cuts:?}");
        let done = run_round(&mut rig, round, &cuts, &mut random);
        for (sum, of_round) in sums.iter_mut().zip(done) {
            *sum += of_round;
        }
    }
    let [messages, connections, refused, lost] = sums;
    eprintln!("{messages} messages, {connections} connections, {refused} refused, {lost} lost");
}

/// Lets cuts happen while clients use a box of their own, and checks what they have got. Returns the number of messages, of
/// connections, of refusals, and of messages that were lost.
fn run_round(rig: &mut Rig, round: usize, cuts: &[Cut], random: &mut Random) -> [usize; 4] {
    let world = rig.world(round);
    let cut_all = |own: &mut Random| {
        for cut in cuts {
            world.wait_for(own.below(BETWEEN_MAX));
            rig.cut(*cut, &world, own);
        }
    };
    let end = |own: &mut Random| world.publish(END, own);
    let (publish, receive) = (World::publish_all, World::receive_all);
    let received = while_used(&world, random, publish, receive, cut_all, end);
    let World {
        acknowledged,
        losses,
        refused,
        connections,
        ..
    } = &world;
    let (acknowledged, losses) = (acknowledged.lock(), losses.lock());
    let acknowledged = acknowledged.expect("nobody failed");
    let losses = losses.expect("nobody failed");
    let lost = check::check(&acknowledged, &kept(rig, &world), &received, &losses);
    let [refused, connections] = [refused, connections].map(|it| it.load(Ordering::Relaxed));
    [acknowledged.len(), connections, refused, lost]
}

/// Cuts while clients use a box, and then publishes the last message. Returns what its receivers have got.
fn while_used<R: Send>(
    world: &World,
    random: &mut Random,
    publish: fn(&World, usize, &mut Random),
    receive: fn(&World, &mut Random) -> R,
    cut_all: impl FnOnce(&mut Random),
    end: impl FnOnce(&mut Random),
) -> Vec<R> {
    let mut randoms = (0..=PUBLISHERS + RECEIVERS).map(|_| Random(random.below(usize::MAX) as u64));
    let mut own = randoms.next().expect("a first one");
    thread::scope(|scope| {
        let _guard = EndInPanic(world);
        let publishers: Vec<_> = (0..PUBLISHERS)
            .zip(&mut randoms)
            .map(|(number, mut of)| scope.spawn(move || publish(world, number, &mut of)))
            .collect();
        let receivers: Vec<_> = randoms
            .map(|mut of| scope.spawn(move || receive(world, &mut of)))
            .collect();
        cut_all(&mut own);
        world.wait_for_new();
        world.is_over.store(true, Ordering::Relaxed);
        for publisher in publishers {
            publisher.join().expect("a publisher");
        }
        end(&mut own);
        let received = receivers.into_iter().map(|it| it.join());
        received.collect::<Result<_, _>>().expect("receivers")
    })
}

/// What is kept of a box.
fn kept(rig: &Rig, world: &World) -> Vec<Message> {
    let mut kept = Vec::<Message>::new();
    loop {
        let after = kept.last().map(|last| last.id.to_string());
        let after = after.as_deref().unwrap_or("earliest");
        let page = rig
            .any()
            .get(&format!("{}?last_event_id={after}", world.path));
        page.assert_status(200);
        let page = json(&page);
        let messages = page["messages"].as_array().expect("a list");
        let ids = messages.iter().map(|it| text(it, "id").parse());
        let ids = ids.map(|id| id.expect("an id"));
        let texts = messages.iter().map(|it| text(it, "data"));
        kept.extend(ids.zip(texts).map(|(id, text)| Message::new(id, text)));
        if messages.is_empty() {
            return kept;
        }
    }
}

#[test]
fn a_disk_loses_nothing_under_cuts() {
    run(Rig::disk(), &OF_PROCESS, 20);
}

#[test]
fn a_disk_that_fails_loses_nothing_under_cuts() {
    run(Rig::disk(), &OF_DISK, 15);
}

#[test]
fn redis_announces_what_it_loses_under_cuts() {
    run(Rig::redis(), &OF_REDIS, 15);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --full`"]
fn a_disk_loses_nothing_under_a_thousand_cuts() {
    run(Rig::disk(), &OF_PROCESS, 1000);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --full`"]
fn a_disk_that_fails_loses_nothing_under_a_thousand_cuts() {
    run(Rig::disk(), &OF_DISK, 1000);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --full`"]
fn redis_announces_what_it_loses_under_a_thousand_cuts() {
    run(Rig::redis(), &OF_REDIS, 1000);
}
