//! Path patterns by the text with which their paths start.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Bound;

use crate::pattern::Pattern;

/// The numbers of patterns, such as those of routes. Finds one without a look at all of them: files have thousands of routes,
/// each of which is compared with the others, and requests with all.
#[derive(Default)]
pub struct PatternIndex {
    /// The numbers ascend.
    by_start: BTreeMap<Box<[u8]>, Vec<usize>>,
}

impl PatternIndex {
    /// Adds a pattern with this [start](Pattern::start); the empty one is that of patterns for any path. The number is higher
    /// than those before.
    pub fn push(&mut self, start: &str, number: usize) {
        let numbers = self.by_start.entry(start.as_bytes().into());
        numbers.or_default().push(number);
    }

    /// The lowest number for which `is_it` holds, of those whose patterns may match `path`. It is asked about some that do not, too.
    pub fn first_matching(&self, path: &[u8], is_it: impl Fn(usize) -> bool) -> Option<usize> {
        lowest(self.at_starts_of(path), is_it)
    }

    /// The maximum of the sum of `weight` for the patterns that [`first_matching`](Self::first_matching) may ask about, over
    /// all paths.
    pub fn heaviest(&self, weight: impl Fn(usize) -> usize) -> usize {
        let of_list =
            |numbers: &[usize]| numbers.iter().map(|&number| weight(number)).sum::<usize>();
        // Each path has the longest start of which it begins with, and all starts of that one.
        let sums = self
            .by_start
            .keys()
            .map(|start| self.at_starts_of(start).map(of_list).sum());
        sums.max().unwrap_or_default()
    }

    /// The lowest number for which `is_it` holds, of those whose patterns may [cover](Pattern::covers) `pattern`. It is asked about
    /// some that do not, too.
    pub(crate) fn first_covering(
        &self,
        pattern: &Pattern,
        is_it: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        lowest(self.at_starts_of(known_start(pattern).as_bytes()), is_it)
    }

    /// The lowest number for which `is_it` holds, of those whose patterns may match a path that `pattern` matches. It is asked
    /// about some that do not, too.
    pub(crate) fn first_sharing(
        &self,
        pattern: &Pattern,
        is_it: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let start = known_start(pattern).as_bytes();
        lowest(self.at_starts_of(start).chain(self.beneath(start)), is_it)
    }

    /// The numbers at each start of `text`, from the longest on.
    fn at_starts_of<'i>(&'i self, text: &'i [u8]) -> impl Iterator<Item = &'i [usize]> {
        // Longer starts are not in the index, or were returned.
        let mut end = Some(text.len());
        iter::from_fn(move || {
            loop {
                let up_to = (Bound::Unbounded, Bound::Included(&text[..end?]));
                let (start, numbers) = self.by_start.range::<[u8], _>(up_to).next_back()?;
                let pairs = start.iter().zip(text);
                let shared = pairs.take_while(|(one, other)| one == other).count();
                if shared == start.len() {
                    end = shared.checked_sub(1);
                    return Some(numbers.as_slice());
                }
                end = Some(shared);
            }
        })
    }

    /// The numbers at each text that starts with `start`.
    fn beneath<'i>(&'i self, start: &'i [u8]) -> impl Iterator<Item = &'i [usize]> {
        let from = (Bound::Included(start), Bound::Unbounded);
        let starts = self.by_start.range::<[u8], _>(from);
        starts
            .take_while(|(text, _)| text.starts_with(start))
            .map(|(_, numbers)| numbers.as_slice())
    }
}

/// Every path starts with a slash.
fn known_start(pattern: &Pattern) -> &str {
    match pattern.start() {
        "" => "/",
        start => start,
    }
}

fn lowest<'i>(
    lists: impl Iterator<Item = &'i [usize]>,
    is_it: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut lowest = None;
    for list in lists {
        let numbers = list.iter().copied();
        let mut below = numbers.take_while(|&number| lowest.is_none_or(|lowest| number < lowest));
        lowest = below.find(|&number| is_it(number)).or(lowest);
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;

    const TEXTS: [&str; 16] = [
        "/",
        "/*",
        "/a",
        "/a/",
        "/a/*",
        "/a/b",
        "/a/b/*",
        "/a/b/c",
        "/ab",
        "/ab/*",
        "/a/b*.png",
        "/a*/b",
        "*.png",
        "/\u{e9}",
        "/\u{e9}/*",
        "/b/*",
    ];

    fn patterns() -> Vec<Pattern> {
        let plain = TEXTS.map(|text| Pattern::parse(text).expect(text));
        let regex = Pattern::regex("^/a").expect("a pattern");
        let named = Pattern::Named {
            text: String::new(),
            start: "/a/".to_owned(),
            expression: Expression::regex("/b$").expect("a pattern"),
        };
        let page = Pattern::Page("/a".to_owned());
        plain.into_iter().chain([regex, named, page]).collect()
    }

    fn index(patterns: &[Pattern]) -> PatternIndex {
        let mut index = PatternIndex::default();
        for (number, pattern) in patterns.iter().enumerate() {
            index.push(pattern.start(), number);
        }
        index
    }

    /// Runs `check` for each pattern, with all of them in each rotation of their order and the index of those.
    fn in_each_order(check: impl Fn(&[Pattern], &PatternIndex, &Pattern)) {
        let patterns = patterns();
        for after in 0..patterns.len() {
            let mut rest = patterns.clone();
            rest.rotate_left(after);
            let index = index(&rest);
            for pattern in &patterns {
                check(&rest, &index, pattern);
            }
        }
    }

    #[test]
    fn finds_each_pattern_that_matches() {
        in_each_order(|all, index, pattern| {
            for path in [pattern.to_string(), format!("{pattern}/b")] {
                let matches = |number: usize| all[number].matches(path.as_bytes());
                let expected = (0..all.len()).find(|&number| matches(number));
                let found = index.first_matching(path.as_bytes(), matches);
                assert_eq!(found, expected, "{path} {all:?}");
            }
        });
    }

    #[test]
    fn only_patterns_with_a_start_in_common_add_up() {
        let texts = ["/a*x", "/a/b*", "/b*", "/b/*", "/c*", "/c*y", "/cd*"];
        let patterns = texts.map(|text| Pattern::parse(text).expect(text));
        let heaviest =
            |patterns: &[Pattern]| index(patterns).heaviest(|number| patterns[number].weight());
        assert_eq!(heaviest(&patterns[..4]), 2);
        assert_eq!(heaviest(&patterns), 3);
        assert_eq!(heaviest(&[]), 0);
        let regex = Pattern::regex("^/z").expect("a pattern");
        assert_eq!(heaviest(&[regex, patterns[0].clone()]), 17);
    }

    #[test]
    fn finds_each_pattern_that_covers_another() {
        in_each_order(|all, index, pattern| {
            let covers = |number: usize| all[number].covers(pattern);
            let expected = (0..all.len()).find(|&number| covers(number));
            assert!(expected.is_some());
            let found = index.first_covering(pattern, covers);
            assert_eq!(found, expected, "{pattern} {all:?}");
        });
    }

    #[test]
    fn finds_each_pattern_that_covers_another_or_is_covered() {
        in_each_order(|all, index, pattern| {
            let shares =
                |number: usize| all[number].covers(pattern) || pattern.covers(&all[number]);
            let expected = (0..all.len()).find(|&number| shares(number));
            let found = index.first_sharing(pattern, shares);
            assert_eq!(found, expected, "{pattern} {all:?}");
        });
    }

    #[test]
    fn the_empty_start_is_one_of_any_path() {
        let mut index = PatternIndex::default();
        index.push("", 0);
        for text in TEXTS {
            let pattern = Pattern::parse(text).expect(text);
            assert_eq!(index.first_covering(&pattern, |_| true), Some(0));
        }
        assert_eq!(
            index.first_covering(&Pattern::Exact("a".into()), |_| true),
            Some(0)
        );
        assert_eq!(
            index.first_covering(&Pattern::Exact("/".into()), |_| false),
            None
        );
    }
}
