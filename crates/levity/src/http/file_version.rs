//! Which version of a file a response sends, while others may write to the file.
//!
//! A response names one version by its ETag and its length, so all of its bytes must be of that one.
//! What `fstat` says after each read tells:
//!
//! - *nothing changed*: the bytes are of the version;
//! - *the file became shorter*, or *its modification time changed and its size did not*: it was
//!   rewritten, and the response ends here. An append sets the time before the size, so the file is given
//!   a moment to become longer;
//! - *the file grew*, or *only its change time differs*: it may be a log that was appended to, or a name
//!   or a mode that changed, but also a rewrite that ended longer, or one whose modification time was set
//!   back. The bytes that were sent last are the evidence: if the file still has them in the same place,
//!   the response goes on.
//!
//! What this cannot see: stores to mapped memory before the kernel notes them, a rewrite that leaves
//! the compared bytes as they were, and what is changed in pages that wait in a socket's queue.

use levity_disk::Meta;

/// In bytes: how much of what was sent last is kept to be compared. A slow client keeps it as long as it
/// takes, so it is little.
pub const EVIDENCE_BYTES_MAX: usize = 512;

/// The version that is sent, and the evidence for it.
#[derive(Debug)]
pub struct Version {
    /// As it was announced.
    announced: Meta,
    /// By an ETag that names it and no other.
    strongly: bool,
    /// As it was last found to hold the same bytes.
    known: Meta,
    /// What was sent last.
    evidence: Vec<u8>,
    /// Where that ends in the file.
    evidence_end: u64,
}

/// What a later `fstat` says of the version.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the one that is sent.
    Same,
    /// The file has other bytes.
    Rewritten,
    /// The evidence decides.
    Unclear,
}

impl Version {
    /// The one that `announced` tells of, by a strong ETag if `strongly`.
    pub fn new(announced: Meta, strongly: bool) -> Self {
        Self {
            announced,
            strongly,
            known: announced,
            evidence: Vec::new(),
            evidence_end: 0,
        }
    }

    /// Judges what `fstat` said `now`, after a read.
    pub fn judge(&self, now: &Meta) -> Verdict {
        if now.same_version(&self.known) || self.is_between(now) {
            Verdict::Same
        } else if now.size < self.known.size {
            Verdict::Rewritten
        } else {
            // The kernel sets the modification time before it raises the size: an append may look like a
            // rewrite for a moment, so that is left to a second look.
            Verdict::Unclear
        }
    }

    /// A read that others had begun may tell of a moment before the file was last found in order.
    fn is_between(&self, now: &Meta) -> bool {
        let changed = |meta: &Meta| (meta.ctime_s, meta.ctime_ns);
        changed(&self.announced) <= changed(now)
            && changed(now) < changed(&self.known)
            && now.size >= self.announced.size
    }

    /// Decides what was unclear, by what the file has at [`Version::evidence_range`] and what `fstat` said
    /// `now`, after that was read: whether the version is still the one that is sent.
    pub fn settle(&mut self, found: &[u8], now: &Meta) -> bool {
        let holds = found == self.evidence && self.may_have_grown_to(now);
        if holds {
            self.known = *now;
        }
        holds
    }

    /// Whether what [`Version::settle`] has refused may be an append that is under way: the kernel sets the
    /// modification time before it raises the size.
    pub fn may_be_growing(&self, found: &[u8], now: &Meta) -> bool {
        found == self.evidence && now.size == self.known.size
    }

    /// Takes the file as it is `now`, of which nothing was sent yet, for the version that is sent: if it
    /// only grew, and no strong ETag says that it did not; or if it only lost a name, as it does when it is
    /// removed or another file takes its place.
    pub fn settle_unsent(&mut self, now: &Meta) -> bool {
        let holds = match now.size > self.known.size {
            true => !self.strongly,
            false => now.links < self.known.links && self.may_have_grown_to(now),
        };
        if holds {
            self.known = *now;
        }
        holds
    }

    fn may_have_grown_to(&self, now: &Meta) -> bool {
        let modified = |meta: &Meta| (meta.mtime_s, meta.mtime_ns);
        now.size > self.known.size
            || now.size == self.known.size && modified(now) == modified(&self.known)
    }

    /// Keeps the end of `sent`, which begins at `offset` in the file.
    pub fn keep_evidence(&mut self, offset: u64, sent: &[u8]) {
        if sent.is_empty() {
            return;
        }
        let start = sent.len().saturating_sub(EVIDENCE_BYTES_MAX);
        self.evidence.clear();
        self.evidence.extend_from_slice(&sent[start..]);
        self.evidence_end = offset + sent.len() as u64;
    }

    /// Where the evidence lies in the file, as offset and bytes; `None` where there is none.
    pub fn evidence_range(&self) -> Option<(u64, usize)> {
        let bytes = self.evidence.len();
        (bytes > 0).then(|| (self.evidence_end - bytes as u64, bytes))
    }
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;

    /// Of `size` bytes, last written at `mtime` and changed at `ctime`.
    fn meta(size: u64, mtime: i64, ctime: i64) -> Meta {
        Meta {
            kind: Kind::Regular,
            device: 1,
            inode: 2,
            size,
            mtime_s: mtime,
            mtime_ns: 0,
            ctime_s: ctime,
            ctime_ns: 0,
            links: 1,
        }
    }

    fn version() -> Version {
        let mut version = Version::new(meta(100, 10, 10), true);
        version.keep_evidence(40, b"sent");
        version
    }

    #[test]
    fn every_change_of_size_or_times_is_seen() {
        for (now, verdict) in [
            (meta(100, 10, 10), Verdict::Same),
            (meta(99, 10, 10), Verdict::Rewritten),
            (meta(99, 11, 11), Verdict::Rewritten),
            (meta(100, 11, 11), Verdict::Unclear),
            (meta(101, 11, 11), Verdict::Unclear),
            (meta(100, 10, 11), Verdict::Unclear),
            (meta(100, 9, 11), Verdict::Unclear),
            (meta(100, 9, 9), Verdict::Unclear),
        ] {
            assert_eq!(version().judge(&now), verdict, "{now:?}");
        }
        let unlinked = Meta {
            links: 0,
            ..meta(100, 10, 10)
        };
        assert_eq!(version().judge(&unlinked), Verdict::Same);
    }

    #[test]
    fn the_evidence_tells_an_append_from_a_rewrite() {
        for (found, now, holds) in [
            (&b"sent"[..], meta(101, 11, 11), true),
            (b"sent", meta(100, 10, 11), true),
            (b"tens", meta(101, 11, 11), false),
            (b"sen", meta(101, 11, 11), false),
            (b"tens", meta(100, 10, 11), false),
            (b"sent", meta(100, 11, 11), false),
            (b"sent", meta(99, 11, 11), false),
        ] {
            let mut version = version();
            assert_eq!(version.settle(found, &now), holds, "{now:?}");
            let verdict = version.judge(&now);
            assert_eq!(verdict == Verdict::Same, holds, "{now:?}");
        }
    }

    #[test]
    fn an_append_under_way_is_told_from_a_rewrite() {
        for (found, now, may_be_growing) in [
            (&b"sent"[..], meta(100, 11, 11), true),
            (b"tens", meta(100, 11, 11), false),
            (b"sent", meta(99, 11, 11), false),
        ] {
            let mut version = version();
            assert!(!version.settle(found, &now));
            assert_eq!(version.may_be_growing(found, &now), may_be_growing);
        }
    }

    #[test]
    fn a_read_that_began_earlier_is_no_truncation() {
        let mut version = version();
        assert!(version.settle(b"sent", &meta(150, 20, 20)));
        assert_eq!(version.judge(&meta(120, 15, 15)), Verdict::Same);
        assert_eq!(version.judge(&meta(100, 10, 10)), Verdict::Same);
        assert_eq!(version.judge(&meta(99, 15, 15)), Verdict::Rewritten);
        assert_eq!(version.judge(&meta(120, 21, 21)), Verdict::Rewritten);
    }

    #[test]
    fn the_evidence_is_the_end_of_what_was_sent() {
        let mut version = Version::new(meta(10_000, 1, 1), true);
        assert_eq!(version.evidence_range(), None);
        let sent: Vec<u8> = (0..2000_u32).map(|number| number as u8).collect();
        version.keep_evidence(1000, &sent);
        let expected = (3000 - EVIDENCE_BYTES_MAX as u64, EVIDENCE_BYTES_MAX);
        assert_eq!(version.evidence_range(), Some(expected));
        version.keep_evidence(3000, b"more");
        assert_eq!(version.evidence_range(), Some((3000, 4)));
        assert!(version.settle(b"more", &meta(10_001, 2, 2)));
    }

    #[test]
    fn before_anything_is_sent_only_growth_is_no_matter() {
        let version = || Version::new(meta(100, 10, 10), false);
        let mut strong = Version::new(meta(100, 10, 10), true);
        assert!(!strong.settle_unsent(&meta(101, 11, 11)));
        assert!(version().settle_unsent(&meta(101, 11, 11)));
        assert!(!version().settle_unsent(&meta(100, 11, 11)));
        assert!(!version().settle_unsent(&meta(100, 10, 11)));
        assert!(!version().settle_unsent(&meta(99, 11, 11)));
    }

    #[test]
    fn a_file_that_lost_a_name_is_the_same() {
        let without_name = |size, mtime, ctime| Meta {
            links: 0,
            ..meta(size, mtime, ctime)
        };
        for strongly in [true, false] {
            let version = || Version::new(meta(100, 10, 10), strongly);
            assert!(version().settle_unsent(&without_name(100, 10, 11)));
            assert!(!version().settle_unsent(&without_name(100, 11, 11)));
            assert!(!version().settle_unsent(&without_name(99, 10, 11)));
            let grown = version().settle_unsent(&without_name(101, 11, 11));
            assert_eq!(grown, !strongly);
        }
    }
}
