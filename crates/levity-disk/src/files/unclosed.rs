//! How many files of each device wait to be closed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The maximum number of devices that are counted one by one. Further ones are counted as one.
const DEVICES_MAX: usize = 64;

/// In place of a device; none has this number.
const FREE: u64 = u64::MAX;

/// The numbers of files, by device. Takes no lock. Entries are never removed.
#[derive(Debug)]
pub(super) struct Unclosed {
    devices: [Count; DEVICES_MAX],
    others: AtomicUsize,
}

#[derive(Debug)]
struct Count {
    device: AtomicU64,
    files: AtomicUsize,
}

impl Count {
    const fn free() -> Count {
        Count {
            device: AtomicU64::new(FREE),
            files: AtomicUsize::new(0),
        }
    }

    /// Whether it is that of `device`, or becomes it now.
    fn claim(&self, device: u64) -> bool {
        let order = Ordering::Relaxed;
        match self.device.load(order) {
            FREE => {
                let claimed = self.device.compare_exchange(FREE, device, order, order);
                claimed.is_ok() || claimed == Err(device)
            }
            taken => taken == device,
        }
    }
}

impl Unclosed {
    pub(super) const fn new() -> Unclosed {
        Unclosed {
            devices: [const { Count::free() }; DEVICES_MAX],
            others: AtomicUsize::new(0),
        }
    }

    /// One more file of `device` waits.
    pub(super) fn add(&self, device: u64) {
        self.of(device).fetch_add(1, Ordering::SeqCst);
    }

    /// `files` files of `device` were closed.
    pub(super) fn subtract(&self, device: u64, files: usize) {
        self.of(device).fetch_sub(files, Ordering::SeqCst);
    }

    /// The files of `device`, or of all that are counted as one with it.
    pub(super) fn files(&self, device: u64) -> usize {
        self.of(device).load(Ordering::Relaxed)
    }

    /// The files of all devices.
    pub(super) fn total(&self) -> usize {
        let counts = self.devices.iter().map(|count| &count.files);
        let counts = counts.chain([&self.others]);
        counts.map(|files| files.load(Ordering::SeqCst)).sum()
    }

    fn of(&self, device: u64) -> &AtomicUsize {
        let own = self.devices.iter().find(|count| count.claim(device));
        own.map_or(&self.others, |count| &count.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_counted() {
        let unclosed = Unclosed::new();
        [7, 8, 7].iter().for_each(|device| unclosed.add(*device));
        assert_eq!([7, 8, 9].map(|device| unclosed.files(device)), [2, 1, 0]);
        unclosed.subtract(7, 2);
        assert_eq!((unclosed.files(7), unclosed.total()), (0, 1));
    }

    #[test]
    fn devices_beyond_the_list_are_counted_as_one() {
        let unclosed = Unclosed::new();
        let last = DEVICES_MAX as u64 + 1;
        (0..=last).for_each(|device| unclosed.add(device));
        assert_eq!((unclosed.files(0), unclosed.files(last)), (1, 2));
        assert_eq!(unclosed.total(), DEVICES_MAX + 2);
        unclosed.subtract(last, 1);
        unclosed.subtract(0, 1);
        assert_eq!((unclosed.files(0), unclosed.files(last - 1)), (0, 1));
    }
}
