//! Precompressed variants: their paths, and which of them a client accepts.

use std::ffi::CString;
use std::iter;

use levity_disk::Variants;
use levity_wire::encoding::{Accepted, Coding};

use crate::message::request::Request;

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

/// How many codings of a form are looked at: nobody sends what is compressed more often, and a name may have thousands of
/// suffixes.
const FORMS_MAX: usize = 2;

/// The files that `name` would be a compressed form of, each with the coding: of `a.gz.br` they are `a.gz` and `a`.
pub fn originals(name: &[u8]) -> impl Iterator<Item = (&[u8], Coding)> {
    let first = original(name);
    iter::successors(first, |&(name, _)| original(name)).take(FORMS_MAX)
}

fn original(name: &[u8]) -> Option<(&[u8], Coding)> {
    let codings = [Coding::Gzip, Coding::Brotli, Coding::Zstd];
    codings.into_iter().find_map(|coding| {
        let original = name.strip_suffix(suffix(coding))?;
        let is_name = original.last().is_some_and(|&byte| byte != b'/');
        is_name.then_some((original, coding))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_of_compressed_forms() {
        for (name, expected) in [
            ("/a.gz", &["/a"][..]),
            ("/a/b.json.br", &["/a/b.json"]),
            ("/a.gz.br", &["/a.gz", "/a"]),
            ("/a.gz.gz.gz", &["/a.gz.gz", "/a.gz"]),
            ("/.gz", &[]),
            ("/a/.br", &[]),
            ("/a", &[]),
            ("/a.gz/", &[]),
        ] {
            let names: Vec<_> = originals(name.as_bytes()).map(|(name, _)| name).collect();
            let expected: Vec<_> = expected.iter().map(|name| name.as_bytes()).collect();
            assert_eq!(names, expected, "{name}");
        }
    }
}
