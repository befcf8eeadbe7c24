//! Whether to ask the kernel on the loop for a file that is not in the cache.
//!
//! If the kernel has not looked the name up lately, the call fails, and has cost a tenth of the processor time of a cold
//! file. While many cold files are requested, nearly all of these calls fail. A file that is found brings little then: its
//! content waits for the disk too. So only a few calls are made where hardly one in 64 succeeds.

use std::cell::Cell;

/// So many failures for one success leave the credit as it is.
const SUCCESS_IS_WORTH: u32 = 64;

/// The most failures that past successes pay for.
const CREDIT_MAX: u32 = 16 * SUCCESS_IS_WORTH;

/// Without credit one call in so many is made.
const TRY_ONE_IN: u32 = 16;

/// How the last calls of an event loop ended.
#[derive(Debug)]
pub struct InlineOpens {
    credit: Cell<u32>,
    /// Since the last call without credit.
    left_out: Cell<u32>,
}

impl Default for InlineOpens {
    fn default() -> Self {
        Self {
            credit: Cell::new(SUCCESS_IS_WORTH),
            left_out: Cell::new(0),
        }
    }
}

impl InlineOpens {
    /// Whether to make the next call, for content that an engine would have to read.
    pub fn may_try(&self) -> bool {
        if self.credit.get() > 0 {
            return true;
        }
        let left_out = self.left_out.get() + 1;
        self.left_out.set(left_out % TRY_ONE_IN);
        left_out == TRY_ONE_IN
    }

    /// A call has ended. `has_answer` is whether the kernel knew the file, or that it does not exist.
    pub fn ended(&self, has_answer: bool) {
        let credit = self.credit.get();
        self.credit.set(match has_answer {
            true => CREDIT_MAX.min(credit + SUCCESS_IS_WORTH),
            false => credit.saturating_sub(1),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of calls made of `count`, of which one in `one_in` succeeds if it is made.
    fn tried(opens: &InlineOpens, count: u32, one_in: u32) -> u32 {
        let tries = (1..=count).filter(|number| {
            let is_tried = opens.may_try();
            if is_tried {
                opens.ended(number % one_in == 0);
            }
            is_tried
        });
        tries.count() as u32
    }

    #[test]
    fn few_are_tried_while_all_fail_and_all_while_some_succeed() {
        let opens = InlineOpens::default();
        let never = u32::MAX;
        assert_eq!(tried(&opens, SUCCESS_IS_WORTH, never), SUCCESS_IS_WORTH);
        assert_eq!(tried(&opens, 10 * TRY_ONE_IN, never), 10);
        opens.ended(true);
        assert_eq!(tried(&opens, 1000, SUCCESS_IS_WORTH / 2), 1000);
        assert_eq!(tried(&opens, 100_000, SUCCESS_IS_WORTH / 2), 100_000);
        // They pay for failures in a row, but not for any number.
        let in_a_row = tried(&opens, 100 * CREDIT_MAX, never);
        assert!(
            (CREDIT_MAX - SUCCESS_IS_WORTH..10 * CREDIT_MAX).contains(&in_a_row),
            "{in_a_row}"
        );
    }
}
