//! The version of a file that a response sends, and checks that the file still is that version.
//!
//! A response announces one version by ETag and length, so all of its bytes must be of that version. `fstat` after
//! each read decides:
//!
//! - *Nothing changed*: the bytes are of the version.
//! - *The file shrank*, or *its modification time changed and its size did not*: it was rewritten, and the response
//!   is cut off. An append sets the time before the size, so the check is repeated for a moment.
//! - *The file grew*, or *only its change time differs*: it may be a log that was appended to, or a changed name or
//!   mode, but also a rewrite that is longer, or one whose modification time was set back. The bytes sent last are
//!   the evidence: if the file still has them at the same offset, the response continues.
//!
//! Not detected: stores to mapped memory before the kernel updates the times, and a rewrite that keeps the compared
//! bytes. Detected too late: a change of pages that wait in a socket's send queue, where a large file is sent without
//! a copy. The connection is reset then, which discards what has not left yet.

use levity_disk::Meta;

/// The maximum of evidence in bytes. It is small, because a slow client holds it for the whole response.
pub const EVIDENCE_BYTES_MAX: usize = 512;

/// The version of a file that a response sends, with evidence to recognise it.
#[derive(Debug)]
pub struct Version {
    /// The metadata that the response header is based on.
    announced: Meta,
    /// The header has a strong ETag.
    has_strong_etag: bool,
    /// The latest metadata with which the file was found to be this version.
    confirmed: Meta,
    /// The last bytes sent.
    evidence: Vec<u8>,
    /// The offset in the file where they end.
    evidence_end: u64,
    /// Bytes were sent of which none are known.
    is_unproven: bool,
}

/// The result of comparing the version with a later `fstat`.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file is the same version.
    Same,
    /// The file has been rewritten.
    Rewritten,
    /// The metadata changed; the evidence has to be compared.
    Unclear,
}

impl Version {
    /// The version with the metadata `announced`.
    pub fn new(announced: Meta, has_strong_etag: bool) -> Self {
        Self {
            announced,
            has_strong_etag,
            confirmed: announced,
            evidence: Vec::new(),
            evidence_end: 0,
            is_unproven: false,
        }
    }

    /// The latest metadata with which the file was found to be this version.
    pub fn confirmed(&self) -> Meta {
        self.confirmed
    }

    /// Compares the version with `now`, the result of `fstat` after a read.
    pub fn judge(&self, now: &Meta) -> Verdict {
        if now.same_version(&self.confirmed) || self.is_earlier(now) {
            Verdict::Same
        } else if now.size < self.confirmed.size {
            Verdict::Rewritten
        } else {
            // The kernel sets the modification time before it raises the size, so an append may look like a rewrite
            // for a moment. The comparison of the evidence decides.
            Verdict::Unclear
        }
    }

    /// Whether `now` is older than `confirmed`: a read that another request started earlier may be shared.
    fn is_earlier(&self, now: &Meta) -> bool {
        let changed = |meta: &Meta| (meta.ctime_s, meta.ctime_ns);
        changed(&self.announced) <= changed(now)
            && changed(now) < changed(&self.confirmed)
            && now.size >= self.announced.size
    }

    /// Compares the evidence after [`Verdict::Unclear`]. `found` are the bytes now at
    /// [`Version::evidence_range`], and `now` is the result of `fstat` after they were read. Returns whether the file
    /// still is this version.
    pub fn confirm(&mut self, found: &[u8], now: &Meta) -> bool {
        let is_same = found == self.evidence && self.may_have_grown_to(now);
        if is_same {
            self.confirmed = *now;
        }
        is_same
    }

    /// Whether the change that [`Version::confirm`] has refused may be an append in progress: the kernel sets the
    /// modification time before it raises the size.
    pub fn may_be_growing(&self, found: &[u8], now: &Meta) -> bool {
        found == self.evidence && now.size == self.confirmed.size
    }

    /// Like [`Version::confirm`], without evidence. Accepts one that only lost a name because it was removed or
    /// replaced. Before any byte was sent, it also accepts a file that only grew, unless a strong ETag excludes that.
    pub fn confirm_without_evidence(&mut self, now: &Meta) -> bool {
        let is_same = match now.size > self.confirmed.size {
            true => !self.has_strong_etag && !self.is_unproven,
            false => now.links < self.confirmed.links && self.may_have_grown_to(now),
        };
        if is_same {
            self.confirmed = *now;
        }
        is_same
    }

    fn may_have_grown_to(&self, now: &Meta) -> bool {
        let modified = |meta: &Meta| (meta.mtime_s, meta.mtime_ns);
        now.size > self.confirmed.size
            || now.size == self.confirmed.size && modified(now) == modified(&self.confirmed)
    }

    /// Keeps the end of `bytes` as evidence, which were read from `offset` of the file.
    pub fn keep_evidence(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = bytes.len().saturating_sub(EVIDENCE_BYTES_MAX);
        self.evidence.clear();
        self.evidence.extend_from_slice(&bytes[start..]);
        self.evidence_end = offset + bytes.len() as u64;
        self.is_unproven = false;
    }

    /// Drops the evidence: bytes were sent since of which no copy was made.
    pub fn drop_evidence(&mut self) {
        self.evidence.clear();
        self.is_unproven = true;
    }

    /// Offset and length of the evidence in the file; `None` if there is none.
    pub fn evidence_range(&self) -> Option<(u64, usize)> {
        let bytes = self.evidence.len();
        (bytes > 0).then(|| (self.evidence_end - bytes as u64, bytes))
    }
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;

    /// The metadata of a file with this size and these times.
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
    fn the_evidence_distinguishes_an_append_from_a_rewrite() {
        for (found, now, is_same) in [
            (&b"sent"[..], meta(101, 11, 11), true),
            (b"sent", meta(100, 10, 11), true),
            (b"tens", meta(101, 11, 11), false),
            (b"sen", meta(101, 11, 11), false),
            (b"tens", meta(100, 10, 11), false),
            (b"sent", meta(100, 11, 11), false),
            (b"sent", meta(99, 11, 11), false),
        ] {
            let mut version = version();
            assert_eq!(version.confirm(found, &now), is_same, "{now:?}");
            let verdict = version.judge(&now);
            assert_eq!(verdict == Verdict::Same, is_same, "{now:?}");
        }
    }

    #[test]
    fn an_append_in_progress_is_distinguished_from_a_rewrite() {
        for (found, now, may_be_growing) in [
            (&b"sent"[..], meta(100, 11, 11), true),
            (b"tens", meta(100, 11, 11), false),
            (b"sent", meta(99, 11, 11), false),
        ] {
            let mut version = version();
            assert!(!version.confirm(found, &now));
            assert_eq!(version.may_be_growing(found, &now), may_be_growing);
        }
    }

    #[test]
    fn an_older_read_is_no_truncation() {
        let mut version = version();
        assert!(version.confirm(b"sent", &meta(150, 20, 20)));
        assert_eq!(version.judge(&meta(120, 15, 15)), Verdict::Same);
        assert_eq!(version.judge(&meta(100, 10, 10)), Verdict::Same);
        assert_eq!(version.judge(&meta(99, 15, 15)), Verdict::Rewritten);
        assert_eq!(version.judge(&meta(120, 21, 21)), Verdict::Rewritten);
    }

    #[test]
    fn the_evidence_is_the_end_of_the_bytes_sent() {
        let mut version = Version::new(meta(10_000, 1, 1), true);
        assert_eq!(version.evidence_range(), None);
        let sent: Vec<u8> = (0..2000_u32).map(|number| number as u8).collect();
        version.keep_evidence(1000, &sent);
        let expected = (3000 - EVIDENCE_BYTES_MAX as u64, EVIDENCE_BYTES_MAX);
        assert_eq!(version.evidence_range(), Some(expected));
        version.keep_evidence(3000, b"more");
        assert_eq!(version.evidence_range(), Some((3000, 4)));
        assert!(version.confirm(b"more", &meta(10_001, 2, 2)));
    }

    #[test]
    fn only_growth_is_accepted_before_the_first_byte() {
        let version = || Version::new(meta(100, 10, 10), false);
        let mut strong = Version::new(meta(100, 10, 10), true);
        assert!(!strong.confirm_without_evidence(&meta(101, 11, 11)));
        assert!(version().confirm_without_evidence(&meta(101, 11, 11)));
        assert!(!version().confirm_without_evidence(&meta(100, 11, 11)));
        assert!(!version().confirm_without_evidence(&meta(100, 10, 11)));
        assert!(!version().confirm_without_evidence(&meta(99, 11, 11)));
    }

    /// Then it cannot be told from a rewrite.
    #[test]
    fn no_growth_is_accepted_after_bytes_that_are_not_known() {
        let mut version = Version::new(meta(100, 10, 10), false);
        version.keep_evidence(0, b"sent");
        version.drop_evidence();
        assert_eq!(version.evidence_range(), None);
        assert!(!version.confirm_without_evidence(&meta(101, 11, 11)));
        assert!(!version.confirm_without_evidence(&meta(100, 10, 11)));
        let replaced = Meta {
            links: 0,
            ..meta(100, 10, 11)
        };
        assert!(version.confirm_without_evidence(&replaced));
        version.keep_evidence(4, b"more");
        assert!(version.confirm(b"more", &meta(101, 12, 12)));
    }

    #[test]
    fn a_file_that_lost_a_name_is_the_same_version() {
        let without_name = |size, mtime, ctime| Meta {
            links: 0,
            ..meta(size, mtime, ctime)
        };
        for has_strong_etag in [true, false] {
            let version = || Version::new(meta(100, 10, 10), has_strong_etag);
            assert!(version().confirm_without_evidence(&without_name(100, 10, 11)));
            assert!(!version().confirm_without_evidence(&without_name(100, 11, 11)));
            assert!(!version().confirm_without_evidence(&without_name(99, 10, 11)));
            let grown = version().confirm_without_evidence(&without_name(101, 11, 11));
            assert_eq!(grown, !has_strong_etag);
        }
    }
}
