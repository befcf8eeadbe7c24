//! A control group for the server: a bound on its memory, page cache included, and on its CPU time, and a meter of
//! its CPU time that counts every thread the kernel runs for it.

use super::journal::{Guard, Journal, Step};
use crate::failure::{Context, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The mount points of the controllers: one for each in version 1, one for all in version 2.
enum Hierarchy {
    One {
        memory: PathBuf,
        accounting: PathBuf,
        quota: PathBuf,
    },
    Two(PathBuf),
}

/// The period of a quota of CPU time, the kernel's default.
const PERIOD: Duration = Duration::from_millis(100);

/// The limits of a group.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory with page cache.
    pub memory_bytes_max: u64,
    /// CPU seconds per second; None for no limit.
    pub processors_max: Option<f64>,
}

/// CPU time of a group. The kernel counts the total; it only samples, at each timer tick, which part of it was spent
/// in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// In user space and in the kernel.
    pub total: Duration,
    /// In user space.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuUsage {
    /// The growth since `before`: the exact total, divided as the samples are.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let total = self.total.saturating_sub(before.total);
        let [user, system] = [
            self.user.saturating_sub(before.user),
            self.system.saturating_sub(before.system),
        ];
        let share = user.as_secs_f64() / (user + system).as_secs_f64().max(f64::MIN_POSITIVE);
        let user = total.mul_f64(share);
        Self {
            total,
            user,
            system: total.saturating_sub(user),
        }
    }
}

/// A control group with limits. Dropping it kills its processes and removes it.
pub struct Group {
    hierarchy: Hierarchy,
    _guards: Vec<Guard>,
}

impl Group {
    /// Makes `levity-bench-PID-NAME`.
    ///
    /// # Errors
    /// Not root, or the kernel lacks a controller.
    pub fn create(journal: &Rc<Journal>, name: &str, limits: Limits) -> Result<Self> {
        let hierarchy =
            Hierarchy::find()?.child(&format!("levity-bench-{}-{name}", std::process::id()));
        let mut guards = Vec::new();
        for path in hierarchy.paths() {
            guards.push(journal.note(Step::RemoveGroup(path.clone()))?);
            fs::create_dir(&path).context(|| format!("create {}", path.display()))?;
        }
        for (file, limit) in hierarchy.settings(limits) {
            fs::write(&file, limit).context(|| format!("write {}", file.display()))?;
        }
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
        Ok(self.cpu_usage()?.total)
    }

    /// The same, divided into user space and kernel.
    ///
    /// # Errors
    /// The group has been removed.
    pub fn cpu_usage(&self) -> Result<CpuUsage> {
        match &self.hierarchy {
            Hierarchy::One { accounting, .. } => {
                let of = |file: &str| {
                    Ok(Duration::from_nanos(number(&read(
                        &accounting.join(file),
                    )?)?))
                };
                Ok(CpuUsage {
                    total: of("cpuacct.usage")?,
                    user: of("cpuacct.usage_user")?,
                    system: of("cpuacct.usage_sys")?,
                })
            }
            Hierarchy::Two(path) => usage_of_version_two(&read(&path.join("cpu.stat"))?),
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
        if let (Some(memory), Some(accounting), Some(quota)) = (
            controller("memory"),
            controller("cpuacct"),
            controller("cpu"),
        ) {
            return Ok(Self::One {
                memory,
                accounting,
                quota,
            });
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
            Self::One {
                memory,
                accounting,
                quota,
            } => Self::One {
                memory: memory.join(name),
                accounting: accounting.join(name),
                quota: quota.join(name),
            },
            Self::Two(path) => Self::Two(path.join(name)),
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::One {
                memory,
                accounting,
                quota,
            } => {
                let mut paths = vec![memory.clone(), accounting.clone(), quota.clone()];
                // The controllers may share a mount point.
                paths.dedup();
                paths
            }
            Self::Two(path) => vec![path.clone()],
        }
    }

    fn threads_file(&self) -> &'static str {
        match self {
            Self::One { .. } => "tasks",
            Self::Two(_) => "cgroup.threads",
        }
    }

    /// The files to write, and their contents.
    fn settings(&self, limits: Limits) -> Vec<(PathBuf, String)> {
        let memory = limits.memory_bytes_max.to_string();
        let period = PERIOD.as_micros();
        let quota = limits
            .processors_max
            .map(|processors| PERIOD.mul_f64(processors).as_micros());
        match self {
            Self::One {
                memory: path,
                quota: cpu,
                ..
            } => {
                let mut settings = vec![(path.join("memory.limit_in_bytes"), memory)];
                if let Some(quota) = quota {
                    settings.push((cpu.join("cpu.cfs_period_us"), period.to_string()));
                    settings.push((cpu.join("cpu.cfs_quota_us"), quota.to_string()));
                }
                settings
            }
            Self::Two(path) => {
                let mut settings = vec![(path.join("memory.max"), memory)];
                settings
                    .extend(quota.map(|quota| (path.join("cpu.max"), format!("{quota} {period}"))));
                settings
            }
        }
    }
}

fn usage_of_version_two(stat: &str) -> Result<CpuUsage> {
    let of = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name));
        Ok(Duration::from_micros(number(value.unwrap_or_default())?))
    };
    Ok(CpuUsage {
        total: of("usage_usec ")?,
        user: of("user_usec ")?,
        system: of("system_usec ")?,
    })
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

    #[test]
    fn a_quota_is_a_part_of_its_period() {
        let limits = Limits {
            memory_bytes_max: 7,
            processors_max: Some(1.5),
        };
        let two = Hierarchy::Two("/g".into());
        let cpu = (PathBuf::from("/g/cpu.max"), "150000 100000".to_owned());
        assert_eq!(
            two.settings(limits),
            [("/g/memory.max".into(), "7".into()), cpu]
        );
        let one = Hierarchy::One {
            memory: "/m".into(),
            accounting: "/c".into(),
            quota: "/c".into(),
        };
        assert_eq!(one.paths(), [PathBuf::from("/m"), "/c".into()]);
        let quota = (PathBuf::from("/c/cpu.cfs_quota_us"), "150000".to_owned());
        assert!(one.settings(limits).contains(&quota));
    }

    #[test]
    fn samples_divide_the_exact_total() {
        let usage = |total, user, system| CpuUsage {
            total: Duration::from_millis(total),
            user: Duration::from_millis(user),
            system: Duration::from_millis(system),
        };
        let since = usage(1000, 120, 460).since(&usage(200, 20, 160));
        assert_eq!(since, usage(800, 200, 600));
        assert_eq!(usage(5, 4, 4).since(&usage(5, 4, 4)), usage(0, 0, 0));
    }

    #[test]
    fn reads_the_statistics_of_version_two() {
        let usage = usage_of_version_two("usage_usec 30\nuser_usec 10\nsystem_usec 20\n").unwrap();
        assert_eq!(usage.total, usage.user + usage.system);
        assert!(usage_of_version_two("nr_periods 0\n").is_err());
    }
}
