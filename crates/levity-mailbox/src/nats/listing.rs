//! Lists of boxes.

use serde_json::Value;

use super::boxes::Phase;
use super::serving::{Call, Serving, names_in};
use super::waiting::{Listing, Purpose};
use crate::name::Name;

impl Serving<'_> {
    /// Asks for the boxes of a set.
    pub(super) fn list(&mut self, listing: Listing) {
        let set = listing.set.clone();
        let number = self.ask_for_boxes(Call::List, &set);
        self.listings.insert(number, listing);
    }

    /// The server has said the boxes of a set.
    pub(super) fn listed(&mut self, number: u64, info: &Value) {
        let Some(listing) = self.listings.get_mut(&number) else {
            return;
        };
        let after = listing.after.take();
        let follows = |name: &Name| after.as_ref().is_none_or(|after| name > after);
        let mut names: Vec<_> = names_in(info).filter(follows).collect();
        names.sort_unstable();
        listing.names = names.into();
        self.go_on_with(number);
    }

    /// Looks at further boxes for a list, or ends it.
    pub(super) fn go_on_with(&mut self, number: u64) {
        let mut to_load = Vec::new();
        let Some(listing) = self.listings.get_mut(&number) else {
            return;
        };
        while listing.summaries.len() + listing.loading < listing.count_max
            && let Some(name) = listing.names.pop_front()
        {
            match self.link.boxes.boxes.get(&name) {
                Some(used) if used.phase == Phase::Current && used.pending.is_empty() => {
                    if let Some(ledger) = &used.ledger {
                        listing.add(name, ledger);
                    }
                }
                _ => {
                    listing.loading += 1;
                    to_load.push(name);
                }
            }
        }
        if listing.loading == 0
            && let Some(mut listing) = self.listings.remove(&number)
        {
            listing
                .summaries
                .sort_by(|one, other| one.name.cmp(&other.name));
            let _ = listing.reply.send(Ok(listing.summaries));
        }
        for name in to_load {
            self.load(name, Purpose::List(number));
        }
    }
}
