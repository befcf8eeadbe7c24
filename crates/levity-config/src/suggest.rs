//! The nearest name to a misspelt one.

use std::cmp::Reverse;

use strsim::osa_distance;

/// Words with more characters are not compared.
const WORD_CHARS_MAX: usize = 64;

/// Edits between a word and the candidate that it is taken for, by the length of the latter in characters.
/// A guess that is wrong sends people astray, and no guess only shows them the list.
fn edits_max(chars: usize) -> usize {
    match chars {
        0..=2 => 0,
        3..=7 => 1,
        8..=15 => 2,
        // `compress_memory` for `compression_memory`.
        _ => 3,
    }
}

/// The candidate that `word` is most likely a misspelling of, if any is close.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let word = plain(word);
    candidates
        .into_iter()
        .map(|candidate| (plain(candidate), candidate))
        .map(|(plain, candidate)| (osa_distance(&word, &plain), plain, candidate))
        .filter(|(distance, plain, _)| *distance <= edits_max(plain.chars().count()))
        // `rout` is as far from `root` as from `route`.
        .min_by_key(|(distance, plain, _)| (*distance, Reverse(shared_start(&word, plain))))
        .map(|(.., candidate)| candidate)
}

/// The part of a name that is compared: neither its case nor the division of its words.
pub(crate) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | '.'));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of characters at the start that both have.
fn shared_start(a: &str, b: &str) -> usize {
    let both = a.chars().zip(b.chars());
    both.take_while(|(a, b)| a == b).count()
}

/// Words as a message lists them.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use levity_disk::engine::NAMES as ENGINES;

    #[test]
    fn nearest_is_close_or_nothing() {
        for (word, candidates, expected) in [
            ("enigne", &["threads", "engine"][..], Some("engine")),
            ("thread", ENGINES, Some("threads")),
            ("iouring", ENGINES, Some("io_uring")),
            ("IO-URING", ENGINES, Some("io_uring")),
            ("rout", &["root", "route"], Some("route")),
            (
                "keepAliveTimeout",
                &["keep_alive_timeout"],
                Some("keep_alive_timeout"),
            ),
            ("proxy", &["root", "path"], None),
            ("listen", &["listing"], None),
            ("mime", &["name"], None),
            ("server_tokens", &["server_timing"], None),
        ] {
            let found = nearest(word, candidates.iter().copied());
            assert_eq!(found, expected, "{word}");
        }
    }

    /// None in one or two characters, one in up to seven, two in up to fifteen, three in more.
    #[test]
    fn nearest_at_its_edges() {
        for (candidate, near, far) in [
            ("to", "TO", "tu"),
            ("try", "tri", "tai"),
            ("workers", "workres", "wrokres"),
            ("balancer", "balnacre", "blanacre"),
            ("connections", "konnektions", "konnektionz"),
            ("abcdefghijklmno", "abcdefghijklm", "abcdefghijkl"),
            ("abcdefghijklmnop", "abcdefghijklm", "abcdefghijkl"),
            ("compression_memory", "compress_memory", "compres_memory"),
        ] {
            assert_eq!(nearest(near, [candidate]), Some(candidate), "{near}");
            assert_eq!(nearest(far, [candidate]), None, "{far}");
        }
        let longest = "x".repeat(WORD_CHARS_MAX);
        assert!(nearest(&longest, [longest.as_str()]).is_some());
        let longer = "x".repeat(WORD_CHARS_MAX + 1);
        assert_eq!(nearest(&longer, [longer.as_str()]), None);
    }
}
