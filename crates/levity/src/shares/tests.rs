use std::thread;

use super::holder::Holder;
use super::*;
use crate::client_prefix::ClientPrefix;
use crate::shares::stakes::Amounts;

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

fn nothing(shares: &Arc<Shares>, number: u8, resource: Resource, portion: Portion) -> Held {
    let account = shares.accounts.get(holder(number));
    Held::nothing(
        shares.clone(),
        account,
        Amounts::default(),
        resource,
        portion,
    )
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
fn accounts_without_a_user_are_forgotten() {
    let shares = shares();
    let number = |number: u64| shares.accounts.get(Holder::Connection(number));
    let kept = number(0);
    (1..5000).for_each(|at| drop(number(at)));
    assert!(Arc::ptr_eq(&kept, &number(0)));
    assert!(shares.accounts.len() < 2100, "{}", shares.accounts.len());
}
