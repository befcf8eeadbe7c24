//! The names of variants.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};

use levity_disk::Meta;
use levity_wire::encoding::Coding;

/// Part of each name. To be changed with the settings of the encoders, so that older variants are not found.
const FORMAT: u32 = 1;

/// Starts the cache keys of variants. The number of a location is never this one.
const KEY_PREFIX: [u8; 8] = [0xff; 8];

/// A name: 128 bits that depend on the version of the original and on the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(u128);

impl Name {
    /// The name of a variant of the file with this metadata. The inode, and the change time that no program can set,
    /// distinguish versions of the same size and modification time.
    pub fn of(original: &Meta, coding: Coding) -> Self {
        let half = |seed: u32| {
            let mut hasher = DefaultHasher::new();
            (FORMAT, seed, coding.name()).hash(&mut hasher);
            (original.device, original.inode, original.size).hash(&mut hasher);
            (original.mtime_s, original.mtime_ns).hash(&mut hasher);
            (original.ctime_s, original.ctime_ns).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self(half(0) << 64 | half(1))
    }

    #[cfg(test)]
    pub fn for_test(number: u128) -> Self {
        Self(number)
    }

    /// The name in the folder: 32 hexadecimal digits, a dot, and the coding.
    pub fn file_name(self, coding: Coding) -> String {
        format!("{:032x}.{}", self.0, coding.name())
    }

    /// The same as a path.
    pub fn path(self, coding: Coding) -> CString {
        CString::new(self.file_name(coding)).expect("no zero byte in it")
    }

    /// The name and coding of a file in the folder; `None` if it is no variant.
    pub fn parse(file_name: &str) -> Option<(Self, Coding)> {
        let (digits, coding) = file_name.split_once('.')?;
        let coding = Coding::ALL
            .into_iter()
            .find(|known| known.name() == coding)?;
        let number = u128::from_str_radix(digits, 16).ok()?;
        let name = Self(number);
        (name.file_name(coding) == file_name).then_some((name, coding))
    }

    /// The key in the cache of files. An original may have several names, and so several media types.
    pub fn cache_key(self, content_type: &[u8]) -> Vec<u8> {
        [&KEY_PREFIX[..], &self.0.to_le_bytes(), content_type].concat()
    }
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;

    const META: Meta = Meta {
        kind: Kind::Regular,
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
    fn names_are_read_back_and_others_are_not() {
        for coding in Coding::ALL {
            let name = Name::of(&META, coding);
            assert_eq!(Name::parse(&name.file_name(coding)), Some((name, coding)));
        }
        let digits = "0123456789abcdef".repeat(2);
        assert!(Name::parse(&format!("{digits}.br")).is_some());
        for other in [
            "",
            ".br",
            "a.br",
            &digits,
            &format!("{digits}."),
            &format!("{digits}.txt"),
            &format!("{digits}.br.br"),
            &format!("0{digits}.br"),
            &format!("+{}.br", &digits[1..]),
            &format!("{}.br", digits.to_uppercase()),
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
