//! The names of the files in the store.

use std::ffi::CString;

use levity_disk::Meta;
use levity_wire::dictionary::Digest;
use levity_wire::encoding::Coding;
use sha2::{Digest as _, Sha256};

/// Part of the names of coded content. To be changed with the settings of the encoders, so that older variants are not
/// found.
const FORMAT: &[u8] = b"2";

/// Starts the cache keys of variants. The number of a location is never this one.
const KEY_PREFIX: [u8; 8] = [0xff; 8];

/// The end of the file names of dictionaries.
const DICTIONARY_SUFFIX: &str = "dict";

/// 128 bits that depend on what a file was made from and on its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(u128);

/// A path of a site, whatever version of a file is there: 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource(u128);

impl Resource {
    /// The file at `path` beneath the folder `root`.
    pub fn of(root: &[u8], path: &[u8]) -> Self {
        Self(hash(&[b"resource", root, path]))
    }
}

impl Name {
    /// The name of a variant of the file with this metadata.
    pub fn of(original: &Meta, coding: Coding) -> Self {
        let coding = coding.name().as_bytes();
        Self(hash(&[FORMAT, coding, &version(original)]))
    }

    /// The name of the delta of a file from `dictionary`.
    pub fn of_delta(original: &Meta, coding: Coding, dictionary: Digest) -> Self {
        let coding = coding.name().as_bytes();
        Self(hash(&[FORMAT, coding, &version(original), &dictionary.0]))
    }

    /// The name of the content of a file as a dictionary for later versions of `resource`.
    pub fn of_dictionary(original: &Meta, resource: Resource) -> Self {
        let resource = resource.0.to_le_bytes();
        Self(hash(&[b"dictionary", &version(original), &resource]))
    }

    /// The other name of the same dictionary, which tells its content.
    pub fn of_digest(resource: Resource, dictionary: Digest) -> Self {
        let resource = resource.0.to_le_bytes();
        Self(hash(&[b"digest", &resource, &dictionary.0]))
    }

    /// A name of no file.
    #[cfg(test)]
    pub fn for_test(number: u128) -> Self {
        Self(number)
    }

    /// The key in the cache of files. An original may have several names, and so several media types.
    pub fn cache_key(self, content_type: &[u8]) -> Vec<u8> {
        [&KEY_PREFIX[..], &self.0.to_le_bytes(), content_type].concat()
    }
}

/// What distinguishes versions of a file: the inode, and the change time that no program can set, differ between
/// versions of the same size and modification time.
fn version(meta: &Meta) -> [u8; 48] {
    let mut version = [0; 48];
    let times = [meta.mtime_s, meta.ctime_s].map(|seconds| seconds as u64);
    let nanoseconds = u64::from(meta.mtime_ns) << 32 | u64::from(meta.ctime_ns);
    let words = [
        meta.device,
        meta.inode,
        meta.size,
        times[0],
        times[1],
        nanoseconds,
    ];
    for (bytes, word) in version.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    version
}

/// The same in every version of the program and of its compiler: a dictionary cannot be made again.
fn hash(parts: &[&[u8]]) -> u128 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let (start, _) = digest.split_at(16);
    u128::from_le_bytes(start.try_into().expect("16 bytes"))
}

/// A file of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: Name,
    /// What is in it.
    pub kind: Kind,
}

/// What a file of the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Content in a coding.
    Coded(Coding),
    /// Content as it is, for deltas of later versions. Here is its [`Name::of_digest`].
    Dictionary(Name),
}

impl Stored {
    /// The name in the folder: 32 hexadecimal digits, a dot, and the coding; for a dictionary both of its names.
    pub fn file_name(self) -> String {
        let Self { name, kind } = self;
        match kind {
            Kind::Coded(coding) => format!("{:032x}.{}", name.0, coding.name()),
            Kind::Dictionary(digest) => {
                format!("{:032x}-{:032x}.{DICTIONARY_SUFFIX}", name.0, digest.0)
            }
        }
    }

    /// The same as a path.
    pub fn path(self) -> CString {
        CString::new(self.file_name()).expect("no zero byte in it")
    }

    /// The file that is called `file_name` in the folder; `None` if it is not of the store.
    pub fn parse(file_name: &str) -> Option<Self> {
        let number = |digits| u128::from_str_radix(digits, 16).ok().map(Name);
        let (digits, suffix) = file_name.split_once('.')?;
        let (digits, kind) = match digits.split_once('-') {
            Some((digits, digest)) => (digits, Kind::Dictionary(number(digest)?)),
            None => {
                let mut codings = Coding::ALL.into_iter().chain(Coding::WITH_DICTIONARY);
                let coding = codings.find(|coding| coding.name() == suffix)?;
                (digits, Kind::Coded(coding))
            }
        };
        let name = number(digits)?;
        let stored = Self { name, kind };
        (stored.file_name() == file_name).then_some(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use levity_disk::Kind as FileKind;

    use super::*;

    const META: Meta = Meta {
        kind: FileKind::Regular,
        device: 1,
        inode: 2,
        size: 3,
        mtime_s: 4,
        mtime_ns: 5,
        ctime_s: 6,
        ctime_ns: 7,
        links: 1,
    };

    #[test]
    fn each_version_and_coding_has_a_name() {
        let others = [
            Meta { device: 0, ..META },
            Meta { inode: 0, ..META },
            Meta { size: 0, ..META },
            Meta { mtime_s: 0, ..META },
            Meta {
                mtime_ns: 0,
                ..META
            },
            Meta { ctime_s: 0, ..META },
            Meta {
                ctime_ns: 0,
                ..META
            },
        ];
        let name = Name::of(&META, Coding::Brotli);
        for other in others {
            assert_ne!(Name::of(&other, Coding::Brotli), name, "{other:?}");
        }
        assert_ne!(Name::of(&META, Coding::Zstd), name);
        assert_eq!(Name::of(&Meta { links: 9, ..META }, Coding::Brotli), name);
    }

    #[test]
    fn each_dictionary_has_names() {
        let (resource, other) = (Resource::of(b"/a", b"b"), Resource::of(b"/a", b"c"));
        assert_ne!(resource, Resource::of(b"/ab", b""));
        let digests = [Digest([1; 32]), Digest([2; 32])];
        let names = [
            Name::of(&META, Coding::Dcz),
            Name::of_delta(&META, Coding::Dcz, digests[0]),
            Name::of_delta(&META, Coding::Dcz, digests[1]),
            Name::of_delta(&META, Coding::Dcb, digests[0]),
            Name::of_dictionary(&META, resource),
            Name::of_dictionary(&META, other),
            Name::of_digest(resource, digests[0]),
            Name::of_digest(resource, digests[1]),
            Name::of_digest(other, digests[0]),
        ];
        let distinct: HashSet<Name> = names.into_iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn names_are_read_back_and_others_are_not() {
        let codings = Coding::ALL.into_iter().chain(Coding::WITH_DICTIONARY);
        for kind in codings
            .map(Kind::Coded)
            .chain([Kind::Dictionary(Name(u128::MAX))])
        {
            let stored = Stored {
                name: Name::of(&META, Coding::Brotli),
                kind,
            };
            assert_eq!(Stored::parse(&stored.file_name()), Some(stored));
        }
        let digits = "0123456789abcdef".repeat(2);
        assert!(Stored::parse(&format!("{digits}.br")).is_some());
        assert!(Stored::parse(&format!("{digits}-{digits}.dict")).is_some());
        for other in [
            "",
            ".br",
            "a.br",
            &digits,
            &format!("{digits}."),
            &format!("{digits}.txt"),
            &format!("{digits}.br.br"),
            &format!("{digits}.dict"),
            &format!("{digits}-{digits}.br"),
            &format!("{digits}-{digits}-{digits}.dict"),
            &format!("{digits}-.dict"),
            &format!("-{digits}.dict"),
            &format!("0{digits}.br"),
            &format!("+{}.br", &digits[1..]),
            &format!("{}.br", digits.to_uppercase()),
        ] {
            assert_eq!(Stored::parse(other), None, "{other}");
        }
    }
}
