//! Files that are kept compressed beside themselves: where, and which of them a client wants.

use std::ffi::CString;

use levity_disk::Variants;
use levity_wire::encoding::{Accepted, Coding};

use crate::http::request::Request;

/// The codings of a location, as one request wants them.
#[derive(Default)]
pub struct Codings {
    /// Those that go before the file itself, the best first; then the others.
    pub all: Vec<Coding>,
    /// How many go before it.
    pub preferred: usize,
}

impl Codings {
    /// What `request` accepts of the codings that are `offered`.
    pub fn of(offered: &[Coding], request: &Request) -> Self {
        if offered.is_empty() {
            return Self::default();
        }
        let mut all = Accepted::parse(request.headers_named("accept-encoding")).choices(offered);
        let preferred = all.len();
        for &coding in offered {
            if !all[..preferred].contains(&coding) {
                all.push(coding);
            }
        }
        Self { all, preferred }
    }

    /// Those that go before the file itself, the best first.
    pub fn choices(&self) -> &[Coding] {
        &self.all[..self.preferred]
    }

    /// Where the variants of `path` would be.
    pub fn variants(&self, path: &[u8]) -> Variants {
        let beside = |coding: &Coding| CString::new([path, suffix(*coding)].concat());
        Variants {
            // A path with a NUL in it is not opened at all.
            paths: self
                .all
                .iter()
                .filter_map(|coding| beside(coding).ok())
                .collect(),
            preferred: self.preferred,
        }
    }
}

/// What the tools that compress append to a name.
fn suffix(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Zstd => b".zst",
        Coding::Brotli => b".br",
        Coding::Gzip => b".gz",
    }
}
