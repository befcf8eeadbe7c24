//! Text and JSON that compress about as well as what servers send: words by their frequency, and records with numbers.

use crate::random::Random;

const WORDS: usize = 6000;
/// Steps of a uniform number between 0 and 1.
const STEPS: usize = 1 << 30;
/// The seed of the vocabulary, which all texts share.
const VOCABULARY_SEED: u64 = 0x5eed;
const SYLLABLES: [&str; 40] = [
    "a", "al", "an", "ar", "be", "ca", "com", "con", "de", "der", "e", "en", "er", "es", "fo",
    "ge", "i", "in", "is", "la", "le", "li", "ma", "men", "no", "o", "on", "per", "pro", "ra",
    "re", "ri", "s", "se", "ta", "te", "ti", "tion", "u", "ver",
];
const SENTENCE_WORDS_MIN: usize = 5;
const SENTENCE_WORDS_MORE: usize = 16;
const PARAGRAPH_SENTENCES: usize = 6;
const STATES: [&str; 4] = ["active", "suspended", "closed", "pending"];

/// Marked-up prose of this length. Another seed gives another text of the same words.
pub(crate) fn text(bytes: usize, seed: u64) -> Vec<u8> {
    let mut writer = Writer::new(seed);
    let mut text = String::with_capacity(bytes + 4096);
    while text.len() < bytes {
        text.push_str("<p>");
        for _ in 0..=writer.random.below(PARAGRAPH_SENTENCES) {
            text.push_str(&writer.sentence());
            text.push(' ');
        }
        text.push_str("</p>\n");
    }
    cut(text, bytes)
}

/// An array of records, cut at this length.
pub(crate) fn json(bytes: usize) -> Vec<u8> {
    let mut writer = Writer::new(bytes as u64);
    let mut json = String::with_capacity(bytes + 4096);
    json.push('[');
    while json.len() < bytes {
        json.push_str(&writer.record());
        json.push_str(",\n");
    }
    cut(json, bytes)
}

/// Everything is ASCII, so that any length is a boundary.
fn cut(text: String, bytes: usize) -> Vec<u8> {
    let mut content = text.into_bytes();
    content.truncate(bytes);
    content
}

struct Writer {
    words: Vec<String>,
    random: Random,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(VOCABULARY_SEED);
        let word = |_| {
            let syllables = 1 + random.below(3) + random.below(2);
            let syllable = |_| SYLLABLES[random.below(SYLLABLES.len())];
            (0..syllables).map(syllable).collect()
        };
        Self {
            words: (0..WORDS).map(word).collect(),
            // Seeds that differ by one would begin alike.
            random: Random::new(seed.wrapping_add(1).wrapping_mul(0xD134_2543_DE82_EF95)),
        }
    }

    /// Zipf's law: the frequency of a word is the inverse of its rank.
    fn word(&mut self) -> &str {
        let share = self.random.below(STEPS) as f64 / STEPS as f64;
        let rank = (WORDS as f64).powf(share);
        &self.words[rank as usize - 1]
    }

    fn sentence(&mut self) -> String {
        let count = SENTENCE_WORDS_MIN + self.random.below(SENTENCE_WORDS_MORE);
        let words: Vec<String> = (0..count).map(|_| self.word().to_owned()).collect();
        let mut sentence = words.join(" ");
        sentence[..1].make_ascii_uppercase();
        sentence.push('.');
        sentence
    }

    fn record(&mut self) -> String {
        let (first, last) = (self.word().to_owned(), self.word().to_owned());
        let id = 100_000 + self.random.below(900_000);
        let (day, hour) = (1 + self.random.below(28), self.random.below(24));
        let (minute, cents) = (self.random.below(60), self.random.below(1_000_000));
        let state = STATES[self.random.below(STATES.len())];
        let note = self.sentence();
        format!(
            "{{\"id\":{id},\"name\":\"{first} {last}\",\"email\":\"{first}.{last}@example.com\",\"state\":\"{state}\",\
             \"balance\":{}.{:02},\"created\":\"2026-03-{day:02}T{hour:02}:{minute:02}:00Z\",\"note\":\"{note}\"}}",
            cents / 100,
            cents % 100,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exact_and_content_repeatable() {
        assert_eq!(text(12_345, 1).len(), 12_345);
        assert_eq!(json(37_000).len(), 37_000);
        assert_eq!(text(1000, 1), text(1000, 1));
        assert_ne!(text(1000, 1), text(1000, 2));
        assert!(text(5000, 3).is_ascii() && json(5000).starts_with(b"[{\"id\":"));
    }

    #[test]
    fn few_words_are_frequent_and_many_are_rare() {
        let mut writer = Writer::new(1);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..10_000 {
            *counts.entry(writer.word().to_owned()).or_insert(0) += 1;
        }
        let most = counts.values().max().unwrap();
        assert!(
            (500..1500).contains(most) && counts.len() > 1000,
            "{most} {}",
            counts.len()
        );
    }
}
