//! A map by names of boxes.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::name::Name;

/// The number of parts.
const PARTS: usize = 256;

/// A map by names of boxes, of which there may be millions. A hash table moves all its entries when it grows, which would
/// hold up the event loop; here it is those of one of many small tables. A tree would read more memory that is in no cache.
#[derive(Debug)]
pub(crate) struct ByName<V> {
    parts: Box<[HashMap<Name, V>]>,
    /// Selects the part. Whoever picks names does not know it.
    hasher: RandomState,
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashMap::new()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl<V> ByName<V> {
    fn index(&self, name: &Name) -> usize {
        self.hasher.hash_one(name) as usize % PARTS
    }

    fn part(&mut self, name: &Name) -> &mut HashMap<Name, V> {
        let index = self.index(name);
        &mut self.parts[index]
    }

    /// Looks at all tables.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(HashMap::len).sum()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&V> {
        self.parts[self.index(name)].get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut V> {
        self.part(name).get_mut(name)
    }

    /// The value of `name`, which is `make`'s if there is none.
    pub(crate) fn get_or_insert_with(&mut self, name: &Name, make: impl FnOnce() -> V) -> &mut V {
        self.part(name).entry(name.clone()).or_insert_with(make)
    }

    /// Returns what was there before.
    pub(crate) fn insert(&mut self, name: Name, value: V) -> Option<V> {
        self.part(&name).insert(name, value)
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<V> {
        self.part(name).remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::new("set", format!("box-{number}").as_bytes()).expect("a name")
    }

    #[test]
    fn it_has_what_was_inserted_and_not_removed() {
        let mut map = ByName::default();
        for number in 0..1000 {
            assert_eq!(map.insert(name(number), number), None);
        }
        assert_eq!(map.insert(name(7), 70), Some(7));
        assert_eq!(*map.get_or_insert_with(&name(8), || 80), 8);
        assert_eq!(*map.get_or_insert_with(&name(1000), || 1000), 1000);
        assert_eq!(
            (map.remove(&name(9)), map.remove(&name(9))),
            (Some(9), None)
        );
        assert_eq!(
            (map.get(&name(7)), map.get(&name(9)), map.len()),
            (Some(&70), None, 1000)
        );
        *map.get_mut(&name(7)).expect("it is there") = 7;
        assert_eq!(map.get(&name(7)), Some(&7));
    }

    /// One table of as many entries took 20 ms to grow the last time.
    #[test]
    fn the_largest_table_is_small() {
        const COUNT: usize = 200_000;
        let mut map = ByName::default();
        for number in 0..COUNT {
            map.insert(name(number), number);
        }
        let largest = map.parts.iter().map(HashMap::capacity).max();
        assert!(largest < Some(4 * COUNT / PARTS), "{largest:?}");
    }
}
