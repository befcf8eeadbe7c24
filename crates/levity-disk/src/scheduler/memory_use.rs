//! Whether memory is short: before long a page that enters the page cache takes the place of another.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::control_groups;
use crate::thread::lock;

/// Memory becomes short when less than one part in so many is free.
const SHORT_PART: u64 = 10;

/// It is short until one part in so many is free. What is in flight between disk and clients counts as used: with one
/// bound, each time that much of it left at once, the reads that follow would go through the page cache.
const ENOUGH_PART: u64 = 5;

/// The memory of the machine and of the control groups of this process, page cache included.
#[derive(Debug)]
pub(super) struct MemoryUse {
    is_short: AtomicBool,
    sources: Mutex<Sources>,
}

/// What has memory of its own, and whether each was short at the last look.
#[derive(Debug, Default)]
struct Sources {
    machine: Shortage,
    groups: Vec<(Group, Shortage)>,
}

#[derive(Debug, Default)]
struct Shortage(bool);

/// The files with the use and the limits of a group, in bytes.
#[derive(Debug)]
struct Group {
    used: PathBuf,
    /// The lowest holds.
    limits: Vec<PathBuf>,
}

/// Amounts of memory, both in the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    free: u64,
    total: u64,
}

impl MemoryUse {
    /// Blocks, as [`MemoryUse::refresh`].
    pub(super) fn of_process() -> MemoryUse {
        let folders = control_groups::of_process("memory");
        let groups = folders.iter().filter_map(|path| Group::of(path));
        let memory = MemoryUse::of(groups);
        memory.refresh();
        memory
    }

    fn of(groups: impl Iterator<Item = Group>) -> MemoryUse {
        MemoryUse {
            is_short: AtomicBool::new(false),
            sources: Mutex::new(Sources {
                machine: Shortage::default(),
                groups: groups.map(|group| (group, Shortage::default())).collect(),
            }),
        }
    }

    /// Without a look at the process.
    #[cfg(test)]
    pub(super) fn for_test(is_short: bool) -> MemoryUse {
        MemoryUse {
            is_short: AtomicBool::new(is_short),
            sources: Mutex::default(),
        }
    }

    /// Whether memory was short at the last [refresh](MemoryUse::refresh).
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Reads files below `/proc` and `/sys/fs/cgroup`: not for event loops.
    pub(super) fn refresh(&self) {
        let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        self.look(of_machine(&machine));
    }

    fn look(&self, machine: Option<Memory>) {
        let mut sources = lock(&self.sources);
        let mut is_short = sources.machine.look(machine);
        for (group, shortage) in &mut sources.groups {
            is_short |= shortage.look(group.memory());
        }
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}

impl Shortage {
    fn look(&mut self, memory: Option<Memory>) -> bool {
        let part = match self.0 {
            true => ENOUGH_PART,
            false => SHORT_PART,
        };
        self.0 = memory.is_some_and(|memory| memory.free < memory.total / part);
        self.0
    }
}

impl Group {
    /// `None` if the folder has no such files: the first group of version 2 has none.
    fn of(folder: &Path) -> Option<Group> {
        let names: [(&str, &[&str]); 2] = [
            // From `memory.high` on the kernel takes pages back.
            ("memory.current", &["memory.high", "memory.max"]),
            ("memory.usage_in_bytes", &["memory.limit_in_bytes"]),
        ];
        let groups = names.map(|(used, limits)| Group {
            used: folder.join(used),
            limits: limits.iter().map(|limit| folder.join(limit)).collect(),
        });
        groups.into_iter().find(|group| group.used.exists())
    }

    /// A group without a limit has `max` (version 2) or more bytes than a machine has.
    fn memory(&self) -> Option<Memory> {
        let bytes = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let limits = self.limits.iter().filter_map(|limit| bytes(limit));
        let (used, total) = (bytes(&self.used)?, limits.min()?);
        Some(Memory {
            free: total.saturating_sub(used),
            total,
        })
    }
}

/// `meminfo` is the text of `/proc/meminfo`. `None` if it lacks a figure.
fn of_machine(meminfo: &str) -> Option<Memory> {
    let kilobytes = |name: &str| {
        let mut lines = meminfo.lines();
        let value = lines.find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(Memory {
        free: kilobytes("MemFree:")?,
        total: kilobytes("MemTotal:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine() {
        let text = "MemTotal:  1000 kB\nMemFree:   99 kB\nMemAvailable: 900 kB\n";
        let (free, total) = (99, 1000);
        assert_eq!(of_machine(text), Some(Memory { free, total }));
        assert_eq!(of_machine("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn it_is_short_from_a_tenth_and_until_a_fifth_is_free() {
        let memory = MemoryUse::for_test(false);
        let looks = [100, 99, 199, 200, 199, 100].map(|free| {
            memory.look(Some(Memory { free, total: 1000 }));
            memory.is_short()
        });
        assert_eq!(looks, [false, true, true, false, false, false]);
    }

    #[test]
    fn a_group_of_either_version_has_a_limit() {
        for (used, limit) in [
            ("memory.current", "memory.max"),
            ("memory.current", "memory.high"),
            ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            assert!(Group::of(folder.path()).is_none());
            let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
            write(used, "901\n");
            for (text, expected) in [
                ("1000\n", Some((99, 1000))),
                ("max\n", None),
                // Lowered below what is in use.
                ("10\n", Some((0, 10))),
            ] {
                write(limit, text);
                let found = Group::of(folder.path()).unwrap().memory();
                assert_eq!(found.map(|found| (found.free, found.total)), expected);
            }
        }
    }

    /// One does not keep another short.
    #[test]
    fn one_that_is_short_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "1000");
        write("memory.current", "950");
        let memory = MemoryUse::of(Group::of(folder.path()).into_iter());
        let (free, total) = (150, 1000);
        memory.look(Some(Memory { free, total }));
        assert!(memory.is_short());
        write("memory.current", "700");
        memory.look(Some(Memory { free, total }));
        assert!(!memory.is_short());
    }
}
