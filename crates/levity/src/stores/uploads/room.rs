//! Room beneath a root, in bytes as a quota counts them.
//!
//! A quota bounds what all names count. A file that replaces another one needs room for what it counts more than that: the other one
//! lends it the rest. Until it has made way both take room on the disk, so what is lent is bounded too. Nothing is lent twice, and what
//! has lent may be replaced or removed by others meanwhile: then what it has lent is less, and what all names count as well.

use std::collections::HashMap;

/// What each name counts besides the content of its file, in bytes: about what the entry in its folder and the inode take of the disk.
/// Without it, a quota would not bound the number of files.
pub const NAME_BYTES: u64 = 1024;

/// What a file with so many bytes counts.
pub const fn of_file(bytes: u64) -> u64 {
    bytes.saturating_add(NAME_BYTES)
}

/// There is not enough room within the quota.
#[derive(Debug)]
pub struct Full;

/// A bound on the room.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    /// What all names may count.
    pub bytes: u64,
    /// What files that make way may have lent in all.
    pub lent_bytes_max: u64,
}

/// What a file that is being received has taken of the room, or a part.
#[derive(Debug, Default)]
pub struct Taken {
    bytes: u64,
    /// Of these, what was lent by the file that it replaces.
    lent: u64,
    /// The path of that file, or where it would be.
    replaces: Option<Vec<u8>>,
}

/// A file that will make way, or a name that has none.
#[derive(Debug, Default)]
struct Lender {
    /// What it counts at present, once somebody has looked, or has changed it.
    counts: Option<u64>,
    lent: u64,
    /// How many files want to replace it.
    takers: usize,
}

/// The room beneath a root.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What all names count, as of the last count and what was done since.
    pub(super) used: u64,
    taken: u64,
    lent: u64,
    lenders: HashMap<Vec<u8>, Lender>,
}

impl Room {
    /// Nothing, for a file that may replace the one at `path`.
    pub(super) fn begin(&mut self, path: &[u8]) -> Taken {
        self.lenders.entry(path.to_vec()).or_default().takers += 1;
        Taken {
            replaces: Some(path.to_vec()),
            ..Taken::default()
        }
    }

    /// The file that `taken` replaces was looked at after [`begin`](Self::begin), and counts so much. If it has been changed through
    /// this server meanwhile, more is known already.
    pub(super) fn found(&mut self, taken: &Taken, counts: u64) {
        let path = taken.replaces.as_ref();
        if let Some(lender) = path.and_then(|path| self.lenders.get_mut(path)) {
            lender.counts.get_or_insert(counts);
        }
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// There is less within `quota`, and the file that makes way cannot lend the rest. What was taken before stays so.
    pub(super) fn take(
        &mut self,
        taken: &mut Taken,
        bytes: u64,
        quota: Option<Quota>,
    ) -> Result<(), Full> {
        if let Some(quota) = quota {
            let all = (self.used.saturating_add(self.taken)).saturating_sub(self.lent);
            let all = all.saturating_add(bytes);
            // If there is too much already, that is not made worse.
            let missing = all.saturating_sub(quota.bytes).min(bytes);
            self.lend(taken, missing, quota.lent_bytes_max)?;
        }
        self.taken = self.taken.saturating_add(bytes);
        taken.bytes = taken.bytes.saturating_add(bytes);
        Ok(())
    }

    fn lend(&mut self, taken: &mut Taken, bytes: u64, lent_bytes_max: u64) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let path = taken.replaces.as_ref();
        let lender = path.and_then(|path| self.lenders.get_mut(path));
        let lender = lender.ok_or(Full)?;
        let left = lender.counts.unwrap_or(0).saturating_sub(lender.lent);
        if bytes > left || bytes > lent_bytes_max.saturating_sub(self.lent) {
            return Err(Full);
        }
        lender.lent += bytes;
        taken.lent += bytes;
        self.lent += bytes;
        Ok(())
    }

    /// Gives back all but `bytes`, what was lent first.
    pub(super) fn shrink(&mut self, taken: &mut Taken, bytes: u64) {
        let back = taken.bytes.saturating_sub(bytes);
        self.taken = self.taken.saturating_sub(back);
        taken.bytes -= back;
        let lent = back.min(taken.lent);
        taken.lent -= lent;
        self.repay(taken, lent);
    }

    /// Gives back all.
    pub(super) fn end(&mut self, taken: &Taken) {
        self.taken = self.taken.saturating_sub(taken.bytes);
        self.repay(taken, taken.lent);
        let Some(path) = &taken.replaces else {
            return;
        };
        if let Some(lender) = self.lenders.get_mut(path) {
            lender.takers -= 1;
            if lender.takers == 0 {
                self.lenders.remove(path);
            }
        }
    }

    fn repay(&mut self, taken: &Taken, bytes: u64) {
        let path = taken.replaces.as_ref();
        if let Some(lender) = path.and_then(|path| self.lenders.get_mut(path)) {
            // Less is left of it if the lender was changed.
            let repaid = bytes.min(lender.lent);
            lender.lent -= repaid;
            self.lent -= repaid;
        }
    }

    /// The file of `taken` has got the name `path` and counts `now`; before, that counted `before`.
    pub(super) fn named(&mut self, path: &[u8], taken: &Taken, before: u64, now: u64) {
        // What was lent to it first: the rest is what its successor lends to others.
        self.end(taken);
        self.changed(path, before, now);
    }

    /// What the name `path` counts has changed.
    pub(super) fn changed(&mut self, path: &[u8], before: u64, now: u64) {
        self.used = self.used.saturating_add(now).saturating_sub(before);
        if let Some(lender) = self.lenders.get_mut(path) {
            lender.counts = Some(now);
            let too_much = lender.lent.saturating_sub(now);
            lender.lent -= too_much;
            self.lent -= too_much;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota {
        bytes: 100,
        lent_bytes_max: 40,
    };

    /// A room in which the file `a` counts 60 and others 40.
    fn full() -> Room {
        Room {
            used: 100,
            ..Room::default()
        }
    }

    fn replacing(room: &mut Room, bytes: u64) -> Result<Taken, Full> {
        let mut taken = room.begin(b"a");
        room.found(&taken, 60);
        match room.take(&mut taken, bytes, Some(QUOTA)) {
            Ok(()) => Ok(taken),
            Err(Full) => {
                room.end(&taken);
                Err(Full)
            }
        }
    }

    #[test]
    fn a_file_that_makes_way_lends_its_room_once() {
        let mut room = full();
        let mut other = room.begin(b"b");
        assert!(room.take(&mut other, 1, Some(QUOTA)).is_err());
        let first = replacing(&mut room, 30).expect("60 make way");
        assert!(replacing(&mut room, 11).is_err(), "40 may be lent in all");
        let second = replacing(&mut room, 10).expect("30 are left");
        room.named(b"a", &first, 60, 30);
        assert!(room.take(&mut other, 31, Some(QUOTA)).is_err());
        room.take(&mut other, 30, Some(QUOTA)).expect("room");
        room.named(b"a", &second, 30, 10);
        assert_eq!((room.used, room.taken, room.lent), (50, 30, 0));
        room.end(&other);
        assert!(room.lenders.is_empty());
    }

    #[test]
    fn a_quota_that_is_exceeded_lets_files_become_smaller() {
        let mut room = full();
        room.used = 500;
        assert!(replacing(&mut room, 41).is_err());
        let taken = replacing(&mut room, 40).expect("60 make way");
        room.named(b"a", &taken, 60, 40);
        assert_eq!(room.used, 480);
    }

    #[test]
    fn what_has_changed_since_it_was_looked_at_lends_no_more_than_it_has() {
        let mut room = full();
        let mut taken = room.begin(b"a");
        // Others have replaced it between the look and what it has found.
        room.changed(b"a", 60, 5);
        room.found(&taken, 60);
        room.used = 100;
        assert!(room.take(&mut taken, 6, Some(QUOTA)).is_err());
        assert!(room.take(&mut taken, 5, Some(QUOTA)).is_ok());
    }

    /// Whatever becomes of files, all that have names are within the quota, and there is no more on the disk than may be lent besides.
    #[test]
    fn no_order_of_events_exceeds_the_bounds() {
        for seed in 1..=50 {
            let mut random = random(seed);
            let mut next = move |below: usize| random() as usize % below;
            let (mut room, mut names) = (Room::default(), [0; 3]);
            let mut incoming: Vec<(usize, Taken)> = Vec::new();
            for _ in 0..2000 {
                let path = next(names.len());
                let name = [path as u8];
                match next(6) {
                    0 => {
                        let taken = room.begin(&name);
                        room.found(&taken, names[path]);
                        incoming.push((path, taken));
                    }
                    1 => {
                        room.changed(&name, names[path], 0);
                        names[path] = 0;
                    }
                    event if !incoming.is_empty() => {
                        let index = next(incoming.len());
                        let (path, taken) = &mut incoming[index];
                        let path = *path;
                        match event {
                            2 | 3 => drop(room.take(taken, next(60) as u64, Some(QUOTA))),
                            4 => room.shrink(taken, next(60) as u64),
                            _ => {
                                let (_, taken) = incoming.swap_remove(index);
                                match next(2) {
                                    0 => {
                                        let now = next(taken.bytes as usize + 1) as u64;
                                        room.named(&[path as u8], &taken, names[path], now);
                                        names[path] = now;
                                    }
                                    _ => room.end(&taken),
                                }
                            }
                        }
                    }
                    _ => {}
                }
                let named: u64 = names.iter().sum();
                let received: u64 = incoming.iter().map(|(_, taken)| taken.bytes).sum();
                assert_eq!((room.used, room.taken), (named, received));
                assert!(named <= QUOTA.bytes, "{seed}: {names:?}");
                assert!(named + received <= QUOTA.bytes + QUOTA.lent_bytes_max);
            }
        }
    }

    /// Random numbers (xorshift).
    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 8
        }
    }
}
