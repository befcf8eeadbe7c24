//! What several clients hold together, such as an open file. It counts as a whole to each of them, and once in all.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levity_disk::OpenFile;

use super::Resource;
use super::account::{Account, Amounts};
use super::stakes::Stakes;

/// A thing that several clients hold together.
pub trait Common {
    /// What it is counted as.
    fn resource(&self) -> Resource;

    /// How much of it.
    fn amount(&self) -> usize;

    /// How many clients hold it on each event loop, in all. Only this module changes it.
    fn holders(&self) -> &AtomicUsize;

    /// Whether it is used only while a client holds it. Otherwise it counts itself as used.
    fn is_used_by_holders(&self) -> bool;
}

/// It counts while clients hold it: the descriptors that the cache keeps beside have a bound of their own.
impl Common for OpenFile {
    fn resource(&self) -> Resource {
        Resource::Files
    }

    fn amount(&self) -> usize {
        1
    }

    fn holders(&self) -> &AtomicUsize {
        self.clients()
    }

    fn is_used_by_holders(&self) -> bool {
        true
    }
}

/// The account and the thing, by their addresses.
pub(super) type CommonKey = (*const Account, *const ());

/// What the exchanges of one client on one event loop hold of a thing.
pub(super) struct CommonPart {
    stakes: Rc<Stakes>,
    account: Arc<Account>,
    /// Kept, so that nothing else gets its address.
    common: Arc<dyn Common>,
    /// The streams of these exchanges.
    streams: RefCell<Vec<u64>>,
}

impl CommonPart {
    fn key(account: &Arc<Account>, common: &Arc<dyn Common>) -> CommonKey {
        (Arc::as_ptr(account), Arc::as_ptr(common).cast())
    }

    fn new(stakes: &Rc<Stakes>, account: Arc<Account>, common: Arc<dyn Common>) -> Rc<Self> {
        let is_first = common.holders().fetch_add(1, Ordering::Relaxed) == 0;
        let used = used_amount(&*common, is_first);
        account.hold(stakes.shares(), common.resource(), common.amount(), used);
        Rc::new(Self {
            stakes: stakes.clone(),
            account,
            common,
            streams: RefCell::default(),
        })
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) fn resource(&self) -> Resource {
        self.common.resource()
    }

    pub(super) fn streams(&self) -> Vec<u64> {
        self.streams.borrow().clone()
    }

    /// What becomes free when these exchanges end.
    pub(super) fn free_without(&self) -> usize {
        match self.common.holders().load(Ordering::Relaxed) {
            1 => self.common.amount(),
            _ => 0,
        }
    }
}

/// What counts as used in all because of the first holder, or the last one.
fn used_amount(common: &dyn Common, is_only_holder: bool) -> usize {
    match is_only_holder && common.is_used_by_holders() {
        true => common.amount(),
        false => 0,
    }
}

impl Drop for CommonPart {
    fn drop(&mut self) {
        let common = &*self.common;
        let is_last = common.holders().fetch_sub(1, Ordering::Relaxed) == 1;
        let used = used_amount(common, is_last);
        let shares = self.stakes.shares();
        let (resource, amount) = (common.resource(), common.amount());
        self.account.release(shares, resource, amount, used);
        let key = Self::key(&self.account, &self.common);
        self.stakes.common.borrow_mut().remove(&key);
    }
}

/// The part of one exchange.
pub struct CommonHold {
    stream: u64,
    part: Rc<CommonPart>,
    /// Keeps the stake of the exchange, by which its account is found.
    _amounts: Amounts,
}

impl CommonHold {
    pub(super) fn new(
        stakes: &Rc<Stakes>,
        account: Arc<Account>,
        common: Arc<dyn Common>,
        stream: u64,
        amounts: Amounts,
    ) -> Self {
        let key = CommonPart::key(&account, &common);
        let known = stakes.common.borrow().get(&key).and_then(|it| it.upgrade());
        let part = known.unwrap_or_else(|| {
            let part = CommonPart::new(stakes, account, common);
            let weak = Rc::downgrade(&part);
            stakes.common.borrow_mut().insert(key, weak);
            part
        });
        part.streams.borrow_mut().push(stream);
        Self {
            stream,
            part,
            _amounts: amounts,
        }
    }
}

impl Drop for CommonHold {
    fn drop(&mut self) {
        let mut streams = self.part.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|&stream| stream == self.stream) {
            streams.swap_remove(at);
        }
    }
}
