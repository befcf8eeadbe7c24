//! Whether memory is short: before long a page that enters the page cache takes the place of another.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::control_groups;
use crate::thread::lock;

/// Memory is short while less than one part in so many is free.
const FREE_PART: u64 = 10;

/// The memory of the machine and of the control groups of this process, page cache included.
#[derive(Debug)]
pub(super) struct MemoryUse {
    is_short: AtomicBool,
    groups: Mutex<Vec<Group>>,
}

/// The files with the use and the limits of a group, in bytes.
#[derive(Debug)]
struct Group {
    used: PathBuf,
    /// The lowest holds.
    limits: Vec<PathBuf>,
}

impl MemoryUse {
    /// Blocks, as [`MemoryUse::refresh`].
    pub(super) fn of_process() -> MemoryUse {
        let folders = control_groups::of_process("memory");
        let memory = MemoryUse {
            is_short: AtomicBool::new(false),
            groups: Mutex::new(folders.iter().filter_map(|path| Group::of(path)).collect()),
        };
        memory.refresh();
        memory
    }

    /// Without a look at the process.
    #[cfg(test)]
    pub(super) fn for_test(is_short: bool) -> MemoryUse {
        MemoryUse {
            is_short: AtomicBool::new(is_short),
            groups: Mutex::default(),
        }
    }

    /// Whether memory was short at the last [refresh](MemoryUse::refresh).
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Reads files below `/proc` and `/sys/fs/cgroup`: not for event loops.
    pub(super) fn refresh(&self) {
        let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let mut is_short = is_machine_short(&machine).unwrap_or(false);
        is_short |= lock(&self.groups).iter().any(Group::is_short);
        self.is_short.store(is_short, Ordering::Relaxed);
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
    fn is_short(&self) -> bool {
        let bytes = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let limits = self.limits.iter().filter_map(|limit| bytes(limit));
        let (used, limit) = (bytes(&self.used), limits.min());
        used.zip(limit)
            .is_some_and(|(used, limit)| is_short(limit.saturating_sub(used), limit))
    }
}

/// `meminfo` is the text of `/proc/meminfo`. `None` if it lacks a figure.
fn is_machine_short(meminfo: &str) -> Option<bool> {
    let kilobytes = |name: &str| {
        let mut lines = meminfo.lines();
        let value = lines.find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(is_short(kilobytes("MemFree:")?, kilobytes("MemTotal:")?))
}

fn is_short(free: u64, total: u64) -> bool {
    free < total / FREE_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_tenth_is_short() {
        let short = |free: u64| {
            let text = format!("MemTotal:  1000 kB\nMemFree:   {free} kB\nMemAvailable: 900 kB\n");
            is_machine_short(&text)
        };
        assert_eq!((short(99), short(100)), (Some(true), Some(false)));
        assert_eq!(is_machine_short("MemTotal: 1000 kB\n"), None);
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
            for (text, is_short) in [
                ("1000\n", true),
                ("2000\n", false),
                ("max\n", false),
                ("9223372036854771712\n", false),
                // Lowered below what is in use.
                ("10\n", true),
            ] {
                write(limit, text);
                assert_eq!(Group::of(folder.path()).unwrap().is_short(), is_short);
            }
        }
    }
}
