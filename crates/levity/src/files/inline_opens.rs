//! Whether to ask the kernel on the loop for a file that is not in the cache.
//!
//! If the kernel has not looked the name up lately, the call fails and costs about 5 us, a tenth of the processor time of
//! a cold file. While many cold files are requested, nearly all of these calls fail. A file that is found brings little
//! then: its content waits for the disk too. So a few calls are made, and all again as soon as one finds something.

use std::cell::Cell;

/// From so many failures in a row on, only one in as many calls is made.
const FAILURES_MAX: u32 = 16;

/// How the last calls of an event loop ended.
#[derive(Debug, Default)]
pub struct InlineOpens {
    /// From [`FAILURES_MAX`] on, calls that were not made count too.
    failures: Cell<u32>,
}

impl InlineOpens {
    /// Whether to try the next one. `is_disk_busy` is whether an engine would be asked for the content of a file that is
    /// found.
    pub fn may_try(&self, is_disk_busy: impl FnOnce() -> bool) -> bool {
        let failures = self.failures.get();
        if failures < FAILURES_MAX || !is_disk_busy() {
            return true;
        }
        let next = failures + 1;
        let is_due = next == 2 * FAILURES_MAX;
        self.failures.set(if is_due { FAILURES_MAX } else { next });
        is_due
    }

    /// One has ended. `has_answer` is whether the kernel knew the file, or that it does not exist.
    pub fn ended(&self, has_answer: bool) {
        match has_answer {
            true => self.failures.set(0),
            false => self.failures.set(FAILURES_MAX.min(self.failures.get() + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_tried_while_all_fail() {
        let opens = InlineOpens::default();
        let tried = |count: u32| {
            let tries = (0..count).filter(|_| {
                let is_tried = opens.may_try(|| true);
                if is_tried {
                    opens.ended(false);
                }
                is_tried
            });
            tries.count() as u32
        };
        assert_eq!(tried(FAILURES_MAX), FAILURES_MAX);
        assert_eq!(tried(10 * FAILURES_MAX), 10);
        assert!(opens.may_try(|| false), "the disk has room");
        opens.ended(true);
        assert_eq!(tried(FAILURES_MAX), FAILURES_MAX);
    }

    /// More than a few fail where some succeed.
    #[test]
    fn all_are_tried_while_some_succeed() {
        let opens = InlineOpens::default();
        for number in 0..10 * FAILURES_MAX {
            assert!(opens.may_try(|| true));
            opens.ended(number % FAILURES_MAX == 0);
        }
    }
}
