//! The filter that replaces text in the content of responses.
//!
//! A text may be cut anywhere on its way, so the bytes that may begin a match are held back until it is decided: at most
//! one byte less than the longest text to find. `flush` holds them back too. To send them would let a text slip through
//! that the next piece completes; and an event of a stream ends with an empty line, which few texts begin with.
//!
//! The time is linear in the content, whatever it is: each byte moves an Aho-Corasick automaton by one state, and is
//! compared with the texts that end there. A search that starts again behind each match could read as many bytes again
//! as the longest text has.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::noncontiguous::NFA;
use aho_corasick::{Anchored, PatternID, Span};
use levity_config::MediaTypes;
use levity_wire::encoding::Coding;
use memchr::memmem;

use super::decode::{CODINGS, Decoder, window_bytes_max};
use super::directives::{elements, forbids_transform};
use crate::http::filter::{BodyFilter, Filter, FilterError, FilteredHead, JOB_BYTES};
use crate::message::fields::Fields;
use crate::message::request::Request;
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource};

/// The maximum number of bytes that one piece of a body may become. A small piece may decode to a large one, and a byte
/// may be replaced by 16 KiB.
const PIECE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The maximum number of coded bytes that one job decodes: they may become a thousand times as many.
const CODED_JOB_BYTES: usize = 2048;

/// One job waits for at most this part of the memory of decoders: where that is little, pages are short too.
const JOB_DIVISOR: usize = 16;

/// The processor time per byte of content in nanoseconds, estimated.
const REPLACING_NS_PER_BYTE: u32 = 4;

/// The processor time to decode what one byte of coded content stands for, in nanoseconds, estimated.
const DECODING_NS_PER_BYTE: u32 = 20;

const NO_MEMORY: &str =
    "decoders use all the memory that they may, as much as `limits.compression_memory`";

/// Headers about the bytes of the content, which no longer hold when it is changed. A range of the original must not be
/// joined with what we send, and a client may do that on account of Accept-Ranges and of an old Last-Modified, which
/// is a strong validator (RFC 9110, 8.8.2.2). The others are checksums (RFC 9530, RFC 3230, RFC 1864).
const OUTDATED_HEADERS: &[&str] = &[
    "accept-ranges",
    "last-modified",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
];

/// The filter of a location.
pub struct Substitute {
    texts: Arc<Texts>,
    /// Media types to which it applies.
    types: Vec<MediaTypes>,
}

impl Substitute {
    /// A filter that replaces the first text of each of `pairs`, of which none is empty, by the second. It applies to
    /// `types`.
    pub fn new(pairs: &[(String, String)], types: &[MediaTypes]) -> Self {
        Self {
            texts: Arc::new(Texts::new(pairs)),
            types: types.to_vec(),
        }
    }

    /// The filter of one body, which is decoded if it has a coding; the memory of that decoder is added to `memory`.
    pub fn content(&self, coded: Option<(Coding, Held)>) -> Box<dyn BodyFilter> {
        Box::new(SubstituteBody {
            decoding: coded.map(|(coding, memory)| Decoding::new(coding, memory)),
            replacer: Replacer::new(self.texts.clone()),
        })
    }
}

impl Filter for Substitute {
    fn key(&self) -> &'static str {
        "substitute"
    }

    /// A 304 names the validators that the content would have (RFC 9110, 15.4.5). It has no type, but a client that knows
    /// the changed content names its ETag.
    fn header(&self, request: &Request, head: FilteredHead<'_>) {
        if head.status != 304 {
            return;
        }
        let Some(etag) = head.fields.value("etag") else {
            return;
        };
        let weak = weakened(etag);
        let mut known = request.headers_named("if-none-match");
        if known.any(|tags| memmem::find(tags, &weak).is_some()) {
            head.fields.set("ETag", &weak);
            head.fields.remove("last-modified");
        }
    }

    fn transforms(&self, _: &Request, media_type: &str) -> bool {
        MediaTypes::any_include(&self.types, media_type.as_bytes())
    }

    fn body(
        &self,
        _: &Request,
        head: FilteredHead<'_>,
        claims: &Claims,
    ) -> Option<Box<dyn BodyFilter>> {
        let (fields, length) = (head.fields, head.length);
        let content_type = fields.value("content-type")?;
        let applies = MediaTypes::any_include(&self.types, content_type);
        if !applies || forbids_transform(fields) {
            return None;
        }
        let coding = coding(fields)?;
        fields.remove("content-encoding");
        for name in OUTDATED_HEADERS {
            fields.remove(name);
        }
        fields.edit("etag", |etag| Some(weakened(etag)));
        // One that is kept for hours, as for an event stream, gets of a half.
        let portion = length.map_or(Portion::Half, |_| Portion::Whole);
        let memory = || claims.nothing(Resource::Decoders, portion);
        Some(self.content(coding.map(|coding| (coding, memory()))))
    }
}

/// The weak form of an ETag (RFC 9110, 8.8.3): the same content is sent as long as the configuration is the same.
fn weakened(etag: &[u8]) -> Vec<u8> {
    match etag.starts_with(b"W/") {
        true => etag.to_vec(),
        false => [b"W/", etag].concat(),
    }
}

/// The coding of the content, `Some(None)` without one; `None` where there are several, or one that cannot be decoded.
fn coding(fields: &Fields) -> Option<Option<Coding>> {
    let is_coded = |name: &&[u8]| !name.eq_ignore_ascii_case(b"identity");
    let mut codings = elements(fields, "content-encoding").filter(is_coded);
    let Some(name) = codings.next() else {
        return Some(None);
    };
    if codings.next().is_some() {
        return None;
    }
    // RFC 9110, 8.4.1.3: "x-gzip" is "gzip".
    let name = match name.eq_ignore_ascii_case(b"x-gzip") {
        true => b"gzip",
        false => name,
    };
    let is_named = |coding: &Coding| name.eq_ignore_ascii_case(coding.name().as_bytes());
    CODINGS.into_iter().find(is_named).map(Some)
}

/// Replaces text in one body.
#[derive(Debug)]
struct SubstituteBody {
    /// `None` without a coding, and once the last byte is decoded, which the client may receive much later.
    decoding: Option<Decoding>,
    replacer: Replacer,
}

/// A body that is being decoded.
#[derive(Debug)]
struct Decoding {
    coding: Coding,
    /// Made where it computes, by the first call.
    decoder: Option<Decoder>,
    /// What the decoder keeps at most, in bytes.
    kept: usize,
    memory: Held,
}

impl Decoding {
    fn new(coding: Coding, memory: Held) -> Self {
        Self {
            coding,
            decoder: None,
            kept: 0,
            memory,
        }
    }

    /// Decodes `input`, and passes the content to `sink`. Then it has no more memory than the decoder keeps.
    fn push(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        let (kept_max, kept, memory) = (
            window_bytes_max(self.coding),
            &mut self.kept,
            &mut self.memory,
        );
        let decoder = self
            .decoder
            .get_or_insert_with(|| Decoder::new(self.coding));
        decoder.push(input, |decoded| {
            *kept = kept_max.min(*kept + decoded.len());
            let lacking = kept.saturating_sub(memory.amount());
            // Rarely: a job decodes to more than it may become, but most of it is replaced by less.
            if lacking > 0 && memory.try_grow(lacking).is_err() {
                return Err(FilterError(NO_MEMORY.to_owned()));
            }
            sink(decoded)
        })?;
        memory.shrink_to(*kept);
        Ok(())
    }
}

impl BodyFilter for SubstituteBody {
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
        let out_max = out.len() + PIECE_BYTES_MAX;
        let replacer = &mut self.replacer;
        match &mut self.decoding {
            None => replacer.push(input, out, out_max),
            Some(decoding) => decoding.push(input, |decoded| replacer.push(decoded, out, out_max)),
        }
    }

    fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), FilterError> {
        Ok(())
    }

    fn finish(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.push(input, out)?;
        if let Some(decoder) = self.decoding.take().and_then(|decoding| decoding.decoder) {
            decoder.finish()?;
        }
        self.replacer.finish(out, out.len() + PIECE_BYTES_MAX)
    }

    /// Measured with pages; texts that match often cost ten times as much.
    fn ns_per_byte(&self) -> u32 {
        let decoding = self.decoding.as_ref().map_or(0, |_| DECODING_NS_PER_BYTE);
        decoding + REPLACING_NS_PER_BYTE
    }

    fn needs(&mut self) -> Option<(&mut Held, usize)> {
        let decoding = self.decoding.as_mut()?;
        let rest = window_bytes_max(decoding.coding) - decoding.kept;
        let all = decoding.memory.max();
        let needed = rest.min(PIECE_BYTES_MAX).min(all / JOB_DIVISOR);
        Some((&mut decoding.memory, needed))
    }

    fn job_bytes(&self) -> usize {
        self.decoding
            .as_ref()
            .map_or(JOB_BYTES, |_| CODED_JOB_BYTES)
    }
}

/// Texts to find, compiled, and their replacements.
struct Texts {
    /// Finds all matches, overlapping ones too.
    automaton: NFA,
    start: StateID,
    /// Indexed by state. A state stands for the longest start of a text that the bytes so far end with.
    states: Vec<State>,
    /// Indexed by the number of the pattern.
    texts: Vec<Text>,
    /// The bytes that texts begin with.
    starts: [bool; 256],
}

/// What a state means. The automaton has its matches too, but looks for each from the first one on.
#[derive(Clone, Copy)]
struct State {
    /// The number of bytes that the state stands for.
    depth: usize,
    /// The state of the longest shorter start of a text that these bytes end with.
    fallback: StateID,
    /// No text continues these bytes.
    is_end: bool,
    /// The longest text that these bytes end with.
    longest: Option<PatternID>,
}

/// A text to find.
struct Text {
    /// Its length in bytes.
    length: usize,
    replacement: Vec<u8>,
    /// The longest other text that it ends with.
    shorter: Option<PatternID>,
}

impl Texts {
    fn new(pairs: &[(String, String)]) -> Self {
        let automaton = NFA::new(pairs.iter().map(|(found, _)| found));
        let automaton =
            automaton.expect("the limits on texts are far below those of the automaton");
        let start = automaton.start_state(Anchored::No);
        let start = start.expect("the automaton can start anywhere");
        let root = State {
            depth: 0,
            fallback: start,
            is_end: false,
            longest: None,
        };
        let mut compiled = Self {
            automaton,
            start,
            states: vec![root; start.as_usize() + 1],
            texts: Vec::new(),
            starts: [false; 256],
        };
        let ends: Vec<State> = pairs
            .iter()
            .map(|(found, _)| compiled.add(found.as_bytes()))
            .collect();
        for ((found, put), end) in pairs.iter().zip(ends) {
            compiled.texts.push(Text {
                length: found.len(),
                replacement: put.clone().into_bytes(),
                shorter: compiled.state(end.fallback).longest,
            });
        }
        compiled
    }

    /// Enters the states of `text`, and returns the last one.
    fn add(&mut self, text: &[u8]) -> State {
        self.starts[usize::from(text[0])] = true;
        let root = self.state(self.start);
        let (mut state, mut fallback) = (self.start, self.start);
        for (index, &byte) in text.iter().enumerate() {
            self.states[state.as_usize()].is_end = false;
            state = self.automaton.next_state(Anchored::No, state, byte);
            if index > 0 {
                fallback = self.automaton.next_state(Anchored::No, fallback, byte);
            }
            if self.states.len() <= state.as_usize() {
                self.states.resize(state.as_usize() + 1, root);
            }
            if self.state(state).depth == 0 {
                self.states[state.as_usize()] = State {
                    depth: index + 1,
                    fallback,
                    is_end: true,
                    longest: self.longest(state),
                };
            }
        }
        self.state(state)
    }

    fn longest(&self, state: StateID) -> Option<PatternID> {
        let count = match self.automaton.is_match(state) {
            true => self.automaton.match_len(state),
            false => 0,
        };
        let matches = (0..count).map(|index| self.automaton.match_pattern(state, index));
        matches.max_by_key(|&text| self.automaton.pattern_len(text))
    }

    fn text(&self, text: PatternID) -> &Text {
        &self.texts[text.as_usize()]
    }

    fn state(&self, state: StateID) -> State {
        self.states[state.as_usize()]
    }

    /// The number of bytes at the start of `input` in which no match begins, not even one that ends behind `input`. It
    /// may be too small, but is fast.
    fn plain_bytes(&self, input: &[u8]) -> usize {
        let Some(prefilter) = self.automaton.prefilter() else {
            let start = input
                .iter()
                .position(|&byte| self.starts[usize::from(byte)]);
            return start.unwrap_or(input.len());
        };
        // The prefilter does not find a match of which `input` has only the start.
        let open_bytes = self.automaton.max_pattern_len() - 1;
        let closed_bytes = input.len().saturating_sub(open_bytes);
        if closed_bytes == 0 {
            return 0;
        }
        let candidate = prefilter.find_in(input, Span::from(0..input.len()));
        let start = candidate.into_option();
        start.map_or(closed_bytes, |start| start.min(closed_bytes))
    }
}

/// Replaces text in a stream of bytes: the leftmost match, and of several at one place the longest.
struct Replacer {
    texts: Arc<Texts>,
    state: StateID,
    /// The last bytes, which may be part of a match. They are those that `state` stands for.
    held: VecDeque<HeldByte>,
}

/// A byte that is held back.
struct HeldByte {
    byte: u8,
    /// The longest text found so far that begins here.
    found: Option<PatternID>,
}

impl Replacer {
    fn new(texts: Arc<Texts>) -> Self {
        Self {
            state: texts.start,
            held: VecDeque::new(),
            texts,
        }
    }

    /// Appends to `out` what is decided with `input`. Fails when `out` is longer than `out_max`.
    fn push(&mut self, input: &[u8], out: &mut Vec<u8>, out_max: usize) -> Result<(), FilterError> {
        let mut rest = input;
        while let Some((&byte, after)) = rest.split_first() {
            let plain_bytes = match self.held.is_empty() {
                true => self.texts.plain_bytes(rest),
                false => 0,
            };
            if plain_bytes == 0 {
                self.step(byte);
                self.release(out, out_max)?;
                rest = after;
            } else {
                let plain;
                (plain, rest) = rest.split_at(plain_bytes);
                out.extend_from_slice(plain);
            }
            check_length(out, out_max)?;
        }
        Ok(())
    }

    /// Appends the rest to `out`. Fails as `push`.
    fn finish(&mut self, out: &mut Vec<u8>, out_max: usize) -> Result<(), FilterError> {
        self.state = self.texts.start;
        self.release(out, out_max)
    }

    /// Reads `byte`, and notes the texts that end with it.
    fn step(&mut self, byte: u8) {
        self.held.push_back(HeldByte { byte, found: None });
        let automaton = &self.texts.automaton;
        self.state = automaton.next_state(Anchored::No, self.state, byte);
        let mut found = self.texts.state(self.state).longest;
        while let Some(number) = found {
            let text = self.texts.text(number);
            let start = self.held.len() - text.length;
            // A longer text with the same start ends later, and so replaces a shorter one here.
            self.held[start].found = Some(number);
            found = text.shorter;
        }
    }

    /// Appends to `out` all bytes before those that may still begin a longer match. Fails as `push`.
    fn release(&mut self, out: &mut Vec<u8>, out_max: usize) -> Result<(), FilterError> {
        loop {
            let state = self.texts.state(self.state);
            // At the end of a text, the same bytes lead on from its fallback. A state with more bytes than are held began
            // within a match that has been replaced.
            if state.is_end || state.depth > self.held.len() {
                self.state = state.fallback;
                continue;
            }
            if state.depth == self.held.len() {
                return Ok(());
            }
            let Some(first) = self.held.pop_front() else {
                return Ok(());
            };
            match first.found {
                Some(number) => {
                    let text = self.texts.text(number);
                    out.extend_from_slice(&text.replacement);
                    self.held.drain(..text.length - 1);
                    check_length(out, out_max)?;
                }
                None => out.push(first.byte),
            }
        }
    }
}

fn check_length(out: &[u8], out_max: usize) -> Result<(), FilterError> {
    match out.len() <= out_max {
        true => Ok(()),
        false => {
            let reason = format!("a piece of it becomes longer than {PIECE_BYTES_MAX} bytes");
            Err(FilterError(reason))
        }
    }
}

impl fmt::Debug for Replacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.len();
        f.debug_struct("Replacer")
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
