//! Operations that the kernel has, by the number that comes back with their completion.

use std::mem;

/// What the kernel may still write to stays here until its completion has been seen.
pub(super) struct Submitted<T> {
    taken: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Submitted<T> {
    pub(super) const fn new() -> Submitted<T> {
        Submitted {
            taken: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.taken.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn insert(&mut self, operation: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.taken.push(None);
            self.taken.len() - 1
        });
        self.taken[place] = Some(operation);
        place as u64
    }

    pub(super) fn remove(&mut self, place: u64) -> Option<T> {
        let place = usize::try_from(place).ok()?;
        let operation = self.taken.get_mut(place)?.take()?;
        self.free.push(place);
        Some(operation)
    }
}

impl<T> Drop for Submitted<T> {
    /// After a panic the kernel may still be writing: better to lose the memory than to free it.
    fn drop(&mut self) {
        mem::take(&mut self.taken).into_iter().for_each(mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut places = Submitted::new();
        assert_eq!([places.insert('a'), places.insert('b')], [0, 1]);
        assert_eq!((places.remove(0), places.remove(0)), (Some('a'), None));
        assert_eq!((places.len(), places.insert('c')), (1, 0));
        assert_eq!(places.remove(7), None);
        assert_eq!((places.remove(0), places.remove(1)), (Some('c'), Some('b')));
        assert!(places.is_empty());
    }
}
