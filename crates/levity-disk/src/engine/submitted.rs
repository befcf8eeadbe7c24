//! The operations that the kernel has, by the number that their completion carries.

use std::mem;

/// Keeps operations, and the memory that the kernel writes to, until their completion has been seen. Numbers
/// are reused.
pub(super) struct Submitted<T> {
    operations: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Submitted<T> {
    pub(super) const fn new() -> Submitted<T> {
        Submitted {
            operations: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn insert(&mut self, operation: T) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() - 1
        });
        self.operations[number] = Some(operation);
        number as u64
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let number = usize::try_from(number).ok()?;
        let operation = self.operations.get_mut(number)?.take()?;
        self.free.push(number);
        Some(operation)
    }
}

impl<T> Drop for Submitted<T> {
    /// After a panic the kernel may still be writing, so the memory is leaked instead of freed.
    fn drop(&mut self) {
        mem::take(&mut self.operations)
            .into_iter()
            .for_each(mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused() {
        let mut submitted = Submitted::new();
        assert_eq!([submitted.insert('a'), submitted.insert('b')], [0, 1]);
        assert_eq!(
            (submitted.remove(0), submitted.remove(0)),
            (Some('a'), None)
        );
        assert_eq!((submitted.len(), submitted.insert('c')), (1, 0));
        assert_eq!(submitted.remove(7), None);
        assert_eq!(
            (submitted.remove(0), submitted.remove(1)),
            (Some('c'), Some('b'))
        );
        assert!(submitted.is_empty());
    }
}
