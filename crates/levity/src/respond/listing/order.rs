//! The order of a listing: folders first, then by name as people count, so `file2` before `file10`.

use std::cmp::Ordering;

use levity_disk::{Entry, Kind, Listing};

/// Folders first, then by name.
pub(super) fn by_kind_and_name(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let is_file = |entry: &Entry<'_>| entry.kind != Kind::Directory;
    is_file(a)
        .cmp(&is_file(b))
        .then_with(|| natural(a.name, b.name))
}

/// By digits as numbers and by letters without case; names that then are equal by their bytes.
pub(super) fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some((first_a, tail_a)), Some((first_b, tail_b))) =
        (rest_a.split_first(), rest_b.split_first())
    {
        let order;
        if first_a.is_ascii_digit() && first_b.is_ascii_digit() {
            let (number_a, number_b);
            (number_a, rest_a) = split_number(rest_a);
            (number_b, rest_b) = split_number(rest_b);
            order = (number_a.len(), number_a).cmp(&(number_b.len(), number_b));
        } else {
            (rest_a, rest_b) = (tail_a, tail_b);
            order = first_a
                .to_ascii_lowercase()
                .cmp(&first_b.to_ascii_lowercase());
        }
        if order.is_ne() {
            return order;
        }
    }
    rest_a.len().cmp(&rest_b.len()).then_with(|| a.cmp(b))
}

/// The digits at the start without leading zeros, and what follows them.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let is_other = |byte: &u8| !byte.is_ascii_digit();
    let (digits, rest) = text.split_at(text.iter().position(is_other).unwrap_or(text.len()));
    let zeros = digits.iter().take_while(|&&byte| byte == b'0').count();
    (&digits[zeros..], rest)
}

/// The entries in order. Takes about 50 ns for each and each time their number doubles.
pub(super) fn sorted(listing: &Listing) -> Listing {
    let mut entries: Vec<Entry<'_>> = listing.entries().collect();
    entries.sort_unstable_by(by_kind_and_name);
    let mut sorted = Listing::with_room_of(listing);
    entries.into_iter().for_each(|entry| sorted.push(entry));
    sorted.is_last = listing.is_last;
    sorted
}

/// Sorted runs on their way to one order: a merge that can be interrupted.
///
/// All runs are merged at once: their next entries stay in the processor's cache, where a merge of pairs would read all
/// of them again and again.
pub(super) struct Merge {
    runs: Vec<Listing>,
    /// The next entry of each run.
    next: Vec<u16>,
    /// The runs that have entries left, as a heap by their next entry.
    heap: Vec<u16>,
    order: Vec<u16>,
}

impl Merge {
    /// At most 65 536 runs, each sorted and of at most 65 535 entries.
    pub fn new(runs: Vec<Listing>) -> Self {
        let has_entries = |run: &u16| !runs[usize::from(*run)].is_empty();
        let numbers = 0..=u16::try_from(runs.len().max(1) - 1).expect("at most 65 536 runs");
        let heap = match runs.is_empty() {
            true => Vec::new(),
            false => numbers.filter(has_entries).collect(),
        };
        let mut merge = Self {
            next: vec![0; runs.len()],
            heap,
            order: Vec::with_capacity(runs.iter().map(Listing::len).sum()),
            runs,
        };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        merge
    }

    /// Orders so many more entries. Returns whether that were all.
    pub fn advance(&mut self, entries: usize) -> bool {
        for _ in 0..entries {
            let Some(&run) = self.heap.first() else {
                return true;
            };
            self.order.push(run);
            let next = &mut self.next[usize::from(run)];
            *next += 1;
            if usize::from(*next) == self.runs[usize::from(run)].len() {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        self.heap.is_empty()
    }

    /// The runs, and for each place in the order the run that has the entry there.
    pub fn finish(self) -> (Vec<Listing>, Vec<u16>) {
        (self.runs, self.order)
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let [left, right] = [2 * at + 1, 2 * at + 2];
            let mut first = at;
            for child in [left, right] {
                if child < self.heap.len() && self.is_before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn is_before(&self, a: u16, b: u16) -> bool {
        let [a, b] = [a, b].map(usize::from);
        let head = |run: usize| self.runs[run].entry(usize::from(self.next[run]));
        by_kind_and_name(&head(a), &head(b)).is_lt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_natural_order() {
        let ordered: [&[u8]; 18] = [
            b"",
            b".a",
            // Equal numbers by their bytes.
            b"01",
            b"1",
            b"1a",
            b"2",
            b"10",
            b"99999999999999999999",
            b"100000000000000000000",
            b"A",
            b"a",
            b"B",
            b"b",
            b"file2.txt",
            b"File10.txt",
            b"file10.txu",
            b"file10a",
            b"z\xff",
        ];
        for (index_a, a) in ordered.iter().enumerate() {
            for (index_b, b) in ordered.iter().enumerate() {
                let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                let expected = index_a.cmp(&index_b);
                assert_eq!(natural(a, b), expected, "{} {}", shown(a), shown(b));
            }
        }
    }

    fn listing_of(names: &[String]) -> Listing {
        let mut listing = Listing::default();
        for name in names {
            listing.push(Entry {
                name: name.as_bytes(),
                kind: match name.len() % 3 {
                    0 => Kind::Directory,
                    _ => Kind::Regular,
                },
                is_link: false,
                stat: None,
            });
        }
        listing
    }

    #[test]
    fn a_merge_in_steps_is_one_sort() {
        // A simple generator: the same names in each run of the test.
        let mut state = 1_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 40
        };
        for counts in [
            &[][..],
            &[0],
            &[1],
            &[0, 3, 0],
            &[100, 1, 300, 7],
            &[50; 40],
        ] {
            let runs: Vec<Vec<String>> = counts
                .iter()
                .map(|&count| (0..count).map(|_| format!("n{}", random())).collect())
                .collect();
            let mut expected = runs.concat();
            let key = |name: &String| listing_of(std::slice::from_ref(name));
            expected.sort_by(|a, b| by_kind_and_name(&key(a).entry(0), &key(b).entry(0)));
            let sorted_runs = runs.iter().map(|run| sorted(&listing_of(run))).collect();
            let mut merge = Merge::new(sorted_runs);
            while !merge.advance(7) {}
            let (runs, order) = merge.finish();
            let mut next = vec![0; runs.len()];
            let merged = order.iter().map(|&run| {
                let run = usize::from(run);
                next[run] += 1;
                String::from_utf8_lossy(runs[run].entry(next[run] - 1).name).into_owned()
            });
            assert_eq!(merged.collect::<Vec<_>>(), expected);
        }
    }
}
