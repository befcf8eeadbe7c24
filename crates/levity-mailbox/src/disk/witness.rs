//! What the database was told last, in a file beside it.
//!
//! After a crash SQLite takes the first wrong page of its write-ahead log for the end of the log, so one flipped byte could
//! undo any number of commits in silence. The witness says how many there were.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"levity 1";

/// The length of the file in bytes: less than a sector, so it is written whole or not at all.
const LEN: usize = 36;

/// What was acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// The number of the last commit.
    pub commits: u64,
    /// The number of the last commit that was synced before it was acknowledged.
    pub synced: u64,
    /// The last epoch that was given to a box.
    pub epoch: u64,
}

/// The file, to which the last commit is written before anybody learns of it. The write is not synced: it has to outlive the
/// process, not the machine.
pub(super) struct Witness(File);

impl Witness {
    /// Opens or makes the file. What it says is `None` if that is not known.
    pub fn open(path: &Path) -> io::Result<(Self, Option<Acknowledged>)> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        let mut bytes = [0; LEN];
        let said = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok((Self(file), said))
    }

    /// Notes what is about to be acknowledged.
    pub fn write(&self, said: Acknowledged) -> io::Result<()> {
        self.0.write_all_at(&format(said), 0)
    }

    /// Syncs what was written, once for a start: an empty witness would make it seem that everything is lost.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// A second reference, to sync it.
    pub fn file(&self) -> io::Result<File> {
        self.0.try_clone()
    }
}

fn format(said: Acknowledged) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let (content, sum) = bytes.split_at_mut(LEN - 4);
    let words = [said.commits, said.synced, said.epoch].map(u64::to_le_bytes);
    content.copy_from_slice(&[*MAGIC, words[0], words[1], words[2]].concat());
    sum.copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; LEN]) -> Option<Acknowledged> {
    let word = |index: usize| {
        let bytes = bytes[8 * index..8 * index + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    let said = Acknowledged {
        commits: word(1),
        synced: word(2),
        epoch: word(3),
    };
    (format(said) == *bytes).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_every_wrong_byte_is_noticed() {
        let said = Acknowledged {
            commits: 7,
            synced: 5,
            epoch: 1 << 60,
        };
        let bytes = format(said);
        assert_eq!(parse(&bytes), Some(said));
        for place in 0..LEN {
            let mut wrong = bytes;
            wrong[place] ^= 1;
            assert_eq!(parse(&wrong), None, "{place}");
        }
    }

    #[test]
    fn a_file_that_is_too_short_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("acknowledged");
        for len in 0..LEN {
            std::fs::write(&path, &format(Acknowledged::default())[..len]).expect("written");
            assert_eq!(Witness::open(&path).expect("opened").1, None, "{len}");
        }
        let (witness, _) = Witness::open(&path).expect("opened");
        witness.write(Acknowledged::default()).expect("written");
        let (_, said) = Witness::open(&path).expect("opened");
        assert_eq!(said, Some(Acknowledged::default()));
    }
}
