//! Precompressed variants: their paths, and which of them a client accepts.

use std::ffi::CString;

use levity_disk::Variants;
use levity_wire::encoding::{Accepted, Coding};

use crate::http::request::Request;

/// The codings of a location in a request's order of preference.
#[derive(Default)]
pub struct Codings {
    /// The accepted codings, best first; then the others.
    pub all: Vec<Coding>,
    /// The number of accepted codings.
    pub preferred: usize,
}

impl Codings {
    /// The codings in `offered` for `request`.
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

    /// The accepted codings, best first.
    pub fn choices(&self) -> &[Coding] {
        &self.all[..self.preferred]
    }

    /// The paths of the variants of `path`.
    pub fn variants(&self, path: &[u8]) -> Variants {
        let beside = |coding: &Coding| CString::new([path, suffix(*coding)].concat());
        Variants {
            // A path with a NUL is never opened.
            paths: self
                .all
                .iter()
                .filter_map(|coding| beside(coding).ok())
                .collect(),
            preferred: self.preferred,
        }
    }
}

/// The suffix that compression tools append to a name.
pub fn suffix(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Zstd => b".zst",
        Coding::Brotli => b".br",
        Coding::Gzip => b".gz",
        Coding::Dcz => b".dcz",
        Coding::Dcb => b".dcb",
    }
}
