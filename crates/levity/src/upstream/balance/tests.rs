use std::time::Duration;

use super::*;
use levity_config::upstream::{self, At};
use strum::VariantArray as _;

const FAIL_FOR: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn candidates(weights: &[u32]) -> Vec<Candidate> {
    let candidate = |(number, &weight): (usize, &u32)| Candidate {
        id: super::super::backend::fingerprint(format!("10.0.0.{number}:80").as_bytes()),
        share: weight * 256,
        busy: 0,
    };
    weights.iter().enumerate().map(candidate).collect()
}

fn counts(chosen: impl Iterator<Item = usize>, slots: usize) -> Vec<i64> {
    let mut counts = vec![0; slots];
    chosen.for_each(|slot| counts[slot] += 1);
    counts
}

mod round_robin {
    use super::*;

    fn order(balancer: &mut Balancer, candidates: &[Candidate], turns: usize) -> Vec<usize> {
        let choose = |_| balancer.choose(candidates, 0).expect("there are some");
        (0..turns).map(choose).collect()
    }

    #[test]
    fn is_smooth() {
        let mut turns = Turns::default();
        let candidates = candidates(&[5, 1, 1]);
        let order: Vec<_> = (0..7)
            .map_while(|_| turns.next(&candidates, |_| true))
            .collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    /// Every cycle, wherever it is begun, has exactly the weights; every part of it is within 1.
    #[test]
    fn keeps_the_weights_within_one_at_every_moment() {
        let mut random = Random(1);
        for seed in 0..200 {
            let weights: Vec<_> = (0..=random.below(8))
                .map(|_| 1 + random.below(9) as u32)
                .collect();
            let total: u32 = weights.iter().sum();
            let candidates = candidates(&weights);
            let mut balancer = Balancer::seeded(Balance::RoundRobin, seed);
            let cycle = order(&mut balancer, &candidates, total as usize);
            let expected: Vec<_> = weights.iter().map(|&weight| i64::from(weight)).collect();
            assert_eq!(counts(cycle.into_iter(), weights.len()), expected);
            let mut counted = vec![0; weights.len()];
            for turn in 1..=3 * total {
                counted[order(&mut balancer, &candidates, 1)[0]] += 1;
                for (slot, &weight) in weights.iter().enumerate() {
                    let due = f64::from(turn * weight) / f64::from(total);
                    let off = (f64::from(counted[slot]) - due).abs();
                    // The part may begin and end within a turn.
                    assert!(off < 2.0, "{weights:?} turn {turn} slot {slot}: {off}");
                }
            }
        }
    }

    #[test]
    fn workers_begin_with_different_backends() {
        let candidates = candidates(&[1; 4]);
        let begins = (0..400).map(|seed| {
            order(
                &mut Balancer::seeded(Balance::RoundRobin, seed),
                &candidates,
                1,
            )[0]
        });
        let counts = counts(begins, 4);
        assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
    }

    #[test]
    fn keeps_its_position_when_a_backend_leaves_and_returns() {
        let all = candidates(&[1, 1, 1, 1]);
        let without_second = [all[0], all[2], all[3]];
        let mut balancer = Balancer::seeded(Balance::RoundRobin, 3);
        order(&mut balancer, &all, 40);
        let away = order(&mut balancer, &without_second, 30);
        assert_eq!(counts(away.into_iter(), 3), [10, 10, 10]);
        let back = order(&mut balancer, &all, 40);
        let counts = counts(back.into_iter(), 4);
        assert!(
            counts.iter().all(|count| (9..=11).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn absent_backends_are_forgotten() {
        let mut balancer = Balancer::seeded(Balance::RoundRobin, 3);
        for id in 0..10_000 {
            let candidate = |id| Candidate {
                id,
                share: 256,
                busy: 0,
            };
            balancer.choose(&[candidate(id), candidate(id + 1)], 0);
            assert!(balancer.turns.known.len() <= 4 + ABSENT_MAX);
        }
    }
}

mod least_connections {
    use super::*;

    #[test]
    fn chooses_the_fewest_connections_per_share() {
        let mut candidates = candidates(&[1, 4, 2]);
        let mut balancer = Balancer::seeded(Balance::LeastConnections, 1);
        for (busy, chosen) in [
            ([1, 5, 2], 0),
            ([2, 4, 3], 1),
            ([2, 8, 3], 2),
            ([0, 9, 9], 0),
        ] {
            for (candidate, busy) in candidates.iter_mut().zip(busy) {
                candidate.busy = busy;
            }
            // Equal candidates would take turns, so that one choice would differ.
            for _ in 0..4 {
                let slot = balancer.choose(&candidates, 0);
                assert!(slot == Some(chosen) || busy == [1, 5, 2] && slot == Some(2));
            }
        }
    }

    #[test]
    fn breaks_ties_in_turn_and_by_weight() {
        let candidates = candidates(&[1, 3]);
        let mut balancer = Balancer::seeded(Balance::LeastConnections, 1);
        let chosen = (0..40).filter_map(|_| balancer.choose(&candidates, 0));
        assert_eq!(counts(chosen, 2), [10, 30]);
    }

    #[test]
    fn fills_backends_by_weight() {
        let mut candidates = candidates(&[1, 2, 5]);
        let mut balancer = Balancer::seeded(Balance::LeastConnections, 1);
        for _ in 0..80 {
            let slot = balancer.choose(&candidates, 0).expect("some");
            candidates[slot].busy += 1;
        }
        let busy: Vec<_> = candidates.iter().map(|one| one.busy).collect();
        assert_eq!(busy, [10, 20, 50]);
    }
}

mod carp {
    use super::*;

    const KEYS: u64 = 40_000;

    fn slots(candidates: &[Candidate]) -> Vec<u64> {
        let mut balancer = Balancer::seeded(Balance::Carp, 1);
        let id = |key| candidates[balancer.choose(candidates, key).expect("some")].id;
        // Poor keys: each differs from the next in few bits.
        (0..KEYS).map(id).collect()
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let candidates = candidates(&[1, 2, 3, 4]);
        for (number, candidate) in candidates.iter().enumerate() {
            let count = slots(&candidates)
                .iter()
                .filter(|&&id| id == candidate.id)
                .count() as f64;
            let due = KEYS as f64 * (number + 1) as f64 / 10.0;
            assert!((count / due - 1.0).abs() < 0.05, "{count} of {due}");
        }
    }

    #[test]
    fn only_keys_of_a_removed_backend_move() {
        let all = candidates(&[1; 10]);
        let before = slots(&all);
        let gone = all[4].id;
        let after = slots(&[&all[..4], &all[5..]].concat());
        let mut moved = 0;
        for (before, after) in before.into_iter().zip(after) {
            if before == gone {
                moved += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        let due = KEYS / 10;
        assert!((due * 9 / 10..due * 11 / 10).contains(&moved), "{moved}");
    }

    #[test]
    fn order_does_not_matter() {
        let mut candidates = candidates(&[1, 2, 3]);
        let before = slots(&candidates);
        candidates.reverse();
        assert_eq!(slots(&candidates), before);
    }

    /// Other hosts and later releases must choose the same backend for the same key.
    #[test]
    fn is_the_same_everywhere() {
        let candidates = candidates(&[1; 5]);
        let of =
            |path: &[u8]| rendezvous(&candidates, super::super::super::backend::fingerprint(path));
        let slots: Vec<_> = [b"/".as_slice(), b"/a", b"/b", b"/c", b"/d"].map(of).into();
        assert_eq!(slots, PLACES);
    }

    const PLACES: [Option<usize>; 5] = [Some(4), Some(0), Some(0), Some(1), Some(3)];
}

mod the_others {
    use super::*;

    #[test]
    fn static_takes_the_first() {
        let mut balancer = Balancer::new(Balance::Static);
        let candidates = candidates(&[1, 100]);
        assert!((0..10).all(|key| balancer.choose(&candidates, key) == Some(0)));
    }

    #[test]
    fn random_two_keeps_weights_while_idle() {
        let mut balancer = Balancer::seeded(Balance::RandomTwo, 1);
        let candidates = candidates(&[1, 2, 5]);
        let chosen = (0..8000).filter_map(|_| balancer.choose(&candidates, 0));
        let counts = counts(chosen, 3);
        for (count, due) in counts.into_iter().zip([1000, 2000, 5000]) {
            // Five standard deviations of the widest share.
            assert!((count - due).abs() < 220, "{count} of {due}");
        }
    }

    #[test]
    fn random_two_never_takes_the_busiest() {
        let mut balancer = Balancer::seeded(Balance::RandomTwo, 1);
        let mut candidates = candidates(&[1; 3]);
        candidates[1].busy = 5;
        let chosen = (0..300).filter_map(|_| balancer.choose(&candidates, 0));
        let counts = counts(chosen, 3);
        assert_eq!(counts[1], 0);
        assert!(counts[0] > 100 && counts[2] > 100, "{counts:?}");
    }

    #[test]
    fn a_single_candidate_is_chosen_by_every_balancer() {
        for &balance in Balance::VARIANTS {
            let mut balancer = Balancer::new(balance);
            assert_eq!(balancer.choose(&[], 7), None);
            assert_eq!(balancer.choose(&candidates(&[3]), 7), Some(0));
        }
    }

    /// No panic and no overflow, even if shares change all the time.
    #[test]
    fn extreme_shares_are_survived() {
        for &balance in Balance::VARIANTS {
            let mut balancer = Balancer::new(balance);
            let candidate = |id, share| Candidate {
                id,
                share,
                busy: u32::MAX,
            };
            for _ in 0..100 {
                let some = [
                    candidate(1, u32::MAX),
                    candidate(2, 1),
                    candidate(3, u32::MAX),
                ];
                assert!(balancer.choose(&some, 0).is_some());
            }
        }
    }
}

mod usable {
    use super::*;

    fn now() -> Instant {
        Instant::now() + Duration::from_secs(1000)
    }

    /// `b` is a backup, `d` drains.
    fn backends(kinds: &[&str]) -> Vec<Arc<Backend>> {
        let backend = |(number, kind): (usize, &&str)| {
            let address: levity_config::address::Address = format!("127.0.0.1:{}", 9000 + number)
                .parse()
                .expect("address");
            let entry = upstream::Backend {
                at: At::Address(address.clone()),
                weight: 1,
                backup: kind.contains('b'),
                drain: kind.contains('d'),
                tls: None,
            };
            Arc::new(Backend::new(address, &entry))
        };
        kinds.iter().enumerate().map(backend).collect()
    }

    fn usable(
        backends: &[Arc<Backend>],
        now: Instant,
        tried: &[usize],
        tied: Option<usize>,
    ) -> Vec<usize> {
        let tried: Vec<_> = tried.iter().map(|&slot| backends[slot].id).collect();
        let mut slots = vec![99];
        let sticky = tied.map(|slot| backends[slot].id);
        let up = super::super::usable(backends, now, &tried, sticky, &mut slots);
        let all_up = slots.iter().all(|&slot| backends[slot].is_up(now));
        assert_eq!(up, all_up && !slots.is_empty());
        slots
    }

    #[test]
    fn backends_that_are_up_come_first() {
        let (backends, now) = (backends(&["", "b", "", "d", ""]), now());
        assert_eq!(usable(&backends, now, &[], None), [0, 2, 4]);
        backends[2].failed(now, 1, FAIL_FOR);
        backends[4].set_well(false, now);
        assert_eq!(usable(&backends, now, &[], None), [0]);
    }

    #[test]
    fn backups_are_used_when_all_others_are_down_or_tried() {
        let (backends, now) = (backends(&["", "b", "", "bd", "b"]), now());
        backends[0].failed(now, 1, FAIL_FOR);
        assert_eq!(usable(&backends, now, &[2], None), [1, 4]);
        assert_eq!(usable(&backends, now, &[2, 1], None), [4]);
    }

    #[test]
    fn affinity_holds_while_the_backend_is_up() {
        let (backends, now) = (backends(&["", "d", "b"]), now());
        assert_eq!(
            usable(&backends, now, &[], Some(1)),
            [1],
            "also while it drains"
        );
        assert_eq!(
            usable(&backends, now, &[], Some(2)),
            [2],
            "also to a backup"
        );
        assert_eq!(usable(&backends, now, &[1], Some(1)), [0], "it was tried");
        backends[1].failed(now, 1, FAIL_FOR);
        assert_eq!(usable(&backends, now, &[], Some(1)), [0]);
    }

    #[test]
    fn when_nothing_is_up_the_soonest_is_tried() {
        let (backends, now) = (backends(&["", "", "b", "d", ""]), now());
        backends[0].failed(now + 2 * SECOND, 1, FAIL_FOR);
        backends[1].failed(now + SECOND, 1, FAIL_FOR);
        backends[2].failed(now + SECOND, 1, FAIL_FOR);
        backends[3].failed(now, 1, FAIL_FOR);
        backends[4].set_well(false, now);
        let later = now + 3 * SECOND;
        assert_eq!(usable(&backends, later, &[], None), [1, 2]);
        assert_eq!(usable(&backends, later, &[1, 2], None), [0]);
        assert_eq!(usable(&backends, later, &[0, 1, 2], None), [4]);
        assert_eq!(usable(&backends, later, &[0, 1, 2, 4], None), [0; 0]);
    }

    #[test]
    fn after_its_ejection_a_backend_is_usable_until_its_trial_begins() {
        let (backends, now) = (backends(&["", ""]), now());
        backends[0].failed(now, 1, FAIL_FOR);
        let later = now + FAIL_FOR;
        assert_eq!(usable(&backends, later, &[], None), [0, 1]);
        assert!(backends[0].begin(later, SECOND).is_some());
        assert_eq!(usable(&backends, later, &[], None), [1]);
        backends[0].succeeded(later);
        assert_eq!(usable(&backends, later, &[], None), [0, 1]);
    }

    #[test]
    fn nothing_is_left_when_all_were_tried_or_all_drain() {
        assert_eq!(
            usable(&backends(&["", "b"]), now(), &[0, 1], Some(0)),
            [0; 0]
        );
        assert_eq!(usable(&backends(&["d", "d"]), now(), &[], None), [0; 0]);
        assert_eq!(usable(&[], now(), &[], None), [0; 0]);
    }
}
