//! A control group for the server: a bound on its memory, page cache included, and a meter of its
//! CPU time that counts every thread the kernel runs for it.

use super::journal::{Guard, Journal, Step};
use crate::failure::{Context, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The mount points of the controllers: one for each in version 1, one for all in version 2.
enum Hierarchy {
    One { memory: PathBuf, cpu: PathBuf },
    Two(PathBuf),
}

/// A control group with a memory limit. Dropping it kills its processes and removes it.
pub struct Group {
    hierarchy: Hierarchy,
    _guards: Vec<Guard>,
}

impl Group {
    /// Makes `levity-bench-PID-NAME` with a limit of `memory_bytes_max`.
    ///
    /// # Errors
    /// Not root, or the kernel has no memory controller.
    pub fn create(journal: &Rc<Journal>, name: &str, memory_bytes_max: u64) -> Result<Self> {
        let hierarchy =
            Hierarchy::find()?.child(&format!("levity-bench-{}-{name}", std::process::id()));
        let mut guards = Vec::new();
        for path in hierarchy.paths() {
            guards.push(journal.note(Step::RemoveGroup(path.clone()))?);
            fs::create_dir(&path).context(|| format!("create {}", path.display()))?;
        }
        let (file, limit) = hierarchy.memory_limit(memory_bytes_max);
        fs::write(&file, limit).context(|| format!("write {}", file.display()))?;
        Ok(Self {
            hierarchy,
            _guards: guards,
        })
    }

    /// The directories whose `cgroup.procs` a process must join.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.hierarchy.paths()
    }

    /// The CPU time used by the group so far, in user space and kernel.
    ///
    /// # Errors
    /// The group has been removed.
    pub fn cpu_time(&self) -> Result<Duration> {
        match &self.hierarchy {
            Hierarchy::One { cpu, .. } => Ok(Duration::from_nanos(number(&read(
                &cpu.join("cpuacct.usage"),
            )?)?)),
            Hierarchy::Two(path) => {
                let stat = read(&path.join("cpu.stat"))?;
                let usage = stat
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "));
                Ok(Duration::from_micros(number(usage.unwrap_or_default())?))
            }
        }
    }

    /// All threads of the processes in the group.
    ///
    /// # Errors
    /// The group has been removed.
    pub fn threads(&self) -> Result<Vec<i32>> {
        let path = self
            .paths()
            .swap_remove(0)
            .join(self.hierarchy.threads_file());
        Ok(read(&path)?
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }

    /// The processes in the group.
    ///
    /// # Errors
    /// The group has been removed.
    pub fn processes(&self) -> Result<Vec<i32>> {
        let path = self.paths().swap_remove(0).join("cgroup.procs");
        Ok(read(&path)?
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }
}

impl Hierarchy {
    fn find() -> Result<Self> {
        let mounts = read(Path::new("/proc/self/mounts"))?;
        let controller = |name: &str| mounts.lines().find_map(|line| version_one(line, name));
        if let (Some(memory), Some(cpu)) = (controller("memory"), controller("cpuacct")) {
            return Ok(Self::One { memory, cpu });
        }
        let unified = mounts
            .lines()
            .find_map(version_two)
            .ok_or_else(|| Failure::new("no cgroup file system"))?;
        let control = unified.join("cgroup.subtree_control");
        fs::write(&control, "+memory +cpu").context(|| format!("write {}", control.display()))?;
        Ok(Self::Two(unified))
    }

    fn child(&self, name: &str) -> Self {
        match self {
            Self::One { memory, cpu } => Self::One {
                memory: memory.join(name),
                cpu: cpu.join(name),
            },
            Self::Two(path) => Self::Two(path.join(name)),
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::One { memory, cpu } => vec![memory.clone(), cpu.clone()],
            Self::Two(path) => vec![path.clone()],
        }
    }

    fn threads_file(&self) -> &'static str {
        match self {
            Self::One { .. } => "tasks",
            Self::Two(_) => "cgroup.threads",
        }
    }

    fn memory_limit(&self, bytes: u64) -> (PathBuf, String) {
        let file = match self {
            Self::One { memory, .. } => memory.join("memory.limit_in_bytes"),
            Self::Two(path) => path.join("memory.max"),
        };
        (file, bytes.to_string())
    }
}

fn version_one(line: &str, controller: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let path = fields.nth(1)?;
    let is_it =
        fields.next()? == "cgroup" && fields.next()?.split(',').any(|option| option == controller);
    is_it.then(|| path.into())
}

fn version_two(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let path = fields.nth(1)?;
    (fields.next()? == "cgroup2").then(|| path.into())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).context(|| format!("read {}", path.display()))
}

fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .context(|| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_controllers_in_the_mounts() {
        let line = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0";
        assert_eq!(
            version_one(line, "cpuacct"),
            Some("/sys/fs/cgroup/cpu,cpuacct".into())
        );
        assert_eq!(version_one(line, "memory"), None);
        assert_eq!(
            version_two("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"),
            Some("/sys/fs/cgroup".into())
        );
        assert_eq!(version_two(line), None);
    }
}
