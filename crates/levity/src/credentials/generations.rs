//! A bounded set of what is remembered for a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::time::Instant;

/// Members of two generations, of which the older one is forgotten when the younger one is full.
pub struct Generations<K> {
    young: HashMap<K, Instant>,
    old: HashMap<K, Instant>,
    members_max: usize,
}

impl<K: Eq + Hash> Generations<K> {
    /// At most `members_max` members in each generation. Room for them is reserved: a table that grows is copied, which takes
    /// longer than a loop may compute.
    pub fn new(members_max: usize) -> Self {
        Self {
            young: HashMap::with_capacity(members_max),
            old: HashMap::with_capacity(members_max),
            members_max,
        }
    }

    /// Whether `key` is remembered.
    pub fn has(&self, key: &K, now: Instant) -> bool {
        let until = self.young.get(key).or_else(|| self.old.get(key));
        until.is_some_and(|until| now < *until)
    }

    /// Remembers `key` until a time.
    pub fn insert(&mut self, key: K, until: Instant) {
        if self.young.len() >= self.members_max && !self.young.contains_key(&key) {
            mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        self.young.insert(key, until);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn members_are_bounded_and_those_in_use_stay() {
        let (mut set, now) = (Generations::new(4), Instant::now());
        let until = now + Duration::from_secs(1);
        for number in 0..40 {
            set.insert(number, until);
            set.insert(-1, until);
            assert!(set.has(&-1, now) && set.has(&number, now));
            assert!(set.young.len() <= 4 && set.old.len() <= 4);
        }
        assert!(!set.has(&0, now) && !set.has(&39, until));
    }
}
