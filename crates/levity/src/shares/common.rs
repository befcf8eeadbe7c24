//! What several clients hold together, such as an open file. It counts as a whole to each of them, and once in all.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use levity_disk::{Clients, OpenFile};

use super::account::{Account, Amounts};
use super::{Resource, Shares};

/// A thing that several clients hold together.
pub trait Common {
    /// What it is counted as.
    fn resource(&self) -> Resource;

    /// How much of it.
    fn amount(&self) -> usize;

    /// Who holds it: each client counts once for each event loop. Only this module changes it.
    fn holders(&self) -> &Clients;

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

    fn holders(&self) -> &Clients {
        self.clients()
    }

    fn is_used_by_holders(&self) -> bool {
        true
    }
}

/// The account and the thing, by their addresses.
type CommonKey = (*const Account, *const ());

/// What clients hold together on one event loop, by client.
pub(super) struct CommonParts {
    shares: Arc<Shares>,
    by_key: RefCell<HashMap<CommonKey, Weak<CommonPart>>>,
}

impl CommonParts {
    /// Nothing is held.
    pub(super) fn new(shares: Arc<Shares>) -> Rc<Self> {
        Rc::new(Self {
            shares,
            by_key: RefCell::default(),
        })
    }

    /// Those of `resource`.
    pub(super) fn of(&self, resource: Resource) -> Vec<Rc<CommonPart>> {
        let by_key = self.by_key.borrow();
        let parts = by_key.values().filter_map(Weak::upgrade);
        let parts = parts.filter(|part| part.common.resource() == resource);
        parts.collect()
    }

    /// The part of `account` in `common`.
    fn part(self: &Rc<Self>, account: Arc<Account>, common: Arc<dyn Common>) -> Rc<CommonPart> {
        let key = CommonPart::key(&account, &common);
        let known = self.by_key.borrow().get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let part = CommonPart::new(self, account, common);
            let weak = Rc::downgrade(&part);
            self.by_key.borrow_mut().insert(key, weak);
            part
        })
    }
}

/// What the exchanges of one client on one event loop hold of a thing.
pub(super) struct CommonPart {
    parts: Rc<CommonParts>,
    account: Arc<Account>,
    /// Kept, so that nothing else gets its address.
    common: Arc<dyn Common>,
    /// The streams of these exchanges.
    streams: RefCell<Vec<u64>>,
    /// It counts among the stalled holders.
    is_stalled: Cell<bool>,
}

impl CommonPart {
    fn key(account: &Arc<Account>, common: &Arc<dyn Common>) -> CommonKey {
        (Arc::as_ptr(account), Arc::as_ptr(common).cast())
    }

    fn new(parts: &Rc<CommonParts>, account: Arc<Account>, common: Arc<dyn Common>) -> Rc<Self> {
        let is_first = common.holders().all.fetch_add(1, Ordering::Relaxed) == 0;
        let used = used_amount(&*common, is_first);
        account.hold(&parts.shares, common.resource(), common.amount(), used);
        Rc::new(Self {
            parts: parts.clone(),
            account,
            common,
            streams: RefCell::default(),
            is_stalled: Cell::default(),
        })
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) fn streams(&self) -> Vec<u64> {
        self.streams.borrow().clone()
    }

    pub(super) fn amount(&self) -> usize {
        self.common.amount()
    }

    /// The address of the thing.
    pub(super) fn thing(&self) -> *const () {
        Arc::as_ptr(&self.common).cast()
    }

    /// Says whether all of these exchanges have stalled.
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        let stalled = &self.common.holders().stalled;
        match (self.is_stalled.replace(is_stalled), is_stalled) {
            (false, true) => stalled.fetch_add(1, Ordering::Relaxed),
            (true, false) => stalled.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Whether all who hold it, also on other event loops, have stalled: nothing becomes free before all of them have ended.
    pub(super) fn is_stalled_for_all(&self) -> bool {
        let Clients { all, stalled } = self.common.holders();
        stalled.load(Ordering::Relaxed) >= all.load(Ordering::Relaxed)
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
        self.set_stalled(false);
        let common = &*self.common;
        let is_last = common.holders().all.fetch_sub(1, Ordering::Relaxed) == 1;
        let used = used_amount(common, is_last);
        let shares = &self.parts.shares;
        let (resource, amount) = (common.resource(), common.amount());
        self.account.release(shares, resource, amount, used);
        let key = Self::key(&self.account, &self.common);
        self.parts.by_key.borrow_mut().remove(&key);
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
        parts: &Rc<CommonParts>,
        account: Arc<Account>,
        common: Arc<dyn Common>,
        stream: u64,
        amounts: Amounts,
    ) -> Self {
        let part = parts.part(account, common);
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
